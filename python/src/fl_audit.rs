//! The audit log of a training server.

use std::path::PathBuf;

use hushtable_serve::{AuditSummary, MasterKey};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;

/// Checks the audit log at `path` by the key in the file `key`: what it holds, by name. `expect` is
/// `SEQ:HASH` of a line that must be in it.
#[pyfunction]
#[pyo3(signature = (path, key, *, expect))]
pub(crate) fn audit_log(
    py: Python<'_>,
    path: PathBuf,
    key: PathBuf,
    expect: Option<String>,
) -> PyResult<Bound<'_, PyDict>> {
    let found = py.detach(|| {
        let key = MasterKey::read(&key)?;
        Ok::<_, Failure>(AuditSummary::of_file(&path, &key, expect.as_deref())?)
    })?;
    let dict = PyDict::new(py);
    dict.set_item("lines", found.end.seq)?;
    dict.set_item("bytes", found.bytes)?;
    dict.set_item("torn_bytes", found.torn_bytes)?;
    let (first, last) = found.times.unzip();
    dict.set_item("first", first)?;
    dict.set_item("last", last)?;
    dict.set_item("events", found.events)?;
    dict.set_item("outcomes", found.outcomes)?;
    dict.set_item("refused", found.refused)?;
    dict.set_item("end", found.end.to_string())?;
    Ok(dict)
}
