//! What can go wrong, and what to do about it.

use crate::dpf::Side;

/// An error of this crate. Fields carry the facts; `Display` names the remedy.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A table or key with no rows, or more than an index can name.
    #[error("a table has 1 to 4,294,967,296 rows, not {rows}: split a larger table into shards")]
    Rows {
        /// Rows asked for.
        rows: u64,
    },
    /// A row that is empty or too long.
    #[error("a row has 1 to 65,536 bytes, not {row_bytes}: split longer rows over two tables")]
    RowBytes {
        /// Bytes asked for.
        row_bytes: usize,
    },
    /// Table bytes that are not `rows × row_bytes`.
    #[error("the table's content has {found} bytes where its shape makes {expected}")]
    TableBytes {
        /// `rows × row_bytes`.
        expected: u64,
        /// Bytes handed over.
        found: u64,
    },
    /// A bundle whose rows could not be read.
    #[error("the table could not be read: {reason}")]
    Table {
        /// The bundle's own error.
        reason: String,
    },
    /// A bundle whose rows, sums or header are not those of its version.
    #[error("the table is not what its version says: {reason}")]
    Damaged {
        /// The bundle's own error.
        reason: String,
    },
    /// The table does not fit in memory.
    #[error(
        "{bytes} bytes for the table could not be allocated: serve a smaller table or shard it"
    )]
    Memory {
        /// Bytes asked for.
        bytes: u64,
    },
    /// Rows that no shard can have.
    #[error(
        "rows {first} to {end} are no shard's of a table of {rows} rows: a shard begins at a multiple of \
         512, and ends at one or with the table; `hushtable shard plan` makes such"
    )]
    RowRange {
        /// The first row.
        first: u64,
        /// The row after the last.
        end: u64,
        /// Rows of the table.
        rows: u64,
    },
    /// Bins that no shard can have.
    #[error(
        "{found} ranges of bins for a layout of {parts} parts: one a part, of bins that it has"
    )]
    BinRange {
        /// Parts of the layout.
        parts: usize,
        /// Ranges given.
        found: usize,
    },
    /// A shard without which there is no answer, and of which no server answers.
    #[error(
        "no server of shard {shard} answers ({reason}): retry in {} ms, and see that a server of it \
         runs and holds the version that is asked for", retry_after.as_millis()
    )]
    Absent {
        /// Its number in the map of shards.
        shard: usize,
        /// What the last server that was asked said, or why none was.
        reason: String,
        /// When one may be there again.
        retry_after: std::time::Duration,
    },
    /// An id that is not a row of the table.
    #[error("id {id} is out of range: the table has {rows} rows, ids run from 0 to {last}", last = rows - 1)]
    IdRange {
        /// The id.
        id: u64,
        /// Rows in the table.
        rows: u64,
    },
    /// More ids than one lookup is padded to.
    #[error("{ids} ids in one lookup, but max_ids is {max_ids}: raise max_ids or split the lookup")]
    TooManyIds {
        /// Ids asked for.
        ids: usize,
        /// The caller's bound.
        max_ids: usize,
    },
    /// A layout for another version of the table.
    #[error(
        "the layout is for table version {found}, but the table is version {expected}: make a \
         layout for it with `hushtable tune`"
    )]
    LayoutTable {
        /// The table's version.
        expected: hushtable_table::Version,
        /// The layout's.
        found: hushtable_table::Version,
    },
    /// A plan for another layout.
    #[error(
        "the plan has {found} keys or rows where the layout has {expected}: plan by this layout"
    )]
    Plan {
        /// The layout's.
        expected: usize,
        /// The plan's.
        found: usize,
    },
    /// Fewer or more bytes than a layout's requests have.
    #[error("a request by this layout has {expected} bytes, not {found}")]
    RequestBytes {
        /// What every request has.
        expected: usize,
        /// Bytes handed over.
        found: usize,
    },
    /// Fewer or more key bytes than the header's parameters make.
    #[error(
        "a key for {rows} rows has {expected} bytes, this one {found}: it was cut or altered on its way"
    )]
    KeyBytes {
        /// Rows that the header names.
        rows: u64,
        /// Bytes for those rows.
        expected: usize,
        /// Bytes received.
        found: usize,
    },
    /// Not even a key's header.
    #[error("a key starts with a header of {expected} bytes, these are {found} bytes")]
    KeyHeader {
        /// Bytes of a header.
        expected: usize,
        /// Bytes received.
        found: usize,
    },
    /// A key of a format that this version does not know.
    #[error(
        "key format {found} is unknown, this version reads format {expected}: update the older side"
    )]
    KeyFormat {
        /// The format this version reads.
        expected: u8,
        /// The format byte received.
        found: u8,
    },
    /// A side byte that is neither left nor right.
    #[error("side {found} is unknown: 0 is left, 1 is right")]
    UnknownSide {
        /// The byte received.
        found: u8,
    },
    /// An output group that this version does not know.
    #[error("output group {found} is unknown: 0 is bits, 1 is Z_2^8, 2 is Z_2^32")]
    UnknownGroup {
        /// The byte received.
        found: u8,
    },
    /// A pseudorandom generator that this version does not know.
    #[error("pseudorandom generator {found} is unknown: this version knows 1 to 8, aes128 is 1")]
    UnknownPrg {
        /// The byte received.
        found: u8,
    },
    /// Padding bits of a key that are not zero.
    #[error("a key's unused bits must be zero: it was altered on its way")]
    KeyPadding,
    /// A key made for another number of rows.
    #[error(
        "the key is for a table of {found} rows, this one has {expected}: fetch the table info again"
    )]
    Domain {
        /// Rows of the table.
        expected: u64,
        /// Rows that the key addresses.
        found: u64,
    },
    /// A left key at the right server, or the other way round.
    #[error("a {found} key came to the {expected} server: the client's two addresses are swapped")]
    Side {
        /// The server's side.
        expected: Side,
        /// The key's side.
        found: Side,
    },
    /// An answer buffer of the wrong size.
    #[error(
        "the answer has {found} bytes where {expected} were expected: server and client disagree on the table"
    )]
    AnswerBytes {
        /// Bytes that keys × row bytes make.
        expected: usize,
        /// Bytes there.
        found: usize,
    },
    /// Two answers over different versions of the table.
    #[error(
        "left answered from table version {left}, right from {right}: retry once both servers run the same version"
    )]
    VersionMismatch {
        /// Left's version.
        left: hushtable_table::Version,
        /// Right's version.
        right: hushtable_table::Version,
    },
    /// An answer over another version than the query was made for.
    #[error(
        "{side} answered from table version {found}, the query was made for {expected}: fetch the table info again"
    )]
    VersionChanged {
        /// The side that answered.
        side: Side,
        /// The version the client knows.
        expected: hushtable_table::Version,
        /// The version in the answer.
        found: hushtable_table::Version,
    },
    /// The operating system gave no randomness.
    #[error("the operating system gave no random bytes, so no key was made")]
    Entropy,
    /// A thread pool that could not be started.
    #[error("no pool of {threads} threads could be started: {reason}")]
    Threads {
        /// Threads asked for.
        threads: usize,
        /// The system's reason.
        reason: String,
    },
    /// A device other than the processor that failed.
    #[error("{reason}")]
    Device {
        /// The device's own error, with its remedy.
        reason: String,
    },
}

impl Error {
    /// The error of reading a bundle: damage apart from what else can go wrong.
    pub fn of_table(error: hushtable_table::Error) -> Self {
        let reason = error.to_string();
        match error {
            hushtable_table::Error::Rows { .. } => Self::Damaged { reason },
            _ => Self::Table { reason },
        }
    }
}
