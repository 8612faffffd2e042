//! What a client asks of a server, and what comes back: messages without their wire.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use hushtable_table::Version;

use super::{AnnouncedCatalog, AnnouncedOnion, AnnouncedTable};
use crate::onion::KeyId;

/// Which server a call goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a client asks a pair, or one alone")]
pub enum Place {
    /// The left one of a pair.
    Left,
    /// The right one of a pair.
    Right,
    /// The one that is asked alone.
    Single,
}

impl Place {
    /// Left, then right.
    pub const PAIR: [Self; 2] = [Self::Left, Self::Right];
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Left, Self::Right, Self::Single];

    /// `left`, `right` or `single`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
            Self::Single => "single",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

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

impl Call {
    /// Bytes of keys and queries in it.
    pub(super) fn sent_bytes(&self) -> u64 {
        let all = |parts: &[Bytes]| parts.iter().map(|part| part.len() as u64).sum();
        match self {
            Self::Answer { keys, .. } => all(keys),
            Self::AnswerBags { keys, .. } | Self::PutKeys { keys } => keys.len() as u64,
            Self::OnionAnswer { queries, .. } => all(queries),
            Self::AnswerModel { parts, .. } => all(parts),
            Self::Catalog
            | Self::TableInfo { .. }
            | Self::Layout { .. }
            | Self::OnionInfo { .. } => 0,
        }
    }
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

impl Reply {
    /// What changes with the newest of what the server holds.
    pub(super) fn state(&self) -> Option<u64> {
        match self {
            Self::TableInfo(info) => info.state,
            Self::Catalog(catalog) => catalog.state,
            Self::Answers(answers) => answers.state,
            Self::OnionInfo(info) => info.state,
            Self::LayoutChunk(_) | Self::LayoutEnd | Self::KeysKept(_) | Self::Layout(_) => None,
        }
    }
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
        found: Option<Version>,
    },
    /// The server does not hold the client's evaluation keys.
    UnknownKeys,
    /// The server is about to end: another of its side may be asked, or itself when it has come back.
    Draining,
    /// There is no connection, or it was lost before the reply.
    Unreachable,
    /// Anything else: the client gives up.
    Other,
}
