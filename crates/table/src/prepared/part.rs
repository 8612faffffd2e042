//! Writing some blocks of a prepared file, beside other processes that write others.
//!
//! All write into the one unfinished file, each block at its place, so that nothing is copied at the
//! end. The writer of a part locks a journal of its own, `PATH.FIRST-END.part`, which has the file's
//! nonce as the file's own journal has. The writer of the whole file holds the lock on that one
//! meanwhile. It takes over what parts have done: as they end, as it finishes, and what killed ones
//! left, when it is opened the next time, whatever the parts are then.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};

use super::blocks::Blocks;
use super::file::{self, Extents, HASH_BYTES};
use super::journal::{self, Journal};
use super::writer::{Places, beside, check_replaceable, checksum_of};
use super::{PreparedError, PreparedSpec, PreparedWriter};
use crate::staging::parent_of;
use crate::system::FileExt;

/// Some blocks of a prepared file that are being written, perhaps by many threads, while a
/// [`PreparedWriter`] has the file open in this process or another.
///
/// Killed at any moment, what is done stays, for the next writer of the part or of the whole file.
///
/// ```
/// # use hushtable_table::Version;
/// # use hushtable_table::prepared::{Prepared, PreparedPart, PreparedSpec, PreparedWriter};
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("films.prepared");
/// # let spec = PreparedSpec {
/// #     kind: "example/doubled".to_owned(),
/// #     format: 1,
/// #     table_version: Version::from([7; 32]),
/// #     meta: vec![],
/// #     payload_bytes: 8,
/// #     blocks: 2,
/// # };
/// let whole = PreparedWriter::open(&path, &spec)?;
/// for block in 0..2 {
///     let part = PreparedPart::open(&path, &spec, block..block + 1)?; // in another process
///     part.write_at(4 * u64::from(block), &[block as u8; 4])?;
///     part.finish_block(block, [block as u8; 32])?;
///     part.finish()?;
///     whole.take_part(block..block + 1)?;
/// }
/// assert_eq!(whole.finish()?.payload(), [0, 0, 0, 0, 1, 1, 1, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PreparedPart(PreparedWriter);

impl PreparedPart {
    /// Begins to write `blocks` of the file that is to stand at `path`, or goes on with them.
    ///
    /// Blocks that the part's own journal or the file's says are done are so here.
    ///
    /// # Errors
    /// [`PreparedError::NotBegun`] if no [`PreparedWriter`] has begun a file of this very spec there,
    /// [`PreparedError::Locked`] if another writer is at one of the blocks, [`PreparedError::PartRange`]
    /// for no blocks or blocks that are not there; [`PreparedError::Spec`],
    /// [`PreparedError::Occupied`], [`PreparedError::Io`].
    pub fn open(
        path: impl AsRef<Path>,
        spec: &PreparedSpec,
        blocks: Range<u32>,
    ) -> Result<Self, PreparedError> {
        spec.check()?;
        let places = Places::of(path.as_ref())?;
        if blocks.is_empty() || blocks.end > spec.blocks {
            let (Range { start: first, end }, path) = (blocks, places.target);
            let (own_first, own_end) = (0, spec.blocks);
            return Err(PreparedError::PartRange { path, first, end, own_first, own_end });
        }
        places.check()?;
        let header = file::encode_header(spec);
        let extents = Extents::of(spec);
        // Before a journal is made for a part of nothing.
        begun(&places, &header, &extents)?;
        let own_path = journal_path(&places.target, &blocks);
        check_replaceable(&own_path, &journal::MARK, true)?;
        let mut journal = Journal::lock(&own_path, &places.target)?;
        for other in journals(&places.target)? {
            let overlap = other.start.max(blocks.start)..other.end.min(blocks.end);
            if other != blocks && !overlap.is_empty() {
                // Dropped at once: whose it was is dead, and the whole file's writer takes it.
                Journal::lock(&journal_path(&places.target, &other), &places.target)?;
            }
        }
        // Only now: a file that is finished after this has seen the lock.
        let (partial, nonce) =
            begun(&places, &header, &extents).inspect_err(|_| journal.remove())?;
        let checksum = checksum_of(&header);
        let is_ours = |found: &(u64, Blocks)| found.0 == nonce;
        let mut done = match journal.resume(&checksum, spec.blocks)?.filter(is_ours) {
            Some((_, done)) => done,
            None => {
                journal.clear()?;
                journal.begin(&checksum, nonce)?;
                Blocks::new(spec.blocks)
            }
        };
        let taken = Journal::peek(&places.journal, &checksum, spec.blocks)?.filter(is_ours);
        if let Some((_, taken)) = taken {
            for (block, hash) in taken.done().filter(|(block, _)| blocks.contains(block)) {
                done.restore(block, hash);
            }
        }
        Ok(Self(PreparedWriter::new(places, partial, nonce, spec, blocks, done, journal)))
    }

    /// How many of the part's blocks are done.
    pub fn done(&self) -> u32 {
        self.0.done_of_own()
    }

    /// Waits until all of the part would outlive the machine.
    ///
    /// # Errors
    /// [`PreparedError::Undone`] if blocks are missing; else as [`PreparedWriter::sync`].
    pub fn finish(self) -> Result<(), PreparedError> {
        self.0.finish_part()
    }
}

impl Deref for PreparedPart {
    type Target = PreparedWriter;

    fn deref(&self) -> &PreparedWriter {
        &self.0
    }
}

/// The unfinished file that a writer has begun, and its nonce.
fn begun(places: &Places, header: &[u8], extents: &Extents) -> Result<(File, u64), PreparedError> {
    let not_begun = || PreparedError::NotBegun { path: places.target.clone() };
    let file = match OpenOptions::new().read(true).write(true).open(&places.partial) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_begun()),
        Err(error) => return Err(PreparedError::io("open", &places.partial)(error)),
    };
    let read = || {
        let (mut start, mut end) = (vec![0; header.len()], [0; HASH_BYTES]);
        if file.metadata()?.len() != extents.file_bytes {
            return Ok(None);
        }
        file.read_exact_at(&mut start, 0)?;
        file.read_exact_at(&mut end, extents.version_start)?;
        let nonce = file::nonce_of(&end);
        Ok(nonce.filter(|_| start == header))
    };
    let nonce = read().map_err(PreparedError::io("read", &places.partial))?;
    Ok((file, nonce.ok_or_else(not_begun)?))
}

/// The journal of a part.
pub(super) fn journal_path(target: &Path, blocks: &Range<u32>) -> PathBuf {
    beside(target, &format!(".{}-{}.part", blocks.start, blocks.end))
}

/// The parts that have journals.
fn journals(target: &Path) -> Result<Vec<Range<u32>>, PreparedError> {
    let parent = parent_of(target);
    let name = target.file_name().unwrap_or_default().as_encoded_bytes();
    let part_of = |found: &[u8]| {
        let words = found.strip_prefix(name)?.strip_prefix(b".")?.strip_suffix(b".part")?;
        let (first, end) = str::from_utf8(words).ok()?.split_once('-')?;
        let blocks = first.parse().ok()?..end.parse().ok()?;
        // `+1-02` is nobody's.
        let journal = journal_path(target, &blocks);
        let is_ours = journal.file_name().map(OsStr::as_encoded_bytes) == Some(found);
        is_ours.then_some(blocks)
    };
    let list = || {
        let entries =
            fs::read_dir(parent)?.map(|entry| Ok(part_of(entry?.file_name().as_encoded_bytes())));
        entries.filter_map(Result::transpose).collect::<io::Result<Vec<_>>>()
    };
    let mut found = list().map_err(PreparedError::io("list", parent))?;
    found.sort_by_key(|blocks| (blocks.start, blocks.end));
    Ok(found)
}

/// Locks the journals of all parts; refuses if a writer is at one of them.
pub(super) fn lock_all(target: &Path) -> Result<Vec<Journal>, PreparedError> {
    let lock = |blocks: Range<u32>| {
        let path = journal_path(target, &blocks);
        check_replaceable(&path, &journal::MARK, true)?;
        Journal::lock(&path, target)
    };
    journals(target)?.into_iter().map(lock).collect()
}
