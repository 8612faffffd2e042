//! What a client asks of a server, and what comes back: messages without their wire.

use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{OwnTime, Place, Protocol};
use hushtable_table::Version;

use super::{AnnouncedCatalog, AnnouncedOnion, AnnouncedTable, Failure, ReplyDefect};
use crate::onion::KeyId;

/// A call to one server. Clones share their bytes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Call {
    /// What a server of a pair holds and accepts.
    TableInfo {
        /// Which table; `None` for the only one.
        version: Option<Version>,
    },
    /// A layout, in chunks.
    Layout {
        /// Which.
        version: Version,
        /// Bytes of it, as announced: whoever makes the call need not read more.
        bytes: u64,
    },
    /// Answers to keys.
    Answer {
        /// The table's version.
        version: Version,
        /// The keys.
        keys: Vec<Bytes>,
        /// Bytes of the answers, if all is well.
        answer_bytes: usize,
    },
    /// Answers to the keys of one inference by a layout.
    AnswerBags {
        /// The layout's version.
        version: Version,
        /// The keys.
        keys: Bytes,
        /// Bytes of the answers, if all is well.
        answer_bytes: usize,
    },
    /// All tables and models of a server of a pair.
    Catalog,
    /// Answers to the keys of one inference of a model.
    AnswerModel {
        /// The model's version.
        version: Version,
        /// Each feature's keys, in the manifest's order.
        parts: Vec<Bytes>,
        /// Bytes of the answers, if all is well.
        answer_bytes: usize,
    },
    /// What a server that is asked alone holds and accepts.
    OnionInfo {
        /// Which table; `None` for the only one.
        version: Option<Version>,
    },
    /// The upload of a client's evaluation keys.
    PutKeys {
        /// The keys.
        keys: Bytes,
    },
    /// Responses to encrypted queries.
    OnionAnswer {
        /// The table's version.
        version: Version,
        /// Whose keys the queries are under.
        key_id: KeyId,
        /// The queries.
        queries: Vec<Bytes>,
        /// Bytes of the responses, if all is well.
        response_bytes: usize,
    },
}

/// What a server replied to a [`Call`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reply {
    /// To [`Call::TableInfo`].
    TableInfo(Box<AnnouncedTable>),
    /// To [`Call::Catalog`].
    Catalog(Box<AnnouncedCatalog>),
    /// To [`Call::Layout`]: its next bytes. More replies to the same call follow.
    LayoutChunk(Bytes),
    /// To [`Call::Layout`]: there are no more chunks.
    LayoutEnd,
    /// To calls for answers.
    Answers(Answers),
    /// To [`Call::OnionInfo`].
    OnionInfo(Box<AnnouncedOnion>),
    /// To [`Call::PutKeys`]: what the server knows the keys by.
    KeysKept(KeyId),
    /// A layout whose chunks have all come.
    #[doc(hidden)]
    Layout(Vec<u8>),
}

/// Answers of one server.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Answers {
    /// The version of what they come from.
    pub version: Version,
    /// Their bytes.
    pub answers: Bytes,
    /// How long the request waited at the server.
    pub queue: Duration,
    /// How long its passes took.
    pub answer: Duration,
    /// What changes with the newest of what the server holds; `None` of a server that does not say.
    pub state: Option<u64>,
}

/// What clients of private retrieval ask, from two servers and from one.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "it has no value")]
pub enum Retrieval {}

impl Protocol for Retrieval {
    type Call = Call;
    type Reply = Reply;
    type Failure = Failure;

    fn timed_out(place: Place, after: Duration) -> Failure {
        Failure::Timeout { place, after }
    }

    fn sent_bytes(call: &Call) -> u64 {
        let all = |parts: &[Bytes]| parts.iter().map(|part| part.len() as u64).sum();
        match call {
            Call::Answer { keys, .. } => all(keys),
            Call::AnswerBags { keys, .. } | Call::PutKeys { keys } => keys.len() as u64,
            Call::OnionAnswer { queries, .. } => all(queries),
            Call::AnswerModel { parts, .. } => all(parts),
            Call::Catalog
            | Call::TableInfo { .. }
            | Call::Layout { .. }
            | Call::OnionInfo { .. } => 0,
        }
    }

    fn own_time(call: &Call, call_max: Duration) -> Option<OwnTime> {
        // A large layout may take longer than an operation.
        let Call::Layout { bytes, .. } = call else { return None };
        let slowest = Duration::from_secs(bytes / LAYOUT_BYTES_PER_S_MIN);
        Some(OwnTime { whole: call_max + slowest, next: call_max })
    }

    fn gather(
        call: &Call,
        place: Place,
        gathered: &mut Vec<u8>,
        reply: Reply,
    ) -> Option<Result<Reply, Failure>> {
        let expected = match (call, &reply) {
            (Call::Layout { bytes, .. }, Reply::LayoutChunk(chunk)) => {
                gathered.extend_from_slice(chunk);
                if gathered.len() as u64 <= *bytes {
                    return None;
                }
                *bytes
            }
            (Call::Layout { bytes, .. }, Reply::LayoutEnd) => *bytes,
            (_, Reply::LayoutChunk(_) | Reply::LayoutEnd) => {
                return Some(Err(Failure::Reply { place, defect: ReplyDefect::OtherCall }));
            }
            _ => return Some(Ok(reply)),
        };
        let bytes = std::mem::take(gathered);
        let found = bytes.len() as u64;
        Some(match found == expected {
            true => Ok(Reply::Layout(bytes)),
            false => {
                let defect = ReplyDefect::LayoutBytes { expected, found };
                Err(Failure::Reply { place, defect })
            }
        })
    }

    fn state(reply: &Reply) -> Option<u64> {
        match reply {
            Reply::TableInfo(info) => info.state,
            Reply::Catalog(catalog) => catalog.state,
            Reply::Answers(answers) => answers.state,
            Reply::OnionInfo(info) => info.state,
            Reply::LayoutChunk(_) | Reply::LayoutEnd | Reply::KeysKept(_) | Reply::Layout(_) => {
                None
            }
        }
    }
}

/// A server that sends a layout slower than this is given up.
const LAYOUT_BYTES_PER_S_MIN: u64 = 64 << 10;
