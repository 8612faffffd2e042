//! What is computed between two links, on any evaluator.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use hushtable_rlwe::ckks::{Approximation, Basis, Evaluate, Polynomial};
use serde::{Deserialize, Serialize};

use super::error::Error;
use super::spec::{Activation, DlrmSpec, RELU_DEGREES};
use super::weights::{COEFFICIENTS_MAX, Trained, WEIGHT_MAX};

/// The largest |c1 / 2 c2| for which a polynomial of degree 2 is computed as a square: the shift
/// would cost more bits of precision than the level that it saves.
const SHIFT_MAX: f64 = 64.0;
/// The composite of ReLU, as the paper has it.
const COMPOSITE: [usize; 3] = [15, 15, 27];
/// Approximations of ReLU that are kept: a model's layers have few ranges.
const KEPT_MAX: usize = 32;

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
        /// Of the one polynomial in its place; `None` for a composite of degrees 15, 15 and 27, which is
        /// what plans from before there was a choice say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        degree: Option<usize>,
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
    pub(super) fn new(spec: &DlrmSpec, trained: &Trained, layer: &str) -> Result<Self, Error> {
        let range = || {
            trained.range.ok_or_else(|| Error::Spec {
                field: format!("activation of {layer}"),
                why:
                    "its inputs have no range: train with ranges enforced, which writes the tensor \
                      *_a.K.range"
                        .into(),
            })
        };
        Ok(match spec.activation {
            Activation::Square => Self::Square,
            Activation::Relu => Self::Relu { degree: spec.relu_degree, range: range()? },
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

    /// Whether the gate of a plan from outside can be made, and is of its model.
    pub(super) fn is_possible(self, spec: &DlrmSpec) -> bool {
        let is_range = self.range().is_none_or(|range| range > 0.0 && range < WEIGHT_MAX);
        match self {
            Self::Polynomial { degree, .. } | Self::Silu { degree, .. } => {
                is_range && (1..COEFFICIENTS_MAX).contains(&degree)
            }
            Self::Relu { degree, .. } => is_range && degree == spec.relu_degree,
            Self::Square => is_range,
        }
    }

    /// The end of the range that inputs must stay in, if the gate has one.
    pub fn range(&self) -> Option<f64> {
        match self {
            Self::Square => None,
            Self::Polynomial { range, .. }
            | Self::Relu { range, .. }
            | Self::Silu { range, .. } => Some(*range),
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

/// What is computed in ReLU's place on [−`range`, `range`]: a polynomial of `degree`, or the composite. It takes a search,
/// and a planner asks for the same few hundreds of times: the last are kept.
fn relu(degree: Option<usize>, range: f64) -> Result<Approximation, Error> {
    static KEPT: Mutex<VecDeque<(Option<usize>, f64, Approximation)>> = Mutex::new(VecDeque::new());
    let lock = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = lock().iter().find(|kept| (kept.0, kept.1) == (degree, range)).cloned();
    if let Some((.., kept)) = kept {
        return Ok(kept);
    }
    let found = match degree {
        Some(degree) => Approximation::nearest_relu(degree, range)?,
        None => Approximation::relu(&COMPOSITE, range)?,
    };
    let mut kept = lock();
    kept.truncate(KEPT_MAX - 1);
    kept.push_front((degree, range, found.clone()));
    Ok(found)
}

/// The coefficients, of Chebyshev's T_0 and on, of the polynomial of `degree` that comes nearest to ReLU on
/// [−1, 1]; that of [−r, r] is r times it, of x / r.
///
/// # Errors
/// [`Error::Spec`] for a degree that no model may have.
pub fn relu_coefficients(degree: usize) -> Result<Vec<f64>, Error> {
    if !RELU_DEGREES.contains(&degree) {
        let why = format!("{degree}, possible are 31, 63 and 127");
        return Err(Error::Spec { field: "relu_degree".into(), why });
    }
    let own = Approximation::nearest_relu(degree, 1.0)?;
    Ok(own.stages().first().map_or_else(Vec::new, |stage| stage.coefficients().to_vec()))
}

/// How far a gate gets from the function that it is named for, on its range; `None` where it is that
/// function.
pub fn error(gate: &Gate) -> Option<f64> {
    match *gate {
        Gate::Square | Gate::Polynomial { .. } => None,
        Gate::Silu { degree, range } => Some(Approximation::silu(degree, range).ok()?.error()),
        // That on [−1, 1], times the range: plans of many layers ask for one search.
        Gate::Relu { degree, range } => Some(range * relu(degree, 1.0).ok()?.error()),
    }
}

/// Levels that a gate takes.
pub fn depth(gate: &Gate) -> usize {
    let of_degree = |degree: usize| (degree + 1).next_power_of_two().trailing_zeros() as usize;
    match *gate {
        Gate::Square => 1,
        Gate::Polynomial { degree, .. }
        | Gate::Silu { degree, .. }
        | Gate::Relu { degree: Some(degree), .. } => of_degree(degree),
        Gate::Relu { degree: None, .. } => 1 + COMPOSITE.into_iter().map(of_degree).sum::<usize>(),
    }
}

/// A gate in words.
pub fn describe(gate: &Gate) -> String {
    match gate {
        Gate::Square => "square".into(),
        Gate::Polynomial { degree, range } => {
            format!("polynomial of degree {degree} on [-{range}, {range}]")
        }
        Gate::Relu { degree: None, range } => {
            format!("ReLU by degrees 15, 15, 27 on [-{range}, {range}]")
        }
        Gate::Relu { degree: Some(degree), range } => {
            format!("ReLU by degree {degree} on [-{range}, {range}]")
        }
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
            Gate::Relu { degree, range } => Self::Approximation(relu(degree, range)?),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relu_s_polynomials_take_what_is_said() {
        // Half their coefficients are 0.
        for (degree, products) in RELU_DEGREES.into_iter().zip([9, 14, 19]) {
            let gate = Gate::Relu { degree: Some(degree), range: 5.0 };
            let own = relu(Some(degree), 5.0).unwrap();
            assert_eq!((depth(&gate), products), (own.depth(), own.products()));
            let said = error(&gate).unwrap();
            assert!((said / own.error() - 1.0).abs() < 1e-6, "{said} {}", own.error());
            // One source for training and serving: 5 p(x / 5).
            let coefficients = relu_coefficients(degree).unwrap();
            let terms = coefficients.iter().enumerate();
            let at = 5.0 * terms.map(|(k, c)| c * (k as f64 * 0.3f64.acos()).cos()).sum::<f64>();
            assert!((at - own.at(1.5)).abs() < 1e-12, "{at}");
        }
        assert!(relu_coefficients(30).unwrap_err().to_string().contains("31, 63 and 127"));
        let composite = Gate::Relu { degree: None, range: 8.0 };
        assert_eq!(depth(&composite), relu(None, 8.0).unwrap().depth());
        assert!(error(&composite).is_some_and(|error| error < 1e-3));
        assert_eq!(error(&Gate::Square), None);
    }
}
