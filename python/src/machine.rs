//! What this machine computes with, and how fast it reads and computes.

use hushtable_pir::dpf::{Domain, Group, Key, KeyPair};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, TableShape, floor};
use hushtable_prg::{Platform, Prg, PrgKind};
use hushtable_ring::Kernel;
use pyo3::prelude::*;

use crate::errors::Failure;

/// Instruction tiers, by name.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct PlatformFacts {
    /// The one that is used.
    chosen: &'static str,
    available: Vec<&'static str>,
    /// What `HUSHTABLE_ISA` says.
    cap: Option<String>,
    /// Whether that is a tier.
    cap_is_known: bool,
}

/// The instruction tiers of this machine.
#[pyfunction]
pub(crate) fn platforms() -> PlatformFacts {
    let (cap, cap_is_known) = match Platform::isa_cap() {
        Ok(cap) => (cap.map(|tier| format!("{tier:?}").to_lowercase()), true),
        Err(text) => (Some(text), false),
    };
    let available = Platform::available().into_iter().map(Platform::name).collect();
    PlatformFacts { chosen: Platform::detect().name(), available, cap, cap_is_known }
}

/// Names of all generators.
#[pyfunction]
pub(crate) fn prg_names() -> Vec<&'static str> {
    PrgKind::ALL.map(PrgKind::name).to_vec()
}

/// GB/s that `threads` threads read from `bytes` of memory.
#[pyfunction]
pub(crate) fn read_gb_per_s(py: Python<'_>, bytes: usize, threads: usize) -> f64 {
    py.detach(|| floor::read_gb_per_s(bytes, threads))
}

/// Nanoseconds of one 512-bit `vgf2p8affineqb` and of one 512-bit `vaesenc`, or None.
#[pyfunction]
pub(crate) fn instruction_ns(py: Python<'_>) -> (Option<f64>, Option<f64>) {
    py.detach(|| (floor::affine_ns(), floor::aes_round_ns()))
}

/// The instructions that transforms and key switches use on this machine.
#[pyfunction]
pub(crate) fn ring_kernel() -> &'static str {
    Kernel::new(Platform::detect()).isa()
}

/// What answers lookups on this machine.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct EngineFacts {
    /// Device, instruction set, threads, bytes.
    description: String,
    threads: usize,
    /// Keys that one pass takes.
    batch_keys_best: usize,
}

/// The engine that a server has here, seen to bring rows of a small made-up table back.
#[pyfunction]
pub(crate) fn check_engine(py: Python<'_>) -> PyResult<EngineFacts> {
    let facts = py.detach(|| {
        let shape = TableShape::new(CHECKED_ROWS, CHECKED_ROW_BYTES)?;
        let rows = random_rows(shape)?;
        let engine = CpuEngine::from_rows(shape, &rows, &EngineSpec::default())?;
        check_answers(&engine, &rows, CHECKED_KEYS, PrgKind::Aes128)?;
        Ok::<_, Failure>(EngineFacts {
            description: engine.description(),
            threads: engine.threads(),
            batch_keys_best: engine.batch_keys_best(),
        })
    });
    Ok(facts?)
}

/// Makes keys for random rows of an engine over `rows`; returns the left ones, and room for their answers,
/// once both sides' answers have been seen to add up to the rows.
///
/// # Errors
/// Of what the engine refuses; one that names the first row that came back wrong.
pub(crate) fn check_answers(
    engine: &CpuEngine,
    rows: &[u8],
    batch: usize,
    prg: PrgKind,
) -> Result<(Vec<Key>, Vec<u8>), Failure> {
    let shape = engine.shape();
    let (domain, row_bytes) = (Domain::new(shape.rows(), Group::Bits)?, shape.row_bytes());
    let generator = Prg::new(prg, engine.platform());
    let mut random = Random(batch as u64);
    let ids: Vec<u64> = (0..batch).map(|_| random.next() % shape.rows()).collect();
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for &id in &ids {
        let pair = KeyPair::generate(generator, domain, id)?;
        left.push(pair.left);
        right.push(pair.right);
    }
    let mut answers = vec![0; batch * row_bytes];
    let mut others = vec![0; batch * row_bytes];
    engine.answer(&left, &mut answers)?;
    engine.answer(&right, &mut others)?;
    for (share, other) in others.iter_mut().zip(&answers) {
        *share ^= other;
    }
    for (&id, row) in ids.iter().zip(others.chunks_exact(row_bytes)) {
        if row != &rows[id as usize * row_bytes..][..row_bytes] {
            let text = format!("row {id} came back wrong: do not trust this machine's kernel");
            return Err(Failure::new("Error", text));
        }
    }
    Ok((left, answers))
}

/// Made-up rows of a table of this shape.
pub(crate) fn random_rows(shape: TableShape) -> Result<Vec<u8>, Failure> {
    let bytes = shape.table_bytes();
    let size = usize::try_from(bytes).map_err(|_| hushtable_pir::Error::Memory { bytes })?;
    let mut rows: Vec<u8> = Vec::new();
    rows.try_reserve_exact(size).map_err(|_| hushtable_pir::Error::Memory { bytes })?;
    rows.resize(size, 0);
    let mut random = Random(1);
    for word in rows.chunks_mut(8) {
        let bytes = random.next().to_le_bytes();
        word.copy_from_slice(&bytes[..word.len()]);
    }
    Ok(rows)
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): content for checks and timing, nothing secret.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }
}

/// A table that is read in no time.
const CHECKED_ROWS: u64 = 1 << 12;
const CHECKED_ROW_BYTES: usize = 64;
/// A group of eight queries, which kernels take at once, and one more.
const CHECKED_KEYS: usize = 9;
