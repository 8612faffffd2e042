//! Plans and models of encrypted inference in this process.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hushtable_infer::dlrm::cost::CostTable;
use hushtable_infer::dlrm::planner::{self, Alternative, Prediction};
use hushtable_infer::dlrm::simulate::{self, Mode};
use hushtable_infer::dlrm::spec::Activation;
use hushtable_infer::dlrm::weights::{Tensor, Tensors};
use hushtable_infer::dlrm::{self, Client, Dlrm, Engine, Goal, Keys, Masks, Plan, Terms, Weights};
use hushtable_infer::{NoiseSource, Platform};
use hushtable_table::model::Model;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::Failure;
use crate::schemes::ckks::CkksFacts;

/// Compiles the model at `path` by its description, or by that of the plan of this name, and writes the plan
/// into the bundle; what it is, as JSON.
#[pyfunction]
#[pyo3(signature = (path, description, *, name, users, key_bytes_max, query_bytes_max))]
pub(crate) fn infer_compile(
    py: Python<'_>,
    path: PathBuf,
    description: Option<String>,
    name: String,
    users: Option<usize>,
    key_bytes_max: Option<usize>,
    query_bytes_max: Option<usize>,
) -> PyResult<String> {
    let compiled = py.detach(|| {
        let goal = goal(users, key_bytes_max, query_bytes_max)?;
        let model = Model::open(&path)?;
        let dlrm = match description {
            Some(text) => Dlrm::parse(&text)?,
            None => Dlrm::new(read_plan(&model, &name)?.model)?,
        };
        let weights = Weights::from_bundle(&dlrm, &model)?;
        let plan = make_plan(&dlrm, &weights, goal)?;
        // Weights that do not fit the plan are found now, and not by the server.
        Engine::new(&plan, &weights, Platform::detect())?;
        model.write_plan(&name, SCHEME, &plan.to_json())?;
        describe(&plan, &name)
    });
    Ok(compiled?)
}

/// What compiling a description would make, for weights of no model; as JSON.
#[pyfunction]
#[pyo3(signature = (description, *, users, key_bytes_max, query_bytes_max))]
pub(crate) fn infer_plan(
    py: Python<'_>,
    description: String,
    users: Option<usize>,
    key_bytes_max: Option<usize>,
    query_bytes_max: Option<usize>,
) -> PyResult<String> {
    let planned = py.detach(|| {
        let dlrm = Dlrm::parse(&description)?;
        let weights = sketched(&dlrm)?;
        let goal = goal(users, key_bytes_max, query_bytes_max)?;
        let (plan, costs) = (make_plan(&dlrm, &weights, goal)?, CostTable::shipped()?);
        let others = planner::alternatives(&dlrm, &weights, goal, &costs, &plan)?;
        describe_with(&plan, "", &others)
    });
    Ok(planned?)
}

/// What the plan of this name in the bundle at `path` is, or its only one; as JSON.
#[pyfunction]
#[pyo3(signature = (path, name))]
pub(crate) fn infer_describe(
    py: Python<'_>,
    path: PathBuf,
    name: Option<String>,
) -> PyResult<String> {
    let described = py.detach(|| {
        let (_, plan, name) = open(&path, name)?;
        describe(&plan, &name)
    });
    Ok(described?)
}

/// Every operation of the plan of this name in the bundle at `path`, or of its only one; as JSON.
#[pyfunction]
#[pyo3(signature = (path, name))]
pub(crate) fn infer_trace(py: Python<'_>, path: PathBuf, name: Option<String>) -> PyResult<String> {
    let traced = py.detach(|| {
        let (model, plan, name) = open(&path, name)?;
        let weights = Weights::from_bundle(&Dlrm::new(plan.model.clone())?, &model)?;
        Ok::<_, Failure>(simulate::trace(&name, &plan, &weights, Platform::detect())?.to_json())
    });
    Ok(traced?)
}

/// What may be given away of logits: see `hushtable_infer::dlrm::shareable`.
#[pyfunction]
pub(crate) fn infer_shareable(
    py: Python<'_>,
    logits: PyReadonlyArray1<'_, f64>,
) -> PyResult<Py<PyArray1<f64>>> {
    let logits = logits.as_slice()?;
    let shared = py.detach(|| logits.iter().map(|&logit| dlrm::shareable(logit)).collect());
    let shared: Result<Vec<f64>, dlrm::Error> = shared;
    Ok(shared.map_err(Failure::from)?.into_pyarray(py).unbind())
}

/// The polynomial that a model with `relu_degree` has in ReLU's place: coefficients of Chebyshev's T_0 and on, on
/// [-1, 1]. On [-r, r] it is r times that of x / r.
#[pyfunction]
pub(crate) fn relu_coefficients(py: Python<'_>, degree: usize) -> PyResult<Py<PyArray1<f64>>> {
    let coefficients =
        py.detach(|| dlrm::gate::relu_coefficients(degree)).map_err(Failure::from)?;
    Ok(coefficients.into_pyarray(py).unbind())
}

/// A compiled model in this process.
#[pyclass(frozen, module = "hushtable._native", name = "CkksModel")]
pub(crate) struct NativeCkksModel {
    name: String,
    version: String,
    plan: Plan,
    weights: Weights,
    terms: Terms,
    /// Made by the first encrypted prediction.
    encrypted: OnceLock<Encrypted>,
}

/// Both halves of an encrypted prediction.
struct Encrypted {
    engine: Engine,
    client: Client,
    keys: Keys,
}

#[pymethods]
impl NativeCkksModel {
    /// Opens the bundle at `path` and its plan of this name, or its only one.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, name: Option<String>) -> PyResult<Self> {
        let opened = py.detach(|| {
            let (model, plan, _) = open(&path, name)?;
            let weights = Weights::from_bundle(&Dlrm::new(plan.model.clone())?, &model)?;
            let terms = Terms::of(&plan, Platform::detect())?;
            let manifest = model.manifest();
            let (name, version) = (manifest.name().to_owned(), manifest.version().to_string());
            let encrypted = OnceLock::new();
            Ok::<_, Failure>(Self { name, version, plan, weights, terms, encrypted })
        });
        Ok(opened?)
    }

    /// What a server of it would announce.
    fn info(&self) -> PyResult<CkksFacts> {
        Ok(CkksFacts::of_terms(&self.name, &self.version, &self.terms).map_err(Failure::from)?)
    }

    /// Logits of users: float32 [users, dense] and uint64 [users, tables]; `fhe` is clear, simulate or
    /// execute.
    fn predict(
        &self,
        py: Python<'_>,
        dense: PyReadonlyArray2<'_, f32>,
        indices: PyReadonlyArray2<'_, u64>,
        fhe: &str,
    ) -> PyResult<Py<PyArray1<f64>>> {
        let (dense, indices) = (dense.as_slice()?, indices.as_slice()?);
        let logits = py.detach(|| self.logits(dense, indices, fhe));
        Ok(logits?.into_pyarray(py).unbind())
    }
}

impl NativeCkksModel {
    fn logits(&self, dense: &[f32], indices: &[u64], fhe: &str) -> Result<Vec<f64>, Failure> {
        let (each, tables) = (self.terms.dense(), self.terms.features().len());
        let (users, step) = (dense.len() / each, self.terms.users());
        let mut logits = Vec::with_capacity(users);
        for first in (0..users).step_by(step) {
            let last = users.min(first + step);
            let dense = &dense[first * each..last * each];
            let indices = &indices[first * tables..last * tables];
            logits.extend(match fhe {
                "clear" => self.simulated(Mode::Clear, dense, indices)?,
                "simulate" => {
                    let seed = NoiseSource::from_os().map_err(dlrm::Error::from)?.seed();
                    self.simulated(Mode::Simulate(seed), dense, indices)?
                }
                _ => self.executed(dense, indices)?,
            });
        }
        Ok(logits)
    }

    fn simulated(&self, mode: Mode, dense: &[f32], indices: &[u64]) -> Result<Vec<f64>, Failure> {
        let Self { plan, weights, .. } = self;
        Ok(simulate::predict(plan, weights, Platform::detect(), mode, dense, indices)?)
    }

    fn executed(&self, dense: &[f32], indices: &[u64]) -> Result<Vec<f64>, Failure> {
        let encrypted = match self.encrypted.get() {
            Some(encrypted) => encrypted,
            None => {
                let made = self.encrypted()?;
                // Another thread may have been first: its keys are as good.
                self.encrypted.get_or_init(|| made)
            }
        };
        let Encrypted { engine, client, keys } = encrypted;
        let query = client.query(dense, indices)?;
        let mut logits = client.open(&engine.answer(keys, &query)?)?;
        logits.truncate(dense.len() / self.terms.dense());
        Ok(logits)
    }

    fn encrypted(&self) -> Result<Encrypted, Failure> {
        let engine = Engine::new(&self.plan, &self.weights, Platform::detect())?;
        let mut reader = engine.key_reader(Masks::Held)?;
        let client = Client::giving(engine.terms().clone(), |piece| reader.push(piece))?;
        let keys = reader.finish()?;
        Ok(Encrypted { engine, client, keys })
    }
}

/// The model at `path`, with its plan of this name, or its only one.
fn open(path: &Path, name: Option<String>) -> Result<(Model, Plan, String), Failure> {
    let model = Model::open(path)?;
    let name = match name {
        Some(name) => name,
        None => {
            let mut names = model.plan_names()?;
            match names.len() {
                0 => model.manifest().name().to_owned(),
                1 => names.remove(0),
                _ => {
                    let names = names.join(", ");
                    return Err(Failure::config(format!(
                        "the model at {} has several plans: name one of {names}",
                        path.display()
                    )));
                }
            }
        }
    };
    let plan = read_plan(&model, &name)?;
    Ok((model, plan, name))
}

fn read_plan(model: &Model, name: &str) -> Result<Plan, Failure> {
    let found = model.plan(name)?;
    match found.scheme.as_str() {
        SCHEME => Ok(Plan::parse(&found.json)?),
        scheme => Err(Failure::config(format!(
            "the plan {name:?} of the model at {} is compiled for {scheme}, not for encrypted features: name another",
            model.path().display()
        ))),
    }
}

fn make_plan(dlrm: &Dlrm, weights: &Weights, goal: Goal) -> Result<Plan, Failure> {
    let costs = CostTable::shipped()?;
    Ok(planner::plan_precisely(dlrm, weights, goal, &costs, Platform::detect())?)
}

fn goal(
    users: Option<usize>,
    key_bytes_max: Option<usize>,
    query_bytes_max: Option<usize>,
) -> Result<Goal, Failure> {
    let users = users.unwrap_or(1);
    let goal = Goal { users, key_bytes_max, query_bytes_max, ..Goal::default() };
    if !goal.users.is_power_of_two() {
        let text = format!("users is {}, but must be a power of two", goal.users);
        return Err(Failure::config(text));
    }
    Ok(goal)
}

/// A plan in facts and in words, as JSON.
fn describe(plan: &Plan, name: &str) -> Result<String, Failure> {
    describe_with(plan, name, &[])
}

/// As [`describe`], with what else there could be.
fn describe_with(plan: &Plan, name: &str, others: &[Alternative]) -> Result<String, Failure> {
    let (costs, platform) = (CostTable::shipped()?, Platform::detect());
    let terms = Terms::of(plan, platform)?;
    let prediction = Prediction::of(plan, &costs, platform)?;
    let parameters = &plan.parameters;
    let primes = parameters.moduli.iter().chain(&parameters.special_moduli);
    let hash: String = plan.hash().iter().map(|byte| format!("{byte:02x}")).collect();
    let facts = json!({
        "name": name,
        "plan": hash,
        "degree": parameters.degree,
        "levels": parameters.moduli.len() - 1,
        "log2_modulus": primes.map(|&prime| (prime as f64).log2()).sum::<f64>(),
        "users_per_query": plan.users,
        "rotations": terms.rotations(),
        "ciphertexts": terms.ciphertexts(),
        "key_bytes": prediction.key_bytes,
        "key_memory_bytes": prediction.key_memory_bytes,
        "map_memory_bytes": prediction.map_memory_bytes,
        "query_bytes": prediction.query_bytes,
        "answer_bytes": prediction.answer_bytes,
        "predicted_ms": prediction.server_ms,
        "bootstraps": plan.bootstraps(),
        "alternatives": others,
        "text": planner::describe(plan, &prediction) + &planner::describe_alternatives(others),
    });
    Ok(facts.to_string())
}

/// Weights of the right shapes, for plans that are of no model yet: zeros, activations of degree 2, and
/// ranges that trained models stay within.
fn sketched(dlrm: &Dlrm) -> Result<Weights, Failure> {
    let mut tensors = Tensors::new();
    let mut add = |name: String, shape: Vec<usize>, value: f32| {
        let values = vec![value; shape.iter().product()];
        tensors.insert(name, Tensor { shape, values });
    };
    for (index, digits) in dlrm.digits().iter().enumerate() {
        add(format!("emb_l.{index}.weight"), vec![digits.slots(), dlrm.spec().dim], 0.0);
    }
    for (part, layers) in [("bot", dlrm.bottom()), ("top", dlrm.top())] {
        for (index, layer) in layers.iter().enumerate() {
            let name = |what: &str| format!("{part}_l.{}.{what}", 2 * index);
            add(name("weight"), vec![layer.outputs, layer.inputs], 0.0);
            add(name("bias"), vec![layer.outputs], 0.0);
            if layer.is_activated {
                add(format!("{part}_a.{index}.range"), vec![1], SKETCHED_RANGE);
            }
            if layer.is_activated && dlrm.spec().activation == Activation::Polynomial {
                add(format!("{part}_a.{index}.coefficients"), vec![3], 0.25);
            }
        }
    }
    Ok(Weights::new(dlrm, tensors)?)
}

/// What plans of this build are for.
const SCHEME: &str = "ckks";
const SKETCHED_RANGE: f32 = 8.0;
