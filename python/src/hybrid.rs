//! Plans and networks of hybrid inference in this process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hushtable_infer::Platform;
use hushtable_infer::hybrid::network::{CompileSpec, Network, compile, lower, reference};
use hushtable_infer::hybrid::program::Rounding;
use hushtable_infer::hybrid::{
    Costs, Error, HybridModel, Outline, Party, Plan, Precompute, Terms, network,
};
use hushtable_table::model::Model;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::Failure;
use crate::schemes::hybrid::HybridFacts;

/// Compiles the network of the model at `path`, and writes the plan into the bundle; what it is, as JSON.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "Python's keywords")]
#[pyo3(signature = (path, *, name, samples, fraction, bits, rounding, verify_uploads))]
pub(crate) fn hybrid_compile(
    py: Python<'_>,
    path: PathBuf,
    name: String,
    samples: Option<PyReadonlyArray2<'_, f32>>,
    fraction: u32,
    bits: Option<u32>,
    rounding: &str,
    verify_uploads: bool,
) -> PyResult<String> {
    let rounding = match rounding {
        "stochastic" => Rounding::Stochastic,
        "nearest" => Rounding::Nearest,
        other => {
            let text = format!("rounding is {other:?}, but must be stochastic or nearest");
            return Err(Failure::config(text).into());
        }
    };
    let samples = match &samples {
        None => Vec::new(),
        Some(samples) => samples.as_array().rows().into_iter().map(|row| row.to_vec()).collect(),
    };
    let compiled = py.detach(|| {
        let model = Model::open(&path)?;
        let network = Network::from_bundle(&model)?;
        let own = CompileSpec { fraction, bits, rounding, samples, ..CompileSpec::default() };
        let spec = CompileSpec { verify_uploads, ..own };
        let compiled = compile(&network, &spec)?;
        let plan = Plan::of(&compiled);
        plan.write(&model, &name)?;
        describe(&model, &plan, &name)
    });
    Ok(compiled?)
}

/// What the hybrid plan of this name in the bundle at `path` is; as JSON.
#[pyfunction]
pub(crate) fn hybrid_describe(py: Python<'_>, path: PathBuf, name: String) -> PyResult<String> {
    let described = py.detach(|| {
        let model = Model::open(&path)?;
        let plan = Plan::read(&model, &name)?;
        describe(&model, &plan, &name)
    });
    Ok(described?)
}

/// A plan in facts and in words, as JSON.
fn describe(model: &Model, plan: &Plan, name: &str) -> Result<String, Failure> {
    let manifest = model.manifest();
    let terms = plan.terms(manifest.name(), &manifest.version())?;
    let program = &plan.program;
    let outline = Outline::new(program.clone(), Platform::detect())?;
    let kept = |garbler, party| -> u64 { outline.record_bytes(garbler, party).iter().sum() };
    let link = |garbler| {
        let costs = Costs::of(&outline, garbler);
        let (mut sum, split) = (costs.offline(), costs.split(LINK_MBPS));
        sum += costs.online();
        json!({
            "up_bytes": sum.up,
            "down_bytes": sum.down,
            "up_share": split.up_mbps / LINK_MBPS,
            "seconds": split.seconds,
            "even_seconds": split.even_seconds,
        })
    };
    let costs = Costs::of(&outline, Party::Server);
    let hash: String = terms.id().iter().map(|byte| format!("{byte:02x}")).collect();
    let shape = program.input;
    let facts = json!({
        "name": name,
        "plan": hash,
        "input": [shape.channels, shape.height, shape.width],
        "outputs": program.stages.last().map_or(0, |stage| stage.sum.count()),
        "bits": program.bits,
        "fraction": program.fraction,
        "rounding": rounding_name(program.rounding),
        "lattice": program.lattice,
        "stages": program.stages.len(),
        "activations": program.activations(),
        "bytes_if_server_garbles": {
            "client": kept(Party::Server, Party::Client),
            "server": kept(Party::Server, Party::Server),
        },
        "bytes_if_client_garbles": {
            "client": kept(Party::Client, Party::Client),
            "server": kept(Party::Client, Party::Server),
        },
        "upload_bytes": costs.encryption.up,
        "proof_bytes": costs.proofs.up,
        "link_if_server_garbles": link(Party::Server),
        "link_if_client_garbles": link(Party::Client),
        "text": plan.describe(),
    });
    Ok(facts.to_string())
}

/// The radio link that a plan's best split is given for, both directions together.
const LINK_MBPS: f64 = 1000.0;

pub(crate) fn rounding_name(rounding: Rounding) -> &'static str {
    match rounding {
        Rounding::Stochastic => "stochastic",
        Rounding::Nearest => "nearest",
    }
}

/// A compiled network in this process.
#[pyclass(frozen, module = "hushtable._native", name = "HybridModel")]
pub(crate) struct NativeHybridModel {
    name: String,
    version: String,
    terms: Terms,
    network: Network,
    model: Arc<HybridModel>,
}

#[pymethods]
impl NativeHybridModel {
    /// Opens the bundle at `path` and its plan of this name.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, name: String) -> PyResult<Self> {
        let opened = py.detach(|| Self::open(&path, &name));
        Ok(opened?)
    }

    /// What a server of it would announce.
    fn info(&self) -> PyResult<HybridFacts> {
        Ok(HybridFacts::of_terms(&self.name, &self.version, &self.terms, self.model.outline()))
    }

    /// Outputs for inputs, float32 [inputs, numbers], one after the other; `fhe` is clear, simulate or
    /// execute, `client_garbles` counts for execute.
    fn predict(
        &self,
        py: Python<'_>,
        inputs: PyReadonlyArray2<'_, f32>,
        fhe: &str,
        client_garbles: bool,
    ) -> PyResult<Py<PyArray1<f32>>> {
        let inputs: Vec<Vec<f32>> =
            inputs.as_array().rows().into_iter().map(|row| row.to_vec()).collect();
        let garbler = if client_garbles { Party::Client } else { Party::Server };
        let found = py.detach(|| {
            let mut outputs = Vec::new();
            for input in &inputs {
                outputs.extend(self.output(input, fhe, garbler)?);
            }
            Ok::<_, Failure>(outputs)
        });
        Ok(found?.into_pyarray(py).unbind())
    }
}

impl NativeHybridModel {
    fn open(path: &Path, name: &str) -> Result<Self, Failure> {
        let model = Model::open(path)?;
        let plan = Plan::read(&model, name)?;
        let network = Network::from_bundle(&model)?;
        let weights = plan.weights(&network)?;
        let manifest = model.manifest();
        let terms = plan.terms(manifest.name(), &manifest.version())?;
        let (name, version) = (manifest.name().to_owned(), manifest.version().to_string());
        let model = Arc::new(HybridModel::new(plan.program, weights, Platform::detect())?);
        Ok(Self { name, version, terms, network, model })
    }

    fn output(&self, input: &[f32], fhe: &str, garbler: Party) -> Result<Vec<f32>, Failure> {
        let encoded = self.terms.encode(input)?;
        let output = match fhe {
            "clear" => {
                let lowered = lower(&self.network)?;
                let mut largest = vec![0.0; lowered.stages.len()];
                let mut values = lowered.run(input, &mut largest);
                self.terms.post().iter().for_each(|post| post.apply(&mut values));
                return Ok(values);
            }
            "simulate" => reference(self.terms.program(), self.model.weights(), &encoded, None),
            _ => Precompute::make(&self.model, garbler)?.predict(&self.model, &encoded)?.output,
        };
        Ok(self.terms.decode(&output))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let class = match &error {
            Error::Network(_) | Error::Linear(_) | Error::Garble(_) => "ModelError",
            Error::Input { .. } => "BadFeatures",
            Error::Record(_) => "PrecomputeError",
            Error::Ot(_)
            | Error::Share(_)
            | Error::NoStep { .. }
            | Error::Order { .. }
            | Error::Changed { .. }
            | Error::Bytes { .. } => "ProtocolError",
            _ => "Error",
        };
        match error {
            Error::Network(error) => error.into(),
            error => Self::new(class, &error),
        }
    }
}

impl From<network::Error> for Failure {
    fn from(error: network::Error) -> Self {
        let class = match &error {
            network::Error::Input { .. } | network::Error::InputRange { .. } => "BadFeatures",
            network::Error::Spec { .. } => "ConfigError",
            _ => "ModelError",
        };
        Self::new(class, &error)
    }
}
