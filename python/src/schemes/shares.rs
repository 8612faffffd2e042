//! Predictions on the shares of two servers.

use std::sync::Arc;

use hushtable_infer::shares::{self, DealtBy, Half};
use hushtable_serve::{
    Error, PeerError, Refusal, SharesClient, SharesClientSpec, SharesInfo, SharesPrediction,
    SharesRefusal, SharesServer, SharesServerSpec,
};
use numpy::{IntoPyArray, PyArray1};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::asked::{Answer, Asked, Given, Kind, answer, unknown};
use crate::connected::Connect;
use crate::errors::Failure;
use crate::reach::{Limits, Reach};
use crate::schemes::{Refused, Scheme};
use crate::serve_errors::{config, known};
use crate::server::{self, Started};

pub(crate) const SCHEME: Scheme = Scheme {
    name: "shares",
    kinds: &[Kind::of::<SharesClient>("shares")],
    serve: Some(serve),
    refused,
    errors: &[known::<shares::Error>, config::<PeerError>],
};

/// What two servers compute on shares, and what an inference takes.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct SharesFacts {
    name: String,
    version: String,
    plan: String,
    side: &'static str,
    dense: usize,
    /// Of each sparse feature its name, its rows, and its bag.
    features: Vec<(String, u64, usize)>,
    /// `client` or `servers`.
    dealer: &'static str,
    /// Bytes that the client sends to both servers, beside its lookup keys.
    up_bytes: usize,
    /// Bytes of both shares of a logit.
    down_bytes: usize,
    /// Bytes that each server sends the other.
    peer_bytes: usize,
    rounds: usize,
}

/// Logits of users, and what they cost.
#[pyclass(frozen, get_all, module = "hushtable._native")]
pub(crate) struct SharesPredictionFacts {
    /// float64 [users].
    logits: Py<PyArray1<f64>>,
    key_bytes: u64,
    dealt_bytes: u64,
    bytes_down: u64,
    seconds: f64,
    client_seconds: f64,
    queue_seconds: f64,
    answer_seconds: f64,
    retries: u32,
}

/// The options that are this scheme's.
#[derive(FromPyObject)]
struct Options {
    dealer: Option<String>,
    inferences: usize,
}

impl Connect for SharesClient {
    type Spec = SharesClientSpec;

    async fn connect(spec: &SharesClientSpec) -> Result<Self, Error> {
        Self::connect(spec).await
    }
}

impl Asked for SharesClient {
    fn spec(reach: &Reach<'_>) -> PyResult<SharesClientSpec> {
        let Limits { insecure, connect_max, call_max, version } = reach.limits(30.0)?;
        let own: Options = reach.options.extract()?;
        let dealer = match own.dealer.as_deref() {
            None => None,
            Some("client") => Some(DealtBy::Client),
            Some("servers") => Some(DealtBy::Servers),
            Some(other) => {
                let text = format!("dealer is {other:?}, but must be client or servers");
                return Err(Failure::config(text).into());
            }
        };
        let [left, right] = reach.endpoints()?;
        Ok(SharesClientSpec {
            version,
            dealer,
            insecure,
            connect_max,
            call_max,
            inferences_max: own.inferences,
            ..SharesClientSpec::new(left, right)
        })
    }

    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        SharesFacts::new(self.info()).into_py_any(py)
    }

    fn ask<'a>(self: Arc<Self>, call: &str, given: &mut Given<'a, '_, '_>) -> PyResult<Answer<'a>> {
        Ok(match call {
            // Logits of users: float32 [users, dense] and uint64 [users, indices].
            "predict" => {
                let ((users, dense), indices) = (given.wide()?, given.ids()?);
                let call = async move { self.predict(users, &dense, &indices).await };
                answer(call, |py, found| Ok(SharesPredictionFacts::new(py, found)))
            }
            _ => return unknown(call),
        })
    }
}

/// Starts the server that a [`SharesServerSpec`] in JSON describes.
fn serve(json: &str) -> Result<Started, Failure> {
    let spec: SharesServerSpec = server::spec(json)?;
    let io_threads = spec.network.io_threads;
    let server = SharesServer::open(spec)?;
    let facts = SharesFacts::new(server.info());
    server::start(|| server.bind(), io_threads, Arc::default(), facts)
}

/// What one of the scheme's own refusals is to Python.
fn refused(refusal: &Refusal, of: Refused<'_>) -> Option<Failure> {
    Some(match refusal.of::<SharesRefusal>()? {
        SharesRefusal::OtherPlan { expected, found } => {
            of("PlanMismatch").text("expected", expected).text("found", found)
        }
        SharesRefusal::NoPeer | SharesRefusal::PeerLost | SharesRefusal::GivenUp { .. } => {
            of("ServerUnavailable")
        }
        SharesRefusal::PeerAbsent { .. } | SharesRefusal::PeerSilent { .. } => of("ServerTimeout"),
        SharesRefusal::NotThePeer { .. } | SharesRefusal::PeerMismatch { .. } => of("ConfigError"),
        _ => of("ProtocolError"),
    })
}

impl SharesFacts {
    pub(crate) fn new(info: &SharesInfo) -> Self {
        let (spec, outline) = (info.dlrm.spec(), &info.outline);
        let features = spec.features.iter().map(|it| (it.name.clone(), it.rows, it.bag));
        Self {
            name: info.name.clone(),
            version: info.version.to_string(),
            plan: info.plan.to_string(),
            side: if info.half == Half::Left { "left" } else { "right" },
            dense: spec.dense,
            features: features.collect(),
            dealer: match info.dealer {
                DealtBy::Client => "client",
                DealtBy::Servers => "servers",
            },
            up_bytes: info.up_bytes(),
            down_bytes: 2 * outline.logit_bytes(),
            peer_bytes: outline.peer_bytes(),
            rounds: outline.rounds(),
        }
    }
}

impl SharesPredictionFacts {
    fn new(py: Python<'_>, found: SharesPrediction) -> Self {
        let SharesPrediction { logits, stats, .. } = found;
        Self {
            logits: logits.into_pyarray(py).unbind(),
            key_bytes: stats.key_bytes,
            dealt_bytes: stats.dealt_bytes,
            bytes_down: stats.received_bytes,
            seconds: stats.elapsed.as_secs_f64(),
            client_seconds: stats.deal.as_secs_f64(),
            queue_seconds: stats.queue.as_secs_f64(),
            answer_seconds: stats.answer.as_secs_f64(),
            retries: stats.retries,
        }
    }
}

impl From<shares::Error> for Failure {
    fn from(error: shares::Error) -> Self {
        let class = match error {
            shares::Error::Dlrm(error) => return error.into(),
            shares::Error::Unsupported { .. } => "ConfigError",
            shares::Error::Range { .. }
            | shares::Error::Uncalibrated { .. }
            | shares::Error::Plan { .. }
            | shares::Error::Weights { .. } => "ModelError",
            shares::Error::Count { .. } | shares::Error::Feature { .. } => "BadFeatures",
            shares::Error::Bytes { .. } | shares::Error::Packed(_) | shares::Error::Words(_) => {
                "ProtocolError"
            }
            _ => "Error",
        };
        Self::new(class, error)
    }
}
