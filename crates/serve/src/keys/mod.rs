//! Clients' keys: uploaded once, known by what they hash to, kept within budgets of bytes.
//!
//! Parsed keys are kept in memory, and with a folder the uploaded bytes on disk too, where they
//! outlast the process; they are read and parsed again at their next use. Where a budget is full,
//! those keys go that were used longest ago: of the peer that brings new ones first, so that no peer
//! pushes out the keys of others. What goes from memory only is not lost; what goes from
//! disk is gone. A query that holds an `Arc` of its keys is answered even so.
//!
//! A key id is a client's pseudonym: none is logged or counted by.

mod folder;
mod lru;
mod metrics;
pub(crate) mod refusal;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use hushtable_pir::onion::KeyId;

pub use self::metrics::KeyMetrics;
use crate::Error;
use crate::batch::Origin;
use folder::Folder;
use lru::{Lru, NOBODY};

/// Makes sense of a client's keys: the seam to the scheme.
pub trait KeyParser: Send + Sync + 'static {
    /// Keys as queries are answered with them.
    type Keys: Send + Sync + 'static;
    /// Why bytes are no keys.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Parses and checks a client's keys.
    ///
    /// # Errors
    /// For bytes that are no keys, or none of this server's parameters.
    fn parse(&self, bytes: &[u8]) -> Result<Self::Keys, Self::Error>;

    /// Bytes that parsed keys take in memory.
    fn memory_bytes(&self, keys: &Self::Keys) -> usize;
}

/// How much of clients' keys is kept, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct KeyStoreSpec {
    /// Most bytes of parsed keys in memory.
    pub memory_bytes_max: usize,
    /// Where uploaded keys are kept through restarts; none to keep them in memory only.
    pub folder: Option<PathBuf>,
    /// Most bytes of keys in the folder.
    pub folder_bytes_max: usize,
    /// Most bytes of one client's keys.
    pub key_bytes_max: usize,
    /// Most bytes of parsed keys in memory that came from one peer, and of keys in the folder.
    pub peer_bytes_max: PeerShare,
}

/// How much of clients' keys may be one peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct PeerShare {
    /// Bytes in memory.
    pub memory: usize,
    /// Bytes in the folder.
    pub folder: usize,
}

impl PeerShare {
    /// `given` bytes of each budget, or half of it, but one client's keys at least.
    pub fn of(
        given: Option<usize>,
        [memory, folder]: [usize; 2],
        [parsed, uploaded]: [usize; 2],
    ) -> Self {
        let part = |budget: usize, least: usize| given.unwrap_or((budget / 2).max(least));
        Self { memory: part(memory, parsed), folder: part(folder, uploaded) }
    }
}

/// Keeps clients' keys. Its methods may read and write files: call them where that is allowed.
pub struct KeyStore<P: KeyParser> {
    parser: P,
    folder: Option<Folder>,
    key_bytes_max: usize,
    state: Mutex<State<P::Keys>>,
    metrics: KeyMetrics,
}

struct State<K> {
    memory: Lru<Arc<K>>,
    disk: Lru<OnDisk>,
    /// Files named so far.
    named: u64,
}

struct OnDisk {
    bytes: usize,
    /// When the file's time was last set.
    touched: SystemTime,
    /// Tells this file from one that the same keys had before.
    serial: u64,
}

/// What became of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// What the keys are known by from now on.
    pub id: KeyId,
    /// How many other clients' keys were dropped to make room.
    pub evicted: usize,
    /// Whether the store held these keys already.
    pub held: bool,
}

/// Why keys are not kept, or not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeysError<E: std::error::Error> {
    /// They do not parse.
    #[error("{0}")]
    Parse(E),
    /// They alone are larger than a budget.
    #[error("the keys take {bytes} bytes, and no more than {bytes_max} are kept: raise the budget")]
    Budget {
        /// Bytes that they take.
        bytes: usize,
        /// The budget.
        bytes_max: usize,
    },
}

impl<P: KeyParser> KeyStore<P> {
    /// Opens the folder, if there is to be one. Files are not read yet, only what their names and
    /// sizes say; where they are over the budget, those used longest ago are removed.
    ///
    /// # Errors
    /// [`Error::Io`] for a folder that cannot be made, read or written.
    pub fn open(parser: P, spec: &KeyStoreSpec, metrics: KeyMetrics) -> Result<Self, Error> {
        let KeyStoreSpec { memory_bytes_max, folder_bytes_max, key_bytes_max, .. } = *spec;
        let mut disk = Lru::new(folder_bytes_max, spec.peer_bytes_max.folder);
        let mut folder = None;
        if let Some(path) = &spec.folder {
            let failed = |source| io_error(path, source);
            let (opened, found) = Folder::open(path, key_bytes_max).map_err(failed)?;
            let mut evicted = 0;
            for keys in found {
                let file = OnDisk { bytes: keys.bytes, touched: keys.modified, serial: 0 };
                for gone in disk.insert(keys.id, NOBODY, keys.bytes, file) {
                    opened.remove(&gone).map_err(failed)?;
                    evicted += 1;
                }
            }
            tracing::info!(keys = disk.len(), bytes = disk.bytes(), evicted, "found clients' keys");
            metrics.evicted.inc_by(evicted);
            folder = Some(opened);
        }
        let memory = Lru::new(memory_bytes_max, spec.peer_bytes_max.memory);
        let state = State { memory, disk, named: 0 };
        state.count(&metrics);
        Ok(Self { parser, folder, key_bytes_max, state: Mutex::new(state), metrics })
    }

    /// Keeps a client's keys, that came from `origin`. Where the folder cannot be written, they are kept in memory, and the
    /// log says so.
    ///
    /// # Errors
    /// [`KeysError::Parse`], [`KeysError::Budget`]: nothing is kept and nothing has gone.
    pub fn put(&self, bytes: &[u8], origin: Origin) -> Result<Stored, KeysError<P::Error>> {
        let id = KeyId::of(bytes);
        let (parsed, on_disk) = {
            let mut state = self.lock();
            let on_disk = state.disk.touch(&id, origin.peer).is_some();
            (state.memory.touch(&id, origin.peer).map(|keys| Arc::clone(keys)), on_disk)
        };
        let held = on_disk || parsed.is_some();
        let keys = match parsed {
            Some(_) if on_disk || self.folder.is_none() => {
                return Ok(Stored { id, evicted: 0, held });
            }
            Some(keys) => keys,
            None => Arc::new(self.parser.parse(bytes).map_err(KeysError::Parse)?),
        };
        let memory_bytes = self.parser.memory_bytes(&keys);
        let (memory_bytes_max, disk_bytes_max) = {
            let state = self.lock();
            (state.memory.entry_bytes_max(), state.disk.entry_bytes_max())
        };
        let budgets = [(memory_bytes, memory_bytes_max), (bytes.len(), disk_bytes_max)];
        let budgets = &budgets[..1 + usize::from(self.folder.is_some())];
        if let Some(&(bytes, bytes_max)) = budgets.iter().find(|(bytes, max)| bytes > max) {
            return Err(KeysError::Budget { bytes, bytes_max });
        }
        let evicted = self.store(id, origin, bytes, keys, memory_bytes);
        self.metrics.uploaded.inc();
        self.metrics.evicted.inc_by(evicted as u64);
        if evicted > 0 {
            tracing::debug!(evicted, "dropped the keys used longest ago to make room");
        }
        Ok(Stored { id, evicted, held })
    }

    /// A client's keys; `None` where it must upload them (again). This is a use of them, by `origin`.
    ///
    /// # Errors
    /// [`KeysError::Parse`] for keys that were kept by a server of other parameters.
    pub fn fetch(
        &self,
        id: &KeyId,
        origin: Origin,
    ) -> Result<Option<Arc<P::Keys>>, KeysError<P::Error>> {
        let now = SystemTime::now();
        let (keys, on_disk) = {
            let mut state = self.lock();
            let on_disk = state.disk.touch(id, origin.peer).map(|file| {
                // A clock that was set back makes a time stale as well.
                let age = now.duration_since(file.touched).unwrap_or(Duration::MAX);
                let stale = age >= TOUCH_EVERY;
                if stale {
                    file.touched = now;
                }
                (file.bytes, file.serial, stale)
            });
            let keys = state.memory.touch(id, origin.peer).map(|keys| Arc::clone(keys));
            (keys, on_disk)
        };
        if let (Some(folder), Some((_, _, true))) = (&self.folder, on_disk) {
            // Only the order of eviction after a restart hangs on it.
            if let Err(error) = folder.touch(id, now) {
                tracing::debug!(%error, "the time of a file of keys could not be set");
            }
        }
        match (keys, on_disk) {
            (Some(keys), _) => Ok(Some(keys)),
            (None, None) => Ok(None),
            (None, Some((bytes, serial, _))) => self.load(id, bytes, serial),
        }
    }

    /// Whether the store has these keys. This is no use of them.
    pub fn holds(&self, id: &KeyId) -> bool {
        let state = self.lock();
        state.memory.contains(id) || state.disk.contains(id)
    }

    /// Sets of parsed keys in memory, and of keys in the folder.
    pub fn counts(&self) -> (usize, usize) {
        let state = self.lock();
        (state.memory.len(), state.disk.len())
    }

    /// Most bytes of one client's keys.
    pub fn key_bytes_max(&self) -> usize {
        self.key_bytes_max
    }

    /// Writes keys to the folder, if there is one, and keeps them in memory. Returns how many others
    /// are gone now.
    fn store(
        &self,
        id: KeyId,
        origin: Origin,
        bytes: &[u8],
        keys: Arc<P::Keys>,
        memory_bytes: usize,
    ) -> usize {
        // The bytes are written before the lock is taken, names are given and taken under it, so
        // that a file is there exactly if the list says so.
        let aside = self.folder.as_ref().and_then(|folder| match folder.write(&id, bytes) {
            Ok(aside) => Some((folder, aside)),
            Err(error) => {
                tracing::warn!(%error, "keys could not be written, and are kept in memory only");
                None
            }
        });
        let written = aside.is_some();
        let mut state = self.lock();
        let mut evicted = Vec::new();
        if let Some((folder, aside)) = aside {
            state.named += 1;
            let (touched, serial) = (SystemTime::now(), state.named);
            let file = OnDisk { bytes: bytes.len(), touched, serial };
            evicted = state.disk.insert(id, origin.peer, bytes.len(), file);
            for gone in &evicted {
                state.memory.remove(gone);
                remove(folder, gone);
            }
            if let Err(error) = folder.name(&id, aside) {
                tracing::warn!(%error, "keys could not be named, and are kept in memory only");
                state.disk.remove(&id);
            }
        }
        let unloaded = state.memory.insert(id, origin.peer, memory_bytes, keys);
        evicted.extend(unloaded.into_iter().filter(|gone| !state.disk.contains(gone)));
        state.count(&self.metrics);
        drop(state);
        if let (Some(folder), true) = (&self.folder, written)
            && let Err(error) = folder.sync()
        {
            tracing::warn!(%error, "the keys folder could not be synced");
        }
        evicted.len()
    }

    /// Reads keys that are not in memory back from their file.
    fn load(
        &self,
        id: &KeyId,
        bytes: usize,
        serial: u64,
    ) -> Result<Option<Arc<P::Keys>>, KeysError<P::Error>> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let read = match folder.read(id, bytes) {
            Ok(read) if KeyId::of(&read) == *id => read,
            Ok(_) => {
                self.drop_file(folder, id, serial, "damaged");
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.drop_file(folder, id, serial, "missing");
                return Ok(None);
            }
            Err(error) => {
                // The file may be readable later, and the client can help itself now.
                tracing::warn!(%error, "a file of keys could not be read");
                return Ok(None);
            }
        };
        let keys = Arc::new(self.parser.parse(&read).map_err(KeysError::Parse)?);
        let memory_bytes = self.parser.memory_bytes(&keys);
        self.metrics.loaded.inc();
        let mut state = self.lock();
        // Keys that were evicted while they were read are answered with, but not kept.
        if let Some(owner) = state.disk.owner(id) {
            let unloaded = state.memory.insert(*id, owner, memory_bytes, Arc::clone(&keys));
            let lost = unloaded.iter().filter(|gone| !state.disk.contains(gone)).count();
            self.metrics.evicted.inc_by(lost as u64);
            state.count(&self.metrics);
        }
        Ok(Some(keys))
    }

    fn drop_file(&self, folder: &Folder, id: &KeyId, serial: u64, what: &str) {
        let mut state = self.lock();
        // Where they were evicted while they were read, or put back since, nothing is wrong.
        if state.disk.value(id).is_some_and(|file| file.serial == serial) {
            state.disk.remove(id);
            remove(folder, id);
            state.count(&self.metrics);
            self.metrics.damaged.inc();
            tracing::warn!("a file of keys is {what}: its client will be asked for them again");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<P::Keys>> {
        // Nothing panics while it holds the lock half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K> State<K> {
    fn count(&self, metrics: &KeyMetrics) {
        metrics.in_memory.set(self.memory.len() as i64);
        metrics.on_disk.set(self.disk.len() as i64);
        metrics.memory_bytes.set(self.memory.bytes() as i64);
        metrics.disk_bytes.set(self.disk.bytes() as i64);
    }
}

fn remove(folder: &Folder, id: &KeyId) {
    if let Err(error) = folder.remove(id) {
        tracing::warn!(%error, "a file of keys could not be removed");
    }
}

fn io_error(path: &Path, source: io::Error) -> Error {
    Error::Io { what: format!("use the keys folder {}", path.display()), source }
}

/// How often the time of a file in use is set.
const TOUCH_EVERY: Duration = Duration::from_secs(60);
