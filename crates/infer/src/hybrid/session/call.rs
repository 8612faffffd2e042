//! What a client of hybrid inference asks of its server, and what comes back: messages without their wire.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{OwnTime, Place, Protocol};
use hushtable_mpc::Party;
use hushtable_table::Version;

use super::super::error::Error;
use super::super::terms::Terms;
use super::halves::HalvesError;

/// What a precompute is known by, to both sides: drawn by the client.
pub type PrecomputeId = [u8; 16];

/// What a server announces, each field checked by whoever read it.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Announced {
    /// The model's name.
    pub name: String,
    /// The model's version.
    pub version: Version,
    /// The plan's hash, which is that of the terms.
    pub plan: Version,
    /// The network without its weights: all that a client goes by.
    pub terms: Terms,
    /// The server's software.
    pub software: String,
    /// Whether it lets the client garble.
    pub client_garbles: bool,
    /// Whether it garbles.
    pub server_garbles: bool,
}

impl Announced {
    pub(super) fn lets_garble(&self, garbler: Party) -> bool {
        match garbler {
            Party::Client => self.client_garbles,
            Party::Server => self.server_garbles,
        }
    }
}

/// A prediction that the server has taken its half for: what carries its frames, which only the wire knows. The
/// prediction ends with the last clone.
#[derive(Clone)]
pub struct Stream(Arc<dyn Any + Send + Sync>);

impl Stream {
    /// Of what the wire has.
    pub fn new<T: Any + Send + Sync>(wire: T) -> Self {
        Self(Arc::new(wire))
    }

    /// What the wire has; none of another wire's.
    pub fn wire<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.0).downcast().ok()
    }
}

/// A call to the server. Clones share their bytes.
#[derive(Clone)]
#[non_exhaustive]
pub enum Call {
    /// What the server computes.
    Info,
    /// Opens a precompute, or finds it open.
    Begin {
        /// The plan that it is for.
        plan: Version,
        /// What it is known by.
        id: PrecomputeId,
        /// Whether the client garbles, and not the server.
        client_garbles: bool,
    },
    /// Makes a step of a precompute.
    Step {
        /// Which precompute.
        id: PrecomputeId,
        /// Which step.
        step: u32,
        /// What the protocol says.
        payload: Bytes,
    },
    /// Ends a precompute: the server keeps its half.
    Finish {
        /// Which precompute.
        id: PrecomputeId,
    },
    /// Has the server take its half of a precompute, for one prediction.
    Open {
        /// The plan.
        plan: Version,
        /// Which precompute.
        id: PrecomputeId,
    },
    /// Sends frames of a prediction, and waits for the server's next one.
    Exchange {
        /// Of which.
        stream: Stream,
        /// What the protocol says.
        frames: Vec<Bytes>,
    },
}

// What goes to and fro is masked, but nobody's to read.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "Info",
            Self::Begin { .. } => "Begin",
            Self::Step { .. } => "Step",
            Self::Finish { .. } => "Finish",
            Self::Open { .. } => "Open",
            Self::Exchange { .. } => "Exchange",
        })
    }
}

/// What a server replied to a [`Call`].
#[derive(Clone)]
#[non_exhaustive]
pub enum Reply {
    /// To [`Call::Info`].
    Info(Box<Announced>),
    /// To [`Call::Step`]: what the protocol answers.
    Step(Bytes),
    /// To [`Call::Open`].
    Opened(Stream),
    /// To [`Call::Exchange`]: what the protocol says.
    Frame(Bytes),
    /// To [`Call::Begin`] and [`Call::Finish`].
    Done,
}

/// Why a client refuses to go on. Whoever drives it knows the server's address and can say more.
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
    /// Another version than the client asks for.
    #[error("the server computes version {found}, where {expected} was expected")]
    VersionMismatch {
        /// The one asked for.
        expected: Version,
        /// The server's.
        found: Version,
    },
    /// A server that does not let the chosen side garble.
    #[error("the server does not let the {garbler:?} garble")]
    Garbler {
        /// Who was to.
        garbler: Party,
    },
    /// A network whose precomputes are larger than the client may keep.
    #[error("a precompute takes {bytes} bytes, where {bytes_max} may be kept")]
    PrecomputeBytes {
        /// Bytes of this client's half.
        bytes: u64,
        /// As many as it may keep.
        bytes_max: u64,
    },
    /// The protocol's own: an input that is none, randomness, a half that is damaged, replies that are none of the
    /// protocol's while a precompute is made.
    #[error(transparent)]
    Protocol(Box<Error>),
    /// A frame that is none of the protocol's.
    #[error("{0}")]
    Frame(Box<Error>),
    /// Halves that cannot be kept, or given.
    #[error("{0}")]
    Halves(HalvesError),
    /// Steps that wait for nothing: no step is under way, and none may begin.
    #[error("the offline phase waits for nothing")]
    Stuck,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Protocol(Box::new(error))
    }
}

/// What clients of hybrid inference ask.
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
            Call::Step { payload, .. } => payload.len() as u64,
            Call::Exchange { frames, .. } => frames.iter().map(|frame| frame.len() as u64).sum(),
            _ => 0,
        }
    }

    // A prediction takes as long as it takes: the server may be silent for as long as a call may take.
    fn own_time(call: &Call, call_max: Duration) -> Option<OwnTime> {
        let is_frame = matches!(call, Call::Exchange { .. });
        is_frame.then_some(OwnTime { whole: call_max, next: call_max })
    }

    fn is_repeatable(call: &Call) -> bool {
        !matches!(call, Call::Exchange { .. })
    }
}
