//! Eviction: blocks of the stash and of one path go back to that path, each as deep as it may.
//!
//! The work on it is the same whatever the blocks are: depths by masks, one sorting network, one
//! pass with a level's pointer and counter, one distribution network. No scratchpad is assumed.
//!
//! # Blocks on disk stay on disk
//!
//! Levels above the *boundary* are in memory only, and after a crash they are made again from the
//! journal of the rows that were written. So no block may rise over the boundary by an eviction: it
//! would be in no file. Blocks of the path below the boundary are placed first, the others take what
//! room is left. That changes which blocks fill a level but not how many: levels are filled bottom up
//! with as many blocks as may lie there, so the bound on the stash ([`geometry`](crate::geometry))
//! holds as it is. (A block found below the boundary fits below it, since it lay there.)

use std::num::NonZeroU32;

use crate::bucket::{DUMMY, block_bytes, id, leaf};
use crate::geometry::Geometry;
use crate::oblivious::{Mask, NOWHERE, distribute, sort};
use crate::shape::Shape;

/// Key of what is no block: behind all blocks.
const NO_BLOCK: u64 = u64::MAX;

/// The stash had more blocks left than it has room for. The round cannot go on; what was committed
/// is untouched.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "more blocks stayed in the stash than its bound of {bound}, which is expected once in 2^80 evictions"
)]
pub struct StashOverflow {
    /// The bound.
    pub bound: usize,
}

/// The workspace of evictions of one tree.
pub struct Eviction {
    slots: usize,
    levels: usize,
    boundary: usize,
    stash_bound: usize,
    stride: usize,
    items: Vec<u8>,
    keys: Vec<u64>,
    depths: Vec<u64>,
}

impl Eviction {
    /// For trees of this shape, blocks below level `boundary` staying there.
    pub fn new(geometry: &Geometry, boundary: u32) -> Self {
        let stash = (geometry.stash_bound(), geometry.stash_capacity());
        let payload_bytes = geometry.payload_bytes();
        Self::of(geometry.shape(), geometry.slots(), boundary, stash, payload_bytes)
    }

    /// For trees of this shape with buckets of `slots` blocks; of the stash, how many blocks may
    /// stay and how many it has room for.
    pub fn of(
        shape: Shape,
        slots: usize,
        boundary: u32,
        (stash_bound, stash_capacity): (usize, usize),
        payload_bytes: usize,
    ) -> Self {
        let levels = shape.levels() as usize;
        let stride = block_bytes(payload_bytes);
        let count = levels * slots + stash_capacity;
        Self {
            slots,
            levels,
            boundary: (boundary as usize).min(levels),
            stash_bound,
            stride,
            items: vec![0; count * stride],
            keys: vec![0; count],
            depths: vec![0; count],
        }
    }

    /// Where the caller puts the blocks of the path's bucket at `level` (`slots` blocks; an invalid
    /// one with the id [`DUMMY`]).
    pub fn bucket_mut(&mut self, level: usize) -> &mut [u8] {
        let bytes = self.slots * self.stride;
        // Leaf first, as they come back.
        let start = (self.levels - 1 - level) * bytes;
        &mut self.items[start..start + bytes]
    }

    /// Where the caller puts the stash ([`Geometry::stash_capacity`] blocks), and where what stays of
    /// it comes back: in the first [`Geometry::stash_bound`] blocks, the others are dummies.
    pub fn stash_mut(&mut self) -> &mut [u8] {
        let start = self.levels * self.slots * self.stride;
        &mut self.items[start..]
    }

    /// Evicts to the path of `leaf`: buckets and stash hold the outcome.
    ///
    /// # Errors
    ///
    /// More than the bound stayed in the stash.
    pub fn run(&mut self, target: u32) -> Result<(), StashOverflow> {
        self.measure(target);
        self.hold_back();
        sort(&mut self.keys, &mut self.items, self.stride);
        let overflow = self.assign();
        let kept = (self.levels * self.slots + self.stash_bound) * self.stride;
        distribute(&mut self.keys, &mut self.depths, &mut self.items, self.stride);
        // What had no destination is no block; make that plain.
        for (key, block) in self.keys.iter().zip(self.items.chunks_exact_mut(self.stride)) {
            let nothing = Mask::equal(*key, NOWHERE).bits() as u32;
            let id = id(block) | nothing;
            block[..4].copy_from_slice(&id.to_le_bytes());
        }
        crate::bucket::clear(&mut self.items[kept..], self.stride);
        // Whether the bound held is told: it does, but for the stated probability.
        let mut overflow = overflow.bits();
        hushtable_prg::valgrind::declassify(&mut overflow);
        if overflow == 0 { Ok(()) } else { Err(StashOverflow { bound: self.stash_bound }) }
    }

    /// Depths: the deepest level that a block's path and the target's have in common, plus one; 0 of
    /// what is no block.
    fn measure(&mut self, target: u32) {
        let levels = self.levels as u32;
        // Leaves of one child of the root differ in these bits only.
        let bits = (self.levels as u32).saturating_sub(2);
        for (depth, block) in self.depths.iter_mut().zip(self.items.chunks_exact(self.stride)) {
            let differ = leaf(block) ^ target;
            // Whichever two children of the root they are of, their paths part there: one bit says so.
            let child = differ >> bits;
            let parted = (child | child.wrapping_neg()) >> 31;
            // One more bit, that is always set: no block's paths part above the root, and the count
            // of leading zeros needs no branch for zero.
            let differ = differ & ((1 << bits) - 1) | parted << bits;
            let apart = NonZeroU32::MIN | (differ << 1);
            let common = u64::from(levels - (31 - apart.leading_zeros()));
            let is_block = Mask::equal(u64::from(id(block)), u64::from(DUMMY)).not();
            *depth = is_block.select_u64(common, 0);
        }
    }

    /// Keys to sort by, deepest first; of the blocks from above the boundary only as many below it as
    /// leave room for those that lie there.
    fn hold_back(&mut self) {
        let (levels, boundary, slots) = (self.levels, self.boundary, self.slots);
        let below = (levels - boundary) * slots;
        // room[j]: how many more blocks of depths up to boundary + j + 1 fit in the levels that take them.
        let mut room: Vec<u64> =
            (1..=levels - boundary).map(|count| (count * slots) as u64).collect();
        let mut waiting = vec![0_u64; levels - boundary];
        for (j, (room, waiting)) in room.iter_mut().zip(&mut waiting).enumerate() {
            let deepest = (boundary + j + 1) as u64;
            for &depth in &self.depths[..below] {
                let counts = Mask::less(depth, deepest + 1).and(Mask::equal(depth, 0).not());
                *room = room.wrapping_sub(counts.select_u64(1, 0));
            }
            for &depth in &self.depths[below..] {
                *waiting += Mask::equal(depth, deepest).select_u64(1, 0);
            }
        }
        // Deepest first, as the levels are filled.
        let mut quota = vec![0_u64; levels - boundary];
        for j in (0..quota.len()).rev() {
            let mut least = waiting[j];
            for &room in &room[j..] {
                least = Mask::less(room, least).select_u64(room, least);
            }
            quota[j] = least;
            for room in &mut room[j..] {
                *room -= least;
            }
        }
        for (j, quota) in quota.iter_mut().enumerate() {
            let deepest = (boundary + j + 1) as u64;
            for depth in &mut self.depths[below..] {
                let here = Mask::equal(*depth, deepest);
                let full = Mask::equal(*quota, 0);
                *quota -= here.and(full.not()).select_u64(1, 0);
                *depth = here.and(full).select_u64(boundary as u64, *depth);
            }
        }
        // A block held back from the root down has depth 0 and is a block all the same: it stays.
        for ((key, &depth), block) in
            self.keys.iter_mut().zip(&self.depths).zip(self.items.chunks_exact(self.stride))
        {
            let nothing = Mask::equal(u64::from(id(block)), u64::from(DUMMY));
            *key = nothing.select_u64(NO_BLOCK, levels as u64 - depth);
        }
    }

    /// Turns sorted keys into destinations, ascending: slots of the path from the leaf up, then the
    /// stash. Whether blocks were left over.
    fn assign(&mut self) -> Mask {
        let (levels, slots) = (self.levels as u64, self.slots as u64);
        // `step` levels above the leaf is where blocks go now; `used` of its slots are taken.
        let (mut step, mut used) = (0_u64, 0_u64);
        let mut stayed = 0_u64;
        let mut overflow = Mask::NO;
        for key in &mut self.keys {
            let is_block = Mask::equal(*key, NO_BLOCK).not();
            let higher = is_block.and(Mask::less(step, *key));
            step = higher.select_u64(*key, step);
            used = higher.select_u64(0, used);
            let placed = is_block.and(Mask::less(step, levels));
            let stays = is_block.and(Mask::less(step, levels).not());
            let to_path = step.wrapping_mul(slots).wrapping_add(used);
            let to_stash = levels * slots + stayed;
            overflow = overflow.or(stays.and(Mask::less(stayed, self.stash_bound as u64).not()));
            stayed += stays.select_u64(1, 0);
            *key = placed.select_u64(to_path, stays.select_u64(to_stash, NOWHERE));
            used += placed.select_u64(1, 0);
            let full = Mask::equal(used, slots);
            step += full.select_u64(1, 0);
            used = full.select_u64(0, used);
        }
        // Beyond the bound there is nowhere to go: the caller gives the round up.
        let limit = levels * slots + self.stash_bound as u64;
        for key in &mut self.keys {
            *key = Mask::less(*key, limit).select_u64(*key, NOWHERE);
        }
        overflow
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha20Rng;

    use super::*;
    use crate::bucket::{clear, set_head};
    use crate::geometry::GeometrySpec;

    struct Case {
        geometry: Geometry,
        boundary: u32,
        /// (id, leaf) of each level's and the stash's blocks.
        levels: Vec<Vec<(u32, u32)>>,
        stash: Vec<(u32, u32)>,
        target: u32,
    }

    fn case(seed: u64) -> Case {
        let mut random = ChaCha20Rng::seed_from_u64(seed);
        let rows = random.random_range(500..20_000);
        let geometry = Geometry::new(&GeometrySpec::on_disk(rows, 400)).unwrap();
        let levels = geometry.levels();
        let boundary = random.random_range(0..=levels);
        let target = random.random_range(0..geometry.leaves() as u32);
        let mut next = 0;
        let mut levels_blocks = Vec::new();
        let crowd = random.random_range(1..=10);
        for level in 0..levels {
            // Blocks that may lie at this level: their leaves share its node.
            let blocks = (0..geometry.slots()).filter(|_| random.random_range(0..10) < crowd);
            let blocks: Vec<_> = blocks.collect();
            let shape = geometry.shape();
            levels_blocks.push(
                blocks
                    .iter()
                    .map(|_| {
                        next += 1;
                        let node = shape.ancestor(target.into(), level);
                        let below = (shape.leaves() / shape.nodes(level)) as u32;
                        (next, node as u32 * below + random.random_range(0..below))
                    })
                    .collect(),
            );
        }
        let count = random.random_range(0..=geometry.period());
        let stash = (0..count)
            .map(|_| {
                next += 1;
                (next, random.random_range(0..geometry.leaves() as u32))
            })
            .collect();
        Case { geometry, boundary, levels: levels_blocks, stash, target }
    }

    fn fill(into: &mut [u8], stride: usize, blocks: &[(u32, u32)], random: &mut ChaCha20Rng) {
        clear(into, stride);
        let mut places: Vec<usize> = (0..into.len() / stride).collect();
        for &(id, leaf) in blocks {
            let place = places.swap_remove(random.random_range(0..places.len()));
            let block = &mut into[place * stride..][..stride];
            set_head(block, id, leaf);
            block[8..].fill(id as u8);
        }
    }

    fn read(from: &[u8], stride: usize) -> Vec<(u32, u32)> {
        let blocks = from.chunks_exact(stride).filter(|block| id(block) != DUMMY);
        let blocks = blocks.map(|block| {
            assert!(block[8..].iter().all(|&byte| byte == id(block) as u8), "a payload was lost");
            (id(block), leaf(block))
        });
        blocks.collect()
    }

    /// How many blocks the greedy rule puts at each level: bottom up, as many as may lie there.
    fn greedy(case: &Case) -> Vec<usize> {
        let shape = case.geometry.shape();
        let levels = shape.levels() as usize;
        let node = |leaf: u32, level: usize| shape.ancestor(leaf.into(), level as u32);
        let all = case.levels.iter().flatten().chain(&case.stash);
        let mut depths: Vec<usize> = all
            .map(|&(_, leaf)| {
                (0..levels).rev().find(|&level| node(leaf, level) == node(case.target, level))
            })
            .map(Option::unwrap)
            .collect();
        let mut counts = vec![0; levels];
        for (level, count) in counts.iter_mut().enumerate().rev() {
            depths.sort_unstable();
            while *count < case.geometry.slots() && depths.last().is_some_and(|&d| d >= level) {
                depths.pop();
                *count += 1;
            }
        }
        counts
    }

    #[test]
    fn blocks_go_as_deep_as_they_may_and_none_rises_over_the_boundary() {
        for seed in 0..60 {
            let case = case(seed);
            let mut random = ChaCha20Rng::seed_from_u64(seed);
            let stride = block_bytes(case.geometry.payload_bytes());
            let mut eviction = Eviction::new(&case.geometry, case.boundary);
            for (level, blocks) in case.levels.iter().enumerate() {
                fill(eviction.bucket_mut(level), stride, blocks, &mut random);
            }
            fill(eviction.stash_mut(), stride, &case.stash, &mut random);
            eviction.run(case.target).unwrap();

            let levels = case.geometry.levels() as usize;
            let mut ids = Vec::new();
            for (level, count) in greedy(&case).into_iter().enumerate() {
                let blocks = read(eviction.bucket_mut(level), stride);
                assert_eq!(blocks.len(), count, "level {level} of {levels}, seed {seed}");
                for (id, leaf) in blocks {
                    let (shape, at) = (case.geometry.shape(), level as u32);
                    let [own, target] =
                        [leaf, case.target].map(|leaf| shape.ancestor(leaf.into(), at));
                    assert_eq!(own, target);
                    let was_below =
                        case.levels[case.boundary as usize..].iter().flatten().any(|b| b.0 == id);
                    assert!(!was_below || level >= case.boundary as usize, "seed {seed}");
                    ids.push(id);
                }
            }
            ids.extend(read(eviction.stash_mut(), stride).iter().map(|block| block.0));
            ids.sort_unstable();
            let all = case.levels.iter().flatten().chain(&case.stash).count() as u32;
            assert!(ids.iter().copied().eq(1..=all), "blocks were lost, seed {seed}");
        }
    }

    #[test]
    fn too_many_for_the_stash_is_an_error() {
        let geometry = Geometry::new(&GeometrySpec::on_disk(1000, 400)).unwrap();
        let stride = block_bytes(geometry.payload_bytes());
        let (slots, stash) = (geometry.slots(), (20, 40));
        let mut eviction =
            Eviction::of(geometry.shape(), slots, 0, stash, geometry.payload_bytes());
        let mut next = 0;
        for level in 0..geometry.levels() as usize {
            clear(eviction.bucket_mut(level), stride);
        }
        // Every block of another half of the tree than the path: only the root takes Z of them.
        assert!(slots < 15);
        for block in eviction.stash_mut().chunks_exact_mut(stride) {
            set_head(block, next, geometry.leaves() as u32 - 1);
            next += 1;
        }
        assert_eq!(eviction.run(0), Err(StashOverflow { bound: 20 }));
    }
}
