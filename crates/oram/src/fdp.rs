//! How many rows a round reads: a number that says little of how many different rows were asked
//! for (ε-FDP; FEDORA, section 3).
//!
//! K requests ask for k_union different rows. K is public; k_union is not, as it tells of users
//! who ask for the same. Replacing one value changes k_union by at most one. A [`Mechanism`] draws
//! the k that the main memory is asked for: above k_union some accesses are dummies, below it some
//! rows are lost.
//!
//! ```
//! use hushtable_oram::fdp::{FdpSpec, Mechanism};
//! use rand::{SeedableRng, rngs::StdRng};
//!
//! let mechanism = Mechanism::new(&FdpSpec { epsilon: 1.0, ..FdpSpec::default() }, 10_000)?;
//! # let seed = [7; 32]; // in production: hushtable_prg::fill_random
//! let k = mechanism.sample(4_500, &mut rand_chacha::ChaCha20Rng::from_seed(seed));
//! assert!((4_400..4_600).contains(&k));
//! # Ok::<(), hushtable_oram::fdp::FdpError>(())
//! ```
//!
//! # Which mechanism
//!
//! Two-sided geometric noise, clamped, has the loss ε at every outcome, so that no noise is wasted:
//! E|noise| is 0.851 at ε = 1. Clamping to 1..=K moves whatever falls below one row to one, so that
//! noise that is wide beside the union loses up to half of it. The shifted mechanism draws the same
//! noise about a few rows more and clamps it to `least`..=K, which is as private: at ε = 0.001 and 95
//! rows of 10,000 requests, `by` 464 and `least` 1,000 lose none and read 1,322 rows, where the
//! geometric loses 47 % and equation 3 loses 2 % and reads 1,937. Equation 3 of the paper draws e^(-ε/2 · |noise|)
//! because its normaliser may lose the other half of ε, which it does not do away from the edges:
//! the loss is ε/2 there (at most 0.714 at ε = 1 with Y = 1), and E|noise| 1.919. That has one use:
//! all its losses lie in a range of width ε, so that many rounds add up better (the accountant in
//! `hushtable.fl.accountant` knows both).
//!
//! # Exactness
//!
//! Every probability is an integer over one common total (2^125, or 2^256 for equation 3), and the
//! integers are made so that neighbours' ratios are at most e^ε: tests enumerate them. A softmax in
//! `float32`, as the published artifact has it, gives 97 % of outcomes the probability zero, some
//! with a neighbour that is positive: its ε is infinite.
//!
//! # Constant time
//!
//! [`Mechanism::sample`] scans its whole table, and takes k_union and the draw through masks and
//! arithmetic only. The result k is public once the memory is read.

mod decay;
mod exponential;
mod geometric;
mod shifted;
mod spec;
#[cfg(test)]
mod tests;

use std::hint::black_box;

use rand::CryptoRng;
use thiserror::Error;

use exponential::Exponential;
use geometric::Geometric;
use shifted::Shifted;
pub use spec::{FdpSpec, MechanismSpec, Protects, Shape};

/// The most requests of a round that a mechanism is made for: its tables take up to 32 bytes each.
pub const REQUESTS_MAX: u64 = 1 << 22;
/// The least positive ε for one value.
pub const EPSILON_MIN: f64 = 1e-9;
/// A finite ε above this is sampled as this: e^-40 is below any probability that matters.
const EPSILON_SAMPLED_MAX: f64 = 40.0;
const EXPONENT_MAX: f64 = 1000.0;

/// A mechanism that cannot be.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum FdpError {
    /// ε is not a privacy parameter.
    #[error("epsilon is {epsilon}: it must be 0 (read as many rows as requests), positive, or inf")]
    Epsilon {
        /// As given.
        epsilon: f64,
    },
    /// ε for one value is too small to be sampled, and would hide nothing that 0 does not.
    #[error(
        "epsilon {epsilon} for {values} values at once leaves {per_value:e} for each, less than \
         {EPSILON_MIN:e}: raise it, or take 0, which costs as many reads"
    )]
    EpsilonTooSmall {
        /// As given.
        epsilon: f64,
        /// How many values it is divided among.
        values: u32,
        /// What remains.
        per_value: f64,
    },
    /// No requests, or too many.
    #[error("{requests} requests in a round: expected 1 to {max}; split the round")]
    Requests {
        /// As given.
        requests: u64,
        /// [`REQUESTS_MAX`].
        max: u64,
    },
    /// Hiding zero values.
    #[error("protects.count.values is 0: give the most values that a user may have")]
    NoValues,
    /// A mechanism that may read nothing.
    #[error("the shifted mechanism reads at least 0 rows: expected least to be 1 or more")]
    NoLeast,
    /// A square outside 1..=K, or empty.
    #[error("the square shape goes from {low} to {high}: expected 1 <= low <= high <= {requests}")]
    Square {
        /// As given.
        low: u64,
        /// As given.
        high: u64,
        /// K.
        requests: u64,
    },
    /// A power that is negative, too large, or no number.
    #[error("the power shape's exponent is {exponent}: expected 0 to {EXPONENT_MAX}")]
    Exponent {
        /// As given.
        exponent: f64,
    },
    /// A delta outside 1..=K.
    #[error("the delta shape is at {at}: expected 1 to {requests}, or leave it out for {requests}")]
    Delta {
        /// As given.
        at: u64,
        /// K.
        requests: u64,
    },
}

/// How many rows to read, given how many different ones were asked for.
#[derive(Debug)]
pub struct Mechanism {
    requests: u64,
    epsilon_per_value: f64,
    table: Table,
}

#[derive(Debug)]
enum Table {
    Constant(u64),
    /// ε = ∞: the union itself, as far as the shape allows it.
    Clamped {
        low: u64,
        high: u64,
    },
    Geometric(Geometric),
    Shifted(Shifted),
    Exponential(Exponential),
}

/// What reading k rows instead of k_union comes to on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expectation {
    /// E k.
    pub reads: f64,
    /// E |k - k_union|.
    pub noise: f64,
    /// Dummy accesses, E max(k - k_union, 0), over k_union.
    pub dummy_fraction: f64,
    /// Rows lost, E max(k_union - k, 0), over k_union.
    pub lost_fraction: f64,
    /// Accesses saved against reading K: 1 - E k / K.
    pub reduced_fraction: f64,
}

impl Mechanism {
    /// Checks a spec for rounds of `requests` (K) requests, padding included, and makes its table:
    /// O(K) time and at most 32 K bytes.
    ///
    /// # Errors
    ///
    /// What is out of bounds: ε, K ([`REQUESTS_MAX`]), the shape, or the number of values.
    pub fn new(spec: &FdpSpec, requests: u64) -> Result<Self, FdpError> {
        if requests == 0 || requests > REQUESTS_MAX {
            return Err(FdpError::Requests { requests, max: REQUESTS_MAX });
        }
        let epsilon_per_value = epsilon_per_value(spec)?;
        let (shape, shift) = match spec.mechanism {
            MechanismSpec::Geometric => (None, None),
            MechanismSpec::Shifted { least: 0, .. } => return Err(FdpError::NoLeast),
            MechanismSpec::Shifted { by, least } => (None, Some((by, least))),
            MechanismSpec::Exponential { shape } => (Some(shape), None),
        };
        if let Some(shape) = shape {
            check_shape(shape, requests)?;
        }
        let epsilon = epsilon_per_value.min(EPSILON_SAMPLED_MAX);
        let table = match shape {
            Some(Shape::Delta { at }) => Table::Constant(at.unwrap_or(requests)),
            _ if requests == 1 => Table::Constant(1),
            _ if epsilon == 0.0 => Table::Constant(requests),
            Some(Shape::Square { low, high }) if epsilon_per_value == f64::INFINITY => {
                Table::Clamped { low, high }
            }
            _ if epsilon_per_value == f64::INFINITY => Table::Clamped { low: 1, high: requests },
            None => match shift {
                None => Table::Geometric(Geometric::new(epsilon, requests)),
                Some((by, least)) => Table::Shifted(Shifted::new(epsilon, by, least, requests)),
            },
            Some(shape) => Table::Exponential(Exponential::new(epsilon, shape, requests)),
        };
        Ok(Self { requests, epsilon_per_value, table })
    }

    /// K.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// ε for one value: the spec's, or its part where the number of values is hidden too. This is
    /// what an accountant charges for a round.
    pub fn epsilon_per_value(&self) -> f64 {
        self.epsilon_per_value
    }

    /// Draws how many rows to read, 1 to K. `k_union` is the secret number of different rows that were
    /// asked for, 0 to K; 0 counts as 1.
    ///
    /// The time does not depend on `k_union`: O(K) at most for the geometric mechanism, O(K log K) for
    /// equation 3. Whoever sees the accesses must not know the generator's state.
    pub fn sample<R: CryptoRng + ?Sized>(&self, k_union: u64, rng: &mut R) -> u64 {
        let requests = self.requests as i64;
        let union_rows = clamp(black_box(k_union) as i64, 1, requests) as u64;
        match &self.table {
            Table::Constant(reads) => *reads,
            Table::Clamped { low, high } => {
                clamp(union_rows as i64, *low as i64, *high as i64) as u64
            }
            Table::Geometric(table) => table.sample(union_rows, rng),
            Table::Shifted(table) => table.sample(union_rows, rng),
            Table::Exponential(table) => table.sample(union_rows, rng),
        }
    }

    /// The probability that [`sample`](Self::sample) gives `reads` for `k_union`; not in constant
    /// time. O(1), or O(K) under equation 3 and at the ends of a shifted mechanism: see [`probabilities`](Self::probabilities).
    pub fn probability(&self, k_union: u64, reads: u64) -> f64 {
        if reads == 0 || reads > self.requests {
            return 0.0;
        }
        let union_rows = k_union.clamp(1, self.requests);
        match &self.table {
            Table::Constant(constant) => f64::from(u8::from(*constant == reads)),
            Table::Clamped { low, high } => {
                f64::from(u8::from(union_rows.clamp(*low, *high) == reads))
            }
            Table::Geometric(table) => {
                table.numerator(union_rows, reads) as f64 / geometric::total()
            }
            // Tails are summed: a pass for each of the two ends.
            Table::Shifted(table) => table.numerator(union_rows, reads) as f64 / geometric::total(),
            Table::Exponential(table) => table.probabilities(union_rows)[reads as usize - 1],
        }
    }

    /// The probabilities of reading 1 to K rows.
    pub fn probabilities(&self, k_union: u64) -> Vec<f64> {
        match &self.table {
            Table::Exponential(table) => table.probabilities(k_union.clamp(1, self.requests)),
            _ => (1..=self.requests).map(|reads| self.probability(k_union, reads)).collect(),
        }
    }

    /// The largest |ln(P(k | k_union) / P(k | k_union + 1))| there is, by trying all: O(K²), for
    /// small K. To the precision of `f64`; infinite where one of the two is impossible.
    pub fn exact_epsilon(&self) -> f64 {
        let mut worst = 0.0_f64;
        let mut before = self.probabilities(1);
        for k_union in 2..=self.requests {
            let now = self.probabilities(k_union);
            for (&p, &q) in before.iter().zip(&now) {
                if p > 0.0 || q > 0.0 {
                    worst = worst.max((p.ln() - q.ln()).abs());
                }
            }
            before = now;
        }
        worst
    }

    /// What a union of `k_union` rows costs on average, as in Table 1 of the paper. O(K).
    pub fn expectation(&self, k_union: u64) -> Expectation {
        let union_rows = k_union.clamp(1, self.requests) as f64;
        let (mut reads, mut dummies, mut lost) = (0.0, 0.0, 0.0);
        for (index, probability) in self.probabilities(k_union).into_iter().enumerate() {
            let k = (index + 1) as f64;
            reads += probability * k;
            dummies += probability * (k - union_rows).max(0.0);
            lost += probability * (union_rows - k).max(0.0);
        }
        Expectation {
            reads,
            noise: dummies + lost,
            dummy_fraction: dummies / union_rows,
            lost_fraction: lost / union_rows,
            reduced_fraction: 1.0 - reads / self.requests as f64,
        }
    }
}

/// For values below 2^62. (Wrapping arithmetic on secrets everywhere: a check for overflow is a
/// branch, though none occurs.)
fn clamp(value: i64, low: i64, high: i64) -> i64 {
    let below = black_box(value.wrapping_sub(low) >> 63);
    let raised = value & !below | low & below;
    let above = black_box(high.wrapping_sub(raised) >> 63);
    raised & !above | high & above
}

fn epsilon_per_value(spec: &FdpSpec) -> Result<f64, FdpError> {
    let epsilon = spec.epsilon;
    if epsilon.is_nan() || epsilon < 0.0 {
        return Err(FdpError::Epsilon { epsilon });
    }
    let values = match spec.protects {
        Protects::Value => 1,
        Protects::Count { values: 0 } => return Err(FdpError::NoValues),
        Protects::Count { values } => values,
    };
    if epsilon == 0.0 || epsilon == f64::INFINITY || values == 1 {
        return match epsilon {
            0.0 | EPSILON_MIN.. => Ok(epsilon.abs()),
            _ => Err(FdpError::EpsilonTooSmall { epsilon, values, per_value: epsilon }),
        };
    }
    // Rounded down, so that so many of them are not more than was promised.
    let per_value = (epsilon / f64::from(values)).next_down();
    if per_value < EPSILON_MIN {
        return Err(FdpError::EpsilonTooSmall { epsilon, values, per_value });
    }
    Ok(per_value)
}

fn check_shape(shape: Shape, requests: u64) -> Result<(), FdpError> {
    match shape {
        Shape::Square { low, high } if low < 1 || low > high || high > requests => {
            Err(FdpError::Square { low, high, requests })
        }
        Shape::Power { exponent } if !(0.0..=EXPONENT_MAX).contains(&exponent) => {
            Err(FdpError::Exponent { exponent })
        }
        Shape::Delta { at: Some(at) } if at < 1 || at > requests => {
            Err(FdpError::Delta { at, requests })
        }
        _ => Ok(()),
    }
}
