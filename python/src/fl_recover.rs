//! Backups of a controller, and what is done when one does not open. Facts travel as JSON.

use std::path::PathBuf;

use hushtable_serve::{ControllerPlace, CounterSpec, Diagnosis, MasterKey, Remedy};
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::Failure;
use crate::table::Reporter;

/// Folder, key, root counter, and whether the key may lie beside the folder.
type Place = (PathBuf, PathBuf, PathBuf, bool);

fn controller_place((folder, key, counter, key_beside): Place) -> Result<ControllerPlace, Failure> {
    let counter = CounterSpec::parse(&counter)?;
    Ok(ControllerPlace { folder, key, key_beside, counter })
}

fn counter_of(place: Option<PathBuf>) -> Result<Option<CounterSpec>, Failure> {
    Ok(place.map(|place| CounterSpec::parse(&place)).transpose()?)
}

fn in_json(diagnosis: &Diagnosis) -> String {
    json!({
        "found": diagnosis.found,
        "remedy": diagnosis.remedy.map(Remedy::name),
        "counter_rounds": diagnosis.counter_rounds,
        "rounds_unknown": diagnosis.rounds_unknown,
        "report": diagnosis.report,
    })
    .to_string()
}

/// Asks Python, and keeps what it raises.
struct Asking {
    approve: Py<PyAny>,
    error: Option<PyErr>,
}

impl Asking {
    fn ask(&mut self, diagnosis: &Diagnosis) -> bool {
        let text = in_json(diagnosis);
        let answer = Python::attach(|py| self.approve.call1(py, (text,))?.extract::<bool>(py));
        answer.unwrap_or_else(|error| {
            self.error = Some(error);
            false
        })
    }
}

/// Runs `work` without the interpreter's lock; what a callback raised comes first.
fn asked<T: Send>(
    py: Python<'_>,
    approve: Py<PyAny>,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(&mut Asking, &mut Reporter) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    let mut asking = Asking { approve, error: None };
    let mut reporter = Reporter::new(progress);
    let done = py.detach(|| work(&mut asking, &mut reporter));
    reporter.finish()?;
    match asking.error {
        Some(error) => Err(error),
        None => Ok(done?),
    }
}

/// What is the matter with a controller, in JSON.
#[pyfunction]
#[pyo3(signature = (place, *, progress))]
pub(crate) fn controller_diagnose(
    py: Python<'_>,
    place: Place,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut reporter = Reporter::new(progress);
    let found = py.detach(|| {
        let place = controller_place(place)?;
        Ok::<_, Failure>(place.diagnose(&mut |done, all| reporter.call(done, all))?)
    });
    reporter.finish()?;
    Ok(in_json(&found?))
}

/// Goes on as `remedy` says once `approve`, which is given what is the matter, returns True: what was
/// done, in JSON, or None.
#[pyfunction]
#[pyo3(signature = (place, remedy, *, new_counter, rounds_begun, approve, progress))]
pub(crate) fn controller_recover(
    py: Python<'_>,
    place: Place,
    remedy: &str,
    new_counter: Option<PathBuf>,
    rounds_begun: Option<u64>,
    approve: Py<PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Option<String>> {
    let remedy = Remedy::named(remedy)
        .ok_or_else(|| Failure::config(format!("{remedy} is no way to recover")))?;
    asked(py, approve, progress, |asking, reporter| {
        let place = controller_place(place)?;
        let new_counter = counter_of(new_counter)?;
        let done = place.recover(
            remedy,
            new_counter.as_ref(),
            rounds_begun,
            &mut |diagnosis| asking.ask(diagnosis),
            &mut |done, all| reporter.call(done, all),
        )?;
        Ok(done.as_ref().map(in_json))
    })
}

/// Makes a controller of a backup once `approve` returns True: what was done, in JSON, or None.
#[pyfunction]
#[pyo3(signature = (backup, place, *, old_counter, rounds_begun, approve, progress))]
pub(crate) fn controller_restore(
    py: Python<'_>,
    backup: PathBuf,
    place: Place,
    old_counter: Option<PathBuf>,
    rounds_begun: Option<u64>,
    approve: Py<PyAny>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Option<String>> {
    asked(py, approve, progress, |asking, reporter| {
        let place = controller_place(place)?;
        let old_counter = counter_of(old_counter)?;
        let done = place.restore(
            &backup,
            old_counter.as_ref(),
            rounds_begun,
            &mut |diagnosis| asking.ask(diagnosis),
            &mut |done, all| reporter.call(done, all),
        )?;
        Ok(done.as_ref().map(in_json))
    })
}

/// Backs up a controller that is not served: the manifest, in JSON.
#[pyfunction]
#[pyo3(signature = (place, to, *, progress))]
pub(crate) fn controller_backup(
    py: Python<'_>,
    place: Place,
    to: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut reporter = Reporter::new(progress);
    let made = py.detach(|| {
        let place = controller_place(place)?;
        Ok::<_, Failure>(place.backup(&to, &mut |done, all| reporter.call(done, all))?)
    });
    reporter.finish()?;
    Ok(json!(made?).to_string())
}

/// Checks a backup, row by row: its manifest, in JSON.
#[pyfunction]
#[pyo3(signature = (key, backup, *, progress))]
pub(crate) fn backup_verify(
    py: Python<'_>,
    key: PathBuf,
    backup: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut reporter = Reporter::new(progress);
    let checked = py.detach(|| {
        let key = MasterKey::read(&key)?;
        let progress = &mut |done, all| reporter.call(done, all);
        Ok::<_, Failure>(ControllerPlace::verify_backup(&key, &backup, progress)?)
    });
    reporter.finish()?;
    Ok(json!(checked?.0).to_string())
}
