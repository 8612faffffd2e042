//! From a model bundle and its plan to what computes.

use std::path::Path;
use std::sync::Arc;

use hushtable_infer::Platform;
use hushtable_infer::hybrid::network::Network;
use hushtable_infer::hybrid::plan::SCHEME;
use hushtable_infer::hybrid::program::Weights;
use hushtable_table::Version;
use hushtable_table::model::{CompiledPlan, Model};

use super::HybridInfo;
use super::machines::{Error as MachineError, HybridModel, Plan, Terms};
use crate::Error;
use crate::endpoint::SOFTWARE;

/// A model's network and its weights, ready, and what clients are told of it.
pub struct HybridNetwork {
    name: String,
    version: Version,
    terms: Terms,
    model: Arc<HybridModel>,
}

impl HybridNetwork {
    /// Opens the model at `path` and its hybrid plan of that name, or its only one.
    ///
    /// # Errors
    /// [`Error::Model`] for a model or plan that is not usable, [`Error::SeveralPlans`],
    /// [`Error::PlanScheme`], [`hushtable_infer::hybrid::Error`].
    pub fn open(path: &Path, plan: Option<&str>) -> Result<Self, Error> {
        let broken = |source| Error::Model { path: path.to_owned(), source: Box::new(source) };
        let model = Model::open(path).map_err(broken)?;
        let compiled = choose(path, &model, plan)?;
        let manifest = model.manifest();
        let (name, version) = (manifest.name().to_owned(), manifest.version());
        let (plan, weights) = rebuild(&model, &compiled)?;
        let terms = plan.terms(&name, &version).map_err(MachineError::from)?;
        let model = Arc::new(HybridModel::new(plan.program, weights, Platform::detect())?);
        Ok(Self { name, version, terms, model })
    }

    /// What computes.
    pub fn model(&self) -> &Arc<HybridModel> {
        &self.model
    }

    /// What clients go by.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// What a server of it announces.
    pub fn info(&self, client_garbles: bool, server_garbles: bool) -> HybridInfo {
        HybridInfo {
            name: self.name.clone(),
            version: self.version,
            plan: Version::from(self.terms.id()),
            terms: self.terms.clone(),
            software: SOFTWARE.into(),
            client_garbles,
            server_garbles,
        }
    }
}

/// A plan, and the weights that it was made with.
fn rebuild(model: &Model, compiled: &CompiledPlan) -> Result<(Plan, Weights), Error> {
    let plan = Plan::parse(&compiled.json).map_err(MachineError::from)?;
    let network = Network::from_bundle(model).map_err(MachineError::from)?;
    let weights = plan.weights(&network).map_err(MachineError::from)?;
    Ok((plan, weights))
}

/// The plan of that name, or the model's only one for this scheme.
fn choose(path: &Path, model: &Model, plan: Option<&str>) -> Result<CompiledPlan, Error> {
    let broken = |source| Error::Model { path: path.to_owned(), source: Box::new(source) };
    let name = match plan {
        Some(name) => name.to_owned(),
        None => {
            let mut plans = model.plan_names().map_err(broken)?;
            match plans.len() {
                0 => model.manifest().name().to_owned(),
                1 => plans.remove(0),
                _ => return Err(Error::SeveralPlans { path: path.to_owned(), plans }),
            }
        }
    };
    let found = model.plan(&name).map_err(broken)?;
    match found.scheme.as_str() {
        SCHEME => Ok(found),
        scheme => {
            let (path, scheme) = (path.to_owned(), scheme.to_owned());
            Err(Error::PlanScheme { path, name, scheme })
        }
    }
}
