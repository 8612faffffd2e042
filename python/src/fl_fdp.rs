//! What a round would read and lose, by the mechanism that reads it.

use hushtable_oram::fdp::{Expectation, FdpSpec, Mechanism};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;

/// The mean of a round of `requests` for `union` different rows, under the JSON of a controller's
/// `fdp`: reads, dummy, lost and reduced (shares), epsilon_per_value and spent.
#[pyfunction]
pub(crate) fn fdp_expect<'py>(
    py: Python<'py>,
    fdp: &str,
    requests: u64,
    union: u64,
) -> PyResult<Bound<'py, PyDict>> {
    let spec: FdpSpec = serde_json::from_str(fdp).map_err(Failure::config)?;
    let mechanism = Mechanism::new(&spec, requests).map_err(Failure::config)?;
    let Expectation { reads, dummy_fraction, lost_fraction, reduced_fraction, .. } =
        py.detach(|| mechanism.expectation(union));
    let found = PyDict::new(py);
    found.set_item("reads", reads)?;
    found.set_item("dummy", dummy_fraction)?;
    found.set_item("lost", lost_fraction)?;
    found.set_item("reduced", reduced_fraction)?;
    found.set_item("epsilon_per_value", mechanism.epsilon_per_value())?;
    found.set_item("spent", spec.spent())?;
    Ok(found)
}
