//! Clients of predictions on the shares of two servers.

use std::path::PathBuf;
use std::sync::Arc;

use hushtable_infer::shares::{DealtBy, Half};
use hushtable_serve::{SharesClient, SharesClientSpec, SharesInfo, SharesPrediction};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::client::pinned_version;
use crate::connected::{Connect, Connected, NativeCall};
use crate::errors::Failure;
use crate::trust::{Authorities, Trust, duration};

/// A client of one model at a left and a right server, for many threads and for forked children.
#[pyclass(frozen, module = "hushtable._native", name = "SharesClient")]
pub(crate) struct NativeSharesClient(Connected<SharesClient>);

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

impl Connect for SharesClient {
    type Spec = SharesClientSpec;

    async fn connect(spec: &SharesClientSpec) -> Result<Self, Failure> {
        let has_certificate = spec.left.identity.is_some();
        let connected = Self::connect(spec).await;
        connected.map_err(|error| Failure::at_connect(error, has_certificate))
    }
}

#[pymethods]
impl NativeSharesClient {
    /// Connects to both servers; arguments as of `PairClient`.
    #[new]
    #[pyo3(signature = (left, right, *, cas, certificate, names, insecure, connect_seconds, seconds,
                        version, dealer, inferences_max))]
    #[allow(clippy::too_many_arguments, reason = "called from one place, by keyword")]
    fn new(
        py: Python<'_>,
        left: Vec<String>,
        right: Vec<String>,
        cas: (Option<Authorities>, Option<Authorities>),
        certificate: Option<(PathBuf, PathBuf)>,
        names: (Option<String>, Option<String>),
        insecure: bool,
        connect_seconds: f64,
        seconds: f64,
        version: Option<&str>,
        dealer: Option<&str>,
        inferences_max: usize,
    ) -> PyResult<Self> {
        let dealer = match dealer {
            None => None,
            Some("client") => Some(DealtBy::Client),
            Some("servers") => Some(DealtBy::Servers),
            Some(other) => {
                let text = format!("dealer is {other:?}, but must be client or servers");
                return Err(Failure::config(text).into());
            }
        };
        let [of_left, of_right] = Trust::of_sides(cas, certificate)?;
        let spec = SharesClientSpec {
            version: pinned_version(version)?,
            dealer,
            insecure,
            connect_max: duration("connect_timeout", connect_seconds)?,
            call_max: duration("timeout", seconds)?,
            inferences_max,
            ..SharesClientSpec::new(of_left.side(left, names.0)?, of_right.side(right, names.1)?)
        };
        Ok(Self(Connected::open(py, spec)?))
    }

    /// What the servers compute.
    fn info(&self, py: Python<'_>) -> PyResult<SharesFacts> {
        Ok(SharesFacts::new(self.0.session(py)?.client().info()))
    }

    /// Logits of users: float32 [users, dense] and uint64 [users, indices].
    fn predict(
        &self,
        py: Python<'_>,
        dense: PyReadonlyArray2<'_, f32>,
        indices: PyReadonlyArray2<'_, u64>,
    ) -> PyResult<SharesPredictionFacts> {
        let session = self.0.session(py)?;
        let users = dense.shape()[0];
        let (dense, indices) = (wide(dense.as_slice()?), indices.as_slice()?);
        let found = session.run(py, session.client().predict(users, &dense, indices))?;
        Ok(SharesPredictionFacts::new(py, found))
    }

    /// As `PairClient.start_lookup`, for `predict`.
    fn start_predict(
        &self,
        py: Python<'_>,
        dense: PyReadonlyArray2<'_, f32>,
        indices: PyReadonlyArray2<'_, u64>,
        done: Py<PyAny>,
    ) -> PyResult<NativeCall> {
        let users = dense.shape()[0];
        let (dense, indices) = (wide(dense.as_slice()?), indices.as_slice()?.to_vec());
        let call = move |client: Arc<SharesClient>| async move {
            client.predict(users, &dense, &indices).await
        };
        self.0.start(py, done, call, |py, found| {
            Ok(Py::new(py, SharesPredictionFacts::new(py, found))?.into_any())
        })
    }

    /// Closes the connections; calls under way finish.
    fn close(&self) {
        self.0.close();
    }
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
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
