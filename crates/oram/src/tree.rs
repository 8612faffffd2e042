//! The tree's buckets: sealed on disk in two copies each, the top levels in memory.
//!
//! Whatever is read and written here follows from public numbers: which buckets, and how many
//! evictions there have been. A bucket is written to the copy that was not committed last, so that up
//! to the moment at which a round is committed all of the state before it is on disk, whole.

use std::collections::HashMap;

use rand_chacha::ChaCha20Rng;

use crate::attempt::{Attempts, Version};
use crate::bucket::{BucketCodec, clear};
use crate::disk::{Counters, DiskError, PAGE_BYTES, Pages, Run, Store};
use crate::geometry::{Geometry, passes};
use crate::layout::{COPIES, Layout, number, place};
use crate::seal::Key;

/// Pages that are read through to make one read of two: a disk's read costs about the same up to 16 KiB.
const GAP_PAGES: u64 = 2;
/// The longest read or write, in pages.
const RUN_PAGES_MAX: u32 = 256;

/// Why a tree could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The disk.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A bucket is not what this tree wrote last.
    #[error(
        "bucket {index} of level {level} is not what was written last: the file was changed, put back to an \
         older state, or belongs to another table or key. `hushtable train recover FOLDER` says which rows can be \
         kept; a backup, if you have one, `hushtable train restore`"
    )]
    Forged {
        /// Its level, the root's 0.
        level: u32,
        /// Its index in the level.
        index: u64,
    },
}

/// Buckets in memory, opened, while a round works on them.
#[derive(Default)]
pub struct Window {
    /// Ascending.
    numbers: Vec<u64>,
    at: HashMap<u64, usize>,
    blocks: Vec<u8>,
    open_bytes: usize,
}

impl Window {
    /// A bucket of the window.
    pub fn bucket(&self, number: u64) -> &[u8] {
        let at = self.at[&number] * self.open_bytes;
        &self.blocks[at..at + self.open_bytes]
    }

    /// A bucket of the window, to change.
    pub fn bucket_mut(&mut self, number: u64) -> &mut [u8] {
        let at = self.at[&number] * self.open_bytes;
        &mut self.blocks[at..at + self.open_bytes]
    }

    /// The numbers of its buckets, ascending.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }
}

/// The numbers of the buckets on the paths of `leaves`, each once, ascending.
pub fn union_of_paths(leaves: &[u32], levels: u32) -> Vec<u64> {
    let mut leaves = leaves.to_vec();
    leaves.sort_unstable();
    let mut numbers = Vec::new();
    for level in 0..levels {
        let shift = levels - 1 - level;
        let mut last = None;
        for &leaf in &leaves {
            let index = u64::from(leaf) >> shift;
            if last != Some(index) {
                numbers.push(number(level, index));
                last = Some(index);
            }
        }
    }
    numbers
}

/// The numbers of the buckets on the path of `leaf`, the root's first.
pub fn path(leaf: u32, levels: u32) -> impl Iterator<Item = u64> {
    (0..levels).map(move |level| number(level, u64::from(leaf) >> (levels - 1 - level)))
}

/// The sealed buckets of one tree.
pub struct Tree {
    geometry: Geometry,
    layout: Layout,
    codec: BucketCodec,
    key: Key,
    store: Box<dyn Store>,
    /// Buckets below this number are in memory.
    cached_buckets: u64,
    cached: Pages,
    /// Which of the cached buckets hold something; after a restart none does.
    present: Vec<bool>,
    /// The committed copy of each bucket, and whether this round wrote the other one.
    copies: BitSet,
    fresh: BitSet,
    attempts: Attempts,
    random: ChaCha20Rng,
    pages: Pages,
}

/// A bit a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitSet(Vec<u64>);

impl BitSet {
    /// All zeros.
    pub fn new(count: u64) -> Self {
        Self(vec![0; count.div_ceil(64) as usize])
    }
    /// From words, 64 bits each; the number of words must be right.
    pub fn from_words(words: Vec<u64>, count: u64) -> Option<Self> {
        (words.len() as u64 == count.div_ceil(64)).then_some(Self(words))
    }
    /// The words.
    pub fn words(&self) -> &[u64] {
        &self.0
    }
    pub(crate) fn bit(&self, at: u64) -> u64 {
        self.0[(at / 64) as usize] >> (at % 64) & 1
    }
    pub(crate) fn flip(&mut self, at: u64) {
        self.0[(at / 64) as usize] ^= 1 << (at % 64);
    }
    fn set(&mut self, at: u64) {
        self.0[(at / 64) as usize] |= 1 << (at % 64);
    }
}

impl Tree {
    /// A new tree (`copies` all zeros), or a tree whose levels below the cached ones are in `store`.
    /// `attempts` says who wrote them; its last attempt writes from now on. The cached levels start
    /// empty.
    pub fn new(
        geometry: Geometry,
        cached_levels: u32,
        key: Key,
        store: Box<dyn Store>,
        copies: BitSet,
        attempts: Attempts,
        random: ChaCha20Rng,
    ) -> Self {
        let cached_buckets = (1u64 << cached_levels.min(geometry.levels())) - 1;
        let buckets = geometry.buckets();
        Self {
            layout: Layout::new(&geometry),
            codec: BucketCodec::new(&geometry),
            geometry,
            key,
            store,
            cached_buckets,
            cached: Pages::with_count(cached_buckets as usize),
            present: vec![false; cached_buckets as usize],
            copies,
            fresh: BitSet::new(buckets),
            attempts,
            random,
            pages: Pages::new(),
        }
    }

    /// The tree's shape.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The first level that is on disk.
    pub fn boundary(&self) -> u32 {
        (self.cached_buckets + 1).ilog2()
    }

    /// Bytes of an opened bucket.
    pub fn open_bytes(&self) -> usize {
        self.codec.open_bytes()
    }

    /// What the disk has done.
    pub fn counters(&self) -> Counters {
        self.store.counters()
    }

    /// The committed copies, for the record of a checkpoint.
    pub fn copies(&self) -> &BitSet {
        &self.copies
    }

    /// Which attempts wrote it, for the record of a checkpoint.
    pub fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    fn current_page(&self, number: u64) -> u64 {
        self.layout.page(number, self.copies.bit(number) ^ self.fresh.bit(number))
    }

    /// A bucket as this attempt seals it after `evictions` evictions.
    fn own_version(&self, number: u64, evictions: u64) -> Version {
        let (level, index) = place(number);
        let counter = passes(evictions, level, index);
        Version { number, counter, attempt: self.attempts.current() }
    }

    /// Opens the buckets `numbers` (ascending) as they are after `evictions` evictions.
    ///
    /// # Errors
    ///
    /// The disk, or a bucket that is not what was written last.
    pub fn load(
        &mut self,
        numbers: Vec<u64>,
        evictions: u64,
        window: &mut Window,
    ) -> Result<(), TreeError> {
        let open_bytes = self.codec.open_bytes();
        window.at = numbers.iter().enumerate().map(|(at, &number)| (number, at)).collect();
        window.numbers = numbers;
        window.open_bytes = open_bytes;
        window.blocks.resize(window.numbers.len() * open_bytes, 0);
        let block_bytes = open_bytes / self.geometry.slots();
        let mut on_disk = Vec::new();
        for (at, &number) in window.numbers.iter().enumerate() {
            let blocks = &mut window.blocks[at * open_bytes..][..open_bytes];
            let is_cached = number < self.cached_buckets;
            let version = self.attempts.version(number, evictions);
            let Some(version) = version.filter(|_| !is_cached || self.present[number as usize])
            else {
                clear(blocks, block_bytes);
                continue;
            };
            if is_cached {
                self.pages.resize(1);
                let page = self.pages.page_mut(0);
                page.copy_from_slice(self.cached.page(number as usize));
                let version = Version { attempt: self.attempts.current(), ..version };
                self.codec.open(&self.key, &version, page, blocks).map_err(|_| forged(number))?;
            } else {
                on_disk.push((self.current_page(number), at, version));
            }
        }
        on_disk.sort_unstable_by_key(|&(page, ..)| page);
        self.open_from_disk(&on_disk, window)
    }

    /// Opens what is on disk as it comes: (page, place in the window, version), ascending.
    fn open_from_disk(
        &mut self,
        wanted: &[(u64, usize, Version)],
        window: &mut Window,
    ) -> Result<(), TreeError> {
        let pages: Vec<u64> = wanted.iter().map(|&(page, ..)| page).collect();
        let runs = Layout::runs(&pages, GAP_PAGES, RUN_PAGES_MAX);
        // Where each run's first wanted page is.
        let mut starts = Vec::with_capacity(runs.len());
        let mut next = 0;
        for run in &runs {
            starts.push(next);
            let end = run.first_page + u64::from(run.pages);
            next += pages[next..].partition_point(|&page| page < end);
        }
        let (codec, key, open_bytes) = (&self.codec, &self.key, window.open_bytes);
        let mut wrong = None;
        self.store.read_each(&runs, &mut |index, bytes| {
            let run: Run = runs[index];
            let end = starts.get(index + 1).copied().unwrap_or(wanted.len());
            for (page, at, version) in &wanted[starts[index]..end] {
                let from = (page - run.first_page) as usize * PAGE_BYTES;
                let page = &mut bytes[from..from + PAGE_BYTES];
                let blocks = &mut window.blocks[at * open_bytes..][..open_bytes];
                if codec.open(key, version, page, blocks).is_err() {
                    wrong = Some(forged(version.number));
                }
            }
        })?;
        wrong.map_or(Ok(()), Err)
    }

    /// Seals the window's buckets as they are after `evictions` evictions and writes those that are on
    /// disk to their other copy. Durable after [`sync`](Self::sync), in force after
    /// [`commit`](Self::commit).
    ///
    /// # Errors
    ///
    /// The disk.
    pub fn save(&mut self, window: &Window, evictions: u64) -> Result<(), TreeError> {
        let mut on_disk = Vec::new();
        for (at, &number) in window.numbers.iter().enumerate() {
            let version = self.own_version(number, evictions);
            if number < self.cached_buckets {
                let blocks = &window.blocks[at * window.open_bytes..][..window.open_bytes];
                let page = self.cached.page_mut(number as usize);
                self.codec.seal(&self.key, &version, blocks, page, &mut self.random);
                self.present[number as usize] = true;
            } else {
                self.fresh.set(number);
                on_disk.push((self.current_page(number), at, version));
            }
        }
        on_disk.sort_unstable_by_key(|&(page, ..)| page);
        for batch in on_disk.chunks(8 * RUN_PAGES_MAX as usize) {
            self.pages.resize(batch.len());
            for (to, (_, at, version)) in batch.iter().enumerate() {
                let blocks = &window.blocks[at * window.open_bytes..][..window.open_bytes];
                let page = self.pages.page_mut(to);
                self.codec.seal(&self.key, version, blocks, page, &mut self.random);
            }
            let pages: Vec<u64> = batch.iter().map(|&(page, ..)| page).collect();
            self.store.write(&Layout::runs(&pages, 0, RUN_PAGES_MAX), &self.pages)?;
        }
        Ok(())
    }

    /// Writes the cached levels to disk, so that the journal of what is in them may be dropped: all
    /// that evictions ever passed, whether they hold something or not.
    ///
    /// # Errors
    ///
    /// The disk.
    pub fn flush(&mut self, evictions: u64) -> Result<(), TreeError> {
        let mut empty = vec![0; self.codec.open_bytes()];
        clear(&mut empty, self.codec.open_bytes() / self.geometry.slots());
        let mut wanted = Vec::new();
        for number in 0..self.cached_buckets {
            let version = self.own_version(number, evictions);
            if version.counter == 0 {
                continue;
            }
            if !self.present[number as usize] {
                let page = self.cached.page_mut(number as usize);
                self.codec.seal(&self.key, &version, &empty, page, &mut self.random);
                self.present[number as usize] = true;
            }
            self.fresh.set(number);
            wanted.push((self.current_page(number), number));
        }
        wanted.sort_unstable();
        for batch in wanted.chunks(8 * RUN_PAGES_MAX as usize) {
            self.pages.resize(batch.len());
            for (to, &(_, number)) in batch.iter().enumerate() {
                self.pages.page_mut(to).copy_from_slice(self.cached.page(number as usize));
            }
            let pages: Vec<u64> = batch.iter().map(|&(page, _)| page).collect();
            self.store.write(&Layout::runs(&pages, 0, RUN_PAGES_MAX), &self.pages)?;
        }
        Ok(())
    }

    /// Makes what was saved durable.
    ///
    /// # Errors
    ///
    /// The disk.
    pub fn sync(&mut self) -> Result<(), TreeError> {
        Ok(self.store.sync()?)
    }

    /// Puts the copies that were written since the last commit in force.
    pub fn commit(&mut self) {
        for (copy, fresh) in self.copies.0.iter_mut().zip(&mut self.fresh.0) {
            *copy ^= *fresh;
            *fresh = 0;
        }
    }

    /// Puts in force what a committed round wrote, by its numbers: for a journal that is read again.
    pub fn replay(&mut self, numbers: &[u64]) {
        for &number in numbers {
            if number >= self.cached_buckets {
                self.copies.flip(number);
            }
        }
    }

    /// Opens every bucket that is on disk, in the file's order: `evictions` says how many evictions
    /// the levels from the boundary down have seen, `flushed` how many the cached ones had when they
    /// were last written. Calls `each` with the bucket's number and blocks.
    ///
    /// # Errors
    ///
    /// The disk, or a bucket that is not what was written last.
    pub fn scan(
        &mut self,
        (evictions, flushed): (u64, u64),
        each: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<(), TreeError> {
        let mut wanted: Vec<(u64, Version)> = Vec::new();
        for number in 0..self.geometry.buckets() {
            let version = match number < self.cached_buckets {
                true => self.attempts.flushed_version(number, flushed),
                false => self.attempts.version(number, evictions),
            };
            wanted.extend(version.map(|version| (self.current_page(number), version)));
        }
        wanted.sort_unstable_by_key(|&(page, _)| page);
        let mut blocks = vec![0; self.codec.open_bytes()];
        let all = self.layout.pages();
        let (mut first, mut next) = (0, 0);
        while first < all {
            let run =
                Run { first_page: first, pages: u64::from(RUN_PAGES_MAX).min(all - first) as u32 };
            self.store.read(&[run], &mut self.pages)?;
            first += u64::from(run.pages);
            while let Some((page, version)) = wanted.get(next).filter(|wanted| wanted.0 < first) {
                let bytes = self.pages.page_mut((page - run.first_page) as usize);
                let opened = self.codec.open(&self.key, version, bytes, &mut blocks);
                opened.map_err(|_| forged(version.number))?;
                each(version.number, &blocks);
                next += 1;
            }
        }
        Ok(())
    }

    /// Pages of a store for this shape.
    pub fn pages_of(geometry: &Geometry) -> u64 {
        geometry.buckets() * COPIES
    }
}

/// The error of a bucket that does not open.
fn forged(number: u64) -> TreeError {
    let (level, index) = place(number);
    TreeError::Forged { level, index }
}
