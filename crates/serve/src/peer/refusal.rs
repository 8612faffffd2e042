//! Why a server refuses a request: the same type at both ends of the wire.
//!
//! A refusal travels as a gRPC status whose details hold google.rpc.ErrorInfo (a reason and a few
//! facts) and, where a retry makes sense, google.rpc.RetryInfo. `lookup.proto`, `onion.proto` and
//! `train.proto` list the reasons.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use hushtable_pir::dpf::Side;
use hushtable_pir::model::PartError;
use hushtable_pir::onion::{self, KeyId};
use hushtable_table::Version;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::TrainRefusal;
use crate::batch::Unanswered;

/// Why a server refused a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The backend failed; the server's log says how.
    #[error("the server could not answer: its log has the cause")]
    Backend,
    /// The keys of an inference that do not parse, or of a kind that the server does not take.
    #[error("the bag's keys are not usable ({defect}): {message}")]
    BadBag {
        /// What is wrong with them.
        defect: KeyDefect,
        /// The server's explanation.
        message: String,
    },
    /// A key that does not parse, or of a kind that the server does not take.
    #[error("key {key_index} is not usable ({defect}): {message}")]
    BadKey {
        /// Which key of the request, from 0.
        key_index: usize,
        /// What is wrong with it.
        defect: KeyDefect,
        /// The server's explanation.
        message: String,
    },
    /// A key id that is not 32 bytes.
    #[error("a key id has 32 bytes, this one {bytes}: send the one that the upload returned")]
    BadKeyId {
        /// Bytes received.
        bytes: usize,
    },
    /// A client's uploaded keys that do not parse, or are of other parameters than the server's.
    #[error("the keys are not usable ({defect}): {message}")]
    BadKeys {
        /// What is wrong with them.
        defect: KeyDefect,
        /// The server's explanation.
        message: String,
    },
    /// An encrypted query that does not parse.
    #[error("query {query_index} is not usable ({defect}): {message}")]
    BadQuery {
        /// Which query of the request, from 0.
        query_index: usize,
        /// What is wrong with it.
        defect: KeyDefect,
        /// The server's explanation.
        message: String,
    },
    /// A version of a table or layout that is not 32 bytes.
    #[error("a version has 32 bytes, this one {bytes}: send the one of the table info")]
    BadVersion {
        /// Bytes received.
        bytes: usize,
    },
    /// The server has as much to do as it may.
    #[error("the server is busy ({limit} reached): retry in {} ms", retry_after.as_millis())]
    Busy {
        /// Which limit was reached.
        limit: Limit,
        /// When there should be room.
        retry_after: Duration,
    },
    /// The server is shutting down.
    #[error("the server is shutting down: connect to another one, or retry after its restart")]
    Draining,
    /// A client's keys that are larger than all that the server keeps.
    #[error(
        "the keys take {bytes} bytes, the server keeps {bytes_max} in all: its operator must raise \
         keys_memory_bytes_max (`hushtable serve --keys-budget-mib`)"
    )]
    KeysBudget {
        /// Bytes that the keys take.
        bytes: usize,
        /// Bytes that the server keeps.
        bytes_max: usize,
    },
    /// Keys made for another layout.
    #[error(
        "the server holds layout version {expected}, the keys are for {found}: fetch the table info again"
    )]
    LayoutSkew {
        /// The server's version.
        expected: Version,
        /// The request's version.
        found: Version,
    },
    /// The table has no layout.
    #[error(
        "the server's table has no layout: look rows up by `max_ids`, or serve a bundle that \
         `hushtable tune --apply` has made"
    )]
    NoLayout,
    /// A request without keys.
    #[error("a request needs at least one key")]
    NoKeys,
    /// A request without queries.
    #[error("a request needs at least one query")]
    NoQueries,
    /// More keys than one request may hold.
    #[error("a request may hold {keys_max} keys, this one holds {keys}: split it")]
    TooManyKeys {
        /// Keys received.
        keys: usize,
        /// Keys allowed.
        keys_max: usize,
    },
    /// More queries than one request may hold.
    #[error("a request may hold {queries_max} queries, this one holds {queries}: split it")]
    TooManyQueries {
        /// Queries received.
        queries: usize,
        /// Queries allowed.
        queries_max: usize,
    },
    /// A call of a training round.
    #[error(transparent)]
    Train(#[from] TrainRefusal),
    /// Queries under keys that the server does not hold: never uploaded, or dropped to make room.
    #[error("the server holds no keys {key_id}: upload them, then ask again")]
    UnknownKeys {
        /// The request's key id.
        key_id: KeyId,
    },
    /// A model that the server does not hold.
    #[error(
        "the server holds no model version {found}: ask for its catalog again, or serve that model"
    )]
    UnknownModel {
        /// The request's version.
        found: Version,
    },
    /// A table, or a table's layout, that a server of several does not hold.
    #[error(
        "the server holds {tables} tables, and none of version {}: ask for its catalog again",
        found.map_or_else(|| "\"\"".to_owned(), |found| found.to_string())
    )]
    UnknownTable {
        /// The request's version; none where it named no table.
        found: Option<Version>,
        /// How many tables the server holds.
        tables: usize,
    },
    /// Keys or queries made for another version of the table.
    #[error(
        "the server holds table version {expected}, the request is for {found}: fetch the table info again"
    )]
    VersionSkew {
        /// The server's version.
        expected: Version,
        /// The request's version.
        found: Version,
    },
    /// A key made for another number of rows.
    #[error(
        "key {key_index} is for a table of {found} rows, this one has {expected}: fetch the table info again"
    )]
    WrongDomain {
        /// Which key of the request, from 0.
        key_index: usize,
        /// The table's rows.
        expected: u64,
        /// The key's rows.
        found: u64,
    },
    /// A left key at the right server, or the other way round.
    #[error(
        "key {key_index} is a {found} key, this is the {expected} server: swap the two addresses"
    )]
    WrongSide {
        /// Which key of the request, from 0.
        key_index: usize,
        /// The server's side.
        expected: Side,
        /// The key's side.
        found: Side,
    },
}

/// What is wrong with a key or an encrypted query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyDefect {
    /// A key format that the server does not know.
    Format,
    /// An output group that the server does not answer.
    Group,
    /// Too few or too many bytes.
    Length,
    /// Bits that must be zero are not.
    Padding,
    /// Made for other parameters than the server's.
    Parameters,
    /// A generator that the server does not take.
    Prg,
    /// A number at or above its modulus.
    Residue,
    /// A side that is neither left nor right, or anything newer than this version.
    Other,
}

/// A limit that a busy server reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// One connection's part of the bytes in flight.
    ConnectionBytes,
    /// Bytes of requests and answers in flight.
    InflightBytes,
    /// Inferences that wait.
    QueueBags,
    /// Keys that wait.
    QueueKeys,
    /// Encrypted queries that wait.
    QueueQueries,
}

impl KeyDefect {
    const ALL: [Self; 8] = [
        Self::Format,
        Self::Group,
        Self::Length,
        Self::Padding,
        Self::Parameters,
        Self::Prg,
        Self::Residue,
        Self::Other,
    ];

    fn of(error: &hushtable_pir::Error) -> Self {
        use hushtable_pir::Error as Pir;
        match error {
            Pir::KeyBytes { .. } | Pir::KeyHeader { .. } | Pir::RequestBytes { .. } => Self::Length,
            Pir::KeyFormat { .. } => Self::Format,
            Pir::KeyPadding => Self::Padding,
            Pir::UnknownGroup { .. } => Self::Group,
            Pir::UnknownPrg { .. } => Self::Prg,
            _ => Self::Other,
        }
    }

    fn of_onion(error: &onion::Error) -> Self {
        use onion::Error as Onion;
        match error {
            Onion::KeyBytes { .. } | Onion::QueryBytes { .. } => Self::Length,
            Onion::KeyParameters { .. } | Onion::QueryParameters { .. } => Self::Parameters,
            Onion::Residue { .. } => Self::Residue,
            _ => Self::Other,
        }
    }

    fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|defect| defect.name() == name).unwrap_or(Self::Other)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Format => "format",
            Self::Group => "group",
            Self::Length => "length",
            Self::Padding => "padding",
            Self::Parameters => "parameters",
            Self::Prg => "prg",
            Self::Residue => "residue",
            Self::Other => "other",
        }
    }
}

impl Limit {
    const ALL: [Self; 5] = [
        Self::ConnectionBytes,
        Self::InflightBytes,
        Self::QueueBags,
        Self::QueueKeys,
        Self::QueueQueries,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::ConnectionBytes => "connection_bytes",
            Self::InflightBytes => "inflight_bytes",
            Self::QueueBags => "queue_bags",
            Self::QueueKeys => "queue_keys",
            Self::QueueQueries => "queue_queries",
        }
    }
}

impl fmt::Display for KeyDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Refusal {
    /// The refusal of key `key_index` for what the scheme found in it.
    pub(crate) fn of_key(key_index: usize, error: &hushtable_pir::Error) -> Self {
        use hushtable_pir::Error as Pir;
        match *error {
            Pir::Domain { expected, found } => Self::WrongDomain { key_index, expected, found },
            Pir::Side { expected, found } => Self::WrongSide { key_index, expected, found },
            _ => {
                let (defect, message) = (KeyDefect::of(error), error.to_string());
                Self::BadKey { key_index, defect, message }
            }
        }
    }

    /// The refusal of an inference's keys for what the scheme found in them.
    pub(crate) fn of_bag(error: &hushtable_pir::Error) -> Self {
        match *error {
            hushtable_pir::Error::Side { expected, found } => {
                Self::WrongSide { key_index: 0, expected, found }
            }
            _ => Self::BadBag { defect: KeyDefect::of(error), message: error.to_string() },
        }
    }

    /// The refusal of a whole inference's parts; `feature` names a feature by its number.
    pub(crate) fn of_part(error: &PartError, feature: impl Fn(usize) -> String) -> Self {
        let (defect, message) = match error {
            PartError::Parts { .. } => (KeyDefect::Length, error.to_string()),
            PartError::Length { feature: at, keys, bytes } => {
                let name = feature(*at);
                let message = format!(
                    "feature {name:?} has {bytes} bytes, which are not {keys} keys of one length: its max_ids is {keys}"
                );
                (KeyDefect::Length, message)
            }
            PartError::Key { source: hushtable_pir::Error::Side { expected, found }, .. } => {
                return Self::WrongSide { key_index: 0, expected: *expected, found: *found };
            }
            PartError::Key { feature: at, source } => {
                (KeyDefect::of(source), format!("feature {:?}: {source}", feature(*at)))
            }
            PartError::Group { feature: at, group } => {
                let (name, group) = (feature(*at), group.name());
                (KeyDefect::Group, format!("feature {name:?}: this server takes no {group} keys"))
            }
            _ => (KeyDefect::Other, error.to_string()),
        };
        Self::BadBag { defect, message }
    }

    /// The refusal of a request that a scheduler did not answer; `queue` is what it has room in.
    pub(crate) fn of_unanswered(unanswered: Unanswered, queue: Limit) -> Self {
        match unanswered {
            Unanswered::Busy { retry_after, .. } => Self::Busy { limit: queue, retry_after },
            Unanswered::Closed => Self::Draining,
            Unanswered::Failed => Self::Backend,
        }
    }

    /// The refusal of a client's keys for what the scheme found in them.
    pub(crate) fn of_keys(error: &onion::Error) -> Self {
        Self::BadKeys { defect: KeyDefect::of_onion(error), message: error.to_string() }
    }

    /// The refusal of query `query_index` for what the scheme found in it.
    pub(crate) fn of_query(query_index: usize, error: &onion::Error) -> Self {
        let (defect, message) = (KeyDefect::of_onion(error), error.to_string());
        Self::BadQuery { query_index, defect, message }
    }

    /// The gRPC status that carries this.
    pub(crate) fn to_status(&self) -> Status {
        let (code, reason, facts): (_, _, Vec<(&str, String)>) = match self {
            Self::Backend => (Code::Internal, "BACKEND", vec![]),
            Self::BadBag { defect, message } => (
                Code::InvalidArgument,
                "BAD_BAG",
                vec![("defect", defect.to_string()), ("message", message.clone())],
            ),
            Self::BadKey { key_index, defect, message } => (
                Code::InvalidArgument,
                "BAD_KEY",
                vec![
                    ("key_index", key_index.to_string()),
                    ("defect", defect.to_string()),
                    ("message", message.clone()),
                ],
            ),
            Self::BadKeyId { bytes } => {
                (Code::InvalidArgument, "BAD_KEY_ID", vec![("bytes", bytes.to_string())])
            }
            Self::BadKeys { defect, message } => (
                Code::InvalidArgument,
                "BAD_KEYS",
                vec![("defect", defect.to_string()), ("message", message.clone())],
            ),
            Self::BadQuery { query_index, defect, message } => (
                Code::InvalidArgument,
                "BAD_QUERY",
                vec![
                    ("query_index", query_index.to_string()),
                    ("defect", defect.to_string()),
                    ("message", message.clone()),
                ],
            ),
            Self::BadVersion { bytes } => {
                (Code::InvalidArgument, "BAD_VERSION", vec![("bytes", bytes.to_string())])
            }
            Self::Busy { limit, .. } => {
                (Code::ResourceExhausted, "BUSY", vec![("limit", limit.to_string())])
            }
            Self::Draining => (Code::Unavailable, "DRAINING", vec![]),
            Self::KeysBudget { bytes, bytes_max } => (
                Code::ResourceExhausted,
                "KEYS_BUDGET",
                vec![("bytes", bytes.to_string()), ("bytes_max", bytes_max.to_string())],
            ),
            Self::LayoutSkew { expected, found } => (
                Code::FailedPrecondition,
                "LAYOUT_SKEW",
                vec![("expected", expected.to_string()), ("found", found.to_string())],
            ),
            Self::NoKeys => (Code::InvalidArgument, "NO_KEYS", vec![]),
            Self::NoLayout => (Code::FailedPrecondition, "NO_LAYOUT", vec![]),
            Self::NoQueries => (Code::InvalidArgument, "NO_QUERIES", vec![]),
            Self::TooManyKeys { keys, keys_max } => (
                Code::InvalidArgument,
                "TOO_MANY_KEYS",
                vec![("keys", keys.to_string()), ("keys_max", keys_max.to_string())],
            ),
            Self::TooManyQueries { queries, queries_max } => (
                Code::InvalidArgument,
                "TOO_MANY_QUERIES",
                vec![("queries", queries.to_string()), ("queries_max", queries_max.to_string())],
            ),
            Self::Train(refusal) => refusal.parts(),
            Self::UnknownKeys { key_id } => {
                (Code::NotFound, "UNKNOWN_KEYS", vec![("key_id", key_id.to_string())])
            }
            Self::UnknownModel { found } => {
                (Code::NotFound, "UNKNOWN_MODEL", vec![("found", found.to_string())])
            }
            Self::UnknownTable { found, tables } => {
                let found = found.map_or_else(String::new, |found| found.to_string());
                (
                    Code::NotFound,
                    "UNKNOWN_TABLE",
                    vec![("found", found), ("tables", tables.to_string())],
                )
            }
            Self::VersionSkew { expected, found } => (
                Code::FailedPrecondition,
                "VERSION_SKEW",
                vec![("expected", expected.to_string()), ("found", found.to_string())],
            ),
            Self::WrongDomain { key_index, expected, found } => (
                Code::FailedPrecondition,
                "WRONG_DOMAIN",
                vec![
                    ("key_index", key_index.to_string()),
                    ("expected", expected.to_string()),
                    ("found", found.to_string()),
                ],
            ),
            Self::WrongSide { key_index, expected, found } => (
                Code::FailedPrecondition,
                "WRONG_SIDE",
                vec![
                    ("key_index", key_index.to_string()),
                    ("expected", expected.to_string()),
                    ("found", found.to_string()),
                ],
            ),
        };
        let facts: HashMap<_, _> =
            facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let mut details = ErrorDetails::with_error_info(reason, DOMAIN, facts);
        match self {
            Self::Busy { retry_after, .. } => {
                details.set_retry_info(Some(*retry_after));
            }
            Self::Train(refusal) if refusal.retry_after().is_some() => {
                details.set_retry_info(refusal.retry_after());
            }
            _ => {}
        }
        Status::with_error_details(code, self.to_string(), details)
    }

    /// Reads the refusal that a status carries; `None` where it carries none that is known here.
    pub(crate) fn from_status(status: &Status) -> Option<Self> {
        // `from_status` reads what another machine sent: unknown details are no error, only unknown.
        let details = status.check_error_details().ok()?;
        let info = details.error_info().filter(|info| info.domain == DOMAIN)?;
        let fact = |name: &str| info.metadata.get(name);
        let count = |name: &str| fact(name)?.parse().ok();
        let text =
            |name: &str| Some(fact(name)?.chars().take(MESSAGE_CHARS_MAX).collect::<String>());
        let version = |name: &str| fact(name)?.parse().ok();
        let defect = || Some(KeyDefect::named(fact("defect")?));
        Some(match info.reason.as_str() {
            "BACKEND" => Self::Backend,
            "BAD_BAG" => Self::BadBag { defect: defect()?, message: text("message")? },
            "BAD_KEY" => Self::BadKey {
                key_index: count("key_index")?,
                defect: defect()?,
                message: text("message")?,
            },
            "BAD_KEY_ID" => Self::BadKeyId { bytes: count("bytes")? },
            "BAD_KEYS" => Self::BadKeys { defect: defect()?, message: text("message")? },
            "BAD_QUERY" => Self::BadQuery {
                query_index: count("query_index")?,
                defect: defect()?,
                message: text("message")?,
            },
            "BAD_VERSION" => Self::BadVersion { bytes: count("bytes")? },
            "BUSY" => Self::Busy {
                limit: Limit::ALL
                    .into_iter()
                    .find(|limit| fact("limit").is_some_and(|name| name == limit.name()))?,
                retry_after: details.retry_info()?.retry_delay?,
            },
            "DRAINING" => Self::Draining,
            "KEYS_BUDGET" => {
                Self::KeysBudget { bytes: count("bytes")?, bytes_max: count("bytes_max")? }
            }
            "LAYOUT_SKEW" => {
                Self::LayoutSkew { expected: version("expected")?, found: version("found")? }
            }
            "NO_KEYS" => Self::NoKeys,
            "NO_LAYOUT" => Self::NoLayout,
            "NO_QUERIES" => Self::NoQueries,
            "TOO_MANY_KEYS" => {
                Self::TooManyKeys { keys: count("keys")?, keys_max: count("keys_max")? }
            }
            "TOO_MANY_QUERIES" => Self::TooManyQueries {
                queries: count("queries")?,
                queries_max: count("queries_max")?,
            },
            // A key id is written as a version is: 32 bytes in hex.
            "UNKNOWN_KEYS" => Self::UnknownKeys {
                key_id: version("key_id").map(|id: Version| KeyId::from(*id.as_bytes()))?,
            },
            "UNKNOWN_MODEL" => Self::UnknownModel { found: version("found")? },
            "UNKNOWN_TABLE" => Self::UnknownTable {
                found: match fact("found")?.is_empty() {
                    true => None,
                    false => Some(version("found")?),
                },
                tables: count("tables")?,
            },
            "VERSION_SKEW" => {
                Self::VersionSkew { expected: version("expected")?, found: version("found")? }
            }
            "WRONG_DOMAIN" => Self::WrongDomain {
                key_index: count("key_index")?,
                expected: fact("expected")?.parse().ok()?,
                found: fact("found")?.parse().ok()?,
            },
            "WRONG_SIDE" => Self::WrongSide {
                key_index: count("key_index")?,
                expected: fact("expected")?.parse().ok()?,
                found: fact("found")?.parse().ok()?,
            },
            reason => {
                let retry_after = details.retry_info().and_then(|info| info.retry_delay);
                Self::Train(TrainRefusal::read(reason, text, retry_after)?)
            }
        })
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        refusal.to_status()
    }
}

/// ErrorInfo's domain: whose reasons these are.
const DOMAIN: &str = "hushtable";
/// What is kept of a text that another machine sent.
pub(crate) const MESSAGE_CHARS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn version(byte: u8) -> Version {
        Version::from([byte; 32])
    }

    #[test]
    fn every_refusal_survives_the_wire() {
        let mut all = vec![
            Refusal::Backend,
            Refusal::BadKeyId { bytes: 0 },
            Refusal::BadVersion { bytes: 31 },
            Refusal::Draining,
            Refusal::LayoutSkew { expected: version(3), found: version(4) },
            Refusal::KeysBudget { bytes: 1 << 33, bytes_max: 1 << 32 },
            Refusal::NoKeys,
            Refusal::NoLayout,
            Refusal::NoQueries,
            Refusal::TooManyKeys { keys: 1025, keys_max: 1024 },
            Refusal::TooManyQueries { queries: 65, queries_max: 64 },
            Refusal::UnknownKeys { key_id: KeyId::from([0xa5; 32]) },
            Refusal::UnknownModel { found: version(5) },
            Refusal::UnknownTable { found: Some(version(6)), tables: 26 },
            Refusal::UnknownTable { found: None, tables: 2 },
            Refusal::VersionSkew { expected: version(1), found: version(2) },
            Refusal::WrongDomain { key_index: 3, expected: 1 << 32, found: 5 },
            Refusal::WrongSide { key_index: 0, expected: Side::Left, found: Side::Right },
        ];
        all.extend(KeyDefect::ALL.map(|defect| Refusal::BadBag { defect, message: "why".into() }));
        all.extend(KeyDefect::ALL.map(|defect| Refusal::BadKey {
            key_index: 7,
            defect,
            message: "why".into(),
        }));
        all.extend(KeyDefect::ALL.map(|defect| Refusal::BadKeys { defect, message: "why".into() }));
        all.extend(KeyDefect::ALL.map(|defect| Refusal::BadQuery {
            query_index: 2,
            defect,
            message: "why".into(),
        }));
        all.extend(
            Limit::ALL
                .map(|limit| Refusal::Busy { limit, retry_after: Duration::from_micros(12_345) }),
        );
        all.extend(TrainRefusal::samples().into_iter().map(Refusal::Train));
        for refusal in all {
            let status = refusal.to_status();
            assert_eq!(status.message(), refusal.to_string());
            assert_eq!(Refusal::from_status(&status), Some(refusal));
        }
    }

    #[test]
    fn what_is_wrong_with_keys_and_queries_is_told_apart() {
        let parameters = onion::Error::KeyParameters { expected: "a".into(), found: "b".into() };
        let others = onion::Error::QueryParameters { expected: "a".into(), found: "b".into() };
        for (error, expected) in [
            (onion::Error::KeyBytes { expected: 9, found: 8 }, KeyDefect::Length),
            (onion::Error::QueryBytes { expected: 9, found: 8 }, KeyDefect::Length),
            (onion::Error::Residue { what: "keys" }, KeyDefect::Residue),
            (parameters, KeyDefect::Parameters),
            (others, KeyDefect::Parameters),
            (onion::Error::Entropy, KeyDefect::Other),
        ] {
            let message = error.to_string();
            let keys = Refusal::BadKeys { defect: expected, message: message.clone() };
            assert_eq!(Refusal::of_keys(&error), keys);
            let query = Refusal::BadQuery { query_index: 3, defect: expected, message };
            assert_eq!(Refusal::of_query(3, &error), query);
        }
    }

    #[test]
    fn the_hint_of_a_small_budget_names_what_an_operator_types() {
        let text = Refusal::KeysBudget { bytes: 9, bytes_max: 8 }.to_string();
        assert!(text.contains("--keys-budget-mib"), "{text}");
    }

    #[test]
    fn a_status_of_other_origin_is_no_refusal() {
        assert_eq!(Refusal::from_status(&Status::unavailable("gone")), None);
        let other = ErrorDetails::with_error_info("BUSY", "elsewhere", HashMap::new());
        let status = Status::with_error_details(Code::ResourceExhausted, "busy", other);
        assert_eq!(Refusal::from_status(&status), None);
        let incomplete = ErrorDetails::with_error_info("BUSY", DOMAIN, HashMap::new());
        let status = Status::with_error_details(Code::ResourceExhausted, "busy", incomplete);
        assert_eq!(Refusal::from_status(&status), None);
        let garbage = Status::with_details(Code::Internal, "?", vec![0xff; 40].into());
        assert_eq!(Refusal::from_status(&garbage), None);
    }
}
