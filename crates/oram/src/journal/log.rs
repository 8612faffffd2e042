//! A file that is appended to, with faults as planned.

use std::borrow::Cow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::faults::{Verdict, coin};
use crate::disk::file::{Locked, io_error, reserve_ahead, write_error};
use crate::disk::{DiskError, Faults, Tear, Unsynced};

/// What a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// A file that is appended to. When everything has ended as planned, dropping this takes back what
/// the plan says of writes without a sync.
#[derive(Debug)]
pub(super) struct Log {
    file: Arc<Locked>,
    path: PathBuf,
    bytes: u64,
    synced_bytes: u64,
    /// So many of the file's bytes have their space on the disk, whether written yet or not.
    reserved_bytes: u64,
    faults: Faults,
}

impl Log {
    /// `file`, which has `bytes` and is appended to from there on.
    pub fn new(file: Locked, path: &Path, bytes: u64, faults: &Faults) -> Log {
        Log::at(Arc::new(file), path, bytes, faults)
    }

    fn at(file: Arc<Locked>, path: &Path, bytes: u64, faults: &Faults) -> Log {
        let path = path.to_owned();
        let faults = faults.clone();
        Log { file, path, bytes, synced_bytes: bytes, reserved_bytes: bytes, faults }
    }

    /// `file`, which is written anew from its beginning over whatever it holds, in the
    /// `reserved_bytes` of space that it has. [`cut`](Log::cut) ends it where it ends.
    pub fn over(file: Arc<Locked>, path: &Path, reserved_bytes: u64, faults: &Faults) -> Log {
        let mut log = Log::at(file, path, 0, faults);
        log.reserved_bytes = reserved_bytes;
        log
    }

    /// Has space for `bytes` bytes in all, so that appending up to there cannot find the disk full.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), DiskError> {
        if bytes > self.reserved_bytes {
            self.faults.allocate(&self.path, bytes - self.reserved_bytes)?;
            reserve_ahead(&self.file, &self.path, bytes)?;
            self.reserved_bytes = bytes;
        }
        Ok(())
    }

    /// The file, locked, and the space that it has: for another use of both.
    pub fn space(&self) -> (Arc<Locked>, u64) {
        (Arc::clone(&self.file), self.reserved_bytes)
    }

    /// Notes that the file was renamed, for errors to name.
    pub fn note_path(&mut self, path: &Path) {
        self.path = path.to_owned();
    }

    pub fn append(&mut self, bytes: &[u8]) -> Result<(), DiskError> {
        let verdict = self.faults.step();
        let bytes = &*to_write(verdict, bytes)?;
        let end = self.bytes + bytes.len() as u64;
        if end > self.reserved_bytes {
            self.faults.allocate(&self.path, end - self.reserved_bytes)?;
        }
        self.file.write_all_at(bytes, self.bytes).map_err(|source| {
            write_error(&self.file, "append to", &self.path, bytes.len() as u64, source)
        })?;
        self.bytes = end;
        self.reserved_bytes = self.reserved_bytes.max(end);
        verdict.allow()
    }

    pub fn sync(&mut self) -> Result<(), DiskError> {
        self.faults.step().allow()?;
        self.file.sync_data().map_err(io_error("sync", &self.path))?;
        self.synced_bytes = self.bytes;
        Ok(())
    }

    /// Cuts the file to `bytes`.
    pub fn cut(&mut self, bytes: u64) -> Result<(), DiskError> {
        self.faults.step().allow()?;
        self.file.set_len(bytes).map_err(io_error("shorten", &self.path))?;
        self.bytes = bytes;
        self.synced_bytes = self.synced_bytes.min(bytes);
        // What was reserved behind the new end went with it.
        self.reserved_bytes = bytes;
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let unsynced = self.bytes - self.synced_bytes;
        let kept = match self.faults.losses() {
            Unsynced::Kept => return,
            Unsynced::Lost => 0,
            Unsynced::Scattered(seed) => coin(seed, self.bytes) % (unsynced + 1),
        };
        self.file.set_len(self.synced_bytes + kept).expect("a file to take bytes back from");
    }
}

/// What is written of `bytes` where the plan says so.
pub(super) fn to_write(verdict: Verdict, bytes: &[u8]) -> Result<Cow<'_, [u8]>, DiskError> {
    match verdict {
        Verdict::Go => Ok(bytes.into()),
        Verdict::Last(_, tear) => Ok(tear_bytes(tear, bytes).into()),
        Verdict::Dead(_) => verdict.allow().map(|()| bytes.into()),
    }
}

/// What is left of a write at which everything ends.
fn tear_bytes(tear: Tear, bytes: &[u8]) -> Vec<u8> {
    match tear {
        Tear::Nothing => Vec::new(),
        Tear::Half => bytes[..bytes.len() / 2].to_vec(),
        Tear::HalfPage => bytes[..1.min(bytes.len())].to_vec(),
        // The file's new length may be durable before what is in it.
        Tear::Scattered(seed) if seed % 2 == 0 => {
            let mut torn = bytes.to_vec();
            for (i, sector) in torn.chunks_mut(SECTOR_BYTES).enumerate() {
                if coin(seed, i as u64) & 1 == 1 {
                    sector.fill(0);
                }
            }
            torn
        }
        Tear::Scattered(seed) => {
            bytes[..(coin(seed, 0) % (bytes.len() as u64 + 1)) as usize].to_vec()
        }
        Tear::Everything => bytes.to_vec(),
    }
}
