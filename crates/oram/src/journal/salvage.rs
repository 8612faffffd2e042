//! Reads what can be read of a journal, and writes nothing.

use std::fs::File;
use std::path::Path;

use super::chain::{Keys, Record};
use super::replay::replay_to_damage;
use super::{Journal, JournalError, check_same};
use crate::disk::file::{self, Locked};
use crate::instance::Instance;
use crate::seal::Key;

/// What was read of a journal. It is locked against other processes while this lives.
#[derive(Debug)]
pub struct SalvagedJournal {
    _lock: Locked,
    /// The instance that it belongs to.
    pub instance: Instance,
    /// The chain's heads, as [`Journal::reconcile`] holds them against a counter.
    pub heads: Vec<[u8; 32]>,
    /// Records that were read.
    pub records: u64,
    /// The round of the last of them.
    pub round: u64,
    /// Where it is damaged: the byte, and the number of the record that is not as it was written. None if
    /// it is whole, or ends in a record that a crash may have cut.
    pub damage: Option<(u64, u64)>,
}

impl Journal {
    /// Hands the records to `each`, oldest first, up to the first that cannot be read. The file is only
    /// read, so a copy on a disk that takes no writes will do.
    ///
    /// # Errors
    ///
    /// As [`open`](Journal::open), but for damage behind the header.
    pub fn salvage(
        path: &Path,
        key: &Key,
        each: &mut dyn FnMut(Record),
    ) -> Result<SalvagedJournal, JournalError> {
        let keys = Keys::derive(key);
        let file = File::open(path).map_err(file::missing_or("open", path))?;
        let lock = file::lock(file, path)?;
        check_same(&lock, path)?;
        let (mut records, mut round) = (0, 0);
        let (replay, damage) = replay_to_damage(&lock, path, &keys, &mut |record| {
            records += 1;
            round = record.round;
            each(record);
        })?;
        let (instance, heads) = (*replay.chain.instance(), replay.heads);
        Ok(SalvagedJournal { _lock: lock, instance, heads, records, round, damage })
    }
}
