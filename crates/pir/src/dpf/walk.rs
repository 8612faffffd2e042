//! Expanding a key a subtree at a time, depth first.

use std::hint::black_box;

use hushtable_prg::{Platform, Prg, Vectorised};
use zeroize::Zeroize;

use super::{Group, Key};

/// Walks a key's tree from left to right in subtrees of `2^height` leaves.
///
/// It keeps one node and one sibling a level, so a batch's memory is O(batch × depth); between two
/// neighbouring subtrees it expands two nodes on average.
pub(crate) struct Walk<'k> {
    key: &'k Key,
    prg: Prg,
    /// Levels above the subtrees.
    levels_above: usize,
    /// `path[i]`: the node at level i on the way to the current subtree.
    path: Vec<u128>,
    /// The current subtree, `None` before the first.
    subtree: Option<u64>,
}

impl<'k> Walk<'k> {
    /// A walk over `key` in subtrees of `2^height` leaves; `height` is cut to the tree's depth.
    pub(crate) fn new(key: &'k Key, prg: Prg, height: u32) -> Self {
        let depth = key.params().domain.depth();
        let levels_above = (depth - height.min(depth)) as usize;
        let mut path = vec![0; levels_above + 1];
        path[0] = key.root_node();
        Self { key, prg, levels_above, path, subtree: None }
    }

    /// Leaves of one subtree.
    pub(crate) fn leaves_per_subtree(&self) -> usize {
        1 << (self.key.words().levels.len() - self.levels_above)
    }

    /// Expands subtree number `subtree` into `leaves`, four words (512 bits) a leaf, as this
    /// side's shares. `scratch` holds at least `2 × leaves_per_subtree` words.
    pub(crate) fn leaves(&mut self, subtree: u64, leaves: &mut [u128], scratch: &mut [u128]) {
        let count = self.leaves_per_subtree();
        let (seeds, scratch) = scratch.split_at_mut(count);
        self.seeds(subtree, seeds, scratch);
        self.convert(seeds, leaves);
    }

    /// Expands subtree number `subtree` down to its leaves' nodes, `leaves_per_subtree` of them;
    /// `scratch` holds as many words.
    pub(crate) fn seeds(&mut self, subtree: u64, seeds: &mut [u128], scratch: &mut [u128]) {
        self.seek(subtree);
        let levels = &self.key.words().levels[self.levels_above..];
        // The level before last ends in `scratch`, so that the last one lands in `seeds`.
        let (mut nodes, mut children) = match levels.len() % 2 {
            0 => (seeds, scratch),
            _ => (scratch, seeds),
        };
        nodes[0] = self.path[self.levels_above];
        for (level, correction) in levels.iter().enumerate() {
            let width = 1 << level;
            self.prg.expand(&nodes[..width], correction, &mut children[..2 * width]);
            std::mem::swap(&mut nodes, &mut children);
        }
    }

    /// Turns some of a subtree's nodes into leaves, four words each.
    pub(crate) fn convert(&self, nodes: &[u128], leaves: &mut [u128]) {
        match self.key.params().domain.group() {
            Group::Bits => self.prg.convert(nodes, &self.key.words().leaf, leaves),
            group => {
                self.prg.convert(nodes, &[0; 4], leaves);
                let right = self.key.params().side.id() == 1;
                let correction = &self.key.words().leaf;
                self.prg.platform().run(Correction { group, nodes, leaves, correction, right });
            }
        }
    }

    /// Moves the path to `subtree`, expanding only below the last node that both paths share.
    fn seek(&mut self, subtree: u64) {
        debug_assert!(subtree >> self.levels_above == 0);
        let shared = match self.subtree {
            None => 0,
            Some(current) => {
                let differing = 64 - (current ^ subtree).leading_zeros() as usize;
                self.levels_above - differing
            }
        };
        for level in shared..self.levels_above {
            let mut children = [0; 2];
            let correction = &self.key.words().levels[level];
            self.prg.expand(&self.path[level..=level], correction, &mut children);
            // The direction is a row number of the table, the same for every key: no secret.
            let right = subtree >> (self.levels_above - 1 - level) & 1;
            self.path[level + 1] = children[right as usize];
        }
        self.subtree = Some(subtree);
    }
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        self.path.zeroize();
    }
}

/// Expands a whole key, `2^height` leaves at a time: `take(first_leaf, words)` sees every leaf in
/// order, four words (512 bits) each. Rows past the last are expanded too where they share a
/// subtree with it.
///
/// An engine does not do this (it multiplies as it goes); it is there for measurements, for
/// secret-shared uses of the unit vector, and for tests.
pub fn expand_leaves(
    key: &Key,
    platform: Platform,
    height: u32,
    mut take: impl FnMut(u64, &[u128]),
) {
    let params = key.params();
    let mut walk = Walk::new(key, Prg::new(params.prg, platform), height);
    let count = walk.leaves_per_subtree();
    let mut leaves = vec![0; 4 * count];
    let mut scratch = vec![0; 2 * count];
    for subtree in 0..params.domain.leaf_count().div_ceil(count as u64) {
        walk.leaves(subtree, &mut leaves, &mut scratch);
        take(subtree * count as u64, &leaves);
    }
    leaves.zeroize();
    scratch.zeroize();
}

/// Adds the leaf correction where the control bit is set, and negates right's shares.
struct Correction<'a> {
    /// Not bits.
    group: Group,
    nodes: &'a [u128],
    leaves: &'a mut [u128],
    correction: &'a [u128; 4],
    right: bool,
}

impl Vectorised for Correction<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        const { assert!(cfg!(target_endian = "little"), "leaves are little-endian numbers") };
        // The words as they are, or their negatives: (x ^ -1) - -1.
        let negate = u8::from(self.right).wrapping_neg();
        for (node, leaf) in self.nodes.iter().zip(self.leaves.as_chunks_mut::<4>().0) {
            // Opaque to the compiler, which could otherwise branch on the bit.
            let mask = black_box(*node as u8 & 1).wrapping_neg();
            // Copies, which overlap nothing, so that they are added in vectors.
            *leaf = match self.group {
                Group::Z32 => {
                    let mut shares: [u32; 16] = zerocopy::transmute!(*leaf);
                    let correction: [u32; 16] = zerocopy::transmute!(*self.correction);
                    let (mask, negate) = (wide(mask), wide(negate));
                    for (share, correction) in shares.iter_mut().zip(correction) {
                        let sum = share.wrapping_add(correction & mask);
                        *share = (sum ^ negate).wrapping_sub(negate);
                    }
                    zerocopy::transmute!(shares)
                }
                Group::Bits | Group::Z8 => {
                    let mut shares: [u8; 64] = zerocopy::transmute!(*leaf);
                    let correction: [u8; 64] = zerocopy::transmute!(*self.correction);
                    for (share, correction) in shares.iter_mut().zip(correction) {
                        let sum = share.wrapping_add(correction & mask);
                        *share = (sum ^ negate).wrapping_sub(negate);
                    }
                    zerocopy::transmute!(shares)
                }
            };
        }
    }
}

/// All ones of all ones.
#[inline(always)]
fn wide(mask: u8) -> u32 {
    i32::from(mask as i8) as u32
}
