//! Where a client keeps its halves of precomputes until they are used.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::records::Records;
use crate::store::Head;

/// Why a half cannot be kept, or given.
pub type HalvesError = Box<dyn std::error::Error + Send + Sync>;

/// Halves of precomputes. What is asked of them may read and write files.
pub trait Halves: Send + Sync {
    /// Makes room for a half whose records have these sizes.
    ///
    /// # Errors
    /// Where there is none.
    fn begin(&self, head: Head, record_bytes: &[u64]) -> Result<Arc<dyn Half>, HalvesError>;

    /// Takes a half out, for good.
    ///
    /// # Errors
    /// A [`RecordError`](crate::records::RecordError) where the half is damaged; the half is gone as well. What else the
    /// medium says: the next one would not be given either.
    fn take(&self, id: &[u8; 16]) -> Result<Option<TakenHalf>, HalvesError>;

    /// What can be taken, the oldest first.
    fn list(&self) -> Vec<Head>;

    /// Drops a half that will not be used.
    ///
    /// # Errors
    /// What the medium says.
    fn discard(&self, id: &[u8; 16]) -> Result<(), HalvesError>;
}

/// A half that was taken, to be used once.
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct TakenHalf {
    /// What it is of.
    pub head: Head,
    /// What is kept of it.
    pub records: Arc<dyn Records>,
}

/// A half that is being made. Dropped before it is whole, it was never there.
pub trait Half: Records {
    /// It is whole: from now on it can be taken.
    ///
    /// # Errors
    /// What the medium says.
    fn commit(&self) -> Result<(), HalvesError>;
}

/// Halves that predictions of one client are about to use.
pub(super) type ChosenIds = Arc<Mutex<HashSet<[u8; 16]>>>;

/// A half that no other prediction of the client takes, for as long as this is there.
pub(super) struct Chosen {
    pub id: [u8; 16],
    all: ChosenIds,
}

impl Chosen {
    /// The first of `ready` that nobody has chosen.
    pub fn first(ready: impl IntoIterator<Item = Head>, all: &ChosenIds) -> Option<Self> {
        let mut chosen = lock(all);
        let id = ready.into_iter().map(|head| head.id).find(|id| !chosen.contains(id))?;
        chosen.insert(id);
        Some(Self { id, all: Arc::clone(all) })
    }
}

impl Drop for Chosen {
    fn drop(&mut self) {
        lock(&self.all).remove(&self.id);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
