//! What an encrypted prediction takes, of models of published shapes.

use hushtable_infer::dlrm::bench::{PUBLISHED, Published, measure_published};
use hushtable_infer::dlrm::{MAP_BYTES_MAX, Masks};
use hushtable_pir::Threads;
use pyo3::prelude::*;

use crate::errors::Failure;

/// Names of the models that [`infer_seconds`] measures.
#[pyfunction]
pub(crate) fn infer_models() -> Vec<&'static str> {
    PUBLISHED.into_iter().map(|model| model.name).collect()
}

/// Plans the published model of this name, answers `runs` encrypted queries of `users` users on `threads`
/// threads each, and compares with the model in the clear; what that took, as JSON. The server holds the masks
/// of its keys, or draws them: `masks` is held or drawn.
#[pyfunction]
#[pyo3(signature = (*, model, users, runs, threads, masks="held"))]
pub(crate) fn infer_seconds(
    py: Python<'_>,
    model: &str,
    users: usize,
    runs: usize,
    threads: usize,
    masks: &str,
) -> PyResult<String> {
    let published = Published::named(model).ok_or_else(|| {
        let possible = infer_models().join(", ");
        Failure::config(format!("model is {model:?}, but must be {possible}"))
    })?;
    let masks = Masks::ALL.into_iter().find(|own| own.name() == masks).ok_or_else(|| {
        let possible = Masks::ALL.map(Masks::name).join(" or ");
        Failure::config(format!("masks is {masks:?}, but must be {possible}"))
    })?;
    let threads = match threads {
        1 => None,
        threads => Some(Threads::new(threads).map_err(Failure::from)?),
    };
    let measure =
        || measure_published(published, users, runs, masks, MAP_BYTES_MAX, threads.as_ref());
    let measured = py.detach(measure).map_err(Failure::from)?;
    Ok(serde_json::to_string(&measured).map_err(|error| Failure::new("Error", error))?)
}
