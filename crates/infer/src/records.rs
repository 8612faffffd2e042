//! Where a party's half of a precompute is kept until it is used.

use std::sync::{Mutex, PoisonError};

/// Numbered pieces of one precompute. Their sizes are known beforehand.
pub trait Records: Send + Sync {
    /// Keeps a record; again with the same bytes, where a step was repeated.
    ///
    /// # Errors
    /// What the medium says.
    fn put(&self, record: usize, bytes: &[u8]) -> Result<(), RecordError>;

    /// Gives a record.
    ///
    /// # Errors
    /// [`RecordError`] for one that was not kept, or is damaged.
    fn get(&self, record: usize) -> Result<Vec<u8>, RecordError>;
}

/// A record that cannot be kept or given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is none of that number.
    #[error("precompute record {record} is missing: the precompute is incomplete")]
    Missing {
        /// Which.
        record: usize,
    },
    /// It was truncated or changed.
    #[error("precompute record {record} is damaged ({why}): the precompute cannot be used")]
    Damaged {
        /// Which.
        record: usize,
        /// What is wrong with it.
        why: String,
    },
    /// Another size than was said.
    #[error("precompute record {record} has {found} bytes, not {expected}")]
    Size {
        /// Which.
        record: usize,
        /// What was said.
        expected: usize,
        /// What it has.
        found: usize,
    },
    /// The file system.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

impl RecordError {
    /// Whether the disk had no room for it, or the user's quota.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }
}

/// Whether a disk had no room, or a user's quota.
pub fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

/// Records in memory: for a precompute that is used at once.
#[derive(Default)]
pub struct Memory(Mutex<Vec<Option<Vec<u8>>>>);

impl Records for Memory {
    fn put(&self, record: usize, bytes: &[u8]) -> Result<(), RecordError> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() <= record {
            held.resize(record + 1, None);
        }
        held[record] = Some(bytes.to_vec());
        Ok(())
    }

    fn get(&self, record: usize) -> Result<Vec<u8>, RecordError> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Used once, so given away.
        held.get_mut(record).and_then(Option::take).ok_or(RecordError::Missing { record })
    }
}
