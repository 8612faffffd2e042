//! Prepared files: a table in the form in which a single server multiplies it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use hushtable_pir::TableShape;
use hushtable_pir::onion::{Engine, Error, Geometry, OnionSpec, ParameterSet, prepare};
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
    let (done, all, is_stopped) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let (news, mut changes) = channel::<()>();
    // The work is done elsewhere, so that this thread can hear of Ctrl-C.
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
            prepare(table, &out, set, &spec, &report)
        });
        let mut listen = || loop {
            // Borrowed for itself alone: a receiver is of one thread at a time.
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
            (_, Ok(made)) => Ok(PreparedFacts {
                payload_bytes: made.payload_bytes,
                units: made.units,
                resumed_units: made.resumed_units,
                is_reused: false,
            }),
            (_, Err(error)) => Err(Failure::from(error).into()),
        }
    })
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
