//! What can go wrong with a journal or a counter, and what to do about it.

use std::path::PathBuf;

use hushtable_prg::EntropyError;

use super::PAYLOAD_BYTES_MAX;
use crate::disk::DiskError;
use crate::instance::Instance;

/// What can go wrong with a journal or a counter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// A counter that was to go back.
    #[error(
        "{place}: the counter stands at round {round} after {evictions} evictions and never goes back or \
         to another controller, here to round {wanted_round} after {wanted_evictions}"
    )]
    Backwards {
        /// Where the counter is kept.
        place: String,
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
         at most {records_max}. The counter was put back to an older value. If you have the newest, put that \
         in its place; if not, `hushtable train recover FOLDER` says how to go on, and what it costs", path.display()
    )]
    CounterBehind {
        /// The journal.
        path: PathBuf,
        /// How many records there are behind.
        records: u64,
        /// How many a crash may leave.
        records_max: u64,
    },
    /// A counter that was to be made is there.
    #[error(
        "{place} holds a root counter already: give another place, or open the controller that it is of. Of a \
         controller that is no more, move the counter away and keep it: it knows how many rounds were \
         committed, which restoring a backup charges to the budget (`--old-counter`)"
    )]
    CounterExists {
        /// Where it is kept.
        place: String,
    },
    /// Another controller has the counter's file open.
    #[error(
        "{} is held by a controller that is running: a counter has one. Stop that one first; if it is of a \
         copy of this folder, leave that one be: two that go on from one state show which rounds want the \
         same rows", path.display()
    )]
    CounterHeld {
        /// The counter's file.
        path: PathBuf,
    },
    /// There is no counter.
    #[error(
        "{place} holds no root counter: it was removed, or this is another place; without its counter a \
         controller cannot be told from an old copy. Give the right place; if the counter is lost, \
         `hushtable train recover FOLDER` says how to go on, and what it costs"
    )]
    CounterMissing {
        /// Where it should be kept.
        place: String,
    },
    /// The counter is not where this controller left it.
    #[error(
        "{place}: the root counter is not where this controller left it, at round {expected_round} after \
         {expected_evictions} evictions, but at round {found_round} after {found_evictions}: another \
         controller went on from a copy of this one's folder, or someone changed the counter. This one has \
         stopped. Find out which of the two it was, and see what fits this folder: `hushtable train recover \
         FOLDER`"
    )]
    CounterMoved {
        /// Where the counter is kept.
        place: String,
        /// The round at which this controller left it.
        expected_round: u64,
        /// The evictions at which this controller left it.
        expected_evictions: u64,
        /// The round at which it stands.
        found_round: u64,
        /// The evictions at which it stands.
        found_evictions: u64,
    },
    /// Another file is where the counter's was.
    #[error(
        "{} is not the file that this controller holds: someone put another one there while it ran. This \
         controller has stopped; find out who did, then open it again", path.display()
    )]
    CounterReplaced {
        /// The counter's file.
        path: PathBuf,
    },
    /// The place where the counter is kept does not answer.
    #[error(
        "{place} gives no root counter: {reason}. Nothing was lost: open the controller again when the place \
         can be reached"
    )]
    CounterUnavailable {
        /// Where the counter is kept.
        place: String,
        /// What it said, or that it said nothing.
        reason: String,
    },
    /// A record is not as it was written, and others follow that were written after it was synced.
    #[error(
        "{} is damaged: record {sequence}, at byte {offset}, is not as it was written, and there \
         are later ones. `hushtable train recover FOLDER` says which rows can be kept; a backup, if you have \
         one, `hushtable train restore`", path.display()
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
        "{} does not authenticate: it is of another key, or damaged. Give the key that it was made with; if \
         that is this one, `hushtable train recover FOLDER` says how to go on", path.display()
    )]
    Forged {
        /// The journal's file.
        path: PathBuf,
    },
    /// A counter that its authentication code does not fit.
    #[error(
        "{place} holds a root counter that does not authenticate: it is of another key, or damaged. Give the key \
         that it was made with; if that is this one, `hushtable train recover FOLDER` says how to go on"
    )]
    ForgedCounter {
        /// Where it is kept.
        place: String,
    },
    /// What is there was never a counter.
    #[error(
        "{place} is not a root counter: it has {bytes} bytes, or begins as no counter does. Give the right \
         place; if the counter was there, `hushtable train recover FOLDER` says how to go on"
    )]
    NotACounter {
        /// Where it is kept.
        place: String,
        /// How long it is.
        bytes: u64,
    },
    /// The file was never a journal.
    #[error("{} is not a journal of an oblivious memory; check the path", path.display())]
    NotAJournal {
        /// The file.
        path: PathBuf,
    },
    /// The counter is another controller's.
    #[error(
        "{} is of controller {journal}, and the root counter of controller {counter}: both were made with \
         this key, and their files do not mix; give the folder and the counter of one", path.display()
    )]
    OtherInstance {
        /// The journal.
        path: PathBuf,
        /// Whose journal it is.
        journal: Instance,
        /// Whose counter it is.
        counter: Instance,
    },
    /// The journal does not have the record at which the counter stands.
    #[error(
        "{} ends at round {journal_round} and does not hold the record of round {counter_round} at \
         which the root counter stands: it is an older copy (rolled back), or its last {torn_bytes} \
         bytes were damaged. If you have the newest copy of the folder, put that in its place; if not, \
         `hushtable train recover FOLDER` goes on from this one, and says what that costs", path.display()
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
         committed, remove the folder and create the controller again; else `hushtable train restore` takes \
         a backup", path.display()
    )]
    Unfinished {
        /// The journal.
        path: PathBuf,
        /// How long it is.
        bytes: u64,
    },
}
