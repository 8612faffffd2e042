//! A finished prepared file, mapped or in memory.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use memmap2::{Mmap, MmapMut};

use super::file::{Extents, HASH_BYTES, PreparedBytes, is_unfinished};
use super::stamp::{Change, Stamp};
use super::{PreparedError, PreparedFormatError, PreparedSpec, SLACK_BYTES};
use crate::mapping::Mapping;
use crate::system::{self, FileExt};
use crate::version::Version;

/// A finished prepared file, mapped read-only.
#[derive(Debug)]
pub struct Prepared {
    path: PathBuf,
    file: File,
    map: Mapping,
    spec: PreparedSpec,
    extents: Extents,
    version: Version,
    /// What the file was when its bytes were last checked.
    stamp: Mutex<Stamp>,
    /// Whether it was ever seen to be written to, or to lack bytes.
    is_changed: AtomicBool,
}

/// Whether a file still stands as it was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[allow(clippy::exhaustive_enums, reason = "callers handle both")]
pub enum Standing {
    /// Its bytes were the checked ones all the time.
    Kept,
    /// They are the checked ones now, but it was renamed, linked or replaced, or somebody wrote to
    /// it, set its time back and then undid it: what was read meanwhile is not to be used.
    Restored,
}

impl Prepared {
    /// Opens the file at `path` if it is finished and what `expected` says.
    ///
    /// Checks all but the payload's bytes, which are not read: which of them are which block's, the
    /// engine knows, and it checks them by [`block_hashes`](Self::block_hashes). An opened file
    /// stays whole when a writer puts another in its place. Do not write to the file in place:
    /// [`standing`](Self::standing) then refuses it from then on.
    ///
    /// # Errors
    /// [`PreparedError::Missing`] if there is none, [`PreparedError::Stale`] if it is made from
    /// another version of the table, [`PreparedError::File`] if it is damaged, cut short or not
    /// finished; [`PreparedError::Kind`], [`PreparedError::Format`], [`PreparedError::Meta`],
    /// [`PreparedError::PayloadBytes`] or [`PreparedError::Blocks`] if it is for something else.
    pub fn open(path: impl AsRef<Path>, expected: &PreparedSpec) -> Result<Self, PreparedError> {
        expected.check()?;
        let path = path.as_ref().to_owned();
        let mut options = OpenOptions::new();
        system::nonblocking(options.read(true));
        let file = match options.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(PreparedError::Missing { path });
            }
            Err(error) => return Err(PreparedError::io("open", path)(error)),
        };
        let metadata = file.metadata().map_err(PreparedError::io("read the size of", &path))?;
        if !metadata.is_file() {
            return Err(PreparedError::NotAFile { path });
        }
        // Before anything is read.
        let stamp = Stamp::settled(&file).map_err(PreparedError::io("read the times of", &path))?;
        let of_file = |source| PreparedError::File { path: path.clone(), source };
        check_finished(&file, metadata.len())
            .map_err(PreparedError::io("read", &path))?
            .map_err(of_file)?;
        let map = Mapping::new(&file).map_err(PreparedError::io("map", &path))?;
        let parsed = PreparedBytes::parse(&map).map_err(of_file)?;
        let (spec, version) = (parsed.spec().clone(), parsed.version());
        check_expected(&path, expected, &spec)?;
        let extents = Extents::of(&spec);
        let (stamp, is_changed) = (Mutex::new(stamp), AtomicBool::new(false));
        let prepared = Self { path, file, map, spec, extents, version, stamp, is_changed };
        // What was parsed may have been zeros in the place of bytes that went meanwhile.
        let now = Stamp::of(&prepared.file);
        prepared.change(&now.map_err(PreparedError::io("read the times of", &prepared.path))?)?;
        Ok(prepared)
    }

    /// Whether what was read of the file until now is what was checked when it was opened.
    ///
    /// Ask after reading and before using what was read: a write shows before its bytes do. Where
    /// it cannot be told without reading, `check` is called, which reads the payload and compares
    /// it with [`block_hashes`](Self::block_hashes).
    ///
    /// # Errors
    /// [`PreparedError::Changed`] once the file was seen written to or cut short, and for ever
    /// after; what `check` fails with; [`PreparedError::Io`] where the system does not say.
    pub fn standing(
        &self,
        check: impl FnOnce() -> Result<(), PreparedError>,
    ) -> Result<Standing, PreparedError> {
        let times = || PreparedError::io("read the times of", &self.path);
        if self.change(&Stamp::of(&self.file).map_err(times())?)? == Change::Nothing {
            return Ok(Standing::Kept);
        }
        // Taken before the check, so that whatever is written after it began will show.
        let settled = Stamp::settled(&self.file).map_err(times())?;
        check()?;
        self.change(&settled)?;
        *self.stamp.lock().unwrap_or_else(PoisonError::into_inner) = settled;
        self.change(&Stamp::of(&self.file).map_err(times())?)?;
        Ok(Standing::Restored)
    }

    /// What happened to the file until `now`; an error if its bytes were changed, now or ever.
    fn change(&self, now: &Stamp) -> Result<Change, PreparedError> {
        let change = self.stamp.lock().unwrap_or_else(PoisonError::into_inner).until(now);
        if change == Change::Bytes || self.map.is_lost() {
            self.is_changed.store(true, Ordering::SeqCst);
        }
        match self.is_changed.load(Ordering::SeqCst) {
            true => Err(PreparedError::Changed { path: self.path.clone() }),
            false => Ok(change),
        }
    }

    /// Where the file was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file is.
    pub fn spec(&self) -> &PreparedSpec {
        &self.spec
    }

    /// The file's version: BLAKE3 of its spec and of the hashes of its blocks.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The payload; its start is aligned to 4096 bytes.
    pub fn payload(&self) -> &[u8] {
        &self.map[self.extents.payload_start as usize..self.extents.slack_start as usize]
    }

    /// The payload and the [`SLACK_BYTES`] zeros after it, for loads that reach past its end.
    pub fn padded_payload(&self) -> &[u8] {
        &self.map[self.extents.payload_start as usize..self.extents.hashes_start as usize]
    }

    /// The hash of every block, in order, as the engine gave it.
    pub fn block_hashes(&self) -> &[[u8; 32]] {
        let bytes = self.extents.hashes_start as usize..self.extents.version_start as usize;
        self.map[bytes].as_chunks().0
    }

    /// Tells the kernel that the payload is about to be read from front to back.
    pub fn advise_sequential(&self) {
        self.map.advise_sequential();
    }

    /// Tells the kernel to read the file into memory ahead of its use.
    pub fn advise_will_need(&self) {
        self.map.advise_will_need();
    }

    /// Copies the payload into memory of the process's own, in huge pages where the kernel has
    /// them.
    ///
    /// A scan of it is faster than of the mapped file, which comes in pages of 4 KiB; but it takes
    /// the payload's bytes of memory, which the kernel can only swap, not drop and read again.
    ///
    /// # Errors
    /// [`PreparedError::Memory`] if there is not so much, [`PreparedError::Io`] if the file cannot
    /// be read.
    pub fn load(self) -> Result<Loaded, PreparedError> {
        let bytes = self.spec.payload_bytes;
        let mut memory = allocate(bytes)?;
        // Read, not copied from the map, which would fault in every small page of the file.
        read_in_parallel(&self.file, self.extents.payload_start, &mut memory[..bytes as usize])
            .map_err(PreparedError::io("read", &self.path))?;
        let memory =
            memory.make_read_only().map_err(|source| PreparedError::Memory { bytes, source })?;
        Ok(Loaded { memory, spec: self.spec, version: self.version })
    }
}

/// A prepared file's payload in memory.
#[derive(Debug)]
pub struct Loaded {
    memory: Mmap,
    spec: PreparedSpec,
    version: Version,
}

impl Loaded {
    /// What the file is.
    pub fn spec(&self) -> &PreparedSpec {
        &self.spec
    }

    /// The file's version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The payload; its start is aligned to 4096 bytes.
    pub fn payload(&self) -> &[u8] {
        &self.memory[..self.memory.len() - SLACK_BYTES]
    }

    /// The payload and the [`SLACK_BYTES`] zeros after it, for loads that reach past its end.
    pub fn padded_payload(&self) -> &[u8] {
        &self.memory
    }
}

/// Looks at the end of a file before it is mapped: one that a writer still has is not to be.
fn check_finished(file: &File, file_bytes: u64) -> io::Result<Result<(), PreparedFormatError>> {
    let mut end = [0; HASH_BYTES];
    // A file that is even shorter fails for that.
    if let Some(at) = file_bytes.checked_sub(HASH_BYTES as u64) {
        file.read_exact_at(&mut end, at)?;
    }
    Ok(if is_unfinished(&end) { Err(PreparedFormatError::Unfinished) } else { Ok(()) })
}

/// Zeros for a payload and what is readable after it.
fn allocate(bytes: u64) -> Result<MmapMut, PreparedError> {
    let memory = MmapMut::map_anon(bytes as usize + SLACK_BYTES)
        .map_err(|source| PreparedError::Memory { bytes, source })?;
    // Only a hint: a kernel without huge pages serves small ones.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    Ok(memory)
}

fn check_expected(
    path: &Path,
    expected: &PreparedSpec,
    found: &PreparedSpec,
) -> Result<(), PreparedError> {
    let path = path.to_owned();
    if expected.kind != found.kind {
        let (expected, found) = (expected.kind.clone(), found.kind.clone());
        return Err(PreparedError::Kind { path, expected, found });
    }
    if expected.format != found.format {
        let (expected, found) = (expected.format, found.format);
        return Err(PreparedError::Format { path, expected, found });
    }
    if expected.table_version != found.table_version {
        let (expected, found) = (expected.table_version, found.table_version);
        return Err(PreparedError::Stale { path, expected, found });
    }
    if expected.meta != found.meta {
        let same = expected.meta.iter().zip(&found.meta).take_while(|(left, right)| left == right);
        return Err(PreparedError::Meta {
            path,
            expected_bytes: expected.meta.len(),
            found_bytes: found.meta.len(),
            differs_at: same.count(),
        });
    }
    if expected.payload_bytes != found.payload_bytes {
        let (expected, found) = (expected.payload_bytes, found.payload_bytes);
        return Err(PreparedError::PayloadBytes { path, expected, found });
    }
    if expected.blocks != found.blocks {
        let (expected, found) = (expected.blocks, found.blocks);
        return Err(PreparedError::Blocks { path, expected, found });
    }
    Ok(())
}

/// Fills `bytes` from `offset` on, a stretch a thread: one core alone is slower than memory.
fn read_in_parallel(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    const THREADS_MAX: usize = 8;
    // Whole huge pages, so that no two threads fault the same one in; small files take one thread.
    const STRETCH_BYTES_MIN: usize = 32 << 20;
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
    let stretch_bytes = bytes.len().div_ceil(threads).next_multiple_of(STRETCH_BYTES_MIN);
    thread::scope(|scope| {
        let mut readers = Vec::new();
        for (index, stretch) in bytes.chunks_mut(stretch_bytes).enumerate() {
            let at = offset + (index * stretch_bytes) as u64;
            let read = move || file.read_exact_at(stretch, at);
            readers.push(thread::Builder::new().spawn_scoped(scope, read)?);
        }
        readers
            .into_iter()
            .try_for_each(|reader| reader.join().unwrap_or_else(|it| resume_unwind(it)))
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::PAYLOAD_BYTES_MAX;
    use super::*;

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        assert!(matches!(
            allocate(PAYLOAD_BYTES_MAX),
            Err(PreparedError::Memory { bytes: PAYLOAD_BYTES_MAX, .. })
        ));
    }

    #[test]
    fn stretches_are_read_to_their_places() {
        // Some thirds of a stretch, so that the last is short, on as many threads as there are.
        let mut file = tempfile::tempfile().unwrap();
        let expected: Vec<u32> = (0..23 << 20).collect();
        let expected: Vec<u8> = expected.into_iter().flat_map(u32::to_le_bytes).collect();
        file.write_all(b"head").unwrap();
        file.write_all(&expected).unwrap();
        let mut found = vec![0; expected.len()];
        read_in_parallel(&file, 4, &mut found).unwrap();
        assert!(found == expected);
        let error = read_in_parallel(&file, 5, &mut found).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
