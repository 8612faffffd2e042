//! What is computed between two links, on any evaluator.

use hushtable_rlwe::ckks::{Approximation, Basis, Evaluate, Polynomial};
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::spec::Activation;
use super::weights::{COEFFICIENTS_MAX, Trained, WEIGHT_MAX};

/// The largest |c1 / 2 c2| for which a polynomial of degree 2 is computed as a square: the shift
/// would cost more bits of precision than the level that it saves.
const SHIFT_MAX: f64 = 64.0;
/// The composite of ReLU, as the paper has it.
const RELU_DEGREES: [usize; 3] = [15, 15, 27];

/// How near an approximated SiLU is to SiLU.
const SILU_ERROR_MAX: f64 = 1.0 / 4096.0;

/// What is computed between two links.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum Gate {
    /// x².
    Square,
    /// A polynomial of this degree on [−range, range].
    Polynomial {
        /// Its degree.
        degree: usize,
        /// The end of its range.
        range: f64,
    },
    /// max(x, 0) on [−range, range].
    Relu {
        /// The end of its range.
        range: f64,
    },
    /// x / (1 + e^−x) on [−range, range].
    Silu {
        /// Of its Chebyshev series.
        degree: usize,
        /// The end of its range.
        range: f64,
    },
}

impl Gate {
    /// What a layer's activation becomes.
    pub(super) fn new(
        activation: Activation,
        trained: &Trained,
        layer: &str,
    ) -> Result<Self, Error> {
        let range = || {
            trained.range.ok_or_else(|| Error::Spec {
                field: format!("activation of {layer}"),
                why:
                    "its inputs have no range: train with ranges enforced, which writes the tensor \
                      *_a.K.range"
                        .into(),
            })
        };
        Ok(match activation {
            Activation::Square => Self::Square,
            Activation::Relu => Self::Relu { range: range()? },
            Activation::Silu => {
                let range = range()?;
                Self::Silu { degree: silu_degree(range)?, range }
            }
            Activation::Polynomial => match shift(&trained.coefficients) {
                Some(_) => Self::Square,
                None => {
                    let degree = trained.coefficients.len() - 1;
                    Self::Polynomial { degree, range: range()? }
                }
            },
        })
    }

    /// Whether the gate of a plan from outside can be made.
    pub(super) fn is_possible(self) -> bool {
        let is_range = self.range().is_none_or(|range| range > 0.0 && range < WEIGHT_MAX);
        match self {
            Self::Polynomial { degree, .. } | Self::Silu { degree, .. } => {
                is_range && (1..COEFFICIENTS_MAX).contains(&degree)
            }
            _ => is_range,
        }
    }

    /// The end of the range that inputs must stay in, if the gate has one.
    pub fn range(&self) -> Option<f64> {
        match self {
            Self::Square => None,
            Self::Polynomial { range, .. } | Self::Relu { range } | Self::Silu { range, .. } => {
                Some(*range)
            }
        }
    }
}

/// c1 / 2 c2 of a polynomial that is c2 (x + c1 / 2 c2)² + a constant.
pub(super) fn shift(coefficients: &[f64]) -> Option<f64> {
    let &[_, c1, c2] = coefficients else { return None };
    let shift = c1 / (2.0 * c2);
    (shift.abs() <= SHIFT_MAX).then_some(shift)
}

/// The lowest degree of a Chebyshev series that comes near enough to SiLU on [−`range`, `range`].
///
/// # Errors
/// [`Error::Spec`] for a range that no degree up to 63 covers.
pub fn silu_degree(range: f64) -> Result<usize, Error> {
    for degree in [3, 7, 15, 31, 63] {
        if Approximation::silu(degree, range)?.error() <= SILU_ERROR_MAX {
            return Ok(degree);
        }
    }
    let why = format!(
        "SiLU on [-{range}, {range}] needs more than 63 degrees: train with a narrower range"
    );
    Err(Error::Spec { field: "activation".into(), why })
}

/// Levels that a gate takes.
pub fn depth(gate: &Gate) -> usize {
    let of_degree = |degree: usize| (degree + 1).next_power_of_two().trailing_zeros() as usize;
    match *gate {
        Gate::Square => 1,
        Gate::Polynomial { degree, .. } | Gate::Silu { degree, .. } => of_degree(degree),
        Gate::Relu { .. } => 1 + RELU_DEGREES.into_iter().map(of_degree).sum::<usize>(),
    }
}

/// Products of two ciphertexts that a gate takes, about.
pub fn products(gate: &Gate) -> usize {
    let of_degree = |degree: usize| 2 * ((degree + 1) as f64).sqrt().ceil() as usize;
    match *gate {
        Gate::Square => 1,
        Gate::Polynomial { degree, .. } | Gate::Silu { degree, .. } => of_degree(degree),
        Gate::Relu { .. } => 1 + RELU_DEGREES.into_iter().map(of_degree).sum::<usize>(),
    }
}

/// A gate in words.
pub fn describe(gate: &Gate) -> String {
    match gate {
        Gate::Square => "square".into(),
        Gate::Polynomial { degree, range } => {
            format!("polynomial of degree {degree} on [-{range}, {range}]")
        }
        Gate::Relu { range } => format!("ReLU by degrees 15, 15, 27 on [-{range}, {range}]"),
        Gate::Silu { degree, range } => {
            format!("SiLU by degree {degree} on [-{range}, {range}]")
        }
    }
}

/// A gate, ready to be computed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Prepared {
    Square,
    Polynomial(Polynomial),
    Approximation(Approximation),
}

impl Prepared {
    /// With a polynomial's `coefficients` on [−1, 1].
    pub fn new(gate: &Gate, coefficients: &[f64]) -> Result<Self, Error> {
        Ok(match *gate {
            Gate::Square => Self::Square,
            Gate::Polynomial { .. } => {
                Self::Polynomial(Polynomial::new(Basis::Monomial, coefficients.to_vec())?)
            }
            Gate::Relu { range } => Self::Approximation(Approximation::relu(&RELU_DEGREES, range)?),
            Gate::Silu { degree, range } => {
                Self::Approximation(Approximation::silu(degree, range)?)
            }
        })
    }

    /// The gate's value, `depth` levels below `x`; a square has the scale that squaring gives, any other
    /// gate the scale `scale`.
    pub fn evaluate<E: Evaluate>(
        &self,
        evaluator: &mut E,
        x: &E::Ciphertext,
        depth: usize,
        scale: f64,
    ) -> Result<E::Ciphertext, Error> {
        let found = evaluator.level(x);
        let level = found.checked_sub(depth).ok_or(hushtable_rlwe::ckks::Error::Level {
            operation: "gate",
            found,
            expected: depth,
        })?;
        Ok(match self {
            Self::Square => {
                let mut square = evaluator.square(x)?;
                evaluator.rescale(&mut square)?;
                square
            }
            Self::Polynomial(polynomial) => polynomial.evaluate(evaluator, x, level, scale)?,
            Self::Approximation(approximation) => {
                approximation.evaluate(evaluator, x, level, scale)?
            }
        })
    }
}
