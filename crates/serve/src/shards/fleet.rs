//! The servers of all shards: who is ready, and what changes about it.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use hushtable_table::Version;
use tokio::runtime::{Builder, Handle, Runtime};

use super::file::FleetFile;
use super::hedge::{Budget, Recent};
use super::metrics::FrontMetrics;
use super::replica::{HOLDS_EVERY, Replica};
use super::{Owner, ShardError};
use crate::Error;
use crate::peer::lane::Lane;
use crate::refusal::Tables;

/// All servers of all shards, and the threads that speak to them.
pub(crate) struct Fleet {
    pub(super) shared: Arc<Shared>,
    runtime: Option<Runtime>,
}

pub(super) struct Shared {
    owner: Owner,
    holds_path: &'static str,
    path: PathBuf,
    refusals: Tables,
    insecure: bool,
    fleet: RwLock<Arc<State>>,
    in_use: Mutex<Vec<Weak<InUse>>>,
    /// Since when each version is waited for.
    waited: Mutex<HashMap<Version, Instant>>,
    pub budget: Budget,
    pub metrics: FrontMetrics,
    handle: Handle,
}

/// The servers as the file had them last.
pub(super) struct State {
    pub file: FleetFile,
    pub shards: Vec<Arc<ShardState>>,
}

pub(super) struct ShardState {
    pub number: usize,
    pub replicas: Vec<Arc<Replica>>,
    pub recent: Arc<Recent>,
    /// Which of several that are alike is next.
    pub turn: std::sync::atomic::AtomicUsize,
}

/// A map that a front answers by: shards keep it for as long as this is there.
pub(crate) struct InUse {
    pub map_version: Version,
}

/// How a [`Fleet`] is made.
pub(crate) struct FleetSpec<'a> {
    /// `shards.toml`.
    pub file: &'a Path,
    pub owner: Owner,
    /// The method that a shard says by what it holds.
    pub holds_path: &'static str,
    /// What shards refuse by.
    pub refusals: Tables,
    pub insecure: bool,
    pub threads: usize,
    pub metrics: FrontMetrics,
}

impl Fleet {
    /// Reads the file of shards and begins to ask each server how it is.
    pub fn start(spec: FleetSpec<'_>) -> Result<Arc<Self>, Error> {
        let FleetSpec { file: path, owner, holds_path, refusals, insecure, threads, metrics } =
            spec;
        let file = FleetFile::read(path)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads.max(2))
            .thread_name("hushtable-front")
            .enable_all()
            .build()
            .map_err(|source| Error::Io { what: "start the front's threads".into(), source })?;
        let empty = State { file: file.clone(), shards: Vec::new() };
        let shared = Arc::new(Shared {
            owner,
            holds_path,
            path: path.to_owned(),
            refusals,
            insecure,
            fleet: RwLock::new(Arc::new(empty)),
            in_use: Mutex::default(),
            waited: Mutex::default(),
            budget: Budget::default(),
            metrics,
            handle: runtime.handle().clone(),
        });
        shared.take(file, false)?;
        runtime.spawn(watch(Arc::downgrade(&shared)));
        Ok(Arc::new(Self { shared, runtime: Some(runtime) }))
    }

    /// The threads that speak to shards.
    pub fn handle(&self) -> &Handle {
        &self.shared.handle
    }

    /// Notes that a front goes by this map, for as long as what is returned is there.
    pub fn use_map(&self, map_version: Version) -> Arc<InUse> {
        let mut in_use = self.shared.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        in_use.retain(|map| map.strong_count() > 0);
        let known = in_use.iter().filter_map(Weak::upgrade);
        if let Some(known) = { known }.find(|known| known.map_version == map_version) {
            return known;
        }
        let new = Arc::new(InUse { map_version });
        in_use.push(Arc::downgrade(&new));
        new
    }

    /// How many shards the file names.
    pub fn shards(&self) -> usize {
        self.shared.state().shards.len()
    }

    /// Whether each of `expected` shards has a server that holds `map`; then every server that answers at all, or as
    /// many as had it once the wait for the last is over.
    pub fn check_ready(&self, expected: usize, map: Version) -> Result<(), ShardError> {
        let state = self.shared.state();
        let found = state.shards.len();
        if expected != found {
            return Err(ShardError::Count { path: self.shared.path.clone(), expected, found });
        }
        let mut waited = self.shared.waited.lock().unwrap_or_else(PoisonError::into_inner);
        if waited.len() > WAITED_MAX {
            waited.clear();
        }
        let since = *waited.entry(map).or_insert_with(Instant::now);
        let is_late = since.elapsed() >= Duration::from_secs(state.file.change_s_max);
        let mut absent = Vec::new();
        for shard in &state.shards {
            let (ready, others): (Vec<_>, Vec<_>) =
                shard.replicas.iter().partition(|replica| replica.holds(map));
            for replica in &others {
                if let Some(found) = replica.owner().filter(|&found| found != self.shared.owner) {
                    let (url, expected) = (replica.url().to_owned(), self.shared.owner);
                    return Err(ShardError::Side { url, expected, found });
                }
            }
            let loading = others.iter().any(|replica| replica.is_up());
            if ready.is_empty() || (loading && !is_late) {
                let why =
                    |replica: &&Arc<Replica>| format!("{}: {}", replica.url(), replica.reason());
                let why: Vec<_> = others.iter().map(why).collect();
                absent.push(format!("shard {} ({})", shard.number, why.join(", ")));
            }
        }
        match absent.is_empty() {
            true => {
                waited.remove(&map);
                Ok(())
            }
            false => Err(ShardError::Absent { shards: absent }),
        }
    }

    /// Waits until that is so, for as long as the file says.
    pub fn wait_ready(
        &self,
        shards: usize,
        map: Version,
        is_abandoned: &AtomicBool,
    ) -> Result<(), Error> {
        let started = Instant::now();
        let limit = Duration::from_secs(self.shared.state().file.start_s_max);
        let mut said = started;
        loop {
            match self.check_ready(shards, map) {
                Ok(()) => return Ok(()),
                Err(error @ ShardError::Absent { .. }) if started.elapsed() < limit => {
                    if said.elapsed() >= SAY_EVERY {
                        said = Instant::now();
                        tracing::info!(%error, "waiting for shards");
                    }
                }
                Err(error) => return Err(error.into()),
            }
            if is_abandoned.load(Ordering::Relaxed) {
                return Err(
                    ShardError::Absent { shards: vec!["the start was given up".into()] }.into()
                );
            }
            std::thread::sleep(WAIT_STEP);
        }
    }

    /// Bytes that the request of one pass may have, to every shard.
    pub fn request_bytes_max(&self) -> usize {
        let state = self.shared.state();
        let replicas = state.shards.iter().flat_map(|shard| &shard.replicas);
        let bounds = replicas.map(|replica| replica.request_bytes_max()).filter(|&bytes| bytes > 0);
        bounds.min().unwrap_or(REQUEST_BYTES_LEAST)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        // It may be dropped where a runtime runs, which must not wait.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    pub fn state(&self) -> Arc<State> {
        Arc::clone(&self.fleet.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The file of shards, and those of certificates that it names, as they are now.
    fn stamps(&self) -> Vec<Option<(u64, SystemTime)>> {
        let state = self.state();
        let FleetFile { ca, cert, key, .. } = &state.file;
        let named = [ca, cert, key].into_iter().flatten().map(PathBuf::as_path);
        let stamp = |path: &Path| {
            let about = fs::metadata(path).ok()?;
            Some((about.len(), about.modified().unwrap_or(SystemTime::UNIX_EPOCH)))
        };
        std::iter::once(self.path.as_path()).chain(named).map(stamp).collect()
    }

    fn read_again(self: &Arc<Self>, is_renewed: bool) -> Result<(), Error> {
        let expected = self.state().shards.len();
        let file = FleetFile::read(&self.path)?;
        match file.shard.len() {
            found if found == expected => self.take(file, is_renewed),
            found => Err(ShardError::Count { path: self.path.clone(), expected, found }.into()),
        }
    }

    /// Goes by `file` from now on. A server that it names as before keeps its connection, and what is known of it,
    /// unless certificates are other ones.
    fn take(self: &Arc<Self>, file: FleetFile, is_renewed: bool) -> Result<(), Error> {
        let _within = self.handle.enter();
        let before = self.state();
        let is_same_tls = !is_renewed
            && (&file.ca, &file.cert, &file.key)
                == (&before.file.ca, &before.file.cert, &before.file.key);
        let mut shards = Vec::with_capacity(file.shard.len());
        for (number, servers) in file.shard.iter().enumerate() {
            let old = before.shards.get(number).filter(|_| is_same_tls);
            let mut replicas = Vec::with_capacity(servers.replicas.len());
            for url in &servers.replicas {
                let known = old.and_then(|old| old.replicas.iter().find(|it| it.url() == url));
                replicas.push(match known {
                    Some(known) => Arc::clone(known),
                    None => {
                        let endpoint = file.endpoint(url, self.owner)?;
                        let lane = Lane::new(&endpoint, self.insecure, CONNECT_MAX, self.refusals)?;
                        let replica = Replica::new(number, lane);
                        let before = before.shards.get(number);
                        let before =
                            before.and_then(|old| old.replicas.iter().find(|it| it.url() == url));
                        // What it holds is as before; only how it is spoken to is not.
                        before.into_iter().for_each(|before| replica.know(before));
                        let replica = Arc::new(replica);
                        let (of, shared) = (Arc::downgrade(&replica), Arc::downgrade(self));
                        self.handle.spawn(follow(of, shared));
                        replica
                    }
                });
            }
            let recent = old.map(|old| Arc::clone(&old.recent)).unwrap_or_default();
            let turn = std::sync::atomic::AtomicUsize::default();
            shards.push(Arc::new(ShardState { number, replicas, recent, turn }));
        }
        let state = Arc::new(State { file, shards });
        *self.fleet.write().unwrap_or_else(PoisonError::into_inner) = state;
        Ok(())
    }

    /// The maps that this front goes by, as messages have them.
    fn maps_in_use(&self) -> Vec<Bytes> {
        let in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let maps = in_use.iter().filter_map(Weak::upgrade);
        maps.map(|map| Bytes::copy_from_slice(map.map_version.as_bytes())).collect()
    }

    /// The map that was used last.
    fn newest(&self) -> Option<Version> {
        let in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = in_use.iter().rev().find_map(Weak::upgrade);
        newest.map(|map| map.map_version)
    }
}

/// Asks a server how it is, every now and then, until it is in no file any more.
async fn follow(replica: Weak<Replica>, shared: Weak<Shared>) {
    loop {
        let (Some(of), Some(fleet)) = (replica.upgrade(), shared.upgrade()) else { return };
        of.ask_holds(fleet.holds_path, fleet.owner, fleet.maps_in_use()).await;
        let doubted = Arc::clone(&of.doubted);
        drop((of, fleet));
        tokio::select! {
            () = tokio::time::sleep(HOLDS_EVERY) => {}
            // Not at once: what has just ended its connection listens again after a moment.
            () = doubted.notified() => tokio::time::sleep(DOUBT_PAUSE).await,
        }
    }
}

/// Reads the files again where one has changed, and counts.
async fn watch(shared: Weak<Shared>) {
    let Some(first) = shared.upgrade().map(|fleet| fleet.stamps()) else { return };
    let mut seen = first;
    loop {
        tokio::time::sleep(READ_EVERY).await;
        let Some(fleet) = shared.upgrade() else { return };
        let now = fleet.stamps();
        if now[0].is_some() && now != seen {
            // Of a renewed certificate, too, only new connections know.
            let is_renewed = now[1..] != seen[1..];
            seen = now;
            match fleet.read_again(is_renewed) {
                Ok(()) => {
                    let path = fleet.path.display();
                    tracing::info!(%path, "the shards' servers are those of the file now");
                }
                Err(error) => tracing::error!(
                    %error,
                    "the file of shards is not taken: the servers of before go on"
                ),
            }
        }
        if let Some(newest) = fleet.newest() {
            for shard in &fleet.state().shards {
                let ready = shard.replicas.iter().filter(|replica| replica.holds(newest)).count();
                fleet.metrics.replicas(shard.number, shard.replicas.len(), ready);
            }
        }
    }
}

const CONNECT_MAX: Duration = Duration::from_secs(2);
const READ_EVERY: Duration = Duration::from_secs(1);
const DOUBT_PAUSE: Duration = Duration::from_millis(50);
const WAIT_STEP: Duration = Duration::from_millis(50);
const SAY_EVERY: Duration = Duration::from_secs(10);
const WAITED_MAX: usize = 64;
/// What every server takes.
const REQUEST_BYTES_LEAST: usize = 1 << 20;
