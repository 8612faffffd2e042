//! From a model bundle and its plan to what computes, and is known to compute right.

use std::path::Path;
use std::time::{Duration, Instant};

use hushtable_infer::Platform;
use hushtable_infer::dlrm::simulate::{self, Mode};
use hushtable_infer::dlrm::{self, Client, Dlrm, Engine, Masks, Plan, Weights};
use hushtable_table::model::Model;

use super::CkksInfo;
use crate::Error;
use crate::endpoint::SOFTWARE;
use crate::peer::random_u64;
use crate::schemes::plans::choose;

/// A model that computes on encrypted features, and what is said of it.
pub(super) struct Computation {
    pub info: CkksInfo,
    pub engine: Engine,
    /// How clients' keys are kept.
    pub masks: Masks,
    probe: Probe,
}

/// A user whose logit is known.
struct Probe {
    dense: Vec<f32>,
    indices: Vec<u64>,
    logit: f64,
}

impl Computation {
    /// Opens the model at `path` and the plan of that name, or its only one.
    pub fn open(path: &Path, plan: Option<&str>) -> Result<Self, Error> {
        let broken = |source| Error::Model { path: path.to_owned(), source: Box::new(source) };
        let model = Model::open(path).map_err(broken)?;
        let compiled = choose(path, &model, plan, SCHEME)?;
        let plan = Plan::parse(&compiled.json)?;
        let weights = Weights::from_bundle(&Dlrm::new(plan.model.clone())?, &model)?;
        let engine = Engine::new(&plan, &weights, Platform::detect())?;
        let (name, terms) = (model.manifest().name().to_owned(), engine.terms().clone());
        let info = CkksInfo::new(name, model.manifest().version(), terms, SOFTWARE.into())?;
        let probe = Probe::new(&plan, &weights)?;
        Ok(Self { info, engine, masks: Masks::default(), probe })
    }

    /// Computes an encrypted query as a client would make it, and compares with the model in the clear.
    /// How long it took.
    pub fn check(&self) -> Result<Duration, Error> {
        let Probe { dense, indices, logit } = &self.probe;
        // The keys are in memory once, as a client's are.
        let mut reader = self.engine.key_reader(self.masks)?;
        let client = Client::giving(self.info.terms.clone(), |piece| reader.push(piece))?;
        let keys = reader.finish()?;
        let query = client.query(dense, indices)?;
        let started = Instant::now();
        let answer = self.engine.answer(&keys, &query)?;
        let took = started.elapsed();
        let (expected, found) = (*logit, client.open(&answer)?.first().copied());
        let found = found.unwrap_or(f64::NAN);
        match (found - expected).abs() <= ERROR_MAX * expected.abs().max(1.0) {
            true => Ok(took),
            false => Err(Error::SelfCheckLogit { expected, found }),
        }
    }
}

impl Probe {
    /// A user of average numbers and random rows whose activations stay within their ranges.
    fn new(plan: &Plan, weights: &Weights) -> Result<Self, Error> {
        let mut left = PROBES_MAX;
        loop {
            let dense = vec![0.0; plan.model.dense];
            let rows = plan.model.features.iter().map(|feature| feature.rows);
            let indices = rows.map(|rows| Ok(random_u64()? % rows));
            let indices = indices.collect::<Result<Vec<u64>, Error>>()?;
            let logits =
                simulate::predict(plan, weights, Platform::detect(), Mode::Clear, &dense, &indices);
            left -= 1;
            match logits {
                Err(dlrm::Error::Range { .. }) if left > 0 => {}
                Ok(logits) => {
                    let logit = logits.first().copied().unwrap_or(f64::NAN);
                    return Ok(Self { dense, indices, logit });
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// What plans of this server are for.
const SCHEME: &str = "ckks";
/// What the noise may add to a logit: more than it does, and less than any mistake would.
const ERROR_MAX: f64 = 1.0 / 64.0;
/// Users that are tried before it is the model's fault that none stays within its ranges.
const PROBES_MAX: usize = 16;
