//! What makes a round atomic: a journal of sealed records, and the counter that tells an old one.
//!
//! The main ORAM's file is written in place, so before a round reads or writes, its intent goes into
//! the [`Journal`]; once its buckets are written, its commit does. The journal is encrypted and
//! chained: each record is authenticated together with a hash of all before it, so that one that is
//! dropped, replaced or moved is detected, and [`Journal::head`] stands for all of it.
//!
//! What no file can detect by itself is that it is an old copy of all that it was. For that there is
//! the [`RootCounter`] (FEDORA, section 5.2: one counter on the chip, from which all others follow),
//! which remembers the head of the last commit, and which goes from one head to the next by comparing
//! first, so that of two copies of a journal one goes on.

mod chain;
mod counter;
mod counter_file;
mod error;
mod log;
mod parity;
mod replay;
mod salvage;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chain::{Chain, Keys, Layout};
pub use chain::{PAYLOAD_BYTES_MAX, Record};
pub use counter::{
    COUNTER_BYTES, CounterPlace, CounterSeal, CounterValue, RootCounter, Sealed, check_advance,
};
pub use counter_file::FileCounter;
pub use error::JournalError;
use log::Log;
pub use salvage::SalvagedJournal;

use crate::disk::file::{self, Locked, io_error, sync_folder_of};
use crate::disk::{Counters, DiskError, Faults};
use crate::instance::Instance;
use crate::seal::Key;

/// Bytes of the blocks that the system counts a file's space in.
const STAT_BLOCK_BYTES: u64 = 512;

/// An append-only file of sealed records, locked against other processes while it is open.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    keys: Arc<Keys>,
    log: Log,
    chain: Chain,
    /// Where the next record goes; the file is longer if it ends in a torn one.
    end: u64,
    torn_bytes: u64,
    /// The chain's heads: the last generation's, then one behind this generation's header, then one
    /// behind each of its records.
    heads: Vec<[u8; 32]>,
    last_round: u64,
    poisoned: bool,
    /// What was damaged and read all the same.
    mended: u64,
    /// Where the next generation is to be written, if it has its space already.
    successor: Option<Successor>,
    counters: Counters,
    faults: Faults,
}

/// The file beside the journal, with the space that it has.
#[derive(Debug)]
struct Successor {
    file: Arc<Locked>,
    bytes: u64,
}

/// A record to be written at the beginning of a new generation.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// What the payload is; the journal does not care.
    pub kind: u32,
    /// The round that it belongs to.
    pub round: u64,
    /// At most [`PAYLOAD_BYTES_MAX`] bytes.
    pub payload: &'a [u8],
}

impl Journal {
    /// Makes a journal without records, of a new [instance](crate::instance). `faults` is
    /// [`Faults::none`] outside tests.
    ///
    /// # Errors
    ///
    /// A file that is there already, or what the system says; no file is left behind then.
    pub fn create(path: &Path, key: &Key, faults: &Faults) -> Result<Journal, JournalError> {
        let keys = Arc::new(Keys::derive(key));
        let instance = Instance::random()?;
        faults.step().allow()?;
        let file = file::create_new(path)?;
        let journal = file::lock(file, path).map_err(JournalError::from).and_then(|file| {
            let log = Log::new(file, path, 0, faults);
            Journal::begin(path, log, keys, &instance, 0, 0, [0; 32], faults)
        });
        let journal = journal.and_then(|journal| {
            faults.step().allow()?;
            sync_folder_of(path)?;
            Ok(journal)
        });
        if journal.is_err() && !faults.is_killed() {
            // Ours, made a moment ago; the error that matters is the first.
            let _ = fs::remove_file(path);
        }
        journal
    }

    /// Opens a journal and hands its records to `each`, oldest first, one in memory at a time.
    ///
    /// A last record that is not whole was cut by a crash: it is left out
    /// ([`torn_bytes`](Journal::torn_bytes)), and the next append cuts it off. A record that was synced
    /// and has changed since is an error where other records follow it; a changed last record looks as
    /// a torn one does, and [`reconcile`](Journal::reconcile) alone tells the two apart.
    ///
    /// # Errors
    ///
    /// A missing file, one in use by another process, what is no journal or not of this key,
    /// damage ([`JournalError::Damaged`]), or what the system says. What `each` was given before an
    /// error is not to be used.
    pub fn open(
        path: &Path,
        key: &Key,
        faults: &Faults,
        each: &mut dyn FnMut(Record),
    ) -> Result<Journal, JournalError> {
        let keys = Arc::new(Keys::derive(key));
        faults.step().allow()?;
        let file = file::lock(file::open(path)?, path)?;
        check_same(&file, path)?;
        let mut last_round = 0;
        let replay = replay::replay(&file, path, &keys, &mut |record| {
            last_round = record.round;
            each(record);
        })?;
        let file_bytes = replay.file_bytes;
        let mut journal = Journal {
            path: path.to_owned(),
            keys,
            log: Log::new(file, path, file_bytes, faults),
            chain: replay.chain,
            end: replay.end,
            torn_bytes: file_bytes - replay.end,
            heads: replay.heads,
            last_round,
            poisoned: false,
            mended: replay.mended,
            successor: None,
            counters: Counters::default(),
            faults: faults.clone(),
        };
        if journal.mended > 0 {
            tracing::warn!(
                path = %path.display(), places = journal.mended,
                "the journal came back damaged from its disk, and was read by what is there twice: \
                 look after the disk"
            );
        }
        // What was read may be in the system's cache alone, if a process ended but not the system.
        journal.sync()?;
        Ok(journal)
    }

    /// Appends a record; returns the chain's head with it. Durable only after
    /// [`sync`](Journal::sync).
    ///
    /// # Errors
    ///
    /// A payload that is too long, a full disk, or what the system says. The journal is then as if
    /// this had not been called, and more may be appended (when there is space again), unless not
    /// even that could be had: then it says so from then on ([`DiskError::Poisoned`]).
    pub fn append(
        &mut self,
        kind: u32,
        round: u64,
        payload: &[u8],
    ) -> Result<[u8; 32], JournalError> {
        self.check_sound()?;
        if self.torn_bytes > 0 {
            self.log.cut(self.end)?;
            self.log.sync()?;
            self.torn_bytes = 0;
        }
        let (bytes, next) = self.chain.seal(&self.keys, Entry { kind, round, payload })?;
        if let Err(error) = self.log.append(&bytes) {
            self.poisoned = self.log.cut(self.end).is_err();
            return Err(error.into());
        }
        self.end += bytes.len() as u64;
        self.counters.writes += 1;
        self.counters.written_bytes += bytes.len() as u64;
        self.chain = next;
        self.heads.push(self.chain.head());
        self.last_round = round;
        Ok(self.chain.head())
    }

    /// Makes all records durable.
    ///
    /// # Errors
    ///
    /// What the system says. Nothing more can be appended then ([`DiskError::Poisoned`]): records
    /// since the last sync may be lost, and only opening the journal again tells which.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.check_sound()?;
        if let Err(error) = self.log.sync() {
            self.poisoned = true;
            return Err(error.into());
        }
        self.chain.note_synced();
        self.counters.syncs += 1;
        Ok(())
    }

    /// Replaces all records by `entries`, which supersede them, in a new file that takes the old
    /// one's place in one step: after a crash there is the one or the other. The chain goes on, so
    /// that the counter may still stand at the old head: advance it there first, and to the new one
    /// before the next time (a generation knows the last head of the one before, and none earlier).
    /// All is durable on return.
    ///
    /// # Errors
    ///
    /// A payload that is too long, a full disk, or what the system says; the old records then stand
    /// and more may be appended, unless it is unknown which of the two files a crash would leave
    /// ([`DiskError::Poisoned`] from then on).
    pub fn start_anew(&mut self, entries: &[Entry<'_>]) -> Result<(), JournalError> {
        self.check_sound()?;
        let beside = beside(&self.path);
        let is_kept = self.successor.is_some() || beside.exists();
        let renamed = self.write_beside(&beside, entries).and_then(|journal| {
            self.faults.step().allow()?;
            Ok((journal, file::exchange(&beside, &self.path, is_kept)?))
        });
        let (mut journal, is_exchanged) = match renamed {
            Ok(renamed) => renamed,
            Err(error) => {
                if !is_kept && !self.faults.is_killed() {
                    // Of no use to anyone; the next attempt would write over it.
                    let _ = fs::remove_file(&beside);
                }
                return Err(error);
            }
        };
        if is_exchanged {
            // What was the journal has space for the next one.
            let (file, bytes) = self.log.space();
            journal.successor = Some(Successor { file, bytes });
        }
        let synced = self.faults.step().allow().and_then(|()| sync_folder_of(&self.path));
        journal.log.note_path(&self.path);
        journal.counters.writes += self.counters.writes;
        journal.counters.written_bytes += self.counters.written_bytes;
        journal.counters.syncs += self.counters.syncs;
        journal.poisoned = synced.is_err();
        *self = journal;
        synced.map_err(JournalError::from)
    }

    /// Holds the journal against the counter: how many records there are behind the one at which
    /// the counter stands. `records_max` is how many a crash may have left there, between the
    /// appending of a record and the counter's advance.
    ///
    /// # Errors
    ///
    /// [`JournalError::OtherInstance`] if the counter is of another controller;
    /// [`JournalError::RolledBack`] if the counter stands at a record that this journal does not
    /// have: the file is an older copy, or its last records were damaged;
    /// [`JournalError::CounterBehind`] if more than `records_max` records are behind it.
    pub fn reconcile(&self, counter: &CounterValue, records_max: u64) -> Result<u64, JournalError> {
        if counter.instance != *self.instance() {
            return Err(JournalError::OtherInstance {
                path: self.path.clone(),
                journal: *self.instance(),
                counter: counter.instance,
            });
        }
        let Some(at) = self.heads.iter().rposition(|head| *head == counter.head) else {
            return Err(JournalError::RolledBack {
                path: self.path.clone(),
                journal_round: self.last_round,
                counter_round: counter.round,
                torn_bytes: self.torn_bytes,
            });
        };
        // Of the heads, the first two are those before and behind the file's header.
        let records = (self.heads.len() - at.max(1) - 1) as u64;
        match records <= records_max {
            true => Ok(records),
            false => {
                let path = self.path.clone();
                Err(JournalError::CounterBehind { path, records, records_max })
            }
        }
    }

    /// A hash that stands for every record that ever was in this journal.
    pub fn head(&self) -> [u8; 32] {
        self.chain.head()
    }

    /// The instance that it belongs to, in all generations.
    pub fn instance(&self) -> &Instance {
        self.chain.instance()
    }

    /// How many records there are in this generation.
    pub fn record_count(&self) -> usize {
        self.heads.len() - 2
    }

    /// The number that the next record gets: how many there ever were.
    pub fn next_sequence(&self) -> u64 {
        self.chain.sequence()
    }

    /// How often the records were replaced.
    pub fn generation(&self) -> u64 {
        self.chain.generation()
    }

    /// Bytes that a record takes.
    pub fn record_bytes(payload_bytes: usize) -> u64 {
        Layout::Redundant.record_bytes(payload_bytes) as u64
    }

    /// Bytes of the file's header.
    pub fn header_bytes() -> u64 {
        Layout::Redundant.file_header_bytes() as u64
    }

    /// Bytes of the header and all records.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Bytes of a torn record at the file's end, which the next append cuts off.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// How many records were damaged when it was opened, and were read by what is there of them twice.
    /// The next generation is whole.
    pub fn mended(&self) -> u64 {
        self.mended
    }

    /// What was written since the journal was opened: appends, their bytes, and syncs.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn write_beside(
        &mut self,
        beside: &Path,
        entries: &[Entry<'_>],
    ) -> Result<Journal, JournalError> {
        let log = match self.successor.take() {
            Some(Successor { file, bytes }) => Log::over(file, beside, bytes, &self.faults),
            None => {
                self.faults.step().allow()?;
                let (file, bytes) = self.open_beside(beside)?;
                Log::over(file, beside, bytes, &self.faults)
            }
        };
        let (generation, sequence) = (self.generation() + 1, self.next_sequence());
        let mut journal = Journal::begin(
            &self.path,
            log,
            self.keys.clone(),
            self.instance(),
            generation,
            sequence,
            self.head(),
            &self.faults,
        )?;
        journal.last_round = self.last_round;
        for entry in entries {
            journal.append(entry.kind, entry.round, entry.payload)?;
        }
        // Whatever the file held before is behind.
        journal.log.cut(journal.end)?;
        journal.sync()?;
        Ok(journal)
    }

    /// The file beside the journal, made where there is none, and how many bytes of space it has.
    /// One that a crash left is as good as any: it is written over.
    fn open_beside(&self, beside: &Path) -> Result<(Arc<Locked>, u64), JournalError> {
        let (file, bytes) = match file::open(beside) {
            Ok(file) => {
                let metadata = file.metadata().map_err(io_error("look at", beside))?;
                (file, metadata.blocks() * STAT_BLOCK_BYTES)
            }
            Err(DiskError::Missing { .. }) => {
                self.faults.allocate(beside, 1)?;
                (file::create_new(beside)?, 0)
            }
            Err(error) => return Err(error.into()),
        };
        Ok((Arc::new(file::lock(file, beside)?), bytes))
    }

    /// Has space for `bytes` more bytes of records, so that appending them cannot find the disk full.
    ///
    /// # Errors
    ///
    /// A full disk; nothing has changed then.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), JournalError> {
        self.check_sound()?;
        // Behind a torn end nothing is reserved: the next append cuts it off first.
        Ok(self.log.reserve(self.end + bytes)?)
    }

    /// Has space for a next generation of `bytes` bytes, in a file beside the journal, so that
    /// [`start_anew`](Self::start_anew) cannot find the disk full.
    ///
    /// # Errors
    ///
    /// As [`reserve`](Self::reserve).
    pub fn reserve_successor(&mut self, bytes: u64) -> Result<(), JournalError> {
        let beside = beside(&self.path);
        let (file, had_bytes) = match self.successor.take() {
            Some(Successor { file, bytes }) => (file, bytes),
            None => self.open_beside(&beside)?,
        };
        let mut log = Log::over(file, &beside, had_bytes, &self.faults);
        if had_bytes / 4 > bytes {
            // Much more than it needs, after a journal that was long.
            log.cut(bytes)?;
        }
        let reserved = log.reserve(bytes);
        let (file, bytes) = log.space();
        self.successor = Some(Successor { file, bytes });
        Ok(reserved?)
    }

    /// Begins a generation in `log`, whose file will be at `path`.
    #[expect(clippy::too_many_arguments, reason = "the fields of a header, named by the callers")]
    fn begin(
        path: &Path,
        mut log: Log,
        keys: Arc<Keys>,
        instance: &Instance,
        generation: u64,
        sequence: u64,
        base: [u8; 32],
        faults: &Faults,
    ) -> Result<Journal, JournalError> {
        let (header, chain) = Chain::begin(&keys, instance, generation, sequence, base)?;
        log.append(&header)?;
        let mut journal = Journal {
            path: path.to_owned(),
            keys,
            log,
            heads: vec![base, chain.head()],
            chain,
            end: header.len() as u64,
            torn_bytes: 0,
            last_round: 0,
            poisoned: false,
            mended: 0,
            successor: None,
            counters: Counters {
                writes: 1,
                written_bytes: header.len() as u64,
                ..Counters::default()
            },
            faults: faults.clone(),
        };
        journal.sync()?;
        Ok(journal)
    }

    fn check_sound(&self) -> Result<(), JournalError> {
        match self.poisoned {
            true => Err(DiskError::Poisoned { path: self.path.clone() }.into()),
            false => Ok(()),
        }
    }
}

/// Where a file's successor is written.
fn beside(path: &Path) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    beside.into()
}

/// Checks that `file`, now locked, is still what is at `path`: another process may have put a new
/// generation there between the opening and the locking.
fn check_same(file: &fs::File, path: &Path) -> Result<(), DiskError> {
    let opened = file.metadata().map_err(io_error("look at", path))?;
    let there = fs::metadata(path).map_err(file::missing_or("look at", path))?;
    match (opened.dev(), opened.ino()) == (there.dev(), there.ino()) {
        true => Ok(()),
        false => Err(DiskError::Busy { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests;
