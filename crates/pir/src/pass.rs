//! One pass over a table, or over one bin of it, for bit shares.

use std::ops::Range;

use hushtable_prg::Prg;
use zerocopy::IntoBytes;

use crate::dpf::{Key, Walk};
use crate::kernel::{
    Kernel, LANES, Planes, UNIT_BYTES, UNIT_ROW_BYTES, transpose_bytes8, transpose8,
};

/// Most blocks that a subtree covers: 65,536 rows. The narrow levels of a subtree leave most of a
/// pipeline idle, so it is expanded this far at once; a batch of 256 then has 512 KiB of nodes.
const SUBTREE_BLOCKS_MAX: usize = 128;
/// Blocks whose shares are made at once from the nodes: a batch of 256 then has 128 KiB of operands
/// (AVX-512), which with the nodes and sums all but stay in a second-level cache of 1 MiB.
const SHARE_BLOCKS: usize = 8;

/// The blocks that the leaves of a kind of key stand for, in order.
#[derive(Clone)]
pub(crate) struct Pass<'a> {
    planes: &'a Planes,
    kernel: Kernel,
    blocks: Range<usize>,
    subtree_blocks: usize,
    /// The subtree of a key's leaves that the first block's lies in.
    first_subtree: usize,
}

impl<'a> Pass<'a> {
    /// A pass over `blocks`, in subtrees small enough to feed `threads`.
    pub(crate) fn new(
        planes: &'a Planes,
        kernel: Kernel,
        blocks: Range<usize>,
        threads: usize,
    ) -> Self {
        let fair = (blocks.len() / (2 * threads)).max(1);
        let subtree_blocks = (1 << fair.ilog2()).min(SUBTREE_BLOCKS_MAX);
        Self { planes, kernel, blocks, subtree_blocks, first_subtree: 0 }
    }

    /// The same pass where the first block's leaf is leaf number `leaf` of a key, and no longer its
    /// first: subtrees are cut so small that none begins before it.
    pub(crate) fn starting_at(mut self, leaf: usize) -> Self {
        if leaf > 0 {
            self.subtree_blocks = self.subtree_blocks.min(1 << leaf.trailing_zeros());
        }
        self.first_subtree = leaf / self.subtree_blocks;
        self
    }

    /// How many subtrees the blocks make.
    pub(crate) fn subtree_count(&self) -> usize {
        self.blocks.len().div_ceil(self.subtree_blocks)
    }

    /// The subtrees' blocks, as numbers in the table.
    pub(crate) fn blocks_of(&self, subtree: usize) -> Range<usize> {
        let first = self.blocks.start + subtree * self.subtree_blocks;
        first..(first + self.subtree_blocks).min(self.blocks.end)
    }

    fn subtree_of_key(&self, subtree: usize) -> u64 {
        (self.first_subtree + subtree) as u64
    }

    /// The sums of `keys` over `subtrees`, as the kernels leave them.
    pub(crate) fn sums(&self, prg: Prg, keys: &[&Key], subtrees: Range<usize>) -> Vec<u8> {
        match keys {
            [key] => self.scan(prg, key, subtrees),
            _ => self.multiply(prg, keys, subtrees),
        }
    }

    /// One key: a masked XOR of the table.
    fn scan(&self, prg: Prg, key: &Key, subtrees: Range<usize>) -> Vec<u8> {
        let mut walk = Walk::new(key, prg, self.subtree_blocks.ilog2());
        let leaf_count = walk.leaves_per_subtree();
        let mut leaves = vec![0u128; 4 * leaf_count];
        let mut scratch = vec![0u128; 2 * leaf_count];
        let mut sums = vec![0; self.planes.row_units() * UNIT_BYTES];
        for subtree in subtrees {
            walk.leaves(self.subtree_of_key(subtree), &mut leaves, &mut scratch);
            for (block, leaf) in self.blocks_of(subtree).zip(leaves.chunks_exact(4)) {
                self.scan_block(block, leaf_bytes(leaf), &mut sums);
            }
        }
        sums
    }

    fn scan_block(&self, block: usize, shares: &[u8; 64], sums: &mut [u8]) {
        for strip in self.planes.strips() {
            let tile = self.planes.tile(block, strip);
            let next = self.planes.after(block, strip, tile.len());
            let sums = &mut sums[strip.unit * UNIT_BYTES..][..strip.units * UNIT_BYTES];
            self.kernel.scan(tile, next, strip.units, shares, sums);
        }
    }

    /// A batch: a GF(2) matrix product.
    fn multiply(&self, prg: Prg, keys: &[&Key], subtrees: Range<usize>) -> Vec<u8> {
        let mut walks: Vec<Walk> =
            keys.iter().map(|key| Walk::new(key, prg, self.subtree_blocks.ilog2())).collect();
        let leaf_count = walks.first().map_or(1, Walk::leaves_per_subtree);
        let query_groups = keys.len().div_ceil(LANES);
        let operand_bytes = self.kernel.operand_bytes();
        let share_count = leaf_count.min(SHARE_BLOCKS);
        let mut seeds = vec![0u128; keys.len() * leaf_count];
        let mut scratch = vec![0u128; leaf_count];
        // One query group's shares; absent queries' stay zero.
        let mut leaves = vec![0u128; LANES * 4 * share_count];
        // Block by block, so that the product reads a block's operands in a row.
        let mut operands = vec![0u8; share_count * query_groups * operand_bytes];
        let mut sums = vec![0u8; query_groups * self.planes.row_units() * UNIT_BYTES];
        for subtree in subtrees {
            for (walk, seeds) in walks.iter_mut().zip(seeds.chunks_exact_mut(leaf_count)) {
                walk.seeds(self.subtree_of_key(subtree), seeds, &mut scratch);
            }
            let blocks = self.blocks_of(subtree);
            for first in blocks.clone().step_by(share_count) {
                let at = first - blocks.start;
                for (query_group, walks) in walks.chunks(LANES).enumerate() {
                    let lanes = leaves.chunks_exact_mut(4 * share_count);
                    for (lane, (walk, leaves)) in walks.iter().zip(lanes).enumerate() {
                        let start = (query_group * LANES + lane) * leaf_count + at;
                        walk.convert(&seeds[start..start + share_count], leaves);
                    }
                    leaves[4 * share_count * walks.len()..].fill(0);
                    for leaf in 0..share_count {
                        let shares: [&[u8; 64]; LANES] = std::array::from_fn(|lane| {
                            leaf_bytes(&leaves[4 * (lane * share_count + leaf)..][..4])
                        });
                        let operand = leaf * query_groups + query_group;
                        let operand = &mut operands[operand * operand_bytes..][..operand_bytes];
                        self.kernel.pack(&shares, operand);
                    }
                }
                let operands = operands.chunks_exact(query_groups * operand_bytes);
                for (block, operands) in (first..blocks.end).zip(operands) {
                    self.multiply_block(block, operands, query_groups, &mut sums);
                }
            }
        }
        sums
    }

    fn multiply_block(&self, block: usize, operands: &[u8], query_groups: usize, sums: &mut [u8]) {
        for strip in self.planes.strips() {
            let tile = self.planes.tile(block, strip);
            let next = self.planes.after(block, strip, tile.len());
            let start = strip.unit * UNIT_BYTES * query_groups;
            let sums = &mut sums[start..][..strip.units * UNIT_BYTES * query_groups];
            self.kernel.multiply(tile, next, strip.units, operands, sums);
        }
    }

    /// The sums of shares that are expanded already: `shares(key, leaf)` for each of `keys` and each
    /// block of the pass.
    pub(crate) fn sums_of_shares<'s>(
        &self,
        keys: usize,
        shares: impl Fn(usize, usize) -> &'s [u8; 64],
    ) -> Vec<u8> {
        if keys == 1 {
            let mut sums = vec![0; self.planes.row_units() * UNIT_BYTES];
            for (leaf, block) in self.blocks.clone().enumerate() {
                self.scan_block(block, shares(0, leaf), &mut sums);
            }
            return sums;
        }
        let query_groups = keys.div_ceil(LANES);
        let mut sums = vec![0u8; query_groups * self.planes.row_units() * UNIT_BYTES];
        let operand_bytes = self.kernel.operand_bytes();
        let mut operands = vec![0u8; query_groups * operand_bytes];
        for (leaf, block) in self.blocks.clone().enumerate() {
            let groups = (0..keys).step_by(LANES).zip(operands.chunks_exact_mut(operand_bytes));
            for (first, operand) in groups {
                let lanes = std::array::from_fn(|lane| match first + lane < keys {
                    true => shares(first + lane, leaf),
                    false => &[0; 64],
                });
                self.kernel.pack(&lanes, operand);
            }
            self.multiply_block(block, &operands, query_groups, &mut sums);
        }
        sums
    }

    /// Sums as the kernels leave them (strip, query group, byte, bit; query in the bit number) to
    /// answers, `row_bytes` a query.
    pub(crate) fn answers(&self, sums: &[u8], queries: usize) -> Vec<u8> {
        let query_groups = queries.div_ceil(LANES);
        let row_bytes = self.planes.shape().row_bytes();
        if queries == 1 {
            // Strips lie one after the other, and the query's bits are the lowest of each byte.
            let columns = sums.as_chunks::<8>().0.iter().take(row_bytes);
            return columns.map(|bits| low_bits(u64::from_le_bytes(*bits))).collect();
        }
        let mut answers = vec![0; queries * row_bytes];
        for strip in self.planes.strips() {
            let start = strip.unit * UNIT_BYTES * query_groups;
            for query_group in 0..query_groups {
                let group_start = start + query_group * strip.units * UNIT_BYTES;
                let lanes = LANES.min(queries - query_group * LANES);
                let rows = &mut answers[query_group * LANES * row_bytes..][..lanes * row_bytes];
                let sums = &sums[group_start..][..strip.units * UNIT_BYTES];
                for (unit, sums) in sums.chunks_exact(UNIT_BYTES).enumerate() {
                    let first = (strip.unit + unit) * UNIT_ROW_BYTES;
                    let width = UNIT_ROW_BYTES.min(row_bytes - first);
                    let lanes = transpose_unit(sums);
                    for (row, bytes) in rows.chunks_exact_mut(row_bytes).zip(&lanes) {
                        row[first..first + width].copy_from_slice(&bytes[..width]);
                    }
                }
            }
        }
        answers
    }
}

/// The lowest bit of each byte.
fn low_bits(x: u64) -> u8 {
    ((x & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// A unit's sums (column, bit; query in the bit number) as each query's eight bytes.
fn transpose_unit(sums: &[u8]) -> [[u8; UNIT_ROW_BYTES]; LANES] {
    let mut columns = [0; UNIT_ROW_BYTES];
    for (column, bits) in columns.iter_mut().zip(sums.as_chunks::<8>().0) {
        *column = transpose8(u64::from_le_bytes(*bits));
    }
    transpose_bytes8(columns).map(u64::to_le_bytes)
}

/// A leaf's 512 bits where they lie: copied words would stall the kernels' wide loads behind the
/// narrow stores.
pub(crate) fn leaf_bytes(leaf: &[u128]) -> &[u8; 64] {
    const { assert!(cfg!(target_endian = "little"), "leaves are read as little-endian bytes") };
    let (leaf, _) = leaf.as_bytes().as_chunks::<64>();
    &leaf[0]
}
