//! Why a server refuses a call of hybrid inference: `hybrid.proto` lists the reasons.

use super::keep::KeepError;
use super::machines::{Error as MachineError, LinearError, Party};
use crate::refusal::Listed;
use crate::refusal::Tables;
use crate::refusal::words;
use crate::{Limit, Refusal, refusals};

refusals! {
    /// Why a server refused a call of hybrid inference.
    pub enum HybridRefusal {
        /// An id of another length.
        #[error("a precompute's id has 16 bytes, this one {bytes}")]
        BadPrecomputeId = InvalidArgument "BAD_PRECOMPUTE_ID" {
            /// Bytes received.
            bytes: usize,
        },
        /// A step's or a frame's bytes that are not those that the terms ask for.
        #[error("the step or frame is not usable ({defect}): {message}")]
        BadStep = InvalidArgument "BAD_STEP" {
            /// What is wrong with it.
            defect: StepDefect,
            /// The server's explanation.
            message: String,
        },
        /// A precompute that there is not, or not any more.
        #[error("the server has no such precompute: it was used, dropped or never made; take another")]
        UnknownPrecompute = NotFound "UNKNOWN_PRECOMPUTE",
        /// A precompute that cannot be read.
        #[error("the server's half of the precompute is damaged, and dropped: take another")]
        DamagedPrecompute = DataLoss "DAMAGED_PRECOMPUTE",
        /// A precompute for another plan.
        #[error("the server computes by plan {expected}, the request is for {found}: connect again")]
        OtherPlan = FailedPrecondition "OTHER_PLAN" {
            /// The server's plan.
            expected: hushtable_table::Version,
            /// The request's plan.
            found: hushtable_table::Version,
        },
        /// A side that may not garble here.
        #[error("this server does not let the {garbler} garble: have the other side do so")]
        OtherGarbler = FailedPrecondition "GARBLER" {
            /// Who was to garble.
            garbler: Garbler,
        },
        /// A precompute that is larger than all that the server keeps.
        #[error(
            "a precompute takes {bytes} bytes at the server, which keeps {bytes_max} at most: its operator \
             raises store_bytes_max"
        )]
        PrecomputeBudget = ResourceExhausted "PRECOMPUTE_BUDGET" {
            /// Bytes of one precompute.
            bytes: u64,
            /// Bytes that the server keeps.
            bytes_max: u64,
        },
        /// More precomputes than a client may begin in a day.
        #[error(
            "this client has begun {per_day} precomputes, which is all that it may in a day: its operator raises \
             precomputes_per_client_per_day"
        )]
        PrecomputeAllowance = ResourceExhausted "PRECOMPUTE_ALLOWANCE" {
            /// Precomputes that a client may begin.
            per_day: u64,
        },
    }
}

/// What its servers may refuse by, beside what any server may.
pub(super) const REFUSALS: Tables = &[Listed::of::<HybridRefusal>()];

words! {
    /// What is wrong with a step or a frame.
    pub enum StepDefect {
        /// A step that was made before with other bytes.
        Changed = "changed",
        /// Too few or too many bytes.
        Length = "length",
        /// Before what it needs, or after the end.
        Order = "order",
        /// Uploads that are not proven to be encryptions of numbers, of a plan that asks for the proof.
        Unproven = "unproven",
        /// Numbers that the protocol does not have, or anything newer than this version.
        Other = "other",
    }
    or Other
}

words! {
    /// Who garbles the circuits.
    pub enum Garbler {
        /// The client: it keeps little, and sends the circuits.
        Client = "client",
        /// The server: the client keeps the circuits.
        Server = "server",
    }
}

impl Garbler {
    pub(super) fn party(self) -> Party {
        match self {
            Self::Client => Party::Client,
            Self::Server => Party::Server,
        }
    }

    pub(super) fn of_client(client_garbles: bool) -> Self {
        if client_garbles { Self::Client } else { Self::Server }
    }
}

/// The refusal of a step or a frame for what was found in it; what is the server's own fault is logged.
pub(super) fn of_step(error: &MachineError) -> Refusal {
    let defect = match error {
        // The step is made again: it is kept once there is room.
        MachineError::Record(full) if full.is_full() => {
            tracing::warn!(%error, "no precompute is kept until there is room");
            return Refusal::Busy { limit: Limit::Precomputes, retry_after: FULL_RETRY };
        }
        MachineError::Changed { .. } => StepDefect::Changed,
        MachineError::Bytes { .. } => StepDefect::Length,
        MachineError::Order { .. } | MachineError::NoStep { .. } => StepDefect::Order,
        MachineError::Linear(found) if found.is_unproven() => {
            // Of a proof that does not hold, which ends a precompute, and not of calls that come before one.
            if matches!(found, LinearError::Encryption(_)) {
                tracing::warn!(%error, "a client's uploads were refused");
            }
            StepDefect::Unproven
        }
        MachineError::Record(_) | MachineError::Entropy { .. } => {
            tracing::error!(%error, "a precompute failed");
            return Refusal::Backend;
        }
        _ => StepDefect::Other,
    };
    HybridRefusal::BadStep { defect, message: error.to_string() }.into()
}

/// The refusal of a precompute that cannot be begun, kept or taken.
pub(super) fn of_keep(error: KeepError) -> Refusal {
    match error {
        KeepError::Budget { bytes, bytes_max } => {
            HybridRefusal::PrecomputeBudget { bytes, bytes_max }.into()
        }
        KeepError::Full => Refusal::Busy { limit: Limit::Precomputes, retry_after: FULL_RETRY },
        KeepError::Damaged(error) => {
            tracing::error!(%error, "a precompute was damaged, and is dropped");
            HybridRefusal::DamagedPrecompute.into()
        }
        KeepError::Medium(error) => {
            tracing::error!(%error, "precomputes cannot be kept");
            Refusal::Backend
        }
    }
}

/// A precompute takes minutes.
const FULL_RETRY: std::time::Duration = std::time::Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::io::{self, ErrorKind};

    use super::super::machines::{RecordError, StoreError};
    use super::*;

    /// What comes of a disk that says this, as a precompute is begun, as a step is kept, and as it is ended.
    fn said(kind: ErrorKind) -> [Refusal; 3] {
        let source = || io::Error::from(kind);
        let record = || RecordError::Io { path: "ID.data".into(), source: source() };
        let begun = StoreError::Io { path: "ID.head".into(), source: source() };
        [
            of_keep(begun.into()),
            of_step(&MachineError::Record(record())),
            of_keep(StoreError::Record(record()).into()),
        ]
    }

    #[test]
    fn uploads_that_are_not_proven_are_said_to_be() {
        let unproven = MachineError::Linear(LinearError::Unproven { batch: 1 });
        let found = of_step(&unproven);
        let Some(HybridRefusal::BadStep { defect, message }) = found.of() else {
            panic!("{found:?}")
        };
        assert_eq!(*defect, StepDefect::Unproven);
        assert!(message.contains("batch 1 are not proven"), "{message}");
    }

    #[test]
    fn a_full_disk_is_no_room_and_any_other_fault_the_servers_own() {
        for full in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            for refusal in said(full) {
                let Refusal::Busy { limit: Limit::Precomputes, retry_after } = refusal else {
                    panic!("{full:?}: {refusal}")
                };
                assert_eq!(retry_after, FULL_RETRY);
            }
        }
        let [begun, step, _] = said(ErrorKind::PermissionDenied);
        assert!(matches!((begun, step), (Refusal::Backend, Refusal::Backend)));
    }
}
