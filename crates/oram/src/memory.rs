//! An oblivious memory of fixed-size blocks in DRAM: RAW ORAM (Fletcher et al., FCCM 2015; FEDORA 4.4)
//! whose buckets are sealed. The position map and the buffer ORAM are made of it.
//!
//! An access reads the path to the block's old leaf, takes the block out (its valid bit is cleared in a
//! [`Vtree`]), and puts it in the stash. After every A accesses the next path in reverse-lexicographic
//! order is evicted: read, filled from itself and the stash, and written.
//!
//! # What the memory's addresses say
//!
//! The leaves that are read, which are uniform and independent of everything for a caller who draws a
//! fresh leaf at each access, and how many accesses there were. Within a path and the stash every slot
//! is scanned under masks. An eviction works out the place of each block of path and stash by counting how
//! many may go how deep, and moves them there by a network.
//!
//! # How buckets are sealed
//!
//! Evictions are in an order that is known, and nothing else writes a bucket. So the number of evictions,
//! kept beside the key, says how often each bucket was written (FEDORA 5.2, after Fletcher et al.): the
//! counter of its nonce, which needs no room in its parent's group and is as fresh. A bucket that was
//! changed, moved or replayed does not open. Valid bits, which every access writes, have their
//! counters in the group above, as [`Vtree`] says.

mod leaves;
mod places;
mod rows;
mod shape;

use hushtable_prg::{EntropyError, Platform, valgrind};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::oblivious::{Mask, Router, compact, pick, sort};
use crate::seal::{Forged, Key, TAG_BYTES, group_nonce};
use crate::vtree::{Vtree, VtreeError};
pub(crate) use leaves::Leaves;
use places::Places;
use rows::Rows;
pub use shape::{CAPACITY_MAX, PAYLOAD_BYTES_MAX, Shape};

/// The id of no block: an access to it looks like any other.
pub const DUMMY: u32 = u32::MAX;
/// The key of a slot without a block. A block's is its leaf, then its id, 32 bits each.
const EMPTY: u64 = u64::MAX;

/// Why a memory cannot be made or used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A part of the memory is not what was written there.
    #[error(transparent)]
    Forged(#[from] Forged),
    /// The stash is full. Nothing was lost by then, but the memory takes no more accesses.
    #[error(
        "the stash of {stash} blocks is full: at 2^-80 an eviction that is no bad luck, but more blocks than \
         the {capacity} declared, or leaves that are not uniform; build the memory anew"
    )]
    StashFull {
        /// Blocks that the stash holds after an eviction.
        stash: usize,
        /// Blocks declared.
        capacity: usize,
    },
    /// The memory was stopped by an earlier error.
    #[error(
        "this memory was stopped by an earlier error (forged bytes or a full stash): build it anew"
    )]
    Stopped,
    /// No such leaf.
    #[error("leaf {leaf} of a tree of {leaves} leaves: the position map is another tree's")]
    Leaf {
        /// The leaf asked for.
        leaf: u32,
        /// Leaves of the tree.
        leaves: usize,
    },
    /// No such rank, or not the next one.
    #[error(
        "rank {rank} where rank {expected} of {capacity} is next: insert rows in the order of their ranks"
    )]
    Rank {
        /// The rank given.
        rank: u32,
        /// The rank expected.
        expected: u32,
        /// Ranks declared.
        capacity: usize,
    },
    /// Something is not as long as was declared.
    #[error("{what} of {length}, where {expected} were declared")]
    Length {
        /// What it is, with its unit.
        what: &'static str,
        /// Its length.
        length: usize,
        /// What it should be.
        expected: usize,
    },
    /// Too few or too many blocks.
    #[error("a memory of {capacity} blocks: it has 1 to {CAPACITY_MAX}")]
    Capacity {
        /// Blocks asked for.
        capacity: usize,
    },
    /// Blocks too small or too large.
    #[error("blocks of {payload_bytes} bytes: they have 1 to {PAYLOAD_BYTES_MAX}")]
    PayloadBytes {
        /// Bytes asked for.
        payload_bytes: usize,
    },
    /// Buckets and evictions that no bound is known for.
    #[error(
        "buckets of {slots} blocks and an eviction every {period} accesses: no bound on the stash is known for \
         that; use at most 64 blocks, and more of them or fewer accesses (8 and 8 will do)"
    )]
    Eviction {
        /// Z asked for.
        slots: usize,
        /// A asked for.
        period: usize,
    },
    /// The machine has not the memory.
    #[error("{bytes} bytes of memory could not be had: use fewer or smaller blocks")]
    Memory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The valid bits' tree could not be built.
    #[error(transparent)]
    Vtree(#[from] VtreeError),
    /// The operating system gave no entropy.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
}

/// Zeros of which the allocator may say that there are none.
pub(crate) fn zeros<T: Clone + Default>(count: usize) -> Result<Vec<T>, MemoryError> {
    let mut zeros = Vec::new();
    let bytes = count.saturating_mul(size_of::<T>());
    zeros.try_reserve_exact(count).map_err(|_| MemoryError::Memory { bytes })?;
    zeros.resize(count, T::default());
    Ok(zeros)
}

/// The one thing of an eviction that is let out: whether the stash overflowed. It ends the memory, and with
/// the blocks that were declared it happens at 2^-80 an eviction, whatever is asked for.
fn stash_overflowed(mut end: u64, room: usize) -> bool {
    valgrind::declassify(&mut end);
    end > room as u64
}

/// All blocks of a memory, in the order of their ids, with room for as many as it could hold.
pub(crate) struct Blocks {
    /// Ids, and `u64::MAX` after them: how many there are is secret.
    #[cfg_attr(not(test), expect(dead_code, reason = "a buffer knows its ids"))]
    pub ids: Zeroizing<Vec<u64>>,
    /// Payloads, one after the other.
    pub payload: Zeroizing<Vec<u8>>,
}

/// An oblivious memory of blocks in DRAM. See the [module](self).
pub struct MemoryOram {
    shape: Shape,
    key: Key,
    vtree: Vtree,
    /// Buckets in heap order, each with its tag.
    sealed: Vec<u8>,
    evictions: u64,
    /// Accesses since the last eviction.
    fresh: usize,
    stopped: bool,
    /// Slots of a path from the leaf up while an eviction lasts, then the stash's R, then A that
    /// accesses fill one after the other.
    keys: Zeroizing<Vec<u64>>,
    payload: Rows,
    destinations: Zeroizing<Vec<u64>>,
    places: Places,
    router: Router,
    platform: Platform,
    /// Which slot of `keys` has the block of an access.
    masks: Zeroizing<Vec<u8>>,
    /// The buckets of one path, open, root first.
    open: Zeroizing<Vec<u8>>,
    block: Zeroizing<Vec<u8>>,
}

impl MemoryOram {
    /// An empty memory of the fastest shape for up to `capacity` blocks of `payload_bytes` bytes, sealed
    /// under a fresh key derived from `key`.
    ///
    /// # Errors
    /// Sizes out of bounds, too little memory, or no entropy.
    pub fn new(capacity: usize, payload_bytes: usize, key: &Key) -> Result<Self, MemoryError> {
        Self::with_shape(Shape::fastest(capacity, payload_bytes)?, key)
    }

    /// An empty memory of this shape.
    ///
    /// # Errors
    /// Too little memory, or no entropy.
    pub fn with_shape(shape: Shape, key: &Key) -> Result<Self, MemoryError> {
        let key = key.fresh("hushtable oram memory")?;
        let buckets = 2 * shape.leaves() - 1;
        let stride = shape.bucket_bytes() + TAG_BYTES;
        let bytes = buckets.saturating_mul(stride);
        let mut sealed = zeros(bytes)?;
        for (bucket, sealed) in sealed.chunks_exact_mut(stride).enumerate() {
            let (text, tag) = sealed.split_at_mut(shape.bucket_bytes());
            tag.copy_from_slice(&key.seal_in_place(&group_nonce(bucket as u64, 0), b"", text));
        }
        let vtree = Vtree::build(shape.tree(), 1, &key, |_, _, _| ())?;
        let work = shape.work_slots();
        let platform = Platform::detect();
        let mut keys = zeros(work)?;
        keys.fill(EMPTY);
        Ok(Self {
            key,
            vtree,
            sealed,
            evictions: 0,
            fresh: 0,
            stopped: false,
            keys: Zeroizing::new(keys),
            payload: Rows::new(work * shape.payload_bytes)?,
            destinations: Zeroizing::new(zeros(work)?),
            places: Places::new(platform, work)?,
            router: Router::new(platform, work),
            masks: Zeroizing::new(zeros(work)?),
            platform,
            open: Zeroizing::new(zeros(shape.levels as usize * shape.bucket_bytes())?),
            block: Zeroizing::new(zeros(shape.payload_bytes)?),
            shape,
        })
    }

    /// The tree's shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Leaves of the tree, a power of two: leaves of blocks are drawn below it.
    pub fn leaves(&self) -> u32 {
        self.shape.leaves() as u32
    }

    /// Bytes of memory that the tree, its valid bits and the stash take.
    pub fn memory_bytes(&self) -> usize {
        self.sealed.len() + self.vtree.memory_bytes() + self.keys.len() * 16 + self.payload.len()
    }

    /// Has `change` read and change the payload of block `id`, all zeros if there is none, and gives the
    /// block a new leaf. `id` and `new_leaf` are secret and `old_leaf` is public: it is the leaf that the
    /// block was given last. `id` [`DUMMY`] does the same with no block at all.
    ///
    /// # Errors
    /// Forged memory, a full stash, a memory stopped by either, or no such leaf.
    pub fn access<R>(
        &mut self,
        id: u32,
        old_leaf: u32,
        new_leaf: u32,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, MemoryError> {
        self.check(old_leaf)?;
        self.open_path(old_leaf)?;
        let Shape { slots, payload_bytes, .. } = self.shape;
        let dummy = Mask::equal(u64::from(id), u64::from(DUMMY));
        // No key's id has more than 32 bits.
        let sought = dummy.select_u64(1 << 32, u64::from(id));
        let (open, block, masks) = (&self.open, &mut self.block, &mut self.masks);
        block.fill(0);
        let bucket_bytes = self.shape.bucket_bytes();
        let stash = self.shape.path_slots();
        self.vtree.update_path(old_leaf.into(), |words| {
            let masks = masks.chunks_exact_mut(slots);
            for ((bucket, valid), masks) in open.chunks_exact(bucket_bytes).zip(words).zip(masks) {
                let keys = bucket[..8 * slots].as_chunks::<8>().0;
                let mut taken = 0;
                for (slot, (key, mask)) in keys.iter().zip(masks).enumerate() {
                    let id = u64::from_le_bytes(*key) & 0xffff_ffff;
                    let hit = Mask::equal(id, sought) & Mask::from_bit(*valid >> slot);
                    taken |= hit.bit() << slot;
                    *mask = hit.bits() as u8;
                }
                *valid &= !taken;
            }
        })?;
        for (key, mask) in self.keys[stash..].iter_mut().zip(&mut masks[stash..]) {
            let hit = Mask::equal(*key & 0xffff_ffff, sought);
            *key |= hit.bits();
            *mask = hit.bits() as u8;
        }
        let of_path = masks[..stash].chunks_exact(slots).zip(open.chunks_exact(bucket_bytes));
        let of_path = of_path.map(|(masks, bucket)| (masks, &bucket[8 * slots..]));
        let of_stash = (&masks[stash..], &self.payload[stash * payload_bytes..]);
        pick(self.platform, of_path.chain([of_stash]), block);
        let result = change(block);
        self.enter(id, new_leaf)?;
        Ok(result)
    }

    /// Puts a block in that is in no place yet; `id` and `leaf` are secret, [`DUMMY`] puts none in. It
    /// costs a share of an eviction, and reads no path.
    ///
    /// # Errors
    /// As [`access`](Self::access), or a payload of the wrong length.
    pub fn insert(&mut self, id: u32, leaf: u32, payload: &[u8]) -> Result<(), MemoryError> {
        self.check(0)?;
        let expected = self.shape.payload_bytes;
        if payload.len() != expected {
            return Err(MemoryError::Length {
                what: "a payload, in bytes,",
                length: payload.len(),
                expected,
            });
        }
        self.block.copy_from_slice(payload);
        self.enter(id, leaf)
    }

    /// Takes all blocks out, in the order of their ids, and ends the memory.
    pub(crate) fn into_blocks(mut self) -> Result<Blocks, MemoryError> {
        self.check(0)?;
        let Shape { slots, payload_bytes, levels, .. } = self.shape;
        let work = self.shape.stash + self.shape.period;
        let buckets = 2 * self.shape.leaves() - 1;
        let count = buckets * slots + work;
        let mut keys = Zeroizing::new(zeros::<u64>(count)?);
        let mut payload = Zeroizing::new(zeros::<u8>(count * payload_bytes)?);
        let mut words = vec![0; self.vtree.path_words()];
        for leaf in 0..self.shape.leaves() as u32 {
            self.vtree.read_path(leaf.into(), &mut words)?;
            for level in 0..levels {
                let below = levels - 1 - level;
                if leaf & ((1 << below) - 1) == 0 {
                    let bucket = (1 << level) - 1 + (leaf >> below) as usize;
                    let open = &mut self.open[..self.shape.bucket_bytes()];
                    let counter =
                        self.shape.tree().passes(self.evictions, level, (leaf >> below).into());
                    let sealed = &self.sealed[bucket * (open.len() + TAG_BYTES)..];
                    let (text, tag) = sealed[..open.len() + TAG_BYTES].split_at(open.len());
                    open.copy_from_slice(text);
                    open_bucket(&self.key, bucket, counter, open, tag)?;
                    let (from_keys, rows) = open.split_at(8 * slots);
                    let at = bucket * slots;
                    for (slot, key) in from_keys.as_chunks::<8>().0.iter().enumerate() {
                        let valid = Mask::from_bit(words[level as usize] >> slot);
                        keys[at + slot] = u64::from_le_bytes(*key) | valid.not().bits();
                    }
                    payload[at * payload_bytes..][..rows.len()].copy_from_slice(rows);
                }
            }
        }
        let (stash, at) = (self.shape.path_slots(), buckets * slots);
        keys[at..].copy_from_slice(&self.keys[stash..]);
        payload[at * payload_bytes..].copy_from_slice(&self.payload[stash * payload_bytes..]);
        let mut real = Zeroizing::new(Vec::with_capacity(count));
        for key in keys.iter_mut() {
            let is_real = Mask::from_bit(*key >> 63).not();
            *key = is_real.select_u64(*key & 0xffff_ffff, EMPTY);
            real.push(is_real);
        }
        compact(&mut real, &mut keys, &mut payload, payload_bytes);
        let kept = self.shape.capacity.min(count);
        keys.truncate(kept);
        payload.truncate(kept * payload_bytes);
        sort(&mut keys, &mut payload, payload_bytes);
        Ok(Blocks { ids: keys, payload })
    }

    fn check(&self, leaf: u32) -> Result<(), MemoryError> {
        if self.stopped {
            return Err(MemoryError::Stopped);
        }
        let leaves = self.shape.leaves();
        if leaf as usize >= leaves {
            return Err(MemoryError::Leaf { leaf, leaves });
        }
        Ok(())
    }

    /// `self.block` enters the stash; evicts when it is time.
    fn enter(&mut self, id: u32, leaf: u32) -> Result<(), MemoryError> {
        let at = self.shape.path_slots() + self.shape.stash + self.fresh;
        let dummy = Mask::equal(u64::from(id), u64::from(DUMMY));
        let leaf = u64::from(leaf) & (self.shape.leaves() as u64 - 1);
        self.keys[at] = dummy.select_u64(EMPTY, leaf << 32 | u64::from(id));
        let payload_bytes = self.shape.payload_bytes;
        self.payload[at * payload_bytes..][..payload_bytes].copy_from_slice(&self.block);
        self.fresh += 1;
        if self.fresh == self.shape.period { self.evict() } else { Ok(()) }
    }

    /// Opens the buckets of the path to `leaf` into `self.open`.
    fn open_path(&mut self, leaf: u32) -> Result<(), Forged> {
        let levels = self.shape.levels;
        let bucket_bytes = self.shape.bucket_bytes();
        let stride = bucket_bytes + TAG_BYTES;
        let place = |level: u32| (1usize << level) - 1 + (leaf >> (levels - 1 - level)) as usize;
        // All are fetched before any is opened: the processor then waits for memory once, not for each.
        for (level, open) in (0..levels).zip(self.open.chunks_exact_mut(bucket_bytes)) {
            open.copy_from_slice(&self.sealed[place(level) * stride..][..bucket_bytes]);
        }
        for (level, open) in (0..levels).zip(self.open.chunks_exact_mut(bucket_bytes)) {
            let (bucket, index) = (place(level), leaf >> (levels - 1 - level));
            let counter = self.shape.tree().passes(self.evictions, level, index.into());
            let tag = &self.sealed[bucket * stride + bucket_bytes..][..TAG_BYTES];
            open_bucket(&self.key, bucket, counter, open, tag)?;
        }
        Ok(())
    }

    /// Evicts the next path in reverse-lexicographic order.
    fn evict(&mut self) -> Result<(), MemoryError> {
        // Whatever fails below, blocks would be left in the way of the next access.
        self.stopped = true;
        let Shape { slots, payload_bytes, levels, stash, capacity, .. } = self.shape;
        let leaf = self.shape.tree().eviction_leaf(self.evictions);
        self.open_path(leaf)?;
        let (path_slots, bucket_bytes) = (self.shape.path_slots(), self.shape.bucket_bytes());
        let (keys, payload, destinations) =
            (&mut self.keys, &mut self.payload, &mut self.destinations);
        let (places, router) = (&mut self.places, &self.router);
        let open = &mut self.open;
        self.vtree.update_path(leaf.into(), |words| {
            let from_leaf = open.chunks_exact(bucket_bytes).zip(words.iter()).rev();
            for (at, (bucket, valid)) in (0..path_slots).step_by(slots).zip(from_leaf) {
                let (from_keys, rows) = bucket.split_at(8 * slots);
                for (slot, key) in from_keys.as_chunks::<8>().0.iter().enumerate() {
                    let valid = Mask::from_bit(*valid >> slot);
                    keys[at + slot] = u64::from_le_bytes(*key) | valid.not().bits();
                }
                payload[at * payload_bytes..][..rows.len()].copy_from_slice(rows);
            }
            let end = places.assign(keys, leaf, (levels, slots), destinations);
            if stash_overflowed(end, path_slots + stash) {
                return Err(MemoryError::StashFull { stash, capacity });
            }
            router.route(destinations, keys, payload, payload_bytes);
            let from_leaf = open.chunks_exact_mut(bucket_bytes).zip(words).rev();
            for (at, (bucket, valid)) in (0..path_slots).step_by(slots).zip(from_leaf) {
                let (to_keys, rows) = bucket.split_at_mut(8 * slots);
                *valid = 0;
                for (slot, to) in to_keys.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                    let key = keys[at + slot];
                    *valid |= (!key >> 63) << slot;
                    *to = key.to_le_bytes();
                }
                rows.copy_from_slice(&payload[at * payload_bytes..][..rows.len()]);
            }
            Ok(())
        })??;
        let stride = bucket_bytes + TAG_BYTES;
        for (level, open) in (0..levels).zip(self.open.chunks_exact(bucket_bytes)) {
            let index = leaf >> (levels - 1 - level);
            let bucket = (1 << level) - 1 + index as usize;
            let counter = self.shape.tree().passes(self.evictions, level, index.into()) + 1;
            let sealed = &mut self.sealed[bucket * stride..][..stride];
            let (text, tag) = sealed.split_at_mut(bucket_bytes);
            text.copy_from_slice(open);
            let nonce = group_nonce(bucket as u64, counter);
            tag.copy_from_slice(&self.key.seal_in_place(&nonce, b"", text));
        }
        self.evictions += 1;
        self.fresh = 0;
        self.stopped = false;
        Ok(())
    }
}

/// Opens bucket `bucket`, a copy of its sealed bytes, in place.
fn open_bucket(
    key: &Key,
    bucket: usize,
    counter: u64,
    open: &mut [u8],
    tag: &[u8],
) -> Result<(), Forged> {
    let tag = tag.try_into().map_err(|_| Forged)?;
    key.open_in_place(&group_nonce(bucket as u64, counter), b"", open, tag)
}

#[cfg(test)]
mod tests;
