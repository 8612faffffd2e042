//! The root counter in a small file.

use std::fs;
use std::path::{Path, PathBuf};

use super::counter::{
    COUNTER_BYTES, CounterPlace, CounterSeal, CounterValue, RootCounter, check_advance,
};
use super::log::Log;
use super::{JournalError, beside, check_same, io_error, sync_folder_of};
use crate::disk::file::{create_new, lock, missing_or, open};
use crate::disk::{DiskError, Faults};
use crate::seal::Key;

/// A counter in a small file, authenticated, standing in for a trusted platform's monotonic counter.
///
/// The file cannot be forged without the key, but an old copy of it is as good as it ever was. So an
/// operator puts it where whoever can write to the store's disk cannot: on a trusted machine's disk,
/// or replaced by a [`RootCounter`] over something of its own (a quorum's log, a TPM's NV index).
///
/// The file is locked while this lives, so that there is one live controller to a counter; each
/// advance replaces it by a new one, locked before it takes the old one's place.
#[derive(Debug)]
pub struct FileCounter {
    path: PathBuf,
    /// The file that is there, locked.
    file: Log,
    seal: CounterSeal,
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
        let seal = CounterSeal::new(key);
        let file = put(path, &seal, value, faults)?;
        Ok(FileCounter { path: path.to_owned(), file, seal, faults: faults.clone() })
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
        let locked = locked.map_err(|error| match error {
            DiskError::Busy { path } => JournalError::CounterHeld { path },
            error => error.into(),
        })?;
        let file = Log::new(locked, path, COUNTER_BYTES as u64, faults);
        let seal = CounterSeal::new(key);
        let mut counter = FileCounter { path: path.to_owned(), file, seal, faults: faults.clone() };
        counter.read()?;
        Ok(counter)
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

/// Puts `value` in the file's place in one step: after a crash there is the old or the new. The new one
/// is locked before anyone can find it.
fn put(
    path: &Path,
    seal: &CounterSeal,
    value: &CounterValue,
    faults: &Faults,
) -> Result<Log, JournalError> {
    let beside = beside(path);
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(io_error("remove", &beside)(error).into());
        }
        // Left by a crash, or not there.
        _ => {}
    }
    faults.step().allow()?;
    let file = lock(create_new(&beside)?, &beside)?;
    let mut log = Log::new(file, &beside, 0, faults);
    log.append(&seal.seal(value)?)?;
    log.sync()?;
    faults.step().allow()?;
    fs::rename(&beside, path).map_err(io_error("replace", path))?;
    faults.step().allow()?;
    sync_folder_of(path)?;
    log.note_path(path);
    Ok(log)
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
        let metadata = fs::metadata(&self.path).map_err(missing_or("look at", &self.path))?;
        // Before it is read: it may be anything, of any size.
        if !metadata.is_file() || metadata.len() != COUNTER_BYTES as u64 {
            return Err(JournalError::NotACounter { place: self.place(), bytes: metadata.len() });
        }
        let bytes = fs::read(&self.path).map_err(missing_or("read", &self.path))?;
        self.seal.open(&self.place(), &bytes)
    }

    fn advance(
        &mut self,
        expected: &CounterValue,
        value: &CounterValue,
    ) -> Result<(), JournalError> {
        // The lock is on the file that is there, or someone put another one in its place.
        let found = self.read()?;
        check_advance(&self.place(), &found, expected, value)?;
        check_same(self.file.file(), &self.path).map_err(|error| match error {
            DiskError::Busy { path } => JournalError::CounterReplaced { path },
            error => error.into(),
        })?;
        self.file = put(&self.path, &self.seal, value, &self.faults)?;
        Ok(())
    }
}
