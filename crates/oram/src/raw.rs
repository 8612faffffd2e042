//! The main memory: a RAW ORAM whose reads write nothing to disk (FEDORA 4.4).
//!
//! A round first reads and then writes. [`RawOram::fetch`] takes blocks out: it reads paths, and what
//! it changes are valid bits in the [`Vtree`], in memory. [`RawOram::write`] puts blocks in: they go
//! to the stash, and after every A of them one path is evicted, in an order that is fixed for ever.
//! A table is built by `write` alone, so a fresh tree is one that the bound on the stash covers.
//!
//! Both work on *windows*: the paths of many blocks, or of many evictions, are read together, each
//! bucket once, and an evicted bucket is written once however many of the window's evictions pass it.

use std::time::Instant;

use crate::bucket::{DUMMY, HEAD_BYTES, block_bytes, clear, id};
use crate::evict::{Eviction, StashOverflow};
use crate::geometry::Geometry;
use crate::oblivious::{Mask, or_into_if};
use crate::seal::Forged;
use crate::tree::{Tree, TreeError, Window};
use crate::vtree::Vtree;

/// Why the memory could not go on. What was committed is on disk as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RawError {
    /// The buckets.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The valid bits.
    #[error(
        "the valid bits in memory are not what was written last: this machine's memory was changed"
    )]
    ValidBits(#[from] Forged),
    /// The stash.
    #[error(transparent)]
    Stash(#[from] StashOverflow),
}

/// A block to take out: its id, secret, and its leaf, which reading it tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// The row, or [`DUMMY`].
    pub id: u32,
    /// The leaf that the position map has for it, or any random one for a dummy.
    pub leaf: u32,
}

/// Microseconds since the memory was made, by what they went to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Reading and opening buckets.
    pub load_us: u64,
    /// Finding blocks, with what the caller did with them.
    pub find_us: u64,
    /// Evictions.
    pub evict_us: u64,
    /// Sealing and writing buckets.
    pub save_us: u64,
}

/// The tree, its valid bits and its stash.
pub struct RawOram {
    tree: Tree,
    valid: Vtree,
    eviction: Eviction,
    /// [`Geometry::stash_bound`] blocks that stayed, then those that wait for the next eviction.
    stash: Vec<u8>,
    waiting: usize,
    evictions: u64,
    window: Window,
    window_bytes_max: u64,
    stride: usize,
    times: Times,
}

impl RawOram {
    /// A memory over `tree`, whose valid bits are `valid`, after `evictions` evictions, its stash
    /// empty. Windows take up to `window_bytes_max` bytes.
    pub fn new(tree: Tree, valid: Vtree, evictions: u64, window_bytes_max: u64) -> Self {
        let geometry = *tree.geometry();
        let stride = block_bytes(geometry.payload_bytes());
        let mut stash = vec![0; geometry.stash_capacity() * stride];
        clear(&mut stash, stride);
        Self {
            eviction: Eviction::new(&geometry, tree.boundary()),
            tree,
            valid,
            stash,
            waiting: 0,
            evictions,
            window: Window::default(),
            window_bytes_max,
            stride,
            times: Times::default(),
        }
    }

    /// The tree's shape.
    pub fn geometry(&self) -> &Geometry {
        self.tree.geometry()
    }

    /// Evictions so far: the root counter.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Blocks that entered since the last eviction; fewer than A.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// The stash's blocks, for the record of a checkpoint.
    pub fn stash(&self) -> &[u8] {
        &self.stash
    }

    /// Blocks in the stash; for tests and figures, since it tells what a stash should not.
    #[doc(hidden)]
    pub fn stash_count(&self) -> usize {
        self.stash.chunks_exact(self.stride).filter(|block| id(block) != DUMMY).count()
    }

    /// Where the time went.
    pub fn times(&self) -> Times {
        self.times
    }

    /// The buckets.
    pub fn tree_mut(&mut self) -> &mut Tree {
        &mut self.tree
    }

    /// The buckets.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Puts in force what was written since the last commit.
    pub fn commit(&mut self) {
        self.tree.commit(self.evictions);
    }

    /// How many paths fit in a window.
    fn window_paths(&self, most: usize) -> usize {
        let shape = self.geometry().shape();
        let levels = shape.levels();
        let buckets_max =
            (self.window_bytes_max / self.tree.open_bytes() as u64).max(u64::from(levels));
        let mut paths = most.max(1);
        let buckets = |paths: usize| {
            (0..levels).map(|level| shape.nodes(level).min(paths as u64)).sum::<u64>()
        };
        while paths > 1 && buckets(paths) > buckets_max {
            paths = paths.div_ceil(2);
        }
        paths
    }

    /// Takes blocks out, in order: `each` is given a request's index, the payload (zeros if there was
    /// no such block) and whether there was. The stash and the tree no longer hold them.
    ///
    /// Reads the union of the leaves' paths; which block is looked for shows nowhere.
    ///
    /// # Errors
    ///
    /// The disk, or state that was tampered with.
    pub fn fetch(
        &mut self,
        requests: &[Fetch],
        each: &mut dyn FnMut(usize, &[u8], Mask),
    ) -> Result<(), RawError> {
        let shape = self.geometry().shape();
        let words = self.geometry().valid_words();
        let mut payload = vec![0; self.stride - HEAD_BYTES];
        let paths = self.window_paths(requests.len());
        for (batch, window_requests) in requests.chunks(paths).enumerate() {
            let leaves: Vec<u32> = window_requests.iter().map(|request| request.leaf).collect();
            self.load(&leaves)?;
            let clock = Instant::now();
            for (at, request) in window_requests.iter().enumerate() {
                payload.fill(0);
                let mut found = Mask::NO;
                let (window, stride) = (&self.window, self.stride);
                self.valid.update_path(u64::from(request.leaf), |valid| {
                    for (number, valid) in
                        shape.path(request.leaf).zip(valid.chunks_exact_mut(words))
                    {
                        let bucket = window.bucket(number);
                        for (word, blocks) in valid.iter_mut().zip(bucket.chunks(64 * stride)) {
                            found = found.or(take(request.id, blocks, stride, word, &mut payload));
                        }
                    }
                })?;
                for block in self.stash.chunks_exact_mut(self.stride) {
                    let here = Mask::equal(u64::from(id(block)), u64::from(request.id));
                    let real = Mask::equal(u64::from(request.id), u64::from(DUMMY)).not();
                    let here = here.and(real);
                    or_into_if(here, &mut payload, &block[HEAD_BYTES..]);
                    let id = id(block) | here.bits() as u32;
                    block[..4].copy_from_slice(&id.to_le_bytes());
                    found = found.or(here);
                }
                each(batch * paths + at, &payload, found);
            }
            self.times.find_us += micros(clock);
        }
        Ok(())
    }

    /// Puts `count` blocks in: `fill` writes the block of an index (id, leaf, payload; a dummy's id is
    /// [`DUMMY`]). After every A blocks, those of earlier calls included, a path is evicted.
    /// Nothing is durable before the tree is synced and committed.
    ///
    /// # Errors
    ///
    /// The disk, state that was tampered with, a stash over its bound.
    pub fn write(
        &mut self,
        count: usize,
        fill: &mut dyn FnMut(usize, &mut [u8]),
    ) -> Result<(), RawError> {
        let geometry = *self.geometry();
        let (shape, period) = (geometry.shape(), geometry.period());
        let mut due = (self.waiting + count) / period;
        let mut written = 0;
        while due > 0 {
            let paths = self.window_paths(due);
            let leaves: Vec<u32> =
                (0..paths as u64).map(|i| shape.eviction_leaf(self.evictions + i)).collect();
            self.load(&leaves)?;
            let clock = Instant::now();
            for &leaf in &leaves {
                while self.waiting < period {
                    self.enter(written, fill);
                    written += 1;
                }
                self.evict(leaf)?;
            }
            self.times.evict_us += micros(clock);
            let clock = Instant::now();
            self.tree.save(&self.window, self.evictions)?;
            self.times.save_us += micros(clock);
            due -= paths;
        }
        for index in written..count {
            self.enter(index, fill);
        }
        Ok(())
    }

    /// Opens the paths of `leaves`.
    fn load(&mut self, leaves: &[u32]) -> Result<(), RawError> {
        let clock = Instant::now();
        let numbers = self.geometry().shape().union_of_paths(leaves);
        self.tree.load(numbers, self.evictions, &mut self.window)?;
        self.times.load_us += micros(clock);
        Ok(())
    }

    fn enter(&mut self, index: usize, fill: &mut dyn FnMut(usize, &mut [u8])) {
        let at = (self.geometry().stash_bound() + self.waiting) * self.stride;
        fill(index, &mut self.stash[at..at + self.stride]);
        self.waiting += 1;
    }

    /// One eviction, on the window.
    fn evict(&mut self, leaf: u32) -> Result<(), RawError> {
        let geometry = *self.geometry();
        let (shape, slots, words) = (geometry.shape(), geometry.slots(), geometry.valid_words());
        let (window, eviction, stash, stride) =
            (&mut self.window, &mut self.eviction, &mut self.stash, self.stride);
        let mut outcome = Ok(());
        self.valid.update_path(u64::from(leaf), |valid| {
            for (level, number) in shape.path(leaf).enumerate() {
                let blocks = eviction.bucket_mut(level);
                blocks.copy_from_slice(window.bucket(number));
                let valid = &valid[level * words..][..words];
                for (slot, block) in blocks.chunks_exact_mut(stride).enumerate() {
                    let stale = Mask::from_bit(valid[slot / 64] >> (slot % 64) & 1).not();
                    let id = id(block) | stale.bits() as u32;
                    block[..4].copy_from_slice(&id.to_le_bytes());
                }
            }
            eviction.stash_mut().copy_from_slice(stash);
            outcome = eviction.run(leaf);
            for (level, number) in shape.path(leaf).enumerate() {
                let blocks = eviction.bucket_mut(level);
                window.bucket_mut(number).copy_from_slice(blocks);
                let valid = &mut valid[level * words..][..words];
                valid.fill(0);
                for (slot, block) in blocks.chunks_exact(stride).take(slots).enumerate() {
                    let real = Mask::equal(u64::from(id(block)), u64::from(DUMMY)).not();
                    valid[slot / 64] |= real.bit() << (slot % 64);
                }
            }
            stash.copy_from_slice(eviction.stash_mut());
        })?;
        outcome?;
        self.waiting = 0;
        self.evictions += 1;
        Ok(())
    }
}

fn micros(clock: Instant) -> u64 {
    u64::try_from(clock.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Looks for `id` among up to 64 blocks; copies its payload and clears its valid bit.
fn take(id: u32, blocks: &[u8], stride: usize, valid: &mut u64, payload: &mut [u8]) -> Mask {
    let mut found = Mask::NO;
    let mut matches = 0;
    for (slot, block) in blocks.chunks_exact(stride).enumerate() {
        let here = Mask::equal(u64::from(crate::bucket::id(block)), u64::from(id))
            .and(Mask::from_bit(*valid >> slot & 1));
        or_into_if(here, payload, &block[HEAD_BYTES..]);
        matches |= here.bit() << slot;
        found = found.or(here);
    }
    *valid &= !matches;
    found
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha20Rng;

    use super::*;
    use crate::attempt::Attempt;
    use crate::bucket::set_head;
    use crate::disk::MemoryStore;
    use crate::geometry::GeometrySpec;
    use crate::seal::Key;
    use crate::tree::{TreePlace, TreeState};

    fn memory(rows: u64, payload_bytes: usize, cached: u32, window_bytes_max: u64) -> RawOram {
        let geometry = Geometry::new(&GeometrySpec::on_disk(rows, payload_bytes)).unwrap();
        let key = Key::from_bytes([1; 32]);
        let place = TreePlace::new(&geometry, cached, rows as usize);
        let store = Box::new(MemoryStore::new(place.pages() as usize));
        let random = ChaCha20Rng::seed_from_u64(rows);
        let valid =
            Vtree::build(geometry.shape(), geometry.valid_words(), &key, |_, _, w| w.fill(0))
                .unwrap();
        let state = TreeState::first(&place, Attempt::random().unwrap());
        let tree = Tree::new(&place, key, store, state, random);
        RawOram::new(tree, valid, 0, window_bytes_max)
    }

    fn block(to: &mut [u8], id: u32, leaf: u32, version: u8) {
        set_head(to, id, leaf);
        let mut fill = ChaCha20Rng::seed_from_u64(u64::from(id) << 8 | u64::from(version));
        rand::Rng::fill_bytes(&mut fill, &mut to[HEAD_BYTES..]);
    }

    #[test]
    fn what_goes_in_comes_out() {
        for (rows, payload_bytes, cached, window) in [
            (3000_u32, 200, 0, 1 << 30),
            (3000, 200, 3, 1 << 30),
            (900, 24, 2, 1),
            (40, 300, 12, 1 << 20),
        ] {
            let mut random = ChaCha20Rng::seed_from_u64(5);
            let mut memory = memory(u64::from(rows), payload_bytes, cached, window);
            let leaves_count = memory.geometry().leaves() as u32;
            let mut leaves: Vec<u32> =
                (0..rows).map(|_| random.random_range(0..leaves_count)).collect();
            let mut versions = vec![0_u8; rows as usize];
            memory.write(rows as usize, &mut |i, to| block(to, i as u32, leaves[i], 0)).unwrap();
            memory.commit();
            for round in 0..30 {
                let count = random.random_range(1..=300.min(rows as usize));
                let mut ids: Vec<u32> = (0..rows).collect();
                for i in 0..count {
                    let j = random.random_range(i..ids.len());
                    ids.swap(i, j);
                }
                ids.truncate(count);
                ids.iter_mut().step_by(7).for_each(|id| *id = DUMMY);
                let requests: Vec<Fetch> = ids
                    .iter()
                    .map(|&id| Fetch {
                        id,
                        leaf: if id == DUMMY {
                            random.random_range(0..leaves_count)
                        } else {
                            leaves[id as usize]
                        },
                    })
                    .collect();
                memory
                    .fetch(&requests, &mut |i, payload, found| {
                        let mut expected = vec![0; HEAD_BYTES + payload_bytes];
                        if ids[i] != DUMMY {
                            block(&mut expected, ids[i], 0, versions[ids[i] as usize]);
                        }
                        assert_eq!(
                            found.bit() == 1,
                            ids[i] != DUMMY,
                            "round {round}, id {}",
                            ids[i]
                        );
                        assert_eq!(payload, &expected[HEAD_BYTES..], "round {round}");
                    })
                    .unwrap();
                for &id in ids.iter().filter(|&&id| id != DUMMY) {
                    leaves[id as usize] = random.random_range(0..leaves_count);
                    versions[id as usize] = round + 1;
                }
                memory
                    .write(count, &mut |i, to| match ids[i] {
                        DUMMY => set_head(to, DUMMY, 0),
                        id => block(to, id, leaves[id as usize], versions[id as usize]),
                    })
                    .unwrap();
                memory.commit();
                assert!(memory.stash_count() <= memory.geometry().stash_capacity());
            }
        }
    }
}
