//! Where a bucket lies on disk, and how it is that a round overwrites nothing that was committed.
//!
//! Evictions go in an order that is fixed for ever, so the nodes of a level are written one after the
//! other, round and round. A level of n buckets therefore lies in a *ring* of n + s places, and what
//! eviction number g writes of it goes to place g mod (n + s). The last n evictions that were committed
//! have written all of the level, and up to s evictions more write to the other places: until they are
//! committed in their turn, everything that was is on disk as it was. One copy of each bucket is enough
//! then, and where it lies follows from the root counter alone. Both what evictions read and what they
//! write are neighbours in their rings.
//!
//! Levels of no more than s buckets, and those that are cached and written at checkpoints only, have
//! two copies of each bucket in the file's front; a bit says which one was committed.
//!
//! Folders that were made before there were rings have two copies of all buckets, in sub-trees of two
//! levels: a sub-tree is laid out in order (left part, root, right part), the copies side by side, so
//! that a leaf and its parent are close neighbours.
//!
//! What is read and written depends on the shape, the paths and the number of evictions. All are public.

use crate::disk::{PAGE_BYTES, Run};
use crate::geometry::{Geometry, Storage};
use crate::shape::Shape;

/// Levels of a sub-tree, where all buckets have two copies.
const HEIGHT: u32 = 2;
/// Copies of a bucket that is in no ring: the one that was committed, and the one that is being written.
const COPIES: u64 = 2;

/// The places of one tree's buckets, each as long as a bucket.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    shape: Shape,
    storage: Storage,
    /// The first level in a ring; as many as there are levels for none.
    ring_level: u32,
    spare: u64,
    pages_per_bucket: u64,
}

impl Layout {
    /// The layout of a tree whose levels from `boundary` down are on disk, and of which up to
    /// `spare` evictions are written before they are committed.
    pub fn new(geometry: &Geometry, boundary: u32, spare: u64) -> Self {
        let (shape, storage) = (geometry.shape(), geometry.storage());
        let ring_level = match storage {
            Storage::Pairs => shape.levels(),
            Storage::Rings => (boundary..shape.levels())
                .find(|&level| shape.nodes(level) > spare)
                .unwrap_or(shape.levels()),
        };
        let pages_per_bucket = (geometry.bucket_bytes() / PAGE_BYTES).max(1) as u64;
        Self { shape, storage, ring_level, spare, pages_per_bucket }
    }

    /// Pages of a bucket.
    pub fn pages_per_bucket(&self) -> u64 {
        self.pages_per_bucket
    }

    /// Buckets that have two copies: those of lower numbers than this.
    pub fn paired_buckets(&self) -> u64 {
        self.shape.above(self.ring_level)
    }

    /// How many evictions may be written before they are committed; none for any number.
    pub fn spare(&self) -> Option<u64> {
        (self.ring_level < self.shape.levels()).then_some(self.spare)
    }

    /// Places of the file.
    pub fn places(&self) -> u64 {
        self.ring_start(self.shape.levels())
    }

    /// Pages of the file.
    pub fn pages(&self) -> u64 {
        self.places() * self.pages_per_bucket
    }

    /// Where the ring of `level` begins.
    fn ring_start(&self, level: u32) -> u64 {
        let rings = u64::from(level - self.ring_level);
        let within = self.shape.above(level) - self.paired_buckets();
        self.paired_buckets() * COPIES + within + rings * self.spare
    }

    /// Whether the bucket is in a ring.
    pub fn is_in_ring(&self, number: u64) -> bool {
        number >= self.paired_buckets()
    }

    /// The place of the bucket of `level`, one in a ring, that eviction number `eviction` wrote.
    pub fn ring_place(&self, level: u32, eviction: u64) -> u64 {
        self.ring_start(level) + eviction % (self.shape.nodes(level) + self.spare)
    }

    /// The place of a copy, 0 or 1, of a bucket that has two.
    pub fn pair_place(&self, number: u64, copy: u64) -> u64 {
        match self.storage {
            Storage::Rings => number * COPIES + copy,
            Storage::Pairs => self.in_sub_trees(number) * COPIES + copy,
        }
    }

    /// All places that buckets of a level may be in.
    #[cfg(test)]
    pub fn level_places(&self, level: u32) -> Vec<u64> {
        let (first, count) = (self.shape.above(level), self.shape.nodes(level));
        match self.is_in_ring(first) {
            true => (0..count + self.spare).map(|g| self.ring_place(level, g)).collect(),
            false => (first..first + count)
                .flat_map(|number| [self.pair_place(number, 0), self.pair_place(number, 1)])
                .collect(),
        }
    }

    fn in_sub_trees(&self, number: u64) -> u64 {
        let (level, index) = self.shape.place(number);
        // The first level of the topmost group, which may be lower than the others.
        let top = self.shape.levels() % HEIGHT;
        let (root_level, height) =
            if level < top { (0, top) } else { (level - (level - top) % HEIGHT, HEIGHT) };
        let depth = level - root_level;
        let (root, within) = (index >> depth, index & ((1 << depth) - 1));
        // All levels above a group are complete, so it starts behind as many buckets as they have.
        let before = (1u64 << root_level) - 1 + root * ((1 << height) - 1);
        let in_order = ((2 * within + 1) << (height - 1 - depth)) - 1;
        before + in_order
    }

    /// The runs of pages that hold the buckets at `places` (ascending), reading through gaps of up to
    /// `gap` pages: on a disk that is bound by the number of reads a gap costs less than another read.
    pub fn runs(&self, places: &[u64], gap: u64, pages_max: u32) -> Vec<Run> {
        let own = self.pages_per_bucket;
        let mut runs: Vec<Run> = Vec::new();
        for &place in places {
            let first_page = place * own;
            if let Some(run) = runs.last_mut() {
                let reach = first_page + own - run.first_page;
                let hole = reach - own - u64::from(run.pages);
                if hole <= gap && reach <= u64::from(pages_max) {
                    run.pages = reach as u32;
                    continue;
                }
            }
            runs.push(Run { first_page, pages: own as u32 });
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::geometry::GeometrySpec;

    fn geometry(rows: u64, storage: Storage) -> Geometry {
        Geometry::new(&GeometrySpec { storage, ..GeometrySpec::on_disk(rows, 64) }).unwrap()
    }

    #[test]
    fn every_copy_has_a_place_of_its_own() {
        for (rows, storage) in [1, 500, 3000, 100_000]
            .into_iter()
            .flat_map(|rows| [(rows, Storage::Pairs), (rows, Storage::Rings)])
        {
            let geometry = geometry(rows, storage);
            let shape = geometry.shape();
            for (boundary, spare) in [(0, 0), (2, 5), (3, 100), (1, 1 << 40)] {
                let layout = Layout::new(&geometry, boundary, spare);
                let mut places: Vec<u64> = (0..layout.paired_buckets())
                    .flat_map(|n| [layout.pair_place(n, 0), layout.pair_place(n, 1)])
                    .collect();
                for level in layout.ring_level..shape.levels() {
                    assert!(level >= boundary && shape.nodes(level) > spare);
                    let all = shape.nodes(level) + spare;
                    places.extend((0..all).map(|eviction| layout.ring_place(level, eviction)));
                }
                places.sort_unstable();
                assert!(places.iter().copied().eq(0..layout.places()));
            }
        }
    }

    /// Whatever up to `spare` evictions write, they write over nothing that was in force before them,
    /// and over nothing of each other that is.
    #[test]
    fn a_round_overwrites_nothing_that_was_committed() {
        let geometry = geometry(3000, Storage::Rings);
        let shape = geometry.shape();
        let spare = 7;
        let layout = Layout::new(&geometry, 1, spare);
        assert!(layout.ring_level < shape.levels());
        let in_force = |evictions: u64| -> HashMap<u64, u64> {
            let rings = layout.paired_buckets()..shape.buckets();
            let placed = rings.filter_map(|number| {
                let (level, index) = shape.place(number);
                let (_, last) = shape.last_pass(evictions, level, index)?;
                Some((layout.ring_place(level, last), number))
            });
            placed.collect()
        };
        for committed in 0..5 * shape.leaves() {
            let before = in_force(committed);
            let level_and_place = |eviction: u64, level: u32| layout.ring_place(level, eviction);
            for ahead in 0..spare {
                for level in layout.ring_level..shape.levels() {
                    let place = level_and_place(committed + ahead, level);
                    assert!(!before.contains_key(&place), "{committed} and {ahead} more");
                }
            }
            // One eviction more would.
            if committed > 2 * shape.leaves() {
                let level = shape.levels() - 1;
                assert!(before.contains_key(&level_and_place(committed + spare, level)));
            }
            let count = (layout.paired_buckets()..shape.buckets())
                .filter(|&number| {
                    let (level, index) = shape.place(number);
                    shape.passes(committed, level, index) > 0
                })
                .count();
            assert_eq!(before.len(), count, "two buckets in one place");
        }
    }

    #[test]
    fn in_an_old_file_a_leaf_and_its_parent_are_within_four_pages() {
        let geometry = geometry(1_000_000, Storage::Pairs);
        let layout = Layout::new(&geometry, 0, 0);
        let shape = geometry.shape();
        let leaf_level = shape.levels() - 1;
        for index in [0, 1, 77, geometry.leaves() - 1] {
            let [leaf, parent] =
                [shape.number(leaf_level, index), shape.number(leaf_level - 1, index / 2)]
                    .map(|n| layout.pair_place(n, 0));
            assert!(leaf.abs_diff(parent) <= 2);
        }
    }

    #[test]
    fn runs_cover_their_pages() {
        let layout = Layout::new(&geometry(3000, Storage::Rings), 0, 1);
        let pages = [3, 4, 7, 20, 21, 30];
        let spans = |gap| -> Vec<(u64, u32)> {
            layout.runs(&pages, gap, 64).iter().map(|run| (run.first_page, run.pages)).collect()
        };
        assert_eq!(spans(0), [(3, 2), (7, 1), (20, 2), (30, 1)]);
        assert_eq!(spans(2), [(3, 5), (20, 2), (30, 1)]);
        assert_eq!(layout.runs(&pages, 100, 8).len(), 3);
    }
}
