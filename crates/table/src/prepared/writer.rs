//! Writing a prepared file, block by block, so that a killed run can be gone on with.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use super::blocks::{Blocks, Recorded};
use super::file::{self, Extents, HASH_BYTES, Hash};
use super::journal::{self, Journal};
use super::{Prepared, PreparedError, PreparedSpec, SLACK_BYTES};
use crate::staging::{parent_of, resolve, sync_folder};
use crate::version::Version;

/// How much work a killed run may lose: blocks that were finished since the last time that the
/// disk was waited for, which is done when either of these has passed.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
const SYNC_BYTES: u64 = 256 << 20;

/// A prepared file that is being written, perhaps by many threads.
///
/// It holds a lock, which the system drops when the process dies, however it dies. When it is
/// dropped without [`finish`](Self::finish), what is done stays for the next writer.
pub struct PreparedWriter {
    /// Where the file is to stand; never a symbolic link.
    target: PathBuf,
    partial_path: PathBuf,
    partial: File,
    spec: PreparedSpec,
    header: Vec<u8>,
    extents: Extents,
    blocks: Mutex<Blocks>,
    /// Locked while the disk is waited for.
    journal: Mutex<Journal>,
    opened: Instant,
    /// When the disk was last waited for, in milliseconds after `opened`.
    synced_ms: AtomicU64,
    unsynced_bytes: AtomicU64,
    /// Whether waiting for the disk has failed: what it then holds, nobody knows.
    stopped: AtomicBool,
}

impl PreparedWriter {
    /// Begins the file of `spec` that is to stand at `path`, or goes on with it.
    ///
    /// It is written to `path` + `.partial`, with a journal at `path` + `.journal`. Where both are
    /// there and are of this very spec, the blocks that the journal says are done are kept;
    /// otherwise all begins anew. What stands at `path` stays until the new file takes its place.
    /// The file takes its whole size at once but disk space only as it is written.
    ///
    /// # Errors
    /// [`PreparedError::Locked`] if another writer is at it, [`PreparedError::Spec`] for a spec
    /// outside the limits, [`PreparedError::Occupied`] and [`PreparedError::NotAFile`] if something
    /// else is in the way, [`PreparedError::Io`] for what the system refuses.
    pub fn open(path: impl AsRef<Path>, spec: &PreparedSpec) -> Result<Self, PreparedError> {
        spec.check()?;
        let path = path.as_ref();
        let target = resolve(path).map_err(PreparedError::io("follow the link", path))?;
        let beside = |ending: &str| {
            let name = target.file_name();
            let mut name = name
                .map(OsString::from)
                .ok_or_else(|| PreparedError::Unnamed { path: path.to_owned() })?;
            name.push(ending);
            Ok::<_, PreparedError>(target.with_file_name(name))
        };
        let (partial_path, journal_path) = (beside(".partial")?, beside(".journal")?);
        check_replaceable(&target, &file::MARK, false)?;
        // After a power failure, bytes that were on their way may read as zeros.
        check_replaceable(&partial_path, &file::MARK, true)?;
        check_replaceable(&journal_path, &journal::MARK, true)?;
        let mut journal = Journal::lock(&journal_path, &target)?;

        let (header, extents) = (file::encode_header(spec), Extents::of(spec));
        let (partial, blocks) = match resume(&partial_path, &mut journal, spec, &header, &extents)?
        {
            Some(resumed) => resumed,
            None => {
                let partial = begin(&partial_path, &mut journal, &header, &extents)?;
                (partial, Blocks::new(spec.blocks))
            }
        };
        Ok(Self {
            target,
            partial_path,
            partial,
            spec: spec.clone(),
            header,
            extents,
            blocks: Mutex::new(blocks),
            journal: Mutex::new(journal),
            opened: Instant::now(),
            synced_ms: AtomicU64::new(0),
            unsynced_bytes: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        })
    }

    /// How many blocks are done.
    pub fn done(&self) -> u32 {
        hold(&self.blocks).done_count()
    }

    /// Whether `block` is done and need not be made; `false` if there is no such block.
    pub fn is_done(&self, block: u32) -> bool {
        hold(&self.blocks).is_done(block)
    }

    /// Writes bytes of the payload, `payload_offset` from its start.
    ///
    /// # Errors
    /// [`PreparedError::PayloadRange`] if they do not all lie in the payload, and then none is
    /// written; [`PreparedError::Io`] if the disk refuses them, for want of space say.
    pub fn write_at(&self, payload_offset: u64, bytes: &[u8]) -> Result<(), PreparedError> {
        let (byte_count, payload_bytes) = (bytes.len() as u64, self.spec.payload_bytes);
        if payload_offset.checked_add(byte_count).is_none_or(|end| end > payload_bytes) {
            return Err(PreparedError::PayloadRange {
                path: self.target.clone(),
                offset: payload_offset,
                byte_count: bytes.len(),
                payload_bytes,
            });
        }
        self.partial
            .write_all_at(bytes, self.extents.payload_start + payload_offset)
            .map_err(PreparedError::io("write", &self.partial_path))?;
        self.unsynced_bytes.fetch_add(byte_count, Ordering::Relaxed);
        Ok(())
    }

    /// Says that all of `block`'s bytes have been written, and that they hash to `hash`, by a hash
    /// that the engine chooses (BLAKE3, so that the file's version is worth as much).
    ///
    /// About once a second, or every 256 MiB, one of the threads that call this waits until the
    /// disk has all blocks that are done, and then notes them in the journal. To finish a block
    /// again with the same hash does nothing.
    ///
    /// # Errors
    /// [`PreparedError::BlockIndex`] if there is no such block, [`PreparedError::BlockHash`] if it
    /// was done with another hash, [`PreparedError::Io`] if the disk fails, and
    /// [`PreparedError::Stopped`] from then on.
    pub fn finish_block(&self, block: u32, hash: [u8; 32]) -> Result<(), PreparedError> {
        self.check_running()?;
        let path = || self.target.clone();
        let recorded = hold(&self.blocks).record(block, hash);
        match recorded {
            Recorded::New => {}
            Recorded::Again => return Ok(()),
            Recorded::Otherwise(known) => {
                let (expected, found) = (known.into(), hash.into());
                return Err(PreparedError::BlockHash { path: path(), block, expected, found });
            }
            Recorded::Nowhere => {
                let blocks = self.spec.blocks;
                return Err(PreparedError::BlockIndex { path: path(), block, blocks });
            }
        }
        let synced = Duration::from_millis(self.synced_ms.load(Ordering::Relaxed));
        let since = self.opened.elapsed().saturating_sub(synced);
        if is_due(since, self.unsynced_bytes.load(Ordering::Relaxed)) {
            // Another thread that waits for the disk now need not be waited for.
            match self.journal.try_lock() {
                Ok(mut journal) => self.sync_holding(&mut journal)?,
                Err(TryLockError::Poisoned(error)) => self.sync_holding(&mut error.into_inner())?,
                Err(TryLockError::WouldBlock) => {}
            }
        }
        Ok(())
    }

    /// Waits until every block that is done would outlive the machine.
    ///
    /// # Errors
    /// As [`finish_block`](Self::finish_block).
    pub fn sync(&self) -> Result<(), PreparedError> {
        self.sync_holding(&mut hold(&self.journal))
    }

    /// Puts the file in its place, and opens it.
    ///
    /// # Errors
    /// [`PreparedError::Undone`] if blocks are missing; those that are done stay for the next
    /// writer. [`PreparedError::Io`] for what the system refuses; what stood at the path stands.
    pub fn finish(self) -> Result<Prepared, PreparedError> {
        self.sync()?;
        let version = {
            let blocks = hold(&self.blocks);
            if !blocks.is_whole() {
                let (expected, found) = (self.spec.blocks, blocks.done_count());
                return Err(PreparedError::Undone { path: self.target.clone(), expected, found });
            }
            let version = file::version_of(&self.header, blocks.hashes());
            let hashes = blocks.hashes().as_flattened();
            self.partial
                .write_all_at(hashes, self.extents.hashes_start)
                .map_err(PreparedError::io("write", &self.partial_path))?;
            version
        };
        self.partial
            .write_all_at(version.as_bytes(), self.extents.version_start)
            .and_then(|()| self.partial.sync_all())
            .map_err(PreparedError::io("write", &self.partial_path))?;
        fs::rename(&self.partial_path, &self.target)
            .map_err(PreparedError::io("rename the finished file to", &self.target))?;
        // The journal goes last: without it, a finished file that has not its name yet is lost.
        let parent = parent_of(&self.target);
        sync_folder(parent).map_err(PreparedError::io("synchronise", parent))?;
        // One that cannot be removed says nothing of any other file, so the next writer clears it.
        let _ = fs::remove_file(hold(&self.journal).path());
        Prepared::open(&self.target, &self.spec)
    }

    fn check_running(&self) -> Result<(), PreparedError> {
        match self.stopped.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(PreparedError::Stopped { path: self.target.clone() }),
        }
    }

    fn sync_holding(&self, journal: &mut Journal) -> Result<(), PreparedError> {
        self.check_running()?;
        // Taken before the data is synchronised: what is finished meanwhile waits for next time.
        let pending = hold(&self.blocks).take_pending();
        if pending.is_empty() {
            return Ok(());
        }
        self.unsynced_bytes.store(0, Ordering::Relaxed);
        let synced = self.partial.sync_data();
        let synced = synced.map_err(PreparedError::io("synchronise", &self.partial_path));
        synced.and_then(|()| journal.append(&pending)).inspect_err(|_| {
            // The system forgets what it could not write: to try again would seem to succeed.
            self.stopped.store(true, Ordering::Relaxed);
        })?;
        let now_ms = self.opened.elapsed().as_millis().try_into().unwrap_or(u64::MAX);
        self.synced_ms.store(now_ms, Ordering::Relaxed);
        Ok(())
    }
}

impl fmt::Debug for PreparedWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("PreparedWriter");
        shown.field("target", &self.target).field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Drop for PreparedWriter {
    fn drop(&mut self) {
        // What cannot be noted now is made again by the next writer.
        let _ = self.sync();
    }
}

fn is_due(since: Duration, unsynced_bytes: u64) -> bool {
    since >= SYNC_INTERVAL || unsynced_bytes >= SYNC_BYTES
}

/// Locks what no code leaves half changed, so that a thread that panicked does not matter.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses to write over anything but a file that is empty or starts with `mark`, or with zeros
/// if `zeros` says so.
fn check_replaceable(path: &Path, mark: &[u8; 16], zeros: bool) -> Result<(), PreparedError> {
    let mut options = OpenOptions::new();
    // To open a pipe must not wait for its other end.
    options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(PreparedError::io("open", path)(error)),
    };
    let mut start = Vec::new();
    if !file.metadata().map_err(PreparedError::io("read the size of", path))?.is_file() {
        return Err(PreparedError::NotAFile { path: path.to_owned() });
    }
    let read = file.take(mark.len() as u64).read_to_end(&mut start);
    read.map_err(PreparedError::io("read", path))?;
    // A file of less than a mark was torn while it was begun.
    let is_ours = mark.starts_with(&start) || zeros && start.iter().all(|&byte| byte == 0);
    if is_ours { Ok(()) } else { Err(PreparedError::Occupied { path: path.to_owned() }) }
}

/// The unfinished file and what is done of it, if journal and file are of this spec.
fn resume(
    path: &Path,
    journal: &mut Journal,
    spec: &PreparedSpec,
    header: &[u8],
    extents: &Extents,
) -> Result<Option<(File, Blocks)>, PreparedError> {
    let Some((nonce, blocks)) = journal.resume(&checksum_of(header), spec.blocks)? else {
        return Ok(None);
    };
    let file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(PreparedError::io("open", path)(error)),
    };
    let read = || {
        let mut start = vec![0; extents.payload_start as usize];
        let (mut slack, mut end) = ([0; SLACK_BYTES], [0; HASH_BYTES]);
        if file.metadata()?.len() != extents.file_bytes {
            return Ok(false);
        }
        file.read_exact_at(&mut start, 0)?;
        file.read_exact_at(&mut slack, extents.slack_start)?;
        file.read_exact_at(&mut end, extents.version_start)?;
        let (found, padding) = start.split_at(header.len());
        // Damage that opening the finished file would find is better found before the work.
        let is_sound = found == header && padding.iter().chain(&slack).all(|&byte| byte == 0);
        // The version is there if the run ended between finishing the file and renaming it.
        let is_finished =
            || blocks.is_whole() && Version::from(end) == file::version_of(header, blocks.hashes());
        Ok(is_sound && (end == file::unfinished_version(nonce) || is_finished()))
    };
    let is_ours = read().map_err(PreparedError::io("read", path))?;
    Ok(is_ours.then_some((file, blocks)))
}

/// Begins journal and file anew.
fn begin(
    path: &Path,
    journal: &mut Journal,
    header: &[u8],
    extents: &Extents,
) -> Result<File, PreparedError> {
    // At no moment does a journal that says something stand beside a file of another run.
    journal.clear()?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(PreparedError::io("remove", path)(error));
        }
        _ => {}
    }
    let nonce = RandomState::new().build_hasher().finish();
    // A new file and not the old one emptied: someone may have the old one mapped.
    let create = || {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        file.write_all_at(header, 0)?;
        file.set_len(extents.file_bytes)?;
        file.write_all_at(&file::unfinished_version(nonce), extents.version_start)?;
        file.sync_all()?;
        Ok(file)
    };
    let file = create().map_err(PreparedError::io("create", path))?;
    let parent = parent_of(path);
    sync_folder(parent).map_err(PreparedError::io("synchronise", parent))?;
    journal.begin(&checksum_of(header), nonce)?;
    Ok(file)
}

/// The checksum at a header's end.
fn checksum_of(header: &[u8]) -> Hash {
    let mut checksum = [0; HASH_BYTES];
    checksum.copy_from_slice(&header[header.len() - HASH_BYTES..]);
    checksum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_whose_disk_failed_stops_and_the_next_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let spec = PreparedSpec {
            kind: "test".to_owned(),
            format: 1,
            table_version: Version::from([1; 32]),
            meta: vec![],
            payload_bytes: 3,
            blocks: 3,
        };
        let writer = PreparedWriter::open(&path, &spec).unwrap();
        writer.finish_block(0, [0; 32]).unwrap();
        writer.sync().unwrap();
        hold(&writer.journal).refuse_writes();
        writer.finish_block(1, [1; 32]).unwrap();
        assert!(matches!(writer.sync(), Err(PreparedError::Io { action: "write", .. })));
        // The block is lost, though a second try would find nothing left to write.
        assert!(matches!(writer.sync(), Err(PreparedError::Stopped { .. })));
        assert!(matches!(writer.finish_block(2, [2; 32]), Err(PreparedError::Stopped { .. })));
        assert!(matches!(writer.finish(), Err(PreparedError::Stopped { .. })));

        let writer = PreparedWriter::open(&path, &spec).unwrap();
        assert_eq!([0, 1, 2].map(|block| writer.is_done(block)), [true, false, false]);
    }

    #[test]
    fn the_disk_is_waited_for_by_time_and_by_bytes() {
        assert!(!is_due(Duration::from_millis(999), SYNC_BYTES - 1));
        assert!(is_due(Duration::from_millis(1_000), 0));
        assert!(is_due(Duration::ZERO, SYNC_BYTES));
    }
}
