//! Clients of encrypted inference.

use std::path::PathBuf;
use std::sync::Arc;

use hushtable_infer::dlrm::{self, Terms};
use hushtable_serve::{CkksClient, CkksClientSpec, CkksInfo, Prediction, Progress};
use hushtable_table::Version;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::client::pinned_version;
use crate::connected::{Connect, Connected, NativeCall};
use crate::errors::Failure;
use crate::trust::{Authorities, Trust, duration};

/// A client of one model at one server, for many threads and for forked children.
#[pyclass(frozen, module = "hushtable._native", name = "CkksClient")]
pub(crate) struct NativeCkksClient(Connected<CkksClient>);

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

impl Connect for CkksClient {
    type Spec = CkksEndpoint;

    async fn connect(endpoint: &CkksEndpoint) -> Result<Self, Failure> {
        let has_certificate = endpoint.spec.server.identity.is_some();
        let connected = Self::connect(&endpoint.spec, endpoint.progress.clone()).await;
        connected.map_err(|error| Failure::at_connect(error, has_certificate))
    }
}

#[pymethods]
impl NativeCkksClient {
    /// Connects, and makes a secret and keys. `progress` is told the bytes of keys that are uploaded,
    /// and all of them.
    #[new]
    #[pyo3(signature = (server, *, ca, certificate, name, insecure, connect_seconds, seconds,
                        upload_seconds, key_bytes_max, version, progress))]
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
        upload_seconds: f64,
        key_bytes_max: u64,
        version: Option<&str>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let trust = Trust::read(ca, certificate)?;
        let spec = CkksClientSpec {
            version: pinned_version(version)?,
            insecure,
            connect_max: duration("connect_timeout", connect_seconds)?,
            call_max: duration("timeout", seconds)?,
            upload_max: duration("upload_timeout", upload_seconds)?,
            key_bytes_max,
            ..CkksClientSpec::new(trust.side(server, name)?)
        };
        let progress = progress.map(told);
        Ok(Self(Connected::open(py, CkksEndpoint { spec, progress })?))
    }

    /// What the server computes.
    fn info(&self, py: Python<'_>) -> PyResult<CkksFacts> {
        let session = self.0.session(py)?;
        Ok(CkksFacts::new(session.client().info()).map_err(Failure::from)?)
    }

    /// Brings the keys to the server, where they are not there yet; the bytes sent.
    fn upload(&self, py: Python<'_>) -> PyResult<u64> {
        let session = self.0.session(py)?;
        session.run(py, session.client().upload())
    }

    /// Logits of users: float32 [users, dense] and uint64 [users, tables].
    fn predict(
        &self,
        py: Python<'_>,
        dense: PyReadonlyArray2<'_, f32>,
        indices: PyReadonlyArray2<'_, u64>,
    ) -> PyResult<PredictionFacts> {
        let session = self.0.session(py)?;
        let users = dense.shape()[0];
        let (dense, indices) = (dense.as_slice()?, indices.as_slice()?);
        let found = session.run(py, session.client().predict(users, dense, indices))?;
        Ok(PredictionFacts::new(py, found))
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
        let (dense, indices) = (dense.as_slice()?.to_vec(), indices.as_slice()?.to_vec());
        let call = move |client: Arc<CkksClient>| async move {
            client.predict(users, &dense, &indices).await
        };
        self.0.start(py, done, call, |py, found| {
            Ok(Py::new(py, PredictionFacts::new(py, found))?.into_any())
        })
    }

    /// Closes the connections; calls under way finish.
    fn close(&self) {
        self.0.close();
    }
}

/// A callable of Python's, to be told of an upload. What it raises is reported and stops nothing.
fn told(callable: Py<PyAny>) -> Progress {
    Arc::new(move |done, all| {
        // An interpreter that is shutting down is told nothing.
        Python::try_attach(|py| {
            if let Err(error) = callable.call1(py, (done, all)) {
                error.write_unraisable(py, None);
            }
        });
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
