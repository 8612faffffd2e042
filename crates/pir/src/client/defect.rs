//! What does not fit in what a server says.

use hushtable_table::layout::LayoutError;
use hushtable_table::{DType, ShapeError, Version};

use crate::onion::ParameterSet;

/// What does not fit in a reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyDefect {
    /// Answers of the wrong length.
    #[error("{found} bytes of answers where {expected} were expected")]
    AnswerBytes {
        /// Keys × row bytes.
        expected: usize,
        /// Bytes received.
        found: usize,
    },
    /// A size that the announced geometry does not have.
    #[error("{found} {what}, where the geometry makes it {expected}")]
    Size {
        /// What is measured.
        what: &'static str,
        /// What the geometry makes it.
        expected: u64,
        /// What was announced.
        found: u64,
    },
    /// A table that the announced parameters do not hold.
    #[error("no geometry holds the announced table: {reason}")]
    Geometry {
        /// Why.
        reason: String,
    },
    /// Another geometry than the one that follows from the announced table and parameters.
    #[error("a geometry of {found:02x?}, where the table and parameters make it {expected:02x?}")]
    GeometryBytes {
        /// What follows from table and parameters.
        expected: Vec<u8>,
        /// What was announced, cut to as many bytes.
        found: Vec<u8>,
    },
    /// A server that does not take the output group that all take.
    #[error("the output group bits is not among those that it takes")]
    Groups,
    /// A parameter set that the caller has not accepted.
    #[error("the parameter set {announced:?} is not among the accepted: {}", names_of(accepted))]
    ParameterSet {
        /// The name that was announced, cut to 128 characters.
        announced: String,
        /// The sets that the caller accepts.
        accepted: Vec<ParameterSet>,
    },
    /// A number outside its limits.
    #[error("{field} is {found}, but must be {min} to {max}")]
    Range {
        /// The field.
        field: &'static str,
        /// What was announced.
        found: u64,
        /// The least it may be.
        min: u64,
        /// The most it may be.
        max: u64,
    },
    /// A text that cannot be shown.
    #[error("{field} has {bytes} bytes: at most 128 and no control characters are taken")]
    Text {
        /// The field.
        field: &'static str,
        /// Its bytes.
        bytes: usize,
    },
    /// Another version of the table than the one that was asked for.
    #[error(
        "it was asked for version {expected} of the table, which it announced, and told of {found}"
    )]
    TableVersion {
        /// What was asked for.
        expected: Version,
        /// What it told of.
        found: Version,
    },
    /// An upload known by another id than what it hashes to.
    #[error("the uploaded keys got another id than they have")]
    KeyId,
    /// An answer that is not what the same keys gave before, or not the row.
    #[error("the answers to the same keys differ")]
    Answers,
    /// A number type that this version does not know.
    #[error("number type {found} is unknown")]
    DType {
        /// The number received.
        found: i32,
    },
    /// A layout that cannot be, or not one of this table.
    #[error("{0}")]
    Layout(LayoutError),
    /// Fewer or more bytes of a layout than announced.
    #[error("{found} bytes of a layout where {expected} were announced")]
    LayoutBytes {
        /// Bytes announced.
        expected: u64,
        /// Bytes received.
        found: u64,
    },
    /// A layout that is not the one announced.
    #[error("a layout that hashes to {found}, where {expected} was announced")]
    LayoutVersion {
        /// The version announced.
        expected: Version,
        /// What came.
        found: Version,
    },
    /// Row bytes that dim and number type do not make.
    #[error("a row of {dim} {dtype} has {expected} bytes, not {found}")]
    RowBytes {
        /// Numbers in a row.
        dim: u32,
        /// Their type.
        dtype: DType,
        /// The bytes these make.
        expected: usize,
        /// The bytes announced.
        found: u32,
    },
    /// A shape that no table has.
    #[error("{0}")]
    Shape(crate::Error),
    /// A shape that no table bundle has.
    #[error("{0}")]
    TableShape(ShapeError),
    /// A side that is neither left nor right.
    #[error("side {found} is unknown")]
    Side {
        /// The number received.
        found: i32,
    },
    /// A manifest that is none.
    #[error("a model's manifest that is none: {reason}")]
    Manifest {
        /// Why, cut to 512 characters.
        reason: String,
    },
    /// A manifest of another name than the one that it is announced under.
    #[error("a model announced as {announced:?} whose manifest has another name")]
    ManifestName {
        /// The announced name.
        announced: String,
    },
    /// A table of a model that is not announced, or as another than the manifest says.
    #[error("table {table:?} of the model's manifest is not among the announced, or is another")]
    ManifestTable {
        /// The table's name in the manifest.
        table: String,
    },
    /// A manifest that is not the one announced.
    #[error("a model's manifest that hashes to {found}, where {expected} was announced")]
    ManifestVersion {
        /// The version announced.
        expected: Version,
        /// What the manifest hashes to.
        found: Version,
    },
    /// A reply to another call than the one that was made.
    #[error("it answers another call than the one that was made")]
    OtherCall,
    /// What another layer found in its own messages.
    #[error("{reason}")]
    Other {
        /// What it found.
        reason: String,
    },
    /// A list of versions that does not begin with the current one.
    #[error("its list of versions begins with {first}, where {current} is the current one")]
    Versions {
        /// The current version.
        current: Version,
        /// The first of the list.
        first: Version,
    },
    /// A version that is not 32 bytes.
    #[error("a version of {found} bytes, not 32")]
    VersionBytes {
        /// Bytes received.
        found: usize,
    },
}

fn names_of(sets: &[ParameterSet]) -> String {
    match sets {
        [] => "none".into(),
        _ => sets.iter().map(|set| set.name()).collect::<Vec<_>>().join(", "),
    }
}
