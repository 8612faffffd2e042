//! The servers' logs.

use pyo3::prelude::*;
use tracing_subscriber::EnvFilter;

use crate::errors::Failure;

/// Writes logs to standard error from now on, as text or as JSON lines. `filter` is a level
/// (`info`) or directives (`hushtable_serve=debug,warn`). Only a process's first call counts.
#[pyfunction]
pub(crate) fn log_to_stderr(filter: &str, json: bool) -> PyResult<()> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| Failure::config(format!("log filter {filter:?}: {error}")))?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A full disk or a reader that went costs lines, never an answer: with this on, what could not be written is
        // said by eprintln, which panics for the same reason and takes the call that logged with it.
        .log_internal_errors(false);
    // An embedding program may have its own subscriber, which then stays.
    drop(match json {
        true => logs.json().try_init(),
        false => logs.with_ansi(false).try_init(),
    });
    Ok(())
}
