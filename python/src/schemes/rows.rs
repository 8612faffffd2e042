//! Rows of a table, as any scheme's lookup fetches them.

use hushtable_serve::Lookup;
use numpy::{IntoPyArray, PyArray2, PyArrayMethods};
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::facts::Costs;

/// Rows that a lookup fetched.
#[pyclass(frozen, get_all, module = "hushtable._native", name = "Rows")]
pub(crate) struct NativeRows {
    /// float32 [ids, dim].
    values: Py<PyArray2<f32>>,
    costs: Costs,
}

impl NativeRows {
    pub(crate) fn new(py: Python<'_>, found: &Lookup, count: usize) -> PyResult<Self> {
        let values = py.detach(|| found.to_f32()).map_err(Failure::from)?;
        Ok(Self { values: into_rows(py, values, count)?, costs: Costs::new(&found.stats) })
    }
}

pub(crate) fn into_rows(
    py: Python<'_>,
    values: Vec<f32>,
    count: usize,
) -> PyResult<Py<PyArray2<f32>>> {
    let dim = values.len().checked_div(count).unwrap_or(0);
    Ok(values.into_pyarray(py).reshape([count, dim])?.unbind())
}
