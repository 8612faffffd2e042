//! What servers of tables share where they hold several versions: which are still asked for, where the next one
//! comes from, and whether it fits.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hushtable_table::model::{self, ModelManifest};
use hushtable_table::{Table, unlisted};
use serde::{Deserialize, Serialize};

use super::bundles::is_model;
use crate::Error;
use crate::host::network::within_u64;
use crate::host::push::PushTo;
use crate::host::reload::available_bytes;
use crate::host::{Next, ReloadError};

/// How a server changes to a next version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct ChangeSpec {
    /// A folder whose newest bundle is served in place of the one of its name, as soon as it is there: bundles come
    /// into it by a rename, whole.
    pub watch: Option<PathBuf>,
    /// Where bundles go that the operator pushes, and are served from; it is watched too. Only with a token.
    pub push_folder: Option<PathBuf>,
    /// The file of the token that a push must have.
    pub push_token_file: Option<PathBuf>,
    /// How long an older version is kept after the last request for it, in seconds.
    pub keep_old_s: u64,
    /// How long an older version is kept at most, in seconds, whoever asks for it.
    pub keep_old_s_max: u64,
}

impl Default for ChangeSpec {
    fn default() -> Self {
        Self {
            watch: None,
            push_folder: None,
            push_token_file: None,
            keep_old_s: 600,
            keep_old_s_max: 86_400,
        }
    }
}

/// How long older versions are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    idle: Duration,
    age: Duration,
}

impl ChangeSpec {
    /// Where an operator's pushes go; None where there is no token for them.
    pub(crate) fn push(&self) -> Result<Option<PushTo>, Error> {
        match (&self.push_folder, &self.push_token_file) {
            (None, None) => Ok(None),
            (Some(folder), Some(file)) => PushTo::read(folder.clone(), file).map(Some),
            _ => Err(ReloadError::PushHalf.into()),
        }
    }

    /// Folders whose newest bundle is served.
    pub(crate) fn watched(&self) -> Vec<PathBuf> {
        self.watch.iter().chain(&self.push_folder).cloned().collect()
    }

    pub(crate) fn check(&self) -> Result<Keep, Error> {
        within_u64("keep_old_s", self.keep_old_s, 0..=KEEP_S_MAX)?;
        within_u64("keep_old_s_max", self.keep_old_s_max, self.keep_old_s..=KEEP_S_MAX)?;
        let [idle, age] = [self.keep_old_s, self.keep_old_s_max].map(Duration::from_secs);
        Ok(Keep { idle, age })
    }
}

impl Keep {
    /// Whether a version that was the newest until `since` is to go: where nobody asked for any of `parts`, which it
    /// alone has, for long enough, or it is too old.
    pub fn is_over<'a>(
        self,
        since: Instant,
        mut parts: impl Iterator<Item = &'a Uses>,
        now: Instant,
    ) -> bool {
        let age = now.saturating_duration_since(since);
        age >= self.age
            || parts.all(|uses| uses.idle(now).is_some_and(|idle| idle.min(age) >= self.idle))
    }
}

/// Who asks for a part of what a server holds.
#[derive(Debug)]
pub(crate) struct Uses {
    under_way: AtomicUsize,
    start: Instant,
    /// Milliseconds from the start to the last request.
    last_ms: AtomicU64,
}

/// A request under way.
pub(crate) struct Using<'a>(&'a Uses);

impl Uses {
    pub fn new() -> Self {
        Self { under_way: AtomicUsize::new(0), start: Instant::now(), last_ms: AtomicU64::new(0) }
    }

    /// Notes a request, until what is returned is dropped.
    pub fn begin(&self) -> Using<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        Using(self)
    }

    /// Notes a request that is over at once.
    pub fn note(&self) {
        drop(self.begin());
    }

    /// How long nobody has asked; None while somebody waits.
    fn idle(&self, now: Instant) -> Option<Duration> {
        let last = self.start + Duration::from_millis(self.last_ms.load(Ordering::Relaxed));
        let is_idle = self.under_way.load(Ordering::Relaxed) == 0;
        is_idle.then(|| now.saturating_duration_since(last))
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        let ms = self.0.start.elapsed().as_millis() as u64;
        self.0.last_ms.fetch_max(ms, Ordering::Relaxed);
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Where the bundles are that a server holds, and what they are called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources(Vec<Source>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Source {
    path: PathBuf,
    kind: &'static str,
    name: String,
}

impl Sources {
    /// Those of `paths`, which open.
    pub fn of<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<Self, Error> {
        paths.into_iter().map(|path| Source::of(path)).collect::<Result<_, _>>().map(Self)
    }

    pub fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.0.iter().map(|source| &source.path)
    }

    /// Those that a next version comes from.
    ///
    /// # Errors
    /// [`ReloadError::Unserved`] for a bundle that takes no other's place; the errors of a bundle that does not
    /// open.
    pub fn next(&self, next: &Next) -> Result<Self, Error> {
        let Next::Folder(path) = next else { return Self::of(self.paths()) };
        let found = Source::of(path)?;
        let mut sources = self.clone();
        let place =
            sources.0.iter_mut().find(|it| (it.kind, &it.name) == (found.kind, &found.name));
        let Some(place) = place else {
            let served = self.0.iter().map(|it| format!("{} {:?}", it.kind, it.name));
            let served = served.collect::<Vec<_>>().join(", ");
            let Source { path, kind, name } = found;
            return Err(ReloadError::Unserved { path, kind, name, served }.into());
        };
        *place = found;
        Ok(sources)
    }
}

impl Source {
    fn of(path: &Path) -> Result<Self, Error> {
        let (kind, name) = match is_model(path) {
            true => {
                let manifest = ModelManifest::read(path).map_err(|source| Error::Model {
                    path: path.to_owned(),
                    source: Box::new(source),
                })?;
                ("model", manifest.name().to_owned())
            }
            false => {
                let table = Table::open(path).map_err(|source| Error::Table {
                    path: path.to_owned(),
                    source: Box::new(source),
                })?;
                ("table", table.name().to_owned())
            }
        };
        Ok(Self { path: path.to_owned(), kind, name })
    }
}

/// Reads every byte of a bundle, and checks it against its own hashes; and that there is nothing beside it.
pub(crate) fn examine(folder: &Path) -> Result<(), Error> {
    let damaged = |what: String| Error::from(ReloadError::Damaged { what });
    let (is_whole, what) = match is_model(folder) {
        true => {
            let report = model::verify(folder, &mut |_, _| {});
            let report = report.map_err(|error| damaged(error.to_string()))?;
            (report.ok, "a file of the model is not what its manifest says".to_owned())
        }
        false => {
            let report = hushtable_table::verify(folder, &mut |_, _| {});
            let report = report.map_err(|error| damaged(error.to_string()))?;
            (report.ok, report.damaged.first().map(ToString::to_string).unwrap_or_default())
        }
    };
    if !is_whole {
        return Err(damaged(what));
    }
    match unlisted(folder).map_err(|error| damaged(error.to_string()))? {
        None => Ok(()),
        Some(file) => Err(ReloadError::Unlisted { file }.into()),
    }
}

/// Refuses a next version that does not fit beside what is held.
pub(crate) fn check_room(bytes: u64, held: u64, bytes_max: Option<u64>) -> Result<(), Error> {
    if let Some(bytes_max) = bytes_max
        && held.saturating_add(bytes) > bytes_max
    {
        return Err(ReloadError::Budget { bytes, held, bytes_max }.into());
    }
    match available_bytes() {
        Some(available) if bytes.saturating_add(ROOM_BYTES) > available => {
            Err(ReloadError::Memory { bytes, available }.into())
        }
        _ => Ok(()),
    }
}

/// The first eight bytes of what hashes the newest of what a server holds.
pub(crate) fn state_of(parts: impl IntoIterator<Item = impl AsRef<[u8]>>) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        let part = part.as_ref();
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    let [a, b, c, d, e, f, g, h, ..] = *hasher.finalize().as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// Versions that a server holds at once at most: of each thing, the newest and older ones.
pub(crate) const GENERATIONS_MAX: usize = 8;
/// What is left to the system beside a next version.
const ROOM_BYTES: u64 = 64 << 20;
/// A year.
const KEEP_S_MAX: u64 = 366 * 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_goes_once_nobody_asks_for_it() {
        let keep = Keep { idle: Duration::from_secs(10), age: Duration::from_secs(100) };
        let uses = Uses::new();
        let start = uses.start;
        let at = |s| start + Duration::from_secs(s);
        assert!(!keep.is_over(at(0), [&uses].into_iter(), at(9)));
        assert!(keep.is_over(at(0), [&uses].into_iter(), at(11)));
        // Nobody asked while it was the newest: it is kept from its end on.
        assert!(!keep.is_over(at(50), [&uses].into_iter(), at(55)));
        let using = uses.begin();
        assert!(!keep.is_over(at(0), [&uses].into_iter(), at(99)));
        assert!(keep.is_over(at(0), [&uses].into_iter(), at(100)), "however many ask");
        drop(using);
        assert!(keep.is_over(at(0), [&uses].into_iter(), at(11)));
        // What newer versions have too is no reason to keep it.
        assert!(keep.is_over(at(0), [].into_iter(), at(0)));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_figures() {
        assert!(check_room(10, 90, Some(100)).is_ok());
        let error = check_room(11, 90, Some(100)).unwrap_err().to_string();
        for figure in ["11 bytes", "90 that are held", "= 100", "--tables-bytes-max"] {
            assert!(error.contains(figure), "{error}");
        }
        let error = check_room(1 << 60, 0, None).unwrap_err().to_string();
        assert!(error.contains("this machine has"), "{error}");
    }

    #[test]
    fn a_state_is_of_its_parts_and_not_of_their_bytes_alone() {
        assert_eq!(state_of(["ab", "c"]), state_of(["ab", "c"]));
        assert_ne!(state_of(["ab", "c"]), state_of(["a", "bc"]));
        assert_ne!(state_of(["ab", "c"]), state_of(["c", "ab"]));
    }
}
