//! Stages of floats to stages of integers.

use super::error::Error;
use super::lower::Lowered;
use super::value::{FloatActivation, FloatStage, FloatTerm};
use crate::hybrid::program::{Activation, Program, Rounding, Stage, Term, Weights};

/// Fraction bits of a stage's sum, whose tensors and weights have `fraction`.
pub(super) fn sum_fraction(stage: &FloatStage, fraction: u32) -> u32 {
    let each = stage.terms.iter().map(|term| match term {
        FloatTerm::Convolution { .. } => 2 * fraction,
        FloatTerm::Windows { log, .. } => fraction + log,
    });
    each.max().unwrap_or(fraction)
}

/// Quantises a network: tensors and weights have `fraction` fraction bits, numbers are held modulo
/// 2^`bits`. The same network gives the same integers everywhere. The lattice is left empty.
///
/// # Errors
/// [`Error::Weight`] for a weight or a bias that does not fit.
pub fn quantise(
    lowered: &Lowered,
    bits: u32,
    fraction: u32,
    rounding: Rounding,
) -> Result<(Program, Weights), Error> {
    let (mut stages, mut weights) = (Vec::new(), Weights::default());
    for own in &lowered.stages {
        let sum_fraction = sum_fraction(own, fraction);
        let shift = sum_fraction - fraction;
        let mut terms = Vec::new();
        for term in &own.terms {
            terms.push(match term {
                FloatTerm::Convolution { source, convolution, weights: found } => {
                    weights.convolutions.push(integers(&own.name, found, fraction)?);
                    let (source, convolution) = (*source, *convolution);
                    Term::Convolution { source, convolution, shift: sum_fraction - 2 * fraction }
                }
                &FloatTerm::Windows { source, input, window, stride, log } => {
                    Term::Windows { source, input, window, stride, shift: shift - log }
                }
            });
        }
        let activation = own.activation.map(|FloatActivation { rectify, most, pool }| {
            let most = most.map(|most| largest(&own.name, most, bits, fraction)).transpose()?;
            Ok::<_, Error>(Activation { most, ..Activation::of(rectify, pool, shift) })
        });
        let activation = activation.transpose()?;
        let is_active = activation.is_some();
        weights.biases.push(biases(
            own,
            bits,
            sum_fraction,
            rounding.bias(shift * u32::from(is_active)),
        )?);
        let (name, sum, fraction) = (own.name.clone(), own.sum, sum_fraction);
        stages.push(Stage { name: clip(name), terms, sum, fraction, activation });
    }
    let (input, lattice) = (lowered.input, String::new());
    Ok((Program { bits, fraction, rounding, lattice, input, stages }, weights))
}

/// The least units of the fraction that a largest number has: rounded, it is off by 1 in 64 at most.
const MOST_MIN: f64 = 32.0;

/// A largest number in the program's fraction; what no number reaches is the largest that there is.
fn largest(stage: &str, most: f64, bits: u32, fraction: u32) -> Result<u64, Error> {
    let value = most * (1_u64 << fraction) as f64;
    if value < MOST_MIN {
        let needed = (MOST_MIN / most).log2().ceil();
        let why = format!(
            "stage {stage:?} gives at most {most}, which so few bits hold too roughly: {needed} or more \
             are possible"
        );
        return Err(Error::Spec { field: "fraction", value: fraction.to_string(), why });
    }
    Ok((value.round() as u64).min((1 << (bits - 1)) - 1))
}

/// A name of a node with what was added, as long as names may be.
fn clip(mut name: String) -> String {
    use crate::hybrid::check::NAME_BYTES_MAX;
    while name.len() > NAME_BYTES_MAX {
        name.pop();
    }
    name
}

fn integers(stage: &str, weights: &[f32], fraction: u32) -> Result<Vec<i32>, Error> {
    let scale = (1_u64 << fraction) as f64;
    let each = weights.iter().map(|&weight| {
        let value = (f64::from(weight) * scale).round();
        match value.abs() <= f64::from(i32::MAX) {
            true => Ok(value as i32),
            false => {
                let (place, value) = (format!("the weights of stage {stage:?}"), f64::from(weight));
                Err(Error::Weight { place, value, fraction, max: f64::from(i32::MAX) / scale })
            }
        }
    });
    each.collect()
}

fn biases(stage: &FloatStage, bits: u32, fraction: u32, rounding: i64) -> Result<Vec<i64>, Error> {
    let scale = (2.0_f64).powi(fraction as i32);
    let max = (2.0_f64).powi(bits as i32 - 1) - 1.0;
    let each = stage.bias.iter().map(|&bias| {
        let value = (bias * scale).round();
        match value.abs() < max {
            true => Ok((value as i64).saturating_add(rounding)),
            false => {
                let place = format!("the biases of stage {:?}", stage.name);
                Err(Error::Weight { place, value: bias, fraction, max: max / scale })
            }
        }
    });
    each.collect()
}

impl Rounding {
    /// What a sum's bias holds for the rounding, where `shift` bits are dropped.
    pub fn bias(self, shift: u32) -> i64 {
        match (self, shift) {
            (_, 0) => 0,
            (Self::Stochastic, _) => (1 << shift) - 1,
            (Self::Nearest, _) => 1 << (shift - 1),
        }
    }
}
