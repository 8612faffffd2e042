//! What can go wrong with hybrid inference alone, and what to do about it.

use super::machines::Error as MachineError;
use super::refusal::Garbler;
use crate::error::{Error, Own};

/// An error of hybrid inference's servers and clients.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HybridError {
    /// A server that lets no side garble.
    #[error(
        "neither client_garbles nor server_garbles is set: somebody must garble the circuits, so allow \
         one of them"
    )]
    NoGarbler,
    /// A server that does not let the chosen side garble.
    #[error("{url} does not let the {garbler} garble: choose the other side (garbler=, --garbler)")]
    GarblerRefused {
        /// The server.
        url: String,
        /// Who was to garble.
        garbler: Garbler,
    },
    /// A network whose precomputes are larger than the client keeps.
    #[error(
        "a precompute for {url} takes {bytes} bytes at this client, which keeps at most {bytes_max}: raise \
         the limit (store_bytes_max=, --store-bytes-max), or have the other side garble"
    )]
    PrecomputeBytes {
        /// The server.
        url: String,
        /// Bytes of one precompute.
        bytes: u64,
        /// The client's bound.
        bytes_max: u64,
    },
    /// Precomputes that cannot be kept or read.
    #[error("precomputes cannot be kept: {reason}")]
    Precomputes {
        /// Why.
        reason: String,
    },
}

impl HybridError {
    /// Of what keeps precomputes.
    pub(super) fn of_keep(error: impl std::fmt::Display) -> Error {
        Self::Precomputes { reason: error.to_string() }.into()
    }
}

impl Own for HybridError {}
impl Own for MachineError {}
