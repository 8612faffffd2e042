//! Writing a prepared file, block by block, so that a killed run can be gone on with.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::blocks::{Blocks, Recorded};
use super::file::{self, Extents, HASH_BYTES, Hash};
use super::journal::{self, Journal};
use super::{Prepared, PreparedError, PreparedSpec, SLACK_BYTES, part};
use crate::staging::{parent_of, resolve, sync_folder};
use crate::system::{self, FileExt};
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
    /// What the unfinished file and its journals have in common, and no other run's.
    nonce: u64,
    spec: PreparedSpec,
    header: Vec<u8>,
    extents: Extents,
    /// The blocks that it may write: all but for the writer of a part.
    own: Range<u32>,
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
    /// The file takes its whole size at once but disk space only as it is written. What writers of
    /// [parts](super::PreparedPart) left is taken over.
    ///
    /// # Errors
    /// [`PreparedError::Locked`] if another writer is at it or at a part of it,
    /// [`PreparedError::Spec`] for a spec outside the limits, [`PreparedError::Occupied`] and
    /// [`PreparedError::NotAFile`] if something else is in the way, [`PreparedError::Io`] for what
    /// the system refuses.
    pub fn open(path: impl AsRef<Path>, spec: &PreparedSpec) -> Result<Self, PreparedError> {
        spec.check()?;
        let places = Places::of(path.as_ref())?;
        check_replaceable(&places.target, &file::MARK, false)?;
        places.check()?;
        let mut journal = Journal::lock(&places.journal, &places.target)?;
        let mut parts = part::lock_all(&places.target)?;

        let (header, extents) = (file::encode_header(spec), Extents::of(spec));
        let resumed = resume(&places.partial, &mut journal, spec, &header, &extents)?;
        let (partial, nonce, blocks) = match resumed {
            Some(resumed) => resumed,
            None => {
                let (partial, nonce) = begin(&places.partial, &mut journal, &header, &extents)?;
                (partial, nonce, Blocks::new(spec.blocks))
            }
        };
        let writer = Self::new(places, partial, nonce, spec, 0..spec.blocks, blocks, journal);
        parts.iter_mut().try_for_each(|part| writer.take(part))?;
        Ok(writer)
    }

    /// A writer of the blocks `own` of an unfinished file.
    pub(super) fn new(
        places: Places,
        partial: File,
        nonce: u64,
        spec: &PreparedSpec,
        own: Range<u32>,
        blocks: Blocks,
        journal: Journal,
    ) -> Self {
        Self {
            target: places.target,
            partial_path: places.partial,
            partial,
            nonce,
            spec: spec.clone(),
            header: file::encode_header(spec),
            extents: Extents::of(spec),
            own,
            blocks: Mutex::new(blocks),
            journal: Mutex::new(journal),
            opened: Instant::now(),
            synced_ms: AtomicU64::new(0),
            unsynced_bytes: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
        }
    }

    /// Takes over what the writer of this [part](super::PreparedPart) has done, and removes its journal.
    ///
    /// # Errors
    /// [`PreparedError::Locked`] while that writer is open, [`PreparedError::BlockHash`] if a block is
    /// done already with another hash, [`PreparedError::Io`].
    pub fn take_part(&self, blocks: Range<u32>) -> Result<(), PreparedError> {
        let path = part::journal_path(&self.target, &blocks);
        check_replaceable(&path, &journal::MARK, true)?;
        self.take(&mut Journal::lock(&path, &self.target)?)
    }

    fn take(&self, part: &mut Journal) -> Result<(), PreparedError> {
        let found = part.resume(&checksum_of(&self.header), self.spec.blocks)?;
        // Another nonce is that of a run whose file is gone.
        if let Some((_, done)) = found.filter(|(nonce, _)| *nonce == self.nonce) {
            let mut blocks = hold(&self.blocks);
            for (block, hash) in done.done() {
                if let Recorded::Otherwise(known) = blocks.record(block, hash) {
                    let (expected, found) = (known.into(), hash.into());
                    let path = self.target.clone();
                    return Err(PreparedError::BlockHash { path, block, expected, found });
                }
            }
        }
        self.sync()?;
        part.remove();
        Ok(())
    }

    /// How many blocks are done.
    pub fn done(&self) -> u32 {
        hold(&self.blocks).done_count()
    }

    /// Whether `block` is done and need not be made; `false` if there is no such block.
    pub fn is_done(&self, block: u32) -> bool {
        hold(&self.blocks).is_done(block)
    }

    /// What `block` was finished with; `None` if it is not done.
    pub fn hash_of(&self, block: u32) -> Option<[u8; 32]> {
        let blocks = hold(&self.blocks);
        blocks.is_done(block).then(|| blocks.hashes()[block as usize])
    }

    /// Writes bytes of the payload, `payload_offset` from its start.
    ///
    /// # Errors
    /// [`PreparedError::PayloadRange`] if they do not all lie in the payload, and then none is
    /// written; [`PreparedError::Io`] if the disk refuses them, for want of space say.
    pub fn write_at(&self, payload_offset: u64, bytes: &[u8]) -> Result<(), PreparedError> {
        self.check_range(payload_offset, bytes.len())?;
        self.partial
            .write_all_at(bytes, self.extents.payload_start + payload_offset)
            .map_err(PreparedError::io("write", &self.partial_path))?;
        self.unsynced_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Reads bytes of the payload, `payload_offset` from its start: zeros where none were written.
    ///
    /// # Errors
    /// As [`write_at`](Self::write_at).
    pub fn read_at(&self, payload_offset: u64, bytes: &mut [u8]) -> Result<(), PreparedError> {
        self.check_range(payload_offset, bytes.len())?;
        self.partial
            .read_exact_at(bytes, self.extents.payload_start + payload_offset)
            .map_err(PreparedError::io("read", &self.partial_path))
    }

    fn check_range(&self, offset: u64, byte_count: usize) -> Result<(), PreparedError> {
        let payload_bytes = self.spec.payload_bytes;
        match offset.checked_add(byte_count as u64) {
            Some(end) if end <= payload_bytes => Ok(()),
            _ => {
                let path = self.target.clone();
                Err(PreparedError::PayloadRange { path, offset, byte_count, payload_bytes })
            }
        }
    }

    /// Says that all of `block`'s bytes have been written, and that they hash to `hash`, by a hash
    /// that the engine chooses (BLAKE3, so that the file's version is worth as much).
    ///
    /// About once a second, or every 256 MiB, one of the threads that call this waits until the
    /// disk has all blocks that are done, and then notes them in the journal. To finish a block
    /// again with the same hash does nothing.
    ///
    /// # Errors
    /// [`PreparedError::BlockIndex`] if there is no such block, [`PreparedError::PartRange`] if it is
    /// none of the part that is written, [`PreparedError::BlockHash`] if it was done with another hash,
    /// [`PreparedError::Io`] if the disk fails, and [`PreparedError::Stopped`] from then on.
    pub fn finish_block(&self, block: u32, hash: [u8; 32]) -> Result<(), PreparedError> {
        self.check_running()?;
        let path = || self.target.clone();
        if block < self.spec.blocks && !self.own.contains(&block) {
            let Range { start: own_first, end: own_end } = self.own;
            let (first, end) = (block, block + 1);
            return Err(PreparedError::PartRange { path: path(), first, end, own_first, own_end });
        }
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

    /// Puts the file in its place, and opens it. What writers of parts have done is taken over first.
    ///
    /// # Errors
    /// [`PreparedError::Undone`] if blocks are missing; those that are done stay for the next
    /// writer. [`PreparedError::Locked`] while the writer of a part is open. [`PreparedError::Io`] for
    /// what the system refuses; what stood at the path stands.
    pub fn finish(self) -> Result<Prepared, PreparedError> {
        let mut parts = part::lock_all(&self.target)?;
        parts.iter_mut().try_for_each(|part| self.take(part))?;
        drop(parts);
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
        // Whoever opens a part locks its journal first and then looks whether the file is unfinished:
        // either that is seen here or this there, and nothing is written to a file that is served.
        part::lock_all(&self.target)?.iter().for_each(Journal::remove);
        fs::rename(&self.partial_path, &self.target)
            .map_err(PreparedError::io("rename the finished file to", &self.target))?;
        // The journal goes last: without it, a finished file that has not its name yet is lost.
        let parent = parent_of(&self.target);
        sync_folder(parent).map_err(PreparedError::io("synchronise", parent))?;
        hold(&self.journal).remove();
        Prepared::open(&self.target, &self.spec)
    }

    /// Waits until the disk has every block of the part, those too that were written again.
    pub(super) fn finish_part(&self) -> Result<(), PreparedError> {
        self.sync()?;
        let synced = self.partial.sync_data();
        synced.map_err(PreparedError::io("synchronise", &self.partial_path))?;
        let (expected, found) = (self.own.len() as u32, self.done_of_own());
        match expected == found {
            true => Ok(()),
            false => Err(PreparedError::Undone { path: self.target.clone(), expected, found }),
        }
    }

    pub(super) fn done_of_own(&self) -> u32 {
        let blocks = hold(&self.blocks);
        self.own.clone().filter(|&block| blocks.is_done(block)).count() as u32
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

/// Where a file is to stand, and what is beside it meanwhile.
pub(super) struct Places {
    /// The file; never a symbolic link.
    pub(super) target: PathBuf,
    pub(super) partial: PathBuf,
    pub(super) journal: PathBuf,
}

impl Places {
    pub(super) fn of(path: &Path) -> Result<Self, PreparedError> {
        let target = resolve(path).map_err(PreparedError::io("follow the link", path))?;
        if target.file_name().is_none() {
            return Err(PreparedError::Unnamed { path: path.to_owned() });
        }
        let (partial, journal) = (beside(&target, ".partial"), beside(&target, ".journal"));
        Ok(Self { target, partial, journal })
    }

    /// Refuses to write over other files. After a power failure, bytes that were on their way may
    /// read as zeros.
    pub(super) fn check(&self) -> Result<(), PreparedError> {
        check_replaceable(&self.partial, &file::MARK, true)?;
        check_replaceable(&self.journal, &journal::MARK, true)
    }
}

/// The path of `target` with `ending` after its name.
pub(super) fn beside(target: &Path, ending: &str) -> PathBuf {
    let mut name = target.file_name().map(OsString::from).unwrap_or_default();
    name.push(ending);
    target.with_file_name(name)
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
pub(super) fn check_replaceable(
    path: &Path,
    mark: &[u8; 16],
    zeros: bool,
) -> Result<(), PreparedError> {
    let mut options = OpenOptions::new();
    system::nonblocking(options.read(true));
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

/// The unfinished file, its nonce and what is done of it, if journal and file are of this spec.
fn resume(
    path: &Path,
    journal: &mut Journal,
    spec: &PreparedSpec,
    header: &[u8],
    extents: &Extents,
) -> Result<Option<(File, u64, Blocks)>, PreparedError> {
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
    Ok(is_ours.then_some((file, nonce, blocks)))
}

/// Begins journal and file anew; with the file comes its nonce.
fn begin(
    path: &Path,
    journal: &mut Journal,
    header: &[u8],
    extents: &Extents,
) -> Result<(File, u64), PreparedError> {
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
    Ok((file, nonce))
}

/// The checksum at a header's end.
pub(super) fn checksum_of(header: &[u8]) -> Hash {
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
