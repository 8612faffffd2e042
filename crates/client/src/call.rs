//! A scheme's calls, as whoever drives machines sees them, and what comes of one.

use std::fmt;
use std::time::Duration;

use super::Place;

/// A call's number, of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(pub(crate) u64);

/// What a scheme's clients ask, and what comes back: messages without their wire.
pub trait Protocol: 'static {
    /// A call to one server. Clones share their bytes.
    type Call: Clone + fmt::Debug + Send;
    /// What a server replies to one.
    type Reply: Send;
    /// Why a client of the scheme refuses to go on.
    type Failure: Send;

    /// The failure of a server that was waited for that long.
    fn timed_out(place: Place, after: Duration) -> Self::Failure;

    /// Bytes of keys and queries in a call.
    fn sent_bytes(_: &Self::Call) -> u64 {
        0
    }

    /// The time of a call that may take longer than an operation, where any other call may take `call_max`.
    /// The operation's own time stands still meanwhile.
    fn own_time(_: &Self::Call, _call_max: Duration) -> Option<OwnTime> {
        None
    }

    /// A call as it is sent so long after its operation began: a call that says how long it may be held says what
    /// is left of that.
    fn at(call: &Self::Call, _elapsed: Duration) -> Self::Call {
        call.clone()
    }

    /// Whether a call may be made again as it is, at a busy server or over a new connection. What may be sent
    /// once is made anew by what asks it ([`Ask::again`](super::Ask::again)).
    fn is_repeatable(_: &Self::Call) -> bool {
        true
    }

    /// Takes one reply to a call. `None` where more replies to the same call follow, of which `gathered` keeps
    /// what has come.
    fn gather(
        _: &Self::Call,
        _: Place,
        _gathered: &mut Vec<u8>,
        reply: Self::Reply,
    ) -> Option<Result<Self::Reply, Self::Failure>> {
        Some(Ok(reply))
    }

    /// What changes with the newest of what the server holds; `None` of a reply that does not say.
    fn state(_: &Self::Reply) -> Option<u64> {
        None
    }
}

/// How long a call may take that has a time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct OwnTime {
    /// All of it.
    pub whole: Duration,
    /// The next reply, after the call or the reply before.
    pub next: Duration,
}

/// Why an operation ended without what was asked for: `F` is the scheme's failure, `E` the error of whoever
/// makes the calls.
#[derive(Debug, thiserror::Error)]
#[allow(clippy::exhaustive_enums, reason = "a call failed, or the client refuses")]
pub enum Error<F, E> {
    /// A call failed for good.
    #[error("{place}: {error}")]
    Call {
        /// The server.
        place: Place,
        /// What the client made of it.
        fault: CallFault,
        /// The error that the call ended with.
        error: E,
    },
    /// The client refuses, before or after a call.
    #[error(transparent)]
    Failure(#[from] F),
}

/// A call that failed: what a client makes of it, and the error of whoever made the call.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct CallError<E> {
    /// What the client goes by.
    pub fault: CallFault,
    /// What the caller is told, where the client does not go on.
    pub error: E,
}

/// What a client makes of a call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallFault {
    /// The server is busy: the same call may be made again after this time.
    Busy {
        /// The server's hint.
        retry_after: Duration,
    },
    /// The server holds something else by now than what it was asked for.
    Changed {
        /// The version that it holds, where it said so.
        found: Option<[u8; 32]>,
    },
    /// The server waits for others: the same call may be made again after this time.
    Pending {
        /// The server's hint.
        retry_after: Duration,
    },
    /// The server does not hold the client's evaluation keys.
    UnknownKeys,
    /// The server has lost, or dropped, what was prepared for the call: it may be prepared anew.
    Gone,
    /// The server is about to end: another of its side may be asked, or itself when it has come back.
    Draining,
    /// There is no connection, or it was lost before the reply.
    Unreachable,
    /// Anything else: the client gives up.
    Other,
}
