//! What hybrid private inference takes, of the paper's networks.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use hushtable_infer::Platform;
use hushtable_infer::hybrid::architectures::Architecture;
use hushtable_infer::hybrid::bench::{Counts, measure, model};
use hushtable_infer::hybrid::network::Error as NetworkError;
use hushtable_infer::hybrid::{HybridModel, Party};
use pyo3::prelude::*;

use crate::errors::Failure;

/// Writes a built-in network with made-up weights, as importers write theirs.
#[pyfunction]
#[pyo3(signature = (out, *, network, size))]
pub(crate) fn hybrid_network(
    py: Python<'_>,
    out: PathBuf,
    network: &str,
    size: usize,
) -> PyResult<()> {
    let architecture = architecture(network)?;
    Ok(py.detach(|| {
        let built = architecture.build(size, 1).map_err(Failure::config)?;
        let bytes = built.to_safetensors().map_err(|error| Failure::new("Error", error))?;
        fs::write(&out, bytes)
            .map_err(|error| Failure::new("Error", format!("{}: {error}", out.display())))
    })?)
}

/// A built-in network, ready for both parties in this process.
#[pyclass(frozen, module = "hushtable._native.bench")]
pub(crate) struct HybridBench(Arc<HybridModel>);

#[pymethods]
impl HybridBench {
    /// Makes weights up, compiles them, prepares what both parties need.
    #[new]
    #[pyo3(signature = (network, size, *, verify_uploads))]
    fn new(py: Python<'_>, network: &str, size: usize, verify_uploads: bool) -> PyResult<Self> {
        let architecture = architecture(network)?;
        let made = py.detach(|| model(architecture, size, verify_uploads, Platform::detect()));
        Ok(Self(made.map_err(Failure::config)?.0))
    }

    /// Sizes and counts, as JSON.
    #[pyo3(signature = (*, client_garbles))]
    fn counts(&self, client_garbles: bool) -> PyResult<String> {
        written(&Counts::of(self.0.outline(), party(client_garbles)))
    }

    /// Makes one precompute and uses it; seconds and bytes by part, as JSON.
    #[pyo3(signature = (*, client_garbles))]
    fn measure(&self, py: Python<'_>, client_garbles: bool) -> PyResult<String> {
        let found = py.detach(|| measure(&self.0, party(client_garbles)));
        written(&found.map_err(|error| Failure::new("Error", error))?)
    }
}

fn party(client_garbles: bool) -> Party {
    if client_garbles { Party::Client } else { Party::Server }
}

fn architecture(name: &str) -> PyResult<Architecture> {
    Ok(name.parse().map_err(|error: NetworkError| Failure::config(error))?)
}

fn written(found: &impl serde::Serialize) -> PyResult<String> {
    Ok(serde_json::to_string(found).map_err(|error| Failure::new("Error", error))?)
}
