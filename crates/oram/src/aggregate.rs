//! What becomes of users' gradients: Pre on each user's, Post on the sums (FEDORA, section 4.3,
//! equation 4: θ ← θ - η · Post(Σ_c Pre(Δ_c))).
//!
//! A gradient Δ is the row before local training less the row after it. The sums are made in the
//! buffer memory, over the users who did upload: who drops out is in neither sum nor weight.
//!
//! Nothing here branches on a value or a weight, or takes an address from one: rows of weight
//! zero (dummies, and rows all of whose users dropped out) go the way of the others and are left
//! as they were by a mask, as are rows whose update would not be finite. Floating-point divisions
//! and square roots take the time the processor takes, which subnormal numbers may change.

mod average;
mod clip;
mod gauss;
mod lanes;
mod private;
mod spec;
#[cfg(test)]
mod tests;

use std::fmt;
use std::hint::black_box;

use hushtable_prg::valgrind::declassify;
use rand::CryptoRng;
use thiserror::Error;

use crate::wire::RefusedReason;
pub(crate) use clip::saturate;
pub use clip::{ClipSpec, VALUE_MAX};

use lanes::Lane;
pub use spec::{AggregateSpec, ClipPer};

/// The largest term of a sum: a gradient of [`VALUE_MAX`] times a weight of [`WEIGHT_MAX`].
pub(crate) const TERM_MAX: f32 = VALUE_MAX * WEIGHT_MAX;

/// Pre- and post-aggregation, on batches.
pub trait Aggregate: fmt::Debug + Send + Sync {
    /// Its name in a spec.
    fn name(&self) -> &'static str;

    /// Bytes kept with each row of `dim` numbers between rounds; all zero at first.
    fn state_bytes(&self, dim: usize) -> usize;

    /// One user's gradients before they are added up: `gradients` of `weights.len()` rows (a slot
    /// each), and their weights n_c, 0 where a slot is padding. What is left in `weights` is added
    /// up too.
    ///
    /// # Errors
    ///
    /// [`AggregateError::Shape`], or what a foreign implementation fails with.
    fn pre(&self, gradients: &mut [f32], weights: &mut [f32]) -> Result<(), AggregateError>;

    /// Updates rows, and their state, in place.
    ///
    /// # Errors
    ///
    /// [`AggregateError::Shape`], or what a foreign implementation fails with. Rows may then be
    /// half updated: abandon the round.
    fn post(&self, batch: &mut Batch<'_>) -> Result<(), AggregateError>;

    /// Whether rows are owed noise for rounds that did not read them, which
    /// [`settle`](Self::settle) adds: so for the aggregates that are differentially private.
    fn owes_noise(&self) -> bool {
        false
    }

    /// Adds what rows are owed up to `batch.round`, before anyone is given them (sums and weights
    /// are not looked at). How much noise is drawn, and in which order, depends on the shape alone,
    /// so that from the same generator the same rows get the same noise.
    ///
    /// # Errors
    ///
    /// As [`post`](Self::post).
    fn settle(&self, batch: &mut Batch<'_>) -> Result<(), AggregateError> {
        let _ = batch;
        Ok(())
    }
}

/// Rows to be updated.
pub struct Batch<'a> {
    /// Numbers in a row; positive.
    pub dim: usize,
    /// Which round this is, from 1.
    pub round: u32,
    /// \[rows, dim\].
    pub rows: &'a mut [f32],
    /// \[rows, [`state_bytes`](Aggregate::state_bytes)\].
    pub state: &'a mut [u8],
    /// \[rows, dim\]: the gradients after [`Aggregate::pre`], added up.
    pub sums: &'a [f32],
    /// \[rows\]: the weights after [`Aggregate::pre`], added up; 0 for a row nobody sent.
    pub weights: &'a [f32],
    /// Where noise comes from. How much is drawn depends on the shape alone.
    pub noise: &'a mut dyn CryptoRng,
}

/// Shapes and no values.
impl fmt::Debug for Batch<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dim, round, weights, .. } = self;
        write!(to, "Batch {{ rows: {}, dim: {dim}, round: {round} }}", weights.len())
    }
}

impl Batch<'_> {
    /// Whether all parts have the same number of rows.
    ///
    /// # Errors
    ///
    /// [`AggregateError::Shape`].
    pub fn check(&self, state_bytes: usize) -> Result<(), AggregateError> {
        self.check_rows(state_bytes)?;
        let rows = self.rows.len() / self.dim;
        expect("sums", self.sums.len(), rows.saturating_mul(self.dim))?;
        expect("weights", self.weights.len(), rows)
    }

    /// Whether rows and state have the same number of rows.
    ///
    /// # Errors
    ///
    /// [`AggregateError::Shape`].
    pub fn check_rows(&self, state_bytes: usize) -> Result<(), AggregateError> {
        if self.dim == 0 {
            return Err(AggregateError::Shape { part: "dim", found: 0, expected: 1 });
        }
        let rows = self.rows.len() / self.dim;
        expect("rows", self.rows.len(), rows * self.dim)?;
        expect("state", self.state.len(), rows.saturating_mul(state_bytes))
    }
}

fn expect(part: &'static str, found: usize, expected: usize) -> Result<(), AggregateError> {
    if found == expected {
        return Ok(());
    }
    Err(AggregateError::Shape { part, found, expected })
}

/// The dim of `gradients`, of as many rows as there are weights; 1 where there are none.
fn rows_of(gradients: &[f32], weights: &[f32]) -> Result<usize, AggregateError> {
    let dim = gradients.len().checked_div(weights.len()).unwrap_or(0).max(1);
    expect("gradients", gradients.len(), dim * weights.len())?;
    Ok(dim)
}

/// An aggregate that cannot be, or cannot go on.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum AggregateError {
    /// A setting out of bounds.
    #[error("the aggregate's {setting} is {value}: expected {expected}")]
    Setting {
        /// Its field.
        setting: &'static str,
        /// As given.
        value: f32,
        /// What it may be.
        expected: &'static str,
    },
    /// Parts of a batch that do not fit each other.
    #[error("the batch's {part} has {found} entries: expected {expected}")]
    Shape {
        /// Which part.
        part: &'static str,
        /// Its length.
        found: usize,
        /// The length that fits the others.
        expected: usize,
    },
    /// A foreign implementation (a Python callable, say) failed.
    #[error("the aggregate {name} failed in {step}: {reason}")]
    Failed {
        /// The aggregate's name.
        name: String,
        /// `pre`, `post` or `settle`.
        step: &'static str,
        /// What it said.
        reason: String,
    },
}

/// Gradients of a user that cannot be used. The round's other users are not concerned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GradientError {
    /// Too few or too many numbers.
    #[error(
        "{found} numbers of gradients: expected {expected} ({rows} rows of {dim}), in the order \
         of the rows that were served"
    )]
    Length {
        /// As sent.
        found: usize,
        /// rows · dim.
        expected: usize,
        /// Rows that the user was served.
        rows: usize,
        /// Numbers in a row.
        dim: usize,
    },
    /// A number that is infinite or none.
    #[error(
        "number {column} of row {row} of the gradients is {kind}: expected a finite number; lower \
         the learning rate or clip on the device"
    )]
    NotFinite {
        /// Which of the user's rows.
        row: usize,
        /// Which number of it.
        column: usize,
        /// `NaN` or `infinite`.
        kind: &'static str,
    },
    /// Too few or too many weights.
    #[error("{found} weights: expected {expected}, one for each row")]
    Weights {
        /// As sent.
        found: usize,
        /// Rows that the user was served.
        expected: usize,
    },
    /// A weight that counts nothing.
    #[error(
        "the weight of row {row} of the gradients is {}: expected 0 to {WEIGHT_MAX}",
        f32::from_bits(*bits)
    )]
    Weight {
        /// Which of the user's rows.
        row: usize,
        /// The weight, as the bits of an `f32`.
        bits: u32,
    },
}

impl GradientError {
    /// What the operator is told of it.
    pub fn reason(&self) -> RefusedReason {
        match self {
            Self::Weights { .. } | Self::Weight { .. } => RefusedReason::Weight,
            Self::Length { .. } | Self::NotFinite { .. } => RefusedReason::NotFinite,
        }
    }
}

/// The largest weight of one user's row: sums of a million users stay exact enough in `f32`.
pub const WEIGHT_MAX: f32 = 16_777_216.0;

/// Whether `gradients` are `rows` rows of `dim` finite numbers. All are looked at without a branch;
/// only of bad ones is the place looked for, which the refusal tells anyhow.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn check_gradients(gradients: &[f32], dim: usize, rows: usize) -> Result<(), GradientError> {
    let (found, expected) = (gradients.len(), rows.saturating_mul(dim));
    if found != expected {
        return Err(GradientError::Length { found, expected, rows, dim });
    }
    // That an upload is refused is told, to its user and by its not being added; where all numbers are
    // finite nothing else is.
    if Lane::is_finite(gradients).declassified() {
        return Ok(());
    }
    let bad = gradients.iter().position(|value| !value.is_finite()).unwrap_or(0);
    let kind = if gradients[bad].is_nan() { "NaN" } else { "infinite" };
    Err(GradientError::NotFinite { row: bad / dim, column: bad % dim, kind })
}

/// Whether there are `rows` weights, each of 0 to [`WEIGHT_MAX`]. As [`check_gradients`] goes.
///
/// # Errors
///
/// The first thing that is wrong.
pub fn check_weights(weights: &[f32], rows: usize) -> Result<(), GradientError> {
    if weights.len() != rows {
        return Err(GradientError::Weights { found: weights.len(), expected: rows });
    }
    let is_good = |weight: &f32| (*weight >= 0.0) & (*weight <= WEIGHT_MAX);
    let bad = weights.iter().fold(0, |bad, weight| bad | u8::from(!is_good(weight)));
    // That an upload is refused is told, to its user and by its not being added.
    let mut bad = black_box(bad);
    declassify(&mut bad);
    if bad == 0 {
        return Ok(());
    }
    let row = weights.iter().position(|weight| !is_good(weight)).unwrap_or(0);
    Err(GradientError::Weight { row, bits: weights[row].to_bits() })
}
