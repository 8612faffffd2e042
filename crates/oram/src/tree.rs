//! The tree's buckets: sealed on disk, the top levels in memory.
//!
//! Whatever is read and written here follows from public numbers: which buckets, and how many
//! evictions there have been. A bucket is written where nothing lies that was committed (see the
//! layout), so that up to the moment at which a round is committed all of the state before it is on
//! disk, whole.

use std::collections::HashMap;

use rand_chacha::ChaCha20Rng;

use crate::attempt::{Attempt, Attempts, Version};
use crate::bucket::{BucketCodec, clear};
use crate::disk::{Counters, DiskError, PAGE_BYTES, Pages, Run, Store};
use crate::geometry::Geometry;
use crate::layout::Layout;
use crate::seal::Key;
use crate::shape::Shape;

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
    /// More was to be written at once than there are places to spare. Nothing that was committed is
    /// overwritten.
    #[error(
        "{evictions} evictions were to be written before the next commit, and the file has places to spare for \
         {evictions_max}: commit fewer rows at a time"
    )]
    Spare {
        /// Evictions since the last commit.
        evictions: u64,
        /// The most.
        evictions_max: u64,
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

/// The sealed buckets of one tree.
pub struct Tree {
    geometry: Geometry,
    layout: Layout,
    codec: BucketCodec,
    key: Key,
    store: Box<dyn Store>,
    /// The first level that is on disk, and how many buckets are above it, in memory.
    boundary: u32,
    cached_buckets: u64,
    cached: Pages,
    /// Which of the cached buckets hold something; after a restart none does.
    present: Vec<bool>,
    /// Of the buckets that have two copies which one was committed, and whether the other one was written
    /// since.
    copies: BitSet,
    fresh: BitSet,
    /// Evictions at the last commit; none of a tree that has had none yet, and so nothing to lose.
    committed: Option<u64>,
    attempts: Attempts,
    random: ChaCha20Rng,
    pages: Pages,
}

/// What a tree is, and where its buckets lie.
#[derive(Clone, Copy, Debug)]
pub struct TreePlace {
    geometry: Geometry,
    boundary: u32,
    layout: Layout,
}

impl TreePlace {
    /// A tree of this shape with the levels above `cached_levels` in memory (see
    /// [`Geometry::boundary`]), and up to `rows_max` rows written between two commits.
    pub fn new(geometry: &Geometry, cached_levels: u32, rows_max: usize) -> Self {
        let boundary = geometry.boundary(cached_levels);
        // When it is opened, what was in memory goes in again, and then a round that was cut short.
        let upper = upper_capacity(geometry, boundary).div_ceil(geometry.period());
        let spare = (upper + rows_max.div_ceil(geometry.period())) as u64;
        Self { geometry: *geometry, boundary, layout: Layout::new(geometry, boundary, spare) }
    }

    /// Pages of the file.
    pub fn pages(&self) -> u64 {
        self.layout.pages()
    }

    /// Its shape.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Buckets in memory.
    pub fn cached_buckets(&self) -> u64 {
        self.geometry.shape().above(self.boundary)
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }
}

/// The most blocks that the levels above `boundary` and the stash hold.
pub fn upper_capacity(geometry: &Geometry, boundary: u32) -> usize {
    geometry.shape().above(boundary) as usize * geometry.slots() + geometry.stash_capacity()
}

/// What is known of a tree's file.
pub struct TreeState {
    /// Which copy is in force of the buckets that have two.
    pub copies: BitSet,
    /// Who wrote the buckets; the last attempt writes from now on.
    pub attempts: Attempts,
    /// Evictions at the last commit; none of a new tree.
    pub committed: Option<u64>,
}

impl TreeState {
    /// A new tree's: nothing was written to it, and `attempt` writes from now on.
    pub fn first(place: &TreePlace, attempt: Attempt) -> Self {
        let copies = BitSet::new(place.layout.paired_buckets());
        Self { copies, attempts: Attempts::first(attempt), committed: None }
    }
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
    /// A new tree (`state` is [`TreeState::first`]), or a tree whose levels below the cached ones are in
    /// `store`. The cached levels start empty.
    pub fn new(
        place: &TreePlace,
        key: Key,
        store: Box<dyn Store>,
        state: TreeState,
        random: ChaCha20Rng,
    ) -> Self {
        let TreePlace { geometry, boundary, layout } = *place;
        let TreeState { copies, attempts, committed } = state;
        let cached_buckets = geometry.shape().above(boundary);
        Self {
            layout,
            codec: BucketCodec::new(&geometry),
            geometry,
            key,
            store,
            boundary,
            cached_buckets,
            cached: Pages::with_count((cached_buckets * layout.pages_per_bucket()) as usize),
            present: vec![false; cached_buckets as usize],
            copies,
            fresh: BitSet::new(layout.paired_buckets()),
            committed,
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
        self.boundary
    }

    /// Buckets above it.
    pub fn cached_buckets(&self) -> u64 {
        self.cached_buckets
    }

    /// Pages of its store.
    pub fn pages(&self) -> u64 {
        self.layout.pages()
    }

    /// How many more evictions may be written before a commit, after `evictions` of them; none for any
    /// number.
    pub fn room(&self, evictions: u64) -> Option<u64> {
        let (committed, spare) = (self.committed?, self.layout.spare()?);
        Some((committed + spare).saturating_sub(evictions))
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

    /// Where the bucket is after `evictions` evictions.
    fn place(&self, number: u64, evictions: u64) -> u64 {
        if !self.layout.is_in_ring(number) {
            return self
                .layout
                .pair_place(number, self.copies.bit(number) ^ self.fresh.bit(number));
        }
        let (level, index) = self.geometry.shape().place(number);
        // One that no eviction has passed is nowhere, and nobody asks where.
        let last =
            self.geometry.shape().last_pass(evictions, level, index).map_or(0, |pass| pass.1);
        self.layout.ring_place(level, last)
    }

    /// A bucket as this attempt seals it after `evictions` evictions.
    fn own_version(&self, number: u64, evictions: u64) -> Version {
        let (level, index) = self.geometry.shape().place(number);
        let counter = self.geometry.shape().passes(evictions, level, index);
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
            let version = self.attempts.version(number, evictions, self.geometry.shape());
            let Some(version) = version.filter(|_| !is_cached || self.present[number as usize])
            else {
                clear(blocks, block_bytes);
                continue;
            };
            if is_cached {
                let own = self.layout.pages_per_bucket() as usize;
                self.pages.resize(own);
                let page = self.pages.run_mut(0, own);
                page.copy_from_slice(self.cached.run(number as usize * own, own));
                let version = Version { attempt: self.attempts.current(), ..version };
                let opened = self.codec.open(&self.key, &version, page, blocks);
                opened.map_err(|_| forged(self.geometry.shape(), number))?;
            } else {
                on_disk.push((self.place(number, evictions), at, version));
            }
        }
        on_disk.sort_unstable_by_key(|&(place, ..)| place);
        self.open_from_disk(&on_disk, window)
    }

    /// Opens what is on disk as it comes: (place, index in the window, version), ascending.
    fn open_from_disk(
        &mut self,
        wanted: &[(u64, usize, Version)],
        window: &mut Window,
    ) -> Result<(), TreeError> {
        let places: Vec<u64> = wanted.iter().map(|&(place, ..)| place).collect();
        let runs = self.layout.runs(&places, GAP_PAGES, RUN_PAGES_MAX);
        let own = self.layout.pages_per_bucket();
        // Where each run's first wanted place is.
        let mut starts = Vec::with_capacity(runs.len());
        let mut next = 0;
        for run in &runs {
            starts.push(next);
            let end = run.first_page + u64::from(run.pages);
            next += places[next..].partition_point(|&place| place * own < end);
        }
        let (codec, key, open_bytes) = (&self.codec, &self.key, window.open_bytes);
        let shape = self.geometry.shape();
        let mut wrong = None;
        self.store.read_each(&runs, &mut |index, bytes| {
            let run: Run = runs[index];
            let end = starts.get(index + 1).copied().unwrap_or(wanted.len());
            for (place, at, version) in &wanted[starts[index]..end] {
                let from = (place * own - run.first_page) as usize * PAGE_BYTES;
                let page = &mut bytes[from..][..own as usize * PAGE_BYTES];
                let blocks = &mut window.blocks[at * open_bytes..][..open_bytes];
                if codec.open(key, version, page, blocks).is_err() {
                    wrong = Some(forged(shape, version.number));
                }
            }
        })?;
        wrong.map_or(Ok(()), Err)
    }

    /// Seals the window's buckets as they are after `evictions` evictions and writes those that are on
    /// disk where nothing lies that was committed. Durable after [`sync`](Self::sync), in force after
    /// [`commit`](Self::commit).
    ///
    /// # Errors
    ///
    /// The disk; [`TreeError::Spare`].
    pub fn save(&mut self, window: &Window, evictions: u64) -> Result<(), TreeError> {
        if let (Some(committed), Some(evictions_max)) = (self.committed, self.layout.spare()) {
            let evictions = evictions - committed;
            if evictions > evictions_max {
                return Err(TreeError::Spare { evictions, evictions_max });
            }
        }
        let own = self.layout.pages_per_bucket() as usize;
        let mut on_disk = Vec::new();
        for (at, &number) in window.numbers.iter().enumerate() {
            let version = self.own_version(number, evictions);
            if number < self.cached_buckets {
                let blocks = &window.blocks[at * window.open_bytes..][..window.open_bytes];
                let page = self.cached.run_mut(number as usize * own, own);
                self.codec.seal(&self.key, &version, blocks, page, &mut self.random);
                self.present[number as usize] = true;
            } else {
                if !self.layout.is_in_ring(number) {
                    self.fresh.set(number);
                }
                on_disk.push((self.place(number, evictions), at, version));
            }
        }
        on_disk.sort_unstable_by_key(|&(place, ..)| place);
        for batch in on_disk.chunks(8 * RUN_PAGES_MAX as usize / own) {
            self.pages.resize(batch.len() * own);
            for (to, (_, at, version)) in batch.iter().enumerate() {
                let blocks = &window.blocks[at * window.open_bytes..][..window.open_bytes];
                let page = self.pages.run_mut(to * own, own);
                self.codec.seal(&self.key, version, blocks, page, &mut self.random);
            }
            let places: Vec<u64> = batch.iter().map(|&(place, ..)| place).collect();
            self.store.write(&self.layout.runs(&places, 0, RUN_PAGES_MAX), &self.pages)?;
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
        let own = self.layout.pages_per_bucket() as usize;
        let mut empty = vec![0; self.codec.open_bytes()];
        clear(&mut empty, self.codec.open_bytes() / self.geometry.slots());
        let mut wanted = Vec::new();
        for number in 0..self.cached_buckets {
            let version = self.own_version(number, evictions);
            if version.counter == 0 {
                continue;
            }
            if !self.present[number as usize] {
                let page = self.cached.run_mut(number as usize * own, own);
                self.codec.seal(&self.key, &version, &empty, page, &mut self.random);
                self.present[number as usize] = true;
            }
            self.fresh.set(number);
            wanted.push((self.place(number, evictions), number));
        }
        wanted.sort_unstable();
        for batch in wanted.chunks(8 * RUN_PAGES_MAX as usize / own) {
            self.pages.resize(batch.len() * own);
            for (to, &(_, number)) in batch.iter().enumerate() {
                let page = self.pages.run_mut(to * own, own);
                page.copy_from_slice(self.cached.run(number as usize * own, own));
            }
            let places: Vec<u64> = batch.iter().map(|&(place, _)| place).collect();
            self.store.write(&self.layout.runs(&places, 0, RUN_PAGES_MAX), &self.pages)?;
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

    /// Puts what was written since the last commit in force, after `evictions` evictions.
    pub fn commit(&mut self, evictions: u64) {
        self.committed = Some(evictions);
        for (copy, fresh) in self.copies.0.iter_mut().zip(&mut self.fresh.0) {
            *copy ^= *fresh;
            *fresh = 0;
        }
    }

    /// Puts in force what a committed round wrote, by its numbers: for a journal that is read again.
    pub fn replay(&mut self, numbers: &[u64]) {
        for &number in numbers {
            if number >= self.cached_buckets && !self.layout.is_in_ring(number) {
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
                true => self.attempts.flushed_version(number, flushed, self.geometry.shape()),
                false => self.attempts.version(number, evictions, self.geometry.shape()),
            };
            wanted.extend(version.map(|version| (self.place(number, evictions), version)));
        }
        wanted.sort_unstable_by_key(|&(place, _)| place);
        let own = self.layout.pages_per_bucket();
        let mut blocks = vec![0; self.codec.open_bytes()];
        let all = self.layout.pages();
        let (mut first, mut next) = (0, 0);
        while first < all {
            let run =
                Run { first_page: first, pages: u64::from(RUN_PAGES_MAX).min(all - first) as u32 };
            self.store.read(&[run], &mut self.pages)?;
            first += u64::from(run.pages);
            while let Some((place, version)) =
                wanted.get(next).filter(|wanted| wanted.0 * own < first)
            {
                let at = (place * own - run.first_page) as usize;
                let bytes = self.pages.run_mut(at, own as usize);
                let opened = self.codec.open(&self.key, version, bytes, &mut blocks);
                opened.map_err(|_| forged(self.geometry.shape(), version.number))?;
                each(version.number, &blocks);
                next += 1;
            }
        }
        Ok(())
    }
}

/// The error of a bucket that does not open.
fn forged(shape: Shape, number: u64) -> TreeError {
    let (level, index) = shape.place(number);
    TreeError::Forged { level, index }
}
