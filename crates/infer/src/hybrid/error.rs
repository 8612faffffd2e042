//! What hybrid inference refuses.

use hushtable_mpc::{EntropyError, garble, ot, share};

use super::{linear, network};
use crate::records::RecordError;

/// Why a network, a step, a frame or a precompute was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A network or its description.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// The linear layers.
    #[error(transparent)]
    Linear(#[from] linear::Error),
    /// The garbled circuits.
    #[error(transparent)]
    Garble(#[from] garble::Error),
    /// The oblivious transfer.
    #[error(transparent)]
    Ot(#[from] ot::Error),
    /// The shares.
    #[error(transparent)]
    Share(#[from] share::PackError),
    /// What is kept of a precompute.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// No randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// A step that there is not.
    #[error("there is no step {step}: precomputes of this plan have {steps}")]
    NoStep {
        /// Which was asked for.
        step: u32,
        /// How many there are.
        steps: u32,
    },
    /// A step or a frame before what it needs, or after the end.
    #[error("{what} out of order: {why}")]
    Order {
        /// Which step or frame.
        what: String,
        /// What must come first.
        why: &'static str,
    },
    /// A step that was made before, with other bytes.
    #[error("step {step} was made before with other bytes: a step is only repeated as it was")]
    Changed {
        /// Which.
        step: u32,
    },
    /// Bytes of another length.
    #[error("{what} has {found} bytes, not {expected}")]
    Bytes {
        /// Of what.
        what: &'static str,
        /// As many as it has by the plan.
        expected: usize,
        /// As many as came.
        found: usize,
    },
    /// An input of another size.
    #[error("the input has {found} numbers; the network takes {expected}")]
    Input {
        /// As many as the network takes.
        expected: usize,
        /// As many as were given.
        found: usize,
    },
}
