//! Why any server may refuse a request, whatever it serves.

use super::OwnRefusal;

crate::refusal_table! {
    /// Why a server refused a request.
    pub enum Refusal {
        /// The backend failed; the server's log says how.
        #[error("the server could not answer: its log has the cause")]
        Backend = Internal "BACKEND",
        /// A pass that is not made by the map of shards that it names.
        #[error("the pass does not fit the shard's map: {message}")]
        BadPass = InvalidArgument "BAD_PASS" {
            /// The shard's explanation.
            message: String,
        },
        /// A version of a table or layout that is not 32 bytes.
        #[error("a version has 32 bytes, this one {bytes}: send the one of the table info")]
        BadVersion = InvalidArgument "BAD_VERSION" {
            /// Bytes received.
            bytes: usize,
        },
        /// The server has as much to do as it may.
        #[error(
            "the server is busy ({limit} reached): retry in {} ms", retry_after.as_millis()
        )]
        Busy = ResourceExhausted "BUSY" {
            /// Which limit was reached.
            limit: crate::Limit,
            /// When there should be room.
            retry_after: std::time::Duration,
        },
        /// The server is shutting down.
        #[error(
            "the server is shutting down: connect to another one, or retry after its restart"
        )]
        Draining = Unavailable "DRAINING",
        /// A shard of what is asked that no server answers for.
        #[error(
            "no server of shard {shard} answers: retry in {} ms; the front's log says which were \
             asked",
            retry_after.as_millis()
        )]
        ShardAbsent = Unavailable "SHARD_ABSENT" {
            /// Its number in the map of shards.
            shard: usize,
            /// When one may answer again.
            retry_after: std::time::Duration,
        },
        /// Bytes that are no message of the called method.
        #[error(
            "the request is no message of the method that it calls: send one as the contract says \
             (proto/hushtable/v1), of a release that fits the server's"
        )]
        Undecodable = InvalidArgument "UNDECODABLE",
        /// A map of shards that the server does not hold.
        #[error(
            "the shard holds no map {found}: it has not loaded that version, or dropped it"
        )]
        UnknownMap = NotFound "UNKNOWN_MAP" {
            /// The request's map.
            found: hushtable_table::Version,
        },
        /// A model that the server does not hold.
        #[error(
            "the server holds no model version {found}: ask for its catalog again, or serve \
             that model"
        )]
        UnknownModel = NotFound "UNKNOWN_MODEL" {
            /// The request's version.
            found: hushtable_table::Version,
        },
        /// A table, or a table's layout, that a server of several does not hold.
        #[error(
            "the server holds {tables} tables, and none of version {}: ask for its catalog \
             again",
            found.map_or_else(|| "\"\"".to_owned(), |found| found.to_string())
        )]
        UnknownTable = NotFound "UNKNOWN_TABLE" {
            /// The request's version; none where it named no table.
            found: Option<hushtable_table::Version>,
            /// How many tables the server holds.
            tables: usize,
        },
        /// A request made for another version of the table.
        #[error(
            "the server holds table version {expected}, the request is for {found}: fetch the \
             table info again"
        )]
        VersionSkew = FailedPrecondition "VERSION_SKEW" {
            /// The server's version.
            expected: hushtable_table::Version,
            /// The request's version.
            found: hushtable_table::Version,
        },
        /// A pass for another shard.
        #[error(
            "this is shard {expected}, the pass is for shard {found}: put the servers in \
             shards.toml in the order of their shards"
        )]
        WrongShard = FailedPrecondition "WRONG_SHARD" {
            /// The server's shard.
            expected: usize,
            /// The pass's shard.
            found: usize,
        },
    }
    with {
        /// A reason of one service's own table: [`Refusal::of`] finds it by its type.
        Own(OwnRefusal),
    }
}
