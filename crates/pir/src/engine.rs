//! The backend for processors.

use std::ops::Range;

use hushtable_prg::{Platform, Prg, PrgKind};
use hushtable_table::Table;

use crate::dpf::{Group, Key, Walk, le_word};
use crate::kernel::{BLOCK_ROWS, Kernel, LANES, Planes, UNIT_ROW_BYTES};
use crate::pass::Pass;
use crate::{Backend, Error, TableShape, Threads};

/// How a [`CpuEngine`] runs.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct EngineSpec {
    /// Threads that share a pass over the table; 0 for one a core.
    pub threads: usize,
    /// Threads that other engines use too, instead of `threads` of this one's own.
    pub shared: Option<Threads>,
    /// The instruction tier.
    pub platform: Platform,
    /// Most keys in one pass over the table; larger batches take several. 0 for the default, 256.
    pub batch_keys_max: usize,
}

impl Default for EngineSpec {
    fn default() -> Self {
        Self { threads: 0, shared: None, platform: Platform::detect(), batch_keys_max: 0 }
    }
}

impl EngineSpec {
    pub(crate) fn threads(&self) -> Result<Threads, Error> {
        self.shared.clone().map_or_else(|| Threads::new(self.threads), Ok)
    }
}

/// A table in memory and the threads that answer keys from it.
///
/// A pass expands every key a subtree at a time and multiplies the shares with the table's blocks
/// while both are in cache, so memory beyond the table is O(keys × depth) and no key's expansion
/// is ever whole.
pub struct CpuEngine {
    /// The whole table's.
    shape: TableShape,
    /// The rows that it has: all, but for a shard.
    planes: Planes,
    /// Blocks of the table before the first that it has.
    first_block: usize,
    kernel: Kernel,
    platform: Platform,
    batch_keys_max: usize,
    threads: Threads,
}

// Loading checks whole blocks of the table's.
const _: () = assert!(BLOCK_ROWS.is_multiple_of(hushtable_table::BLOCK_ROWS));

/// Keys a pass by default: more gain little once the product outweighs reading the table.
const BATCH_KEYS_MAX: usize = 256;
/// Shares of a pass for each thread: a thread that is late keeps the others waiting for one of them.
const SHARES_A_THREAD: usize = 4;

impl CpuEngine {
    /// Loads a bundle's rows, and checks them against its version as they are loaded.
    ///
    /// # Errors
    /// [`Error::Table`] where the bundle cannot be read, [`Error::Damaged`] where it is not what its
    /// version says, [`Error::Memory`], [`Error::Threads`].
    pub fn from_table(table: &Table, spec: &EngineSpec) -> Result<Self, Error> {
        let shape = TableShape::new(table.rows(), table.row_bytes())?;
        let reading = table.reading().map_err(Error::of_table)?;
        let engine = Self::new(shape, 0..shape.rows(), spec, |first, rows| {
            reading.copy_rows(first, rows).map_err(Error::of_table)
        })?;
        reading.finish().map_err(Error::of_table)?;
        Ok(engine)
    }

    /// Loads a range of a bundle's rows, below the table's patch, and checks them against the
    /// version as they are loaded. Keys are those of the whole table, and are expanded below the
    /// range alone; an answer is the part of the range: those of ranges that make the table, added
    /// up ([`Group::add`]), are the table's.
    ///
    /// # Errors
    /// As [`from_table`](Self::from_table), and [`Error::RowRange`] for a range that is empty, ends
    /// after the table, or begins at no multiple of 512 rows.
    pub fn from_range(table: &Table, rows: Range<u64>, spec: &EngineSpec) -> Result<Self, Error> {
        let shape = TableShape::new(table.rows(), table.row_bytes())?;
        check_range(shape, &rows)?;
        let reading = table.reading_of(rows.clone()).map_err(Error::of_table)?;
        let engine = Self::new(shape, rows, spec, |first, rows| {
            reading.copy_rows(first, rows).map_err(Error::of_table)
        })?;
        reading.finish().map_err(Error::of_table)?;
        Ok(engine)
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
        Self::new(shape, 0..shape.rows(), spec, |first, to| {
            let start = first as usize * shape.row_bytes();
            to.copy_from_slice(&rows[start..start + to.len()]);
            Ok(())
        })
    }

    /// Loads `rows`, which `copy(first, bytes)` writes.
    fn new(
        shape: TableShape,
        rows: Range<u64>,
        spec: &EngineSpec,
        copy: impl Fn(u64, &mut [u8]) -> Result<(), Error> + Send + Sync,
    ) -> Result<Self, Error> {
        let threads = spec.threads()?;
        let own = TableShape::new(rows.end - rows.start, shape.row_bytes())?;
        let copy = |first: u64, to: &mut [u8]| copy(rows.start + first, to);
        let planes = threads.run(|| Planes::new(own, BLOCK_ROWS, copy))?;
        let batch_keys_max = match spec.batch_keys_max {
            0 => BATCH_KEYS_MAX,
            keys => keys,
        };
        let kernel = Kernel::new(spec.platform);
        let (platform, first_block) = (spec.platform, rows.start as usize / BLOCK_ROWS);
        Ok(Self { shape, planes, first_block, kernel, platform, batch_keys_max, threads })
    }

    /// Bytes that the stored table occupies.
    pub fn resident_bytes(&self) -> usize {
        self.planes.resident_bytes()
    }

    /// Bytes that a table of `shape` will occupy.
    pub fn stored_bytes(shape: TableShape) -> u64 {
        Planes::stored_bytes(shape, BLOCK_ROWS)
    }

    /// Threads that answer.
    pub fn threads(&self) -> usize {
        self.threads.count()
    }

    /// The instruction tier.
    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// One pass over the table for keys of one group and generator.
    fn pass(&self, group: Group, prg: PrgKind, keys: &[&Key]) -> Vec<u8> {
        let prg = Prg::new(prg, self.platform);
        let blocks = 0..self.planes.block_count();
        let cost = self.planes.resident_bytes().saturating_mul(keys.len().div_ceil(LANES));
        self.threads.run_if_worth(cost, |sharing| {
            let pass = Pass::new(&self.planes, self.kernel, blocks, sharing.threads)
                .starting_at(self.first_block);
            // Whole subtrees a share, so that no subtree is expanded twice, and a few shares a
            // thread, so that none waits long for the others.
            let subtrees = pass.subtree_count();
            let shares = match sharing.threads {
                1 => 1,
                threads => SHARES_A_THREAD * threads,
            };
            let share = subtrees.div_ceil(shares).max(1);
            let part = |number: usize| {
                let first = number * share;
                let range = first..(first + share).min(subtrees);
                match group {
                    Group::Bits => pass.sums(prg, keys, range),
                    Group::Z8 | Group::Z32 => self.sum_additive(prg, group, keys, &pass, range),
                }
            };
            let sums = sharing.map(subtrees.div_ceil(share), part).into_iter();
            let sums = sums.reduce(|mut left, right| {
                group.add(&mut left, &right);
                left
            });
            let sums = sums.unwrap_or_default();
            match group {
                Group::Bits => pass.answers(&sums, keys.len()),
                Group::Z8 | Group::Z32 => {
                    let padded = self.planes.row_units() * UNIT_ROW_BYTES;
                    let row_bytes = self.shape.row_bytes();
                    sums.chunks_exact(padded).flat_map(|sums| &sums[..row_bytes]).copied().collect()
                }
            }
        })
    }

    /// Additive shares: rows are put together again a strip of a block at a time and multiplied.
    fn sum_additive(
        &self,
        prg: Prg,
        group: Group,
        keys: &[&Key],
        pass: &Pass<'_>,
        subtrees: Range<usize>,
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
        for block in subtrees.flat_map(|subtree| pass.blocks_of(subtree)) {
            for (walk, shares) in walks.iter_mut().zip(shares.chunks_exact_mut(share_bytes)) {
                walk.leaves((self.first_block + block) as u64, &mut leaves, &mut scratch);
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
        self.shape
    }

    fn answer(&self, keys: &[Key], answers: &mut [u8]) -> Result<(), Error> {
        let keys: Vec<&Key> = keys.iter().collect();
        self.answer_each(&keys, answers)
    }

    fn answer_each(&self, keys: &[&Key], answers: &mut [u8]) -> Result<(), Error> {
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
                let chosen: Vec<usize> = (0..keys.len()).filter(|&i| kind(keys[i])).collect();
                for batch in chosen.chunks(self.batch_keys_max) {
                    let keys: Vec<&Key> = batch.iter().map(|&i| keys[i]).collect();
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
        let own = self.planes.shape().rows();
        let part = match own == self.shape.rows() {
            true => String::new(),
            false => {
                let first = (self.first_block * BLOCK_ROWS) as u64;
                format!(", rows {first} to {} of {}", first + own, self.shape.rows())
            }
        };
        format!(
            "cpu, {}, {} thread(s), {:.1} MiB resident{part}",
            self.kernel.name(),
            self.threads(),
            self.resident_bytes() as f64 / f64::from(1 << 20)
        )
    }
}

/// Whether a shard may have these rows.
fn check_range(shape: TableShape, rows: &Range<u64>) -> Result<(), Error> {
    let is_whole = |row: u64| row.is_multiple_of(BLOCK_ROWS as u64);
    let is_end = is_whole(rows.end) || rows.end == shape.rows();
    match is_whole(rows.start) && is_end && rows.start < rows.end && rows.end <= shape.rows() {
        true => Ok(()),
        false => {
            let (first, end) = (rows.start, rows.end);
            Err(Error::RowRange { first, end, rows: shape.rows() })
        }
    }
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
