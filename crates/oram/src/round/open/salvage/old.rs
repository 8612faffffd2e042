//! The buckets of a tree that may be damaged, one after the other in the file's order.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::attempt::{Attempts, Version};
use crate::bucket::BucketCodec;
use crate::disk::file::{Locked, lock, missing_or};
use crate::disk::{DiskError, PAGE_BYTES};
use crate::geometry::Geometry;
use crate::layout::Layout;
use crate::seal::Key;
use crate::tree::BitSet;

/// Pages that are read at a time.
const RUN_PAGES: u64 = 256;
/// How many versions back a bucket is looked for that is not what it should be.
const PASSES_BACK: u64 = 16;
/// How many versions on it is looked for, where the journal may lack rounds that wrote it.
const PASSES_AHEAD_MAX: u64 = 4096;

/// The file of a tree, and what the journal says of it.
pub(super) struct OldTree {
    pub file: Locked,
    pub geometry: Geometry,
    pub layout: Layout,
    pub key: Key,
    pub copies: BitSet,
    pub attempts: Attempts,
    /// Evictions that were committed, and those of the last time that the cached levels were written.
    pub evictions: u64,
    pub flushed: u64,
    /// Evictions that there may have been, as far as is known.
    pub ahead: u64,
    /// Buckets below this number are those of the cached levels.
    pub cached: u64,
}

/// A copy of a bucket that opens.
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub number: u64,
    pub place: u64,
    pub version: Version,
    /// One more than the number of the last eviction that passed it.
    pub age: u64,
    /// It is what the journal says that the bucket is.
    pub is_expected: bool,
}

/// What became of a bucket that should be there.
pub(super) enum Found<'a> {
    /// One copy opened, into these blocks.
    Open(Source, &'a [u8]),
    /// None did; the age that it should have.
    Unreadable { age: u64 },
}

/// Told the blocks of a copy that opened before; none if it does not open any more.
type Reopened<'a, E> = dyn FnMut(Option<&[u8]>) -> Result<(), E> + 'a;
/// Told of a bucket, and given the page that should be it; none if the disk does not give that.
type Each<'a, T> = dyn FnMut(&(u64, T), Option<&[u8]>) + 'a;

/// Opens the tree's file to read it.
pub(super) fn open(path: &Path) -> Result<Locked, DiskError> {
    lock(File::open(path).map_err(missing_or("open", path))?, path)
}

impl OldTree {
    /// Buckets and their places, in the order in which they lie, those that no eviction has passed left
    /// out.
    fn wanted(&self) -> Vec<(u64, u64)> {
        let mut wanted: Vec<(u64, u64)> = (0..self.geometry.buckets())
            .filter_map(|number| {
                let version = self.version(number)?;
                Some((self.expected_place(version.number), number))
            })
            .collect();
        wanted.sort_unstable();
        wanted
    }

    /// Where the bucket should be.
    fn expected_place(&self, number: u64) -> u64 {
        match self.layout.is_in_ring(number) {
            false => self.layout.pair_place(number, self.copies.bit(number)),
            true => {
                let (level, index) = self.geometry.shape().place(number);
                self.layout.ring_place(level, self.last_pass(number, level, index))
            }
        }
    }

    fn last_pass(&self, number: u64, level: u32, index: u64) -> u64 {
        let last = self.geometry.shape().last_pass(self.seen(number), level, index);
        last.map_or(0, |(_, last)| last)
    }

    fn seen(&self, number: u64) -> u64 {
        if number < self.cached { self.flushed } else { self.evictions }
    }

    /// What the bucket should be.
    fn version(&self, number: u64) -> Option<Version> {
        let shape = self.geometry.shape();
        match number < self.cached {
            true => self.attempts.flushed_version(number, self.flushed, shape),
            false => self.attempts.version(number, self.evictions, shape),
        }
    }

    /// Looks at every bucket that should be there. Where what should be in force does not open, the other
    /// places are tried that a version of it may be in: earlier ones, which were not overwritten yet, and
    /// later ones, which are there if the journal lacks the last rounds.
    pub fn probe(&self, each: &mut dyn FnMut(Found<'_>), progress: &mut dyn FnMut(u64, u64)) {
        let codec = BucketCodec::new(&self.geometry);
        let mut blocks = vec![0; codec.open_bytes()];
        let mut bytes = vec![0; self.bucket_bytes()];
        self.scan(&self.wanted(), progress, &mut |&(expected, number), page| {
            let Some(version) = self.version(number) else { return };
            let (level, index) = self.geometry.shape().place(number);
            let last = self.last_pass(number, level, index);
            for (version, age) in self.candidates(&version, level, index, last) {
                for place in self.places_of(number, level, age - 1, expected) {
                    let is_there = match page {
                        Some(page) if place == expected => {
                            bytes.copy_from_slice(page);
                            true
                        }
                        _ => place != expected && self.read(place, &mut bytes),
                    };
                    if is_there && codec.open(&self.key, &version, &mut bytes, &mut blocks).is_ok()
                    {
                        let is_expected = age == last + 1;
                        let source = Source { number, place, version, age, is_expected };
                        return each(Found::Open(source, &blocks));
                    }
                }
            }
            each(Found::Unreadable { age: last + 1 });
        });
    }

    /// The places that a bucket may be in as eviction `pass` left it.
    fn places_of(
        &self,
        number: u64,
        level: u32,
        pass: u64,
        expected: u64,
    ) -> impl Iterator<Item = u64> {
        let in_ring = self.layout.is_in_ring(number).then(|| self.layout.ring_place(level, pass));
        let pair = [expected, expected ^ 1];
        let in_pair = if in_ring.is_none() { &pair[..] } else { &[] }.to_vec();
        in_ring.into_iter().chain(in_pair)
    }

    fn bucket_bytes(&self) -> usize {
        self.layout.pages_per_bucket() as usize * PAGE_BYTES
    }

    /// Reads what is in a place; whether the disk gives it.
    fn read(&self, place: u64, bytes: &mut [u8]) -> bool {
        let at = place * self.bucket_bytes() as u64;
        self.file.read_exact_at(bytes, at).is_ok()
    }

    /// The versions to try, and their ages: that which should be there, then later and earlier ones.
    fn candidates(
        &self,
        expected: &Version,
        level: u32,
        index: u64,
        last: u64,
    ) -> impl Iterator<Item = (Version, u64)> {
        let counter = expected.counter;
        let (shape, nodes) = (self.geometry.shape(), self.geometry.shape().nodes(level));
        let ahead = shape.passes(self.ahead, level, index).saturating_sub(counter);
        let ahead = if expected.number < self.cached { 0 } else { ahead.min(PASSES_AHEAD_MAX) };
        let later = (1..=ahead).rev().map(move |by| last + by * nodes);
        let earlier = (1..=PASSES_BACK.min(counter - 1)).map(move |by| last - by * nodes);
        let others = later.chain(earlier).filter_map(move |pass| {
            let version = self.attempts.version(expected.number, pass + 1, shape)?;
            Some((version, pass + 1))
        });
        std::iter::once((*expected, last + 1)).chain(others)
    }

    /// Opens these copies, which opened before.
    ///
    /// # Errors
    ///
    /// What `each` says.
    pub fn reopen<E>(
        &self,
        sources: &[Source],
        each: &mut Reopened<'_, E>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), E> {
        let codec = BucketCodec::new(&self.geometry);
        let mut blocks = vec![0; codec.open_bytes()];
        let mut outcome = Ok(());
        let wanted: Vec<(u64, Source)> =
            sources.iter().map(|&source| (self.expected_place(source.number), source)).collect();
        let mut bytes = vec![0; self.bucket_bytes()];
        self.scan(&wanted, progress, &mut |(expected, source), page| {
            if outcome.is_err() {
                return;
            }
            let is_there = match page {
                Some(page) if source.place == *expected => {
                    bytes.copy_from_slice(page);
                    true
                }
                _ => source.place != *expected && self.read(source.place, &mut bytes),
            };
            let opened =
                is_there && codec.open(&self.key, &source.version, &mut bytes, &mut blocks).is_ok();
            outcome = each(opened.then_some(&blocks[..]));
        });
        outcome
    }

    /// Reads the file from its first page to its last and hands what is in each wanted place to `each`;
    /// none for what the disk does not give.
    fn scan<T>(
        &self,
        wanted: &[(u64, T)],
        progress: &mut dyn FnMut(u64, u64),
        each: &mut Each<'_, T>,
    ) {
        let (all, own) = (self.layout.pages(), self.layout.pages_per_bucket());
        let mut bytes = vec![0; (RUN_PAGES as usize) * PAGE_BYTES];
        let (mut first, mut next) = (0, 0);
        while first < all {
            let count = RUN_PAGES.min(all - first);
            let run = &mut bytes[..count as usize * PAGE_BYTES];
            let mut readable = vec![true; count as usize];
            if self.file.read_exact_at(run, first * PAGE_BYTES as u64).is_err() {
                // A sector that is gone, or a file that was cut: what is left, page by page.
                for (at, page) in run.chunks_exact_mut(PAGE_BYTES).enumerate() {
                    let from = (first + at as u64) * PAGE_BYTES as u64;
                    readable[at] = self.file.read_exact_at(page, from).is_ok();
                }
            }
            while let Some(wanted) =
                wanted.get(next).filter(|wanted| wanted.0 * own < first + count)
            {
                let at = (wanted.0 * own - first) as usize;
                let is_readable = readable[at..][..own as usize].iter().all(|&readable| readable);
                let page = &run[at * PAGE_BYTES..][..own as usize * PAGE_BYTES];
                each(wanted, is_readable.then_some(page));
                next += 1;
            }
            first += count;
            progress(first, all);
        }
    }
}
