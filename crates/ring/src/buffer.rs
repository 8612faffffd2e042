//! Numbers that start on a cache line.

use std::ops::{Deref, DerefMut};

use zeroize::Zeroize;

/// A fixed number of `u64`, zero at first, aligned to 64 bytes: a vector load never crosses a line.
pub struct Buffer {
    /// The numbers, with room before them to reach the next line where they need it.
    values: Vec<u64>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// `length` zeros.
    pub fn zeroed(length: usize) -> Self {
        // Most allocators give so much on a line anyway. Room to move would only push a power of two
        // into the next size class, which is a quarter more of memory.
        let values = vec![0u64; length];
        if offset(&values) == 0 {
            return Self { values, start: 0, length };
        }
        let values = vec![0u64; length + LINE - 1];
        let start = offset(&values);
        Self { values, start, length }
    }

    /// Bytes of memory that it has.
    pub fn memory_bytes(&self) -> usize {
        self.values.capacity() * size_of::<u64>()
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Self {
        let mut copy = Self::zeroed(self.length);
        copy.copy_from_slice(self);
        copy
    }
}

impl Deref for Buffer {
    type Target = [u64];

    #[inline(always)]
    fn deref(&self) -> &[u64] {
        &self.values[self.start..self.start + self.length]
    }
}

impl DerefMut for Buffer {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u64] {
        &mut self.values[self.start..self.start + self.length]
    }
}

impl Zeroize for Buffer {
    fn zeroize(&mut self) {
        self.values.zeroize();
        // The vector is empty now; its length was what `start` and `length` lean on.
        (self.start, self.length) = (0, 0);
    }
}

/// Numbers before the first one on a line; a platform that cannot tell gets 0: correct, slow.
fn offset(values: &[u64]) -> usize {
    let offset = values.as_ptr().align_offset(LINE * size_of::<u64>());
    if offset < LINE { offset } else { 0 }
}

const LINE: usize = 8;
