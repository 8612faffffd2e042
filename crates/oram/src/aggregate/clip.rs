//! Bounds on what one user may bring into a round, before anything is added up.
//!
//! # Why sums stay finite
//!
//! A round has at most 2^21 slots, so that many terms at most are added to one number. Each term is a
//! gradient of at most [`VALUE_MAX`] = 2^32 times a weight of at most [`WEIGHT_MAX`] = 2^24, or what a
//! foreign `pre` made of it, which [`saturate`] holds to the same product, 2^56. Their sum is at most
//! 2^77, and rounding, which adds a relative 2^-24 a term, at most e^(1/8) times that: far from 2^128,
//! where `f32` ends. A mean is a sum over the sum of its weights, at most 2^33, and its square 2^66;
//! what an optimizer keeps of squares grows by that in each of at most 2^32 rounds, to 2^98. So no
//! upload makes a sum, a mean or a moment that is not finite, and a row is never left without other
//! users' updates for that reason. `extremes_stay_finite` holds all of it to numbers.
//!
//! These bounds keep numbers finite and no more: a gradient of 2^32 still drowns all others in the
//! rounding of its sum, and moves the row by as much. What one user may *do* is what a [`ClipSpec`]
//! bounds.
//!
//! Everything here goes over all numbers alike, without a branch or an address that depends on one.

use serde::{Deserialize, Serialize};

use super::lanes::Lane;
use super::{AggregateError, WEIGHT_MAX, rows_of};

/// The largest number of a gradient, 2^32: larger ones count as this one, in every controller.
pub const VALUE_MAX: f32 = 4_294_967_296.0;

/// How much of one user's upload counts in a round. Weights are capped first, then numbers, then the
/// norm is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct ClipSpec {
    /// The largest L2 norm of all of a user's gradients together, those of the slots whose rows are
    /// the table's; longer ones are scaled down to it. More than 0, at most [`VALUE_MAX`].
    pub norm: f32,
    /// The largest absolute value of one number of a gradient; larger ones count as this one. More
    /// than 0, at most [`VALUE_MAX`].
    pub value: f32,
    /// The largest weight of a user; heavier ones count as this one. More than 0, at most
    /// [`WEIGHT_MAX`].
    pub weight: f32,
}

impl Default for ClipSpec {
    /// A norm of 2, values of 0.5, a weight of 100: three times, three times and twice the most of any
    /// of 20,000 honest uploads of `examples/fedrec`.
    fn default() -> Self {
        Self { norm: 2.0, value: 0.5, weight: 100.0 }
    }
}

impl ClipSpec {
    /// Whether every bound is one.
    ///
    /// # Errors
    /// [`AggregateError::Setting`] for a bound that is not positive, or beyond what sums can hold.
    pub fn check(&self) -> Result<(), AggregateError> {
        bounded("clip.norm", self.norm)?;
        bounded("clip.value", self.value)?;
        match self.weight.is_normal() && self.weight > 0.0 && self.weight <= WEIGHT_MAX {
            true => Ok(()),
            false => Err(AggregateError::Setting {
                setting: "clip.weight",
                value: self.weight,
                expected: "more than 0 and at most 2^24 (16,777,216)",
            }),
        }
    }

    /// The weight that a user of `weight` counts with.
    pub(crate) fn weight(&self, weight: f32) -> f32 {
        held(weight, self.weight)
    }

    /// Holds a user's gradients to the bounds: of the slots with a weight alone, the others' are zero
    /// from here on.
    pub(crate) fn apply(
        &self,
        gradients: &mut [f32],
        weights: &[f32],
    ) -> Result<(), AggregateError> {
        let dim = rows_of(gradients, weights)?;
        let mut squares = 0.0;
        for (gradient, &weight) in gradients.chunks_exact_mut(dim).zip(weights) {
            let is_sent = Lane::is_nonzero(weight);
            for value in gradient {
                *value = is_sent.select(held(*value, self.value), 0.0);
                squares += f64::from(*value) * f64::from(*value);
            }
        }
        shorten(gradients, squares, self.norm);
        Ok(())
    }
}

/// Checks a bound of a norm or of a number.
pub(super) fn bounded(setting: &'static str, value: f32) -> Result<(), AggregateError> {
    match value.is_normal() && value > 0.0 && value <= VALUE_MAX {
        true => Ok(()),
        false => Err(AggregateError::Setting {
            setting,
            value,
            expected: "more than 0 and at most 2^32 (4,294,967,296)",
        }),
    }
}

/// Scales `gradient`, the sum of whose squares is given, to a norm of `bound` where it is longer.
pub(super) fn shorten(gradient: &mut [f32], squares: f64, bound: f32) {
    // A hair less: rounding to f32 must not leave the clipped norm above the bound.
    let scale = (1.0 - f64::from(f32::EPSILON)) * f64::from(bound) / squares.sqrt();
    // Of nothing but zeros the scale is infinite, and one here; what is short enough stays to the bit.
    let scale = scale.min(1.0);
    gradient.iter_mut().for_each(|value| *value = (f64::from(*value) * scale) as f32);
}

/// Holds numbers to `bound`; what is no number counts as it.
pub(crate) fn saturate(values: &mut [f32], bound: f32) {
    values.iter_mut().for_each(|value| *value = held(*value, bound));
}

/// `value`, or `bound` (which is positive) with its sign where that is larger.
fn held(value: f32, bound: f32) -> f32 {
    // The order of magnitudes is that of their bits; those of infinities and NaN come last.
    let sign = value.to_bits() & 0x8000_0000;
    let magnitude = value.to_bits() & 0x7fff_ffff;
    let held = Lane::is_less(bound.to_bits(), magnitude).select_u32(bound.to_bits(), magnitude);
    f32::from_bits(sign | held)
}
