//! Rows of bytes that begin at the start of a cache line.

use std::ops::{Deref, DerefMut};

use zeroize::Zeroizing;

use crate::memory::{MemoryError, zeros};

/// What a cache line has; no vector of any platform is longer.
const LINE_BYTES: usize = 64;

/// Zeros at first, and wiped when dropped. Rows of whole vectors then never cross a line, which would
/// make two of each load and store.
pub(super) struct Rows {
    bytes: Zeroizing<Vec<u8>>,
    start: usize,
    len: usize,
}

impl Rows {
    pub(super) fn new(len: usize) -> Result<Self, MemoryError> {
        let bytes = Zeroizing::new(zeros::<u8>(len.saturating_add(LINE_BYTES - 1))?);
        let start = bytes.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES - 1);
        Ok(Self { bytes, start, len })
    }
}

impl Deref for Rows {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }
}

impl DerefMut for Rows {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }
}
