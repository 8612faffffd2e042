//! Which scheme a single server speaks, before a client of it is made.

use pyo3::prelude::*;

use crate::connected;
use crate::errors::Failure;
use crate::reach::{Limits, Reach};

/// The scheme that a single server speaks: `onion`, `ckks` or `hybrid`; None where it speaks none.
#[pyfunction]
pub(crate) fn offered_scheme(py: Python<'_>, reach: Reach<'_>) -> PyResult<Option<&'static str>> {
    let Limits { insecure, connect_max, call_max, .. } = reach.limits(30.0)?;
    let [endpoint] = reach.endpoints()?;
    let has_certificate = reach.has_certificate();
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
