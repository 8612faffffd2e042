//! What a single-server lookup refuses.

use hushtable_rlwe::Error as RlweError;
use hushtable_table::prepared::PreparedError;

/// Why keys, a query, a response or a table was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system gave no randomness.
    #[error("the operating system gave no random bytes: no key or query can be made without them")]
    Entropy,
    /// A geometry that cannot be.
    #[error("a geometry was refused: {defect}")]
    Geometry {
        /// What is wrong with it.
        defect: &'static str,
    },
    /// An id beyond the table.
    #[error("id {id} is not in the table: ids run from 0 to {}", rows - 1)]
    IdRange {
        /// The id.
        id: u64,
        /// Rows of the table.
        rows: u64,
    },
    /// Keys of another length.
    #[error("keys of {found} bytes, expected {expected}: they are cut off, or for another depth")]
    KeyBytes {
        /// Bytes there should be.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// Keys for other parameters.
    #[error("keys for {found}, expected {expected}: make them for this server's table")]
    KeyParameters {
        /// What the table needs.
        expected: String,
        /// What the keys say.
        found: String,
    },
    /// No memory for the prepared table.
    #[error("no memory for a prepared table of {bytes} bytes: serve it from a prepared file")]
    Memory {
        /// Bytes that were asked for.
        bytes: u64,
    },
    /// A shard's part of another length.
    #[error("a shard's part of the answers has {found} bytes, expected {expected}: it is cut off")]
    PartialBytes {
        /// Bytes there should be.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// A shard's part for other parameters.
    #[error(
        "a shard's part of the answers is for {found}, expected {expected}: give all shards one table"
    )]
    PartialParameters {
        /// What the table needs.
        expected: String,
        /// What the part says.
        found: String,
    },
    /// The prepared file.
    #[error(transparent)]
    Prepared(#[from] PreparedError),
    /// A query of another length.
    #[error("a query of {found} bytes, expected {expected}: it is cut off, or for another set")]
    QueryBytes {
        /// Bytes there should be.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// A query for other parameters.
    #[error("a query for {found}, expected {expected}: make it for this server's table")]
    QueryParameters {
        /// What the table needs.
        expected: String,
        /// What the query says.
        found: String,
    },
    /// A number at or above its modulus.
    #[error("the {what} hold a number at or above its modulus: the bytes are damaged")]
    Residue {
        /// "keys", "query" or "partial answers".
        what: &'static str,
    },
    /// Responses of another length.
    #[error("responses of {found} bytes, expected {expected}")]
    ResponseBytes {
        /// Bytes there should be.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// A row that is too long.
    #[error(
        "rows of {row_bytes} bytes: single-server lookup takes up to 32,768; split them over ids"
    )]
    RowBytes {
        /// Bytes of a row.
        row_bytes: usize,
    },
    /// More rows than any geometry holds.
    #[error("{rows} rows are more than these parameters hold: split the table")]
    Rows {
        /// Rows of the table.
        rows: u64,
    },
    /// A shard of which no server answers.
    #[error("shard {shard} is not there: {reason}")]
    Absent {
        /// Its number.
        shard: usize,
        /// What is wrong with its servers.
        reason: String,
        /// When one may be there again.
        retry_after: std::time::Duration,
    },
    /// A shard that a split does not have.
    #[error("shard {index} of {count}: shards are numbered from 0 to one less than their count")]
    Shard {
        /// The shard.
        index: u32,
        /// Shards of the split.
        count: u32,
    },
    /// A shard's answers are missing, doubled, or of another version.
    #[error(
        "shard answers cover columns {found:?} where {expected:?} come next: one is missing, given \
         twice, or of another split"
    )]
    ShardColumns {
        /// The columns that come next.
        expected: std::ops::Range<u64>,
        /// The columns that the next answer covers, if there is one.
        found: Option<std::ops::Range<u64>>,
    },
    /// A shard answers from another version of the table.
    #[error("a shard answered from version {found}, the others from {expected}")]
    ShardVersion {
        /// The first shard's version.
        expected: hushtable_table::Version,
        /// The other's.
        found: hushtable_table::Version,
    },
    /// The caller asked to stop.
    #[error("preparing was stopped; the next run goes on where it ended")]
    Stopped,
    /// The table.
    #[error(transparent)]
    Table(#[from] hushtable_table::Error),
    /// A prepared file that something keeps touching.
    #[error(
        "the prepared file was renamed, linked or its times were set in each of {attempts} passes; \
         find what does that, or serve it from memory"
    )]
    Unsteady {
        /// Passes that were made.
        attempts: usize,
    },
    /// More ids than the padding allows.
    #[error("{ids} ids for max_ids = {max_ids}: ask for fewer at once, or raise max_ids")]
    TooManyIds {
        /// Ids.
        ids: usize,
        /// What they are padded to.
        max_ids: usize,
    },
    /// Threads could not be started.
    #[error("no threads to answer with: {message}")]
    Threads {
        /// What the system said.
        message: String,
    },
    /// The server answered from another version.
    #[error("the server answered from version {found}, the query was for {expected}: ask again")]
    VersionChanged {
        /// The query's version.
        expected: hushtable_table::Version,
        /// The answer's.
        found: hushtable_table::Version,
    },
}

impl Error {
    pub(crate) fn of_keys(error: RlweError) -> Self {
        match error {
            RlweError::Residue { what } => Self::Residue { what },
            RlweError::Bytes { expected, found, .. } => Self::KeyBytes { expected, found },
            _ => Self::Entropy,
        }
    }

    pub(crate) fn of_partial(error: RlweError) -> Self {
        match error {
            RlweError::Residue { what } => Self::Residue { what },
            RlweError::Bytes { expected, found, .. } => Self::PartialBytes { expected, found },
            _ => Self::Entropy,
        }
    }

    pub(crate) fn of_query(error: RlweError) -> Self {
        match error {
            RlweError::Residue { what } => Self::Residue { what },
            RlweError::Bytes { expected, found, .. } => Self::QueryBytes { expected, found },
            _ => Self::Entropy,
        }
    }
}
