//! Encrypted inference at one server.

use std::sync::Arc;

use hushtable_infer::dlrm::{self, Terms};
use hushtable_serve::{
    CkksClient, CkksClientSpec, CkksInfo, CkksRefusal, CkksServer, CkksServerSpec, Error,
    Prediction, Progress, Refusal,
};
use hushtable_table::Version;
use numpy::{IntoPyArray, PyArray1};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::asked::{Answer, Asked, Given, Kind, answer, told, unknown};
use crate::connected::Connect;
use crate::errors::Failure;
use crate::reach::{Limits, Reach};
use crate::schemes::{Refused, Scheme};
use crate::serve_errors::known;
use crate::server::{self, Started};
use crate::trust::duration;

pub(crate) const SCHEME: Scheme = Scheme {
    name: "ckks",
    kinds: &[Kind::of::<CkksClient>("ckks")],
    serve: Some(serve),
    refused,
    errors: &[known::<dlrm::Error>],
};

/// What a server computes, and what a prediction costs.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct CkksFacts {
    name: String,
    version: String,
    plan: String,
    /// Numbers a user.
    dense: usize,
    /// Rows a table.
    rows: Vec<u64>,
    /// Users that one query carries.
    users: usize,
    key_bytes: usize,
    query_bytes: usize,
    answer_bytes: usize,
    /// The terms' text: JSON.
    terms: String,
}

/// Logits, and what they cost.
#[pyclass(frozen, get_all, module = "hushtable._native")]
pub(crate) struct PredictionFacts {
    /// float64 [users].
    logits: Py<PyArray1<f64>>,
    queries: usize,
    bytes_up: u64,
    bytes_down: u64,
    seconds: f64,
    client_seconds: f64,
    queue_seconds: f64,
    answer_seconds: f64,
    retries: u32,
}

/// A server, and what is told of an upload.
pub(crate) struct CkksEndpoint {
    spec: CkksClientSpec,
    progress: Option<Progress>,
}

/// The options that are this scheme's.
#[derive(FromPyObject)]
struct Options {
    upload_timeout: f64,
    key_bytes_max: u64,
    progress: Option<Py<PyAny>>,
}

impl Connect for CkksClient {
    type Spec = CkksEndpoint;

    async fn connect(endpoint: &CkksEndpoint) -> Result<Self, Error> {
        Self::connect(&endpoint.spec, endpoint.progress.clone()).await
    }
}

impl Asked for CkksClient {
    /// What is told of an upload is told the bytes of keys that are there, and all of them.
    fn spec(reach: &Reach<'_>) -> PyResult<CkksEndpoint> {
        let Limits { insecure, connect_max, call_max, version } = reach.limits(60.0)?;
        let own: Options = reach.options.extract()?;
        let [server] = reach.endpoints()?;
        let spec = CkksClientSpec {
            version,
            insecure,
            connect_max,
            call_max,
            upload_max: duration("upload_timeout", own.upload_timeout)?,
            key_bytes_max: own.key_bytes_max,
            ..CkksClientSpec::new(server)
        };
        Ok(CkksEndpoint { spec, progress: own.progress.map(told) })
    }

    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        CkksFacts::new(self.info()).map_err(Failure::from)?.into_py_any(py)
    }

    fn ask<'a>(self: Arc<Self>, call: &str, given: &mut Given<'a, '_, '_>) -> PyResult<Answer<'a>> {
        Ok(match call {
            // The bytes sent: none where the keys are at the server.
            "upload" => answer(async move { self.upload().await }, |_, sent| Ok(sent)),
            // Logits of users: float32 [users, dense] and uint64 [users, tables].
            "predict" => {
                let ((users, dense), indices) = (given.numbers()?, given.ids()?);
                let call = async move { self.predict(users, &dense, &indices).await };
                answer(call, |py, found| Ok(PredictionFacts::new(py, found)))
            }
            _ => return unknown(call),
        })
    }
}

/// Starts the server that a [`CkksServerSpec`] in JSON describes.
fn serve(json: &str) -> Result<Started, Failure> {
    let spec: CkksServerSpec = server::spec(json)?;
    let io_threads = spec.network.io_threads;
    let server = CkksServer::open(spec)?;
    let facts = CkksFacts::new(server.info())?;
    server::start(|| server.bind(), io_threads, Arc::default(), facts)
}

/// What one of the scheme's own refusals is to Python.
fn refused(refusal: &Refusal, of: Refused<'_>) -> Option<Failure> {
    Some(match refusal.of::<CkksRefusal>()? {
        CkksRefusal::PlanSkew { expected, found } => {
            of("PlanMismatch").text("expected", expected).text("found", found)
        }
        CkksRefusal::BadFeatures { .. } => of("KeyFormatError"),
        _ => of("ProtocolError"),
    })
}

impl CkksFacts {
    pub(crate) fn new(info: &CkksInfo) -> Result<Self, dlrm::Error> {
        Self::of_terms(&info.name, &info.version.to_string(), &info.terms)
    }

    /// Of a model of this name and version.
    pub(crate) fn of_terms(name: &str, version: &str, terms: &Terms) -> Result<Self, dlrm::Error> {
        Ok(Self {
            name: name.to_owned(),
            version: version.to_owned(),
            plan: Version::from(terms.plan()).to_string(),
            dense: terms.dense(),
            rows: terms.features().iter().map(|feature| feature.rows).collect(),
            users: terms.users(),
            key_bytes: terms.key_bytes()?,
            query_bytes: terms.query_bytes(),
            answer_bytes: terms.answer_bytes(),
            terms: String::from_utf8_lossy(&terms.to_bytes()).into_owned(),
        })
    }
}

impl PredictionFacts {
    fn new(py: Python<'_>, found: Prediction) -> Self {
        let Prediction { logits, stats, .. } = found;
        Self {
            logits: logits.into_pyarray(py).unbind(),
            queries: stats.queries,
            bytes_up: stats.sent_bytes,
            bytes_down: stats.received_bytes,
            seconds: stats.elapsed.as_secs_f64(),
            client_seconds: stats.client.as_secs_f64(),
            queue_seconds: stats.queue.as_secs_f64(),
            answer_seconds: stats.answer.as_secs_f64(),
            retries: stats.retries,
        }
    }
}

impl From<dlrm::Error> for Failure {
    fn from(error: dlrm::Error) -> Self {
        let class = match &error {
            dlrm::Error::Depth { .. } => "ModelTooDeep",
            dlrm::Error::Keys { .. } => "KeysTooLarge",
            dlrm::Error::Query { .. } => "QueryTooLarge",
            dlrm::Error::Toml(_)
            | dlrm::Error::Spec { .. }
            | dlrm::Error::Safetensors(_)
            | dlrm::Error::MissingTensor { .. }
            | dlrm::Error::NoTable { .. }
            | dlrm::Error::Unread { .. }
            | dlrm::Error::TensorShape { .. }
            | dlrm::Error::TensorType { .. }
            | dlrm::Error::TensorValue { .. }
            | dlrm::Error::Layout { .. }
            | dlrm::Error::Plan { .. } => "ModelError",
            dlrm::Error::Count { .. } | dlrm::Error::Users { .. } | dlrm::Error::Feature { .. } => {
                "BadFeatures"
            }
            dlrm::Error::Index { .. } => "IdOutOfRange",
            dlrm::Error::Range { .. } => "ActivationRange",
            dlrm::Error::Terms { .. } | dlrm::Error::Bytes { .. } | dlrm::Error::Answer => {
                "ProtocolError"
            }
            dlrm::Error::OtherPlan { .. } => "PlanMismatch",
            _ => "Error",
        };
        let failure = Self::new(class, &error);
        match error {
            dlrm::Error::Table(error) => error.into(),
            dlrm::Error::Depth { levels, levels_max, .. } => {
                failure.count("levels", levels as u64).count("levels_max", levels_max as u64)
            }
            dlrm::Error::Keys { least_bytes, max_bytes }
            | dlrm::Error::Query { least_bytes, max_bytes } => failure
                .count("least_bytes", least_bytes as u64)
                .count("max_bytes", max_bytes as u64),
            dlrm::Error::Index { index, rows, .. } => {
                failure.count("id", index).count("rows", rows)
            }
            dlrm::Error::Range { layer, value, limit } => {
                failure.text("layer", layer).number("value", value).number("limit", limit)
            }
            dlrm::Error::OtherPlan { expected, found, .. } => {
                failure.text("expected", expected).text("found", found)
            }
            _ => failure,
        }
    }
}
