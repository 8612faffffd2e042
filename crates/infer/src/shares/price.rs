//! What an inference on shares takes where nothing lies between the servers: the work of each, and the bytes. Plans say it
//! of a model, or of one of its shape whose weights are made up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::client::{deal, open};
use super::joint::{DealError, Precompute};
use super::random::Random;
use super::{Dealers, Error, Network, Outline, Ranges, Session, StepOutline};
use crate::dlrm::reference::forward;
use crate::dlrm::spec::{ABSENT, Activation, Dlrm, DlrmSpec};
use crate::dlrm::weights::{Tensor, Tensors, Weights};

/// A model and what servers make of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Model {
    /// Its architecture.
    pub dlrm: Dlrm,
    /// Its weights; the tables are what was made of them, so that the float model reads the same rows.
    pub weights: Weights,
    /// As servers compute it.
    pub network: Arc<Network>,
}

impl Model {
    /// A model of a description's layers, with ReLUs, whatever its activation, and with tables of a few rows: a
    /// prediction's costs do not depend on how many there are. A feature is one row, not cut into digits.
    ///
    /// # Errors
    /// As [`synthetic`](Self::synthetic).
    pub fn sketched(dlrm: &Dlrm, fraction_bits: u32, value_bits: u32) -> Result<Self, Error> {
        let mut spec = dlrm.spec().clone();
        spec.activation = Activation::Relu;
        spec.relu_degree = None;
        spec.threshold = u64::MAX;
        spec.features.iter_mut().for_each(|it| it.rows = it.rows.min(SKETCHED_ROWS));
        Self::synthetic(spec, fraction_bits, value_bits, 1)
    }

    /// A model whose layers are as they are initialised for ReLUs: each keeps the size of its inputs.
    ///
    /// # Errors
    /// [`Error::Dlrm`] for a spec that is none, else as [`Network::compile`].
    pub fn synthetic(
        spec: DlrmSpec,
        fraction_bits: u32,
        value_bits: u32,
        seed: u64,
    ) -> Result<Self, Error> {
        let dlrm = Dlrm::new(spec)?;
        let mut random = Random(seed);
        let mut tensors = Tensors::new();
        let mut put = |name: String, shape: Vec<usize>, scale: f64| {
            let count = shape.iter().product();
            let values = (0..count).map(|_| (scale * random.unit()) as f32).collect();
            tensors.insert(name, Tensor { shape, values });
        };
        for (index, digits) in dlrm.digits().iter().enumerate() {
            let shape = vec![digits.slots(), dlrm.spec().dim];
            put(format!("emb_l.{index}.weight"), shape, 0.5);
        }
        for (part, shapes) in [("bot", dlrm.bottom()), ("top", dlrm.top())] {
            for (index, shape) in shapes.iter().enumerate() {
                let name = |what: &str| format!("{part}_l.{}.{what}", 2 * index);
                let scale = (6.0 / shape.inputs as f64).sqrt();
                put(name("weight"), vec![shape.outputs, shape.inputs], scale);
                put(name("bias"), vec![shape.outputs], 0.1);
            }
        }
        let mut weights = Weights::new(&dlrm, tensors)?;
        let samples: Vec<_> = (0..CALIBRATION).map(|it| features(&dlrm, !seed ^ it)).collect();
        let borrowed = samples.iter().map(|(dense, indices)| (&dense[..], &indices[..]));
        let ranges = Ranges::of(&dlrm, &weights, borrowed)?;
        let network = Network::compile(&dlrm, &weights, &ranges, fraction_bits, value_bits)?;
        for (rows, table) in weights.tables.iter_mut().zip(network.tables()) {
            let values = table.values(&table.bytes).into_iter();
            *rows = values.map(|value| (f64::from(value) * table.scale) as f32).collect();
        }
        Ok(Self { dlrm, weights, network: Arc::new(network) })
    }

    /// A model with weights of its own, compiled.
    pub fn of(dlrm: Dlrm, weights: Weights, network: Network) -> Self {
        Self { dlrm, weights, network: Arc::new(network) }
    }

    /// The bytes of the rows that indices mean, feature after feature.
    ///
    /// # Errors
    /// [`Error::Dlrm`] for indices that are none of the model's.
    pub fn rows(&self, indices: &[u64]) -> Result<Vec<u8>, Error> {
        let places = self.dlrm.places(indices)?;
        let tables = self.network.tables().iter().zip(&places);
        let rows = tables.flat_map(|(table, places)| places.iter().map(|place| table.row(*place)));
        Ok(rows.collect::<Vec<_>>().concat())
    }
}

/// Features of one user. A bag is full or not, by chance.
pub fn features(dlrm: &Dlrm, seed: u64) -> (Vec<f64>, Vec<u64>) {
    let mut random = Random(seed);
    let dense = (0..dlrm.spec().dense).map(|_| 0.5 + 1.5 * random.unit()).collect();
    let mut indices = Vec::with_capacity(dlrm.indices());
    for feature in &dlrm.spec().features {
        let bag = feature.bag as u64;
        let ids = if bag > 1 { random.word() % (bag + 1) } else { 1 };
        let own = (0..bag).map(|it| if it < ids { random.word() % feature.rows } else { ABSENT });
        indices.extend(own);
    }
    (dense, indices)
}

/// What an inference took.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Measured {
    /// The client, until all is dealt, in microseconds.
    pub deal_us: f64,
    /// The slower one of the servers, from what was dealt to its share of the logit.
    pub server_us: f64,
    /// Bytes that the client sends to both servers together, beside its lookup keys.
    pub up_bytes: usize,
    /// Bytes that each server sends the other.
    pub peer_bytes: usize,
    /// Messages that each server sends the other.
    pub rounds: usize,
    /// Values that go through an activation.
    pub activations: usize,
    /// Multiplications of each server by weights.
    pub products: usize,
    /// The largest error of a logit against the float model.
    pub error: f64,
}

/// Runs inferences on this thread, one after the other; the times are medians.
///
/// # Errors
/// As what it runs.
pub fn measure(model: &Model, runs: usize) -> Result<Measured, Error> {
    let outline: &Outline = model.network.outline();
    let (mut dealing, mut serving, mut error) = (Vec::new(), Vec::new(), 0_f64);
    for run in 0..runs.max(1) as u64 {
        let (dense, indices) = features(&model.dlrm, run);
        let rows = model.rows(&indices)?;
        let mut random = Random(!run);
        let left: Vec<u8> = rows.iter().map(|_| random.word() as u8).collect();
        let right: Vec<u8> = rows.iter().zip(&left).map(|(row, left)| row ^ left).collect();
        let started = Instant::now();
        let dealt = deal(outline, &dense)?;
        dealing.push(started.elapsed().as_secs_f64() * 1e6);
        let mut session = Session::start(&model.network, &dealt, [&left, &right])?;
        let shares = session.finish()?;
        serving.push(session.took.iter().map(|it| it.as_secs_f64() * 1e6).fold(0.0, f64::max));
        let found = open(outline, &shares[0], &shares[1])?;
        let float = forward(&model.dlrm, &model.weights, &dense, &indices)?.logit;
        error = hushtable_rlwe::largest([error, found - float]);
    }
    Ok(Measured {
        deal_us: median(&mut dealing),
        server_us: median(&mut serving),
        up_bytes: outline.up_bytes(),
        peer_bytes: outline.peer_bytes(),
        rounds: outline.rounds(),
        activations: outline.activations(),
        products: model.network.products(),
        error,
    })
}

/// What it takes two servers to deal for one inference, of a batch.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Dealing {
    /// Inferences of a batch.
    pub batch: usize,
    /// Most bits of an activation.
    pub bits: u32,
    /// The setup of a session, of the slower server, in microseconds.
    pub meet_us: f64,
    /// The slower server, on one thread.
    pub deal_us: f64,
    /// Bytes that left and right send.
    pub sent_bytes: [usize; 2],
    /// Bytes that each keeps.
    pub kept_bytes: usize,
    /// Messages that each server sends for a batch, each after one of the other's.
    pub rounds: usize,
}

/// Deals batches on this thread, one after the other; the times are medians.
///
/// # Errors
/// As [`Dealers`].
pub fn measure_dealing(model: &Model, batch: usize, runs: usize) -> Result<Dealing, DealError> {
    let outline: &Outline = model.network.outline();
    let slower =
        |took: [Duration; 2]| took.map(|it| it.as_secs_f64() * 1e6).into_iter().fold(0.0, f64::max);
    let mut dealers = Dealers::meet(outline)?;
    let (meet_us, mut dealing) = (slower(dealers.took), Vec::new());
    for _ in 0..runs.max(1) {
        dealers.deal(batch)?;
        dealing.push(slower(dealers.took) / batch as f64);
    }
    let sent =
        |side: usize| dealers.sent.iter().map(|sent| sent[side].len()).sum::<usize>() / batch;
    let bits = outline.steps.iter().map(|step| match *step {
        StepOutline::Relu { bits, .. } => bits,
        StepOutline::Lift { .. } | StepOutline::Products { .. } => 0,
    });
    Ok(Dealing {
        batch,
        bits: bits.max().unwrap_or_default(),
        meet_us,
        deal_us: median(&mut dealing),
        sent_bytes: [sent(0), sent(1)],
        kept_bytes: Precompute::bytes_of(outline),
        rounds: dealers.sent.len(),
    })
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Made-up users that a model is calibrated on.
pub(super) const CALIBRATION: u64 = 40;
const SKETCHED_ROWS: u64 = 64;
