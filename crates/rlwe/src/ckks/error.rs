//! What CKKS refuses.

use hushtable_ring::EntropyError;

/// Why parameters, values or an operation were refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A bootstrap that cannot be.
    #[error("bootstrapping: {why}")]
    Bootstrap {
        /// What is wrong and what is possible.
        why: String,
    },
    /// Bytes that are no ciphertext or key of these parameters.
    #[error("{why}")]
    Bytes {
        /// What is wrong and what was expected.
        why: String,
    },
    /// The core refused.
    #[error(transparent)]
    Core(#[from] crate::Error),
    /// The degree of a polynomial that is to come near a function.
    #[error("a polynomial of degree {found}: possible are {least} to {most}")]
    Degree {
        /// What was asked for.
        found: usize,
        /// The lowest that is possible.
        least: usize,
        /// The highest.
        most: usize,
    },
    /// The degrees of polynomials that are to make a sign.
    #[error("polynomials of degrees {found:?} for the sign: they must be odd, and at least one")]
    Degrees {
        /// What was asked for.
        found: Vec<usize>,
    },
    /// No randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// A ciphertext has too few levels left, or the operands are at different ones.
    #[error("{operation}: a ciphertext at level {found}, expected {expected}")]
    Level {
        /// What was to be done.
        operation: &'static str,
        /// The ciphertext's level.
        found: usize,
        /// The level there should be.
        expected: usize,
    },
    /// Every level is used up.
    #[error(
        "{operation}: no level is left: the circuit is deeper than the {levels} levels of {name:?}"
    )]
    Exhausted {
        /// What was to be done.
        operation: &'static str,
        /// The set's levels.
        levels: usize,
        /// The set's name.
        name: String,
    },
    /// The range of a function's arguments.
    #[error("arguments from -{range} to {range}: the range must be positive and finite")]
    Range {
        /// What was asked for.
        range: f64,
    },
    /// Scales that should be equal are not, or one does not fit the modulus.
    #[error("{operation}: a scale of 2^{found:.4}, expected 2^{expected:.4}")]
    Scale {
        /// What was to be done.
        operation: &'static str,
        /// log2 of the scale there is.
        found: f64,
        /// log2 of the scale there should be.
        expected: f64,
    },
    /// More values than slots.
    #[error("{found} values, there are {slots} slots")]
    Slots {
        /// Values given.
        found: usize,
        /// Slots there are.
        slots: usize,
    },
    /// A number that is not finite, or too large at its scale.
    #[error(
        "value {index} is {value}: it must be finite and below 2^{limit_log2:.1} in absolute value"
    )]
    Value {
        /// Which value.
        index: usize,
        /// The value.
        value: f64,
        /// log2 of the first absolute value that is too large.
        limit_log2: f64,
    },
    /// There is no key for this operation, or only for lower levels.
    #[error("{operation} at level {level}: the keys have none for it")]
    MissingKey {
        /// What was to be done.
        operation: &'static str,
        /// The ciphertext's level.
        level: usize,
    },
    /// The keys do not have this rotation.
    #[error("the keys have no rotation by {steps} slots")]
    MissingRotation {
        /// Slots to the left.
        steps: usize,
    },
    /// A parameter set that cannot be used.
    #[error("the set {name:?}: {why}")]
    Parameters {
        /// The set's name.
        name: String,
        /// What is wrong and what is possible.
        why: String,
    },
}
