//! A circuit computed without encryption: exactly, or with the noise alone.

use hushtable_rlwe::ckks::{Clear, Evaluate, Simulated};
use hushtable_rlwe::largest;
use hushtable_rlwe::ring::{Platform, Seed};

use super::chain::Limit;
use super::compile::Compiled;
use super::digits::Digits;
use super::error::Error;
use super::features::Sizes;
use super::layout::Input;
use super::plan::Plan;
use super::weights::Weights;
use crate::trace::{Trace, Traced};

/// What is computed with in place of ciphertexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Doubles, exactly.
    Clear,
    /// Doubles with the noise that ciphertexts would have, from this seed.
    Simulate(Seed),
}

/// The logits of users, as the circuit of `plan` computes them without encryption; `dense` features and
/// `indices` are given user by user. Activations are held to the ranges that the model was trained in.
///
/// # Errors
/// [`Error::Range`] names the layer whose activation left its range, [`Error::Feature`] a feature that the plan cannot
/// hold; as [`super::Client::query`] for
/// features, as [`Compiled::new`] for weights.
pub fn predict(
    plan: &Plan,
    weights: &Weights,
    platform: Platform,
    mode: Mode,
    dense: &[f32],
    indices: &[u64],
) -> Result<Vec<f64>, Error> {
    let parameters = plan.parameters.check(platform)?;
    let clear = Clear::with_keys(&parameters, &plan.key_spec());
    let sizes = sizes(plan);
    let users = sizes.check(dense, indices)?;
    let scale = parameters.scale();
    let vectors = plan
        .inputs
        .iter()
        .flat_map(|input| sizes.fill_input(input, dense, indices).zip(input.levels()));
    let slots = match mode {
        Mode::Clear => {
            let mut evaluator = clear;
            let xs = vectors.map(|(values, level)| evaluator.vector(&values, level, scale));
            let xs = xs.collect::<Result<Vec<_>, _>>()?;
            let compiled = Compiled::new(plan, weights, &evaluator, usize::MAX)?;
            let out = run(&compiled, &mut evaluator, xs, users, |x| x.values())?;
            out.values().to_vec()
        }
        Mode::Simulate(seed) => {
            let mut evaluator = Simulated::new(clear, &seed);
            let mut xs = Vec::new();
            for (values, level) in vectors {
                xs.push(evaluator.vector(&values, level, scale)?);
            }
            let compiled = Compiled::new(plan, weights, &evaluator, usize::MAX)?;
            let out = run(&compiled, &mut evaluator, xs, users, |x| x.values())?;
            out.values().to_vec()
        }
    };
    // After the activations, which say more: what encryption would refuse is refused here too.
    let held = Sizes { dense_max: plan.dense_max.clone(), ..sizes };
    held.check_values(dense, indices)?;
    let own = |user: usize| slots.iter().skip(user).step_by(plan.users);
    Ok((0..users).map(|user| own(user).sum::<f64>() / plan.slots() as f64).collect())
}

/// Every operation of the circuit of `plan`, in order, with its level.
///
/// # Errors
/// As [`Compiled::new`] for weights.
pub fn trace(
    name: &str,
    plan: &Plan,
    weights: &Weights,
    platform: Platform,
) -> Result<Trace, Error> {
    let parameters = plan.parameters.check(platform)?;
    let clear = Clear::with_keys(&parameters, &plan.key_spec());
    let mut xs = Vec::new();
    for level in plan.inputs.iter().flat_map(Input::levels) {
        // What is computed on does not matter to what is done.
        xs.push(clear.vector(&[0.0], level, parameters.scale())?);
    }
    let mut evaluator = Traced::new(clear);
    // Maps of many ciphertexts are made as they are used: they need not all be in memory.
    let compiled = Compiled::new(plan, weights, &evaluator, 1 << 30)?;
    compiled.run(&mut evaluator, xs, &mut |_, _| Ok(()))?;
    Ok(evaluator.finish(name))
}

/// −log2 of the largest error that the noise makes of these users' logits: what a plan's precision is
/// with its own weights.
///
/// # Errors
/// As [`predict`].
pub fn precision_bits(
    plan: &Plan,
    weights: &Weights,
    platform: Platform,
    seed: Seed,
    dense: &[f32],
    indices: &[u64],
) -> Result<f64, Error> {
    let exact = predict(plan, weights, platform, Mode::Clear, dense, indices)?;
    let noisy = predict(plan, weights, platform, Mode::Simulate(seed), dense, indices)?;
    let errors = exact.iter().zip(&noisy).map(|(x, y)| x - y).chain([f64::MIN_POSITIVE]);
    let bits = -largest(errors).log2();
    if bits.is_finite() {
        return Ok(bits);
    }
    Err(Error::Plan { why: "a simulated logit is no number".into() })
}

fn run<E: Evaluate>(
    compiled: &Compiled<E::Plaintext, E::Transform>,
    evaluator: &mut E,
    xs: Vec<E::Ciphertext>,
    users: usize,
    values: impl Fn(&E::Ciphertext) -> &[f64],
) -> Result<E::Ciphertext, Error> {
    let stride = compiled.plan().users;
    compiled.run(evaluator, xs, &mut |before, x| {
        let Some(limit) = before.limit else { return Ok(()) };
        let is_value =
            |slot: usize| slot % stride < users && slot / stride % before.period < before.values;
        let all = values(x).iter().enumerate();
        for (_, &value) in all.filter(|&(slot, _)| is_value(slot)) {
            check(before.layer, limit, value)?;
        }
        Ok(())
    })
}

/// Refuses a value that left the range it was trained in.
fn check(layer: &str, limit: Limit, value: f64) -> Result<(), Error> {
    let value = (value - limit.shift) / limit.scale;
    // Written so that what is no number is refused.
    if value.abs() <= limit.range * (1.0 + 1e-3) {
        return Ok(());
    }
    Err(Error::Range { layer: layer.to_owned(), value, limit: limit.range })
}

/// What a client knows of a plan.
fn sizes(plan: &Plan) -> Sizes {
    let own = &plan.model;
    let features = own
        .features
        .iter()
        .map(|feature| (feature.name.clone(), Digits::new(feature.rows, own.threshold, own.base)));
    Sizes {
        dense: own.dense,
        is_lifted: plan.chain.is_lifted,
        features: features.collect(),
        users: plan.users,
        slots: plan.slots(),
        dense_max: Vec::new(),
    }
}
