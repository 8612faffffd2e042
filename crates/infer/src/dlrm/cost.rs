//! What operations cost: a table that was measured, and what a plan would take by it.

use std::sync::OnceLock;
use std::time::Instant;

use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{
    Diagonals, Encoder, Encrypted, Evaluate, EvaluationKeys, KeySpec, ModulusBits, ParameterSpec,
    Parameters, Split, encrypt,
};
use hushtable_rlwe::ring::{NoiseSource, Platform};
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::gate;
use super::plan::{EmbeddingPlan, Plan, Turn};
use super::turn::Map;

/// Milliseconds of one thread, for ciphertexts of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "an entry of a data file")]
pub struct Entry {
    /// N.
    pub degree: usize,
    /// Limbs: the level and one.
    pub limbs: usize,
    /// Primes of P.
    pub special: usize,
    /// One rotation.
    pub rotate_ms: f64,
    /// One of many rotations of one ciphertext, digits cut already.
    pub hoisted_ms: f64,
    /// A product of two ciphertexts, relinearised and rescaled.
    pub multiply_ms: f64,
    /// One diagonal of a prepared map.
    pub diagonal_ms: f64,
}

/// Operations and their costs on one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a data file")]
pub struct CostTable {
    /// Where it was measured.
    pub machine: String,
    /// What was measured.
    pub entries: Vec<Entry>,
}

/// One kind of operation at one level of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Operation {
    /// The layers that it belongs to.
    pub layer: String,
    /// What is done.
    pub kind: Kind,
    /// At which level.
    pub level: usize,
    /// How often.
    pub count: usize,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// A rotation.
    Rotate,
    /// A rotation of a ciphertext whose digits are cut.
    Hoisted,
    /// A product of two ciphertexts.
    Multiply,
    /// A product with one diagonal.
    Diagonal,
    /// A division of a mask by P.
    Divide,
}

impl CostTable {
    /// The table that was measured where this was developed.
    ///
    /// # Errors
    /// [`Error::Plan`] never, but for a file that was edited.
    pub fn shipped() -> Result<Self, Error> {
        Self::parse(include_str!("data/cost.json"))
    }

    /// Reads a table.
    ///
    /// # Errors
    /// [`Error::Plan`] for one that is none.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::Plan { why: format!("the cost table: {why}") };
        let table: Self = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        let is_number = |value: f64| value.is_finite() && value > 0.0;
        let is_good = |entry: &Entry| {
            let own = [entry.rotate_ms, entry.hoisted_ms, entry.multiply_ms, entry.diagonal_ms];
            entry.degree.is_power_of_two() && entry.limbs > 0 && own.into_iter().all(is_number)
        };
        if table.entries.is_empty() || !table.entries.iter().all(is_good) {
            return Err(wrong("no entries, or numbers that are not positive".into()));
        }
        Ok(table)
    }

    /// Milliseconds of one operation: of the nearest entry, in proportion to the transforms and products
    /// of limbs that it takes.
    pub fn cost_ms(&self, kind: Kind, degree: usize, limbs: usize, special: usize) -> f64 {
        let log2 = |value: usize| (value as f64).log2();
        let distance = |entry: &&Entry| {
            (log2(entry.degree) - log2(degree)).abs() * 8.0
                + (log2(entry.limbs) - log2(limbs)).abs() * 2.0
                + (entry.special as f64 - special as f64).abs()
        };
        let nearest = self.entries.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
        let Some(entry) = nearest else { return 0.0 };
        let own = match kind {
            Kind::Rotate | Kind::Divide => entry.rotate_ms,
            Kind::Hoisted => entry.hoisted_ms,
            Kind::Multiply => entry.multiply_ms,
            Kind::Diagonal => entry.diagonal_ms,
        };
        // A division is a known part of a rotation.
        let measured = if kind == Kind::Divide { Kind::Rotate } else { kind };
        own * work(kind, degree, limbs, special)
            / work(measured, entry.degree, entry.limbs, entry.special)
    }

    /// Milliseconds of the maps of `plan`, which splits decide.
    pub(super) fn maps_ms(&self, plan: &Plan) -> f64 {
        let maps = plan.maps();
        maps.iter().map(|map| self.map_ms(plan, map, &map.turn)).sum()
    }

    /// Milliseconds of one map of `plan`, split as `turn` is.
    pub(super) fn map_ms(&self, plan: &Plan, map: &Map, turn: &Turn) -> f64 {
        let (degree, special) = (plan.parameters.degree, plan.parameters.special_moduli.len());
        let operations = map_operations(turn, map.level, map.ciphertexts);
        let ms = |(kind, level, count): (Kind, usize, usize)| match count {
            0 => 0.0,
            count => count as f64 * self.cost_ms(kind, degree, level + 1, special),
        };
        operations.into_iter().map(ms).sum()
    }

    /// Milliseconds that a server takes for one query of `plan`.
    pub fn server_ms(&self, plan: &Plan) -> f64 {
        let (degree, special) = (plan.parameters.degree, plan.parameters.special_moduli.len());
        let of = |operation: &Operation| {
            let Operation { kind, level, count, .. } = *operation;
            count as f64 * self.cost_ms(kind, degree, level + 1, special)
        };
        operations(plan).iter().map(of).sum()
    }
}

/// Transforms of a limb that an operation takes, about; eight products of a limb count as one.
fn work(kind: Kind, degree: usize, limbs: usize, special: usize) -> f64 {
    let (all, digits) = (limbs + special, limbs.div_ceil(special.max(1)));
    let share = degree as f64 * f64::from(degree.trailing_zeros());
    let units = match kind {
        Kind::Rotate => (digits + 2) * all * 8 + 2 * digits * all,
        Kind::Multiply => (digits + 2) * all * 8 + 2 * digits * all + 4 * limbs,
        Kind::Hoisted => 2 * digits * all,
        Kind::Diagonal => 2 * all,
        Kind::Divide => 8 * all,
    };
    units as f64 * share
}

/// What a plan does, layer by layer.
pub fn operations(plan: &Plan) -> Vec<Operation> {
    let mut all = Vec::new();
    let name = |link: usize| plan.chain.links[link].name.clone();
    for (index, input) in plan.inputs.iter().enumerate() {
        let layer = format!("{:?} {index}", input.values).to_lowercase();
        push(&mut all, &layer, &plan.input_turn(index), input.level, input.ciphertexts);
    }
    for (index, (link, planned)) in plan.chain.links.iter().zip(&plan.links).enumerate() {
        if let Some(turn) = &planned.turn {
            push(&mut all, &name(index), turn, planned.level, 1);
        }
        if let (EmbeddingPlan::Lookup { turn }, true) = (&plan.embedding, index == plan.chain.join)
        {
            push(&mut all, &format!("{} of embeddings", name(index)), turn, planned.level, 1);
        }
        if let (EmbeddingPlan::Dot { own, pairs }, true) =
            (&plan.embedding, index == plan.chain.join + 1)
        {
            let (count, level) = (plan.model.features.len(), planned.level);
            let folds = plan.dot_lanes().1.trailing_zeros() as usize;
            let layer = "dot products".to_owned();
            let mut push_one = |kind, level, count| {
                all.push(Operation { layer: layer.clone(), kind, level, count });
            };
            push_one(Kind::Hoisted, level + 1, count);
            push_one(Kind::Multiply, level + 1, count);
            push_one(Kind::Rotate, level, count * folds);
            push(&mut all, &name(index), pairs, level, count);
            push(&mut all, &name(index), own, level, 1);
        }
        if let (Some(own), Some(_)) = (&plan.bootstrap, planned.restored) {
            let layer = format!("{}, bootstrapped", name(index));
            for (kind, level, count) in own.operations(&plan.parameters) {
                all.push(Operation { layer: layer.clone(), kind, level, count });
            }
        }
        if let Some(kind) = &link.gate {
            let level = planned.gate_level();
            let (layer, count) = (gate::describe(kind), gate::products(kind));
            all.push(Operation { layer, kind: Kind::Multiply, level, count });
        }
    }
    all.retain(|operation| operation.count > 0);
    all
}

/// A map's operations on `ciphertexts` ciphertexts.
fn push(all: &mut Vec<Operation>, layer: &str, turn: &Turn, level: usize, ciphertexts: usize) {
    for (kind, level, count) in map_operations(turn, level, ciphertexts) {
        all.push(Operation { layer: layer.to_owned(), kind, level, count });
    }
}

/// What a map at `level` takes on `ciphertexts` ciphertexts: kinds, levels and how often.
fn map_operations(turn: &Turn, level: usize, ciphertexts: usize) -> [(Kind, usize, usize); 5] {
    let steps = turn.split(1).steps(turn.steps());
    let folds = turn.fold_count.trailing_zeros() as usize;
    // A division is in each rotation; without baby steps, a chain alone divides.
    let divisions = if steps.babies == 0 { steps.divisions } else { 0 };
    [
        (Kind::Diagonal, level, turn.diagonals * ciphertexts),
        (Kind::Hoisted, level, steps.babies * ciphertexts),
        // Cutting digits for baby steps is most of a rotation.
        (Kind::Rotate, level, steps.giants + steps.cuts * ciphertexts),
        (Kind::Divide, level, divisions),
        (Kind::Rotate, level - 1, folds),
    ]
}

/// Measures operations at `degree` with `limbs` limbs and `special` primes in P.
///
/// # Errors
/// [`Error::Ckks`] for a set that there is not, or that is below 128 bits.
pub fn measure(
    degree: usize,
    limbs: usize,
    special: usize,
    platform: Platform,
) -> Result<Entry, Error> {
    let most = hushtable_rlwe::modulus_log2_max(degree);
    let level = ((most - 12.0) / (limbs + special) as f64).min(44.0) as u32;
    let bits = ModulusBits { first: level + 2, level, special: level + 1 };
    let spec = ParameterSpec::of_bits("calibration", degree, bits, limbs - 1, special)?;
    let parameters = Parameters::new(spec, platform)?;
    let encoder = Encoder::new(&parameters);
    let mut source = NoiseSource::from_os()?;
    let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
    let own = KeySpec::at_every_level(&parameters, 1..=DIAGONALS);
    let seed = source.seed();
    let keys = EvaluationKeys::generate(&parameters, &secret, &own, &seed, &mut source)?;
    let top = parameters.levels();
    let values: Vec<f64> = (0..parameters.slots()).map(|slot| (slot % 7) as f64 / 7.0).collect();
    let plain = encoder.encode_real(&values, top, parameters.scale())?;
    let x = encrypt(&parameters, &secret, &plain, &source.seed(), 0, &mut source)?;
    let mut evaluator = Encrypted::new(&encoder, &keys);
    let mut one = Diagonals::new(parameters.slots());
    one.insert(0, values.clone())?;
    let mut many = one.clone();
    for steps in 1..=DIAGONALS {
        many.insert(steps, values.clone())?;
    }
    let scale = parameters.scale();
    let prepare =
        |map: &Diagonals, baby_steps| evaluator.prepare(map, Split::new(baby_steps), top, scale);
    let (one, babies, giants) = (prepare(&one, 1)?, prepare(&many, 16)?, prepare(&many, 1)?);
    // Maps and ciphertexts of their own, as those of many one-hots are: they come from memory.
    let count = (MAPS_BYTES / giants.memory_bytes()).clamp(2, 64);
    let maps = (0..count).map(|_| prepare(&many, 1)).collect::<Result<Vec<_>, _>>()?;
    let rotate_ms = time_ms(|| evaluator.rotate(&x, 1).map(drop))?;
    let multiply_ms = time_ms(|| evaluator.square_rescale(&x).map(drop))?;
    let one_ms = time_ms(|| evaluator.transform(&[&one], &[&x]).map(drop))?;
    let babies_ms = time_ms(|| evaluator.transform(&[&babies], &[&x]).map(drop))?;
    let single_ms = time_ms(|| evaluator.transform(&[&giants], &[&x]).map(drop))?;
    let (maps, xs): (Vec<_>, Vec<_>) = (maps.iter().collect(), vec![x.clone(); count]);
    let xs: Vec<_> = xs.iter().collect();
    let many_ms = time_ms(|| evaluator.transform(&maps, &xs).map(drop))?;
    let diagonal_ms = (many_ms - single_ms) / ((count - 1) * (DIAGONALS + 1)) as f64;
    let diagonal_ms = diagonal_ms.max(rotate_ms / 256.0);
    // Cutting digits and the one division by P are as much as a rotation.
    let hoisted_ms = (babies_ms - one_ms - rotate_ms) / DIAGONALS as f64 - diagonal_ms;
    let hoisted_ms = hoisted_ms.max(diagonal_ms);
    Ok(Entry { degree, limbs, special, rotate_ms, hoisted_ms, multiply_ms, diagonal_ms })
}

/// Measures what planning needs on this machine.
///
/// # Errors
/// As [`measure`].
pub fn calibrate(machine: &str, platform: Platform) -> Result<CostTable, Error> {
    let mut entries = Vec::new();
    for (degree, limbs, special) in POINTS {
        entries.push(measure(degree, limbs, special, platform)?);
    }
    Ok(CostTable { machine: machine.to_owned(), entries })
}

/// Degrees, limbs and primes of P that are measured.
const POINTS: [(usize, usize, usize); 13] = [
    (4096, 2, 1),
    (8192, 2, 1),
    (8192, 4, 1),
    (16_384, 3, 1),
    (16_384, 6, 2),
    (16_384, 10, 2),
    (16_384, 10, 3),
    (32_768, 6, 2),
    (32_768, 14, 3),
    (65_536, 12, 3),
    (65_536, 28, 5),
    (65_536, 28, 10),
    (65_536, 32, 11),
];

const DIAGONALS: usize = 15;
/// Bytes of the maps that a diagonal's cost is measured with: more than caches hold of them.
const MAPS_BYTES: usize = 384 << 20;

/// The mean of runs over enough time for the clock of threads, which ticks every few milliseconds.
fn time_ms<T, F>(mut run: F) -> Result<f64, Error>
where
    F: FnMut() -> Result<T, hushtable_rlwe::ckks::Error>,
{
    run()?;
    let (start, mut runs) = (thread_ms(), 0);
    loop {
        run()?;
        runs += 1;
        let spent = thread_ms() - start;
        if spent >= MEASURED_MS {
            return Ok(spent / f64::from(runs));
        }
    }
}

const MEASURED_MS: f64 = 80.0;

/// Milliseconds that this thread ran, so that what else the machine does counts less; of the clock where
/// the system does not say.
fn thread_ms() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let own = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let own = own.and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    match own {
        Some(nanoseconds) => nanoseconds / 1e6,
        None => START.get_or_init(Instant::now).elapsed().as_secs_f64() * 1e3,
    }
}
