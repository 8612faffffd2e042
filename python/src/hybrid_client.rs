//! Clients of hybrid inference.

use std::path::PathBuf;
use std::sync::Arc;

use hushtable_infer::hybrid::{Outline, Party, Terms};
use hushtable_serve::{
    Garbler, HybridClient, HybridClientSpec, HybridInfo, HybridPrediction, LinkSpec, Parallelism,
    PrecomputeProgress, PrecomputeStats, PrecomputeStoreSpec,
};
use hushtable_table::Version;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::client::pinned_version;
use crate::connected::{Connect, Connected};
use crate::errors::Failure;
use crate::hybrid::rounding_name;
use crate::trust::{Authorities, Trust, duration};

/// A client of one network at one server, for many threads and for forked children.
#[pyclass(frozen, module = "hushtable._native", name = "HybridClient")]
pub(crate) struct NativeHybridClient(Connected<HybridClient>);

/// What a server computes, and what a precompute takes.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct HybridFacts {
    name: String,
    version: String,
    plan: String,
    /// Planes, rows, columns.
    input: (usize, usize, usize),
    outputs: usize,
    bits: u32,
    fraction: u32,
    rounding: &'static str,
    lattice: String,
    stages: usize,
    /// Numbers that go through garbled circuits.
    activations: usize,
    client_garbles: bool,
    server_garbles: bool,
    /// Bytes of a precompute at the client and at the server where the server garbles, then the same where
    /// the client does.
    kept_bytes: (u64, u64, u64, u64),
}

/// What precomputes cost to make.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct PrecomputeFacts {
    precomputes: usize,
    steps: u64,
    bytes_up: u64,
    bytes_down: u64,
    seconds: f64,
    retries: u64,
    begun_again: u64,
}

/// Outputs, and what they cost.
#[pyclass(frozen, get_all, module = "hushtable._native")]
pub(crate) struct HybridPredictionFacts {
    /// float32 [outputs].
    outputs: Py<PyArray1<f32>>,
    bytes_up: u64,
    bytes_down: u64,
    frames: usize,
    seconds: f64,
    lost: usize,
    /// None where a precompute was there.
    offline: Option<PrecomputeFacts>,
}

impl Connect for HybridClient {
    type Spec = HybridClientSpec;

    async fn connect(spec: &HybridClientSpec) -> Result<Self, Failure> {
        let has_certificate = spec.server.identity.is_some();
        let connected = Self::connect(spec).await;
        connected.map_err(|error| Failure::at_connect(error, has_certificate))
    }
}

#[pymethods]
impl NativeHybridClient {
    /// Connects, and opens what is kept of precomputes.
    #[new]
    #[pyo3(signature = (server, *, ca, certificate, name, insecure, connect_seconds, seconds,
                        retry_seconds, version, client_garbles, parallel, steps_max, up_mbps,
                        down_mbps, store, store_key, store_bytes_max))]
    #[allow(clippy::too_many_arguments, reason = "called from one place, by keyword")]
    fn new(
        py: Python<'_>,
        server: Vec<String>,
        ca: Option<Authorities>,
        certificate: Option<(PathBuf, PathBuf)>,
        name: Option<String>,
        insecure: bool,
        connect_seconds: f64,
        seconds: f64,
        retry_seconds: f64,
        version: Option<&str>,
        client_garbles: bool,
        parallel: &str,
        steps_max: usize,
        up_mbps: Option<f64>,
        down_mbps: Option<f64>,
        store: Option<PathBuf>,
        store_key: Option<PathBuf>,
        store_bytes_max: u64,
    ) -> PyResult<Self> {
        let trust = Trust::read(ca, certificate)?;
        let Some(parallelism) = Parallelism::ALL.into_iter().find(|one| one.name() == parallel)
        else {
            let text =
                format!("parallel is {parallel:?}, but must be layer, sequential or request");
            return Err(Failure::config(text).into());
        };
        let link = LinkSpec {
            up_bits_per_s: rate("up_mbps", up_mbps)?,
            down_bits_per_s: rate("down_mbps", down_mbps)?,
        };
        let spec = HybridClientSpec {
            version: pinned_version(version)?,
            insecure,
            connect_max: duration("connect_timeout", connect_seconds)?,
            call_max: duration("timeout", seconds)?,
            retry_max: duration("retry_timeout", retry_seconds)?,
            garbler: if client_garbles { Garbler::Client } else { Garbler::Server },
            parallelism,
            steps_max,
            link,
            store: store.map(|folder| PrecomputeStoreSpec { folder, key: store_key }),
            store_bytes_max,
            ..HybridClientSpec::new(trust.side(server, name)?)
        };
        Ok(Self(Connected::open(py, spec)?))
    }

    /// What the server computes.
    fn info(&self, py: Python<'_>) -> PyResult<HybridFacts> {
        let session = self.0.session(py)?;
        let client = session.client();
        Ok(HybridFacts::new(client.info(), client.outline()))
    }

    /// Precomputes that can be used, and the bytes of all that are kept.
    fn precomputes(&self, py: Python<'_>) -> PyResult<(usize, u64)> {
        let count = self.0.session(py)?.client().precomputes();
        Ok((count.precomputes, count.bytes))
    }

    /// Makes `count` precomputes; `progress` is told the steps that were made, and all of them.
    fn precompute(
        &self,
        py: Python<'_>,
        count: usize,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<PrecomputeFacts> {
        let session = self.0.session(py)?;
        let made = session.run(py, session.client().precompute(count, progress.map(told)))?;
        Ok(PrecomputeFacts::new(&made))
    }

    /// Outputs for one input, float32 [numbers].
    fn predict(
        &self,
        py: Python<'_>,
        input: PyReadonlyArray1<'_, f32>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<HybridPredictionFacts> {
        let session = self.0.session(py)?;
        let input = input.as_slice()?;
        let found = session.run(py, session.client().predict(input, progress.map(told)))?;
        Ok(HybridPredictionFacts::new(py, found))
    }

    /// Closes the connections; calls under way finish.
    fn close(&self) {
        self.0.close();
    }
}

/// Bits a second of `mbps` megabits a second.
fn rate(name: &str, mbps: Option<f64>) -> Result<Option<u64>, Failure> {
    let Some(mbps) = mbps else { return Ok(None) };
    match mbps.is_finite() && (0.001..=1e6).contains(&mbps) {
        true => Ok(Some((mbps * 1e6) as u64)),
        false => {
            Err(Failure::config(format!("{name} is {mbps}, but must be 0.001 to 1,000,000 Mbit/s")))
        }
    }
}

/// A callable of Python's, to be told of steps. What it raises is reported and stops nothing.
fn told(callable: Py<PyAny>) -> PrecomputeProgress {
    Arc::new(move |done, all| {
        // An interpreter that is shutting down is told nothing.
        Python::try_attach(|py| {
            if let Err(error) = callable.call1(py, (done, all)) {
                error.write_unraisable(py, None);
            }
        });
    })
}

impl HybridFacts {
    pub(crate) fn new(info: &HybridInfo, outline: &Outline) -> Self {
        let facts = Self::of_terms(&info.name, &info.version.to_string(), &info.terms, outline);
        Self { client_garbles: info.client_garbles, server_garbles: info.server_garbles, ..facts }
    }

    /// Of a model of this name and version.
    pub(crate) fn of_terms(name: &str, version: &str, terms: &Terms, outline: &Outline) -> Self {
        let program = terms.program();
        let shape = program.input;
        let kept = |garbler, party| outline.record_bytes(garbler, party).iter().sum();
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            plan: Version::from(terms.id()).to_string(),
            input: (shape.channels, shape.height, shape.width),
            outputs: program.stages.last().map_or(0, |stage| stage.sum.count()),
            bits: program.bits,
            fraction: program.fraction,
            rounding: rounding_name(program.rounding),
            lattice: program.lattice.clone(),
            stages: program.stages.len(),
            activations: program.activations(),
            client_garbles: true,
            server_garbles: true,
            kept_bytes: (
                kept(Party::Server, Party::Client),
                kept(Party::Server, Party::Server),
                kept(Party::Client, Party::Client),
                kept(Party::Client, Party::Server),
            ),
        }
    }
}

impl PrecomputeFacts {
    fn new(stats: &PrecomputeStats) -> Self {
        Self {
            precomputes: stats.precomputes,
            steps: stats.steps,
            bytes_up: stats.sent_bytes,
            bytes_down: stats.received_bytes,
            seconds: stats.elapsed.as_secs_f64(),
            retries: stats.retries,
            begun_again: stats.begun_again,
        }
    }
}

impl HybridPredictionFacts {
    fn new(py: Python<'_>, found: HybridPrediction) -> Self {
        let HybridPrediction { outputs, stats, .. } = found;
        Self {
            outputs: outputs.into_pyarray(py).unbind(),
            bytes_up: stats.sent_bytes,
            bytes_down: stats.received_bytes,
            frames: stats.frames,
            seconds: stats.online.as_secs_f64(),
            lost: stats.lost,
            offline: stats.offline.as_ref().map(PrecomputeFacts::new),
        }
    }
}
