//! Hybrid inference at one server.

use std::path::PathBuf;
use std::sync::Arc;

use hushtable_infer::hybrid::{Error as MachineError, Outline, Party, Terms};
use hushtable_serve::{
    Error, Garbler, HybridClient, HybridClientSpec, HybridError, HybridInfo, HybridPrediction,
    HybridRefusal, HybridServer, HybridServerSpec, LinkSpec, Parallelism, PrecomputeStats,
    PrecomputeStoreSpec, Refusal,
};
use hushtable_table::Version;
use numpy::{IntoPyArray, PyArray1};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::asked::{Answer, Asked, Given, Kind, answer, told, unknown};
use crate::connected::Connect;
use crate::errors::Failure;
use crate::hybrid::rounding_name;
use crate::reach::{Limits, Reach};
use crate::schemes::{Refused, Scheme};
use crate::serve_errors::known;
use crate::server::{self, Started};
use crate::trust::duration;

pub(crate) const SCHEME: Scheme = Scheme {
    name: "hybrid",
    kinds: &[Kind::of::<HybridClient>("hybrid")],
    serve: Some(serve),
    refused,
    errors: &[known::<HybridError>, known::<MachineError>],
};

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

/// The options that are this scheme's.
#[derive(FromPyObject)]
struct Options {
    garbler: String,
    parallel: String,
    steps: usize,
    retry_timeout: f64,
    up_mbps: Option<f64>,
    down_mbps: Option<f64>,
    store: Option<PathBuf>,
    store_key: Option<PathBuf>,
    store_ledger: Option<PathBuf>,
    store_bytes_max: u64,
}

impl Connect for HybridClient {
    type Spec = HybridClientSpec;

    async fn connect(spec: &HybridClientSpec) -> Result<Self, Error> {
        Self::connect(spec).await
    }
}

impl Asked for HybridClient {
    fn spec(reach: &Reach<'_>) -> PyResult<HybridClientSpec> {
        let Limits { insecure, connect_max, call_max, version } = reach.limits(60.0)?;
        let own: Options = reach.options.extract()?;
        let known = Parallelism::ALL.into_iter().find(|one| one.name() == own.parallel);
        let Some(parallelism) = known else {
            let given = own.parallel;
            let text = format!("parallel is {given:?}, but must be layer, sequential or request");
            return Err(Failure::config(text).into());
        };
        let link = LinkSpec {
            up_bits_per_s: rate("up_mbps", own.up_mbps)?,
            down_bits_per_s: rate("down_mbps", own.down_mbps)?,
        };
        let [server] = reach.endpoints()?;
        Ok(HybridClientSpec {
            version,
            insecure,
            connect_max,
            call_max,
            retry_max: duration("retry_timeout", own.retry_timeout)?,
            garbler: if own.garbler == "client" { Garbler::Client } else { Garbler::Server },
            parallelism,
            steps_max: own.steps,
            link,
            store: own.store.map(|folder| {
                let (key, ledger) = (own.store_key, own.store_ledger);
                PrecomputeStoreSpec { folder, key, ledger }
            }),
            store_bytes_max: own.store_bytes_max,
            ..HybridClientSpec::new(server)
        })
    }

    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        HybridFacts::new(self.info(), self.outline()).into_py_any(py)
    }

    fn ask<'a>(self: Arc<Self>, call: &str, given: &mut Given<'a, '_, '_>) -> PyResult<Answer<'a>> {
        Ok(match call {
            // Precomputes that can be used.
            "precomputes" => {
                let count = async move { Ok::<_, Error>(self.precomputes().precomputes) };
                answer(count, |_, count| Ok(count))
            }
            // Precomputes that were dropped, for they may have been used before.
            "precomputes_refused" => {
                let count = async move { Ok::<_, Error>(self.precomputes_refused()) };
                answer(count, |_, count| Ok(count))
            }
            // Makes so many precomputes, of which somebody is told the steps that were made, and all of them.
            "precompute" => {
                let count = given.other()?;
                let progress: Option<Py<PyAny>> = given.other()?;
                let call = async move { self.precompute(count, progress.map(told)).await };
                answer(call, |_, made| Ok(PrecomputeFacts::new(&made)))
            }
            // Outputs for one input, float32 [numbers], of whose precompute somebody is told.
            "predict" => {
                let (_, input) = given.numbers()?;
                let progress: Option<Py<PyAny>> = given.other()?;
                let call = async move { self.predict(&input, progress.map(told)).await };
                answer(call, |py, found| Ok(HybridPredictionFacts::new(py, found)))
            }
            _ => return unknown(call),
        })
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

/// Starts the server that a [`HybridServerSpec`] in JSON describes.
fn serve(json: &str) -> Result<Started, Failure> {
    let spec: HybridServerSpec = server::spec(json)?;
    let io_threads = spec.network.io_threads;
    let server = HybridServer::open(spec)?;
    let facts = HybridFacts::new(server.info(), server.outline());
    server::start(|| server.bind(), io_threads, Arc::default(), facts)
}

/// What one of the scheme's own refusals is to Python.
fn refused(refusal: &Refusal, of: Refused<'_>) -> Option<Failure> {
    Some(match refusal.of::<HybridRefusal>()? {
        HybridRefusal::OtherPlan { expected, found } => {
            of("PlanMismatch").text("expected", expected).text("found", found)
        }
        HybridRefusal::UnknownPrecompute | HybridRefusal::DamagedPrecompute => {
            of("PrecomputeError")
        }
        HybridRefusal::PrecomputeBudget { .. } | HybridRefusal::PrecomputeAllowance { .. } => {
            of("ServerError")
        }
        HybridRefusal::OtherGarbler { .. } => of("ConfigError"),
        _ => of("ProtocolError"),
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

impl From<HybridError> for Failure {
    fn from(error: HybridError) -> Self {
        let class = match error {
            HybridError::Precomputes { .. } => "PrecomputeError",
            _ => "ConfigError",
        };
        Self::new(class, error)
    }
}
