//! Measurements of the single-server engine and of its transform.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use hushtable_pir::onion::{
    Asked, Client, Engine, Geometry, OnionBackend, OnionSpec, Schedule, Server, Stages, operations,
    traffic,
};
use hushtable_pir::{Platform, TableShape, floor};
use hushtable_ring::{Buffer, Kernel, Modulus, NttTable, ntt_primes};
use hushtable_table::Version;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::bench::repeat;
use crate::errors::Failure;
use crate::geometry::{geometry_facts, onion_shape};
use crate::prepare::{check_threads, parameter_set};

/// Seconds of one pass: in all, ExpandQuery, RowSel, ColTor.
type Pass = (f64, f64, f64, f64);

/// An engine over rows that are a function of their number, prepared in memory, to be timed.
#[pyclass(frozen, module = "hushtable._native.bench", name = "OnionBench")]
pub(crate) struct NativeOnionBench {
    engine: Arc<Engine>,
    prepare_seconds: f64,
}

#[pymethods]
impl NativeOnionBench {
    /// Prepares `rows × row_bytes`; 0 threads for one a core, no `levels` and no `schedule` for the
    /// engine's own choice. `schedule` is of both trees: breadth, depth, hierarchical:DEPTH or
    /// hierarchical-breadth:DEPTH. With `overlap`, digits are used up one by one.
    #[new]
    #[pyo3(signature = (rows, row_bytes, *, parameters, threads, levels, schedule, overlap=false))]
    #[allow(clippy::too_many_arguments, reason = "called from Python, by keyword")]
    fn new(
        py: Python<'_>,
        rows: u64,
        row_bytes: usize,
        parameters: &str,
        threads: usize,
        levels: Option<u32>,
        schedule: Option<&str>,
        overlap: bool,
    ) -> PyResult<Self> {
        let (set, threads) = (parameter_set(parameters)?, check_threads(threads)?);
        let mut spec = OnionSpec { threads, overlap, ..OnionSpec::new() };
        if let Some(schedule) = schedule {
            (spec.expand, spec.tournament) = (parse_schedule(schedule)?, parse_schedule(schedule)?);
        }
        Ok(py.detach(|| {
            let shape = TableShape::new(rows, row_bytes)?;
            let geometry = match levels {
                None => Geometry::new(set, shape)?,
                Some(levels) => Geometry::with_levels(set, shape, levels)?,
            };
            let started = Instant::now();
            let engine = Engine::from_rows(geometry, version(), &spec, &copy_rows(row_bytes))?;
            let prepare_seconds = started.elapsed().as_secs_f64();
            Ok::<_, Failure>(Self { engine: Arc::new(engine), prepare_seconds })
        })?)
    }

    /// Threads of the engine.
    #[getter]
    fn threads(&self) -> usize {
        self.engine.threads()
    }

    /// Threads, parameters, kernel, bytes.
    #[getter]
    fn description(&self) -> String {
        self.engine.description()
    }

    /// What the table became, in numbers.
    #[getter]
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let facts = geometry_facts(py, self.engine.geometry())?;
        facts.set_item("resident_bytes", self.engine.resident_bytes())?;
        facts.set_item("prepare_seconds", self.prepare_seconds)?;
        facts.set_item("ring_kernel", Kernel::new(Platform::detect()).isa())?;
        Ok(facts)
    }

    /// Each of several passes for `batch` clients, one query and one set of keys each, over at least
    /// `seconds`; then each client's seconds of making keys, making the query, and decoding. Before,
    /// all rows are compared with those that were asked for.
    #[allow(clippy::type_complexity, reason = "a plain tuple for Python to unpack")]
    fn answer_seconds(
        &self,
        py: Python<'_>,
        batch: usize,
        seconds: f64,
    ) -> PyResult<(Vec<Pass>, Vec<(f64, f64, f64)>)> {
        if !(1..=BATCH_MAX).contains(&batch) {
            let text = format!("batch is {batch}, but must be 1 to {BATCH_MAX}");
            return Err(Failure::config(text).into());
        }
        let (asked, clients) = py.detach(|| self.check(batch))?;
        let mut responses = vec![0; batch * self.engine.geometry().response_bytes()];
        let mut passes = Vec::new();
        repeat(py, seconds, || {
            let started = Instant::now();
            let stages = self.engine.answer_timed(&asked, &mut responses)?;
            passes.push(pass(started, stages));
            Ok(())
        })?;
        Ok((passes, clients))
    }

    /// One pass for `batch` clients that brings the table into its prepared form anew, from rows that
    /// lie in memory; its responses are compared with a prepared pass's.
    fn unprepared_seconds(&self, py: Python<'_>, batch: usize) -> PyResult<Pass> {
        if !(1..=BATCH_MAX).contains(&batch) {
            let text = format!("batch is {batch}, but must be 1 to {BATCH_MAX}");
            return Err(Failure::config(text).into());
        }
        Ok(py.detach(|| {
            let (asked, _) = self.check(batch)?;
            let geometry = self.engine.geometry();
            let row_bytes = geometry.shape().row_bytes();
            let mut table = vec![0; geometry.shape().table_bytes() as usize];
            copy_rows(row_bytes)(0, &mut table)?;
            let copy = |first: u64, bytes: &mut [u8]| {
                let first = first as usize * row_bytes;
                bytes.copy_from_slice(&table[first..first + bytes.len()]);
                Ok(())
            };
            let mut responses = vec![0; batch * geometry.response_bytes()];
            let started = Instant::now();
            let stages = self.engine.answer_unprepared(&asked, &copy, &mut responses)?;
            let taken = pass(started, stages);
            let mut prepared = vec![0; responses.len()];
            self.engine.answer_timed(&asked, &mut prepared)?;
            if prepared != responses {
                let text = "a pass without preparation answers otherwise: do not trust either";
                return Err(Failure::new("Error", text));
            }
            Ok(taken)
        })?)
    }
}

impl NativeOnionBench {
    /// Queries of `batch` clients once they have been seen to work, and what each client's parts
    /// took.
    #[allow(clippy::type_complexity, reason = "used in one place")]
    fn check(&self, batch: usize) -> Result<(Vec<Asked>, Vec<(f64, f64, f64)>), Failure> {
        let geometry = self.engine.geometry();
        let server = Server::new(Arc::clone(&self.engine) as Arc<dyn OnionBackend>);
        let rows = geometry.shape().rows();
        let (mut asked, mut waiting) = (Vec::new(), Vec::new());
        for index in 0..batch as u64 {
            let id = mix(index) % rows;
            let (client, keys_s) = timed(|| Client::new(geometry.clone(), version()));
            let client = client?;
            let (made, query_s) = timed(|| client.query(&[id], 1));
            let (queries, pending) = made?;
            let keys = Arc::new(server.accept_keys(client.keys())?);
            asked.push(server.accept(&keys, &queries[0])?);
            waiting.push((client, pending, id, keys_s, query_s));
        }
        let response_bytes = geometry.response_bytes();
        let mut responses = vec![0; batch * response_bytes];
        server.answer(&asked, &mut responses)?;
        let mut expected = vec![0; geometry.shape().row_bytes()];
        let mut times = Vec::new();
        for (waiting, response) in waiting.iter().zip(responses.chunks_exact(response_bytes)) {
            let (client, pending, id, keys_s, query_s) = waiting;
            let (row, decode_s) = timed(|| client.decode(pending, version(), response));
            fill_row(*id, &mut expected);
            if row? != expected {
                let text = format!("row {id} came back wrong: do not trust this machine's kernel");
                return Err(Failure::new("Error", text));
            }
            times.push((*keys_s, *query_s, decode_s));
        }
        Ok((asked, times))
    }
}

/// Operations of one query, by step: polynomials modulo one prime (`forward`, `inverse`, `products`,
/// `sums`, `single_products`), polynomials modulo Q (`decompositions`), numbers (RowSel's).
#[pyfunction]
#[pyo3(signature = (rows, row_bytes, *, parameters, levels))]
pub(crate) fn onion_operations<'py>(
    py: Python<'py>,
    rows: u64,
    row_bytes: usize,
    parameters: &str,
    levels: Option<u32>,
) -> PyResult<Bound<'py, PyDict>> {
    let geometry = onion_shape(rows, row_bytes, parameters, levels)?;
    let found = operations::of_query(&geometry);
    let by_step = PyDict::new(py);
    for (name, step) in [("expand", found.expand), ("tournament", found.tournament)] {
        let one = PyDict::new(py);
        one.set_item("forward", step.forward)?;
        one.set_item("inverse", step.inverse)?;
        one.set_item("products", step.products)?;
        one.set_item("sums", step.sums)?;
        one.set_item("single_products", step.single_products)?;
        one.set_item("decompositions", step.decompositions)?;
        by_step.set_item(name, one)?;
    }
    by_step.set_item("row_select", found.row_select)?;
    by_step.set_item("splits", found.splits)?;
    by_step.set_item("games", found.games)?;
    Ok(by_step)
}

/// Bytes that one query moves between memory and a scratchpad of `scratchpad_bytes`, by step:
/// ciphertexts read and written, keys or selectors read. Residues take `residue_bits` each.
#[pyfunction]
#[pyo3(signature = (
    rows, row_bytes, *, parameters, levels, schedule, overlap, residue_bits, scratchpad_bytes
))]
#[allow(clippy::too_many_arguments, reason = "called from Python, by keyword")]
pub(crate) fn onion_traffic<'py>(
    py: Python<'py>,
    rows: u64,
    row_bytes: usize,
    parameters: &str,
    levels: Option<u32>,
    schedule: &str,
    overlap: bool,
    residue_bits: u64,
    scratchpad_bytes: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let geometry = onion_shape(rows, row_bytes, parameters, levels)?;
    let (schedule, params) = (parse_schedule(schedule)?, geometry.params());
    let overlapped = |sizes: traffic::Sizes| if overlap { sizes.overlapped() } else { sizes };
    let expansion =
        overlapped(traffic::Sizes::of_expansion(params, residue_bits, scratchpad_bytes));
    let tournament =
        overlapped(traffic::Sizes::of_tournament(params, residue_bits, scratchpad_bytes));
    let leaves = geometry.rows() + geometry.games() as usize * params.selector().digits();
    let by_step = PyDict::new(py);
    for (name, moved, times) in [
        ("expand", traffic::of_expansion(schedule, leaves, expansion), 1),
        (
            "tournament",
            traffic::of_tournament(schedule, geometry.columns(), tournament),
            geometry.chunks() as u64,
        ),
    ] {
        let one = PyDict::new(py);
        one.set_item("ciphertext_reads", times * moved.ciphertext_reads)?;
        one.set_item("ciphertext_writes", times * moved.ciphertext_writes)?;
        one.set_item("key_reads", times * moved.key_reads)?;
        by_step.set_item(name, one)?;
    }
    by_step.set_item("expand_ciphertext", expansion.ciphertext)?;
    by_step.set_item("tournament_ciphertext", tournament.ciphertext)?;
    Ok(by_step)
}

/// Seconds of a pass that has just ended.
fn pass(started: Instant, stages: Stages) -> Pass {
    let all = [started.elapsed(), stages.expand, stages.row_select, stages.tournament];
    let [all, expand, row_select, tournament] = all.map(|time| time.as_secs_f64());
    (all, expand, row_select, tournament)
}

/// What writes the benchmark's rows from the given one on.
fn copy_rows(
    row_bytes: usize,
) -> impl Fn(u64, &mut [u8]) -> Result<(), hushtable_pir::onion::Error> + Sync {
    move |first, bytes| {
        for (id, row) in (first..).zip(bytes.chunks_exact_mut(row_bytes)) {
            fill_row(id, row);
        }
        Ok(())
    }
}

/// Seconds that each of several transforms of one polynomial took, on one thread, and the kernel.
#[pyfunction]
#[pyo3(signature = (degree, bits, *, is_inverse, seconds))]
pub(crate) fn ntt_seconds(
    py: Python<'_>,
    degree: usize,
    bits: u32,
    is_inverse: bool,
    seconds: f64,
) -> PyResult<(Vec<f64>, &'static str)> {
    if !degree.is_power_of_two() || !(1 << 10..=1 << 17).contains(&degree) {
        let text = format!("degree is {degree}, but must be a power of two, 1,024 to 131,072");
        return Err(Failure::config(text).into());
    }
    if !(27..=Modulus::BITS_MAX).contains(&bits) {
        let most = Modulus::BITS_MAX;
        let text = format!("modulus_bits is {bits}, but must be 27 to {most}");
        return Err(Failure::config(text).into());
    }
    let failed = |error| Failure::new("Error", error);
    let Some(&prime) = ntt_primes(bits, degree, 1).first() else {
        let text = format!("no prime of {bits} bits has a transform of degree {degree}");
        return Err(Failure::config(text).into());
    };
    let modulus = Modulus::new(prime).map_err(failed)?;
    let table = NttTable::new(modulus, degree).map_err(failed)?;
    let kernel = Kernel::new(Platform::detect());
    let mut values = Buffer::zeroed(degree);
    for (index, value) in values.iter_mut().enumerate() {
        *value = mix(index as u64) % prime;
    }
    let calls = (TRANSFORM_COEFFICIENTS / degree).max(1);
    let times = repeat(py, seconds, || {
        for _ in 0..calls {
            match is_inverse {
                false => kernel.forward(&table, black_box(&mut values)),
                true => kernel.inverse(&table, black_box(&mut values)),
            }
        }
        Ok(())
    })?;
    Ok((times.into_iter().map(|time| time / calls as f64).collect(), kernel.isa()))
}

/// Nanoseconds of one 512-bit `vpmadd52luq`, or None.
#[pyfunction]
pub(crate) fn multiply_ns(py: Python<'_>) -> Option<f64> {
    py.detach(floor::multiply_ns)
}

fn timed<T>(call: impl FnOnce() -> T) -> (T, f64) {
    let started = Instant::now();
    let result = call();
    (result, started.elapsed().as_secs_f64())
}

fn parse_schedule(name: &str) -> Result<Schedule, Failure> {
    let depth = |text: &str| text.parse().ok().filter(|depth| (1..=32).contains(depth));
    let parsed = match name.split_once(':') {
        None if name == "breadth" => Some(Schedule::BreadthFirst),
        None if name == "depth" => Some(Schedule::DepthFirst),
        Some(("hierarchical", text)) => depth(text).map(|depth| Schedule::Hierarchical { depth }),
        Some(("hierarchical-breadth", text)) => {
            depth(text).map(|depth| Schedule::HierarchicalBreadth { depth })
        }
        _ => None,
    };
    parsed.ok_or_else(|| {
        Failure::config(format!(
            "schedule is {name:?}, but must be breadth, depth, hierarchical:DEPTH or \
             hierarchical-breadth:DEPTH, with a depth of 1 to 32"
        ))
    })
}

/// The version of a benchmark's table, which has no content to hash.
fn version() -> Version {
    Version::from([0; 32])
}

/// A row as a function of its number, so that the table need not be kept in the clear.
fn fill_row(id: u64, row: &mut [u8]) {
    let mut word = mix(id);
    for bytes in row.chunks_mut(8) {
        word = word.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
}

/// SplitMix64's output function (Steele, Lea, Flood, OOPSLA 2014): for timing, nothing secret.
fn mix(index: u64) -> u64 {
    let mut word = index.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

const BATCH_MAX: usize = 1 << 10;
/// About this many coefficients are transformed between two looks at the clock.
const TRANSFORM_COEFFICIENTS: usize = 1 << 18;
