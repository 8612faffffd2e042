//! The choice among plans: ring, levels, primes, layouts, fusion and lift, by what each would take.

use std::fmt::Write as _;

use hushtable_rlwe::ckks::{ModulusBits, ParameterSpec};
use hushtable_rlwe::modulus_log2_max;
use hushtable_rlwe::ring::{NoiseSource, Platform};
use serde::Serialize;

use super::bounds;
use super::chain::Chain;
use super::cost::{CostTable, operations};
use super::error::Error;
use super::plan::{Fusion, Plan, levels};
use super::simulate;
use super::spec::Dlrm;
use super::terms::Terms;
use super::weights::Weights;

/// What a plan is to reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written out by callers, with ..Default::default()")]
pub struct Goal {
    /// Users of one query, rounded up to a power of two.
    pub users: usize,
    /// −log2 of the largest error of a logit.
    pub precision_bits: u32,
    /// Whether the client may send degree-2 monomials of its dense features.
    pub lift: bool,
    /// The largest ring.
    pub degree_max: usize,
}

impl Default for Goal {
    fn default() -> Self {
        Self { users: 1, precision_bits: 10, lift: true, degree_max: 65_536 }
    }
}

/// What a plan would take.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Prediction {
    /// Milliseconds of the server's one thread, a query.
    pub server_ms: f64,
    /// −log2 of a logit's error from one rounding at the scale; a circuit's own is larger by what its
    /// weights make of it, which simulation measures.
    pub rounding_bits: f64,
    /// Bytes that are uploaded once.
    pub key_bytes: usize,
    /// Bytes of a query.
    pub query_bytes: usize,
    /// Bytes of an answer.
    pub answer_bytes: usize,
    /// Where costs were measured.
    pub machine: String,
}

impl Prediction {
    /// Of a plan.
    ///
    /// # Errors
    /// [`Error::Terms`] for a plan that no client would accept.
    pub fn of(plan: &Plan, costs: &CostTable, platform: Platform) -> Result<Self, Error> {
        let terms = Terms::of(plan, platform)?;
        let degree = (plan.parameters.degree as f64).log2();
        Ok(Self {
            server_ms: costs.server_ms(plan),
            rounding_bits: f64::from(plan.parameters.scale_log2) - rounding_log2(degree),
            key_bytes: terms.key_bytes()?,
            query_bytes: terms.query_bytes(),
            answer_bytes: terms.answer_bytes(),
            machine: costs.machine.clone(),
        })
    }
}

/// log2 of the error of a slot that rounding a ciphertext leaves: N / 6 of standard deviation.
fn rounding_log2(degree_log2: f64) -> f64 {
    degree_log2 - 2.6
}

/// The plan that is predicted to take the server the least time.
///
/// # Errors
/// [`Error::Depth`] where no set of 128 bits carries the model, [`Error::Layout`] where none has the
/// slots; [`Error::Spec`] for activations without a range.
pub fn plan(dlrm: &Dlrm, weights: &Weights, goal: Goal, costs: &CostTable) -> Result<Plan, Error> {
    let users = goal.users.max(1).next_power_of_two();
    let mut best: Option<(f64, Plan, u32)> = None;
    let (mut least_levels, mut layout_error) = (usize::MAX, None);
    let mut is_relu = false;
    for lift in [true, false] {
        let chain = Chain::new(dlrm, weights, lift && goal.lift)?;
        if lift && !chain.is_lifted {
            continue;
        }
        is_relu |= chain.links.iter().any(|link| {
            link.gate.is_some_and(|gate| matches!(gate, super::gate::Gate::Relu { .. }))
        });
        for fusion in [Fusion::First, Fusion::Join, Fusion::None] {
            let is_fused = fusion != Fusion::None && !dlrm.digits().is_empty();
            let outputs = chain.links[chain.join].outputs;
            if is_fused && outputs.saturating_mul(dlrm.onehot_slots()) > FUSED_MAX {
                continue;
            }
            let count = levels(&chain, fusion);
            least_levels = least_levels.min(count);
            for log2 in 12..=16 {
                let degree = 1 << log2;
                if degree > goal.degree_max {
                    continue;
                }
                for special in 1..=(count + 1).min(6) {
                    let Some(bits) = choose_bits(degree, count, special, goal) else { continue };
                    let sketch = sketch(degree, count, special, bits);
                    let made = Plan::new(dlrm, chain.clone(), &sketch, users, fusion);
                    let made = match made {
                        Ok(made) => made.with_baby_steps(),
                        Err(error) => {
                            layout_error = Some(error);
                            continue;
                        }
                    };
                    let cost = costs.server_ms(&made) + UPLOAD_MS * ciphertext_words(&made);
                    if best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                        best = Some((cost, made, bits.level));
                    }
                }
            }
        }
    }
    let Some((_, sketch, _)) = best else {
        let level_bits = least_bits(goal.degree_max.ilog2(), goal.precision_bits);
        let most = modulus_log2_max(goal.degree_max);
        // Two primes beside the levels': the first of Q and one of P.
        let levels_max = ((most - 20.0) / f64::from(level_bits)) as usize - 2;
        if let Some(error) = layout_error.filter(|_| least_levels <= levels_max) {
            return Err(error);
        }
        let advice = match is_relu {
            true => {
                "a ReLU takes 14 levels: train with squares (1 level) or SiLU (3 to 5), or with \
                     fewer layers"
            }
            false => "train with squares, lower degrees or fewer layers",
        };
        return Err(Error::Depth {
            levels: least_levels,
            degree: goal.degree_max,
            levels_max,
            level_bits,
            advice: advice.into(),
        });
    };
    let dense_max = bounds::dense_max(dlrm, weights, LOGIT_MAX)?;
    Ok(Plan { dense_max, ..settle(dlrm, &sketch, goal)? })
}

/// As [`plan`], for these weights: where simulation finds the logits of some drawn users less precise
/// than the goal, plans again with as many bits more.
///
/// What rounding leaves, each layer multiplies by its weights, which only a simulation with them tells.
/// Where drawn users leave the ranges of activations, as they may in a model of other users, nothing is
/// measured and the first plan stands.
///
/// # Errors
/// As [`plan`]; [`Error::Ckks`] for weights that are too large.
pub fn plan_precisely(
    dlrm: &Dlrm,
    weights: &Weights,
    goal: Goal,
    costs: &CostTable,
    platform: Platform,
) -> Result<Plan, Error> {
    let mut asked = goal;
    let mut made = plan(dlrm, weights, asked, costs)?;
    for _ in 0..REPEATS_MAX {
        let Some(bits) = measured_bits(&made, weights, platform)? else { break };
        // The server's flooding takes its part of the error: half of it is left to the circuit.
        let short = f64::from(goal.precision_bits + 1) - bits;
        if short <= 0.0 {
            break;
        }
        asked.precision_bits += short.ceil() as u32;
        match plan(dlrm, weights, asked, costs) {
            Ok(better) => made = better,
            // As precise as the largest ring allows: what the plan reaches is in its prediction.
            Err(Error::Depth { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(made)
}

/// −log2 of the largest error of the logits of drawn users, if they stay inside the model's ranges.
fn measured_bits(plan: &Plan, weights: &Weights, platform: Platform) -> Result<Option<f64>, Error> {
    let mut least: Option<f64> = None;
    for draw in 0..DRAWS {
        let mut source = NoiseSource::from_seed(&[draw; 32]);
        let mut unit = || {
            let word = u64::from_le_bytes(*source.seed().first_chunk().unwrap_or(&[0; 8]));
            word as f64 / 2f64.powi(64)
        };
        let users = plan.users;
        // About what standardised features are: from −2 to 2.
        let dense = (0..users * plan.model.dense).map(|_| (4.0 * unit() - 2.0) as f32).collect();
        let rows = plan.model.features.iter().map(|feature| feature.rows);
        let rows: Vec<u64> = std::iter::repeat_n(rows, users).flatten().collect();
        let indices: Vec<u64> = rows.iter().map(|&rows| (unit() * rows as f64) as u64).collect();
        let dense: Vec<f32> = dense;
        let seed = [draw; 32];
        match simulate::precision_bits(plan, weights, platform, seed, &dense, &indices) {
            Ok(bits) => least = Some(least.map_or(bits, |least| least.min(bits))),
            Err(Error::Range { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(least)
}

/// The plan with primes in place of their bits.
fn settle(dlrm: &Dlrm, sketch: &Plan, goal: Goal) -> Result<Plan, Error> {
    let (degree, count) = (sketch.parameters.degree, sketch.parameters.moduli.len() - 1);
    let special = sketch.parameters.special_moduli.len();
    let bits = choose_bits(degree, count, special, goal);
    let bits = bits.ok_or_else(|| Error::Plan { why: "its primes do not fit".into() })?;
    let name = format!("ckks_{degree}_{count}x{}", bits.level);
    let spec = ParameterSpec::of_bits(&name, degree, bits, count, special)?;
    let plan = Plan::new(dlrm, sketch.chain.clone(), &spec, sketch.users, sketch.fusion())?;
    Ok(plan.with_baby_steps())
}

/// Bits of primes that fit 128 bits and leave the precision, if any do.
fn choose_bits(degree: usize, count: usize, special: usize, goal: Goal) -> Option<ModulusBits> {
    let least = least_bits(degree.ilog2(), goal.precision_bits);
    let most = modulus_log2_max(degree);
    let mut best = None;
    for level in least..=(least + SPARE_BITS).min(40) {
        let first = level + HEADROOM_BITS;
        // P is at least as long as the longest digit.
        let digit = first + (special.min(count + 1) as u32 - 1) * level;
        let own = digit.div_ceil(special as u32) + u32::from(special > 1);
        let total = first + count as u32 * level + special as u32 * own;
        if f64::from(total) <= most && first <= 51 && own <= 51 {
            best = Some(ModulusBits { first, level, special: own });
        }
    }
    best
}

/// A set whose primes are not chosen yet.
fn sketch(degree: usize, count: usize, special: usize, bits: ModulusBits) -> ParameterSpec {
    let mut moduli = vec![1 << bits.first];
    moduli.extend(vec![1 << bits.level; count]);
    ParameterSpec {
        name: "sketch".into(),
        degree,
        moduli,
        special_moduli: vec![1 << bits.special; special],
        scale_log2: bits.level,
    }
}

/// The fewest bits of a scale: what rounding leaves, and eight bits for what weights make of it.
fn least_bits(degree_log2: u32, precision_bits: u32) -> u32 {
    rounding_log2(f64::from(degree_log2)).ceil() as u32 + precision_bits + 8
}

/// Words of a query's ciphertexts.
fn ciphertext_words(plan: &Plan) -> f64 {
    let words = plan.inputs.iter().map(|input| input.ciphertexts * (input.level + 1));
    (words.sum::<usize>() * plan.parameters.degree) as f64
}

/// Plan and prediction in words.
pub fn describe(plan: &Plan, prediction: &Prediction) -> String {
    let mut text = plan.describe();
    let megabytes = |bytes: usize| bytes as f64 / 1e6;
    let _ = writeln!(text, "keys         {:.1} MB, once", megabytes(prediction.key_bytes));
    let _ = writeln!(
        text,
        "a query      {:.3} MB up, {:.3} MB down",
        megabytes(prediction.query_bytes),
        megabytes(prediction.answer_bytes)
    );
    let _ = writeln!(
        text,
        "predicted    {:.1} ms of one thread ({}), a rounding is {:.1} bits",
        prediction.server_ms, prediction.machine, prediction.rounding_bits
    );
    let _ = writeln!(text, "operations   (level: how many)");
    for operation in operations(plan) {
        let kind = format!("{:?}", operation.kind).to_lowercase();
        let _ = writeln!(
            text,
            "             {:>2}: {:>6} {kind:<9} {}",
            operation.level, operation.count, operation.layer
        );
    }
    text
}

/// How often a plan is made again, and of how many queries' users its precision is measured.
const REPEATS_MAX: usize = 3;
const DRAWS: u8 = 8;
/// Milliseconds that a word of a query counts for: about what encrypting it takes.
const UPLOAD_MS: f64 = 2e-5;
/// The most numbers of a fused map.
const FUSED_MAX: usize = 1 << 24;
/// Bits of q_0 above the scale: logits are below 2^9.
const HEADROOM_BITS: u32 = 10;
const LOGIT_MAX: f64 = (1 << (HEADROOM_BITS - 1)) as f64;
/// Bits of a scale above the fewest, where they fit.
const SPARE_BITS: u32 = 6;
