//! What can go wrong with a journal or a counter, and what to do about it.

use std::path::PathBuf;

use hushtable_prg::EntropyError;

use super::PAYLOAD_BYTES_MAX;
use crate::disk::DiskError;

/// What can go wrong with a journal or a counter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// A counter that was to go back.
    #[error(
        "{}: the counter stands at round {round} after {evictions} evictions and never goes back, \
         here to round {wanted_round} after {wanted_evictions}", path.display()
    )]
    Backwards {
        /// The counter's file.
        path: PathBuf,
        /// The round at which it stands.
        round: u64,
        /// The evictions at which it stands.
        evictions: u64,
        /// The round it was to stand at.
        wanted_round: u64,
        /// The evictions it was to stand at.
        wanted_evictions: u64,
    },
    /// The counter stands too far back in the journal for a crash to explain it.
    #[error(
        "{} has {records} records behind the one at which the root counter stands; a crash leaves \
         at most {records_max}. The counter was put back: restore it", path.display()
    )]
    CounterBehind {
        /// The journal.
        path: PathBuf,
        /// How many records there are behind.
        records: u64,
        /// How many a crash may leave.
        records_max: u64,
    },
    /// A record is not as it was written, and others follow that were written after it was synced.
    #[error(
        "{} is damaged: record {sequence}, at byte {offset}, is not as it was written, and there \
         are later ones; restore the file", path.display()
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Where the record begins, in bytes.
        offset: u64,
        /// The record's number.
        sequence: u64,
    },
    /// The disk, or a file on it.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The system has no random bytes to give.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// A file that its authentication code does not fit.
    #[error(
        "{} does not authenticate: it is damaged, or of another key; restore it, or give the key it \
         was made with", path.display()
    )]
    Forged {
        /// The journal's or counter's file.
        path: PathBuf,
    },
    /// The file was never a counter.
    #[error("{} is not a root counter: it has {bytes} bytes, or begins as no counter does", path.display())]
    NotACounter {
        /// The file.
        path: PathBuf,
        /// How long it is.
        bytes: u64,
    },
    /// The file was never a journal.
    #[error("{} is not a journal of an oblivious memory; check the path", path.display())]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// The journal does not have the record at which the counter stands.
    #[error(
        "{} ends at round {journal_round} and does not hold the record of round {counter_round} at \
         which the root counter stands: it is an older copy (rolled back), or its last {torn_bytes} \
         bytes were damaged. Restore the newest copies of the journal and the store", path.display()
    )]
    RolledBack {
        /// The journal.
        path: PathBuf,
        /// The round of its last record.
        journal_round: u64,
        /// The round at which the counter stands.
        counter_round: u64,
        /// Bytes at the journal's end that are no record.
        torn_bytes: u64,
    },
    /// A payload past what a record holds.
    #[error("a record holds at most {} bytes; this payload has {payload_bytes}", PAYLOAD_BYTES_MAX)]
    TooLong {
        /// Its bytes.
        payload_bytes: usize,
    },
    /// The file ends within its header.
    #[error(
        "{} has {bytes} bytes, less than a header: its creation did not end. If nothing was ever \
         committed, remove it and create it again; else restore it", path.display()
    )]
    Unfinished {
        /// The journal.
        path: PathBuf,
        /// How long it is.
        bytes: u64,
    },
}
