//! Which scheme a single server speaks, before a client of it is made.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::connected;
use crate::errors::Failure;
use crate::trust::{Authorities, Trust, duration};

/// The scheme that a single server speaks: `onion`, `ckks` or `hybrid`; None where it speaks none.
#[pyfunction]
#[pyo3(signature = (server, *, ca, certificate, name, insecure, connect_seconds, seconds))]
#[allow(clippy::too_many_arguments, reason = "called from one place, by keyword")]
pub(crate) fn offered_scheme(
    py: Python<'_>,
    server: Vec<String>,
    ca: Option<Authorities>,
    certificate: Option<(PathBuf, PathBuf)>,
    name: Option<String>,
    insecure: bool,
    connect_seconds: f64,
    seconds: f64,
) -> PyResult<Option<&'static str>> {
    let trust = Trust::read(ca, certificate)?;
    let connect_max = duration("connect_timeout", connect_seconds)?;
    let call_max = duration("timeout", seconds)?;
    let endpoint = trust.side(server, name)?;
    let has_certificate = endpoint.identity.is_some();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("Error", format!("no thread for a client: {error}")))?;
    let asked = connected::run(py, &runtime, async {
        hushtable_serve::offered_scheme(&endpoint, insecure, connect_max, call_max)
            .await
            .map_err(|error| Failure::at_connect(error, has_certificate))
    });
    runtime.shutdown_background();
    asked
}
