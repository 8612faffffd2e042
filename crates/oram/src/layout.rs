//! Where a bucket lies on disk: in sub-trees, so that the parts of a path lie near each other.
//!
//! Levels are grouped from the leaves upwards, [`HEIGHT`] at a time. A group's sub-tree is laid out in
//! order (left part, root, right part), each bucket with its two copies side by side. A path crosses a
//! group from its root to a node below, which in this order are close neighbours: one read of a few
//! pages instead of one a level. What is read depends on the path alone.

use crate::disk::Run;
use crate::geometry::Geometry;

/// Levels of a sub-tree.
pub const HEIGHT: u32 = 2;
/// Copies of a bucket: the one that was committed, and the one that is being written.
pub const COPIES: u64 = 2;

/// The pages of one tree.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    levels: u32,
}

/// The number of a bucket: level order, the root 0.
pub fn number(level: u32, index: u64) -> u64 {
    (1 << level) - 1 + index
}

/// The level and index of a bucket.
pub fn place(number: u64) -> (u32, u64) {
    let level = (number + 1).ilog2();
    (level, number + 1 - (1 << level))
}

impl Layout {
    /// The layout of a tree.
    pub fn new(geometry: &Geometry) -> Self {
        Self { levels: geometry.levels() }
    }

    /// Pages of the file.
    pub fn pages(&self) -> u64 {
        ((1 << self.levels) - 1) * COPIES
    }

    /// The page of a copy of a bucket.
    pub fn page(&self, number: u64, copy: u64) -> u64 {
        let (level, index) = place(number);
        // The first level of the topmost group, which may be lower than the others.
        let top = self.levels % HEIGHT;
        let (root_level, height) =
            if level < top { (0, top) } else { (level - (level - top) % HEIGHT, HEIGHT) };
        let depth = level - root_level;
        let (root, within) = (index >> depth, index & ((1 << depth) - 1));
        // All levels above a group are complete, so it starts behind as many buckets as they have.
        let before = (1u64 << root_level) - 1 + root * ((1 << height) - 1);
        let in_order = ((2 * within + 1) << (height - 1 - depth)) - 1;
        (before + in_order) * COPIES + copy
    }

    /// The runs that hold `pages` (ascending), reading through gaps of up to `gap` pages: on a disk
    /// that is bound by the number of reads a gap costs less than another read.
    pub fn runs(pages: &[u64], gap: u64, pages_max: u32) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for &page in pages {
            if let Some(run) = runs.last_mut() {
                let reach = page + 1 - run.first_page;
                let hole = reach - 1 - u64::from(run.pages);
                if hole <= gap && reach <= u64::from(pages_max) {
                    run.pages = reach as u32;
                    continue;
                }
            }
            runs.push(Run::page(page));
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::GeometrySpec;

    #[test]
    fn every_copy_has_a_page_of_its_own() {
        for rows in [1, 500, 3000, 100_000] {
            let geometry = Geometry::new(&GeometrySpec::on_disk(rows, 64)).unwrap();
            let layout = Layout::new(&geometry);
            let mut pages: Vec<u64> = (0..geometry.buckets())
                .flat_map(|number| [layout.page(number, 0), layout.page(number, 1)])
                .collect();
            pages.sort_unstable();
            assert!(pages.iter().copied().eq(0..layout.pages()));
        }
    }

    #[test]
    fn a_leaf_and_its_parent_are_within_four_pages() {
        let geometry = Geometry::new(&GeometrySpec::on_disk(1_000_000, 64)).unwrap();
        let layout = Layout::new(&geometry);
        let leaf_level = geometry.levels() - 1;
        for index in [0, 1, 77, geometry.leaves() - 1] {
            let [leaf, parent] = [number(leaf_level, index), number(leaf_level - 1, index / 2)]
                .map(|n| layout.page(n, 0));
            assert!(leaf.abs_diff(parent) <= 2);
        }
    }

    #[test]
    fn runs_cover_their_pages() {
        let pages = [3, 4, 7, 20, 21, 30];
        let spans = |gap| -> Vec<(u64, u32)> {
            Layout::runs(&pages, gap, 64).iter().map(|run| (run.first_page, run.pages)).collect()
        };
        assert_eq!(spans(0), [(3, 2), (7, 1), (20, 2), (30, 1)]);
        assert_eq!(spans(2), [(3, 5), (20, 2), (30, 1)]);
        assert_eq!(Layout::runs(&pages, 100, 8).len(), 3);
    }
}
