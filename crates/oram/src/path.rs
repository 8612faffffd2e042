//! Path ORAM on SSD, the baseline that FEDORA is measured against (its *Path ORAM+*, section 6.1).
//!
//! Sub-trees of a few levels share a page of 4 KiB, so that a path is ceil(levels / height) pages.
//! Each access reads them, moves the block to the stash, evicts to the same path and writes all of them
//! again. A row of a round costs two accesses, one to take it and one to put it back;
//! [`rounds`] has whole rounds, with the same union, number of rows and buffer as ours.
//!
//! It is here to be measured: it has no journal, it does not find out a page that was put back to an
//! older state, and [`PathOram::create`] places rows where it likes, without hiding where.

pub mod rounds;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

use crate::bucket::{DUMMY, HEAD_BYTES, block_bytes, clear, id, set_head};
use crate::disk::{Counters, DiskError, PAGE_BYTES, Pages, Run, Store};
use crate::evict::{Eviction, StashOverflow};
use crate::oblivious::{Mask, or_into_if};
use crate::seal::Key;
use crate::shape::Shape;

const NONCE_BYTES: usize = 16;
const TAG_BYTES: usize = 16;
/// Blocks that may stay in the stash, times the levels, as in FEDORA's artifact.
const STASH_PER_LEVEL: usize = 4;
/// Rows a slot when a tree is built, at most.
const LOAD_MAX: f64 = 0.75;

/// Why an access failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The stash.
    #[error(transparent)]
    Stash(#[from] StashOverflow),
    /// A page is not one of this tree's.
    #[error("page {page} was changed, or is sealed under another key")]
    Forged {
        /// Its number.
        page: u64,
    },
    /// Rows of this size do not fit.
    #[error("rows of {payload_bytes} bytes: 3 of them do not fit in a page")]
    Payload {
        /// A row's bytes.
        payload_bytes: usize,
    },
    /// The row is in neither path nor stash.
    #[error("a row that the position map has is not in the tree")]
    Missing,
    /// What a round has beside the tree.
    #[error(transparent)]
    Round(Box<crate::round::Error>),
    /// No entropy.
    #[error(transparent)]
    Entropy(#[from] hushtable_prg::EntropyError),
}

impl From<crate::round::Error> for PathError {
    fn from(error: crate::round::Error) -> Self {
        Self::Round(Box::new(error))
    }
}

/// The shape of a Path ORAM tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathShape {
    /// Levels.
    pub levels: u32,
    /// Z: blocks of a bucket.
    pub slots: usize,
    /// Levels of the sub-tree in a page.
    pub height: u32,
    /// Bytes of a row.
    pub payload_bytes: usize,
}

impl PathShape {
    /// The shape for a table: the highest sub-trees whose buckets hold three blocks or more, and the
    /// smallest tree that is at most three quarters full.
    ///
    /// # Errors
    ///
    /// Rows that do not fit.
    pub fn new(rows: u64, payload_bytes: usize) -> Result<Self, PathError> {
        // Id and leaf of four bytes each.
        let block = block_bytes(payload_bytes);
        let room = PAGE_BYTES - NONCE_BYTES - TAG_BYTES;
        let slots = |height: u32| room / ((1 << height) - 1) / block;
        let height = (1..=8).rev().find(|&height| slots(height) >= 3);
        let height = height.ok_or(PathError::Payload { payload_bytes })?;
        let slots = slots(height);
        let mut levels = 1;
        while rows as f64 > LOAD_MAX * slots as f64 * ((1u64 << levels) - 1) as f64 {
            levels += 1;
        }
        Ok(Self { levels, slots, height, payload_bytes })
    }

    /// Leaves.
    pub fn leaves(&self) -> u32 {
        1 << (self.levels - 1)
    }

    /// Pages of a path.
    pub fn path_pages(&self) -> u32 {
        self.levels.div_ceil(self.height)
    }

    /// Bytes written for a request: two accesses' paths.
    pub fn written_bytes_per_request(&self) -> u64 {
        2 * u64::from(self.path_pages()) * PAGE_BYTES as u64
    }

    /// Pages of the tree.
    pub fn pages(&self) -> u64 {
        (0..self.path_pages()).map(|group| 1u64 << self.group_level(group)).sum()
    }

    /// The first level of a group; only the topmost may be lower than the others.
    fn group_level(&self, group: u32) -> u32 {
        (self.levels + group * self.height).saturating_sub(self.path_pages() * self.height)
    }

    /// The page of a level of the path to `leaf`, and the bucket's place in it.
    fn place(&self, level: u32, leaf: u32) -> (u64, usize) {
        let groups = self.path_pages();
        let group = (0..groups).rev().find(|&group| self.group_level(group) <= level).unwrap_or(0);
        let first = self.group_level(group);
        let root = u64::from(leaf >> (self.levels - 1 - first));
        let before: u64 = (0..group).map(|above| 1u64 << self.group_level(above)).sum();
        let within = (leaf >> (self.levels - 1 - level)) & ((1 << (level - first)) - 1);
        (before + root, (1usize << (level - first)) - 1 + within as usize)
    }
}

/// Path ORAM over a store.
pub struct PathOram {
    shape: PathShape,
    key: Key,
    store: Box<dyn Store>,
    eviction: Eviction,
    stash: Vec<u8>,
    pages: Pages,
    block: Vec<u8>,
    random: ChaCha20Rng,
}

impl PathOram {
    /// A tree with the rows of `leaves`, whose payloads `fill` writes, in `store`
    /// ([`PathShape::pages`] pages). Where rows go shows: see the [module](self).
    ///
    /// # Errors
    ///
    /// The disk.
    pub fn create(
        shape: PathShape,
        key: &Key,
        mut store: Box<dyn Store>,
        leaves: &[u32],
        fill: &mut dyn FnMut(u32, &mut [u8]),
    ) -> Result<Self, PathError> {
        let mut seed = [0; 32];
        hushtable_prg::fill_random(&mut seed)?;
        let mut random = ChaCha20Rng::from_seed(seed);
        let key = key.derive("path oram");
        let stride = block_bytes(shape.payload_bytes);
        let bound = STASH_PER_LEVEL * shape.levels as usize;
        let mut stash = vec![0; (bound + 1) * stride];
        clear(&mut stash, stride);
        // Which rows each bucket holds: level order, leaf first.
        let mut buckets: Vec<Vec<u32>> = vec![Vec::new(); (1 << shape.levels) - 1];
        let mut stashed = 0;
        for (row, &leaf) in (0..).zip(leaves) {
            let at = (0..shape.levels).rev().map(|level| {
                let index = leaf >> (shape.levels - 1 - level);
                (1usize << level) - 1 + index as usize
            });
            match at.into_iter().find(|&at| buckets[at].len() < shape.slots) {
                Some(at) => buckets[at].push(row),
                None if stashed < bound => {
                    let block = &mut stash[stashed * stride..][..stride];
                    set_head(block, row, leaf);
                    fill(row, &mut block[HEAD_BYTES..]);
                    stashed += 1;
                }
                None => return Err(StashOverflow { bound }.into()),
            }
        }
        let mut pages = Pages::new();
        let mut page_number = 0;
        for group in 0..shape.path_pages() {
            let first = shape.group_level(group);
            let height =
                shape.levels.min(first + shape.height).min(if group + 1 < shape.path_pages() {
                    shape.group_level(group + 1)
                } else {
                    shape.levels
                }) - first;
            for batch in (0..1u64 << first).step_by(256) {
                let count = ((1u64 << first) - batch).min(256);
                pages.resize(count as usize);
                for at in 0..count {
                    let page = pages.page_mut(at as usize);
                    let text = &mut page[NONCE_BYTES..PAGE_BYTES - TAG_BYTES];
                    text.fill(0);
                    clear_blocks(text, stride);
                    for depth in 0..height {
                        for within in 0..1u64 << depth {
                            let level = first + depth;
                            let index = (batch + at) << depth | within;
                            let rows = &buckets[(1usize << level) - 1 + index as usize];
                            let place = (1usize << depth) - 1 + within as usize;
                            let own = &mut text[place * shape.slots * stride..];
                            for (block, &row) in own.chunks_exact_mut(stride).zip(rows) {
                                set_head(block, row, leaves[row as usize]);
                                fill(row, &mut block[HEAD_BYTES..]);
                            }
                        }
                    }
                    seal(&key, page_number + at, page, &mut random);
                }
                store.write(&[Run { first_page: page_number, pages: count as u32 }], &pages)?;
                page_number += count;
            }
        }
        store.sync()?;
        Ok(Self {
            eviction: Eviction::of(
                Shape::binary(shape.levels),
                shape.slots,
                0,
                (bound, bound + 1),
                shape.payload_bytes,
            ),
            block: vec![0; stride],
            shape,
            key,
            store,
            stash,
            pages,
            random,
        })
    }

    /// Its shape.
    pub fn shape(&self) -> &PathShape {
        &self.shape
    }

    /// What the disk has done.
    pub fn counters(&self) -> Counters {
        self.store.counters()
    }

    /// Makes all that was written durable.
    ///
    /// # Errors
    ///
    /// The disk.
    pub fn sync(&mut self) -> Result<(), PathError> {
        Ok(self.store.sync()?)
    }

    /// Gives the payload of row `id`, at `leaf`, to `change`, and moves the row to `fresh`. A dummy
    /// ([`DUMMY`]) reads and writes a path as well, and `change` is given zeros.
    ///
    /// # Errors
    ///
    /// The disk, a changed page, a full stash, a row that is not there.
    pub fn access(
        &mut self,
        id_wanted: u32,
        leaf: u32,
        fresh: u32,
        change: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), PathError> {
        let (shape, stride) = (self.shape, self.block.len());
        let mut numbers: Vec<u64> =
            (0..shape.levels).map(|level| shape.place(level, leaf).0).collect();
        numbers.dedup();
        let runs: Vec<Run> = numbers.iter().map(|&page| Run::page(page)).collect();
        self.store.read(&runs, &mut self.pages)?;
        for (at, &page) in numbers.iter().enumerate() {
            open(&self.key, page, self.pages.page_mut(at))?;
        }
        let bucket_bytes = shape.slots * stride;
        let range = |level: u32| {
            let (page, place) = shape.place(level, leaf);
            let at = numbers.iter().position(|&number| number == page).expect("a page of the path");
            let start = NONCE_BYTES + place * bucket_bytes;
            (at, start..start + bucket_bytes)
        };
        for level in 0..shape.levels {
            let (at, range) = range(level);
            self.eviction.bucket_mut(level as usize).copy_from_slice(&self.pages.page(at)[range]);
        }
        self.block.fill(0);
        let is_row = rounds::is_dummy(id_wanted).not();
        let mut found = is_row.not();
        let buckets = (0..shape.levels as usize).map(Some).chain([None]);
        for bucket in buckets {
            let blocks = match bucket {
                Some(level) => self.eviction.bucket_mut(level),
                None => &mut self.stash[..],
            };
            for block in blocks.chunks_exact_mut(stride) {
                let here = Mask::equal(u64::from(id(block)), u64::from(id_wanted)).and(is_row);
                or_into_if(here, &mut self.block, block);
                found = found.or(here);
                let id = id(block) | here.bits() as u32;
                block[..4].copy_from_slice(&id.to_le_bytes());
            }
        }
        let mut all_found = found.bit();
        hushtable_prg::valgrind::declassify(&mut all_found);
        if all_found == 0 {
            return Err(PathError::Missing);
        }
        change(&mut self.block[HEAD_BYTES..]);
        set_head(&mut self.block, id_wanted, fresh);
        let last = self.stash.len() - stride;
        self.stash[last..].copy_from_slice(&self.block);
        self.eviction.stash_mut().copy_from_slice(&self.stash);
        self.eviction.run(leaf)?;
        self.stash.copy_from_slice(self.eviction.stash_mut());
        for level in 0..shape.levels {
            let (at, range) = range(level);
            self.pages.page_mut(at)[range]
                .copy_from_slice(self.eviction.bucket_mut(level as usize));
        }
        for (at, &page) in numbers.iter().enumerate() {
            seal(&self.key, page, self.pages.page_mut(at), &mut self.random);
        }
        self.store.write(&runs, &self.pages)?;
        Ok(())
    }
}

fn clear_blocks(text: &mut [u8], stride: usize) {
    for block in text.chunks_exact_mut(stride) {
        set_head(block, DUMMY, 0);
    }
}

fn nonce(random: &[u8], page: u64) -> [u8; 32] {
    let mut nonce = [0; 32];
    nonce[..NONCE_BYTES].copy_from_slice(random);
    nonce[NONCE_BYTES..24].copy_from_slice(&page.to_le_bytes());
    nonce
}

fn seal(key: &Key, page: u64, bytes: &mut [u8; PAGE_BYTES], random: &mut impl Rng) {
    let (head, rest) = bytes.split_at_mut(NONCE_BYTES);
    let (text, tag) = rest.split_at_mut(PAGE_BYTES - NONCE_BYTES - TAG_BYTES);
    random.fill_bytes(head);
    tag.copy_from_slice(&key.seal_in_place(&nonce(head, page), &[], text));
}

fn open(key: &Key, page: u64, bytes: &mut [u8; PAGE_BYTES]) -> Result<(), PathError> {
    let (head, rest) = bytes.split_at_mut(NONCE_BYTES);
    let (text, tag) = rest.split_at_mut(PAGE_BYTES - NONCE_BYTES - TAG_BYTES);
    let tag: &[u8; TAG_BYTES] = (&*tag).try_into().expect("a tag's bytes");
    key.open_in_place(&nonce(head, page), &[], text, tag).map_err(|_| PathError::Forged { page })
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::disk::MemoryStore;

    #[test]
    fn the_papers_tables_have_the_papers_paths() {
        for (rows, bytes, written) in [
            (10_000_000, 64, 49_152),
            (50_000_000, 128, 65_536),
            (250_000_000, 256, 106_496),
            (1_000_000, 64, 40_960),
        ] {
            assert_eq!(PathShape::new(rows, bytes).unwrap().written_bytes_per_request(), written);
        }
        assert!(PathShape::new(10, 2000).is_err());
    }

    #[test]
    fn every_bucket_of_a_path_has_a_place_of_its_own() {
        for levels in 1..=9 {
            let shape = PathShape { levels, slots: 3, height: 4, payload_bytes: 64 };
            let mut places = std::collections::HashMap::new();
            for leaf in 0..shape.leaves() {
                for level in 0..levels {
                    let (page, place) = shape.place(level, leaf);
                    assert!(page < shape.pages());
                    let node = (level, leaf >> (levels - 1 - level));
                    assert_eq!(*places.entry((page, place)).or_insert(node), node);
                }
            }
            assert_eq!(places.len(), (1 << levels) - 1);
        }
    }

    #[test]
    fn rows_are_as_they_were_last_written() {
        let rows = 2000_u32;
        let shape = PathShape::new(u64::from(rows), 64).unwrap();
        let mut random = ChaCha20Rng::seed_from_u64(3);
        let mut leaves: Vec<u32> =
            (0..rows).map(|_| random.random_range(0..shape.leaves())).collect();
        let store = Box::new(MemoryStore::new(shape.pages() as usize));
        let key = Key::from_bytes([2; 32]);
        let mut memory =
            PathOram::create(shape, &key, store, &leaves, &mut |row, to| to.fill(row as u8))
                .unwrap();
        let mut expected: Vec<u8> = (0..rows).map(|row| row as u8).collect();
        for step in 0..6000_u32 {
            let row = random.random_range(0..rows) as usize;
            let fresh = random.random_range(0..shape.leaves());
            let leaf = std::mem::replace(&mut leaves[row], fresh);
            let was = std::mem::replace(&mut expected[row], step as u8);
            memory
                .access(row as u32, leaf, fresh, &mut |payload| {
                    assert!(payload.iter().all(|&byte| byte == was));
                    payload.fill(step as u8);
                })
                .unwrap();
        }
        let expected_bytes = 6000 * u64::from(shape.path_pages()) * PAGE_BYTES as u64;
        assert_eq!(
            memory.counters().written_bytes - shape.pages() * PAGE_BYTES as u64,
            expected_bytes
        );
        assert!(matches!(memory.access(rows, 0, 0, &mut |_| {}), Err(PathError::Missing)));
    }
}
