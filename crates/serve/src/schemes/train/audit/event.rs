//! What is written into an audit log.

use serde::Serialize;

/// Something that happened to a server of rounds. It says what the operator knows anyway: places, not
/// identities, and no ids, rows or keys.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(in super::super) enum Event {
    /// The server has opened the memory.
    Started { software: &'static str, pin: String, rounds: u64 },
    /// The server has ended in order.
    Stopped { rounds: u64 },
    /// What a crash left of a line was cut off.
    Cut { bytes: u64 },
    /// A round takes requests.
    Opened {
        #[serde(serialize_with = "as_text")]
        round: u64,
        users: usize,
        users_min: usize,
        request_ms: Option<u64>,
        upload_ms: Option<u64>,
    },
    /// A user's message is not taken.
    Refused {
        #[serde(serialize_with = "as_text")]
        round: u64,
        user: u32,
        what: &'static str,
        reason: &'static str,
    },
    /// The memory has fetched the rows of the users that came.
    Begun {
        #[serde(serialize_with = "as_text")]
        round: u64,
        requested: usize,
        accesses: Option<u64>,
    },
    /// A round is over.
    Over {
        #[serde(serialize_with = "as_text")]
        round: u64,
        outcome: String,
        /// Messages that were refused, those past the first [`REFUSED_MAX`] included.
        refused: u64,
        #[serde(flatten)]
        report: Option<Committed>,
    },
}

/// The counts of a committed round.
#[derive(Clone, Debug, Serialize)]
pub(in super::super) struct Committed {
    pub rounds: u64,
    pub users: usize,
    pub requested: usize,
    pub uploaded: usize,
    pub accesses: u64,
}

/// Refused messages of one round that get a line each. Who sends rubbish must not fill the disk.
pub(in super::super) const REFUSED_MAX: u64 = 1000;

/// A round's number is random: many readers of JSON would round it.
fn as_text<S: serde::Serializer>(round: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(round)
}
