//! What an encrypted prediction takes, of models of published shapes.

use hushtable_infer::dlrm::MAP_BYTES_MAX;
use hushtable_infer::dlrm::bench::{PUBLISHED, Published, measure_published};
use pyo3::prelude::*;

use crate::errors::Failure;

/// Names of the models that [`infer_seconds`] measures.
#[pyfunction]
pub(crate) fn infer_models() -> Vec<&'static str> {
    PUBLISHED.into_iter().map(|model| model.name).collect()
}

/// Plans the published model of this name, answers `runs` encrypted queries on this thread, and compares with
/// the model in the clear; what that took, as JSON.
#[pyfunction]
#[pyo3(signature = (*, model, runs))]
pub(crate) fn infer_seconds(py: Python<'_>, model: &str, runs: usize) -> PyResult<String> {
    let published = Published::named(model).ok_or_else(|| {
        let possible = infer_models().join(", ");
        Failure::config(format!("model is {model:?}, but must be {possible}"))
    })?;
    let measured = py.detach(|| measure_published(published, runs, MAP_BYTES_MAX));
    let measured = measured.map_err(Failure::from)?;
    Ok(serde_json::to_string(&measured).map_err(|error| Failure::new("Error", error))?)
}
