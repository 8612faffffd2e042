//! What clients meet, for Python's logs.

use hushtable_serve::Met;
use pyo3::prelude::*;

/// Has `hushtable.client.logs` told from now on of what clients of this process meet.
#[pyfunction]
pub(crate) fn watch_clients() {
    hushtable_serve::watch_clients(|met| {
        // An interpreter that is shutting down logs nothing.
        Python::try_attach(|py| {
            if let Err(error) = tell(py, met) {
                error.write_unraisable(py, None);
            }
        });
    });
}

fn tell(py: Python<'_>, met: Met<'_>) -> PyResult<()> {
    let logs = py.import("hushtable.client.logs")?;
    match met {
        Met::Refused { url, reason } => logs.call_method1("refused", (url, reason))?,
        Met::Again { url, reason, attempt } => {
            logs.call_method1("again", (url, reason, attempt))?
        }
        _ => return Ok(()),
    };
    Ok(())
}
