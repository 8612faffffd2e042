//! The buckets of a tree that may be damaged, one after the other in the file's order.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::attempt::{Attempts, Version};
use crate::bucket::BucketCodec;
use crate::disk::file::{Locked, lock, missing_or};
use crate::disk::{DiskError, PAGE_BYTES};
use crate::geometry::{Geometry, last_pass, passes};
use crate::layout::{COPIES, Layout, place};
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
    pub page: u64,
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
/// Told of a bucket, and given both of its pages.
type Pair<'a, T> = dyn FnMut(&(u64, T), [Option<&[u8]>; 2]) + 'a;

/// Opens the tree's file to read it.
pub(super) fn open(path: &Path) -> Result<Locked, DiskError> {
    lock(File::open(path).map_err(missing_or("open", path))?, path)
}

impl OldTree {
    /// Buckets in the order in which they lie, those that no eviction has passed left out.
    fn wanted(&self) -> Vec<(u64, u64)> {
        let layout = Layout::new(&self.geometry);
        let mut wanted: Vec<(u64, u64)> = (0..self.geometry.buckets())
            .filter(|&number| self.version(number).is_some())
            .map(|number| (layout.page(number, 0), number))
            .collect();
        wanted.sort_unstable();
        wanted
    }

    fn seen(&self, number: u64) -> u64 {
        if number < self.cached { self.flushed } else { self.evictions }
    }

    /// What the bucket should be.
    fn version(&self, number: u64) -> Option<Version> {
        match number < self.cached {
            true => self.attempts.flushed_version(number, self.flushed),
            false => self.attempts.version(number, self.evictions),
        }
    }

    /// Looks at every bucket that should be there. Where the one copy that should be in force does not
    /// open, the other is tried, and other versions of it: earlier ones, which it may hold, and later
    /// ones, which it holds if the journal lacks the last rounds.
    pub fn probe(&self, each: &mut dyn FnMut(Found<'_>), progress: &mut dyn FnMut(u64, u64)) {
        let layout = Layout::new(&self.geometry);
        let codec = BucketCodec::new(&self.geometry);
        let mut blocks = vec![0; codec.open_bytes()];
        self.scan(&self.wanted(), progress, &mut |&(first, number), pages| {
            let Some(version) = self.version(number) else { return };
            let (level, index) = place(number);
            let last = last_pass(self.seen(number), level, index).map_or(0, |(_, last)| last);
            let expected = layout.page(number, self.copies.bit(number)) - first;
            let mut page = [0; PAGE_BYTES];
            for (version, age) in self.candidates(&version, level, index, last) {
                for copy in [expected, expected ^ 1] {
                    let Some(bytes) = &pages[copy as usize] else { continue };
                    page.copy_from_slice(bytes);
                    if codec.open(&self.key, &version, &mut page, &mut blocks).is_ok() {
                        let is_expected = age == last + 1;
                        let page = first + copy;
                        let source = Source { number, page, version, age, is_expected };
                        return each(Found::Open(source, &blocks));
                    }
                }
            }
            each(Found::Unreadable { age: last + 1 });
        });
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
        let ahead = passes(self.ahead, level, index).saturating_sub(counter);
        let ahead = if expected.number < self.cached { 0 } else { ahead.min(PASSES_AHEAD_MAX) };
        let later = (1..=ahead).rev().map(move |by| last + (by << level));
        let earlier = (1..=PASSES_BACK.min(counter - 1)).map(move |by| last - (by << level));
        let others = later.chain(earlier).filter_map(move |pass| {
            let version = self.attempts.version(expected.number, pass + 1)?;
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
            sources.iter().map(|&source| (source.page & !1, source)).collect();
        self.scan(&wanted, progress, &mut |(first, source), pages| {
            if outcome.is_err() {
                return;
            }
            let page = pages[(source.page - first) as usize];
            let opened = page.is_some_and(|bytes| {
                let mut page = [0; PAGE_BYTES];
                page.copy_from_slice(bytes);
                codec.open(&self.key, &source.version, &mut page, &mut blocks).is_ok()
            });
            outcome = each(opened.then_some(&blocks[..]));
        });
        outcome
    }

    /// Reads the file from its first page to its last and hands both copies of each wanted bucket to
    /// `each`; none for a page that the disk does not give.
    fn scan<T>(
        &self,
        wanted: &[(u64, T)],
        progress: &mut dyn FnMut(u64, u64),
        each: &mut Pair<'_, T>,
    ) {
        let all = self.geometry.buckets() * COPIES;
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
            while let Some(own) = wanted.get(next).filter(|wanted| wanted.0 < first + count) {
                let at = (own.0 - first) as usize;
                let page = |at: usize| readable[at].then(|| &run[at * PAGE_BYTES..][..PAGE_BYTES]);
                each(own, [page(at), page(at + 1)]);
                next += 1;
            }
            first += count;
            progress(first, all);
        }
    }
}
