//! The root counter: the little that must not be rolled back, so that nothing else can be.

use std::fs;
use std::path::{Path, PathBuf};

use hushtable_prg::EntropyError;

use super::chain::{Keys, array, random};
use super::log::Log;
use super::{JournalError, beside, io_error, sync_folder_of};
use crate::disk::file::{create_new, lock, missing_or};
use crate::disk::{DiskError, Faults};
use crate::seal::{Key, TAG_BYTES};

const MAGIC: [u8; 8] = *b"HTORAMC1";
const NONCE_AT: usize = 56;
const TAG_AT: usize = 88;
const BYTES: usize = TAG_AT + TAG_BYTES;

/// What the root counter holds: as far as everything had come at the last commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterValue {
    /// Rounds committed.
    pub round: u64,
    /// Evictions of the main ORAM, from which every bucket's counter follows (FEDORA, section 5.2).
    pub evictions: u64,
    /// The journal's head with the commit's record.
    pub head: [u8; 32],
}

/// A counter that an adversary with the disks cannot put back.
pub trait RootCounter: Send {
    /// The value at which it stands.
    ///
    /// # Errors
    ///
    /// What is wrong with where it is kept.
    fn read(&mut self) -> Result<CounterValue, JournalError>;

    /// Advances it to `value`, durably.
    ///
    /// # Errors
    ///
    /// A value before that at which it stands ([`JournalError::Backwards`]), or what is wrong with
    /// where it is kept; it then stands where it stood, or, after a crash only, at `value`.
    fn advance(&mut self, value: &CounterValue) -> Result<(), JournalError>;
}

/// A counter in a small file, authenticated, standing in for a trusted platform's monotonic counter.
///
/// The file cannot be forged without the key, but an old copy of it is as good as it ever was. So an
/// operator puts it where whoever can write to the store's disk cannot: on a trusted machine's disk,
/// or replaced by a [`RootCounter`] over the platform's own (a TPM's NV index, a quorum's log).
#[derive(Debug)]
pub struct FileCounter {
    path: PathBuf,
    keys: Keys,
    faults: Faults,
}

impl FileCounter {
    /// Makes a counter that stands at `value`. `faults` is [`Faults::none`] outside tests.
    ///
    /// # Errors
    ///
    /// A file that is there already, or what the system says.
    pub fn create(
        path: &Path,
        key: &Key,
        value: &CounterValue,
        faults: &Faults,
    ) -> Result<FileCounter, JournalError> {
        faults.step().allow()?;
        // It comes into being whole, by a rename, which would replace what is there.
        if path.try_exists().map_err(io_error("look at", path))? {
            return Err(DiskError::Exists { path: path.to_owned() }.into());
        }
        let counter =
            FileCounter { path: path.to_owned(), keys: Keys::derive(key), faults: faults.clone() };
        counter.write(value)?;
        Ok(counter)
    }

    /// Opens the counter that [`create`](FileCounter::create) made.
    ///
    /// # Errors
    ///
    /// A missing file, what is no counter or not of this key, or what the system says.
    pub fn open(path: &Path, key: &Key, faults: &Faults) -> Result<FileCounter, JournalError> {
        let mut counter =
            FileCounter { path: path.to_owned(), keys: Keys::derive(key), faults: faults.clone() };
        counter.read()?;
        Ok(counter)
    }

    /// Puts `value` in the file's place in one step: after a crash there is the old or the new.
    fn write(&self, value: &CounterValue) -> Result<(), JournalError> {
        let beside = beside(&self.path);
        match fs::remove_file(&beside) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(io_error("remove", &beside)(error).into());
            }
            // Left by a crash, or not there.
            _ => {}
        }
        self.faults.step().allow()?;
        let file = lock(create_new(&beside)?, &beside)?;
        let mut log = Log::new(file, &beside, 0, &self.faults);
        log.append(&self.encode(value)?)?;
        log.sync()?;
        self.faults.step().allow()?;
        fs::rename(&beside, &self.path).map_err(io_error("replace", &self.path))?;
        self.faults.step().allow()?;
        sync_folder_of(&self.path)?;
        Ok(())
    }

    fn encode(&self, value: &CounterValue) -> Result<[u8; BYTES], EntropyError> {
        let nonce = random()?;
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&value.round.to_le_bytes());
        bytes[16..24].copy_from_slice(&value.evictions.to_le_bytes());
        bytes[24..56].copy_from_slice(&value.head);
        bytes[NONCE_AT..TAG_AT].copy_from_slice(&nonce);
        let tag = self.keys.counter_tag(&nonce, &bytes[..NONCE_AT]);
        bytes[TAG_AT..].copy_from_slice(&tag);
        Ok(bytes)
    }
}

impl RootCounter for FileCounter {
    fn read(&mut self) -> Result<CounterValue, JournalError> {
        self.faults.step().allow()?;
        let metadata = fs::metadata(&self.path).map_err(missing_or("look at", &self.path))?;
        let foreign =
            || JournalError::NotACounter { path: self.path.clone(), bytes: metadata.len() };
        // Before it is read: it may be anything, of any size.
        if !metadata.is_file() || metadata.len() != BYTES as u64 {
            return Err(foreign());
        }
        let bytes = fs::read(&self.path).map_err(missing_or("read", &self.path))?;
        if bytes.len() != BYTES || bytes[..8] != MAGIC {
            return Err(foreign());
        }
        let (nonce, tag) = (array(&bytes, NONCE_AT), array(&bytes, TAG_AT));
        if !self.keys.is_counter_tag(&nonce, &bytes[..NONCE_AT], &tag) {
            return Err(JournalError::Forged { path: self.path.clone() });
        }
        Ok(CounterValue {
            round: u64::from_le_bytes(array(&bytes, 8)),
            evictions: u64::from_le_bytes(array(&bytes, 16)),
            head: array(&bytes, 24),
        })
    }

    fn advance(&mut self, value: &CounterValue) -> Result<(), JournalError> {
        let CounterValue { round, evictions, .. } = self.read()?;
        if value.round < round || value.evictions < evictions {
            return Err(JournalError::Backwards {
                path: self.path.clone(),
                round,
                evictions,
                wanted_round: value.round,
                wanted_evictions: value.evictions,
            });
        }
        self.write(value)
    }
}
