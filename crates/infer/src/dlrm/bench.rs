//! Models of the published shapes with weights of their own, and what answering them takes.

use std::time::Instant;

use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{
    Diagonals, Encoder, Encrypted, Evaluate, EvaluationKeys, KeySpec, ModulusBits, ParameterSpec,
    Parameters, Split, Transform, decrypt, encrypt, wire,
};
use hushtable_rlwe::ring::{NoiseSource, Platform};
use serde::Serialize;

use super::client::Client;
use super::cost::CostTable;
use super::digits::{CRITEO_ROWS, Digits};
use super::engine::Engine;
use super::error::Error;
use super::floor::Floor;
use super::layout::{Input, Values, own_lanes};
use super::plan::Plan;
use super::planner::{Goal, Prediction, plan};
use super::reference::forward;
use super::spec::{Activation, Dlrm, DlrmSpec, FeatureSpec, Interaction};
use super::terms::Terms;
use super::weights::{Tensor, Tensors, Weights};

/// A model of a published shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// UCI heart disease: 5 dense features and 8 tables of 23 rows, 5-16-4 and 36-16-1.
    Uci,
    /// Criteo's Kaggle set, 13-512-256-64-16 and 432-512-256-1, at this threshold of digits.
    Criteo {
        /// The most rows of a table that stays whole.
        threshold: u64,
    },
}

impl Shape {
    /// The architecture, with squares.
    ///
    /// # Errors
    /// [`Error::Spec`] never.
    pub fn dlrm(self) -> Result<Dlrm, Error> {
        let (dense, bottom, top, dim, threshold, rows) = match self {
            Self::Uci => (5, vec![16, 4], vec![16, 1], 4, 500, vec![2u64, 4, 2, 3, 2, 3, 4, 3]),
            Self::Criteo { threshold } => {
                let (bottom, top) = (vec![512, 256, 64, 16], vec![512, 256, 1]);
                (13, bottom, top, 16, threshold, CRITEO_ROWS.to_vec())
            }
        };
        let name = |(index, &rows): (usize, &u64)| FeatureSpec {
            name: format!("C{}", index + 1),
            rows,
            table: None,
            bag: 1,
        };
        Dlrm::new(DlrmSpec {
            dense,
            bottom,
            top,
            dim,
            interaction: Interaction::Concat,
            activation: Activation::Square,
            bottom_activates_last: false,
            base: 4,
            threshold,
            features: rows.iter().enumerate().map(name).collect(),
        })
    }
}

/// Weights for a model with squares: every layer's outputs have about unit variance, so that squares
/// neither grow nor vanish.
///
/// # Errors
/// [`Error::MissingTensor`] never.
pub fn synthetic_weights(dlrm: &Dlrm, seed: u64) -> Result<Weights, Error> {
    let mut random = Random(seed | 1);
    let mut tensors = Tensors::new();
    let mut put = |name: String, shape: Vec<usize>, scale: f64| {
        let count = shape.iter().product();
        let values = (0..count).map(|_| (scale * random.unit()) as f32).collect();
        tensors.insert(name, Tensor { shape, values });
    };
    let dim = dlrm.spec().dim;
    for (index, digits) in dlrm.digits().iter().enumerate() {
        let scale = (3.0 / digits.count() as f64).sqrt();
        put(format!("emb_l.{index}.weight"), vec![digits.slots(), dim], scale);
    }
    for (part, shapes) in [("bot", dlrm.bottom()), ("top", dlrm.top())] {
        for (index, shape) in shapes.iter().enumerate() {
            let is_first = index == 0;
            // A square of unit variance has mean square 3; a uniform number of ±√3 has 1.
            let mean_square = if is_first { 1.0 } else { 3.0 };
            let scale = (3.0 / (mean_square * shape.inputs as f64)).sqrt();
            let name = |what: &str| format!("{part}_l.{}.{what}", 2 * index);
            put(name("weight"), vec![shape.outputs, shape.inputs], scale);
            put(name("bias"), vec![shape.outputs], 0.1);
        }
    }
    Weights::new(dlrm, tensors)
}

/// Features of one user.
pub fn synthetic_features(dlrm: &Dlrm, seed: u64) -> (Vec<f32>, Vec<u64>) {
    let mut random = Random(seed | 1);
    let dense = (0..dlrm.spec().dense).map(|_| (1.7 * random.unit()) as f32).collect();
    let rows = dlrm.spec().features.iter().map(|feature| feature.rows);
    let indices = rows.map(|rows| random.word() % rows).collect();
    (dense, indices)
}

/// What a query took.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Measured {
    /// Milliseconds of the client: encrypting and opening.
    pub client_ms: f64,
    /// Milliseconds of the server.
    pub server_ms: f64,
    /// What the plan predicted for the server.
    pub predicted_ms: f64,
    /// Bytes of a query.
    pub up_bytes: usize,
    /// Bytes of an answer.
    pub down_bytes: usize,
    /// Bytes that are uploaded once.
    pub key_bytes: usize,
    /// Memory that the keys take on the server.
    pub key_memory_bytes: usize,
    /// Milliseconds of making keys, once.
    pub keygen_ms: f64,
    /// Milliseconds of preparing the model, once.
    pub prepare_ms: f64,
    /// −log2 of the largest error of a logit against the clear reference.
    pub error_bits: f64,
    /// N.
    pub degree: usize,
    /// Levels.
    pub levels: usize,
    /// Ciphertexts of a query.
    pub ciphertexts: usize,
    /// Rotations that keys are made for.
    pub rotations: usize,
    /// The floor: multiplications of 52 bits, eight at a time.
    pub vectors: usize,
    /// The floor: bytes of keys and maps.
    pub read_bytes: usize,
}

/// Answers `runs` queries of a model on this thread and takes the fastest; the error is the largest.
///
/// # Errors
/// As planning, compiling and answering.
pub fn measure(
    dlrm: &Dlrm,
    weights: &Weights,
    plan: &Plan,
    costs: &CostTable,
    runs: usize,
    map_bytes_max: usize,
) -> Result<Measured, Error> {
    let platform = Platform::detect();
    let predicted = Prediction::of(plan, costs, platform)?;
    let floor = Floor::of(plan, platform)?;
    let start = Instant::now();
    let engine = Engine::with_memory(plan, weights, platform, map_bytes_max)?;
    let prepare_ms = since(start);
    let terms = Terms::parse(&engine.terms().to_bytes(), platform)?;
    let start = Instant::now();
    let client = Client::new(terms)?;
    let keygen_ms = since(start);
    let keys = engine.keys(&client.keys().collect::<Vec<_>>().concat())?;
    let (mut client_ms, mut server_ms, mut error) = (f64::INFINITY, f64::INFINITY, 0.0f64);
    for run in 0..runs.max(1) {
        let (dense, indices) = synthetic_features(dlrm, 77 + run as u64);
        let start = Instant::now();
        let query = client.query(&dense, &indices)?;
        let asked_ms = since(start);
        let start = Instant::now();
        let answer = engine.answer(&keys, &query)?;
        server_ms = server_ms.min(since(start));
        let start = Instant::now();
        let logits = client.open(&answer)?;
        client_ms = client_ms.min(asked_ms + since(start));
        let dense: Vec<f64> = dense.iter().map(|&value| f64::from(value)).collect();
        let expected = forward(dlrm, weights, &dense, &indices)?.logit;
        error = error.max((logits[0] - expected).abs());
    }
    Ok(Measured {
        client_ms,
        server_ms,
        predicted_ms: predicted.server_ms,
        up_bytes: predicted.query_bytes,
        down_bytes: predicted.answer_bytes,
        key_bytes: predicted.key_bytes,
        key_memory_bytes: keys.memory_bytes(),
        keygen_ms,
        prepare_ms,
        error_bits: -error.log2(),
        degree: plan.parameters.degree,
        levels: plan.parameters.moduli.len() - 1,
        ciphertexts: client.terms().ciphertexts(),
        rotations: client.terms().rotations(),
        vectors: floor.vectors,
        read_bytes: floor.read_bytes,
    })
}

/// Plans and measures a model of a published shape with synthetic weights.
///
/// # Errors
/// As [`measure`].
pub fn measure_shape(shape: Shape, runs: usize, map_bytes_max: usize) -> Result<Measured, Error> {
    let dlrm = shape.dlrm()?;
    let weights = synthetic_weights(&dlrm, 1)?;
    let costs = CostTable::shipped()?;
    let plan = plan(&dlrm, &weights, Goal::default(), &costs)?;
    measure(&dlrm, &weights, &plan, &costs, runs, map_bytes_max)
}

/// What one lookup of 26 embeddings in tables of 59,904 rows took.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Lookup {
    /// Milliseconds of the server: the one linear map.
    pub server_ms: f64,
    /// Rows of all tables.
    pub rows: usize,
    /// Ciphertexts of one-hot vectors.
    pub ciphertexts: usize,
    /// Bytes of them.
    pub up_bytes: usize,
    /// Memory of the prepared maps.
    pub map_bytes: usize,
    /// −log2 of the largest error of a value.
    pub error_bits: f64,
}

/// Looks up 26 embeddings of 16 values in tables of 2,304 rows each, under one level at N = 2^13: the
/// fastest of `runs`.
///
/// # Errors
/// [`Error::Ckks`].
pub fn measure_lookup(runs: usize) -> Result<Lookup, Error> {
    let bits = ModulusBits { first: 44, level: 34, special: 44 };
    let set = ParameterSpec::of_bits("lookup", 8192, bits, 1, 1)?;
    let parameters = Parameters::new(set, Platform::detect())?;
    let (slots, scale) = (parameters.slots(), parameters.scale());
    let digits = vec![Digits::new(ROWS as u64, ROWS as u64, 4); TABLES];
    let own = own_lanes(slots, DIM, 0, &digits);
    let (ciphertexts, layout) = own.ok_or_else(|| Error::Layout { why: "too few slots".into() })?;
    let lanes = TABLES.next_power_of_two();
    let input = Input { values: Values::Onehot, level: 1, ciphertexts, layout };
    let mut random = Random(3);
    let rows: Vec<f64> = (0..TABLES * ROWS * DIM).map(|_| random.unit()).collect();
    let wanted: Vec<usize> = (0..TABLES).map(|_| (random.word() % ROWS as u64) as usize).collect();

    let (encoder, mut source) = (Encoder::new(&parameters), NoiseSource::from_os()?);
    let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
    let period = lanes * DIM;
    let folds = (0..(slots / period).trailing_zeros()).map(|fold| (period << fold, 0));
    let rotations = (1..DIM).map(|step| (step * lanes, 1)).chain(folds).collect();
    let keys = KeySpec { rotations, ..KeySpec::default() };
    let seed = source.seed();
    let keys = EvaluationKeys::generate(&parameters, &secret, &keys, &seed, &mut source)?;
    let mut evaluator = Encrypted::new(&encoder, &keys);
    let (mut maps, mut xs) = (Vec::new(), Vec::new());
    let seed = source.seed();
    for number in 0..ciphertexts {
        let places = input.places(slots, number, &digits);
        let mut map = Diagonals::new(slots);
        for turn in 0..DIM {
            let value = |to: usize| {
                let place = places[(to + turn * lanes) % slots];
                place.map_or(0.0, |place| rows[place * DIM + to / lanes % DIM])
            };
            map.insert(turn * lanes, (0..slots).map(value).collect())?;
        }
        let prime = parameters.modulus(1).value() as f64;
        maps.push(evaluator.prepare(&map, Split::new(1), 1, prime)?);
        let onehot = |place: &Option<usize>| {
            let is_wanted = |place: usize| wanted[place / ROWS] == place % ROWS;
            f64::from(u8::from(place.is_some_and(is_wanted)))
        };
        let plain =
            encoder.encode_real(&places.iter().map(onehot).collect::<Vec<_>>(), 1, scale)?;
        xs.push(encrypt(&parameters, &secret, &plain, &seed, number as u64, &mut source)?);
    }
    let (maps_of, xs_of): (Vec<_>, Vec<_>) = (maps.iter().collect(), xs.iter().collect());
    let (mut server_ms, mut error) = (f64::INFINITY, 0.0f64);
    for _ in 0..runs.max(1) {
        let start = Instant::now();
        let mut out = evaluator.transform_rescale(&maps_of, &xs_of)?;
        evaluator.fold(&mut out, period, slots / period)?;
        server_ms = server_ms.min(since(start));
        let found = encoder.decode_real(&decrypt(&parameters, &secret, &out)?);
        for (table, &row) in wanted.iter().enumerate() {
            for value in 0..DIM {
                let expected = rows[(table * ROWS + row) * DIM + value];
                error = error.max((found[value * lanes + table] - expected).abs());
            }
        }
    }
    let each = wire::ciphertext_bytes(&parameters, 1, wire::Form::Fresh);
    Ok(Lookup {
        server_ms,
        rows: TABLES * ROWS,
        ciphertexts,
        up_bytes: ciphertexts * each,
        map_bytes: maps.iter().map(Transform::memory_bytes).sum(),
        error_bits: -error.log2(),
    })
}

/// Tables, their rows and values a row: 59,904 rows.
const TABLES: usize = 26;
const ROWS: usize = 2304;
const DIM: usize = 16;

fn since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

/// xorshift: the same numbers in every run.
struct Random(u64);

impl Random {
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// From −1 to 1.
    fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / 2f64.powi(52) - 1.0
    }
}
