//! The buffer ORAM: the rows of one round with the sums of their gradients, in memory (FEDORA 4.3).
//!
//! A block is the row, the sum of its gradients, the sum of their weights, and how many they were. Rows are
//! addressed by their rank in the round's union; capacity is declared, so it cannot overflow.

use hushtable_prg::valgrind;
use zeroize::Zeroizing;

use crate::memory::{DUMMY, Leaves, MemoryError, MemoryOram, zeros};
use crate::oblivious::Mask;
use crate::position::PositionMap;
use crate::seal::Key;

/// The rows of a round. See the [module](self).
pub struct BufferOram {
    row_bytes: usize,
    dim: usize,
    memory: MemoryOram,
    positions: PositionMap,
    random: Leaves,
    /// Leaves of the rows to be inserted.
    leaves: Zeroizing<Vec<u32>>,
    inserted: u32,
    block: Zeroizing<Vec<u8>>,
}

/// One row as [`BufferOram::drain`] gives it.
pub struct Drained<'a> {
    /// Its rank.
    pub rank: u32,
    /// The row, as it was inserted.
    pub row: &'a [u8],
    /// The sum of its gradients.
    pub gradient: &'a [f32],
    /// The sum of their weights.
    pub weight: f32,
    /// How many gradients were added.
    pub contributions: u32,
}

impl BufferOram {
    /// A buffer for `capacity` rows of `row_bytes` bytes with gradients of `dim` numbers.
    ///
    /// # Errors
    /// Sizes out of bounds, too little memory, or no entropy.
    pub fn new(
        capacity: usize,
        row_bytes: usize,
        dim: usize,
        key: &Key,
    ) -> Result<Self, MemoryError> {
        let payload_bytes = dim.saturating_mul(4).saturating_add(8).saturating_add(row_bytes);
        let memory =
            MemoryOram::new(capacity, payload_bytes, &key.derive("hushtable oram buffer"))?;
        let mut random = Leaves::new()?;
        let mut leaves = Zeroizing::new(zeros::<u32>(capacity)?);
        for leaf in leaves.iter_mut() {
            *leaf = random.draw(memory.leaves());
        }
        let positions = PositionMap::build(&leaves, memory.leaves(), key)?;
        let block = Zeroizing::new(zeros(payload_bytes)?);
        Ok(Self { row_bytes, dim, memory, positions, random, leaves, inserted: 0, block })
    }

    /// Rows that were inserted.
    pub fn rows(&self) -> usize {
        self.inserted as usize
    }

    /// Bytes of memory that the buffer takes.
    pub fn memory_bytes(&self) -> usize {
        self.memory.memory_bytes() + self.positions.memory_bytes()
    }

    /// Puts in the row of `rank`, which is public: ranks come in order from 0.
    ///
    /// # Errors
    /// Another rank than the next, a row of the wrong length, or as [`MemoryOram::insert`].
    pub fn insert(&mut self, rank: u32, row: &[u8]) -> Result<(), MemoryError> {
        let capacity = self.leaves.len();
        let Some(leaf) = self.leaves.get(rank as usize).filter(|_| rank == self.inserted) else {
            return Err(MemoryError::Rank { rank, expected: self.inserted, capacity });
        };
        check("a row, in bytes,", row.len(), self.row_bytes)?;
        self.block.fill(0);
        self.block[..self.row_bytes].copy_from_slice(row);
        self.memory.insert(rank, *leaf, &self.block)?;
        self.inserted += 1;
        Ok(())
    }

    /// The row of `rank`, which is secret, into `out`. A rank that is not there ([`DUMMY`] above all)
    /// gives zeros, and looks like any other.
    ///
    /// # Errors
    /// `out` of the wrong length, or as [`MemoryOram::access`].
    pub fn row(&mut self, rank: u32, out: &mut [u8]) -> Result<(), MemoryError> {
        check("a row, in bytes,", out.len(), self.row_bytes)?;
        let row_bytes = self.row_bytes;
        self.access(rank, |block| out.copy_from_slice(&block[..row_bytes]))
    }

    /// Adds a gradient and its weight to the sums of `rank`, which is secret. A rank that is not there
    /// ([`DUMMY`] above all) changes nothing, and looks like any other.
    ///
    /// # Errors
    /// A gradient of the wrong length, or as [`MemoryOram::access`].
    pub fn add(&mut self, rank: u32, gradient: &[f32], weight: f32) -> Result<(), MemoryError> {
        check("a gradient, in numbers,", gradient.len(), self.dim)?;
        let row_bytes = self.row_bytes;
        self.access(rank, |block| {
            let words = block[row_bytes..].as_chunks_mut::<4>().0;
            let (sums, count) = words.split_at_mut(gradient.len() + 1);
            for (sum, term) in sums.iter_mut().zip(gradient.iter().chain([&weight])) {
                *sum = (f32::from_le_bytes(*sum) + term).to_le_bytes();
            }
            for count in count {
                *count = u32::from_le_bytes(*count).wrapping_add(1).to_le_bytes();
            }
        })
    }

    fn access<R>(
        &mut self,
        rank: u32,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, MemoryError> {
        // A rank that is declared but not inserted must not come into being here.
        let there = Mask::less(rank.into(), self.inserted.into());
        let rank = there.select_u32(rank, DUMMY);
        let fresh = self.random.draw(self.memory.leaves());
        let mut old = self.positions.exchange(rank, fresh)?;
        // Uniform, and shown this once: the row has another leaf from now on.
        valgrind::declassify(&mut old);
        self.memory.access(rank, old, fresh, change)
    }

    /// Takes the rows out, in the order of their ranks, and ends the buffer. All buckets are opened and
    /// their blocks compacted and sorted, which is cheaper than an access for each.
    ///
    /// # Errors
    /// Forged memory, or too little memory; `each` is not called then.
    pub fn drain(self, mut each: impl FnMut(Drained<'_>)) -> Result<(), MemoryError> {
        let (row_bytes, stride) = (self.row_bytes, self.block.len());
        let inserted = self.inserted;
        let mut sums = Zeroizing::new(zeros::<f32>(self.dim + 1)?);
        let payload = self.memory.into_blocks()?.payload;
        for (rank, block) in (0..inserted).zip(payload.chunks_exact(stride)) {
            let (row, words) = block.split_at(row_bytes);
            let words = words.as_chunks::<4>().0;
            for (sum, word) in sums.iter_mut().zip(words) {
                *sum = f32::from_le_bytes(*word);
            }
            let contributions = words.last().map_or(0, |word| u32::from_le_bytes(*word));
            let (gradient, weight) = sums.split_at(self.dim);
            each(Drained { rank, row, gradient, weight: weight[0], contributions });
        }
        Ok(())
    }
}

/// Holds a length, which is public, against what was declared.
fn check(what: &'static str, length: usize, expected: usize) -> Result<(), MemoryError> {
    if length == expected { Ok(()) } else { Err(MemoryError::Length { what, length, expected }) }
}

#[cfg(test)]
mod tests;
