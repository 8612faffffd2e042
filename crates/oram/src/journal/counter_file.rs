//! The root counter in a small file.
//!
//! The file has two slots, each on a page of its own. An advance writes the slot that does not hold
//! the value, in place: it takes no space that the file has not got, and until it is durable the other
//! slot stands. A slot whose bytes come back damaged is as one that was never written: the counter then
//! stands where it stood one advance before, which a journal that is ahead of its counter allows for.
//!
//! ```text
//! file  two slots of 4,096 bytes
//! slot  magic 8 | number of the advance 8 | sealed counter 136 | nonce 32 | tag 16 | zeros
//! ```
//!
//! A file of an earlier version is one sealed counter; it is replaced when it is opened.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::chain::{array, random};
use super::counter::{
    COUNTER_BYTES, CounterPlace, CounterSeal, CounterValue, RootCounter, check_advance,
};
use super::log::to_write;
use super::{JournalError, beside, check_same, io_error, sync_folder_of};
use crate::disk::faults::coin;
use crate::disk::file::{Locked, create_new, lock, missing_or, open, write_error};
use crate::disk::{DiskError, Faults, Unsynced};
use crate::seal::{Key, NONCE_BYTES, TAG_BYTES};

const SLOT_MAGIC: [u8; 8] = *b"HTORAMC3";
const SLOTS: usize = 2;
/// No disk writes two pages as one.
const SLOT_BYTES: usize = 4096;
const FILE_BYTES: usize = SLOTS * SLOT_BYTES;
const NUMBER_AT: usize = 8;
const VALUE_AT: usize = 16;
const NONCE_AT: usize = VALUE_AT + COUNTER_BYTES;
const TAG_AT: usize = NONCE_AT + NONCE_BYTES;
const END: usize = TAG_AT + TAG_BYTES;

/// A counter in a small file, authenticated, standing in for a trusted platform's monotonic counter.
///
/// The file cannot be forged without the key, but an old copy of it is as good as it ever was. So an
/// operator puts it where whoever can write to the store's disk cannot: on a trusted machine's disk,
/// or replaced by a [`RootCounter`] over something of its own (a quorum's log, a TPM's NV index).
///
/// The file is locked while this lives, so that there is one live controller to a counter.
#[derive(Debug)]
pub struct FileCounter {
    path: PathBuf,
    file: Locked,
    seal: CounterSeal,
    /// Slots as they were before they were written, oldest first, since the last sync.
    undo: Vec<(usize, Vec<u8>)>,
    faults: Faults,
}

/// What is in a slot: the number of the advance that wrote it, and the value.
type Slot = (u64, CounterValue);

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
        let seal = CounterSeal::new(key);
        let file = put(path, &seal, value, faults)?;
        Ok(FileCounter::of(path, file, seal, faults))
    }

    /// Opens the counter that [`create`](FileCounter::create) made.
    ///
    /// # Errors
    ///
    /// A missing file, one that another controller holds ([`JournalError::CounterHeld`]), what is no
    /// counter or not of this key, or what the system says.
    pub fn open(path: &Path, key: &Key, faults: &Faults) -> Result<FileCounter, JournalError> {
        let locked = lock(open(path)?, path).and_then(|file| {
            check_same(&file, path)?;
            Ok(file)
        });
        let file = locked.map_err(|error| match error {
            DiskError::Busy { path } => JournalError::CounterHeld { path },
            error => error.into(),
        })?;
        let mut counter = FileCounter::of(path, file, CounterSeal::new(key), faults);
        let value = counter.read()?;
        let metadata = counter.file.metadata().map_err(io_error("look at", path))?;
        if metadata.len() != FILE_BYTES as u64 {
            // Of an earlier version. The new one is locked before anyone can find it.
            counter.file = put(path, &counter.seal, &value, faults)?;
        }
        Ok(counter)
    }

    fn of(path: &Path, file: Locked, seal: CounterSeal, faults: &Faults) -> FileCounter {
        FileCounter { path: path.to_owned(), file, seal, undo: Vec::new(), faults: faults.clone() }
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    /// The slot that holds the value, and what it holds.
    fn newest(&self) -> Result<(usize, Slot), JournalError> {
        let metadata = fs::metadata(&self.path).map_err(missing_or("look at", &self.path))?;
        let not_a_counter =
            || JournalError::NotACounter { place: self.place(), bytes: metadata.len() };
        // Before it is read: it may be anything, of any size.
        if !metadata.is_file() {
            return Err(not_a_counter());
        }
        if metadata.len() == COUNTER_BYTES as u64 {
            let bytes = fs::read(&self.path).map_err(missing_or("read", &self.path))?;
            return Ok((1, (0, self.seal.open(&self.place(), &bytes)?)));
        }
        if metadata.len() != FILE_BYTES as u64 {
            return Err(not_a_counter());
        }
        // By its path: what others find there is what counts.
        let file = File::open(&self.path).map_err(missing_or("open", &self.path))?;
        let (mut newest, mut begins_as_one, mut failed) = (None, false, None);
        for at in 0..SLOTS {
            let mut bytes = [0; END];
            match file.read_exact_at(&mut bytes, (at * SLOT_BYTES) as u64) {
                Ok(()) => {}
                // A page that its disk cannot read: the other one may do.
                Err(error) => {
                    failed = Some(error);
                    continue;
                }
            }
            begins_as_one |= bytes[..NUMBER_AT] == SLOT_MAGIC;
            if let Some(slot) = open_slot(&self.seal, &self.place(), &bytes)
                && newest.is_none_or(|(_, (number, _))| number < slot.0)
            {
                newest = Some((at, slot));
            }
        }
        match (newest, failed) {
            (Some(newest), _) => Ok(newest),
            (None, Some(error)) => Err(io_error("read", &self.path)(error).into()),
            (None, None) if begins_as_one => {
                Err(JournalError::ForgedCounter { place: self.place() })
            }
            (None, None) => Err(not_a_counter()),
        }
    }

    /// Writes a slot in place.
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), DiskError> {
        let verdict = self.faults.step();
        let bytes = &*to_write(verdict, bytes)?;
        let offset = (at * SLOT_BYTES) as u64;
        let mut old = vec![0; SLOT_BYTES];
        self.file.read_exact_at(&mut old, offset).map_err(io_error("read", &self.path))?;
        self.undo.push((at, old));
        self.file.write_all_at(bytes, offset).map_err(|source| {
            write_error(&self.file, "write", &self.path, bytes.len() as u64, source)
        })?;
        verdict.allow()
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        self.faults.step().allow()?;
        self.file.sync_data().map_err(io_error("sync", &self.path))?;
        self.undo.clear();
        Ok(())
    }
}

/// When everything has ended as planned, takes back what the plan says of writes without a sync.
impl Drop for FileCounter {
    fn drop(&mut self) {
        let losses = self.faults.losses();
        while let Some((at, old)) = self.undo.pop() {
            let lost = match losses {
                Unsynced::Kept => false,
                Unsynced::Lost => true,
                Unsynced::Scattered(seed) => coin(seed, at as u64) & 1 == 1,
            };
            if lost {
                let taken_back = self.file.write_all_at(&old, (at * SLOT_BYTES) as u64);
                taken_back.expect("a slot to take back");
            }
        }
    }
}

/// A slot's bytes, without the zeros behind them.
fn seal_slot(
    seal: &CounterSeal,
    number: u64,
    value: &CounterValue,
) -> Result<Vec<u8>, JournalError> {
    let mut bytes = SLOT_MAGIC.to_vec();
    bytes.extend(number.to_le_bytes());
    bytes.extend(seal.seal(value)?);
    let nonce = random()?;
    let tag = seal.keys().counter_tag(&nonce, &bytes);
    bytes.extend(nonce);
    bytes.extend(tag);
    Ok(bytes)
}

fn open_slot(seal: &CounterSeal, place: &str, bytes: &[u8; END]) -> Option<Slot> {
    let (nonce, tag) = (array(bytes, NONCE_AT), array(bytes, TAG_AT));
    let is_sound = bytes[..NUMBER_AT] == SLOT_MAGIC
        && seal.keys().is_counter_tag(&nonce, &bytes[..NONCE_AT], &tag);
    let number = u64::from_le_bytes(array(bytes, NUMBER_AT));
    let value = seal.open(place, &bytes[VALUE_AT..NONCE_AT]).ok();
    value.filter(|_| is_sound).map(|value| (number, value))
}

/// Puts a file that stands at `value` in the place in one step: after a crash there is the one before
/// or this one. It is locked before anyone can find it.
fn put(
    path: &Path,
    seal: &CounterSeal,
    value: &CounterValue,
    faults: &Faults,
) -> Result<Locked, JournalError> {
    let beside = beside(path);
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(io_error("remove", &beside)(error).into());
        }
        // Left by a crash, or not there.
        _ => {}
    }
    faults.allocate(&beside, FILE_BYTES as u64)?;
    faults.step().allow()?;
    let file = lock(create_new(&beside)?, &beside)?;
    let mut bytes = seal_slot(seal, 0, value)?;
    // All of it is written now, so that all of it has its space.
    bytes.resize(FILE_BYTES, 0);
    file.write_all_at(&bytes, 0)
        .map_err(|source| write_error(&file, "write", &beside, FILE_BYTES as u64, source))?;
    faults.step().allow()?;
    file.sync_data().map_err(io_error("sync", &beside))?;
    faults.step().allow()?;
    fs::rename(&beside, path).map_err(io_error("replace", path))?;
    faults.step().allow()?;
    sync_folder_of(path)?;
    Ok(file)
}

impl CounterPlace for PathBuf {
    fn check_free(&self) -> Result<(), JournalError> {
        match self.try_exists().map_err(io_error("look at", self))? {
            true => Err(DiskError::Exists { path: self.clone() }.into()),
            false => Ok(()),
        }
    }

    fn create(
        &self,
        key: &Key,
        value: &CounterValue,
        faults: &Faults,
    ) -> Result<Box<dyn RootCounter>, JournalError> {
        Ok(Box::new(FileCounter::create(self, key, value, faults)?))
    }

    fn open(&self, key: &Key, faults: &Faults) -> Result<Box<dyn RootCounter>, JournalError> {
        Ok(Box::new(FileCounter::open(self, key, faults)?))
    }
}

impl RootCounter for FileCounter {
    fn read(&mut self) -> Result<CounterValue, JournalError> {
        self.faults.step().allow()?;
        self.newest().map(|(_, (_, value))| value)
    }

    fn advance(
        &mut self,
        expected: &CounterValue,
        value: &CounterValue,
    ) -> Result<(), JournalError> {
        self.faults.step().allow()?;
        let (at, (number, found)) = self.newest()?;
        check_advance(&self.place(), &found, expected, value)?;
        // The lock is on the file that is there, or someone put another one in its place.
        check_same(&self.file, &self.path).map_err(|error| match error {
            DiskError::Busy { path } => JournalError::CounterReplaced { path },
            error => error.into(),
        })?;
        let bytes = seal_slot(&self.seal, number + 1, value)?;
        self.write((at + 1) % SLOTS, &bytes)?;
        Ok(self.sync()?)
    }
}

#[cfg(test)]
mod tests;
