//! Real servers under load, as `tune` measures what their messages cost.

use std::path::PathBuf;
use std::time::Duration;

use hushtable_serve::EndpointSpec;
use hushtable_serve::load::{BagLoadSpec, LoadReport};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;

/// Loads both servers with whole inferences from this thread; see `hushtable_serve::load::LoadReport` for
/// the fields.
#[pyfunction]
#[pyo3(signature = (left, right, *, ca, clients, warmup, seconds))]
pub(crate) fn load_bags<'py>(
    py: Python<'py>,
    left: String,
    right: String,
    ca: Option<PathBuf>,
    clients: usize,
    warmup: f64,
    seconds: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let ca_pem = ca.map(std::fs::read).transpose()?;
    let endpoint = |url| EndpointSpec::new(url, ca_pem.clone());
    let spec = BagLoadSpec {
        clients,
        warmup: Duration::try_from_secs_f64(warmup).map_err(Failure::config)?,
        duration: Duration::try_from_secs_f64(seconds).map_err(Failure::config)?,
        ..BagLoadSpec::new(endpoint(left), endpoint(right))
    };
    let report = py.detach(|| spec.run_blocking()).map_err(Failure::from)?;
    report_fields(py, &report)
}

/// A report, as Python reads it.
pub(crate) fn report_fields<'py>(
    py: Python<'py>,
    report: &LoadReport,
) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("queries_per_s", report.queries_per_s)?;
    fields.set_item("p50_ms", report.p50_ms)?;
    fields.set_item("p99_ms", report.p99_ms)?;
    fields.set_item("max_ms", report.max_ms)?;
    fields.set_item("requests", report.requests)?;
    fields.set_item("errors", report.errors)?;
    fields.set_item("rejected", report.rejected)?;
    fields.set_item("answer_ms_mean", report.answer_ms_mean)?;
    fields.set_item("window_ms", report.window_ms)?;
    fields.set_item("elapsed_s", report.elapsed_s)?;
    Ok(fields)
}
