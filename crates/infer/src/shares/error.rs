//! What predictions on shares refuse.

use hushtable_mpc::EntropyError;
use hushtable_mpc::compare::WordsError;
use hushtable_mpc::share::PackError;

/// Why a model, features or bytes were refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// Comparison keys of another length.
    #[error(transparent)]
    Words(#[from] WordsError),
    /// A message of the other server that is not as long as it must be.
    #[error("the other server's message: {0}")]
    Packed(#[from] PackError),
    /// The model, or a row of it, is wrong in itself.
    #[error(transparent)]
    Dlrm(#[from] crate::dlrm::Error),
    /// A model that is not computed on shares.
    #[error("the model's {field} is {found}; on shares it can be {possible}")]
    Unsupported {
        /// Which entry.
        field: &'static str,
        /// What it is.
        found: String,
        /// What it may be.
        possible: &'static str,
    },
    /// A plan that says what cannot be, or is none.
    #[error("the plan's {field}: {why}; compile the model again")]
    Plan {
        /// Which entry.
        field: String,
        /// What is wrong with it.
        why: String,
    },
    /// Weights of another model than the plan's.
    #[error(
        "the weights have {found} {what}, the plan's model has {expected}: compile the model again"
    )]
    Weights {
        /// What was counted.
        what: String,
        /// How many the plan's model has.
        expected: usize,
        /// How many the weights have.
        found: usize,
    },
    /// A layer's sums do not fit.
    #[error(
        "{layer} reaches {range:.3} in the calibration data: with {fraction_bits} bits after the point its sums \
         leave {weight_bits} bits for its weights, and {weight_bits_min} are needed. Scale the layer down, \
         or take fewer bits after the point"
    )]
    Range {
        /// Which layer.
        layer: String,
        /// The largest absolute value.
        range: f64,
        /// Bits after the point of activations.
        fraction_bits: u32,
        /// Bits that are left.
        weight_bits: i64,
        /// Bits that a layer needs.
        weight_bits_min: u32,
    },
    /// A layer that no calibration data reached.
    #[error("no sample says how large the values of {layer} become: calibrate with one or more")]
    Uncalibrated {
        /// Which layer.
        layer: String,
    },
    /// Too few or too many of something.
    #[error("{found} {what}, where the model has {expected}")]
    Count {
        /// What was counted.
        what: &'static str,
        /// How many there must be.
        expected: usize,
        /// How many there were.
        found: usize,
    },
    /// A dense feature that is no number of the model's.
    #[error(
        "dense feature {index} of user {user} is {value}: it must be a number between ±{limit}"
    )]
    Feature {
        /// Whose: 0 where there is one alone.
        user: usize,
        /// Which.
        index: usize,
        /// What it was.
        value: f64,
        /// How large it may be.
        limit: f64,
    },
    /// Bytes of another length.
    #[error(
        "{what} of {found} bytes, where the model needs {expected}: it is of another model, or cut"
    )]
    Bytes {
        /// What they are.
        what: &'static str,
        /// Bytes that there must be.
        expected: usize,
        /// Bytes that there were.
        found: usize,
    },
    /// What the servers dealt is not for this inference.
    #[error(transparent)]
    Precompute(#[from] PrecomputeError),
    /// A message after the last.
    #[error("a message came after the answer")]
    Finished,
}

/// Why a precompute is not for an inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrecomputeError {
    /// Bytes that are none.
    #[error("a precompute of {found} bytes or of another version cannot be read: discard it")]
    Format {
        /// Bytes that there were.
        found: usize,
    },
    /// There is none.
    #[error("there is no precompute of this id, or it was used")]
    Missing,
    /// Of another id than was asked for.
    #[error("the precompute is of another id than was asked for")]
    Id,
    /// Of the other server.
    #[error("the precompute is the other server's half: each keeps its own")]
    Half,
    /// Of another model.
    #[error("the precompute was made for another model: discard it and make new ones")]
    Outline,
}
