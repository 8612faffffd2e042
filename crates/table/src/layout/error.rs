//! What can be wrong with a layout, and with asking by it.

use crate::version::Version;

/// What can be wrong with a layout, and with asking by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Neither a hot nor a full part.
    #[error("a layout has a hot part, a full part, or both; this one has neither")]
    NoParts,
    /// A number outside its limits.
    #[error("{part}: {field} is {value}, but must be {min} to {max}")]
    Range {
        /// `hot`, `full` or `layout`.
        part: &'static str,
        /// Which number.
        field: &'static str,
        /// What it is.
        value: u64,
        /// The least it may be.
        min: u64,
        /// The most it may be.
        max: u64,
    },
    /// A row with its companions is larger than a row may be.
    #[error(
        "{part}: a row with its companions is {entry_bytes} bytes, over the limit of \
         {row_bytes_max}; use fewer companions"
    )]
    EntryBytes {
        /// `hot` or `full`.
        part: &'static str,
        /// What it comes to.
        entry_bytes: usize,
        /// The most it may be.
        row_bytes_max: usize,
    },
    /// A list of the map has another length than the parts need.
    #[error("the layout's map has {found} {list}, but its parts need {expected}")]
    MapLength {
        /// `hot ids`, `hot companions` or `full companions`.
        list: &'static str,
        /// How many the parts need.
        expected: u64,
        /// How many there are.
        found: u64,
    },
    /// The map names a row that the table does not have, or a hot one twice.
    #[error("the layout's map names row {id} {fault}")]
    MapId {
        /// The row.
        id: u64,
        /// `that the table does not have` or `twice`.
        fault: &'static str,
    },
    /// A layout for other rows.
    #[error(
        "the layout is for table version {found}, but the table is version {expected}: make a \
         layout for it with `hushtable tune`"
    )]
    OtherTable {
        /// The table's version.
        expected: Version,
        /// The layout's.
        found: Version,
    },
    /// The file's entries do not hash to the version in it.
    #[error(
        "the layout was changed after it was written (it hashes to {found}, but says {expected}): \
         restore the file, or make a layout anew with `hushtable tune`"
    )]
    Edited {
        /// The version that the file has.
        expected: Version,
        /// What its entries and map hash to.
        found: Version,
    },
    /// Text that is no layout.
    #[error("this is no layout: {reason}")]
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// A layout of a format that this software is too old for.
    #[error(
        "the layout has format version {found}, newer than the {newest} this software reads: upgrade hushtable"
    )]
    FutureVersion {
        /// The file's.
        found: u64,
        /// The newest known.
        newest: u64,
    },
    /// An id that is no row.
    #[error("id {id} is not in the table, whose ids run from 0 to {}", rows - 1)]
    IdRange {
        /// The id.
        id: u64,
        /// The table's rows.
        rows: u64,
    },
    /// A bag with more ids than the layout is made for.
    #[error(
        "the bag has {ids} ids, but the layout is made for at most {ids_max}: split the bag, or \
         tune a layout with a larger ids_max"
    )]
    TooManyIds {
        /// Ids in the bag.
        ids: usize,
        /// The layout's bound.
        ids_max: usize,
    },
    /// A trace whose offsets do not fit its ids.
    #[error("the trace is malformed: {reason}")]
    Trace {
        /// What is wrong with it.
        reason: String,
    },
}
