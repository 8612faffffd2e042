//! Numbers that start on a cache line.

use std::ops::{Deref, DerefMut};

use zeroize::Zeroize;

/// A fixed number of `u64`, zero at first, aligned to 64 bytes: a vector load never crosses a line.
pub struct Buffer {
    /// The numbers, with room before them to reach the next line.
    values: Vec<u64>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// `length` zeros.
    pub fn zeroed(length: usize) -> Self {
        let values = vec![0u64; length + LINE - 1];
        // An offset that no pointer needs more of; a platform that cannot tell gets 0: correct, slow.
        let start = values.as_ptr().align_offset(LINE * size_of::<u64>()).min(LINE - 1);
        Self { values, start, length }
    }

    /// Leaves the first `length` numbers, where there are more; the memory stays.
    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }

    /// Bytes of memory that it takes, more than its numbers have: allocators give out size classes,
    /// four to a doubling, and need about an eighth around them (as mimalloc does, measured).
    pub fn memory_bytes(&self) -> usize {
        let bytes = (self.values.capacity() * size_of::<u64>()).max(64);
        let step = 1 << (bytes.ilog2() - 2);
        bytes.next_multiple_of(step) / 8 * 9
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

const LINE: usize = 8;
