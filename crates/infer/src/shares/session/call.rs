//! What a client of predictions on shares asks of a server, and what comes back: messages without
//! their wire.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{Place, Protocol};
use hushtable_table::Version;

use super::info::{Announced, InfoDefect};
use crate::dlrm;
use crate::shares::{self, DealtBy, Half};

/// A call to one server. Clones share their bytes.
#[derive(Clone)]
#[non_exhaustive]
pub enum Call {
    /// What the server computes.
    Info,
    /// One server's part of an inference.
    Predict {
        /// The plan that it is for.
        plan: Version,
        /// What both parts of the inference are known by.
        name: [u8; 16],
        /// A lookup key for each row, feature after feature.
        keys: Vec<Bytes>,
        /// What was dealt to both servers; empty where the servers deal.
        common: Bytes,
        /// What was dealt to this one; its share of the dense features where the servers deal.
        dealt: Bytes,
        /// Bytes of the share that comes back, if all is well.
        share_bytes: usize,
    },
}

// What is dealt is secret from the other server, and from logs.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "Info",
            Self::Predict { .. } => "Predict",
        })
    }
}

/// What a server replied to a [`Call`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reply {
    /// To [`Call::Info`].
    Info(Box<Announced>),
    /// To [`Call::Predict`].
    Share(Share),
}

/// A server's share of a logit.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Share {
    /// The plan that it was computed by.
    pub plan: Version,
    /// The share.
    pub share: Bytes,
    /// How long the part waited at the server.
    pub queue: Duration,
    /// How long the server took from then on, the other one included.
    pub took: Duration,
}

// Both shares together are the logit, which is the client's alone.
impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Share").field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// Why a client refuses to go on. Whoever drives it knows the servers' addresses and can say more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A server that took too long.
    #[error("the {place} server did not answer within {} ms", after.as_millis())]
    Timeout {
        /// The server.
        place: Place,
        /// How long it was waited for.
        after: Duration,
    },
    /// A reply to another call than the one that was made.
    #[error("the {place} server answers another call than the one that was made")]
    OtherCall {
        /// The server.
        place: Place,
    },
    /// A server that announces what cannot be.
    #[error("the {place} server announces what cannot be: {defect}")]
    Info {
        /// The server.
        place: Place,
        /// What cannot be.
        defect: Box<InfoDefect>,
    },
    /// The two addresses are the wrong way round.
    #[error("the server addressed as left says that it is right, the other that it is left")]
    SidesSwapped,
    /// Both servers are of one side.
    #[error("both servers say that they are {half:?}")]
    SameSide {
        /// What both say.
        half: Half,
    },
    /// Servers of different models or plans, or of another version than the client asks for.
    #[error("the servers compute version or plan {found}, where {expected} was expected")]
    VersionMismatch {
        /// The left server's, or the version asked for.
        expected: Version,
        /// The right server's, or both servers'.
        found: Version,
    },
    /// Another dealer than the client sends anything to.
    #[error(
        "it takes what is dealt by {announced}, and this client was told to accept what is dealt \
         by {accepted} alone"
    )]
    Dealer {
        /// Who deals, as the left server says.
        announced: DealtBy,
        /// Who may.
        accepted: DealtBy,
    },
    /// Servers of one plan that announce different terms.
    #[error("its terms are not the left one's, of the same plan")]
    TermsDiffer,
    /// An answer by another plan.
    #[error("an answer by another plan than the one that was asked")]
    OtherPlan {
        /// The server.
        place: Place,
    },
    /// An answer of the wrong length.
    #[error("{found} bytes of an answer of the {place} server where {expected} were expected")]
    AnswerBytes {
        /// The server.
        place: Place,
        /// What the plan makes it.
        expected: usize,
        /// Bytes received.
        found: usize,
    },
    /// Features that the model does not have.
    #[error(transparent)]
    Dlrm(#[from] dlrm::Error),
    /// Features that cannot be dealt for, or shares that do not open.
    #[error(transparent)]
    Shares(#[from] shares::Error),
    /// Lookup keys that cannot be made.
    #[error(transparent)]
    Pir(#[from] hushtable_pir::Error),
}

/// What clients of predictions on shares ask.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "it has no value")]
pub enum SharedInference {}

impl Protocol for SharedInference {
    type Call = Call;
    type Reply = Reply;
    type Failure = Failure;

    fn timed_out(place: Place, after: Duration) -> Failure {
        Failure::Timeout { place, after }
    }

    fn sent_bytes(call: &Call) -> u64 {
        match call {
            Call::Info => 0,
            Call::Predict { keys, common, dealt, .. } => {
                let keys: usize = keys.iter().map(Bytes::len).sum();
                (keys + common.len() + dealt.len()) as u64
            }
        }
    }

    // What was dealt is sent once.
    fn is_repeatable(call: &Call) -> bool {
        match call {
            Call::Info => true,
            Call::Predict { .. } => false,
        }
    }
}
