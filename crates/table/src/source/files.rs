//! The files of a checkpoint, opened as they are needed: a large one has thousands.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::SourceError;
use super::read_at::{ReadAt, SizedFile};
use crate::error::Error;
use crate::system;

/// How many stay open.
const OPEN_COUNT_MAX: usize = 16;

/// A file's place in [`Files`].
pub(crate) type FileId = usize;

/// The files of a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct Files {
    paths: Vec<PathBuf>,
    open: Mutex<Vec<(FileId, Arc<SizedFile>)>>,
}

impl Files {
    pub(crate) fn push(&mut self, path: PathBuf) -> FileId {
        self.paths.push(path);
        self.paths.len() - 1
    }

    pub(crate) fn path(&self, id: FileId) -> &Path {
        &self.paths[id]
    }

    /// The file, opened unless it is open.
    pub(crate) fn open(&self, id: FileId) -> Result<Arc<SizedFile>, Error> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, file)) = open.iter().find(|(other, _)| *other == id) {
            return Ok(file.clone());
        }
        let file = Arc::new(open_file(self.path(id))?);
        if open.len() == OPEN_COUNT_MAX {
            open.remove(0);
        }
        open.push((id, file.clone()));
        Ok(file)
    }
}

/// Opens a plain file.
pub(super) fn open_file(path: &Path) -> Result<SizedFile, Error> {
    let file = system::open(path).map_err(Error::io("open", path))?;
    let file = SizedFile::new(file).map_err(Error::io("read", path))?;
    file.ok_or_else(|| Error::Source { path: path.to_owned(), source: SourceError::NotAFile })
}

/// A range of a file, read as if it were one.
pub(crate) struct Window<'a, R> {
    file: &'a R,
    range: Range<u64>,
}

impl<'a, R: ReadAt> Window<'a, R> {
    /// `byte_count` bytes from `offset` on.
    ///
    /// # Errors
    /// [`SourceError::Truncated`] where the file ends before.
    pub(crate) fn new(file: &'a R, offset: u64, byte_count: u64) -> Result<Self, SourceError> {
        let end = offset.saturating_add(byte_count);
        match end <= file.size() {
            true => Ok(Self { file, range: offset..end }),
            false => Err(SourceError::Truncated { expected: end, found: file.size() }),
        }
    }
}

impl<R: ReadAt> ReadAt for Window<'_, R> {
    fn size(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        if offset.saturating_add(out.len() as u64) > self.size() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.read_exact_at(out, self.range.start + offset)
    }
}

impl ReadAt for Arc<SizedFile> {
    fn size(&self) -> u64 {
        self.as_ref().size()
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_ref().read_exact_at(out, offset)
    }
}
