//! Bytes at an offset: a file, or a slice in tests and fuzzers.
//!
//! Sources are read with positioned reads and not mapped: another program may well rewrite one
//! while we build from it, which is then an error and not a signal.

use std::fs::File;
use std::io;

use super::SourceError;
use crate::system::FileExt;

/// Bytes that can be read at any offset.
pub(crate) trait ReadAt {
    /// How many bytes there are.
    fn size(&self) -> u64;

    /// Fills `out` from `offset`.
    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()>;

    /// Fills `out` from `offset`; the error says where.
    fn read_into(&self, out: &mut [u8], offset: u64) -> Result<(), SourceError> {
        self.read_exact_at(out, offset).map_err(|source| SourceError::Read {
            offset,
            byte_count: out.len(),
            source,
        })
    }

    /// `byte_count` bytes from `offset`; allocates only once they are known to be there.
    fn read_vec(&self, offset: u64, byte_count: u64) -> Result<Vec<u8>, SourceError> {
        let expected = offset.saturating_add(byte_count);
        if expected > self.size() {
            return Err(SourceError::Truncated { expected, found: self.size() });
        }
        let mut bytes = vec![0; byte_count as usize];
        self.read_into(&mut bytes, offset)?;
        Ok(bytes)
    }
}

/// A plain file, and how large it was when it was opened.
#[derive(Debug)]
pub(crate) struct SizedFile {
    file: File,
    size: u64,
}

impl SizedFile {
    /// `None` for what is not a plain file.
    pub(crate) fn new(file: File) -> io::Result<Option<Self>> {
        let metadata = file.metadata()?;
        Ok(metadata.is_file().then(|| Self { size: metadata.len(), file }))
    }
}

impl ReadAt for SizedFile {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(out, offset)
    }
}

impl ReadAt for &[u8] {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let end = start.checked_add(out.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(self.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}
