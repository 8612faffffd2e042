//! What changes under a server while it runs: what it holds, and the files of its certificate.
//!
//! Whatever asks for it (SIGHUP, a watched folder, an operator's push), one task takes the requests one after
//! the other, off the threads that answer. What cannot be taken is said and counted, and what was there goes on.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};

use super::door::Routes;
use super::expiry::{self, Expiry};
use super::metrics::Metrics;
use super::scheme::Loading;
use super::tls::{self, ServerTls};
use crate::error::Own;
use crate::vital::Vitals;
use crate::{Error, TlsSpec};

/// Where a next version comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// The places that the server was started with, or that took theirs: what they hold now.
    Paths,
    /// A whole bundle, in place of the one of its name.
    Folder(PathBuf),
}

/// What came of a [`Next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reloaded {
    /// There is nothing that the server does not hold as its newest.
    Unchanged,
    /// It is held, and announced.
    Taken,
}

/// Why a next version is not taken; what is held goes on being served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The next version does not fit beside what is held.
    #[error(
        "the next version takes {bytes} bytes beside {held} that are held, over tables_bytes_max = \
         {bytes_max}: raise it (--tables-bytes-max), or wait until older versions are dropped \
         (--keep-old-s); what is held goes on being served"
    )]
    Budget {
        /// Bytes that it takes besides.
        bytes: u64,
        /// Bytes that are held.
        held: u64,
        /// The bound.
        bytes_max: u64,
    },
    /// The machine has no memory for it.
    #[error(
        "the next version takes {bytes} bytes, and this machine has {available} available: give it \
         memory, or wait until older versions are dropped (--keep-old-s); what is held goes on being \
         served"
    )]
    Memory {
        /// Bytes that it takes besides.
        bytes: u64,
        /// Bytes that the system could give.
        available: u64,
    },
    /// Too many versions are held at once.
    #[error(
        "{held} versions are held, and no more may be: wait until the older ones are dropped \
         (--keep-old-s, --keep-old-s-max); what is held goes on being served"
    )]
    Versions {
        /// How many.
        held: usize,
    },
    /// What the next version is answered from is not there yet. Of a watched folder it is looked for again every second.
    #[error("the next version waits: {reason}; what is held goes on being served")]
    NotYet {
        /// What is waited for.
        reason: String,
    },
    /// A token that cannot be one.
    #[error(
        "{}: a token for pushes is one line of 16 to 1,024 characters without spaces, such as \
         `openssl rand -hex 32` makes",
        path.display()
    )]
    Token {
        /// The file.
        path: PathBuf,
    },
    /// A folder for pushes without a token, or a token without a folder.
    #[error("push_folder and push_token_file go together: give both, or neither")]
    PushHalf,
    /// A pushed bundle whose bytes are not what its manifest says.
    #[error(
        "the bundle is damaged: {what}; push it again from one that `hushtable table verify` or `model verify` finds whole"
    )]
    Damaged {
        /// The first damage.
        what: String,
    },
    /// A pushed bundle with a file that none of its kind has.
    #[error(
        "{file:?} lies in the bundle's folder and is no file of the bundle: its manifest does not list it; move it \
         elsewhere, and push again"
    )]
    Unlisted {
        /// The file, in the folder.
        file: PathBuf,
    },
    /// A server that takes no pushes.
    #[error(
        "{url} takes no pushes: start it with --push-folder and --push-token-file, or replace its bundle where it \
         lies and send it SIGHUP"
    )]
    NoPushes {
        /// The server.
        url: String,
    },
    /// A bundle that is not another version of anything that is served.
    #[error("{}: this server serves no {kind} called {name:?}; it serves {served}", path.display())]
    Unserved {
        /// The bundle.
        path: PathBuf,
        /// `table` or `model`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What is served.
        served: String,
    },
}

impl Own for ReloadError {}

/// Asks a server to take what is new. Clones ask the same server.
#[derive(Clone, Debug)]
pub struct Reload(UnboundedSender<Asked>);

/// What is asked, and who wants to know what comes of it.
pub(super) type Asked = (Next, Option<oneshot::Sender<Result<Reloaded, Error>>>);

impl Reload {
    pub(super) fn new() -> (Self, UnboundedReceiver<Asked>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// Asks to see what the server's places hold now, its certificate's files included. Returns at once.
    pub fn ask(&self) {
        // A server that has ended takes nothing.
        let _ = self.0.send((Next::Paths, None));
    }

    /// Has `next` taken, and waits until it is announced or refused; None of a server that has ended.
    pub async fn take(&self, next: Next) -> Option<Result<Reloaded, Error>> {
        let (sender, receiver) = oneshot::channel();
        self.0.send((next, Some(sender))).ok()?;
        receiver.await.ok()
    }
}

/// The task that changes what a server has.
pub(super) struct Changes {
    pub routes: Arc<dyn Routes>,
    pub metrics: Arc<Metrics>,
    pub asked: UnboundedReceiver<Asked>,
    pub certificate: Option<Certificate>,
    pub watched: Vec<Watched>,
    /// What waits for something elsewhere, and is tried again; and why, as it was said last.
    pub waiting: Option<(PathBuf, String)>,
    /// What is told of threads that panic.
    pub vitals: Vitals,
}

impl Changes {
    /// Runs until it is dropped.
    pub async fn run(mut self) {
        let mut days = interval_at(Instant::now() + A_DAY, A_DAY);
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                asked = self.asked.recv() => {
                    // The server itself keeps one sender.
                    let Some((next, answer)) = asked else { return };
                    if next == Next::Paths {
                        self.renew_certificate(true).await;
                    }
                    let outcome = self.take(next).await;
                    if let Some(answer) = answer {
                        let _ = answer.send(outcome);
                    }
                }
                _ = days.tick() => {
                    if let Some(certificate) = &self.certificate {
                        certificate.say();
                    }
                }
                _ = ticks.tick() => {
                    self.renew_certificate(false).await;
                    let watched = std::mem::take(&mut self.watched);
                    let looked = blocking(move || {
                        let mut watched = watched;
                        let found: Vec<_> = watched.iter_mut().filter_map(Watched::look).collect();
                        (watched, found)
                    });
                    let (watched, found) = looked.await;
                    self.watched = watched;
                    let found = match found.is_empty() {
                        true => self.waiting.as_ref().map(|(folder, _)| folder.clone()).into_iter().collect(),
                        false => found,
                    };
                    for folder in found {
                        let _ = self.take(Next::Folder(folder)).await;
                    }
                    let routes = Arc::clone(&self.routes);
                    // Memory is given back here: no thread that answers does it.
                    blocking(move || routes.retire()).await;
                }
            }
        }
    }

    async fn take(&mut self, next: Next) -> Result<Reloaded, Error> {
        let routes = Arc::clone(&self.routes);
        let loading = Loading { vitals: self.vitals.clone(), ..Loading::default() };
        // Where this task ends, the load does too.
        let _abandon = super::Abandon(Arc::clone(&loading.is_abandoned));
        let asked = next.clone();
        let outcome = blocking(move || routes.reload(&asked, &loading)).await;
        let waited = match next {
            Next::Folder(_) => self.waiting.take(),
            Next::Paths => None,
        };
        match &outcome {
            Err(error)
                if let Next::Folder(folder) = &next
                    && let Some(ReloadError::NotYet { reason }) = error.of() =>
            {
                // Said once, and again when it is another.
                if waited.is_none_or(|(before, said)| (&before, &said) != (folder, reason)) {
                    tracing::info!(reason, ?next, "the next version waits");
                }
                self.waiting = Some((folder.clone(), reason.clone()));
            }
            Ok(Reloaded::Taken) => self.metrics.reload("taken"),
            Ok(Reloaded::Unchanged) => {
                tracing::info!(?next, "nothing is new");
                self.metrics.reload("unchanged");
            }
            Err(error) => {
                tracing::error!(%error, ?next, "the next version is not taken: what is held goes on");
                self.metrics.reload("refused");
            }
        }
        outcome
    }

    async fn renew_certificate(&mut self, is_asked: bool) {
        let Some(mut certificate) = self.certificate.take() else { return };
        let (certificate, outcome) = blocking(move || {
            let outcome = certificate.renew(is_asked);
            (certificate, outcome)
        })
        .await;
        let certificate = self.certificate.insert(certificate);
        match outcome {
            None => {}
            Some(Ok(())) => {
                certificate.say();
                tracing::info!("new connections get the certificate that is in the files now");
                self.metrics.reload("certificate");
            }
            Some(Err(error)) => {
                tracing::error!(%error, "the certificate's files are not taken: the last ones go on");
                self.metrics.reload("certificate_refused");
            }
        }
    }
}

/// A server's certificate, and the files that it is from.
pub(super) struct Certificate {
    spec: TlsSpec,
    config: watch::Sender<Arc<ServerConfig>>,
    expiry: Option<Expiry>,
    gauge: expiry::Gauge,
    /// The files as they were when they were read last.
    read: Vec<Option<Stamp>>,
    /// As they were when they were looked at last: files that are being written are not read.
    seen: Vec<Option<Stamp>>,
}

/// What a file that was replaced or written to has another of: device, inode, bytes, time.
pub(crate) type Stamp = (u64, u64, u64, i64, i64);

impl Certificate {
    pub fn new(spec: TlsSpec, tls: ServerTls, gauge: expiry::Gauge) -> Self {
        let read = stamps(&spec);
        let ServerTls { config, expiry } = tls;
        let config = watch::channel(config).0;
        let new = Self { spec, config, expiry, gauge, seen: read.clone(), read };
        new.say();
        new
    }

    /// Says when it expires: to the metrics always, in the log where it is near or over.
    fn say(&self) {
        if let Some(expiry) = &self.expiry {
            self.gauge.set(expiry.at_s());
            expiry.say(expiry::now_s());
        }
    }

    /// What connections are accepted with.
    pub fn config(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.config.subscribe()
    }

    /// Reads the files where they have changed and stay so; or where `is_asked`. None where they have not.
    fn renew(&mut self, is_asked: bool) -> Option<Result<(), Error>> {
        let now = stamps(&self.spec);
        let is_still = std::mem::replace(&mut self.seen, now.clone()) == now;
        if now == self.read || !(is_still || is_asked) {
            return None;
        }
        // What is broken is said once, and read again when it changes.
        self.read = now;
        Some(self.take())
    }

    /// One that is over already takes the place of none.
    fn take(&mut self) -> Result<(), Error> {
        let ServerTls { config, expiry } = tls::server_tls(&self.spec)?;
        expiry.iter().try_for_each(|expiry| expiry.check(expiry::now_s()))?;
        self.config.send_replace(config);
        self.expiry = expiry;
        Ok(())
    }
}

fn stamps(spec: &TlsSpec) -> Vec<Option<Stamp>> {
    let authorities = [spec.client_ca.as_ref(), spec.peer_ca.as_ref()];
    let files = [Some(&spec.cert), Some(&spec.key)].into_iter().chain(authorities);
    files.flatten().map(|path| stamp(path)).collect()
}

pub(crate) fn stamp(path: &Path) -> Option<Stamp> {
    let about = fs::metadata(path).ok()?;
    Some((about.dev(), about.ino(), about.size(), about.mtime(), about.mtime_nsec()))
}

/// A folder whose newest bundle is served.
pub(super) struct Watched {
    folder: PathBuf,
    /// What was found last, taken or not.
    last: Option<(Stamp, PathBuf)>,
}

impl Watched {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, last: None }
    }

    /// The newest folder in it, where that is another than the last time. Folders come by a rename, whole; those
    /// whose names begin with a dot are still being written.
    fn look(&mut self) -> Option<PathBuf> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) => {
                tracing::debug!(%error, folder = %self.folder.display(), "the folder is not read");
                return None;
            }
        };
        let mut newest: Option<((i64, i64, PathBuf), Stamp)> = None;
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            let Some(stamp) = stamp(&path).filter(|_| !is_hidden && path.is_dir()) else {
                continue;
            };
            let order = (stamp.3, stamp.4, path);
            if newest.as_ref().is_none_or(|(last, _)| *last < order) {
                newest = Some((order, stamp));
            }
        }
        let ((.., path), stamp) = newest?;
        let found = (stamp, path);
        if self.last.as_ref() == Some(&found) {
            return None;
        }
        self.last = Some(found.clone());
        Some(found.1)
    }
}

/// Bytes that this process can still take: what the system could give, and what its control group leaves. None
/// where neither says.
pub(crate) fn available_bytes() -> Option<u64> {
    let system = fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
    });
    let group = |name: &str| fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok();
    let number = |name: &str| group(name)?.trim().parse::<u64>().ok();
    let left = number("memory.max").and_then(|most| {
        // Pages of files are dropped before anything is refused.
        let stat = group("memory.stat")?;
        let file = stat.lines().find_map(|line| line.strip_prefix("inactive_file "))?;
        let used = number("memory.current")?.saturating_sub(file.trim().parse().ok()?);
        Some(most.saturating_sub(used))
    });
    match (system, left) {
        (Some(system), Some(left)) => Some(system.min(left)),
        (one, other) => one.or(other),
    }
}

pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// How often files and folders are looked at, and versions that are drained.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a certificate that expires soon is said to.
const A_DAY: Duration = Duration::from_secs(24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_whole_folder_is_found_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let mut watched = Watched::new(folder.path().to_owned());
        assert_eq!(watched.look(), None);
        let make = |name: &str| {
            fs::create_dir(folder.path().join(name)).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        };
        make("first");
        assert_eq!(watched.look(), Some(folder.path().join("first")));
        assert_eq!(watched.look(), None);
        make(".second");
        fs::write(folder.path().join("note"), "no folder").unwrap();
        assert_eq!(watched.look(), None);
        fs::rename(folder.path().join(".second"), folder.path().join("second")).unwrap();
        assert_eq!(watched.look(), Some(folder.path().join("second")));
        fs::remove_dir(folder.path().join("second")).unwrap();
        assert_eq!(watched.look(), Some(folder.path().join("first")));
        assert_eq!(Watched::new("/nowhere".into()).look(), None);
    }

    #[test]
    fn this_machine_says_what_memory_it_has() {
        assert!(available_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
