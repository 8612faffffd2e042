//! Where halves of precomputes are until they are used: in a folder, through restarts, or in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::PrecomputeId;
use super::machines::{
    Head, Listed, Memory, RecordError, Records, Store, StoreError, StoreSpec, Writing,
};
use super::spec::PrecomputeStoreSpec;
use crate::schemes::dropped::tell;

/// How many precomputes are kept, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrecomputeCount {
    /// Precomputes that can be used.
    pub precomputes: usize,
    /// Bytes of those, and of those that are being made.
    pub bytes: u64,
}

/// What cannot be kept, or not be given.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeepError {
    /// One that is larger than all that may be kept.
    #[error("a precompute of {bytes} bytes, where {bytes_max} may be kept")]
    Budget { bytes: u64, bytes_max: u64 },
    /// No room beside those that are kept.
    #[error("no room for another precompute")]
    Full,
    /// It was there, and cannot be read.
    #[error(transparent)]
    Damaged(RecordError),
    /// The folder.
    #[error("{0}")]
    Medium(String),
}

/// Halves of precomputes, one side's.
pub(super) enum Keep {
    /// With how many were refused that may have been used before.
    Folder(Store, AtomicU64),
    Memory(Shelf),
}

/// Halves in memory.
pub(super) struct Shelf {
    bytes_max: u64,
    /// Bytes of all, with those that are being made.
    bytes: Arc<AtomicU64>,
    held: Arc<Mutex<HashMap<PrecomputeId, Held>>>,
}

#[derive(Clone)]
pub(super) struct Held {
    head: Head,
    made: SystemTime,
    records: Arc<Memory>,
    room: Arc<Room>,
}

/// Bytes that are counted for as long as they are held.
struct Room {
    all: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A half that is being made.
pub(super) enum Opened {
    Folder(Writing),
    Memory { own: Held, held: Arc<Mutex<HashMap<PrecomputeId, Held>>> },
}

/// A half that can be taken.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    pub head: Head,
    pub made: SystemTime,
    pub bytes: u64,
}

/// A half that was taken, to be used once.
pub(super) struct Half {
    pub head: Head,
    pub records: Arc<dyn Records>,
}

impl Keep {
    /// In the folder that `spec` names, or in memory.
    pub fn open(spec: Option<&PrecomputeStoreSpec>, bytes_max: u64) -> Result<Self, KeepError> {
        let Some(spec) = spec else {
            let (bytes, held) = Default::default();
            return Ok(Self::Memory(Shelf { bytes_max, bytes, held }));
        };
        let spec = StoreSpec {
            folder: spec.folder.clone(),
            bytes_max,
            key: spec.key_file(),
            ledger: spec.ledger.clone().into(),
        };
        let (store, refused) = (Store::open(&spec)?, AtomicU64::new(0));
        refused.fetch_add(tell(&store), Ordering::Relaxed);
        Ok(Self::Folder(store, refused))
    }

    /// Bytes that a half takes whose records have these sizes.
    pub fn bytes_of(&self, record_bytes: &[u64]) -> u64 {
        match self {
            Self::Folder(..) => Store::bytes_of(record_bytes),
            Self::Memory(_) => record_bytes.iter().sum(),
        }
    }

    /// Makes room for a half whose records have these sizes.
    pub fn begin(&self, head: Head, record_bytes: &[u64]) -> Result<Arc<Opened>, KeepError> {
        let opened = match self {
            Self::Folder(store, _) => Opened::Folder(store.begin(head, record_bytes)?),
            Self::Memory(shelf) => {
                let room = Arc::new(shelf.room(record_bytes.iter().sum())?);
                let (records, made) = (Arc::new(Memory::default()), SystemTime::now());
                let own = Held { head, made, records, room };
                Opened::Memory { own, held: Arc::clone(&shelf.held) }
            }
        };
        Ok(Arc::new(opened))
    }

    /// Takes one out, for good.
    pub fn take(&self, id: &PrecomputeId) -> Result<Option<Half>, KeepError> {
        Ok(match self {
            Self::Folder(store, refused) => {
                let taken = store.take_id(id)?;
                refused.fetch_add(tell(store), Ordering::Relaxed);
                taken.map(|taken| Half { head: *taken.head(), records: Arc::new(taken) })
            }
            Self::Memory(shelf) => {
                let held = lock(&shelf.held).remove(id);
                held.map(|held| Half { head: held.head, records: Arc::new(held) })
            }
        })
    }

    /// What can be taken, the oldest first.
    pub fn list(&self) -> Vec<Kept> {
        match self {
            Self::Folder(store, _) => {
                let listed = store.list().into_iter();
                let kept = |it: Listed| Kept { head: it.head, made: it.made, bytes: it.bytes };
                listed.map(kept).collect()
            }
            Self::Memory(shelf) => {
                let held = lock(&shelf.held);
                let kept = |held: &Held| {
                    let bytes = held.room.bytes;
                    Kept { head: held.head, made: held.made, bytes }
                };
                let mut kept: Vec<_> = held.values().map(kept).collect();
                kept.sort_by_key(|kept| kept.made);
                kept
            }
        }
    }

    /// Whether one of this id can be taken.
    pub fn has(&self, id: &PrecomputeId) -> bool {
        match self {
            Self::Folder(store, _) => store.has(id),
            Self::Memory(shelf) => lock(&shelf.held).contains_key(id),
        }
    }

    /// Drops one that will not be used.
    pub fn discard(&self, id: &PrecomputeId) -> Result<(), KeepError> {
        match self {
            Self::Folder(store, _) => {
                store.discard(id)?;
                Ok(())
            }
            Self::Memory(shelf) => {
                lock(&shelf.held).remove(id);
                Ok(())
            }
        }
    }

    /// How many were refused so far, for they may have been used before.
    pub fn refused(&self) -> u64 {
        match self {
            Self::Folder(_, refused) => refused.load(Ordering::Relaxed),
            Self::Memory(_) => 0,
        }
    }

    /// How much is kept.
    pub fn count(&self) -> PrecomputeCount {
        match self {
            Self::Folder(store, _) => {
                let counts = store.counts();
                PrecomputeCount { precomputes: counts.ready, bytes: counts.bytes }
            }
            Self::Memory(shelf) => {
                let precomputes = lock(&shelf.held).len();
                PrecomputeCount { precomputes, bytes: shelf.bytes.load(Ordering::Relaxed) }
            }
        }
    }
}

impl Shelf {
    fn room(&self, bytes: u64) -> Result<Room, KeepError> {
        let bytes_max = self.bytes_max;
        if bytes > bytes_max {
            return Err(KeepError::Budget { bytes, bytes_max });
        }
        let fits = |held: u64| held.checked_add(bytes).filter(|&held| held <= bytes_max);
        match self.bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(Room { all: Arc::clone(&self.bytes), bytes }),
            Err(_) => Err(KeepError::Full),
        }
    }
}

impl Opened {
    /// It is whole: from now on it can be taken.
    pub fn commit(&self) -> Result<(), KeepError> {
        match self {
            Self::Folder(writing) => Ok(writing.commit()?),
            Self::Memory { own, held } => {
                lock(held).insert(own.head.id, own.clone());
                Ok(())
            }
        }
    }
}

impl Records for Opened {
    fn put(&self, record: usize, bytes: &[u8]) -> Result<(), RecordError> {
        match self {
            Self::Folder(writing) => writing.put(record, bytes),
            Self::Memory { own, .. } => own.records.put(record, bytes),
        }
    }

    fn get(&self, record: usize) -> Result<Vec<u8>, RecordError> {
        match self {
            Self::Folder(writing) => writing.get(record),
            Self::Memory { own, .. } => own.records.get(record),
        }
    }
}

impl Records for Held {
    fn put(&self, record: usize, bytes: &[u8]) -> Result<(), RecordError> {
        self.records.put(record, bytes)
    }

    fn get(&self, record: usize) -> Result<Vec<u8>, RecordError> {
        self.records.get(record)
    }
}

impl From<StoreError> for KeepError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full { needed, bytes_max, .. } if needed > bytes_max => {
                Self::Budget { bytes: needed, bytes_max }
            }
            StoreError::Full { .. } => Self::Full,
            error if error.is_disk_full() => {
                tracing::warn!(%error, "no precompute is kept until there is room");
                Self::Full
            }
            StoreError::Record(error) => Self::Damaged(error),
            error => Self::Medium(error.to_string()),
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
