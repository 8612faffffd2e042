//! Why a server that is asked alone refuses a request: `onion.proto` lists the reasons.

use hushtable_pir::onion::{self, KeyId};
use hushtable_table::Version;

use crate::peer::refusal::{Fact, Facts};
use crate::{KeyDefect, Refusal};

/// What a server that is asked alone may answer with, beside what any server may.
macro_rules! onion_reasons {
    ([$($rest:ident)*] { $($head:tt)* } { $($tail:tt)* } $($table:tt)*) => {
        $crate::peer::refusal::gather! {
            [$($rest)*] { $($head)* } { $($tail)* } $($table)*
            /// A key id that is not 32 bytes.
            #[error("a key id has 32 bytes, this one {bytes}: send the one that the upload returned")]
            BadKeyId = InvalidArgument "BAD_KEY_ID" {
                /// Bytes received.
                bytes: usize,
            },
            /// A client's uploaded keys that do not parse, or are of other parameters than the
            /// server's.
            #[error("the keys are not usable ({defect}): {message}")]
            BadKeys = InvalidArgument "BAD_KEYS" {
                /// What is wrong with them.
                defect: $crate::KeyDefect,
                /// The server's explanation.
                message: String,
            },
            /// An encrypted query that does not parse.
            #[error("query {query_index} is not usable ({defect}): {message}")]
            BadQuery = InvalidArgument "BAD_QUERY" {
                /// Which query of the request, from 0.
                query_index: usize,
                /// What is wrong with it.
                defect: $crate::KeyDefect,
                /// The server's explanation.
                message: String,
            },
            /// A client's keys that are larger than all that the server keeps.
            #[error(
                "the keys take {bytes} bytes, the server keeps {bytes_max} in all: its operator \
                 must raise keys_memory_bytes_max (`hushtable serve --keys-memory-bytes-max`)"
            )]
            KeysBudget = ResourceExhausted "KEYS_BUDGET" {
                /// Bytes that the keys take.
                bytes: usize,
                /// Bytes that the server keeps.
                bytes_max: usize,
            },
            /// A request without queries.
            #[error("a request needs at least one query")]
            NoQueries = InvalidArgument "NO_QUERIES",
            /// More queries than one request may hold.
            #[error("a request may hold {queries_max} queries, this one holds {queries}: split it")]
            TooManyQueries = InvalidArgument "TOO_MANY_QUERIES" {
                /// Queries received.
                queries: usize,
                /// Queries allowed.
                queries_max: usize,
            },
            /// Queries under keys that the server does not hold: never uploaded, or dropped to make
            /// room.
            #[error("the server holds no keys {key_id}: upload them, then ask again")]
            UnknownKeys = NotFound "UNKNOWN_KEYS" {
                /// The request's key id.
                key_id: hushtable_pir::onion::KeyId,
            },
        }
    };
}
pub(crate) use onion_reasons;

/// Written as a version is: 32 bytes in hex.
impl Fact for KeyId {
    const KIND: &'static str = "key id";

    fn write(&self, name: &'static str, facts: &mut Facts) {
        facts.put(name, self.to_string());
    }

    fn read(name: &str, facts: &Facts) -> Option<Self> {
        Version::read(name, facts).map(|id| Self::from(*id.as_bytes()))
    }

    fn samples() -> Vec<Self> {
        vec![Self::from([0xa5; 32])]
    }
}

impl Refusal {
    /// The refusal of a client's keys for what the scheme found in them.
    pub(crate) fn of_keys(error: &onion::Error) -> Self {
        Self::BadKeys { defect: defect_of(error), message: error.to_string() }
    }

    /// The refusal of query `query_index` for what the scheme found in it.
    pub(crate) fn of_query(query_index: usize, error: &onion::Error) -> Self {
        let (defect, message) = (defect_of(error), error.to_string());
        Self::BadQuery { query_index, defect, message }
    }

    /// The refusal of an inference for what the scheme found in query `query_index` of all, which
    /// is one of `feature`'s.
    pub(crate) fn of_inference(query_index: usize, feature: &str, error: &onion::Error) -> Self {
        let message = format!("feature {feature:?}: {error}");
        Self::BadQuery { query_index, defect: defect_of(error), message }
    }
}

fn defect_of(error: &onion::Error) -> KeyDefect {
    use onion::Error as Onion;
    match error {
        Onion::KeyBytes { .. } | Onion::QueryBytes { .. } => KeyDefect::Length,
        Onion::KeyParameters { .. } | Onion::QueryParameters { .. } => KeyDefect::Parameters,
        Onion::Residue { .. } => KeyDefect::Residue,
        _ => KeyDefect::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(text.contains("--keys-memory-bytes-max"), "{text}");
    }
}
