//! Paths of what lies in a folder, where somebody else says what it is called.

use std::path::PathBuf;

use hushtable_table::within;
use pyo3::prelude::*;

use crate::errors::Failure;

/// `path` below `folder`, where no link leads out of it either if `real`.
#[pyfunction]
#[pyo3(signature = (folder, path, *, real=false))]
pub(crate) fn join_within(folder: PathBuf, path: &str, real: bool) -> PyResult<PathBuf> {
    let refused = |error: String| Failure::new("ConfigError", error);
    match real {
        false => Ok(within::join(&folder, path).map_err(|error| refused(error.to_string()))?),
        true => match within::join_real(&folder, path) {
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => {
                Err(refused(error.to_string()).into())
            }
            joined => Ok(joined?),
        },
    }
}
