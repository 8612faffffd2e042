//! Stand-ins for shards, with which a front's own cost is measured.

use std::path::PathBuf;
use std::time::Duration;

use hushtable_pir::dpf::Side;
use hushtable_serve::load::serve_stub_shards;
use hushtable_serve::{NetworkSpec, TlsSpec};
use pyo3::prelude::*;

use crate::errors::Failure;

/// Serves every shard of a model by one without rows that answers after `seconds`, until the process ends;
/// `on_bound` is called with their addresses. `tls` is a shard's certificate and key.
#[pyfunction]
#[pyo3(signature = (model, side, *, tls, seconds, on_bound))]
pub(crate) fn stub_shards(
    py: Python<'_>,
    model: PathBuf,
    side: &str,
    tls: Option<(PathBuf, PathBuf)>,
    seconds: f64,
    on_bound: Py<PyAny>,
) -> PyResult<()> {
    let side: Side = side.parse().map_err(Failure::config)?;
    let answer = Duration::try_from_secs_f64(seconds).map_err(Failure::config)?;
    let tls = tls.map(|(cert, key)| TlsSpec {
        cert,
        key,
        client_ca: None,
        client_name: None,
        peer_ca: None,
    });
    let network = NetworkSpec { addr: ([127, 0, 0, 1], 0).into(), tls, ..NetworkSpec::default() };
    let mut told = Ok(());
    let served = py.detach(|| {
        serve_stub_shards(&model, side, &network, answer, |addrs| {
            let addrs: Vec<String> = addrs.iter().map(ToString::to_string).collect();
            told = Python::attach(|py| on_bound.call1(py, (addrs,)).map(drop));
        })
    });
    served.map_err(Failure::from)?;
    told
}
