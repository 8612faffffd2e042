//! Prepared files: a table in the form in which a single server multiplies it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use hushtable_pir::TableShape;
use hushtable_pir::onion::{
    self, Cut, Engine, Error, Geometry, OnionSpec, ParameterSet, Preparation, Progress, Summary,
    prepare,
};
use hushtable_table::Table;
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::table::NativeTable;

/// A prepared file, and the work that it took.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct PreparedFacts {
    payload_bytes: u64,
    /// Units of work; none where a file that fits was there.
    units: u32,
    /// Those of them that an earlier run had done.
    resumed_units: u32,
    is_reused: bool,
}

/// Makes the prepared file of `table` at `out`, or goes on making it; one that fits is left as it
/// is. `progress(done, all)` hears of the table's bytes on the calling thread. Interrupted, or when
/// `progress` raises, what is done stays for the next call.
#[pyfunction]
#[pyo3(signature = (table, out, *, parameters, threads, progress))]
pub(crate) fn prepare_table(
    py: Python<'_>,
    table: &NativeTable,
    out: PathBuf,
    parameters: &str,
    threads: usize,
    progress: Option<Py<PyAny>>,
) -> PyResult<PreparedFacts> {
    let (set, threads) = (parameter_set(parameters)?, check_threads(threads)?);
    let table = table.table();
    if let Some(made) = py.detach(|| reuse(table, &out, set, threads))? {
        return Ok(made);
    }
    let spec = OnionSpec { threads, ..OnionSpec::new() };
    let made = listening(py, progress, |report| prepare(table, &out, set, &spec, report))?;
    Ok(PreparedFacts::of(&made))
}

impl PreparedFacts {
    fn of(made: &Summary) -> Self {
        Self {
            payload_bytes: made.payload_bytes,
            units: made.units,
            resumed_units: made.resumed_units,
            is_reused: false,
        }
    }
}

/// Does `work` on another thread, so that this one can hear of Ctrl-C and of progress.
fn listening<T: Send>(
    py: Python<'_>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(Progress<'_>) -> Result<T, Error> + Send,
) -> PyResult<T> {
    let (done, all, is_stopped) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (news, mut changes) = channel::<()>();
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let news = news;
            let report = |now, bytes| {
                done.fetch_max(now, Ordering::Relaxed);
                all.store(bytes, Ordering::Relaxed);
                // Nobody listens any more: then the table is nearly stopped.
                let _ = news.send(());
                !is_stopped.load(Ordering::Relaxed)
            };
            work(&report)
        });
        let mut listen = || loop {
            // Borrowed for itself alone: a receiver serves one thread at a time.
            let receiver = &mut changes;
            match py.detach(|| { &mut *receiver }.recv_timeout(SIGNALS_EVERY)) {
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(()) => {
                    changes.try_iter().for_each(drop);
                    if let Some(progress) = &progress {
                        let [done, all] = [&done, &all].map(|n| n.load(Ordering::Relaxed));
                        progress.call1(py, (done, all))?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            py.check_signals()?;
        };
        let heard: PyResult<()> = listen();
        is_stopped.store(true, Ordering::Relaxed);
        let outcome = py.detach(|| worker.join());
        let outcome = outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (heard, outcome) {
            // What was raised says more than that the work was stopped.
            (Err(raised), Ok(_) | Err(Error::Stopped)) => Err(raised),
            (_, Ok(made)) => Ok(made),
            (_, Err(error)) => Err(Failure::from(error).into()),
        }
    })
}

/// The facts of the file at `out` if it fits `table` and is whole; None if it is to be made.
#[pyfunction]
#[pyo3(signature = (table, out, *, parameters, threads))]
pub(crate) fn standing_prepared(
    py: Python<'_>,
    table: &NativeTable,
    out: PathBuf,
    parameters: &str,
    threads: usize,
) -> PyResult<Option<PreparedFacts>> {
    let (set, threads) = (parameter_set(parameters)?, check_threads(threads)?);
    Ok(py.detach(|| reuse(table.table(), &out, set, threads))?)
}

/// Ranges of units that `table` may be prepared in, of `table_bytes` bytes of its rows each or somewhat
/// more. `pages`: several machines prepare them.
#[pyfunction]
#[pyo3(signature = (table, *, parameters, table_bytes, pages))]
pub(crate) fn prepare_ranges(
    table: &NativeTable,
    parameters: &str,
    table_bytes: u64,
    pages: bool,
) -> PyResult<Vec<(u32, u32)>> {
    let set = parameter_set(parameters)?;
    let cut = if pages { Cut::Pages } else { Cut::Units };
    let ranges = onion::prepare_ranges(table.table(), set, table_bytes, cut);
    let ranges = ranges.map_err(Failure::from)?;
    Ok(ranges.into_iter().map(|units| (units.start, units.end)).collect())
}

/// Prepares the units `first` to `end` of a table of which a `Preparation` is open in this process or
/// another; returns how many an earlier run had done.
#[pyfunction]
#[pyo3(signature = (table, out, first, end, *, parameters, threads))]
pub(crate) fn prepare_range(
    py: Python<'_>,
    table: &NativeTable,
    out: PathBuf,
    first: u32,
    end: u32,
    parameters: &str,
    threads: usize,
) -> PyResult<u32> {
    let (set, threads) = (parameter_set(parameters)?, check_threads(threads)?);
    let (table, spec) = (table.table(), OnionSpec { threads, ..OnionSpec::new() });
    listening(py, None, |report| onion::prepare_range(table, &out, set, first..end, &spec, report))
}

/// A prepared file that is made in ranges. No other run is at it until it is finished or closed.
#[pyclass(frozen, module = "hushtable._native", name = "Preparation")]
pub(crate) struct NativePreparation {
    /// Until it is finished or closed.
    made: Mutex<Option<Preparation>>,
    #[pyo3(get)]
    units: u32,
}

#[pymethods]
impl NativePreparation {
    #[new]
    #[pyo3(signature = (table, out, *, parameters))]
    fn new(py: Python<'_>, table: &NativeTable, out: PathBuf, parameters: &str) -> PyResult<Self> {
        let (set, table) = (parameter_set(parameters)?, table.table());
        let made = py.detach(|| Preparation::begin(table, &out, set)).map_err(Failure::from)?;
        Ok(Self { units: made.units(), made: Mutex::new(Some(made)) })
    }

    /// Units that are done.
    #[getter]
    fn done(&self, py: Python<'_>) -> u32 {
        py.detach(|| self.hold().as_ref().map_or(0, Preparation::done))
    }

    /// Notes what was done of a range.
    fn take(&self, py: Python<'_>, first: u32, end: u32) -> PyResult<()> {
        py.detach(|| match self.hold().as_ref() {
            Some(made) => made.take(first..end).map_err(Failure::from),
            None => Err(closed()),
        })?;
        Ok(())
    }

    /// Puts the file in its place.
    fn finish(&self, py: Python<'_>) -> PyResult<PreparedFacts> {
        let made = py.detach(|| match self.hold().take() {
            Some(made) => made.finish().map_err(Failure::from),
            None => Err(closed()),
        })?;
        Ok(PreparedFacts::of(&made))
    }

    /// Leaves what is done for the next run.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.hold().take()));
    }
}

impl NativePreparation {
    fn hold(&self) -> MutexGuard<'_, Option<Preparation>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn closed() -> Failure {
    Failure::config("the preparation is finished or closed: begin it again".to_owned())
}

/// Names of the parameter sets, the default first.
#[pyfunction]
pub(crate) fn parameter_sets() -> Vec<&'static str> {
    ParameterSet::ALL.map(ParameterSet::name).to_vec()
}

pub(crate) fn parameter_set(name: &str) -> Result<ParameterSet, Failure> {
    ParameterSet::from_name(name).ok_or_else(|| {
        let names = parameter_sets().join(" or ");
        Failure::config(format!("there is no parameter set {name:?}: it must be {names}"))
    })
}

pub(crate) fn check_threads(threads: usize) -> Result<usize, Failure> {
    match threads {
        0..=THREADS_MAX => Ok(threads),
        _ => Err(Failure::config(format!("threads is {threads}, but must be 0 to {THREADS_MAX}"))),
    }
}

/// Reads all of the prepared file at `path` and compares it with what was written for `table`.
#[pyfunction]
#[pyo3(signature = (table, path, *, parameters, threads))]
pub(crate) fn verify_prepared(
    py: Python<'_>,
    table: &NativeTable,
    path: PathBuf,
    parameters: &str,
    threads: usize,
) -> PyResult<()> {
    let (set, threads) = (parameter_set(parameters)?, check_threads(threads)?);
    let (table, spec) = (table.table(), OnionSpec { threads, ..OnionSpec::new() });
    // Opening a file checks it whole.
    let opened = py.detach(|| Engine::open(&path, table, set, &spec).map(drop));
    Ok(opened.map_err(Failure::from)?)
}

/// The facts of a file that fits already and is whole, so that it need not be made.
fn reuse(
    table: &Table,
    out: &std::path::Path,
    set: ParameterSet,
    threads: usize,
) -> Result<Option<PreparedFacts>, Failure> {
    let spec = OnionSpec { threads, ..OnionSpec::new() };
    match Engine::open(out, table, set, &spec) {
        Ok(_) => {
            let shape = TableShape::new(table.rows(), table.row_bytes())?;
            Ok(Some(PreparedFacts {
                payload_bytes: Geometry::new(set, shape)?.prepared_bytes(),
                units: 0,
                resumed_units: 0,
                is_reused: true,
            }))
        }
        // What is in the way of a new file is said by whoever makes it.
        Err(Error::Prepared(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

const THREADS_MAX: usize = 4096;
const SIGNALS_EVERY: Duration = Duration::from_millis(100);
