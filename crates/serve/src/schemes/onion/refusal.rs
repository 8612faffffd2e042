//! Why a server that is asked alone refuses a request: `onion.proto` lists the reasons.

use hushtable_pir::onion;

use crate::keys::refusal::KeysRefusal;
use crate::refusal::KeyDefect;
use crate::refusal::Listed;
use crate::refusal::Tables;
use crate::refusals;

refusals! {
    /// Why a server that is asked alone refused a request.
    pub enum OnionRefusal {
        /// An encrypted query that does not parse.
        #[error("query {query_index} is not usable ({defect}): {message}")]
        BadQuery = InvalidArgument "BAD_QUERY" {
            /// Which query of the request, from 0.
            query_index: usize,
            /// What is wrong with it.
            defect: KeyDefect,
            /// The server's explanation.
            message: String,
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
    }
}

/// What its servers may refuse by, beside what any server may.
pub(super) const REFUSALS: Tables = &[Listed::of::<KeysRefusal>(), Listed::of::<OnionRefusal>()];

/// The refusal of a client's keys for what the scheme found in them.
pub(super) fn of_keys(error: &onion::Error) -> KeysRefusal {
    KeysRefusal::BadKeys { defect: defect_of(error), message: error.to_string() }
}

impl OnionRefusal {
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
            let keys = KeysRefusal::BadKeys { defect: expected, message: message.clone() };
            assert_eq!(of_keys(&error), keys);
            let query = OnionRefusal::BadQuery { query_index: 3, defect: expected, message };
            assert_eq!(OnionRefusal::of_query(3, &error), query);
        }
    }
}
