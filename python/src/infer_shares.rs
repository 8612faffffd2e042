//! Plans of predictions on shares.

use std::path::PathBuf;

use hushtable_infer::dlrm::weights::are_whole;
use hushtable_infer::dlrm::{self, Dlrm, DlrmSpec, Weights};
use hushtable_infer::shares::price::{self, Measured, measure_dealing};
use hushtable_infer::shares::{SCHEME, SharesPlan, joint, reference};
use hushtable_table::model::{CompiledPlan, Model};
use numpy::{PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::Failure;

/// What a description's model takes where two servers compute it on shares, with weights of no model and measured on
/// this machine, one inference after the other; as JSON.
#[pyfunction]
#[pyo3(signature = (description, *, fraction_bits, value_bits, runs))]
pub(crate) fn shares_plan(
    py: Python<'_>,
    description: String,
    fraction_bits: u32,
    value_bits: u32,
    runs: usize,
) -> PyResult<String> {
    let planned = py.detach(|| {
        let dlrm = Dlrm::parse(&description)?;
        let model = price::Model::sketched(&dlrm, fraction_bits, value_bits)?;
        let measured = price::measure(&model, runs)?;
        let error = Some(measured.error);
        describe(&model, &measured, value_bits, error, None)
    });
    Ok(planned?)
}

/// What samples of a model are: its dense features and the bag of each sparse one, by its description or by the plan
/// of this name in the bundle at `path`.
#[pyfunction]
#[pyo3(signature = (path, description, *, name))]
pub(crate) fn shares_inputs(
    py: Python<'_>,
    path: PathBuf,
    description: Option<String>,
    name: String,
) -> PyResult<(usize, Vec<usize>)> {
    let inputs = py.detach(|| {
        let dlrm = described(&Model::open(&path)?, description, &name)?;
        let bags = dlrm.spec().features.iter().map(|feature| feature.bag);
        Ok::<_, Failure>((dlrm.spec().dense, bags.collect()))
    });
    Ok(inputs?)
}

/// Compiles the model at `path` by its description, or by that of the plan of this name, calibrated on samples:
/// float32 [samples, dense] and uint64 [samples, indices]; writes the plan into the bundle. What it takes, as JSON,
/// with the largest error over the samples.
#[pyfunction]
#[pyo3(signature = (path, description, dense, indices, *, name, fraction_bits, value_bits, runs))]
#[allow(clippy::too_many_arguments, reason = "named in Python")]
pub(crate) fn shares_compile(
    py: Python<'_>,
    path: PathBuf,
    description: Option<String>,
    dense: PyReadonlyArray2<'_, f32>,
    indices: PyReadonlyArray2<'_, u64>,
    name: String,
    fraction_bits: u32,
    value_bits: u32,
    runs: usize,
) -> PyResult<String> {
    let (dense_width, indices_width) = (dense.shape()[1].max(1), indices.shape()[1]);
    let (dense, indices) = (dense.as_slice()?, indices.as_slice()?);
    let compiled = py.detach(|| {
        let model = Model::open(&path)?;
        let dlrm = described(&model, description, &name)?;
        let weights = Weights::from_bundle(&dlrm, &model)?;
        let wide: Vec<f64> = dense.iter().map(|&value| f64::from(value)).collect();
        let samples = wide.chunks(dense_width).enumerate();
        let samples = samples
            .map(|(at, dense)| (dense, &indices[at * indices_width..(at + 1) * indices_width]));
        let samples: Vec<(&[f64], &[u64])> = samples.collect();
        for (user, (_, indices)) in samples.iter().enumerate() {
            dlrm.places(indices).map_err(|error| match error {
                dlrm::Error::Index { feature, index, rows, .. } => {
                    dlrm::Error::Index { user, feature, index, rows }
                }
                error => error,
            })?;
        }
        let spec = dlrm.spec().clone();
        let each = || samples.iter().copied();
        let plan = SharesPlan::calibrate(spec, &weights, each(), fraction_bits, value_bits)?;
        let network = plan.network(&weights)?;
        let error = reference::largest_error(&network, &dlrm, &weights, each())?;
        let written = model.write_plan(&name, SCHEME, &plan.to_json())?;
        let model = price::Model::of(dlrm, weights, network);
        let measured = price::measure(&model, runs)?;
        describe(&model, &measured, value_bits, Some(error), Some(&written))
    });
    Ok(compiled?)
}

/// What the plan of this name in the bundle at `path` takes, measured on this machine; as JSON.
#[pyfunction]
#[pyo3(signature = (path, name, *, runs))]
pub(crate) fn shares_describe(
    py: Python<'_>,
    path: PathBuf,
    name: String,
    runs: usize,
) -> PyResult<String> {
    let described = py.detach(|| {
        let model = Model::open(&path)?;
        let (found, plan) = read_plan(&model, &name)?;
        let dlrm = plan.dlrm()?;
        let weights = Weights::from_bundle(&dlrm, &model)?;
        let network = plan.network(&weights)?;
        let model = price::Model::of(dlrm, weights, network);
        let measured = price::measure(&model, runs)?;
        // Made-up features need not stay within the plan's ranges: of its error they say nothing.
        describe(&model, &measured, plan.value_bits, None, Some(&found))
    });
    Ok(described?)
}

/// The architecture of a description, or of the plan of this name. Rows are looked up, so tables that a bundle has whole
/// stay so, whatever the description's threshold.
fn described(model: &Model, description: Option<String>, name: &str) -> Result<Dlrm, Failure> {
    match description {
        Some(text) => {
            let dlrm = Dlrm::parse(&text)?;
            match are_whole(&dlrm, model)? {
                false => Ok(dlrm),
                true => Ok(Dlrm::new(DlrmSpec { threshold: u64::MAX, ..dlrm.spec().clone() })?),
            }
        }
        None => Ok(read_plan(model, name)?.1.dlrm()?),
    }
}

fn read_plan(model: &Model, name: &str) -> Result<(CompiledPlan, SharesPlan), Failure> {
    let found = model.plan(name)?;
    if found.scheme != SCHEME {
        return Err(Failure::config(format!(
            "the plan {name:?} of the model at {} is compiled for {}, not for shares: name another",
            model.path().display(),
            found.scheme
        )));
    }
    let plan = SharesPlan::parse(&found.json)?;
    Ok((found, plan))
}

fn describe(
    model: &price::Model,
    measured: &Measured,
    value_bits: u32,
    error: Option<f64>,
    plan: Option<&CompiledPlan>,
) -> Result<String, Failure> {
    let outline = model.network.outline();
    // Where gates are too wide for servers to deal for, clients do.
    let dealing = match joint::check(outline) {
        Ok(()) => {
            let dealing = measure_dealing(model, DEALT_AT_ONCE, 2);
            Some(dealing.map_err(|error| Failure::new("Error", error))?)
        }
        Err(_) => None,
    };
    let facts = json!({
        "name": plan.map_or("", |plan| &plan.name),
        "plan": plan.map_or_else(String::new, |plan| plan.version.to_string()),
        "fraction_bits": outline.fraction_bits,
        "value_bits": value_bits,
        "up_bytes": measured.up_bytes,
        "peer_bytes": measured.peer_bytes,
        "rounds": measured.rounds,
        "down_bytes": 2 * outline.logit_bytes(),
        "activations": measured.activations,
        "products": measured.products,
        "deal_ms": measured.deal_us / 1e3,
        "server_ms": measured.server_us / 1e3,
        "error": error,
        "precompute_bytes": dealing.as_ref().map(|it| it.kept_bytes),
        "precompute_peer_bytes": dealing.as_ref().and_then(|it| it.sent_bytes.into_iter().max()),
        "precompute_ms": dealing.as_ref().map(|it| it.deal_us / 1e3),
    });
    Ok(facts.to_string())
}

/// Inferences of a batch, as servers deal for them.
const DEALT_AT_ONCE: usize = 4;
