//! What dealing by the servers refuses.

use hushtable_mpc::EntropyError;
use hushtable_mpc::compare::joint::MakingError;
use hushtable_mpc::ot;

use crate::shares::Error;

/// Most bits of an activation that servers deal for: 2^16 nodes a gate.
pub const GATE_BITS_MAX: u32 = 24;
/// Most inferences that are dealt for at once.
pub const BATCH_MAX: usize = 64;

/// Why two servers cannot deal, or stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DealError {
    /// No randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// An outline that no model has.
    #[error(transparent)]
    Outline(Box<Error>),
    /// Gates of numbers that are too wide.
    #[error(
        "step {step} has activations of {bits} bits, and servers deal for at most {GATE_BITS_MAX}: the work doubles \
         with each. Compile the model with {} fewer bits after the point, or let clients deal", bits - GATE_BITS_MAX
    )]
    Wide {
        /// Which step.
        step: usize,
        /// Bits of its values.
        bits: u32,
    },
    /// None at once, or too many.
    #[error("{found} inferences were to be dealt for at once: it can be 1 to {BATCH_MAX}")]
    Batch {
        /// How many.
        found: usize,
    },
    /// The other server deals something else.
    #[error(
        "the other server deals for another model, another count of inferences or the same side: one must be left and one \
         right, of one model, and begin together"
    )]
    Terms,
    /// A message of another length.
    #[error(
        "a message of {found} bytes of the other server, where {expected} are due: it was cut, or is of another version"
    )]
    Bytes {
        /// Bytes that there must be.
        expected: usize,
        /// Bytes that there were.
        found: usize,
    },
    /// A transfer's message that cannot be used.
    #[error(transparent)]
    Transfer(#[from] ot::Error),
    /// A correction word's message that cannot be used.
    #[error(transparent)]
    Making(#[from] MakingError),
    /// The two did not make the same.
    #[error(
        "the two servers have made different comparison keys: a message was changed on its way, or one of them is broken; \
         all of it is dropped"
    )]
    Disagree,
    /// A call out of turn, or after the end.
    #[error("this session of dealing is over, or was not asked for what came")]
    Turn,
}

/// Takes so many bytes off the front of a message.
pub(super) fn taken<'a>(from: &mut &'a [u8], count: usize) -> Result<&'a [u8], DealError> {
    let cut = DealError::Bytes { expected: count, found: from.len() };
    let (taken, rest) = from.split_at_checked(count).ok_or(cut)?;
    *from = rest;
    Ok(taken)
}
