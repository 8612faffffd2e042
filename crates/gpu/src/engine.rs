//! The backend for GPUs.

use std::collections::VecDeque;
use std::sync::Arc;

use hushtable_pir::dpf::{Domain, Group, Key, KeyPair};
use hushtable_pir::{Backend, Platform, Prg, PrgKind, Table, TableShape};

use crate::clock::Clock;
use crate::lane::{Lanes, Taken};
use crate::layout::{CopyRows, Layout, least_part_blocks};
use crate::loaded::Loaded;
use crate::pass::{Pass, Route};
use crate::prg::PrgTuning;
use crate::store::Store;
use crate::{
    Ablation, Device, Error, Expander, KeyKind, Needs, Strategy, ablation, common_kind, plan,
};

/// How a [`GpuEngine`] runs.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct GpuSpec {
    /// How batches are answered.
    pub strategy: Strategy,
    /// Most keys in one pass over the table; larger batches take several, two at a time. 0 for the
    /// default, 1,024.
    pub batch_keys_max: usize,
    /// Most bytes of device memory to take; `None` for what is free.
    pub memory_bytes_max: Option<u64>,
    /// Where the table is to be.
    pub residence: Residence,
    /// Which of two ways kernels go where a measurement must tell.
    pub tuning: PrgTuning,
}

impl Default for GpuSpec {
    fn default() -> Self {
        Self {
            strategy: Strategy::Auto,
            batch_keys_max: 0,
            memory_bytes_max: None,
            residence: Residence::Auto,
            tuning: PrgTuning::default(),
        }
    }
}

/// Where a table is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Residence {
    /// In device memory if it fits, else as [`Streamed`](Self::Streamed).
    #[default]
    Auto,
    /// In device memory.
    Resident,
    /// In pinned memory of the host. Every pass sends it to the device in parts, the next one while
    /// one is worked on: a pass takes at least the table's bytes over the bus's speed.
    Streamed,
}

/// A table on a GPU, or in the host's memory beside it, and what answers keys from it.
///
/// Answers are those of [`CpuEngine`](hushtable_pir::CpuEngine), byte for byte. No time, branch or
/// address of a kernel depends on a key's secrets; what does not say so here is as in
/// `kernels/prg/aes.cuh`. Keys, nodes and shares are wiped from device memory after each pass.
pub struct GpuEngine {
    loaded: Loaded,
    batch_keys_max: usize,
    lanes: Lanes,
}

/// Keys a pass by default: beyond 512 blocks are full and each fills its multiprocessor (below), and
/// 1,024 halve what is left of a pass besides, its launches and the last blocks' wait.
const BATCH_KEYS_MAX: usize = 1024;
/// What a scheduler should wait for. A block of `tensor` has 128 keys, which share what it reads of
/// the table. Four groups of those make, of a table of 2^20 rows, as many blocks as an H200 has
/// multiprocessors (132), of equal work (`plan.rs` tests it); more keys a pass gain only what launches
/// cost, and each key waits longer.
const BATCH_KEYS_BEST: usize = 512;
/// Batches at work at once: two, so that one's keys and answers are copied while the other is
/// computed, of each of two callers.
const LANES: usize = 4;
/// Least that a lane must have for nodes and shares.
const WORK_BYTES_LEAST: u64 = 256 << 10;
/// Most that it takes: passes over more than this a key are cut into parts.
const WORK_BYTES_MAX: u64 = 2 << 30;

impl GpuEngine {
    /// Loads a bundle's rows, and checks them against its version as they are loaded.
    ///
    /// # Errors
    /// [`Error::Pir`] where the bundle cannot be read or its rows are not those of its version;
    /// [`Error::DeviceMemory`] with what is needed and what there is, for a table that does not fit as
    /// `spec` wants it; the device's.
    pub fn from_table(
        device: Arc<dyn Device>,
        table: &Table,
        spec: &GpuSpec,
    ) -> Result<Self, Error> {
        let shape = TableShape::new(table.rows(), table.row_bytes())?;
        let reading = table.reading().map_err(hushtable_pir::Error::of_table)?;
        let engine = Self::new(device, shape, spec, &|first, rows| {
            Ok(reading.copy_rows(first, rows).map_err(hushtable_pir::Error::of_table)?)
        })?;
        reading.finish().map_err(hushtable_pir::Error::of_table)?;
        Ok(engine)
    }

    /// Loads `rows × row_bytes` bytes, row by row.
    ///
    /// # Errors
    /// [`Error::Pir`] for another length; [`Error::DeviceMemory`] and the device's as for
    /// [`from_table`](Self::from_table).
    pub fn from_rows(
        device: Arc<dyn Device>,
        shape: TableShape,
        rows: &[u8],
        spec: &GpuSpec,
    ) -> Result<Self, Error> {
        if rows.len() as u64 != shape.table_bytes() {
            let (expected, found) = (shape.table_bytes(), rows.len() as u64);
            return Err(hushtable_pir::Error::TableBytes { expected, found }.into());
        }
        Self::new(device, shape, spec, &|first, to| {
            let start = first as usize * shape.row_bytes();
            to.copy_from_slice(&rows[start..start + to.len()]);
            Ok(())
        })
    }

    fn new(
        device: Arc<dyn Device>,
        shape: TableShape,
        spec: &GpuSpec,
        copy: &CopyRows<'_>,
    ) -> Result<Self, Error> {
        let layout = Layout::new(shape, plan::tiles_max(device.facts()));
        let free = device.free_bytes()?;
        let budget = spec.memory_bytes_max.map_or(free, |most| most.min(free));
        let resident_needs = layout.table_bytes() + LANES as u64 * WORK_BYTES_LEAST;
        let is_resident = match spec.residence {
            Residence::Resident => true,
            Residence::Streamed => false,
            Residence::Auto => resident_needs <= budget,
        };
        let work_bytes_all = budget.saturating_sub(layout.table_bytes());
        let (store, lanes, work) = if is_resident {
            if resident_needs > budget {
                return Err(Error::DeviceMemory { asked: resident_needs, free: budget });
            }
            // Twice: for nodes and for shares.
            let work = (budget - layout.table_bytes()) / (2 * LANES as u64);
            (Store::resident(&device, &layout, copy)?, LANES, work)
        } else {
            let part_blocks = part_blocks(&layout, budget)?;
            let work = budget / 4;
            // One: a pass has the bus to itself.
            (Store::streamed(&device, &layout, part_blocks, copy)?, 1, work)
        };
        let batch_keys_max = match spec.batch_keys_max {
            0 => BATCH_KEYS_MAX,
            keys => keys,
        };
        let lanes = Lanes::new(&device, lanes)?;
        Ok(Self {
            loaded: Loaded {
                expander: Expander::new(Arc::clone(&device)).with_tuning(spec.tuning),
                device,
                layout,
                store,
                strategy: spec.strategy,
                tuning: spec.tuning,
                ablation: None,
                work_bytes_all,
                work_bytes_max: work.min(WORK_BYTES_MAX) as usize,
            },
            batch_keys_max,
            lanes,
        })
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.loaded.device
    }

    /// Whether the table is in device memory.
    pub fn is_resident(&self) -> bool {
        matches!(self.loaded.store, Store::Resident(_))
    }

    /// Bytes of the stored table, wherever it is.
    pub fn stored_bytes(&self) -> u64 {
        self.loaded.layout.table_bytes()
    }

    /// What passes of `count` keys of a kind do, in a word or two: for benchmarks.
    pub fn route(&self, kind: KeyKind, count: usize) -> String {
        Route::new(&self.loaded, kind, count.min(self.batch_keys_max) as u32).to_string()
    }

    /// Answers by another strategy from now on.
    pub fn set_strategy(&mut self, strategy: Strategy) {
        self.loaded.strategy = strategy;
    }

    /// Answers by the paper's steps from now on, or again as a server does. In a step, keys may be of
    /// [`row_domain`](crate::row_domain) too.
    pub fn set_ablation(&mut self, ablation: Option<Ablation>) {
        self.loaded.ablation = ablation;
    }

    /// Bytes of device memory that a batch of `count` keys takes by the paper's step that is set.
    pub fn step_needs(&self, kind: KeyKind, count: usize) -> Needs {
        Needs::new(self.loaded.layout.shape(), kind, self.loaded.strategy, count as u64)
    }

    /// Answers by other kernels from now on.
    pub fn set_tuning(&mut self, tuning: PrgTuning) {
        self.loaded.tuning = tuning;
        self.loaded.expander = self.loaded.expander.clone().with_tuning(tuning);
    }

    /// Answers keys as [`Backend::answer`] does, and gives the milliseconds that the device took: from
    /// the beginning of the first copy of keys to it until the last answers are in its memory. Batches of
    /// several passes are timed as a whole. For benchmarks.
    ///
    /// # Errors
    /// As [`Backend::answer`]; [`Error::Geometry`] for keys of several kinds, or none.
    pub fn answer_timed(&self, keys: &[Key], answers: &mut [u8]) -> Result<f64, Error> {
        let kind = common_kind(&keys.iter().collect::<Vec<_>>())?;
        self.check(keys, answers)?;
        let chosen: Vec<usize> = (0..keys.len()).collect();
        let mut clock = Clock::default();
        self.answer_kind(kind, keys, &chosen, answers, Some(&mut clock))?;
        clock.milliseconds(&self.loaded.device)
    }

    /// That keys and answers fit the table.
    fn check(&self, keys: &[Key], answers: &[u8]) -> Result<(), hushtable_pir::Error> {
        let shape = self.loaded.layout.shape();
        let expected = keys.len() * shape.row_bytes();
        if answers.len() != expected {
            let found = answers.len();
            return Err(hushtable_pir::Error::AnswerBytes { expected, found });
        }
        let is_step = self.loaded.ablation.is_some();
        let other = |key: &&Key| {
            key.params().domain.rows() != shape.rows()
                && !(is_step && ablation::has_row_leaves(shape, KeyKind::of(key)))
        };
        match keys.iter().find(other) {
            Some(key) => {
                let (expected, found) = (shape.rows(), key.params().domain.rows());
                Err(hushtable_pir::Error::Domain { expected, found })
            }
            None => Ok(()),
        }
    }

    /// Runs, for keys of a generator and group, all kernels that batches of one and of
    /// [`batch_keys_best`](Backend::batch_keys_best) keys take, so that no client waits for the
    /// compiler.
    ///
    /// # Errors
    /// As [`answer`](Backend::answer).
    pub fn warm_up(&self, prg: PrgKind, group: Group) -> Result<(), hushtable_pir::Error> {
        let shape = self.loaded.layout.shape();
        let domain = Domain::new(shape.rows(), group)?;
        let prg = Prg::new(prg, Platform::detect());
        // Keys that nobody made a secret of.
        let key = |i: u8| Ok(KeyPair::from_seeds(prg, domain, 0, &[[i; 16], [!i; 16]])?.left);
        for count in [1, self.batch_keys_best()] {
            let keys: Result<Vec<Key>, hushtable_pir::Error> =
                (0..count).map(|i| key(i as u8)).collect();
            self.answer(&keys?, &mut vec![0; count * shape.row_bytes()])?;
        }
        Ok(())
    }

    /// Most keys of a kind that a pass takes.
    fn pass_keys_max(&self, kind: KeyKind) -> usize {
        self.batch_keys_max.min(Pass::keys_max(&self.loaded, kind)).max(1)
    }

    /// Answers keys of one kind. `chosen` says where among `keys` they are.
    fn answer_kind(
        &self,
        kind: KeyKind,
        keys: &[Key],
        chosen: &[usize],
        answers: &mut [u8],
        mut clock: Option<&mut Clock>,
    ) -> Result<(), Error> {
        let row_bytes = self.loaded.layout.shape().row_bytes();
        let most = match self.loaded.ablation {
            Some(ablation) => ablation::pass_keys(&self.loaded, ablation, kind, chosen.len())?,
            None => self.pass_keys_max(kind),
        };
        // Equal passes: a short last one would cost as much of launches as a long one.
        let passes = chosen.len().div_ceil(most);
        let mut batches = chosen.chunks(chosen.len().div_ceil(passes));
        let mut idle: Vec<Taken<'_>> = vec![self.lanes.wait()];
        if passes > 1 {
            idle.extend(self.lanes.another());
        }
        let mut issued: VecDeque<(Taken<'_>, &[usize])> = VecDeque::new();
        let mut outcome = Ok(());
        loop {
            // As many at work as there are lanes; then the oldest's answers, while the other goes on.
            while outcome.is_ok()
                && let Some(mut taken) = idle.pop()
            {
                let Some(batch) = batches.next() else { break };
                let chosen: Vec<&Key> = batch.iter().map(|&i| &keys[i]).collect();
                let pass = Pass { loaded: &self.loaded, kind, lane: taken.lane() };
                outcome = pass.issue(&chosen, clock.as_deref_mut());
                if outcome.is_ok() {
                    issued.push_back((taken, batch));
                }
            }
            let Some((mut taken, batch)) = issued.pop_front() else { break };
            let pass = Pass { loaded: &self.loaded, kind, lane: taken.lane() };
            let collected = pass.collect(batch.len(), |index, row| {
                answers[batch[index] * row_bytes..][..row_bytes].copy_from_slice(row);
            });
            outcome = outcome.and(collected);
            idle.push(taken);
        }
        outcome
    }
}

/// Superblocks of a streamed table's parts: two of them, and as much again for the rest, in `budget`.
fn part_blocks(layout: &Layout, budget: u64) -> Result<u32, Error> {
    // A part holds whole leaves of every group.
    let least = least_part_blocks(layout);
    let fitting = (budget / 4 / layout.block_bytes() as u64).min(u64::from(u32::MAX) / 2 + 1);
    match fitting.checked_ilog2() {
        Some(blocks) if 1 << blocks >= least && budget / 4 >= WORK_BYTES_LEAST => {
            // The first power of two that holds the table is enough.
            Ok((1 << blocks).min(layout.blocks().next_power_of_two()).max(least))
        }
        _ => {
            let bytes = u64::from(least) * layout.block_bytes() as u64;
            Err(Error::DeviceMemory { asked: 4 * bytes.max(WORK_BYTES_LEAST), free: budget })
        }
    }
}

impl Backend for GpuEngine {
    fn shape(&self) -> TableShape {
        self.loaded.layout.shape()
    }

    fn answer(&self, keys: &[Key], answers: &mut [u8]) -> Result<(), hushtable_pir::Error> {
        self.check(keys, answers)?;
        let mut kinds: Vec<(KeyKind, Vec<usize>)> = Vec::new();
        for (index, key) in keys.iter().enumerate() {
            let kind = KeyKind::of(key);
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, chosen)) => chosen.push(index),
                None => kinds.push((kind, vec![index])),
            }
        }
        // Most batches are of one kind; a mixed one takes a pass a kind.
        for (kind, chosen) in kinds {
            self.answer_kind(kind, keys, &chosen, answers, None)?;
        }
        Ok(())
    }

    fn batch_keys_best(&self) -> usize {
        BATCH_KEYS_BEST.min(self.batch_keys_max)
    }

    fn groups(&self) -> &[Group] {
        // Batches of bytes go to the tensor cores; one key of bits reads the table as fast.
        &[Group::Z8, Group::Bits]
    }

    fn description(&self) -> String {
        format!(
            "{}, {}, {:.1} MiB {}",
            self.loaded.device.facts().name,
            self.loaded.strategy,
            self.stored_bytes() as f64 / f64::from(1 << 20),
            if self.is_resident() { "resident" } else { "streamed" },
        )
    }
}

impl std::fmt::Debug for GpuEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the rows.
        f.debug_struct("GpuEngine").field("layout", &self.loaded.layout).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shim::Shim;

    fn engine(strategy: Strategy) -> GpuEngine {
        let shape = TableShape::new(1000, 8).expect("a shape");
        let spec = GpuSpec { strategy, ..GpuSpec::default() };
        GpuEngine::from_rows(Shim::new(0), shape, &[7; 8000], &spec).expect("a table")
    }

    fn keys(count: u8) -> Vec<Key> {
        let domain = Domain::new(1000, Group::Z8).expect("a domain");
        let prg = Prg::new(PrgKind::ChaCha20, Platform::PORTABLE);
        let pair = |i| KeyPair::from_seeds(prg, domain, 1, &[[i; 16], [!i; 16]]).expect("keys");
        (0..count).map(|i| pair(i).left).collect()
    }

    #[test]
    fn nothing_secret_stays_after_a_pass() {
        for strategy in [Strategy::Tensor, Strategy::BlockPerKey, Strategy::Cooperative] {
            let gpu = engine(strategy);
            // A short pass after a long one leaves nothing of either.
            for count in [3, 1] {
                gpu.answer(&keys(count), &mut vec![0; 8 * usize::from(count)]).expect("answers");
                let mut taken = gpu.lanes.wait();
                let lane = taken.lane();
                for room in [&lane.keys, &lane.nodes, &lane.shares] {
                    let Some(buffer) = room.buffer() else { continue };
                    let mut bytes = vec![1; buffer.bytes()];
                    gpu.loaded
                        .device
                        .copy_out(lane.stream, &mut bytes, buffer, 0)
                        .expect("in bounds");
                    // What nobody wrote is the shim's 0xa5.
                    assert!(bytes.iter().all(|byte| [0, 0xa5].contains(byte)), "{strategy}");
                    assert!(bytes.contains(&0), "{strategy}");
                }
                let staged = lane.keys_out.of(&gpu.loaded.device, 1).expect("memory");
                assert_eq!(staged, [0]);
            }
        }
    }

    #[test]
    fn nodes_of_levels_are_wiped_before_their_memory_is_given_back() {
        let shape = TableShape::new(1000, 8).expect("a shape");
        let spec = GpuSpec { strategy: Strategy::LevelByLevel, ..GpuSpec::default() };
        let shim = Shim::counting(0, 1 << 30);
        let gpu = GpuEngine::from_rows(shim.clone(), shape, &[7; 8000], &spec).expect("a table");
        let before = shim.left_bytes();
        gpu.answer(&keys(2), &mut [0; 16]).expect("answers");
        assert_eq!(shim.left_bytes(), before);
    }

    #[test]
    fn a_route_is_by_the_batch() {
        let gpu = engine(Strategy::Auto);
        let kind = KeyKind::of(&keys(1)[0]);
        assert_eq!(gpu.route(kind, 1), "block-per-key, product");
        assert_eq!(gpu.route(kind, 20), "hybrid:1024, product");
        assert_eq!(gpu.route(kind, 512), "tensor");
    }

    #[test]
    fn warming_up_compiles_what_batches_take() {
        let shape = TableShape::new(100, 8).expect("a shape");
        let spec = GpuSpec { batch_keys_max: 40, ..GpuSpec::default() };
        let gpu = GpuEngine::from_rows(Shim::new(0), shape, &[7; 800], &spec).expect("a table");
        gpu.warm_up(PrgKind::ChaCha20, Group::Z8).expect("warm");
    }
}
