//! NVIDIA GPUs, by the engine of `hushtable-gpu`.

mod bins;

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hushtable_gpu::{
    Ablation, Cuda, CudaSpec, Error, GpuEngine, GpuSpec, KeyKind, PrgTuning, Probe, row_domain,
    row_index,
};
use hushtable_pir::dpf::{Domain, Group, Key, KeyPair};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, Platform, Prg, PrgKind, TableShape};

use super::{How, Times, no_gpu};
use crate::bench::parse_prg;
use crate::errors::Failure;
use crate::gpu::DeviceFacts;
use crate::gpu::engine::device_facts;
use crate::machine::{Random, random_rows};
pub(crate) use bins::BinsBench;

/// An engine over random rows.
pub(crate) struct Bench {
    index: u32,
    rows: Vec<u8>,
    shape: TableShape,
    engine: Mutex<GpuEngine>,
    /// The engine that small tables' answers are compared with.
    reference: OnceLock<CpuEngine>,
}

/// Both sides' keys for some rows.
struct Asked {
    ids: Vec<u64>,
    group: Group,
    left: Vec<Key>,
    right: Vec<Key>,
}

impl Bench {
    pub fn new(
        rows: u64,
        row_bytes: usize,
        index: u32,
        nvrtc_folders: Vec<PathBuf>,
    ) -> Result<Self, Failure> {
        let spec = CudaSpec { index, nvrtc_folders, cache_folder: None };
        let device = Cuda::open(&spec).map_err(no_gpu)?;
        let shape = TableShape::new(rows, row_bytes)?;
        let rows = random_rows(shape)?;
        let engine = GpuEngine::from_rows(device, shape, &rows, &GpuSpec::default());
        let engine = Mutex::new(engine.map_err(failed)?);
        Ok(Self { index, rows, shape, engine, reference: OnceLock::new() })
    }

    pub fn facts(&self) -> DeviceFacts {
        device_facts(self.index, self.engine().device().facts())
    }

    pub fn description(&self) -> String {
        self.engine().description()
    }

    /// Both sides' answers, added up, are the rows; of a small table each is also what the engine for
    /// processors answers.
    pub fn check(&self, batch: usize, how: &How<'_>) -> Result<(), Failure> {
        let asked = self.ask(batch, how)?;
        let row_bytes = self.shape.row_bytes();
        let mut sums = self.answer(&asked.left, how)?;
        let shares = self.answer(&asked.right, how)?;
        // The engine for processors has no keys with a leaf for each row.
        if self.shape.table_bytes() <= REFERENCE_BYTES_MAX && how.leaf != Some("row") {
            self.compare(&asked.left, &sums)?;
            self.compare(&asked.right, &shares)?;
        }
        let rows = sums.chunks_exact_mut(row_bytes).zip(shares.chunks_exact(row_bytes));
        for ((sum, share), &id) in rows.zip(&asked.ids) {
            asked.group.add(sum, share);
            if sum != &self.rows[id as usize * row_bytes..][..row_bytes] {
                return Err(wrong(format!("row {id} came back wrong")));
            }
        }
        Ok(())
    }

    pub fn answer_ms(&self, batch: usize, how: &How<'_>, seconds: f64) -> Result<Times, Failure> {
        let limit = Duration::try_from_secs_f64(seconds).map_err(Failure::config)?;
        let keys = self.ask(batch, how)?.left;
        let engine = self.prepared(how)?;
        let mut answers = vec![0; batch * self.shape.row_bytes()];
        // The first compiles, takes memory, and wakes the device up.
        engine.answer_timed(&keys, &mut answers).map_err(failed)?;
        let mut times = Times::default();
        let started = Instant::now();
        while times.wall_ms.len() < REPEATS_MIN || started.elapsed() < limit {
            let start = Instant::now();
            times.device_ms.push(engine.answer_timed(&keys, &mut answers).map_err(failed)?);
            times.wall_ms.push(start.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    }

    fn engine(&self) -> MutexGuard<'_, GpuEngine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine, set to answer so: a strategy's name, and after `+` `bitsliced` or `multiplied`.
    fn prepared(&self, how: &How<'_>) -> Result<MutexGuard<'_, GpuEngine>, Failure> {
        let (strategy, tuning) = how.strategy.split_once('+').unwrap_or((how.strategy, ""));
        let tuning = match tuning {
            "" => PrgTuning::default(),
            "bitsliced" => PrgTuning { aes_bitsliced: true, ..PrgTuning::default() },
            "multiplied" => PrgTuning { rotate_by_multiply: true, ..PrgTuning::default() },
            other => {
                let text = format!("kernels are bitsliced or multiplied, not {other:?}");
                return Err(Failure::config(text));
            }
        };
        let strategy = strategy.parse().map_err(Failure::config)?;
        let mut engine = self.engine();
        engine.set_strategy(strategy);
        engine.set_tuning(tuning);
        engine.set_ablation(how.leaf.map(|_| Ablation { streams: how.streams }));
        Ok(engine)
    }

    /// The domain of keys, and the rows of it from one row of the table to the next.
    fn domain(&self, how: &How<'_>) -> Result<(Domain, u64), Failure> {
        let group: Group = how.group.parse().map_err(Failure::config)?;
        match (how.leaf, group) {
            (None | Some("wide"), _) => Ok((Domain::new(self.shape.rows(), group)?, 1)),
            (Some("row"), Group::Z32) => {
                Ok((row_domain(self.shape).map_err(failed)?, row_index(1)))
            }
            (Some("row"), other) => Err(Failure::config(format!(
                "a leaf for each row is of group z32, not {}",
                other.name()
            ))),
            (Some(other), _) => {
                Err(Failure::config(format!("leaves are row or wide, not {other:?}")))
            }
        }
    }

    /// Bytes of nodes and of shares that a batch takes by a step of the paper's.
    pub fn step_bytes(&self, batch: usize, how: &How<'_>) -> Result<(u64, u64), Failure> {
        let (domain, _) = self.domain(how)?;
        let kind = KeyKind { domain, prg: parse_prg(how.prg)? };
        let needs = self.prepared(how)?.step_needs(kind, batch);
        Ok((needs.node_bytes, needs.share_bytes))
    }

    fn answer(&self, keys: &[Key], how: &How<'_>) -> Result<Vec<u8>, Failure> {
        let mut answers = vec![0; keys.len() * self.shape.row_bytes()];
        self.prepared(how)?.answer(keys, &mut answers)?;
        Ok(answers)
    }

    /// Keys for the first row, the last, and random ones.
    fn ask(&self, batch: usize, how: &How<'_>) -> Result<Asked, Failure> {
        if !(1..=BATCH_MAX).contains(&batch) {
            let text = format!("batch is {batch}, but must be 1 to {BATCH_MAX}");
            return Err(Failure::config(text));
        }
        let prg: PrgKind = parse_prg(how.prg)?;
        let rows = self.shape.rows();
        let (domain, apart) = self.domain(how)?;
        let generator = Prg::new(prg, Platform::detect());
        let mut random = Random(batch as u64);
        let ends = [rows - 1, 0].into_iter();
        let ids = ends.chain(std::iter::repeat_with(move || random.next() % rows));
        let ids: Vec<u64> = ids.take(batch).collect();
        let (mut left, mut right) = (Vec::with_capacity(batch), Vec::with_capacity(batch));
        for &id in &ids {
            let pair = KeyPair::generate(generator, domain, id * apart)?;
            left.push(pair.left);
            right.push(pair.right);
        }
        Ok(Asked { ids, group: domain.group(), left, right })
    }

    /// That the engine for processors answers the same, byte by byte.
    fn compare(&self, keys: &[Key], found: &[u8]) -> Result<(), Failure> {
        let reference = match self.reference.get() {
            Some(reference) => reference,
            None => {
                let made = CpuEngine::from_rows(self.shape, &self.rows, &EngineSpec::default())?;
                self.reference.get_or_init(|| made)
            }
        };
        let mut expected = vec![0; found.len()];
        reference.answer(keys, &mut expected)?;
        match found.iter().zip(&expected).position(|(found, expected)| found != expected) {
            None => Ok(()),
            Some(at) => {
                let (key, byte) = (at / self.shape.row_bytes(), at % self.shape.row_bytes());
                let side = keys[key].params().side;
                let count = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
                Err(wrong(format!(
                    "byte {byte} of the {side} answer to key {key} came back wrong: {}, and by the \
                     processor {}; {count} of {} bytes differ",
                    found[at],
                    expected[at],
                    found.len()
                )))
            }
        }
    }
}

pub(crate) fn probe(index: u32, nvrtc_folders: Vec<PathBuf>) -> Result<(f64, f64, f64), Failure> {
    let spec = CudaSpec { index, nvrtc_folders, cache_folder: None };
    let rates = Cuda::open(&spec).and_then(|device| Probe::measure(&device)).map_err(no_gpu)?;
    Ok((
        rates.read_bytes_per_s / 1e9,
        rates.multiply_adds_per_s / 1e12,
        rates.operations_per_s / 1e9,
    ))
}

fn failed(error: Error) -> Failure {
    hushtable_pir::Error::from(error).into()
}

fn wrong(text: String) -> Failure {
    Failure::new("Error", format!("{text}: do not trust this device or its kernels"))
}

const BATCH_MAX: usize = 1 << 16;
const REPEATS_MIN: usize = 5;
/// Larger tables are not loaded twice.
const REFERENCE_BYTES_MAX: u64 = 64 << 20;
