//! What an encrypted prediction takes, of models of published shapes.

use hushtable_infer::dlrm::MAP_BYTES_MAX;
use hushtable_infer::dlrm::bench::{Shape, measure_shape};
use pyo3::prelude::*;

use crate::errors::Failure;

/// Plans a model of a published shape, answers `runs` encrypted queries on this thread, and compares with
/// the model in the clear; what that took, as JSON. `threshold` is the most rows of a Criteo table that
/// stays whole, none for the heart data's model.
#[pyfunction]
#[pyo3(signature = (*, threshold, runs))]
pub(crate) fn infer_seconds(
    py: Python<'_>,
    threshold: Option<u64>,
    runs: usize,
) -> PyResult<String> {
    let shape = threshold.map_or(Shape::Uci, |threshold| Shape::Criteo { threshold });
    let measured = py.detach(|| measure_shape(shape, runs, MAP_BYTES_MAX));
    let measured = measured.map_err(Failure::from)?;
    Ok(serde_json::to_string(&measured).map_err(|error| Failure::new("Error", error))?)
}
