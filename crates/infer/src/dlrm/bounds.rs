//! How large a client's dense features may be: what a plan cannot hold, no answer comes back of.

use hushtable_rlwe::ckks::Approximation;
use hushtable_rlwe::ring::NoiseSource;

use super::error::Error;
use super::features::{FEATURE_LEAST, FEATURE_MAX};
use super::gate::{Gate, Prepared};
use super::reference::{activate, forward_by};
use super::spec::Dlrm;
use super::weights::{Trained, Weights};

/// By dense feature: the largest power of two, up to [`FEATURE_MAX`], that it may be alone, all others being zero, so
/// that the logit stays below `logit_max` whatever its sign. Several that are near their ends together may still be
/// too large: of that nobody can say before the model was computed.
///
/// # Errors
/// [`Error::Spec`] for an activation that needs a range and has none; [`Error::Ckks`].
pub(super) fn dense_max(dlrm: &Dlrm, weights: &Weights, logit_max: f64) -> Result<Vec<f32>, Error> {
    let trained: Vec<&Trained> =
        weights.bottom_trained.iter().chain(&weights.top_trained).collect();
    let gates = trained.iter().map(|trained| approximated(dlrm, trained));
    let gates = gates.collect::<Result<Vec<_>, _>>()?;
    let gate = |index: usize, x: f64| match &gates[index] {
        Some(approximation) => approximation.at(x),
        None => activate(dlrm.spec().activation, trained[index], x),
    };
    let users = indices(dlrm);
    let holds = |feature: usize, value: f32| {
        let mut dense = vec![0.0; dlrm.spec().dense];
        for sign in [1.0, -1.0] {
            dense[feature] = sign * f64::from(value);
            // One user of whom it is too large does not say that it is of another.
            let is_held = users.iter().map(|indices| {
                Ok(forward_by(dlrm, weights, &dense, indices, gate)?.logit.abs() < logit_max)
            });
            if !is_held.collect::<Result<Vec<_>, Error>>()?.contains(&true) {
                return Ok(false);
            }
        }
        Ok::<_, Error>(true)
    };
    let largest = |feature: usize| {
        let mut value = FEATURE_MAX;
        while value > FEATURE_LEAST && !holds(feature, value)? {
            value /= 2.0;
        }
        Ok(value)
    };
    (0..dlrm.spec().dense).map(largest).collect()
}

/// What is computed in place of an activation that is no polynomial.
fn approximated(dlrm: &Dlrm, trained: &Trained) -> Result<Option<Approximation>, Error> {
    let gate = Gate::new(dlrm.spec(), trained, "a layer")?;
    Ok(match Prepared::new(&gate, &trained.coefficients)? {
        Prepared::Approximation(approximation) => Some(approximation),
        Prepared::Square | Prepared::Polynomial(_) => None,
    })
}

/// Rows of a few users.
fn indices(dlrm: &Dlrm) -> Vec<Vec<u64>> {
    let mut source = NoiseSource::from_seed(&[0; 32]);
    let mut row = |rows: u64| {
        let word = u64::from_le_bytes(*source.seed().first_chunk().unwrap_or(&[0; 8]));
        ((u128::from(word) * u128::from(rows)) >> 64) as u64
    };
    let features = &dlrm.spec().features;
    (0..USERS).map(|_| features.iter().map(|feature| row(feature.rows)).collect()).collect()
}

const USERS: usize = 4;
