//! The position map: which leaf each block of the main tree has, by recursion into smaller oblivious
//! memories (FEDORA 5; Stefanov et al., Path ORAM, section 5).
//!
//! Entries are packed into blocks of a [`MemoryOram`]; the leaves of those blocks are the entries of the
//! next map, and so on to one small enough to be scanned. An exchange reads one path in each memory, and
//! each path's leaf was drawn when the block was touched last: uniform, and independent of the ids.

use std::hint::black_box;

use hushtable_prg::{Platform, Vectorised, valgrind};
use zeroize::Zeroizing;

use crate::memory::{DUMMY, Leaves, MemoryError, MemoryOram, zeros};
use crate::oblivious::Mask;
use crate::seal::Key;

/// Entries of a block, as a power of two: 16 leaves are 64 bytes, which is the fastest at 10M entries.
const PACK_BITS: u32 = 4;
/// Up to as many entries are scanned.
const SCANNED_MAX: usize = 10_000;
/// The most entries of a map.
const ENTRIES_MAX: usize = 1 << 31;

/// A position map. See the [module](self).
pub struct PositionMap {
    entries: usize,
    /// Leaves of the tree whose positions these are.
    leaves: u32,
    /// The largest first: entries of blocks of the tree, then of blocks of the memory before.
    memories: Vec<MemoryOram>,
    /// Leaves of the last memory's blocks, or the entries if there is no memory.
    scanned: Zeroizing<Vec<u32>>,
    random: Leaves,
    platform: Platform,
    /// Leaves drawn for one exchange.
    drawn: Zeroizing<Vec<u32>>,
}

impl PositionMap {
    /// The map that gives entry i the leaf `positions[i]`, of a tree of `leaves` leaves.
    /// It is filled in the order of the ids, so that nothing of the positions shows.
    ///
    /// # Errors
    /// No positions or more than 2^31, no `leaves`, too little memory, or no entropy.
    pub fn build(positions: &[u32], leaves: u32, key: &Key) -> Result<Self, MemoryError> {
        Self::build_packed(positions, leaves, key, PACK_BITS, SCANNED_MAX)
    }

    /// [`build`](Self::build) with `2^pack_bits` entries a block, and a scan from `scanned_max` entries on
    /// down; for measurements.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    #[doc(hidden)]
    pub fn build_packed(
        positions: &[u32],
        leaves: u32,
        key: &Key,
        pack_bits: u32,
        scanned_max: usize,
    ) -> Result<Self, MemoryError> {
        if positions.is_empty() || positions.len() > ENTRIES_MAX {
            return Err(MemoryError::Capacity { capacity: positions.len() });
        }
        if leaves == 0 {
            return Err(MemoryError::Leaf { leaf: leaves, leaves: leaves as usize });
        }
        let key = key.derive("hushtable oram positions");
        let mut random = Leaves::new()?;
        let mut memories = Vec::new();
        let mut entries = Zeroizing::new(positions.to_vec());
        while entries.len() > scanned_max.max(1) {
            let pack = 1 << pack_bits;
            let blocks = entries.len().div_ceil(pack);
            let mut memory = MemoryOram::new(blocks, 4 * pack, &key)?;
            let mut block_leaves = Zeroizing::new(zeros::<u32>(blocks)?);
            let mut payload = Zeroizing::new(vec![0u8; 4 * pack]);
            for (id, (chunk, leaf)) in entries.chunks(pack).zip(block_leaves.iter_mut()).enumerate()
            {
                payload.fill(0);
                for (entry, to) in chunk.iter().zip(payload.as_chunks_mut::<4>().0) {
                    *to = entry.to_le_bytes();
                }
                *leaf = random.draw(memory.leaves());
                memory.insert(id as u32, *leaf, &payload)?;
            }
            memories.push(memory);
            entries = block_leaves;
        }
        Ok(Self {
            entries: positions.len(),
            leaves,
            drawn: Zeroizing::new(vec![0; memories.len()]),
            memories,
            scanned: entries,
            random,
            platform: Platform::detect(),
        })
    }

    /// Entries of the map.
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Oblivious memories that an exchange reads a path in.
    pub fn depth(&self) -> usize {
        self.memories.len()
    }

    /// Bytes of memory that the map takes.
    pub fn memory_bytes(&self) -> usize {
        4 * self.scanned.len() + self.memories.iter().map(MemoryOram::memory_bytes).sum::<usize>()
    }

    /// Gives entry `id` the leaf `fresh` and returns the one that it had. Both are secret, and so is the
    /// result until a path is read by it. An `id` that is no entry, [`DUMMY`] above all, changes nothing and
    /// gets a random leaf; that it does shows nowhere.
    ///
    /// # Errors
    /// Forged memory, a full stash, or a map stopped by either.
    pub fn exchange(&mut self, id: u32, fresh: u32) -> Result<u32, MemoryError> {
        let real = Mask::less(id.into(), self.entries as u64);
        let chance = self.random.draw(self.leaves);
        for (drawn, memory) in self.drawn.iter_mut().zip(&self.memories) {
            *drawn = self.random.draw(memory.leaves());
        }
        // Entry number at the level in hand, from the scanned one to the largest.
        let depth = self.memories.len() as u32;
        let pack_bits = |memory: &MemoryOram| memory.shape().payload_bytes().ilog2() - 2;
        let mut shift: u32 = self.memories.iter().map(pack_bits).sum();
        let given = |level: u32, drawn: &[u32]| match level {
            0 => fresh,
            _ => drawn[level as usize - 1],
        };
        let entry = real.select_u32(((u64::from(id)) >> shift) as u32, DUMMY);
        let fresh = given(depth, &self.drawn);
        let mut old = self.platform.run(Scan { entries: &mut self.scanned, index: entry, fresh });
        for level in (0..depth).rev() {
            let memory = &mut self.memories[level as usize];
            let block = real.select_u32(((u64::from(id)) >> shift) as u32, DUMMY);
            // A dummy's path is read by a leaf of its own.
            let stray = self.random.draw(memory.leaves());
            let mut path = real.select_u32(old, stray);
            // Uniform, and shown this once: the block has another leaf from now on.
            valgrind::declassify(&mut path);
            let bits = pack_bits(memory);
            shift -= bits;
            let within = ((u64::from(id)) >> shift) as u32 & ((1 << bits) - 1);
            let new = given(level, &self.drawn);
            old = memory.access(block, path, self.drawn[level as usize], |payload| {
                exchange_packed(payload, within, new)
            })?;
        }
        Ok(real.select_u32(old, chance))
    }
}

/// Replaces entry `index` by `fresh` and returns it; zero for an index out of range.
struct Scan<'a> {
    entries: &'a mut [u32],
    index: u32,
    fresh: u32,
}

impl Vectorised for Scan<'_> {
    type Output = u32;

    #[inline(always)]
    fn run(self) -> u32 {
        let Self { entries, index, fresh } = self;
        let (mut old, mut hits) = (0, [0; SCANNED_AT_ONCE]);
        for (entries, first) in
            entries.chunks_mut(SCANNED_AT_ONCE).zip((0..).step_by(SCANNED_AT_ONCE))
        {
            for (hit, i) in hits.iter_mut().zip(first..) {
                *hit = equal_u32(i, index);
            }
            // The optimiser is not to know what a mask can be, and makes no branch of it.
            for (entry, hit) in entries.iter_mut().zip(black_box(&hits)) {
                old |= *entry & hit;
                *entry ^= (*entry ^ fresh) & hit;
            }
        }
        old
    }
}

/// Entries whose masks are made together.
const SCANNED_AT_ONCE: usize = 64;

/// [`Scan`] of little-endian words.
fn exchange_packed(entries: &mut [u8], index: u32, fresh: u32) -> u32 {
    let mut old = 0;
    for (i, entry) in entries.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let hit = equal_u32(i as u32, index);
        let word = u32::from_le_bytes(*entry);
        old |= word & hit;
        *entry = (word ^ ((word ^ fresh) & hit)).to_le_bytes();
    }
    old
}

/// All ones if a = b, by bit arithmetic that loops of it become vector code of.
#[inline(always)]
fn equal_u32(a: u32, b: u32) -> u32 {
    let change = a ^ b;
    !(((change | change.wrapping_neg()) as i32 >> 31) as u32)
}

#[cfg(test)]
mod tests;
