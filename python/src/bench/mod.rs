//! Measurements: what the engine and a server do, and what the machine could do at best.

pub(crate) mod bootstrap;
pub(crate) mod ckks;
pub(crate) mod coded;
pub(crate) mod garble;
pub(crate) mod gpu;
pub(crate) mod hybrid;
pub(crate) mod infer;
pub(crate) mod model;
pub(crate) mod onion;
pub(crate) mod oram;
pub(crate) mod ring;
pub(crate) mod shards;
pub(crate) mod shares;

use std::hint::black_box;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use hushtable_pir::dpf::{Domain, Group, KeyPair, expand_leaves};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, TableShape};
use hushtable_prg::{Platform, Prg, PrgKind};
use hushtable_serve::EndpointSpec;
use hushtable_serve::load::{Arrivals, LoadSpec, OnionLoadSpec, OpenReport};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;
use crate::load::report_fields;
use crate::machine::{check_answers, random_rows};
use crate::prepare::parameter_set;

/// An engine over random rows, to be timed.
#[pyclass(frozen, module = "hushtable._native.bench", name = "Bench")]
pub(crate) struct NativeBench {
    engine: CpuEngine,
    rows: Vec<u8>,
}

#[pymethods]
impl NativeBench {
    /// Fills `rows × row_bytes` and loads them; 0 threads for one a core, no `isa` for the best.
    #[new]
    #[pyo3(signature = (rows, row_bytes, *, threads, isa))]
    fn new(
        py: Python<'_>,
        rows: u64,
        row_bytes: usize,
        threads: usize,
        isa: Option<&str>,
    ) -> PyResult<Self> {
        let spec = EngineSpec { threads, platform: platform(isa)?, ..EngineSpec::default() };
        Ok(py.detach(|| {
            let shape = TableShape::new(rows, row_bytes)?;
            let rows = random_rows(shape)?;
            let engine = CpuEngine::from_rows(shape, &rows, &spec)?;
            Ok::<_, Failure>(Self { engine, rows })
        })?)
    }

    /// Threads of the engine.
    #[getter]
    fn threads(&self) -> usize {
        self.engine.threads()
    }

    /// Keys that one pass takes.
    #[getter]
    fn batch_keys_best(&self) -> usize {
        self.engine.batch_keys_best()
    }

    /// Device, instruction set, threads, bytes.
    #[getter]
    fn description(&self) -> String {
        self.engine.description()
    }

    /// Seconds that each of several answers to `batch` keys took, over at least `seconds`. Before,
    /// both servers' answers to these keys are added up and compared with the rows.
    #[pyo3(signature = (batch, *, prg, seconds))]
    fn answer_seconds(
        &self,
        py: Python<'_>,
        batch: usize,
        prg: &str,
        seconds: f64,
    ) -> PyResult<Vec<f64>> {
        let prg = parse_prg(prg)?;
        if !(1..=BATCH_MAX).contains(&batch) {
            let text = format!("batch is {batch}, but must be 1 to {BATCH_MAX}");
            return Err(Failure::config(text).into());
        }
        let (keys, mut answers) =
            py.detach(|| check_answers(&self.engine, &self.rows, batch, prg))?;
        repeat(py, seconds, || Ok(self.engine.answer(&keys, &mut answers)?))
    }
}

/// Seconds that each of several expansions of a key for `rows` rows took, on one thread.
#[pyfunction]
#[pyo3(signature = (rows, *, group, prg, isa, seconds))]
pub(crate) fn expand_seconds(
    py: Python<'_>,
    rows: u64,
    group: &str,
    prg: &str,
    isa: Option<&str>,
    seconds: f64,
) -> PyResult<Vec<f64>> {
    let (prg, platform) = (parse_prg(prg)?, platform(isa)?);
    let group: Group = group.parse().map_err(Failure::config)?;
    let pair = Domain::new(rows, group)
        .and_then(|domain| KeyPair::generate(Prg::new(prg, platform), domain, rows / 2))
        .map_err(Failure::from)?;
    repeat(py, seconds, || {
        // 256 leaves, 16 KiB of them: they stay in the first cache.
        expand_leaves(&pair.left, platform, SUBTREE_HEIGHT, |_, leaves| {
            black_box(leaves);
        });
        Ok(())
    })
}

/// Loads a server from this thread; see `hushtable_serve::load::LoadReport` for the fields.
#[pyfunction]
#[pyo3(signature = (url, *, partner, ca, clients, keys_per_request, warmup, seconds))]
#[allow(clippy::too_many_arguments, reason = "called from one place, by keyword")]
pub(crate) fn load_server<'py>(
    py: Python<'py>,
    url: String,
    partner: Option<String>,
    ca: Option<PathBuf>,
    clients: usize,
    keys_per_request: usize,
    warmup: f64,
    seconds: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let ca_pem = ca.map(std::fs::read).transpose()?;
    let endpoint = |url| EndpointSpec::new(url, ca_pem.clone());
    let spec = LoadSpec {
        partner: partner.map(endpoint),
        clients,
        keys_per_request,
        warmup: Duration::try_from_secs_f64(warmup).map_err(Failure::config)?,
        duration: Duration::try_from_secs_f64(seconds).map_err(Failure::config)?,
        ..LoadSpec::new(endpoint(url))
    };
    let report = py.detach(|| spec.run_blocking()).map_err(Failure::from)?;
    report_fields(py, &report)
}

/// Loads a server from this thread with one query at each of `arrivals` (seconds from the start, rising):
/// one of two for rows that are checked with its partner, or one that is asked alone where
/// `parameters` names its parameter set. See `hushtable_serve::load::OpenReport` for the fields.
#[pyfunction]
#[pyo3(signature = (
    url, *, partner, ca, parameters, connections, arrivals, measured_from, give_up
))]
#[allow(clippy::too_many_arguments, reason = "called from one place, by keyword")]
pub(crate) fn load_open<'py>(
    py: Python<'py>,
    url: String,
    partner: Option<String>,
    ca: Option<PathBuf>,
    parameters: Option<&str>,
    connections: usize,
    arrivals: Vec<f64>,
    measured_from: f64,
    give_up: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let seconds = |value| Duration::try_from_secs_f64(value).map_err(Failure::config);
    if !arrivals.is_sorted() {
        return Err(Failure::config("arrivals must rise").into());
    }
    let at = arrivals.into_iter().map(seconds).collect::<Result<_, Failure>>()?;
    let (measured_from, give_up) = (seconds(measured_from)?, seconds(give_up)?);
    let arrivals = Arrivals { at, measured_from, give_up };
    let ca_pem = ca.map(std::fs::read).transpose()?;
    let endpoint = |url| EndpointSpec::new(url, ca_pem.clone());
    let report = match parameters {
        None => {
            let spec = LoadSpec {
                partner: partner.map(endpoint),
                clients: connections,
                ..LoadSpec::new(endpoint(url))
            };
            py.detach(|| spec.run_open_blocking(&arrivals))
        }
        Some(name) => {
            let parameter_sets = vec![parameter_set(name)?];
            let clients = connections;
            let spec =
                OnionLoadSpec { parameter_sets, clients, ..OnionLoadSpec::new(endpoint(url)) };
            py.detach(|| spec.run_open_blocking(&arrivals))
        }
    };
    open_fields(py, &report.map_err(Failure::from)?)
}

fn open_fields<'py>(py: Python<'py>, report: &OpenReport) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    for (name, count) in [
        ("arrived", report.arrived),
        ("answered", report.answered),
        ("rejected", report.rejected),
        ("errors", report.errors),
        ("unanswered", report.unanswered),
        ("waited", report.waited),
    ] {
        fields.set_item(name, count)?;
    }
    for (name, value) in [
        ("p50_ms", report.p50_ms),
        ("p90_ms", report.p90_ms),
        ("p99_ms", report.p99_ms),
        ("p999_ms", report.p999_ms),
        ("max_ms", report.max_ms),
        ("mean_ms", report.mean_ms),
        ("answer_ms_mean", report.answer_ms_mean),
        ("lag_p50_ms", report.lag_p50_ms),
        ("lag_p99_ms", report.lag_p99_ms),
        ("lag_max_ms", report.lag_max_ms),
        ("window_ms", report.window_ms),
        ("elapsed_s", report.elapsed_s),
    ] {
        fields.set_item(name, value)?;
    }
    Ok(fields)
}

/// Times `run` until `seconds` have passed, three times at least; the first, cold, is not counted.
pub(crate) fn repeat(
    py: Python<'_>,
    seconds: f64,
    mut run: impl FnMut() -> Result<(), Failure> + Send,
) -> PyResult<Vec<f64>> {
    let mut times = Vec::new();
    let started = Instant::now();
    let mut is_warm = false;
    while times.len() < REPEATS_MIN || started.elapsed().as_secs_f64() < seconds {
        let time = py.detach(|| {
            let start = Instant::now();
            run().map(|()| start.elapsed().as_secs_f64())
        })?;
        if is_warm {
            times.push(time);
        }
        is_warm = true;
        py.check_signals()?;
    }
    Ok(times)
}

fn platform(isa: Option<&str>) -> Result<Platform, Failure> {
    let Some(isa) = isa else { return Ok(Platform::detect()) };
    let available = Platform::available();
    available.iter().copied().find(|platform| platform.name() == isa).ok_or_else(|| {
        let names: Vec<_> = available.iter().map(|platform| platform.name()).collect();
        Failure::config(format!("isa is {isa:?}, but this machine has {}", names.join(", ")))
    })
}

pub(crate) fn parse_prg(name: &str) -> Result<PrgKind, Failure> {
    name.parse().map_err(Failure::config)
}

const BATCH_MAX: usize = 1 << 16;
const REPEATS_MIN: usize = 3;
const SUBTREE_HEIGHT: u32 = 8;
