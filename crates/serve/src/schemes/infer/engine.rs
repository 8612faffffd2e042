//! From a model bundle and its plan to what computes, and is known to compute right.

use std::path::Path;
use std::time::{Duration, Instant};

use hushtable_infer::Platform;
use hushtable_infer::dlrm::spec::FeatureSpec;
use hushtable_infer::dlrm::{Client, Compiled, Engine};
use hushtable_table::model::Model;

use super::InferInfo;
use crate::Error;
use crate::peer::random_u64;

/// A model that computes on encrypted features, and what is said of it.
pub(super) struct Computation {
    pub info: InferInfo,
    pub engine: Engine,
}

impl Computation {
    /// Opens the model at `path` and the plan of that name, or its only one.
    pub fn open(path: &Path, plan: Option<&str>) -> Result<Self, Error> {
        let broken = |source| Error::Model { path: path.to_owned(), source: Box::new(source) };
        let model = Model::open(path).map_err(broken)?;
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
        let plan = model.plan(&name).map_err(broken)?;
        if plan.scheme != SCHEME {
            let (path, scheme) = (path.to_owned(), plan.scheme);
            return Err(Error::PlanScheme { path, name, scheme });
        }
        let engine = Engine::new(Compiled::of_plan(&model, &plan.json)?, platform())?;
        let manifest = model.manifest();
        let terms = engine.terms().clone();
        let info = InferInfo::new(manifest.name().to_owned(), manifest.version(), terms)?;
        Ok(Self { info, engine })
    }

    /// Computes an encrypted query as a client would make it, and compares with the model in the clear.
    /// How long it took.
    pub fn check(&self) -> Result<Duration, Error> {
        let terms = &self.info.terms;
        let dense = vec![0.25; terms.dense()];
        let random = random_u64()?;
        let features = terms.features().iter().enumerate();
        let index = |(i, feature): (usize, &FeatureSpec)| {
            random.rotate_left(7 * i as u32) % feature.rows
        };
        let indices: Vec<u64> = features.map(index).collect();
        let client = Client::new(terms.clone(), platform())?;
        let mut bytes = Vec::with_capacity(self.info.key_bytes());
        client.keys().for_each(|chunk| bytes.extend_from_slice(&chunk));
        let keys = self.engine.keys(&bytes)?;
        let query = client.query(&dense, &indices)?;
        let started = Instant::now();
        let answer = self.engine.answer(&keys, &query)?;
        let took = started.elapsed();
        let expected = first(&self.engine.clear(&dense, &indices)?);
        let found = first(&client.open(&answer)?);
        match (found - expected).abs() <= ERROR_MAX * expected.abs().max(1.0) {
            true => Ok(took),
            false => Err(Error::SelfCheckLogit { expected, found }),
        }
    }
}

/// The only user's logit; no number where there is none.
fn first(logits: &[f64]) -> f64 {
    logits.first().copied().unwrap_or(f64::NAN)
}

/// What this machine computes with.
pub(super) fn platform() -> Platform {
    Platform::detect()
}

/// What plans of this server are for.
const SCHEME: &str = "ckks";
/// What the noise may add to a logit: more than it does, and less than any mistake would.
const ERROR_MAX: f64 = 1.0 / 64.0;
