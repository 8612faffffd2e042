//! The controller of federated training, in this process: drives [`Rounds`] and the controller that is
//! its memory, by direct calls.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hushtable_oram::geometry::Storage;
use hushtable_oram::round::{Controller, ControllerSpec, Ended, Error as RoundError, RoundReport};
use hushtable_oram::rounds::{
    MemoryFailed, Next, NotCommitted, OpenRound, Progress, Refused, RoundLimits, RoundStage, Rounds,
};
use hushtable_oram::wire::{Pin, RefusedReason, Terms, random_round};
use hushtable_serve::{ControllerPlace, CounterSpec, MasterKey};
use hushtable_table::{CheckedRows, DType, Table, decode_rows};
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray2, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zeroize::Zeroizing;

use crate::errors::Failure;
use crate::fl_aggregate::{CallableAggregate, check_outside};
use crate::table::{NativeTable, Reporter};

/// A user's rows [slots, dim], and which of them are the table's [slots].
type Served<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray1<bool>>);

/// How a round ended, in a word, and its report.
type EndFacts<'py> = (&'static str, Option<Bound<'py, PyDict>>);

/// `(round, users, requested, uploaded, is_closed)`.
type SealedFacts = (u64, usize, usize, usize, bool);

/// A table behind an oblivious memory, for one caller at a time: others wait.
#[pyclass(frozen, module = "hushtable._native", name = "Controller")]
pub(crate) struct NativeController {
    spec: ControllerSpec,
    terms: Terms,
    pin: Pin,
    state: Mutex<State>,
}

struct State {
    /// None once it is closed.
    controller: Option<Controller>,
    /// The rounds whose messages are sealed.
    rounds: Rounds,
}

#[pymethods]
impl NativeController {
    /// Makes a controller in `folder` as `spec` (ControllerSpec in JSON) says. Its rows are those of
    /// `table`, or of `values` [rows, dim], or uniform between -init and init; the key file is made
    /// where it does not exist.
    #[staticmethod]
    #[pyo3(signature = (folder, key, counter, spec, *, key_beside, table, values, init, progress))]
    #[allow(clippy::too_many_arguments, reason = "called from one place, by keyword")]
    fn create(
        py: Python<'_>,
        folder: PathBuf,
        key: PathBuf,
        counter: PathBuf,
        spec: &str,
        key_beside: bool,
        table: Option<&NativeTable>,
        values: Option<PyReadonlyArray2<'_, f32>>,
        init: f32,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let mut spec: ControllerSpec = serde_json::from_str(spec).map_err(Failure::config)?;
        // What a folder says that is silent about it is how they were made before.
        spec.storage = Storage::Rings;
        let counter = CounterSpec::parse(&counter).map_err(Failure::from)?;
        let place = ControllerPlace { folder, key, key_beside, counter };
        let rows = match (table, &values) {
            (Some(table), _) => {
                let table = table.table();
                let shape = [table.rows() as usize, table.dim()];
                check_shape("the table's rows", &shape, [spec.rows as usize, spec.dim])?;
                Rows::Table { table, rows: table.checked_rows().map_err(Failure::from)? }
            }
            (None, Some(values)) => {
                check_shape("the rows", values.shape(), [spec.rows as usize, spec.dim])?;
                Rows::Values { values: values.as_slice()?, dim: spec.dim }
            }
            (None, None) => Rows::random(init)?,
        };
        let mut reporter = Reporter::new(progress);
        let made =
            py.detach(|| Self::make(&place, spec, rows, &mut |done, all| reporter.call(done, all)));
        reporter.finish()?;
        Ok(made?)
    }

    /// Opens the controller in `folder`, as of its last committed round.
    #[staticmethod]
    #[pyo3(signature = (folder, key, counter, *, key_beside, progress))]
    fn open(
        py: Python<'_>,
        folder: PathBuf,
        key: PathBuf,
        counter: PathBuf,
        key_beside: bool,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let counter = CounterSpec::parse(&counter).map_err(Failure::from)?;
        let place = ControllerPlace { folder, key, key_beside, counter };
        let mut reporter = Reporter::new(progress);
        let opened = py.detach(|| {
            let terms = place.terms()?;
            let key = place.master_key()?;
            let controller = place.open_as(&terms, &mut |done, all| reporter.call(done, all))?;
            Ok::<_, Failure>(Self::new(controller, terms, &key))
        });
        reporter.finish()?;
        Ok(opened?)
    }

    /// What it was created as: ControllerSpec in JSON.
    #[getter]
    fn spec(&self) -> PyResult<String> {
        Ok(serde_json::to_string(&self.spec).map_err(|error| Failure::new("Error", error))?)
    }

    /// The tree: facts by name.
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let geometry = self.spec.geometry().map_err(Failure::from)?;
        let facts = PyDict::new(py);
        facts.set_item("levels", geometry.levels())?;
        facts.set_item("buckets", geometry.buckets())?;
        facts.set_item("bucket_bytes", geometry.bucket_bytes())?;
        facts.set_item("file_bytes", self.spec.tree_bytes().map_err(Failure::from)?)?;
        facts.set_item("payload_bytes", geometry.payload_bytes())?;
        facts.set_item("state_bytes", self.state_bytes()?)?;
        Ok(facts)
    }

    /// Rounds committed.
    #[getter]
    fn rounds(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |controller, _| Ok(controller.round()))
    }

    /// What rounds have cost, by name: rounds, epsilon, budget, delta, rounds_left.
    fn spent<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let spent = self.with(py, |controller, _| Ok(controller.spent()))?;
        let dict = PyDict::new(py);
        dict.set_item("rounds", spent.rounds)?;
        dict.set_item("epsilon", spent.epsilon)?;
        dict.set_item("budget", spent.budget)?;
        dict.set_item("delta", spent.delta)?;
        dict.set_item("rounds_left", spent.rounds_left)?;
        Ok(dict)
    }

    /// What requests are sealed to.
    #[getter]
    fn public_key<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.pin.key().as_bytes())
    }

    /// What users know the controller by.
    #[getter]
    fn pin(&self) -> String {
        self.pin.to_string()
    }

    /// What its users are told of it: `controller.json`.
    #[getter]
    fn terms<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.terms.text())
    }

    /// Updates rows by Python functions: `pre(gradients, weights)` and
    /// `post(rows, state, sums, weights, round)`, either of which may be None.
    fn set_aggregate(
        &self,
        py: Python<'_>,
        pre: Option<Py<PyAny>>,
        post: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let built = self.spec.aggregate.build().map_err(RoundError::from).map_err(Failure::from)?;
        let aggregate = CallableAggregate::new(pre, post, built);
        self.with(py, |controller, _| Ok(controller.set_aggregate(Box::new(aggregate))?))
    }

    /// Begins a round for ids [users, slots]: its number, k, and the users that were refused.
    fn begin(
        &self,
        py: Python<'_>,
        ids: PyReadonlyArray2<'_, u32>,
    ) -> PyResult<(u64, u64, Vec<usize>)> {
        let [users, slots] = [ids.shape()[0], ids.shape()[1]];
        check_shape("ids", &[slots], [self.spec.slots])?;
        let ids = ids.as_slice()?;
        self.with(py, |controller, rounds| {
            if rounds.open_round().is_some() {
                let text = "a sealed round is open: close its requests, or abandon it first";
                return Err(Failure::new("RoundError", text));
            }
            let start = controller.begin(users, ids)?;
            Ok((start.round, start.accesses, start.refused))
        })
    }

    /// A user's rows.
    fn rows<'py>(&self, py: Python<'py>, user: usize) -> PyResult<Served<'py>> {
        let ControllerSpec { slots, dim, .. } = self.spec;
        let (rows, found) = self.with(py, |controller, _| {
            let (mut rows, mut found) = (vec![0.0; slots * dim], vec![false; slots]);
            controller.rows(user, &mut rows, &mut found)?;
            Ok((rows, found))
        })?;
        Ok((rows.into_pyarray(py).reshape([slots, dim])?, found.into_pyarray(py)))
    }

    /// Takes a user's gradients [slots, dim].
    fn add(
        &self,
        py: Python<'_>,
        user: usize,
        gradients: PyReadonlyArray2<'_, f32>,
        weight: f32,
    ) -> PyResult<()> {
        check_shape("gradients", gradients.shape(), [self.spec.slots, self.spec.dim])?;
        let gradients = gradients.as_slice()?;
        self.with(py, |controller, _| Ok(controller.add(user, gradients, weight)?))
    }

    /// Updates the rows, durably; what the round did, by name.
    fn commit<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = self.with(py, |controller, rounds| {
            let Some(OpenRound { round, stage: RoundStage::Serving, .. }) = rounds.open_round()
            else {
                return Ok(controller.commit()?);
            };
            rounds.finish(round, true, Instant::now())?;
            drive(controller, rounds)?;
            match rounds.finish(round, true, Instant::now())? {
                Progress::Done(report) => Ok(report),
                _ => {
                    Err(Failure::new("RoundError", "the round is not committed: it is still open"))
                }
            }
        })?;
        report_dict(py, &report)
    }

    /// Ends the round without an update. No round is no error where a sealed one had not begun.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |controller, rounds| match rounds.open_round() {
            Some(OpenRound { round, .. }) => {
                rounds.abandon(round)?;
                drive(controller, rounds)
            }
            None => Ok(controller.abandon().map(drop)?),
        })
    }

    /// All rows [rows, dim].
    #[pyo3(signature = (*, progress))]
    fn export<'py>(
        &self,
        py: Python<'py>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let values = self.all_rows(py, progress)?;
        values.into_pyarray(py).reshape([self.spec.rows as usize, self.spec.dim])
    }

    /// Writes all rows as a bundle.
    #[pyo3(signature = (out, *, dtype, progress))]
    fn export_bundle(
        &self,
        py: Python<'_>,
        out: PathBuf,
        dtype: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let dtype: DType = dtype.parse().map_err(Failure::config)?;
        let values = self.all_rows(py, progress)?;
        let ControllerSpec { name, rows, dim, .. } = &self.spec;
        py.detach(|| Table::from_weight(name, *rows, *dim, dtype, &values)?.save(&out))
            .map_err(Failure::from)?;
        Ok(())
    }

    /// Ends it in order, an open round without an update; nothing can be called afterwards.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        check_outside()?;
        py.detach(|| {
            let State { controller, rounds } = &mut *self.locked();
            if let Some(OpenRound { round, .. }) = rounds.open_round() {
                rounds.abandon(round)?;
            }
            match controller.take() {
                Some(mut controller) => {
                    drive(&mut controller, rounds)?;
                    if controller.is_serving() {
                        controller.abandon()?;
                    }
                    Ok(controller.close()?)
                }
                None => Ok::<_, Failure>(()),
            }
        })?;
        Ok(())
    }

    /// Opens a round of sealed requests for `users`: its number.
    fn open_round(&self, py: Python<'_>, users: usize) -> PyResult<u64> {
        self.with(py, |controller, rounds| {
            if rounds.open_round().is_some() || controller.is_serving() {
                let text = "a round is open: commit or abandon it first";
                return Err(Failure::new("RoundError", text));
            }
            // Before users are asked for anything.
            controller.check_budget()?;
            controller.check_writable(users)?;
            let round = random_round().map_err(|error| Failure::new("Error", error))?.max(1);
            let terms = RoundLimits {
                users,
                users_min: 0,
                request_max: None,
                upload_max: None,
                finish_max: None,
            };
            rounds.open(&terms, round, Instant::now())?;
            Ok(round)
        })
    }

    /// How a sealed round has ended, as the journal has it: its outcome, and its report where it was
    /// committed.
    fn outcome<'py>(&self, py: Python<'py>, round: u64) -> PyResult<Option<EndFacts<'py>>> {
        let ended = self.with(py, |controller, _| {
            let own = controller.settled().iter().find(|settled| settled.round == round);
            Ok(own.map(|settled| settled.ended.clone()))
        })?;
        ended
            .map(|ended| match ended {
                Ended::Committed(report) => Ok(("committed", Some(report_dict(py, &report)?))),
                Ended::Abandoned => Ok(("abandoned", None)),
                _ => Ok(("failed", None)),
            })
            .transpose()
    }

    /// The open sealed round.
    fn sealed_round(&self, py: Python<'_>) -> PyResult<Option<SealedFacts>> {
        self.with(py, |_, rounds| {
            Ok(rounds.open_round().map(|open| {
                let is_closed = open.stage != RoundStage::Requests;
                (open.round, open.users, open.requested, open.uploaded, is_closed)
            }))
        })
    }

    /// Takes a user's sealed request.
    fn request(&self, py: Python<'_>, user: u32, bytes: &[u8]) -> PyResult<()> {
        self.with(py, |_, rounds| {
            let OpenRound { round, .. } = open_of(rounds)?;
            Ok(rounds.request(round, user, bytes)?)
        })
    }

    /// Takes no more requests and begins the round: k.
    fn close_requests(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |controller, rounds| {
            let OpenRound { round, stage, .. } = open_of(rounds)?;
            if stage != RoundStage::Requests {
                let text = "the round has begun: serve its users, then commit or abandon it";
                return Err(Failure::new("RoundError", text));
            }
            rounds.close(round)?;
            drive(controller, rounds)?;
            controller.accesses().ok_or_else(|| RoundError::Ended.into())
        })
    }

    /// A user's rows, sealed.
    fn reply<'py>(&self, py: Python<'py>, user: u32) -> PyResult<Bound<'py, PyBytes>> {
        let ControllerSpec { slots, dim, .. } = self.spec;
        let bytes = self.with(py, |controller, rounds| {
            let OpenRound { round, .. } = open_of(rounds)?;
            if rounds.rows(round, user)? != Progress::Done(()) {
                return Err(Refused::NotBegun { round }.into());
            }
            let mut rows = Zeroizing::new(vec![0.0; slots * dim]);
            let mut found = vec![false; slots];
            controller.rows(user as usize, &mut rows, &mut found)?;
            Ok(rounds.seal(round, user, &rows, &found)?)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Takes a user's sealed upload.
    fn upload(&self, py: Python<'_>, user: u32, bytes: &[u8]) -> PyResult<()> {
        self.with(py, |controller, rounds| {
            let OpenRound { round, .. } = open_of(rounds)?;
            if let Progress::Done(Some(upload)) = rounds.upload(round, user, bytes)? {
                let gradients = Zeroizing::new(upload.gradients);
                if let Err(error) = controller.add(user as usize, &gradients, upload.weight) {
                    let (is_bad, reason) = match &error {
                        RoundError::Gradients(error) => (true, error.reason()),
                        _ => (false, RefusedReason::Failed),
                    };
                    // The user may send another.
                    let refused = rounds.not_added(user, reason);
                    return Err(if is_bad { refused.into() } else { error.into() });
                }
            }
            Ok(())
        })
    }
}

/// Does what the open round asks for until it waits.
fn drive(controller: &mut Controller, rounds: &mut Rounds) -> Result<(), Failure> {
    let mut worked = Ok(());
    let mut tell = |error: RoundError| {
        worked = Err(Failure::from(error));
        MemoryFailed
    };
    loop {
        match rounds.next(Instant::now()) {
            Next::Begin { name, users, ids } => {
                let begun = controller.begin_named(name, users, &ids).map(drop).map_err(&mut tell);
                // The budget is asked before a round is opened.
                rounds.begun(begun, None, Instant::now());
            }
            Next::Commit => {
                let committed = controller.commit().map_err(|error| {
                    let is_unsettled = matches!(error, RoundError::Unsettled { .. });
                    let MemoryFailed = tell(error);
                    if is_unsettled { NotCommitted::Unsettled } else { NotCommitted::Failed }
                });
                // A Python aggregate that failed leaves the round as it was.
                match committed {
                    Err(_) if controller.is_serving() => rounds.not_committed(),
                    committed => rounds.committed(committed),
                }
            }
            Next::Abandon => {
                rounds.abandoned(controller.abandon().map(drop).map_err(&mut tell));
            }
            Next::Over { .. } => {}
            _ => return worked,
        }
    }
}

impl NativeController {
    fn new(controller: Controller, terms: Terms, key: &MasterKey) -> Self {
        let (spec, key) = (controller.spec().clone(), key.controller_key());
        let pin = Pin::new(key.public(), &terms);
        let (committed, settled) = (controller.round(), controller.settled());
        let rounds = Rounds::new(terms.clone(), key, committed, None, settled);
        let state = Mutex::new(State { controller: Some(controller), rounds });
        Self { spec, terms, pin, state }
    }

    fn make(
        place: &ControllerPlace,
        spec: ControllerSpec,
        mut rows: Rows<'_>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self, Failure> {
        // What the messages cannot hold is said before anything is written.
        let terms = Terms::of(&spec)?;
        let is_new = !place.key.exists();
        let key = match is_new {
            true => place.create_key()?,
            false => place.master_key()?,
        };
        let ControllerPlace { folder, counter, .. } = place;
        let fill = &mut |first: u64, out: &mut [f32]| rows.fill(first, out);
        match Controller::create(folder, &key.folder_key(), counter, &spec, fill, progress) {
            Ok(controller) => Ok(Self::new(controller, terms, &key)),
            Err(error) => {
                // A key that nothing is sealed under would only be in the next attempt's way.
                if is_new {
                    let _ = std::fs::remove_file(&place.key);
                }
                Err(error.into())
            }
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works on the controller without the interpreter's lock.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Controller, &mut Rounds) -> Result<T, Failure> + Send,
    ) -> PyResult<T> {
        check_outside()?;
        let done = py.detach(|| {
            let State { controller, rounds } = &mut *self.locked();
            let closed = || Failure::config("the controller is closed: open it again");
            work(controller.as_mut().ok_or_else(closed)?, rounds)
        });
        Ok(done?)
    }

    fn state_bytes(&self) -> Result<usize, Failure> {
        let aggregate = self.spec.aggregate.build().map_err(RoundError::from)?;
        Ok(aggregate.state_bytes(self.spec.dim))
    }

    fn all_rows(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<Vec<f32>> {
        let mut reporter = Reporter::new(progress);
        let mut values = Vec::new();
        self.with(py, |controller, rounds| {
            if rounds.open_round().is_some() {
                let text = "a round is open: commit or abandon it first";
                return Err(Failure::new("RoundError", text));
            }
            values.reserve_exact(self.spec.rows as usize * self.spec.dim);
            controller.export(
                &mut |_, rows| {
                    values.extend_from_slice(rows);
                    Ok(())
                },
                &mut |done, all| reporter.call(done, all),
            )?;
            Ok(())
        })?;
        reporter.finish()?;
        Ok(values)
    }
}

/// Where rows to begin with come from.
enum Rows<'a> {
    /// Each row is checked against its sum.
    Table {
        table: &'a Table,
        rows: CheckedRows<'a>,
    },
    Values {
        values: &'a [f32],
        dim: usize,
    },
    Uniform {
        half_width: f32,
        random: Box<ChaCha8Rng>,
    },
}

impl Rows<'_> {
    fn random(half_width: f32) -> Result<Self, Failure> {
        if !(0.0..=1e6).contains(&half_width) {
            return Err(Failure::config(format!(
                "init is {half_width}, but must be 0 to 1,000,000"
            )));
        }
        // Where training starts from is no secret.
        let random = Box::new(ChaCha8Rng::seed_from_u64(0));
        Ok(Self::Uniform { half_width, random })
    }

    fn fill(&mut self, first: u64, out: &mut [f32]) -> Result<(), RoundError> {
        match self {
            Self::Values { values, dim } => {
                let start = first as usize * *dim;
                out.copy_from_slice(&values[start..start + out.len()]);
                Ok(())
            }
            Self::Table { table, rows } => {
                let mut served = vec![0; out.len() / table.dim() * table.row_bytes()];
                let failed = |error: hushtable_table::Error| RoundError::File {
                    path: table.path().map_or_else(PathBuf::new, Path::to_owned),
                    source: std::io::Error::other(error),
                };
                rows.copy_rows(first, &mut served).map_err(failed)?;
                decode_rows(table.dtype(), table.dim(), &served, out).map_err(failed)
            }
            Self::Uniform { half_width, random } => {
                for number in out {
                    *number = *half_width * (2.0 * random.random::<f32>() - 1.0);
                }
                Ok(())
            }
        }
    }
}

fn open_of(rounds: &Rounds) -> Result<OpenRound, Failure> {
    rounds
        .open_round()
        .ok_or_else(|| Failure::new("RoundError", "no round is open: open one first"))
}

fn check_shape<const N: usize>(
    what: &str,
    found: &[usize],
    expected: [usize; N],
) -> Result<(), Failure> {
    if found == expected {
        return Ok(());
    }
    Err(Failure::new("RoundError", format!("{what} are {found:?}, but must be {expected:?}")))
}

/// `hushtable.fl.RoundReport`'s fields: those of the report, by the same names.
pub(crate) fn report_dict<'py>(
    py: Python<'py>,
    report: &RoundReport,
) -> PyResult<Bound<'py, PyDict>> {
    let RoundReport { round, rounds, users, requested, uploaded, requests, accesses, .. } = *report;
    let RoundReport { read_bytes, written_bytes, journal_bytes, .. } = *report;
    let dict = PyDict::new(py);
    dict.set_item("round", round)?;
    dict.set_item("rounds", rounds)?;
    dict.set_item("users", users)?;
    dict.set_item("requested", requested)?;
    dict.set_item("uploaded", uploaded)?;
    dict.set_item("requests", requests)?;
    dict.set_item("accesses", accesses)?;
    dict.set_item("read_bytes", read_bytes)?;
    dict.set_item("written_bytes", written_bytes)?;
    dict.set_item("journal_bytes", journal_bytes)?;
    let steps_us = PyDict::new(py);
    for (step, us) in &report.steps_us {
        steps_us.set_item(step, us)?;
    }
    dict.set_item("steps_us", steps_us)?;
    let refused = PyDict::new(py);
    for (user, reason) in &report.refused {
        refused.set_item(user, reason.name())?;
    }
    dict.set_item("refused", refused)?;
    Ok(dict)
}
