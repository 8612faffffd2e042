//! The backend for processors.

use std::ops::Range;

use hushtable_prg::{Platform, Prg, PrgKind};
use hushtable_table::Table;
use zerocopy::IntoBytes;

use crate::dpf::{Group, Key, Walk};
use crate::kernel::additive::{Additive, PANEL_TILES, Ring, UNIT_ROWS_BYTES};
use crate::kernel::{
    BLOCK_ROWS, Kernel, LANES, Planes, Strip, TILE_UNITS_MAX, UNIT_BYTES, UNIT_ROW_BYTES,
};
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
/// Bytes of a leaf.
const LEAF_BYTES: usize = 64;
/// Leaves of additive shares that a key is expanded to at once, a tree's narrow levels leaving a pipeline
/// idle: with 128, a quarter of the nodes (2 MiB for a batch of 256), a pass takes 1.02 to 1.04 times
/// as long.
const ADDITIVE_LEAVES: usize = 512;
/// Bytes of a thread's sums of additive shares: those of 256 keys for rows of 16 KiB.
const SUMS_BYTES_MAX: usize = 32 << 20;
/// Keys whose shares, at most 96 KiB, and sums, 48 KiB, are in a second-level cache with a panel's rows.
const KEYS_AT_ONCE: usize = 48;

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

    /// Most keys of one pass. Sums of additive shares are eight times the rows, for each thread.
    fn pass_keys_max(&self, group: Group) -> usize {
        let keys_max = match group {
            Group::Bits => usize::MAX,
            Group::Z8 | Group::Z32 => SUMS_BYTES_MAX / (self.planes.row_units() * UNIT_BYTES),
        };
        self.batch_keys_max.min(keys_max.max(LANES))
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
                    Group::Z8 => self.sum_additive(prg, Ring::Z8, keys, &pass, range),
                    Group::Z32 => self.sum_additive(prg, Ring::Z32, keys, &pass, range),
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

    /// Additive shares: a block's rows are transposed back once for all keys, and multiplied while they
    /// and some keys' shares and sums are in the second-level cache.
    fn sum_additive(
        &self,
        prg: Prg,
        ring: Ring,
        keys: &[&Key],
        pass: &Pass<'_>,
        subtrees: Range<usize>,
    ) -> Vec<u8> {
        let kernel = Additive::new(self.platform);
        let share_bytes = ring.share_bytes();
        let leaves_per_block = share_bytes / LEAF_BYTES;
        // A power of two: a part of a pass's subtree.
        let blocks_at_once = pass.blocks_of(0).len().min(ADDITIVE_LEAVES / leaves_per_block);
        let height = (blocks_at_once * leaves_per_block).ilog2();
        let mut walks: Vec<Walk> = keys.iter().map(|key| Walk::new(key, prg, height)).collect();
        let leaf_count = walks.first().map_or(1, Walk::leaves_per_subtree);
        // Not a power of two, which would put all keys' nodes of one block into the same few cache sets.
        let node_stride = leaf_count + LEAF_BYTES / 16;
        let mut seeds = vec![0u128; keys.len() * node_stride];
        let mut scratch = vec![0u128; leaf_count];
        // A tree smaller than a block leaves the shares of the block's absent rows zero.
        let block_leaves = leaves_per_block.min(leaf_count);
        let mut shares = Lines::new(keys.len() * share_bytes);
        let strips: Vec<Strip> = self.planes.strips().collect();
        let mut rows = Lines::new(PANEL_TILES * TILE_UNITS_MAX * UNIT_ROWS_BYTES);
        // Panel by panel, and in a panel key by key.
        let mut sums = Lines::new(keys.len() * self.planes.row_units() * UNIT_BYTES);
        for blocks in subtrees.map(|subtree| pass.blocks_of(subtree)) {
            for block in blocks.clone() {
                let at = (block - blocks.start) % blocks_at_once;
                if at == 0 {
                    let number = ((self.first_block + block) / blocks_at_once) as u64;
                    for (walk, seeds) in walks.iter_mut().zip(seeds.chunks_exact_mut(node_stride)) {
                        walk.seeds(number, &mut seeds[..leaf_count], &mut scratch);
                    }
                }
                let shares_of_keys = shares.words().chunks_exact_mut(share_bytes / 16);
                let seeds = seeds.chunks_exact(node_stride);
                for ((walk, seeds), shares) in walks.iter().zip(seeds).zip(shares_of_keys) {
                    let nodes = &seeds[at * leaves_per_block..][..block_leaves];
                    walk.convert(nodes, &mut shares[..4 * block_leaves]);
                }
                let mut sums = sums.bytes();
                for panel in strips.chunks(PANEL_TILES) {
                    let units: usize = panel.iter().map(|strip| strip.units).sum();
                    let mut to = rows.bytes();
                    for strip in panel {
                        let tile = self.planes.tile(block, *strip);
                        kernel.unpack(
                            ring,
                            tile,
                            to.split_off_mut(..tile.len()).expect("its room"),
                        );
                    }
                    let rows = &rows.bytes()[..units * UNIT_ROWS_BYTES];
                    let next = self.planes.after(block, panel[panel.len() - 1], rows.len());
                    let parts = keys.len().div_ceil(KEYS_AT_ONCE);
                    let mut next = next.chunks(next.len().div_ceil(parts).max(1));
                    for shares in shares.bytes().chunks(KEYS_AT_ONCE * share_bytes) {
                        let sums_bytes = shares.len() / share_bytes * units * UNIT_BYTES;
                        let sums = sums.split_off_mut(..sums_bytes).expect("its room");
                        kernel.multiply(ring, rows, next.next().unwrap_or_default(), shares, sums);
                    }
                }
            }
        }
        let padded = self.planes.row_units() * UNIT_ROW_BYTES;
        let mut answers = vec![0; keys.len() * padded];
        for panel in strips.chunks(PANEL_TILES) {
            let units: usize = panel.iter().map(|strip| strip.units).sum();
            let columns = panel[0].unit * UNIT_ROW_BYTES..(panel[0].unit + units) * UNIT_ROW_BYTES;
            let sums = &sums.bytes()[panel[0].unit * UNIT_BYTES * keys.len()..];
            let sums = sums.chunks_exact(units * UNIT_BYTES);
            for (answer, sums) in answers.chunks_exact_mut(padded).zip(sums) {
                kernel.fold(ring, sums, &mut answer[columns.clone()]);
            }
        }
        answers
    }
}

/// Zeros at first, from the start of a cache line on: a register of the kernels' lies in one line then.
struct Lines {
    words: Vec<u128>,
    range: Range<usize>,
}

impl Lines {
    fn new(bytes: usize) -> Self {
        let words = vec![0; bytes.div_ceil(16) + 3];
        let first = words.as_ptr().align_offset(64);
        Self { words, range: first..first + bytes.div_ceil(16) }
    }

    fn words(&mut self) -> &mut [u128] {
        &mut self.words[self.range.clone()]
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.words().as_mut_bytes()
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
                for batch in chosen.chunks(self.pass_keys_max(group)) {
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
