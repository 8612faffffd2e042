//! What a traced circuit would take on other machines.

use hushtable_infer::project::{Backend, PaperActivation, he_lrm};
use hushtable_infer::trace::Trace;
use pyo3::prelude::*;

use crate::errors::Failure;

/// What the trace takes on one machine, as JSON. `backend` names one of those that are known, or is
/// the JSON of another's table.
#[pyfunction]
pub(crate) fn project_trace(trace: &str, backend: &str) -> PyResult<String> {
    let trace =
        Trace::parse(trace).map_err(|error| Failure::config(format!("a trace: {error}")))?;
    let known = Backend::known();
    let backend = match known.into_iter().find(|known| known.name() == backend) {
        Some(known) => known,
        None if backend.trim_start().starts_with('{') => {
            Backend::parse(backend).map_err(|error| Failure::config(error.to_string()))?
        }
        None => {
            let names: Vec<_> = Backend::known().iter().map(|one| one.name().to_owned()).collect();
            let text = format!(
                "no machine {backend:?} is known: {} are, or give the file of its table",
                names.join(", ")
            );
            return Err(Failure::config(text).into());
        }
    };
    let projection = backend.project(&trace);
    let projection = projection.map_err(|error| Failure::config(error.to_string()))?;
    Ok(serde_json::to_string(&projection).expect("numbers and strings"))
}

/// Names, devices and sources of the machines that are known.
#[pyfunction]
pub(crate) fn known_backends() -> Vec<(String, String, Vec<String>)> {
    let facts = |backend: &Backend| {
        (backend.name().to_owned(), backend.device().to_owned(), backend.sources().to_vec())
    };
    Backend::known().iter().map(facts).collect()
}

/// The trace of HE-LRM's own Criteo program, as JSON.
#[pyfunction]
pub(crate) fn paper_trace(ciphertexts: usize, is_relu: bool) -> PyResult<String> {
    if !(1..=CIPHERTEXTS_MAX).contains(&ciphertexts) {
        let text = format!("ciphertexts is {ciphertexts}, but must be 1 to {CIPHERTEXTS_MAX}");
        return Err(Failure::config(text).into());
    }
    let activation = if is_relu { PaperActivation::Relu } else { PaperActivation::Silu };
    Ok(he_lrm(ciphertexts, activation).to_json())
}

const CIPHERTEXTS_MAX: usize = 100_000;
