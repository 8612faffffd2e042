//! The backend for processors.

use hushtable_prg::{Platform, Prg, PrgKind};
use hushtable_table::Table;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use zerocopy::IntoBytes;

use crate::dpf::{Group, Key, Walk};
use crate::kernel::{BLOCK_ROWS, Kernel, LANES, Planes, UNIT_BYTES, UNIT_ROW_BYTES, transpose8};
use crate::{Backend, Error, TableShape};

/// How a [`CpuEngine`] runs.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct EngineSpec {
    /// Threads that share a pass over the table; 0 for one a core.
    pub threads: usize,
    /// The instruction tier.
    pub platform: Platform,
    /// Most keys in one pass over the table; larger batches take several. 0 for the default, 256.
    pub batch_keys_max: usize,
}

impl Default for EngineSpec {
    fn default() -> Self {
        Self { threads: 0, platform: Platform::detect(), batch_keys_max: 0 }
    }
}

/// A table in memory and the threads that answer keys from it.
///
/// A pass expands every key a subtree at a time and multiplies the shares with the table's blocks
/// while both are in cache, so memory beyond the table is O(keys × depth) and no key's expansion
/// is ever whole.
pub struct CpuEngine {
    planes: Planes,
    kernel: Kernel,
    platform: Platform,
    batch_keys_max: usize,
    pool: ThreadPool,
}

/// Most blocks that a subtree covers: 65,536 rows. The narrow levels of a subtree leave most of a
/// pipeline idle, so it is expanded this far at once; a batch of 256 then has 512 KiB of nodes.
const SUBTREE_BLOCKS_MAX: usize = 128;
/// Blocks whose shares are made at once from the nodes: a batch of 256 then has 128 KiB of operands
/// (AVX-512), which with the nodes and sums all but stay in a second-level cache of 1 MiB.
const SHARE_BLOCKS: usize = 8;
/// Keys a pass by default: more gain little once the product outweighs reading the table.
const BATCH_KEYS_MAX: usize = 256;

impl CpuEngine {
    /// Loads a bundle's rows.
    ///
    /// # Errors
    /// [`Error::Table`] where the bundle cannot be read, [`Error::Memory`], [`Error::Threads`].
    pub fn from_table(table: &Table, spec: &EngineSpec) -> Result<Self, Error> {
        let shape = TableShape::new(table.rows(), table.row_bytes())?;
        Self::new(shape, spec, |first, rows| {
            table.copy_rows(first, rows).map_err(|error| Error::Table { reason: error.to_string() })
        })
    }

    /// Loads `rows × row_bytes` bytes, row by row.
    ///
    /// # Errors
    /// [`Error::TableBytes`] for another length, [`Error::Memory`], [`Error::Threads`].
    pub fn from_rows(shape: TableShape, rows: &[u8], spec: &EngineSpec) -> Result<Self, Error> {
        if rows.len() as u64 != shape.table_bytes() {
            let (expected, found) = (shape.table_bytes(), rows.len() as u64);
            return Err(Error::TableBytes { expected, found });
        }
        Self::new(shape, spec, |first, to| {
            let start = first as usize * shape.row_bytes();
            to.copy_from_slice(&rows[start..start + to.len()]);
            Ok(())
        })
    }

    fn new(
        shape: TableShape,
        spec: &EngineSpec,
        copy: impl Fn(u64, &mut [u8]) -> Result<(), Error> + Send + Sync,
    ) -> Result<Self, Error> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(spec.threads)
            .thread_name(|i| format!("hushtable-answer-{i}"))
            .build()
            .map_err(|error| Error::Threads { threads: spec.threads, reason: error.to_string() })?;
        let planes = pool.install(|| Planes::new(shape, copy))?;
        let batch_keys_max = match spec.batch_keys_max {
            0 => BATCH_KEYS_MAX,
            keys => keys,
        };
        let kernel = Kernel::new(spec.platform);
        Ok(Self { planes, kernel, platform: spec.platform, batch_keys_max, pool })
    }

    /// Bytes that the stored table occupies.
    pub fn resident_bytes(&self) -> usize {
        self.planes.resident_bytes()
    }

    /// Threads of the pool.
    pub fn threads(&self) -> usize {
        self.pool.current_num_threads()
    }

    /// The instruction tier.
    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// One pass over the table for keys of one group and generator.
    fn pass(&self, group: Group, prg: PrgKind, keys: &[&Key]) -> Vec<u8> {
        let prg = Prg::new(prg, self.platform);
        let blocks = self.planes.block_count();
        // Whole subtrees a thread, so that no subtree is expanded twice.
        let subtrees = blocks.div_ceil(self.subtree_blocks());
        let share = subtrees.div_ceil(self.threads()).max(1);
        let part = |first: usize| {
            let range = first..(first + share).min(subtrees);
            match (group, keys) {
                (Group::Bits, [key]) => self.scan(prg, key, range),
                (Group::Bits, _) => self.multiply(prg, keys, range),
                (Group::Z8 | Group::Z32, _) => self.sum_additive(prg, group, keys, range),
            }
        };
        let add = |mut left: Vec<u8>, right: Vec<u8>| {
            add_sums(group, &mut left, &right);
            left
        };
        let starts: Vec<usize> = (0..subtrees).step_by(share).collect();
        let sums = self.pool.install(|| starts.into_par_iter().map(part).reduce_with(add));
        let sums = sums.unwrap_or_default();
        match group {
            Group::Bits => self.answers_of_bits(&sums, keys.len()),
            Group::Z8 | Group::Z32 => {
                let padded = self.planes.row_units() * UNIT_ROW_BYTES;
                let row_bytes = self.planes.shape().row_bytes();
                sums.chunks_exact(padded).flat_map(|sums| &sums[..row_bytes]).copied().collect()
            }
        }
    }

    /// One key of bit shares: a masked XOR of the table.
    fn scan(&self, prg: Prg, key: &Key, subtrees: std::ops::Range<usize>) -> Vec<u8> {
        let mut walk = Walk::new(key, prg, self.subtree_blocks().ilog2());
        let leaf_count = walk.leaves_per_subtree();
        let mut leaves = vec![0u128; 4 * leaf_count];
        let mut scratch = vec![0u128; 2 * leaf_count];
        let mut sums = vec![0u8; self.planes.row_units() * UNIT_BYTES];
        for subtree in subtrees {
            walk.leaves(subtree as u64, &mut leaves, &mut scratch);
            for (block, leaf) in self.blocks_of(subtree).zip(leaves.chunks_exact(4)) {
                let shares = leaf_bytes(leaf);
                for strip in self.planes.strips() {
                    let tile = self.planes.tile(block, strip);
                    let next = self.planes.after(block, strip, tile.len());
                    let sums = &mut sums[strip.unit * UNIT_BYTES..][..strip.units * UNIT_BYTES];
                    self.kernel.scan(tile, next, strip.units, shares, sums);
                }
            }
        }
        sums
    }

    /// A batch of bit shares: a GF(2) matrix product.
    fn multiply(&self, prg: Prg, keys: &[&Key], subtrees: std::ops::Range<usize>) -> Vec<u8> {
        let mut walks: Vec<Walk> =
            keys.iter().map(|key| Walk::new(key, prg, self.subtree_blocks().ilog2())).collect();
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
                walk.seeds(subtree as u64, seeds, &mut scratch);
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
                    for strip in self.planes.strips() {
                        let tile = self.planes.tile(block, strip);
                        let next = self.planes.after(block, strip, tile.len());
                        let start = strip.unit * UNIT_BYTES * query_groups;
                        let sums = &mut sums[start..][..strip.units * UNIT_BYTES * query_groups];
                        self.kernel.multiply(tile, next, strip.units, operands, sums);
                    }
                }
            }
        }
        sums
    }

    /// Blocks of a subtree, a power of two: fewer where a small table must feed every thread.
    fn subtree_blocks(&self) -> usize {
        let fair = (self.planes.block_count() / (2 * self.threads())).max(1);
        (1 << fair.ilog2()).min(SUBTREE_BLOCKS_MAX)
    }

    /// Blocks under `subtree` that the table has.
    fn blocks_of(&self, subtree: usize) -> std::ops::Range<usize> {
        let first = subtree * self.subtree_blocks();
        first..(first + self.subtree_blocks()).min(self.planes.block_count())
    }

    /// Sums as the kernels leave them (strip, query group, byte, bit; query in the bit number) to
    /// answers, `row_bytes` a query.
    fn answers_of_bits(&self, sums: &[u8], queries: usize) -> Vec<u8> {
        let query_groups = queries.div_ceil(LANES);
        let row_bytes = self.planes.shape().row_bytes();
        let mut answers = vec![0; queries * row_bytes];
        for strip in self.planes.strips() {
            let start = strip.unit * UNIT_BYTES * query_groups;
            let columns = strip.units * UNIT_ROW_BYTES;
            for query_group in 0..query_groups {
                let group_start = start + query_group * strip.units * UNIT_BYTES;
                let lanes = LANES.min(queries - query_group * LANES);
                let rows = &mut answers[query_group * LANES * row_bytes..][..lanes * row_bytes];
                for column in 0..columns.min(row_bytes - strip.unit * UNIT_ROW_BYTES) {
                    let mut bits = [0; 8];
                    bits.copy_from_slice(&sums[group_start + 8 * column..][..8]);
                    let bytes = transpose8(u64::from_le_bytes(bits)).to_le_bytes();
                    for (row, byte) in rows.chunks_exact_mut(row_bytes).zip(bytes) {
                        row[strip.unit * UNIT_ROW_BYTES + column] = byte;
                    }
                }
            }
        }
        answers
    }

    /// Additive shares: rows are put together again a strip of a block at a time and multiplied.
    fn sum_additive(
        &self,
        prg: Prg,
        group: Group,
        keys: &[&Key],
        subtrees: std::ops::Range<usize>,
    ) -> Vec<u8> {
        let padded = self.planes.row_units() * UNIT_ROW_BYTES;
        let leaves_per_block = BLOCK_ROWS / group.rows_per_leaf() as usize;
        let mut walks: Vec<Walk> =
            keys.iter().map(|key| Walk::new(key, prg, leaves_per_block.ilog2())).collect();
        let leaf_count = walks.first().map_or(1, Walk::leaves_per_subtree);
        let share_bytes = 64 * leaves_per_block;
        let mut leaves = vec![0u128; 4 * leaf_count];
        let mut scratch = vec![0u128; 2 * leaf_count];
        // A tree smaller than a block leaves the shares of the block's absent rows zero.
        let mut shares = vec![0u8; keys.len() * share_bytes];
        let mut tile_rows = vec![0u8; BLOCK_ROWS * 32];
        let mut sums = vec![0u8; keys.len() * padded];
        for block in subtrees.flat_map(|subtree| self.blocks_of(subtree)) {
            for (walk, shares) in walks.iter_mut().zip(shares.chunks_exact_mut(share_bytes)) {
                walk.leaves(block as u64, &mut leaves, &mut scratch);
                for (share, word) in shares.chunks_exact_mut(16).zip(&leaves) {
                    share.copy_from_slice(&word.to_le_bytes());
                }
            }
            for strip in self.planes.strips() {
                let width = strip.units * UNIT_ROW_BYTES;
                self.planes.rows_of_tile(block, strip, &mut tile_rows);
                let rows = &tile_rows[..BLOCK_ROWS * width];
                let queries = shares.chunks_exact(share_bytes).zip(sums.chunks_exact_mut(padded));
                for (shares, sums) in queries {
                    let sums = &mut sums[strip.unit * UNIT_ROW_BYTES..][..width];
                    match group {
                        Group::Z32 => add_products_z32(rows, width, shares, sums),
                        Group::Bits | Group::Z8 => add_products_z8(rows, width, shares, sums),
                    }
                }
            }
        }
        sums
    }
}

impl Backend for CpuEngine {
    fn shape(&self) -> TableShape {
        self.planes.shape()
    }

    fn answer(&self, keys: &[Key], answers: &mut [u8]) -> Result<(), Error> {
        let shape = self.shape();
        let expected = keys.len() * shape.row_bytes();
        if answers.len() != expected {
            return Err(Error::AnswerBytes { expected, found: answers.len() });
        }
        for key in keys {
            let found = key.params().domain.rows();
            if found != shape.rows() {
                return Err(Error::Domain { expected: shape.rows(), found });
            }
        }
        // Most batches are of one kind; a mixed one takes a pass a kind.
        for group in Group::ALL {
            for prg in PrgKind::ALL {
                let kind = |key: &Key| {
                    let params = key.params();
                    params.domain.group() == group && params.prg == prg
                };
                let chosen: Vec<usize> = (0..keys.len()).filter(|&i| kind(&keys[i])).collect();
                for batch in chosen.chunks(self.batch_keys_max) {
                    let keys: Vec<&Key> = batch.iter().map(|&i| &keys[i]).collect();
                    let sums = self.pass(group, prg, &keys);
                    for (&i, row) in batch.iter().zip(sums.chunks_exact(shape.row_bytes())) {
                        answers[i * shape.row_bytes()..][..shape.row_bytes()].copy_from_slice(row);
                    }
                }
            }
        }
        Ok(())
    }

    fn batch_keys_best(&self) -> usize {
        self.batch_keys_max
    }

    fn description(&self) -> String {
        format!(
            "cpu, {}, {} thread(s), {:.1} MiB resident",
            self.kernel.name(),
            self.threads(),
            self.resident_bytes() as f64 / f64::from(1 << 20)
        )
    }
}

/// A leaf's 512 bits where they lie: copied words would stall the kernels' wide loads behind the
/// narrow stores.
fn leaf_bytes(leaf: &[u128]) -> &[u8; 64] {
    const { assert!(cfg!(target_endian = "little"), "leaves are read as little-endian bytes") };
    let (leaf, _) = leaf.as_bytes().as_chunks::<64>();
    &leaf[0]
}

/// `sums[j] += shares[i] × rows[i][j]` in bytes.
fn add_products_z8(rows: &[u8], width: usize, shares: &[u8], sums: &mut [u8]) {
    for (row, share) in rows.chunks_exact(width).zip(shares) {
        for (sum, byte) in sums.iter_mut().zip(row) {
            *sum = sum.wrapping_add(byte.wrapping_mul(*share));
        }
    }
}

/// The same in little-endian 32-bit words.
fn add_products_z32(rows: &[u8], width: usize, shares: &[u8], sums: &mut [u8]) {
    let mut words = [0u32; 8];
    let words = &mut words[..width / 4];
    for (row, share) in rows.chunks_exact(width).zip(shares.chunks_exact(4)) {
        let share = le_word(share);
        for (sum, word) in words.iter_mut().zip(row.chunks_exact(4)) {
            *sum = sum.wrapping_add(le_word(word).wrapping_mul(share));
        }
    }
    for (to, word) in sums.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&le_word(to).wrapping_add(*word).to_le_bytes());
    }
}

fn le_word(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(bytes);
    u32::from_le_bytes(word)
}

/// Adds one thread's sums to another's.
fn add_sums(group: Group, to: &mut [u8], from: &[u8]) {
    match group {
        Group::Bits => to.iter_mut().zip(from).for_each(|(a, b)| *a ^= b),
        Group::Z8 => to.iter_mut().zip(from).for_each(|(a, b)| *a = a.wrapping_add(*b)),
        Group::Z32 => {
            for (a, b) in to.chunks_exact_mut(4).zip(from.chunks_exact(4)) {
                a.copy_from_slice(&le_word(a).wrapping_add(le_word(b)).to_le_bytes());
            }
        }
    }
}
