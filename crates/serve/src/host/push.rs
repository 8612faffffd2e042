//! Takes bundles that an operator pushes: into a hidden folder, checked and flushed, then by a rename.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use hushtable_table::within;
use tokio::sync::Mutex;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};

mod client;
mod refusal;

pub use client::push;
pub use refusal::{PushDefect, PushRefusal};

use super::budget::Reservation;
use super::door::Routes;
use super::reload::{Next, Reload, Reloaded, blocking};
use crate::host::ReloadError;
use crate::wire::operate_server::Operate;
use crate::wire::push_frame::Frame;
use crate::wire::{PushFile, PushFrame, PushReply, PushStart};
use crate::{Error, Refusal, peer};

/// Where pushed bundles go, and who may push.
#[derive(Clone, Debug)]
pub(crate) struct PushTo {
    folder: PathBuf,
    /// BLAKE3 of the token: two hashes are compared in a time that tells nothing of where they differ.
    token: blake3::Hash,
}

impl PushTo {
    /// Reads the token of `file`.
    pub fn read(folder: PathBuf, file: &Path) -> Result<Self, Error> {
        let what = || format!("read the token for pushes from {}", file.display());
        let text = fs::read_to_string(file).map_err(|source| Error::Io { what: what(), source })?;
        let token = text.trim_start_matches('\u{feff}').trim_end_matches(['\r', '\n']);
        let usable = token.bytes().all(|byte| byte.is_ascii_graphic());
        if !usable || !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
            return Err(ReloadError::Token { path: file.to_owned() }.into());
        }
        if !folder.is_dir() {
            let source = io::ErrorKind::NotADirectory.into();
            return Err(Error::Io { what: format!("push to {}", folder.display()), source });
        }
        Ok(Self { folder, token: blake3::hash(token.as_bytes()) })
    }

    fn is_token(&self, given: Option<&[u8]>) -> bool {
        let given = given.and_then(|given| given.strip_prefix(b"Bearer "));
        given.is_some_and(|given| blake3::hash(given) == self.token)
    }
}

/// The service.
pub(crate) struct Push {
    to: PushTo,
    routes: Arc<dyn Routes>,
    reload: Reload,
    /// One push at a time.
    turn: Mutex<()>,
}

impl Push {
    pub fn new(to: PushTo, routes: Arc<dyn Routes>, reload: Reload) -> Self {
        Self { to, routes, reload, turn: Mutex::new(()) }
    }

    async fn answer(
        &self,
        token: Option<&[u8]>,
        frames: &mut Streaming<PushFrame>,
        reservation: Option<Arc<Reservation>>,
    ) -> Result<Reloaded, Status> {
        if !self.to.is_token(token) {
            return Err(PushRefusal::PushToken.into());
        }
        let Ok(_turn) = self.turn.try_lock() else {
            return Err(PushRefusal::PushUnderWay { retry_after: RETRY_AFTER }.into());
        };
        // Before the door gives it up, which gives no reason.
        let within = PUSH_MAX - Duration::from_secs(5);
        let received = timeout(within, self.receive(frames, reservation)).await;
        received.map_err(|_| PushRefusal::PushLate { s: within.as_secs() })?
    }

    async fn receive(
        &self,
        frames: &mut Streaming<PushFrame>,
        reservation: Option<Arc<Reservation>>,
    ) -> Result<Reloaded, Status> {
        let Some(PushFrame { frame: Some(Frame::Start(start)) }) = frames.message().await? else {
            return Err(wrong(PushDefect::Order));
        };
        let plan = Plan::check(start)?;
        plan.check_room(&self.to.folder)?;
        let staging = Staging::make(&self.to.folder)?;
        let (sender, receiver) = channel(FRAMES_AHEAD);
        // Whoever works on the folder has it, and removes it when it gives up: a client that goes ends this call at
        // any of its waits, and never what is under way in another thread.
        let files = plan.files;
        let writing = tokio::task::spawn_blocking(move || {
            write(&staging.0, &files, receiver)?;
            Ok::<_, PushRefusal>(staging)
        });
        let sent = send(frames, &sender, reservation.as_deref()).await;
        drop(sender);
        let lost = |_| PushRefusal::unwritable("write the bundle", &io::ErrorKind::Other.into());
        // Waited for in any case: whoever hears of the refusal finds the folder gone.
        let written = writing.await.map_err(lost)?;
        sent?;
        let staging = written?;
        let routes = Arc::clone(&self.routes);
        let examined = blocking(move || routes.examine(&staging.0).map(|()| staging)).await;
        let staging = examined.map_err(|error| PushRefusal::damaged(&error))?;
        let (reload, to) = (self.reload.clone(), self.to.folder.clone());
        tokio::spawn(take(staging, to, plan.name, reload)).await.map_err(lost)?
    }
}

/// Hands the bytes of all frames to the writer. One that has ended says why itself.
async fn send(
    frames: &mut Streaming<PushFrame>,
    writer: &Sender<Bytes>,
    reservation: Option<&Reservation>,
) -> Result<(), Status> {
    while let Some(frame) = frames.message().await? {
        let Some(Frame::Bytes(bytes)) = frame.frame else {
            return Err(wrong(PushDefect::Order));
        };
        let count = bytes.len();
        if writer.send(bytes).await.is_err() {
            break;
        }
        if let Some(reservation) = reservation {
            reservation.shrink(count);
        }
    }
    Ok(())
}

/// Puts a whole bundle in its place and has the server take it; what the server does not take goes.
async fn take(
    staging: Staging,
    to: PathBuf,
    name: String,
    reload: Reload,
) -> Result<Reloaded, Status> {
    // One more copy of what was pushed last would be of no use to anybody: the server is shown that one again. Where
    // it does not take it, it is damaged, and the copy that came now may be whole.
    if let Some(folder) = newest_alike(&staging.0, &to) {
        match reload.take(Next::Folder(folder)).await {
            Some(Ok(reloaded)) => return Ok(reloaded),
            Some(Err(error)) => tracing::warn!(%error, "what was pushed before is not taken again"),
            None => return Err(Refusal::Draining.into()),
        }
    }
    let folder = staging.arrive(&to, &name)?;
    match reload.take(Next::Folder(folder.clone())).await {
        Some(Ok(reloaded)) => Ok(reloaded),
        Some(Err(error)) => {
            // A server that is started again must not find it either.
            let _ = fs::remove_dir_all(&folder);
            Err(PushRefusal::not_taken(&error).into())
        }
        None => Err(Refusal::Draining.into()),
    }
}

#[tonic::async_trait]
impl Operate for Push {
    async fn push(
        &self,
        mut request: Request<Streaming<PushFrame>>,
    ) -> Result<Response<PushReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let (metadata, _, mut frames) = request.into_parts();
        let given = metadata.get("authorization").map(|value| value.as_encoded_bytes());
        let reloaded = self.answer(given, &mut frames, reservation).await?;
        Ok(Response::new(PushReply { taken: reloaded == Reloaded::Taken }))
    }
}

/// What a push brings, checked.
struct Plan {
    name: String,
    files: Vec<PushFile>,
}

impl Plan {
    fn check(PushStart { name, files }: PushStart) -> Result<Self, PushRefusal> {
        if !is_name(&name) {
            return Err(PushRefusal::name(&name));
        }
        if !(1..=FILES_MAX).contains(&files.len()) {
            return Err(PushRefusal::PushFiles { files: files.len(), files_max: FILES_MAX });
        }
        let mut paths = BTreeSet::new();
        for file in &files {
            let parts: Vec<&str> = file.path.split('/').collect();
            let fits = parts.len() <= DEPTH_MAX && parts.iter().all(|part| is_name(part));
            if !fits || !paths.insert(&file.path) {
                return Err(PushRefusal::name(&file.path));
            }
        }
        Ok(Self { name, files })
    }

    /// Refuses what the disk has no room for.
    fn check_room(&self, folder: &Path) -> Result<(), PushRefusal> {
        let sum = |sum: u64, file: &PushFile| sum.checked_add(file.bytes);
        let bytes = self.files.iter().try_fold(0, sum).unwrap_or(u64::MAX);
        let about = rustix::fs::statvfs(folder)
            .map_err(|error| PushRefusal::unwritable("look at the disk", &error.into()))?;
        let free = about.f_bavail.saturating_mul(about.f_frsize);
        let bytes_max = free.saturating_sub(ROOM_BYTES);
        match bytes > bytes_max {
            true => Err(PushRefusal::PushSpace { bytes, bytes_max }),
            false => Ok(()),
        }
    }
}

fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(fits)
}

/// A hidden folder, removed when dropped.
struct Staging(PathBuf);

impl Staging {
    fn make(beside: &Path) -> Result<Self, PushRefusal> {
        remove_leftovers(beside);
        let no_random = |_| failed("draw a folder's name")(io::ErrorKind::Other.into());
        let random = peer::random_u64().map_err(no_random)?;
        let path = beside.join(format!("{HIDDEN}{random:016x}"));
        fs::create_dir(&path).map_err(failed("make a folder"))?;
        Ok(Self(path))
    }

    /// Takes its place, whole.
    fn arrive(self, beside: &Path, name: &str) -> Result<PathBuf, PushRefusal> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let name = format!("{name}-{:014}", now.as_millis());
        let path = within::join(beside, &name).map_err(|_| PushRefusal::name(&name))?;
        fs::rename(&self.0, &path).map_err(failed("rename the folder"))?;
        let flushed = File::open(beside).and_then(|folder| folder.sync_all());
        flushed.map_err(failed("flush the folder"))?;
        Ok(path)
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // It may have taken its place.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The folder that came last to where pushes go, if it holds the same files.
fn newest_alike(pushed: &Path, beside: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(beside).ok()?.flatten().filter(|entry| {
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        !is_hidden && entry.file_type().is_ok_and(|kind| kind.is_dir())
    });
    let at = |entry: &fs::DirEntry| entry.metadata().and_then(|about| about.modified()).ok();
    let newest = folders.max_by_key(|entry| (at(entry), entry.file_name()))?.path();
    match are_alike(pushed, &newest) {
        Ok(true) => Some(newest),
        Ok(false) => None,
        Err(error) => {
            tracing::debug!(%error, "a push is not compared with the one before");
            None
        }
    }
}

/// Whether two folders hold the same files. Of large ones, which manifests have the hashes of, the sizes are compared,
/// and what was pushed was examined: what is served is checked as it is loaded.
fn are_alike(one: &Path, other: &Path) -> io::Result<bool> {
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.file_name()));
        entries.collect::<io::Result<BTreeSet<_>>>()
    };
    let own = names(one)?;
    if own != names(other)? {
        return Ok(false);
    }
    for name in own {
        let (one, other) = (one.join(&name), other.join(&name));
        let [of_one, of_other] = [fs::symlink_metadata(&one)?, fs::symlink_metadata(&other)?];
        let is_same = of_one.file_type() == of_other.file_type()
            && match of_one.is_dir() {
                true => are_alike(&one, &other)?,
                false if of_one.len() != of_other.len() => false,
                false => of_one.len() > COMPARED_BYTES_MAX || fs::read(&one)? == fs::read(&other)?,
            };
        if !is_same {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes what a server that was killed has left of pushes. A younger folder may be one that another server, of the
/// same place for pushes, is writing.
fn remove_leftovers(beside: &Path) {
    let is_old = |entry: &fs::DirEntry| {
        let hidden = entry.file_name().to_str().is_some_and(|name| name.starts_with(HIDDEN));
        let modified = entry.metadata().and_then(|about| about.modified());
        let age = modified.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
        hidden && age.is_ok_and(|age| age > 2 * PUSH_MAX)
    };
    for entry in fs::read_dir(beside).into_iter().flatten().flatten().filter(is_old) {
        if let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(%error, folder = %entry.path().display(), "could not remove what is left of a push");
        }
    }
}

/// Writes the files' bytes as they come, and flushes them.
fn write(
    folder: &Path,
    files: &[PushFile],
    mut frames: Receiver<Bytes>,
) -> Result<(), PushRefusal> {
    let wrong = |defect| PushRefusal::BadPush { defect };
    let mut rest = Bytes::new();
    let mut folders = BTreeSet::from([folder.to_owned()]);
    for PushFile { path, bytes } in files {
        // The names were checked; that nothing leads out of the folder is looked at once more where they are used.
        let path = within::join_real(folder, path).map_err(failed("name a file"))?;
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed("make a folder"))?;
            folders.insert(parent.to_owned());
        }
        let file = OpenOptions::new().write(true).create_new(true).open(&path);
        let mut file = file.map_err(failed("make a file"))?;
        let mut left = *bytes;
        while left > 0 {
            if rest.is_empty() {
                let next = frames.blocking_recv();
                rest = next.ok_or_else(|| wrong(PushDefect::Fewer))?;
            }
            let now = rest.split_to(rest.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
            file.write_all(&now).map_err(failed("write a file"))?;
            left -= now.len() as u64;
        }
        file.sync_all().map_err(failed("flush a file"))?;
    }
    while let Some(more) = frames.blocking_recv() {
        if !more.is_empty() {
            return Err(wrong(PushDefect::More));
        }
    }
    if !rest.is_empty() {
        return Err(wrong(PushDefect::More));
    }
    for folder in folders {
        let flushed = File::open(folder).and_then(|folder| folder.sync_all());
        flushed.map_err(failed("flush a folder"))?;
    }
    Ok(())
}

fn failed(what: &str) -> impl FnOnce(io::Error) -> PushRefusal {
    move |error| PushRefusal::unwritable(what, &error)
}

fn wrong(defect: PushDefect) -> Status {
    PushRefusal::BadPush { defect }.into()
}

/// How the names of folders begin that a push is written to.
const HIDDEN: &str = ".push-";
/// Files of more bytes are compared by their sizes.
const COMPARED_BYTES_MAX: u64 = 16 << 20;
const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 128;
const FILES_MAX: usize = 4096;
const DEPTH_MAX: usize = 8;
/// Frames that wait for the disk.
const FRAMES_AHEAD: usize = 2;
/// What is left of the disk.
const ROOM_BYTES: u64 = 64 << 20;
/// When a push is to be tried again where another is under way.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How long a push may take.
pub(super) const PUSH_MAX: Duration = Duration::from_secs(3600);
/// The largest frame: 1 MiB of bytes, or the start.
pub(super) const FRAME_BYTES_MAX: usize = (1 << 20) + 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(name: &str, paths: &[&str]) -> Result<Plan, PushRefusal> {
        let file = |path: &&str| PushFile { path: (*path).into(), bytes: 1 };
        Plan::check(PushStart { name: name.into(), files: paths.iter().map(file).collect() })
    }

    #[test]
    fn nothing_is_written_elsewhere() {
        assert!(plan("films-2", &["manifest.json", "tables/users/rows.safetensors"]).is_ok());
        for name in ["", ".", "..", ".films", "a/b", "a b", "films\n", &"x".repeat(129)] {
            assert!(plan(name, &["manifest.json"]).is_err(), "{name:?}");
        }
        for path in [
            "",
            "/etc/passwd",
            "../x",
            "a/../x",
            "a//b",
            "./x",
            "a/.x",
            "a\0b",
            "1/2/3/4/5/6/7/8/9",
        ] {
            assert!(plan("films", &[path]).is_err(), "{path:?}");
        }
        assert!(plan("films", &["a", "a"]).is_err());
        assert!(plan("films", &[]).is_err());
    }

    #[test]
    fn the_token_alone_is_taken() {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("token");
        fs::write(&file, "short\n").unwrap();
        assert!(PushTo::read(folder.path().into(), &file).is_err());
        fs::write(&file, "0123456789abcdef\n").unwrap();
        let to = PushTo::read(folder.path().into(), &file).unwrap();
        assert!(to.is_token(Some(b"Bearer 0123456789abcdef")));
        for given in [
            None,
            Some(&b"0123456789abcdef"[..]),
            Some(b"Bearer "),
            Some(b"Bearer 0123456789abcdeF"),
        ] {
            assert!(!to.is_token(given), "{given:?}");
        }
        assert!(PushTo::read("/nowhere".into(), &file).is_err());
    }
}
