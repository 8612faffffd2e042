//! Why a server refuses a call of predictions on shares: `shares.proto` lists the reasons.

use std::time::Duration;

use hushtable_infer::shares::Error;
use hushtable_infer::shares::exchange::{AskError, Failure};
use hushtable_infer::shares::joint::PrecomputeError;

use crate::refusal::{Limit, Listed, Refusal, Tables};
use crate::refusals;

refusals! {
    /// Why a server refused a call of predictions on shares.
    pub enum SharesRefusal {
        /// A part of an inference that is none of the model's.
        #[error("the part of the inference is not usable: {message}")]
        BadPart = InvalidArgument "BAD_PART" {
            /// The server's explanation.
            message: String,
        },
        /// A name that another inference has.
        #[error("an inference of this name is under way: each has a name of its own")]
        SameName = InvalidArgument "SAME_NAME",
        /// A plan that the server does not compute by.
        #[error("the server computes by plan {expected}, the request is for {found}: connect again")]
        OtherPlan = FailedPrecondition "SHARES_PLAN" {
            /// The server's plan.
            expected: hushtable_table::Version,
            /// The request's plan.
            found: hushtable_table::Version,
        },
        /// Somebody who is not the other server.
        #[error("the other server's certificate is for {name}, yours is not: clients have no use for this")]
        NotThePeer = PermissionDenied "NOT_THE_PEER" {
            /// The name that the certificate must have.
            name: String,
        },
        /// Two servers that do not go together.
        #[error("the servers do not go together: {message}")]
        PeerMismatch = FailedPrecondition "PEER_MISMATCH" {
            /// Why not.
            message: String,
        },
        /// No session with the other server.
        #[error("the server is not connected to the other one: ask again")]
        NoPeer = Unavailable "NO_PEER",
        /// The servers have dealt for no more inferences.
        #[error(
            "the servers have dealt for no more inferences yet: ask again in {} ms",
            retry_after.as_millis()
        )]
        Dry = ResourceExhausted "NO_PRECOMPUTE" {
            /// About when there is one.
            retry_after: std::time::Duration,
        },
        /// The session ended meanwhile.
        #[error("the servers lost each other meanwhile: deal anew and ask again")]
        PeerLost = Unavailable "PEER_LOST",
        /// The other server has no part of the inference.
        #[error("the other server got no part of this inference within {after_ms} ms: send both at once")]
        PeerAbsent = DeadlineExceeded "PEER_ABSENT" {
            /// How long it was waited for, in milliseconds.
            after_ms: u64,
        },
        /// The other server fell silent.
        #[error("the other server said nothing of this inference for {after_ms} ms")]
        PeerSilent = DeadlineExceeded "PEER_SILENT" {
            /// How long, in milliseconds.
            after_ms: u64,
        },
        /// The other server gave the inference up.
        #[error("the inference was given up: {message}")]
        GivenUp = Aborted "GIVEN_UP" {
            /// Why, as far as it is known here.
            message: String,
        },
    }
}

/// What its servers may refuse by, beside what any server may.
pub(super) const REFUSALS: Tables = &[Listed::of::<SharesRefusal>()];

impl SharesRefusal {
    /// Whether the same inference, dealt anew, may well be answered.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::NoPeer | Self::PeerLost | Self::GivenUp { .. } | Self::SameName => true,
            Self::PeerAbsent { .. } | Self::PeerSilent { .. } | Self::Dry { .. } => true,
            Self::BadPart { .. }
            | Self::OtherPlan { .. }
            | Self::NotThePeer { .. }
            | Self::PeerMismatch { .. } => false,
        }
    }
}

pub(super) fn of_question(error: AskError) -> Refusal {
    match error {
        AskError::Busy { .. } => Refusal::Busy { limit: Limit::Predictions, retry_after: RETRY },
        // Left took one that this server has no longer, as after a restart: the next one does.
        AskError::Question(Error::Precompute(PrecomputeError::Missing)) => dry().into(),
        AskError::SameName => SharesRefusal::SameName.into(),
        error => bad_part(error.to_string()),
    }
}

pub(super) fn bad_part(message: String) -> Refusal {
    SharesRefusal::BadPart { message }.into()
}

pub(super) fn of_failure(failure: &Failure) -> Refusal {
    let ms = |after: &Duration| after.as_millis() as u64;
    match failure {
        Failure::Absent { after } => SharesRefusal::PeerAbsent { after_ms: ms(after) },
        Failure::Silent { after } => SharesRefusal::PeerSilent { after_ms: ms(after) },
        Failure::Lost => SharesRefusal::PeerLost,
        Failure::Dry => dry(),
        other => SharesRefusal::GivenUp { message: other.to_string() },
    }
    .into()
}

pub(super) fn dry() -> SharesRefusal {
    SharesRefusal::Dry { retry_after: DRY }
}

/// About what servers take to deal for some inferences.
const DRY: Duration = Duration::from_millis(250);
/// About what a full server takes to have room for another.
const RETRY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    /// As where both agree anew just then: a client that was told of a bad part would give up.
    #[test]
    fn a_precompute_that_is_gone_is_no_fault_of_the_clients() {
        let refusal = of_question(AskError::Question(PrecomputeError::Missing.into()));
        let Some(refusal) = refusal.of::<SharesRefusal>() else { panic!("{refusal:?}") };
        assert!(matches!(refusal, SharesRefusal::Dry { .. }) && refusal.is_passing());
        let other = of_question(AskError::Question(PrecomputeError::Half.into()));
        assert!(matches!(other.of(), Some(SharesRefusal::BadPart { .. })));
    }
}
