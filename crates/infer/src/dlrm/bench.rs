//! Models of the published shapes with weights of their own, and what answering them takes.

use std::time::{Duration, Instant};

use hushtable_pir::Threads;
use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{
    Diagonals, Encoder, Encrypted, Evaluate, EvaluationKeys, KeySpec, Masks, ModulusBits,
    ParameterSpec, Parameters, Split, Transform, decrypt, encrypt, wire,
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
use super::planner::{Goal, Prediction, plan_precisely};
use super::reference::{Forward, forward, forward_relu};
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

/// A model of a published shape, with its activation.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Published {
    /// What it is asked for by.
    pub name: &'static str,
    /// Its layers and tables.
    pub shape: Shape,
    /// What stands between layers.
    pub activation: Activation,
    /// The degree of the one polynomial in ReLU's place, if there is one.
    pub relu_degree: Option<usize>,
    /// The end of the range of activations' inputs, as trained models have it; `None` for squares.
    pub range: Option<f32>,
}

impl Published {
    const fn squares(name: &'static str, shape: Shape) -> Self {
        Self { name, shape, activation: Activation::Square, relu_degree: None, range: None }
    }

    const fn relu(name: &'static str, shape: Shape, degree: Option<usize>, range: f32) -> Self {
        let range = Some(range);
        Self { name, shape, activation: Activation::Relu, relu_degree: degree, range }
    }

    const fn silu(name: &'static str, shape: Shape, range: f32) -> Self {
        let range = Some(range);
        Self { name, shape, activation: Activation::Silu, relu_degree: None, range }
    }

    /// The one of this name, of [`PUBLISHED`].
    pub fn named(name: &str) -> Option<Self> {
        PUBLISHED.into_iter().find(|model| model.name == name)
    }

    /// Its architecture.
    ///
    /// # Errors
    /// [`Error::Spec`] never.
    pub fn dlrm(self) -> Result<Dlrm, Error> {
        let (activation, relu_degree) = (self.activation, self.relu_degree);
        Dlrm::new(DlrmSpec { activation, relu_degree, ..self.shape.dlrm()?.spec().clone() })
    }
}

const CRITEO: Shape = Shape::Criteo { threshold: 500 };

/// The models that are measured. Ranges are those of docs/encrypted-models.md's recipes.
pub const PUBLISHED: [Published; 9] = [
    Published::squares("uci", Shape::Uci),
    Published::silu("uci-silu", Shape::Uci, 2.0),
    Published::relu("uci-relu", Shape::Uci, Some(31), 4.0),
    Published::relu("uci-relu-composite", Shape::Uci, None, 4.0),
    Published::squares("criteo", CRITEO),
    Published::silu("criteo-silu", CRITEO, 6.0),
    Published::relu("criteo-relu", CRITEO, Some(63), 5.0),
    Published::relu("criteo-relu-composite", CRITEO, None, 5.0),
    Published::squares("criteo-large", Shape::Criteo { threshold: 5_000_000 }),
];

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
            relu_degree: None,
            bottom_activates_last: false,
            base: 4,
            threshold,
            features: rows.iter().enumerate().map(name).collect(),
        })
    }
}

/// Weights with which every layer's outputs deviate by about a sixth of `range` from zero, or by 1 without
/// one: activations stay inside, and squares neither grow nor vanish.
///
/// # Errors
/// [`Error::MissingTensor`] for an activation that needs a range, and none.
pub fn synthetic_weights(dlrm: &Dlrm, range: Option<f32>, seed: u64) -> Result<Weights, Error> {
    // The mean square of an activation of a unit deviation's normal number.
    let activated = match dlrm.spec().activation {
        Activation::Square => 3.0,
        Activation::Silu => 0.36,
        Activation::Relu | Activation::Polynomial => 0.5,
    };
    let deviation = range.map_or(1.0, |range| f64::from(range) / 6.0);
    let mut random = Random(seed | 1);
    let mut tensors = Tensors::new();
    let mut put = |name: String, shape: Vec<usize>, scale: f64| {
        let count = shape.iter().product();
        let values = (0..count).map(|_| (scale * random.unit()) as f32).collect();
        tensors.insert(name, Tensor { shape, values });
    };
    let dim = dlrm.spec().dim;
    for (index, digits) in dlrm.digits().iter().enumerate() {
        let scale = deviation * (3.0 / digits.count() as f64).sqrt();
        put(format!("emb_l.{index}.weight"), vec![digits.slots(), dim], scale);
    }
    for (part, shapes) in [("bot", dlrm.bottom()), ("top", dlrm.top())] {
        for (index, shape) in shapes.iter().enumerate() {
            // A client's features deviate by 1, what joins by `deviation`. A uniform number of ±√3 deviates by 1.
            let (factor, mean_square) = match (part, index) {
                ("bot", 0) => (deviation, 1.0),
                (_, 0) => (1.0, 1.0),
                _ => (1.0, activated),
            };
            let scale = factor * (3.0 / (mean_square * shape.inputs as f64)).sqrt();
            let name = |what: &str| format!("{part}_l.{}.{what}", 2 * index);
            put(name("weight"), vec![shape.outputs, shape.inputs], scale);
            put(name("bias"), vec![shape.outputs], 0.1 * deviation);
        }
    }
    for (part, shapes) in [("bot", dlrm.bottom()), ("top", dlrm.top())] {
        for (index, _) in shapes.iter().enumerate().filter(|(_, shape)| shape.is_activated) {
            if let Some(range) = range {
                let range = Tensor { shape: vec![1], values: vec![range] };
                tensors.insert(format!("{part}_a.{index}.range"), range);
            }
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
    /// Users of a query.
    pub users: usize,
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
    /// Whether the server holds the keys' masks or draws them at each use.
    pub masks: &'static str,
    /// Memory that the keys take on the server.
    pub key_memory_bytes: usize,
    /// Milliseconds of making keys, once.
    pub keygen_ms: f64,
    /// Milliseconds of preparing the model, once.
    pub prepare_ms: f64,
    /// −log2 of the largest error of a logit against the clear reference.
    pub error_bits: f64,
    /// The largest distance of a clear logit to that of the same weights with ReLU itself, where a polynomial
    /// stands for it.
    pub relu_distance: Option<f64>,
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

/// Answers `runs` queries of as many users as the plan has room for, on this thread or spread over those of its
/// pool, and takes the fastest; the error is the largest. Keys go from the client to the server as they are
/// made: what is in memory is a server's, and a client's secret.
///
/// # Errors
/// As planning, compiling and answering; [`Error::Range`] for weights that leave an activation's range,
/// [`Error::Wrong`] for a logit that is none of the model's.
pub fn measure(
    dlrm: &Dlrm,
    weights: &Weights,
    plan: &Plan,
    costs: &CostTable,
    runs: usize,
    masks: Masks,
    map_bytes_max: usize,
) -> Result<Measured, Error> {
    let platform = Platform::detect();
    let predicted = Prediction::of(plan, costs, platform)?;
    let floor = Floor::of(plan, platform)?;
    let start = Instant::now();
    let engine = Engine::with_memory(plan, weights, platform, map_bytes_max)?;
    let prepare_ms = since(start);
    let terms = Terms::parse(&engine.terms().to_bytes(), platform)?;
    let (mut reader, mut reading) = (engine.key_reader(masks)?, Duration::ZERO);
    let start = Instant::now();
    let client = Client::giving(terms, |piece| {
        let start = Instant::now();
        let taken = reader.push(piece);
        reading += start.elapsed();
        taken
    })?;
    let keygen_ms = since(start) - reading.as_secs_f64() * 1e3;
    let keys = reader.finish()?;
    let (mut client_ms, mut server_ms, mut error) = (f64::INFINITY, f64::INFINITY, 0.0f64);
    let mut relu_distance = dlrm.spec().relu_degree.map(|_| 0.0f64);
    for run in 0..runs.max(1) {
        let first = 77 + (run * plan.users) as u64;
        let users: Vec<_> =
            (first..).take(plan.users).map(|seed| synthetic_features(dlrm, seed)).collect();
        let dense: Vec<f32> = users.iter().flat_map(|(dense, _)| dense).copied().collect();
        let indices: Vec<u64> = users.iter().flat_map(|(_, indices)| indices).copied().collect();
        let start = Instant::now();
        let query = client.query(&dense, &indices)?;
        let asked_ms = since(start);
        let start = Instant::now();
        let answer = engine.answer(&keys, &query)?;
        server_ms = server_ms.min(since(start));
        let start = Instant::now();
        let logits = client.open(&answer)?;
        client_ms = client_ms.min(asked_ms + since(start));
        for ((dense, indices), logit) in users.iter().zip(logits) {
            let dense: Vec<f64> = dense.iter().map(|&value| f64::from(value)).collect();
            let expected = forward(dlrm, weights, &dense, indices)?;
            check_ranges(weights, &expected)?;
            error = error.max(distance(logit, expected.logit)?);
            if let Some(largest) = &mut relu_distance {
                let relu = forward_relu(dlrm, weights, &dense, indices)?;
                *largest = largest.max((relu.logit - expected.logit).abs());
            }
        }
    }
    Ok(Measured {
        users: plan.users,
        client_ms,
        server_ms,
        predicted_ms: predicted.server_ms,
        up_bytes: predicted.query_bytes,
        down_bytes: predicted.answer_bytes,
        key_bytes: predicted.key_bytes,
        masks: masks.name(),
        key_memory_bytes: keys.memory_bytes(),
        keygen_ms,
        prepare_ms,
        error_bits: -error.max(f64::MIN_POSITIVE).log2(),
        relu_distance,
        degree: plan.parameters.degree,
        levels: plan.parameters.moduli.len() - 1,
        ciphertexts: client.terms().ciphertexts(),
        rotations: client.terms().rotations(),
        vectors: floor.vectors,
        read_bytes: floor.read_bytes,
    })
}

/// That no activation of the clear reference left its range, where nothing is promised.
fn check_ranges(weights: &Weights, found: &Forward) -> Result<(), Error> {
    let trained = weights.bottom_trained.iter().chain(&weights.top_trained);
    for (seen, trained) in found.seen.iter().zip(trained) {
        let Some(limit) = trained.range else { continue };
        if let Some(&value) = seen.inputs.iter().find(|x| x.is_nan() || x.abs() > limit) {
            return Err(Error::Range { layer: seen.layer.clone(), value, limit });
        }
    }
    Ok(())
}

/// How far an opened logit is from the reference's: time is of right answers only.
fn distance(found: f64, expected: f64) -> Result<f64, Error> {
    let error = (found - expected).abs();
    // Written so that what is no number is refused.
    if error <= ERROR_MAX {
        return Ok(error);
    }
    Err(Error::Wrong { found, expected })
}

/// Plans and measures a published model with synthetic weights and room for `users` users a query (rounded up
/// to a power of two), each query on this thread or spread over `threads`.
///
/// # Errors
/// As [`measure`].
pub fn measure_published(
    model: Published,
    users: usize,
    runs: usize,
    masks: Masks,
    map_bytes_max: usize,
    threads: Option<&Threads>,
) -> Result<Measured, Error> {
    let dlrm = model.dlrm()?;
    let weights = synthetic_weights(&dlrm, model.range, 1)?;
    let costs = CostTable::shipped()?;
    // As whoever compiles such a model has it.
    let platform = Platform::detect();
    let goal = Goal { users, ..Goal::default() };
    let plan = plan_precisely(&dlrm, &weights, goal, &costs, platform)?;
    let measure = || measure(&dlrm, &weights, &plan, &costs, runs, masks, map_bytes_max);
    match threads {
        None => measure(),
        Some(threads) => threads.run(measure),
    }
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
                error = error.max(distance(found[value * lanes + table], expected)?);
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
        error_bits: -error.max(f64::MIN_POSITIVE).log2(),
    })
}

/// A logit is shared to 1/64: what is further off is another answer.
const ERROR_MAX: f64 = 1.0 / 64.0;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_right_answers_are_measured() {
        assert!(distance(0.25, 0.2501).unwrap() < 1e-3);
        for (found, expected) in
            [(0.25, 0.35), (f64::NAN, 0.0), (0.0, f64::NAN), (f64::INFINITY, f64::INFINITY)]
        {
            assert!(matches!(distance(found, expected), Err(Error::Wrong { .. })), "{found}");
        }
    }

    #[test]
    fn published_models_stay_inside_their_ranges() {
        for model in PUBLISHED {
            let dlrm = model.dlrm().unwrap();
            if dlrm.onehot_slots() > 1 << 16 {
                continue;
            }
            let weights = synthetic_weights(&dlrm, model.range, 1).unwrap();
            let (dense, indices) = synthetic_features(&dlrm, 77);
            let dense: Vec<f64> = dense.iter().map(|&value| f64::from(value)).collect();
            let mut found = forward(&dlrm, &weights, &dense, &indices).unwrap();
            check_ranges(&weights, &found).unwrap();
            assert!(found.logit.is_finite() && found.logit.abs() > 1e-3, "{}", model.name);
            found.seen[0].inputs[0] = f64::NAN;
            let refused = check_ranges(&weights, &found);
            assert_eq!(refused.is_err(), model.range.is_some(), "{}", model.name);
        }
        assert!(Published::named("criteo-relu").is_some() && Published::named("other").is_none());
    }
}
