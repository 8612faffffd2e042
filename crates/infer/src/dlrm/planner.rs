//! The choice among plans: ring, levels, primes, layouts, fusion and lift, by what each would take.

use std::fmt::Write as _;

use hushtable_rlwe::ckks::{ModulusBits, ParameterSpec};
use hushtable_rlwe::modulus_log2_max;
use hushtable_rlwe::ring::{NoiseSource, Platform};
use serde::Serialize;

use super::bounds;
use super::chain::Chain;
use super::cost::{CostTable, operations};
use super::engine::{FLOOD_BITS, MAP_BYTES_MAX};
use super::error::Error;
use super::found::{Found, Kept, beside_bytes, query_bytes, query_ms};
pub use super::goal::{Bootstraps, Goal};
use super::layout::{count_values, packings};
use super::parts::Asked;
use super::placement;
use super::plan::{Fusion, Plan, levels};
use super::simulate;
use super::spec::{Activation, Dlrm, DlrmSpec, RELU_DEGREES};
use super::splits::{self, KEYS_FREE_BYTES};
use super::terms::Terms;
use super::weights::Weights;

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
    /// Bytes of memory that a client's keys take on the server, where they are all held.
    pub key_memory_bytes: usize,
    /// Bytes of memory that the prepared maps take there.
    pub map_memory_bytes: usize,
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
            key_memory_bytes: splits::key_memory_bytes(plan),
            map_memory_bytes: splits::map_memory_bytes(plan, MAP_BYTES_MAX),
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

/// The plan that is predicted to take the server the least time, its keys and its queries counted too.
///
/// # Errors
/// [`Error::Depth`] where no set of 128 bits carries the model, [`Error::Layout`] where none has the
/// slots, [`Error::Keys`] where all keys are larger than the goal's bound, [`Error::Query`] where all queries
/// are; [`Error::Spec`] for activations without a range.
pub fn plan(dlrm: &Dlrm, weights: &Weights, goal: Goal, costs: &CostTable) -> Result<Plan, Error> {
    let users = goal.users.max(1).next_power_of_two();
    let mut kept = Kept::default();
    let (mut least_levels, mut layout_error) = (usize::MAX, None);
    let chains = chains(dlrm, weights, goal)?;
    for (chain, fusion) in &chains {
        least_levels = least_levels.min(levels(chain, *fusion));
        for log2 in 12..=16 {
            let degree = 1 << log2;
            if degree > goal.degree_max || goal.bootstraps == Bootstraps::Required {
                continue;
            }
            let least = least_bits(log2, goal.precision_bits);
            for fusion in ways(dlrm, (chain, *fusion), (degree, least), costs, goal) {
                let count = levels(chain, fusion);
                for special in 1..=(count + 1).min(SPECIAL_MAX) {
                    let Some(bits) = fit(degree, count, special, least) else { continue };
                    let sketch = sketch(degree, count, special, bits);
                    let made = match Plan::new(dlrm, chain.clone(), &sketch, users, fusion) {
                        Ok(made) => made,
                        Err(error) => {
                            layout_error = Some(error);
                            continue;
                        }
                    };
                    kept.keep(made, costs, goal);
                }
            }
        }
    }
    if goal.bootstraps != Bootstraps::Never {
        for (chain, fusion) in &chains {
            restore(dlrm, (chain, *fusion), costs, goal, &mut kept)?;
        }
    }
    let is_composite = chains
        .iter()
        .flat_map(|(chain, _)| &chain.links)
        .any(|link| matches!(link.gate, Some(super::gate::Gate::Relu { degree: None, .. })));
    repack(dlrm, costs, goal, &mut kept);
    let Some(Found { plan: sketch, .. }) = kept.best(goal)? else {
        if goal.bootstraps == Bootstraps::Required {
            let why = "no set of 128 bits bootstraps it at this precision, with these ranges";
            return Err(Error::Layout { why: why.into() });
        }
        let level_bits = least_bits(goal.degree_max.ilog2(), goal.precision_bits);
        let most = modulus_log2_max(goal.degree_max);
        // Two primes beside the levels': the first of Q and one of P.
        let levels_max = ((most - 20.0) / f64::from(level_bits)) as usize - 2;
        if let Some(error) = layout_error.filter(|_| least_levels <= levels_max) {
            return Err(error);
        }
        let advice = match is_composite {
            true => {
                "a ReLU takes 14 levels: train with its polynomial (relu_degree = 31: 5 levels, 63: 6, \
                     127: 7), SiLU (3 to 6) or squares (1), or with fewer layers"
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
    // What bootstraps has its primes already, each for what its level is for.
    let settled = if sketch.bootstrap.is_some() { sketch } else { settle(dlrm, &sketch, goal)? };
    Ok(Plan { dense_max, ..settled })
}

/// The chains that a model can be, each with every way that its embeddings can get in.
fn chains(dlrm: &Dlrm, weights: &Weights, goal: Goal) -> Result<Vec<(Chain, Fusion)>, Error> {
    let mut chains = Vec::new();
    for lift in [true, false] {
        let chain = Chain::new(dlrm, weights, lift && goal.lift)?;
        if lift && !chain.is_lifted {
            continue;
        }
        for fusion in [Fusion::First, Fusion::Join, Fusion::None] {
            let is_fused = fusion != Fusion::None && !dlrm.digits().is_empty();
            let outputs = chain.links[chain.join].outputs;
            if !is_fused || outputs.saturating_mul(dlrm.onehot_slots()) <= FUSED_MAX {
                chains.push((chain.clone(), fusion));
            }
        }
    }
    Ok(chains)
}

/// `fusion`, and besides it the parts that the one-hot vectors may be sent in.
fn ways(
    dlrm: &Dlrm,
    (chain, fusion): (&Chain, Fusion),
    (degree, level_bits): (usize, u32),
    costs: &CostTable,
    goal: Goal,
) -> Vec<Fusion> {
    let mut all = vec![fusion];
    let slots = degree / 2 / goal.users.max(1).next_power_of_two();
    if fusion == Fusion::None && !dlrm.digits().is_empty() && slots > 0 {
        let (digits, dim) = (dlrm.digits(), dlrm.spec().dim);
        let query_bytes_max = goal.query_bytes_max;
        let asked = Asked { chain, digits, dim, degree, slots, level_bits, query_bytes_max };
        all.extend(asked.choose(costs, query_ms));
    }
    all
}

/// Keeps the plans of a chain with bootstraps, of each set that has as many bits as are asked for, where
/// they are better than what was found.
fn restore(
    dlrm: &Dlrm,
    (chain, fusion): (&Chain, Fusion),
    costs: &CostTable,
    goal: Goal,
    kept: &mut Kept,
) -> Result<(), Error> {
    let users = goal.users.max(1).next_power_of_two();
    let slots = placement::widest(chain, users, |_| true);
    for base in placement::BASES {
        let (degree, own) = (base.degree, base.levels);
        let least = least_bits(degree.ilog2(), goal.precision_bits);
        let is_fit = (2..=degree / 2).contains(&slots)
            && degree <= goal.degree_max
            && own.scale >= least
            && base.is_for(slots);
        let is_cheaper = |best: &Found| base.floor_ms(slots, costs) < best.cost;
        if !is_fit || !kept.best.as_ref().is_none_or(is_cheaper) {
            continue;
        }
        let bits = ModulusBits { first: own.first, level: own.scale, special: own.special.0 };
        for fusion in ways(dlrm, (chain, fusion), (degree, own.scale), costs, goal) {
            let sketch = sketch(degree, levels(chain, fusion), own.special.1, bits);
            // A layout that there is not, there is with bootstraps neither.
            let sketched = Plan::new(dlrm, chain.clone(), &sketch, users, fusion);
            let Ok(sketched) = sketched.map(Plan::with_baby_steps) else { continue };
            match base.plan(dlrm, &sketched, fusion, costs) {
                Ok(Some(made)) => kept.keep(made, costs, goal),
                // Parts take a product above the join, where bootstraps may leave no level for it.
                Err(Error::Layout { .. }) if fusion.is_none() => {}
                other => drop(other?),
            }
        }
    }
    Ok(())
}

/// As [`plan`], for these weights: where simulation finds the logits of some drawn users less precise
/// than the goal, or than what hides their noise asks for, plans again with as many bits more, or as near
/// to that as the largest ring and the keys' bound allow.
///
/// What rounding leaves, each layer multiplies by its weights, which only a simulation with them tells.
/// Where all drawn users leave the ranges of activations, as they may in a model of other users, nothing
/// is measured and the first plan stands.
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
        // The server's flooding takes its part of the error: half of it is left to the circuit, whose noise
        // the flooding is to hide besides.
        let wanted = (goal.precision_bits + 1).max(FLOOD_BITS + HIDDEN_BITS);
        let short = f64::from(wanted) - bits;
        if short <= 0.0 {
            break;
        }
        let better = (1..=short.ceil() as u32).rev().find_map(|more| {
            let precision_bits = asked.precision_bits + more;
            let asked = Goal { precision_bits, ..asked };
            match plan(dlrm, weights, asked, costs) {
                Err(Error::Depth { .. } | Error::Keys { .. } | Error::Query { .. }) => None,
                found => Some(found.map(|found| (asked, found))),
            }
        });
        let Some(better) = better else { break };
        let better = better?;
        // A set that bootstraps has the bits that it has: to ask again would find it again.
        if better.1.bootstrap.is_some() && better.1 == made {
            break;
        }
        (asked, made) = better;
    }
    Ok(made)
}

/// −log2 of the largest error of the logits of drawn users, if they stay inside the model's ranges.
fn measured_bits(plan: &Plan, weights: &Weights, platform: Platform) -> Result<Option<f64>, Error> {
    let mut least: Option<f64> = None;
    // About what standardised features are, from −2 to 2; narrower after users who left a range.
    let mut width = 4.0;
    for draw in 0..DRAWS {
        let mut source = NoiseSource::from_seed(&[draw; 32]);
        let mut unit = || {
            let word = u64::from_le_bytes(*source.seed().first_chunk().unwrap_or(&[0; 8]));
            word as f64 / 2f64.powi(64)
        };
        let users = plan.users;
        let dense = users * plan.model.dense;
        let dense = (0..dense).map(|_| (width * (unit() - 0.5)) as f32).collect();
        let rows = plan.model.features.iter().map(|feature| feature.rows);
        let rows: Vec<u64> = std::iter::repeat_n(rows, users).flatten().collect();
        let indices: Vec<u64> = rows.iter().map(|&rows| (unit() * rows as f64) as u64).collect();
        let dense: Vec<f32> = dense;
        let seed = [draw; 32];
        match simulate::precision_bits(plan, weights, platform, seed, &dense, &indices) {
            Ok(bits) => least = Some(least.map_or(bits, |least| least.min(bits))),
            Err(Error::Range { .. }) => width /= 2.0,
            Err(error) => return Err(error),
        }
    }
    Ok(least)
}

/// Tries more diagonals for what the client packs: each doubling of them leaves a fold less, whose key is
/// one of the largest.
fn repack(dlrm: &Dlrm, costs: &CostTable, goal: Goal, kept: &mut Kept) {
    let Some(from) = kept.from() else { return };
    for index in 0..from.plan.inputs.len() {
        let Some(Found { plan, .. }) = kept.from() else { return };
        let plan = plan.clone();
        let input = &plan.inputs[index];
        let count = count_values(input.values, plan.chain.links[0].inputs, dlrm.digits());
        for layout in packings(plan.slots(), input, count) {
            let mut other = plan.clone();
            other.inputs[index].layout = layout;
            kept.keep(other, costs, goal);
        }
    }
}

/// The plan with primes in place of their bits, and with more bits where they are free.
fn settle(dlrm: &Dlrm, sketch: &Plan, goal: Goal) -> Result<Plan, Error> {
    let (degree, count) = (sketch.parameters.degree, sketch.parameters.moduli.len() - 1);
    let special = sketch.parameters.special_moduli.len();
    let splits: Vec<_> = sketch.maps().iter().map(|map| map.turn.own_split()).collect();
    let made = |level: u32| -> Result<Option<Plan>, Error> {
        let Some(bits) = fit(degree, count, special, level) else { return Ok(None) };
        let name = format!("ckks_{degree}_{count}x{level}");
        let spec = ParameterSpec::of_bits(&name, degree, bits, count, special)?;
        let (chain, fusion) = (sketch.chain.clone(), sketch.fusion());
        let mut plan = Plan::new(dlrm, chain, &spec, sketch.users, fusion)?;
        plan.inputs.clone_from(&sketch.inputs);
        plan.set_splits(&splits);
        Ok(Some(plan))
    };
    let key_bytes_max = goal.key_bytes_max.unwrap_or(usize::MAX).min(KEYS_FREE_BYTES);
    let query_bytes_max = goal.query_bytes_max.unwrap_or(usize::MAX).min(QUERY_FREE_BYTES);
    let least = least_bits(degree.ilog2(), goal.precision_bits);
    for level in (least + 1..=(least + SPARE_BITS).min(LEVEL_BITS_MAX)).rev() {
        let Some(plan) = made(level)? else { continue };
        if splits::key_bytes(&plan) + beside_bytes(&plan) <= key_bytes_max
            && query_bytes(&plan) <= query_bytes_max
        {
            return Ok(plan);
        }
    }
    made(least)?.ok_or_else(|| Error::Plan { why: "its primes do not fit".into() })
}

/// Bits of primes for levels of `level` bits, if they fit 128 bits of security.
fn fit(degree: usize, count: usize, special: usize, level: u32) -> Option<ModulusBits> {
    let most = modulus_log2_max(degree);
    let first = level + HEADROOM_BITS;
    // P is at least as long as the longest digit.
    let digit = first + (special.min(count + 1) as u32 - 1) * level;
    let own = digit.div_ceil(special as u32) + u32::from(special > 1);
    let total = first + count as u32 * level + special as u32 * own;
    let is_fit = f64::from(total) <= most && first <= 51 && own <= 51 && level <= LEVEL_BITS_MAX;
    is_fit.then_some(ModulusBits { first, level, special: own })
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

/// What the same model would take another way, or with another activation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Alternative {
    /// What is other.
    pub what: String,
    /// Milliseconds of the server's one thread, a query; `None` where there is no such plan.
    #[serde(rename = "predicted_ms")]
    pub server_ms: Option<f64>,
    /// Bytes that are uploaded once.
    pub key_bytes: Option<usize>,
    /// Why there is no such plan.
    pub refused: Option<String>,
}

/// What the model of `plan` would take without its bootstraps, or with some; and, where its activation is
/// ReLU, with each of the polynomials in its place that it could be trained with, or with the composite.
///
/// # Errors
/// As [`plan`], but for models that no set carries.
pub fn alternatives(
    dlrm: &Dlrm,
    weights: &Weights,
    goal: Goal,
    costs: &CostTable,
    chosen: &Plan,
) -> Result<Vec<Alternative>, Error> {
    let mut all = Vec::new();
    let gates = || chosen.chain.links.iter().filter_map(|link| link.gate);
    if gates().any(|gate| gate.range().is_some()) {
        let (what, bootstraps) = match chosen.bootstrap {
            Some(_) => ("without bootstraps", Bootstraps::Never),
            None => ("with bootstraps", Bootstraps::Required),
        };
        all.push((what.to_owned(), dlrm.clone(), Goal { bootstraps, ..goal }));
    }
    if dlrm.spec().activation == Activation::Relu {
        let degrees = [None].into_iter().chain(RELU_DEGREES.map(Some));
        for relu_degree in degrees.filter(|&degree| degree != dlrm.spec().relu_degree) {
            let other = Dlrm::new(DlrmSpec { relu_degree, ..dlrm.spec().clone() })?;
            let what = match relu_degree {
                Some(degree) => format!("trained with ReLU's polynomial of degree {degree}"),
                None => "ReLU by degrees 15, 15, 27".into(),
            };
            all.push((what, other, goal));
        }
    }
    let priced = |(what, dlrm, goal): (String, Dlrm, Goal)| {
        let nothing = Alternative { what, server_ms: None, key_bytes: None, refused: None };
        match plan(&dlrm, weights, goal, costs) {
            Ok(found) => {
                let bootstraps = found.bootstraps();
                let what = match bootstraps {
                    0 => format!("{}, leveled", nothing.what),
                    1 => format!("{}, 1 bootstrap", nothing.what),
                    _ => format!("{}, {bootstraps} bootstraps", nothing.what),
                };
                let server_ms = Some(costs.server_ms(&found));
                let key_bytes = Some(splits::key_bytes(&found) + beside_bytes(&found));
                Ok(Alternative { what, server_ms, key_bytes, ..nothing })
            }
            Err(
                refused @ (Error::Depth { .. }
                | Error::Keys { .. }
                | Error::Query { .. }
                | Error::Layout { .. }),
            ) => Ok(Alternative { refused: Some(refused.to_string()), ..nothing }),
            Err(error) => Err(error),
        }
    };
    all.into_iter().map(priced).collect()
}

/// Alternatives in words.
pub fn describe_alternatives(all: &[Alternative]) -> String {
    let mut text = String::new();
    for Alternative { what, server_ms, key_bytes, refused } in all {
        let _ = match (server_ms, key_bytes, refused) {
            (Some(ms), Some(bytes), _) => {
                let megabytes = *bytes as f64 / 1e6;
                writeln!(text, "instead      {what}: {ms:.1} ms, {megabytes:.1} MB of keys")
            }
            (_, _, refused) => {
                writeln!(text, "instead      {what}: {}", refused.as_deref().unwrap_or("none"))
            }
        };
    }
    text
}

/// Plan and prediction in words.
pub fn describe(plan: &Plan, prediction: &Prediction) -> String {
    let mut text = plan.describe();
    let megabytes = |bytes: usize| bytes as f64 / 1e6;
    let _ = writeln!(
        text,
        "keys         {:.1} MB, once; {:.1} MB held by the server, whose maps take {:.1} MB",
        megabytes(prediction.key_bytes),
        megabytes(prediction.key_memory_bytes),
        megabytes(prediction.map_memory_bytes)
    );
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
    let _ = writeln!(text, "operations   (level: how many; sums, copies and the like left out)");
    for operation in operations(plan).into_iter().filter(|operation| operation.kind.is_main()) {
        let kind = format!("{:?}", operation.kind).to_lowercase();
        let _ = writeln!(
            text,
            "             {:>2}: {:>6} {kind:<15} {}",
            operation.level, operation.count, operation.layer
        );
    }
    text
}

/// How often a plan is made again, and of how many queries' users its precision is measured.
const REPEATS_MAX: usize = 3;
const DRAWS: u8 = 8;
/// By how many bits noise is to be below what hides it: of a 2^-4, an answer's distribution changes.
const HIDDEN_BITS: u32 = 4;
/// The most numbers of a fused map.
const FUSED_MAX: usize = 1 << 24;
/// Bits of q_0 above the scale: logits are below 2^9.
const HEADROOM_BITS: u32 = 10;
const LOGIT_MAX: f64 = (1 << (HEADROOM_BITS - 1)) as f64;
/// Bits of a scale above the fewest, where they fit and nothing that counts grows by them: keys and
/// queries are as small as any anyway.
const SPARE_BITS: u32 = 6;
const QUERY_FREE_BYTES: usize = 4_000_000;
/// The longest scales.
const LEVEL_BITS_MAX: u32 = 40;
/// Primes of P: as many as key switching carries.
const SPECIAL_MAX: usize = 12;
