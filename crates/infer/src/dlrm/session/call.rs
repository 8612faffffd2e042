//! What a client of encrypted inference asks of a server, and what comes back: messages without their wire.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{OwnTime, Place, Protocol};
use hushtable_table::Version;

use super::info::{Announced, InfoDefect};
use crate::dlrm::{Client, Error};

/// Told the bytes of keys that are uploaded, and all of them.
pub type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// A call to one server. Clones share their bytes.
#[derive(Clone)]
#[non_exhaustive]
pub enum Call {
    /// What the server computes.
    Info,
    /// Whether it has the keys.
    HaveKeys {
        /// The plan that they are for.
        plan: Version,
        /// What it knows them by.
        key_id: [u8; 32],
    },
    /// The upload of a client's keys.
    UploadKeys {
        /// The plan that they are for.
        plan: Version,
        /// Bytes of all of them.
        bytes: u64,
        /// Who has them.
        client: Arc<Client>,
        /// How long it may take.
        within: Duration,
        /// Who is told how far it is.
        progress: Option<Progress>,
    },
    /// An answer to an encrypted query.
    Predict {
        /// The plan that it is for.
        plan: Version,
        /// Whose keys it is under.
        key_id: [u8; 32],
        /// The query.
        query: Bytes,
        /// Bytes of the answer, if all is well.
        answer_bytes: usize,
    },
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "Info",
            Self::HaveKeys { .. } => "HaveKeys",
            Self::UploadKeys { .. } => "UploadKeys",
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
    /// To [`Call::HaveKeys`].
    KeysHeld(bool),
    /// To [`Call::UploadKeys`]: what the server knows the keys by.
    KeysKept([u8; 32]),
    /// To [`Call::Predict`].
    Answer(Answer),
}

/// A server's answer to a query.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Answer {
    /// The plan that it was computed by.
    pub plan: Version,
    /// The encrypted logits.
    pub answer: Bytes,
    /// How long the query waited at the server.
    pub queue: Duration,
    /// How long it was computed on.
    pub took: Duration,
}

/// Why a client refuses to go on. Whoever drives it knows the servers' addresses and can say more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A server that took too long.
    #[error("the server did not answer within {} ms", after.as_millis())]
    Timeout {
        /// How long it was waited for.
        after: Duration,
    },
    /// A reply to another call than the one that was made.
    #[error("the server answers another call than the one that was made")]
    OtherCall,
    /// A server that announces what cannot be.
    #[error("the server announces what cannot be: {0}")]
    Info(#[from] InfoDefect),
    /// Another model or plan than the one that the client asks for, or than its keys are for.
    #[error(
        "the server computes version {found} of the model by another plan than the one for {expected}"
    )]
    VersionMismatch {
        /// The version asked for.
        expected: Version,
        /// The server's.
        found: Version,
    },
    /// A plan whose keys are larger than the client makes.
    #[error("keys of {bytes} bytes, over {bytes_max}")]
    KeyBytes {
        /// Bytes of the plan's keys.
        bytes: u64,
        /// The client's bound.
        bytes_max: u64,
    },
    /// An upload known by another id than what it hashes to.
    #[error("the uploaded keys got another id than they have")]
    KeyId,
    /// An answer by another plan.
    #[error("an answer by another plan than the one that was asked")]
    OtherPlan,
    /// An answer of the wrong length.
    #[error("{found} bytes of an answer where {expected} were expected")]
    AnswerBytes {
        /// What the plan makes it.
        expected: usize,
        /// Bytes received.
        found: usize,
    },
    /// Features that the model does not take, or an answer that does not open.
    #[error(transparent)]
    Dlrm(#[from] Error),
}

/// What clients of encrypted inference ask.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "it has no value")]
pub enum Inference {}

impl Protocol for Inference {
    type Call = Call;
    type Reply = Reply;
    type Failure = Failure;

    fn timed_out(_: Place, after: Duration) -> Failure {
        Failure::Timeout { after }
    }

    fn sent_bytes(call: &Call) -> u64 {
        match call {
            Call::UploadKeys { bytes, .. } => *bytes,
            Call::Predict { query, .. } => query.len() as u64,
            Call::Info | Call::HaveKeys { .. } => 0,
        }
    }

    fn own_time(call: &Call, _: Duration) -> Option<OwnTime> {
        let &Call::UploadKeys { within, .. } = call else { return None };
        Some(OwnTime { whole: within, next: within })
    }
}
