//! Pushes bundles to an operator's own servers.

use std::path::PathBuf;

use pyo3::prelude::*;
use tokio::runtime::Builder;

use crate::connected;
use crate::errors::Failure;
use crate::trust::{Authorities, Trust, duration};

/// Brings a bundle to the server at `url`; whether it is a version that the server did not have as its newest.
#[pyfunction]
#[pyo3(signature = (bundle, url, token, *, ca, domain, certificate, connect_seconds))]
#[allow(clippy::too_many_arguments, reason = "named, from one place")]
pub(crate) fn push_bundle(
    py: Python<'_>,
    bundle: PathBuf,
    url: String,
    token: &str,
    ca: Option<Authorities>,
    domain: Option<String>,
    certificate: Option<(PathBuf, PathBuf)>,
    connect_seconds: f64,
) -> PyResult<bool> {
    let endpoint = Trust::read(ca, certificate)?.endpoint(url, domain);
    let connect_max = duration("connect_seconds", connect_seconds)?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new("Error", format!("no runtime for a push: {error}")))?;
    let pushed = hushtable_serve::push(&endpoint, token, &bundle, connect_max);
    let pushed = connected::run(py, &runtime, pushed);
    runtime.shutdown_background();
    pushed
}
