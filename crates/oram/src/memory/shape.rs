//! The shape of a tree in memory, and which one is the fastest.

use crate::geometry::stash_bound;
use crate::memory::MemoryError;
use crate::shape::Shape as Nodes;

/// The most blocks of a memory.
pub const CAPACITY_MAX: usize = 1 << 27;
/// The most bytes of a block.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 16;
/// -log2 of the probability that the stash is over its bound after one eviction.
const OVERFLOW_BITS: u32 = 80;

/// The shape of a tree in memory. The bound of [`geometry`](crate::geometry) on the stash holds for it,
/// whatever is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The most blocks.
    pub(super) capacity: usize,
    /// Bytes of a block's payload.
    pub(super) payload_bytes: usize,
    /// Z: blocks of a bucket.
    pub(super) slots: usize,
    /// A: accesses between two evictions.
    pub(super) period: usize,
    /// Levels, the root's and the leaves' included.
    pub(super) levels: u32,
    /// R: blocks that the stash has room for after an eviction.
    pub(super) stash: usize,
}

impl Shape {
    /// The shape whose accesses are estimated to be the fastest.
    pub(super) fn fastest(capacity: usize, payload_bytes: usize) -> Result<Self, MemoryError> {
        let mut best: Option<(f64, Self)> = None;
        for slots in [4, 5, 6, 8, 10, 12, 16, 20, 24, 32] {
            for period in (slots / 2..2 * slots).step_by(1 + slots / 12) {
                let shape = match Self::of(capacity, payload_bytes, slots, period) {
                    Err(MemoryError::Eviction { .. }) => continue,
                    shape => shape?,
                };
                let cost = shape.access_ns();
                if best.is_none_or(|(least, _)| cost < least) {
                    best = Some((cost, shape));
                }
            }
        }
        match best {
            Some((_, shape)) => Ok(shape),
            None => Self::of(capacity, payload_bytes, 8, 8),
        }
    }

    /// The tree of buckets of `slots` blocks with an eviction every `period` accesses.
    ///
    /// # Errors
    /// A capacity, payload, or pair of Z and A that is out of bounds.
    pub fn of(
        capacity: usize,
        payload_bytes: usize,
        slots: usize,
        period: usize,
    ) -> Result<Self, MemoryError> {
        if !(1..=CAPACITY_MAX).contains(&capacity) {
            return Err(MemoryError::Capacity { capacity });
        }
        if !(1..=PAYLOAD_BYTES_MAX).contains(&payload_bytes) {
            return Err(MemoryError::PayloadBytes { payload_bytes });
        }
        if !(1..=64).contains(&slots) || !(1..2 * slots).contains(&period) {
            return Err(MemoryError::Eviction { slots, period });
        }
        // The smallest tree with a stash that is worth its scans, or else one twice as large.
        let fewest = (2..).find(|&levels| ((1 << levels) - 1) * slots > capacity).unwrap_or(2);
        let bound = |levels: u32| {
            let bound = stash_bound(
                Nodes::binary(levels),
                (slots, period),
                capacity as u64,
                OVERFLOW_BITS,
            )?;
            (bound <= 64 + 10 * slots).then_some((levels, bound))
        };
        let Some((levels, stash)) = (fewest..fewest + 4).find_map(bound) else {
            return Err(MemoryError::Eviction { slots, period });
        };
        // No more blocks than there are can be in the stash.
        let stash = stash.min(capacity);
        Ok(Self { capacity, payload_bytes, slots, period, levels, stash })
    }

    /// Its nodes, and the order of its evictions.
    pub(super) fn tree(&self) -> Nodes {
        Nodes::binary(self.levels)
    }

    /// The most blocks.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
    /// Bytes of a block's payload.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }
    /// Z: blocks of a bucket.
    pub fn slots(&self) -> usize {
        self.slots
    }
    /// A: accesses between two evictions.
    pub fn period(&self) -> usize {
        self.period
    }
    /// Levels, the root's and the leaves' included.
    pub fn levels(&self) -> u32 {
        self.levels
    }
    /// R: blocks that the stash has room for after an eviction.
    pub fn stash(&self) -> usize {
        self.stash
    }
    /// Leaves, a power of two.
    pub fn leaves(&self) -> usize {
        1 << (self.levels - 1)
    }
    /// Blocks that the buckets of a path hold.
    pub(super) fn path_slots(&self) -> usize {
        self.levels as usize * self.slots
    }
    /// Blocks of a path, the stash, and what enters before an eviction.
    pub(super) fn work_slots(&self) -> usize {
        self.path_slots() + self.stash + self.period
    }
    /// Bytes of a bucket, open: its keys, then its payloads.
    pub(super) fn bucket_bytes(&self) -> usize {
        self.slots * (8 + self.payload_bytes)
    }

    /// An estimate of the time of an access, its share of an eviction included, fitted to Zen 4.
    fn access_ns(&self) -> f64 {
        let payload = self.payload_bytes as f64;
        let (levels, slots) = (f64::from(self.levels), self.slots as f64);
        let seal = levels * (50.0 + 1.5 * self.bucket_bytes() as f64 / 16.0);
        let scan = |blocks: f64| blocks * (1.5 + payload / 32.0);
        let n = self.work_slots() as f64;
        let log = n.log2();
        let swaps = n / 4.0 * log * (log + 1.0) + n * log;
        let access = seal + scan(levels * slots) + scan((self.stash + self.period) as f64);
        let eviction = 2.0 * seal + swaps * (1.5 + payload / 24.0);
        access + eviction / self.period as f64
    }
}
