//! Training rounds at a server.

use std::path::PathBuf;
use std::sync::Arc;

use hushtable_oram::round::Error as RoundError;
use hushtable_oram::wire::Error as WireError;
use hushtable_serve::{
    ControllerPlace, CounterSpec, Refusal, TrainError, TrainRefusal, TrainServer, TrainServerSpec,
};
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::schemes::{Refused, Scheme};
use crate::serve_errors::{config, known};
use crate::server::{self, NativeServer, Progress};

pub(crate) const SCHEME: Scheme = Scheme {
    name: "train",
    kinds: &[],
    serve: None,
    refused,
    errors: &[known::<RoundError>, known::<WireError>, config::<TrainError>],
};

/// A server of training rounds.
#[pyclass(frozen, get_all, extends = NativeServer, module = "hushtable._native", name = "TrainServer")]
pub(crate) struct NativeTrainServer {
    /// The table's name.
    table: String,
    /// What users know the controller by.
    pin: String,
}

/// What one of the scheme's own refusals is to Python.
fn refused(refusal: &Refusal, of: Refused<'_>) -> Option<Failure> {
    Some(match refusal.of::<TrainRefusal>()? {
        TrainRefusal::RoundOver { outcome, .. } => of("RoundOver").text("outcome", outcome),
        TrainRefusal::BudgetSpent { rounds, .. } => of("BudgetSpent").count("rounds", *rounds),
        TrainRefusal::BadSetting { .. } => of("ConfigError"),
        TrainRefusal::OperatorOnly => of("OperatorOnly"),
        TrainRefusal::Pending { .. } => of("RoundPending"),
        TrainRefusal::Unwritable { .. } => of("ControllerError"),
        _ => of("RoundError"),
    })
}

#[pymethods]
impl NativeTrainServer {
    /// Starts the training server that `spec` describes, `hushtable_serve::TrainServerSpec` in JSON,
    /// of the controller in `folder`.
    #[new]
    #[pyo3(signature = (spec, folder, key, counter, *, key_beside))]
    fn new(
        py: Python<'_>,
        spec: &str,
        folder: PathBuf,
        key: PathBuf,
        counter: PathBuf,
        key_beside: bool,
    ) -> PyResult<PyClassInitializer<Self>> {
        let spec: TrainServerSpec = server::spec(spec)?;
        let counter = CounterSpec::parse(&counter).map_err(Failure::from)?;
        let place = ControllerPlace { folder, key, key_beside, counter };
        let started = py.detach(|| {
            let table = place.terms()?.table().to_owned();
            let served = Self { table, pin: place.pin()?.to_string() };
            let (io_threads, progress) = (spec.network.io_threads, Arc::<Progress>::default());
            let told = Arc::clone(&progress);
            let tell = move |done, all| told.tell(done, all);
            let server = TrainServer::of_controller(spec, place, tell)?;
            Ok::<_, Failure>((server::start(|| server.bind(), io_threads, progress, ())?, served))
        });
        let ((running, none), served) = started?;
        Ok(PyClassInitializer::from(NativeServer::of(py, running, none)?).add_subclass(served))
    }
}
