//! A client of a training server.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use hushtable_serve::{Error, RoundSpec, TrainClient, TrainClientSpec, TrainInfo};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::connected::{Connect, Connected};
use crate::errors::Failure;
use crate::fl::report_dict;
use crate::trust::{Authorities, Trust, duration};

/// A client for the operator and for users, for many threads and for forked children.
#[pyclass(frozen, module = "hushtable._native", name = "TrainClient")]
pub(crate) struct NativeTrainClient(Connected<TrainClient>);

impl Connect for TrainClient {
    type Spec = TrainClientSpec;

    async fn connect(spec: &TrainClientSpec) -> Result<Self, Error> {
        Self::connect(spec).await
    }
}

#[pymethods]
impl NativeTrainClient {
    /// Connects; `certificate` is the files of this client's own and of its key, `name` whose the
    /// server's is where that is not its URL's host.
    #[staticmethod]
    #[pyo3(signature = (server, *, ca, certificate, name, insecure, connect_seconds, seconds,
                        operator_token, pin, trust_announced))]
    #[allow(clippy::too_many_arguments, reason = "called from one place, by keyword")]
    fn connect(
        py: Python<'_>,
        server: String,
        ca: Option<Authorities>,
        certificate: Option<(PathBuf, PathBuf)>,
        name: Option<String>,
        insecure: bool,
        connect_seconds: f64,
        seconds: f64,
        operator_token: Option<String>,
        pin: Option<&str>,
        trust_announced: bool,
    ) -> PyResult<Self> {
        let has_certificate = certificate.is_some();
        let trust = Trust::read(ca, certificate)?;
        let spec = TrainClientSpec {
            insecure,
            connect_max: duration("connect_timeout", connect_seconds)?,
            call_max: duration("timeout", seconds)?,
            operator_token,
            pin: pin.map(|pin| pin.parse().map_err(Failure::from)).transpose()?,
            trust_announced,
            ..TrainClientSpec::new(trust.endpoint(server, name))
        };
        Ok(Self(Connected::open(py, spec, has_certificate)?))
    }

    /// What is trained and how far it is, by name.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let session = self.0.session(py)?;
        info_dict(py, &session.run(py, session.client().info())?)
    }

    /// The controller's pin, where somebody vouches for it.
    #[getter]
    fn pin(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.0.session(py)?.client().pin().map_err(Failure::from)?.to_string())
    }

    /// The terms that were announced at the connection.
    #[getter]
    fn terms<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.0.session(py)?.client().connected().terms.text()))
    }

    /// Opens a round: its number. No seconds for the server's own choice.
    #[pyo3(signature = (users, *, users_min, request_seconds, upload_seconds, finish_seconds))]
    fn open_round(
        &self,
        py: Python<'_>,
        users: usize,
        users_min: usize,
        request_seconds: Option<f64>,
        upload_seconds: Option<f64>,
        finish_seconds: Option<f64>,
    ) -> PyResult<u64> {
        let time = |name, seconds: Option<f64>| seconds.map(|s| duration(name, s)).transpose();
        let spec = RoundSpec {
            users,
            users_min,
            request: time("request_seconds", request_seconds)?,
            upload: time("upload_seconds", upload_seconds)?,
            finish: time("finish_seconds", finish_seconds)?,
        };
        let session = self.0.session(py)?;
        session.run(py, session.client().open_round(spec))
    }

    /// Begins the round: how many users have come.
    fn close_requests(&self, py: Python<'_>, round: u64) -> PyResult<usize> {
        let session = self.0.session(py)?;
        session.run(py, session.client().close_requests(round))
    }

    /// Commits the round: what it did, by name.
    fn finish<'py>(
        &self,
        py: Python<'py>,
        round: u64,
        now: bool,
        seconds: f64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let within = wait(seconds)?;
        let session = self.0.session(py)?;
        report_dict(py, &session.run(py, session.client().finish(round, now, within))?)
    }

    /// Ends the round without an update.
    fn abandon(&self, py: Python<'_>, round: u64) -> PyResult<()> {
        let session = self.0.session(py)?;
        session.run(py, session.client().abandon(round))
    }

    /// Has the server write a backup: rounds committed, rounds begun, bytes.
    fn backup(&self, py: Python<'_>, name: &str, seconds: f64) -> PyResult<(u64, u64, u64)> {
        let session = self.0.session(py)?;
        let within = wait(seconds)?;
        let made = session.run(py, session.client().backup(name, within))?;
        Ok((made.rounds, made.rounds_begun, made.bytes))
    }

    /// Sends a user's sealed request.
    fn request(&self, py: Python<'_>, round: u64, user: u32, bytes: &[u8]) -> PyResult<()> {
        let session = self.0.session(py)?;
        let bytes = Bytes::copy_from_slice(bytes);
        session.run(py, session.client().request(round, user, bytes))
    }

    /// Waits for a user's sealed rows.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        round: u64,
        user: u32,
        seconds: f64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let within = wait(seconds)?;
        let session = self.0.session(py)?;
        let sealed = session.run(py, session.client().rows(round, user, within))?;
        Ok(PyBytes::new(py, &sealed))
    }

    /// Sends a user's sealed upload.
    fn upload(&self, py: Python<'_>, round: u64, user: u32, bytes: &[u8]) -> PyResult<()> {
        let session = self.0.session(py)?;
        let bytes = Bytes::copy_from_slice(bytes);
        session.run(py, session.client().upload(round, user, bytes))
    }

    /// Closes the connections; calls under way finish.
    fn close(&self) {
        self.0.close();
    }
}

fn wait(seconds: f64) -> Result<Duration, Failure> {
    match seconds == 0.0 {
        true => Ok(Duration::ZERO),
        false => duration("timeout", seconds),
    }
}

fn info_dict<'py>(py: Python<'py>, info: &TrainInfo) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let (terms, spec) = (&info.terms, info.terms.spec());
    dict.set_item("table", terms.table())?;
    dict.set_item("rows", terms.rows())?;
    dict.set_item("dim", terms.shape().dim())?;
    dict.set_item("slots", terms.shape().slots())?;
    dict.set_item("users", spec.users_max)?;
    dict.set_item("epsilon", spec.fdp.epsilon)?;
    dict.set_item("mechanism", info.mechanism())?;
    dict.set_item("authority", terms.authority().map(ToString::to_string))?;
    dict.set_item("pin", info.pin().to_string())?;
    dict.set_item("public_key", PyBytes::new(py, info.public_key.as_bytes()))?;
    dict.set_item("rounds", info.rounds)?;
    dict.set_item("round", info.open.map(|(round, _)| round))?;
    dict.set_item("stage", info.open.map(|(_, stage)| stage.name()))?;
    let [users, requested, uploaded] = info.users;
    dict.set_item("round_users", users)?;
    dict.set_item("requested", requested)?;
    dict.set_item("uploaded", uploaded)?;
    dict.set_item("software", &info.software)?;
    Ok(dict)
}
