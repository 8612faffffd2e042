//! Which block of an eviction goes where.
//!
//! Places ascend from the leaf's first slot to the root's last and on into the stash. Blocks take theirs
//! in the order of how deep they may go, deepest first: each the first that is free among those of its
//! deepest bucket and all after it. As the deepest come first, that is the first after the one taken last.
//!
//! So the blocks of one depth take places in a row, and all follows from how many blocks each depth has.
//! It is worked out by counting over columns of small numbers, which vectors do many of at once, and the
//! rows are moved only once ([`route`](crate::oblivious::route)).

use std::hint::black_box;

use hushtable_prg::{Platform, Vectorised};

use crate::memory::{MemoryError, zeros};
use crate::oblivious::Mask;

/// The depth of an empty slot, beyond every level of a tree.
const NONE: u16 = 31;
/// Slots whose numbers fit beside a depth into 15 bits.
const SHORT_MAX: usize = 1 << 10;
/// Slots are filled up to whole vectors of so many.
const LANES: usize = 32;

/// Workspace, for as many slots as an eviction has.
pub(super) struct Places {
    platform: Platform,
    /// Levels up from the leaf to a block's deepest bucket.
    depths: Vec<u16>,
    /// The depths and, below them, the slots' numbers: in short lanes where they fit.
    short: Vec<i16>,
    long: Vec<i32>,
    ranks: Vec<u16>,
    gaps: Vec<u16>,
    numbers: Vec<u16>,
}

impl Places {
    pub(super) fn new(platform: Platform, slots: usize) -> Result<Self, MemoryError> {
        let slots = slots.next_multiple_of(LANES);
        let short = slots <= SHORT_MAX;
        Ok(Self {
            platform,
            depths: zeros(slots)?,
            short: zeros(if short { slots } else { 0 })?,
            long: zeros(if short { 0 } else { slots })?,
            ranks: zeros(slots)?,
            gaps: zeros(slots)?,
            numbers: zeros(slots)?,
        })
    }

    /// Gives each of `keys` (a block's leaf and id, or [`EMPTY`](super::EMPTY)) its place in an eviction of the
    /// path to `leaf`, of `levels` buckets of `slots` blocks; empty ones get the places that are left, in their
    /// order. Returns the end of the last place that a block got: if that is more than there are keys, the
    /// places are worth nothing.
    pub(super) fn assign(
        &mut self,
        keys: &[u64],
        leaf: u32,
        (levels, slots): (u32, usize),
        destinations: &mut [u64],
    ) -> u64 {
        let (levels, slots) = (levels as u16, slots as u16);
        self.platform.run(Assign { places: self, keys, leaf, levels, slots, destinations })
    }
}

struct Assign<'a> {
    places: &'a mut Places,
    keys: &'a [u64],
    leaf: u32,
    levels: u16,
    slots: u16,
    destinations: &'a mut [u64],
}

/// All ones where `a` is less than `b`, neither of them 2^15 or more.
#[inline(always)]
fn less(a: u16, b: u16) -> u16 {
    (a.wrapping_sub(b) as i16 >> 15) as u16
}

impl Vectorised for Assign<'_> {
    type Output = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        let Self { places, keys, leaf, levels, slots, destinations } = self;
        let Places { depths, short, long, ranks, gaps, numbers, .. } = places;
        depths.fill(NONE);
        for (depth, &key) in depths.iter_mut().zip(keys) {
            let real = Mask::from_bit(key >> 63).not();
            // Bits of its leaf that differ: the levels from the leaf up to the deepest bucket. The 1 below
            // them keeps the count of leading zeros from being asked of zero, where it may be a branch.
            let differ = (key >> 32) ^ u64::from(leaf);
            let above_leaf = 63 - (differ << 1 | 1).leading_zeros();
            *depth = real.select_u32(above_leaf, NONE.into()) as u16;
        }

        // How many come before each: the deeper ones, and of its own depth those in earlier slots.
        if long.is_empty() {
            for ((lane, &depth), i) in short.iter_mut().zip(&*depths).zip(0u16..) {
                *lane = (depth << 10 | i) as i16;
            }
            for (rank, &own) in ranks.iter_mut().zip(&*short) {
                *rank = short.iter().fold(0u16, |sum, &lane| {
                    sum.wrapping_sub((lane.wrapping_sub(own) >> 15) as u16)
                });
            }
        } else {
            for ((lane, &depth), i) in long.iter_mut().zip(&*depths).zip(0i32..) {
                *lane = i32::from(depth) << 16 | i;
            }
            for (rank, &own) in ranks.iter_mut().zip(&*long) {
                *rank = long.iter().fold(0u32, |sum, &lane| {
                    sum.wrapping_sub((lane.wrapping_sub(own) >> 31) as u32)
                }) as u16;
            }
        }
        let mut blocks = 0u16;
        for &depth in &*depths {
            blocks = blocks.wrapping_sub(less(depth, NONE));
        }
        for ((gap, number), &rank) in gaps.iter_mut().zip(&mut *numbers).zip(&*ranks) {
            (*gap, *number) = (rank.wrapping_sub(blocks), rank.wrapping_sub(blocks));
        }

        // A block's place is beyond as many gaps as there are before its level's first block; an empty
        // slot's, which fills the gap of its number among the empty ones, beyond the blocks before that.
        let (mut end, mut lower, mut skipped) = (0u16, 0u16, 0u16);
        for level in 0..levels {
            let count =
                depths.iter().fold(0u16, |sum, &depth| sum.wrapping_sub(less(depth ^ level, 1)));
            let first = level * slots;
            let start = end ^ ((end ^ first) & black_box(less(end, first)));
            let before = start.wrapping_sub(lower);
            let more = before.wrapping_sub(skipped);
            for (rank, &depth) in ranks.iter_mut().zip(&*depths) {
                *rank = rank.wrapping_add(more & !less(depth, level));
            }
            for (gap, &number) in gaps.iter_mut().zip(&*numbers) {
                *gap = gap.wrapping_add(count & !less(number, before));
            }
            skipped = before;
            lower = lower.wrapping_add(count);
            end = start.wrapping_add(count);
        }
        for depth in &mut *depths {
            *depth = less(*depth, NONE);
        }
        // Masks, of which the optimiser is not to know what they can be: it would make branches of them.
        let reals = black_box(&*depths);
        for (((rank, &gap), &real), destination) in
            ranks.iter().zip(&*gaps).zip(reals).zip(destinations)
        {
            *destination = u64::from(gap ^ ((gap ^ rank) & real));
        }
        end.into()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::EMPTY;
    use super::*;

    /// The rule as it is stated: deepest first, each the first free place that it may have; and the gaps in
    /// their order to the empty slots in theirs.
    fn stated(keys: &[u64], leaf: u32, slots: usize) -> (Vec<u64>, u64) {
        let depth = |key: u64| 32 - ((key >> 32) as u32 ^ leaf).leading_zeros();
        let mut order: Vec<usize> = (0..keys.len()).filter(|&i| keys[i] != EMPTY).collect();
        order.sort_by_key(|&i| (depth(keys[i]), i));
        let mut places = vec![u64::MAX; keys.len()];
        let mut end = 0;
        for i in order {
            places[i] = end.max(u64::from(depth(keys[i])) * slots as u64);
            end = places[i] + 1;
        }
        let taken: std::collections::HashSet<u64> = places.iter().copied().collect();
        let mut gaps = (0..keys.len() as u64).filter(|place| !taken.contains(place));
        for place in places.iter_mut().filter(|place| **place == u64::MAX) {
            *place = gaps.next().unwrap_or(u64::MAX);
        }
        (places, end)
    }

    proptest! {
        #[test]
        fn places_are_as_stated(
            levels in 2u32..14,
            slots in 1usize..9,
            more in 0usize..1500,
            blocks in vec((any::<u32>(), 0u32..32, any::<bool>()), 1700),
            leaf in any::<u32>(),
            full in any::<bool>(),
        ) {
            let leaves = 1u32 << (levels - 1);
            let leaf = leaf % leaves;
            let count = levels as usize * slots + more;
            let keys: Vec<u64> = blocks[..count]
                .iter()
                .zip(0..)
                .map(|(&(other, near, real), id)| match real || full {
                    // Leaves that have much of their path in common with the evicted one, too.
                    true => u64::from((leaf ^ other >> near) % leaves) << 32 | id,
                    false => EMPTY,
                })
                .collect();
            let (expected, end) = stated(&keys, leaf, slots);
            for platform in Platform::available() {
                let mut places = Places::new(platform, count).unwrap();
                let mut found = vec![0; count];
                prop_assert_eq!(places.assign(&keys, leaf, (levels, slots), &mut found), end);
                if end <= count as u64 {
                    prop_assert_eq!(&found, &expected, "{:?}", platform);
                }
            }
        }
    }
}
