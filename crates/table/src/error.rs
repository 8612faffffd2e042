//! What can go wrong with a table, and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::layout::LayoutError;
use crate::model::{MapError, ModelError};
use crate::patch::PatchError;
use crate::shape::{BLOCK_ROWS, Shape, ShapeError};
use crate::source::SourceError;
use crate::verify::Damage;
use crate::version::Version;

/// What can go wrong with a table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system cannot swap two folders in one step, so an old bundle cannot be replaced
    /// without a moment in which there is none.
    #[error(
        "{} cannot be replaced in one step on this file system ({source}); the old bundle stands. \
         Build to a new path and switch to it, or remove the old bundle first", path.display()
    )]
    CannotSwap {
        /// The bundle that was to be replaced.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Values or bytes that cannot be converted.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A byte of a bundle is not as it was built.
    #[error("{}: {damage}; fetch the bundle again, or build it again", path.display())]
    Damaged {
        /// The bundle.
        path: PathBuf,
        /// The first damage.
        damage: Damage,
    },
    /// The system refused a file operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The layout is damaged, or for another table.
    #[error("{}: {source}", path.display())]
    Layout {
        /// The layout file.
        path: PathBuf,
        /// What is wrong with it.
        source: LayoutError,
    },
    /// A patch is damaged, or does not fit its table.
    #[error("{}: {source}", path.display())]
    Patch {
        /// The patch's file, or the table that it was to change.
        path: PathBuf,
        /// What is wrong with it.
        source: PatchError,
    },
    /// The manifest is damaged, or was written by something else.
    #[error("{}: {source}", path.display())]
    Manifest {
        /// The manifest file.
        path: PathBuf,
        /// What is wrong with it.
        source: ManifestError,
    },
    /// A file of the bundle is not there.
    #[error("the bundle {} has no {file}; restore that file or build the bundle again", path.display())]
    MissingFile {
        /// The bundle's folder.
        path: PathBuf,
        /// Which file.
        file: &'static str,
    },
    /// A model bundle's manifest is damaged, or does not fit what is in its folder.
    #[error("{}: {source}", path.display())]
    Model {
        /// The manifest file, or the model's folder.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<ModelError>,
    },
    /// The map of a model's shards is missing or damaged, or does not fit.
    #[error("{}: {source}", path.display())]
    ShardMap {
        /// The map's file.
        path: PathBuf,
        /// What is wrong with it.
        source: MapError,
    },
    /// The table's name cannot be used.
    #[error(
        "a table's name is 1 to 128 bytes without control characters; this one has {byte_count} \
         bytes{}", if *.control { " and a control character" } else { "" }
    )]
    Name {
        /// How long it is.
        byte_count: usize,
        /// Whether it holds a control character.
        control: bool,
    },
    /// The path is no model bundle.
    #[error("{} is not a model bundle (a folder with a model.json); build one with `hushtable model build`", path.display())]
    NotAModel {
        /// The path as given.
        path: PathBuf,
    },
    /// The path is no bundle.
    #[error("{} is not a table bundle (a folder with a manifest.json); build one with `hushtable table build`", path.display())]
    NotABundle {
        /// The path as given.
        path: PathBuf,
    },
    /// Something else is where the bundle is to go.
    #[error("{} is not a bundle of the kind to be written, and will not be overwritten (it holds {entry:?}); choose another path", path.display())]
    Occupied {
        /// Where the bundle was to go.
        path: PathBuf,
        /// What is in the way, cut to 64 characters.
        entry: String,
    },
    /// The rows asked for are not all in the table.
    #[error("rows {first} to {first}+{count} are not all in a table of {rows} rows")]
    RowRange {
        /// The first row asked for.
        first: u64,
        /// How many were asked for.
        count: u64,
        /// How many there are.
        rows: u64,
    },
    /// `rows.safetensors` or `rows.sums` does not fit the manifest.
    #[error("{}: {source}", path.display())]
    Rows {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: RowsError,
    },
    /// A shape outside the limits.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A file to build from cannot be read as a table.
    #[error("{}: {source}", path.display())]
    Source {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: SourceError,
    },
    /// Rows to be checked that are no whole blocks.
    #[error(
        "rows {first} to {first}+{count} are no whole blocks of {BLOCK_ROWS}: a checked reading \
         takes whole ones"
    )]
    PartialBlock {
        /// The first row asked for.
        first: u64,
        /// How many were asked for.
        count: u64,
    },
    /// No folder can be named by this path.
    #[error("{} cannot name a bundle; give a path that ends in a folder name", path.display())]
    Unnamed {
        /// The path as given.
        path: PathBuf,
    },
}

impl Error {
    /// For `map_err`: the error of doing `action` on `path`.
    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    /// For `map_err`: what is wrong with the model at `path`.
    pub(crate) fn model(path: impl Into<PathBuf>) -> impl FnOnce(ModelError) -> Self {
        let path = path.into();
        move |source| Self::Model { path, source: Box::new(source) }
    }
}

/// Values or bytes that cannot be converted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The output has the wrong length in bytes.
    #[error("the rows are {expected} bytes as served, but the buffer has {found}")]
    ByteCount {
        /// Bytes needed.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// Codes with a scale cannot hold a NaN or an infinity.
    #[error(
        "row {row}, column {column} is NaN or infinite, which {dtype} cannot hold; clean the row or use f32, f16 or bf16"
    )]
    NonFinite {
        /// Which row.
        row: u64,
        /// Which value of it.
        column: usize,
        /// The type that cannot hold it.
        dtype: &'static str,
    },
    /// A finite value would become infinite.
    #[error(
        "row {row}, column {column} is {value}, past the range of {dtype}; use a wider dtype (bf16 and f32 reach 3.4e38)"
    )]
    Overflow {
        /// Which row.
        row: u64,
        /// Which value of it.
        column: usize,
        /// The value.
        value: f64,
        /// The type that cannot hold it.
        dtype: &'static str,
    },
    /// The bytes are no whole number of rows.
    #[error("{byte_count} bytes are no whole number of rows of {row_bytes} bytes")]
    PartialRow {
        /// Bytes given.
        byte_count: usize,
        /// Bytes of one row.
        row_bytes: usize,
    },
    /// The values are no whole number of rows.
    #[error("{value_count} values are no whole number of rows of {dim} values")]
    PartialValues {
        /// Values given.
        value_count: usize,
        /// Values of one row.
        dim: usize,
    },
    /// The number of values does not match the rows.
    #[error("the rows hold {expected} values, but there are {found}")]
    ValueCount {
        /// Values needed.
        expected: usize,
        /// Values given.
        found: usize,
    },
}

/// What is wrong with a manifest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The entries do not hash to the checksum among them.
    #[error(
        "the manifest is damaged or was edited: its checksum does not match; restore it or build the bundle again"
    )]
    Checksum,
    /// `format` is not `hushtable-table`.
    #[error(
        "this JSON file is not a hushtable table manifest (no \"format\": \"hushtable-table\")"
    )]
    Format,
    /// A newer program wrote it.
    #[error(
        "the bundle has format version {found}, this program reads up to {newest}; upgrade hushtable or build the bundle again"
    )]
    FutureVersion {
        /// The version in the manifest.
        found: u64,
        /// The newest version that this program reads.
        newest: u64,
    },
    /// Not JSON, or no JSON object.
    #[error("the manifest is not a JSON object: {source}; restore it or build the bundle again")]
    Json {
        /// What the parser said.
        source: serde_json::Error,
    },
    /// An entry is missing.
    #[error("the manifest has no `{key}`; restore it or build the bundle again")]
    MissingKey {
        /// Which entry.
        key: &'static str,
    },
    /// `row_bytes` is not what dtype and dim make.
    #[error("the manifest says {found} bytes a row, but its dtype and dim make {expected}")]
    RowBytes {
        /// What dtype and dim make.
        expected: u64,
        /// What the manifest says.
        found: u64,
    },
    /// The shape is outside the limits.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The file is too large to be a manifest.
    #[error("the file has {byte_count} bytes; a manifest has at most {byte_count_max}")]
    TooLarge {
        /// Its size.
        byte_count: u64,
        /// The limit.
        byte_count_max: u64,
    },
    /// An entry that this format version does not have.
    #[error(
        "the manifest has an unknown entry {key:?}; format version 2 has only: name, format, format_version, rows, dim, dtype, row_bytes, content_blake3, row_sums_blake3, nonfinite_count, created_from, patch_blake3, checksum"
    )]
    UnknownKey {
        /// Which entry, cut to 64 characters.
        key: String,
    },
    /// An entry has the wrong type or form.
    #[error("the manifest's `{key}` is not {expected}")]
    Value {
        /// Which entry.
        key: &'static str,
        /// What it has to be.
        expected: &'static str,
    },
}

/// What is wrong with `rows.safetensors` or `rows.sums`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RowsError {
    /// The file has the wrong size.
    #[error(
        "the file has {found} bytes where the manifest needs {expected}; it is truncated or belongs to another bundle: restore it or build the bundle again"
    )]
    FileSize {
        /// Bytes that the manifest's shape makes.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// The safetensors header does not describe the table in the manifest.
    #[error("the safetensors header {source}; restore the file or build the bundle again")]
    Header {
        /// What is wrong with it.
        source: HeaderError,
    },
    /// A bundle of format 1, of which no range can be checked alone.
    #[error(
        "a bundle of format 1 has no tree of hashes, by which some of its rows are checked without the \
         others; build it again to shard it"
    )]
    NoTree,
    /// Not a plain file.
    #[error("this is a folder, pipe or device, not a plain file")]
    NotAFile,
    /// The rows do not hash to the version that the manifest says.
    #[error(
        "{}the rows hash to version {found}, where the manifest says {expected}: they are damaged or \
         another table's; `hushtable table verify` lists what is damaged: fetch the bundle again, or \
         build it again", row.map_or_else(String::new, |row| format!("row {row} does not match its sum; "))
    )]
    Content {
        /// The first row that does not match its sum; `None` where all do.
        row: Option<u64>,
        /// The manifest's version.
        expected: Version,
        /// What the rows hash to.
        found: Version,
    },
    /// The bytes between the safetensors header and the rows differ from a bundle's.
    #[error("the header is damaged; fetch the bundle again, or build it again")]
    HeaderBytes,
    /// The file shrank, or its disk failed, while it was mapped.
    #[error(
        "the file was cut short, or its disk failed, while it was open; fetch the bundle again, or \
         build it again, and do not write to a bundle's files in place"
    )]
    Lost,
    /// A row does not match its sum.
    #[error(
        "row {row} does not match its sum: it is damaged, or another table's; `hushtable table \
         verify` lists what is damaged: fetch the bundle again, or build it again"
    )]
    Row {
        /// The first such row.
        row: u64,
    },
    /// The sums do not hash to what the manifest says.
    #[error(
        "the row sums hash to {found}, where the manifest says {expected}: they are damaged or \
         another bundle's; fetch the bundle again, or build it again"
    )]
    Sums {
        /// What the manifest says.
        expected: Version,
        /// What the file hashes to.
        found: Version,
    },
    /// A hash of `rows.tree` is not what is under or over it.
    #[error(
        "the tree of hashes is damaged or another bundle's; fetch the bundle again, or build it again"
    )]
    Tree,
    /// `rows.sums` does not start as such a file does.
    #[error(
        "the file does not start with the mark of a row sums file; restore it or build the bundle again"
    )]
    SumsMark,
}

/// What is wrong with the header of `rows.safetensors`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// It is not JSON of the form that safetensors prescribes.
    #[error("cannot be parsed ({source})")]
    Json {
        /// What the parser said.
        source: serde_json::Error,
    },
    /// Its length is not the one that a bundle uses.
    #[error("says it is {found} bytes long, where a bundle's is {expected}")]
    Length {
        /// The length that every bundle uses.
        expected: u64,
        /// What the file says.
        found: u64,
    },
    /// The tensors do not match the manifest.
    #[error("describes other tensors than the manifest (of {} rows × {} {})", shape.rows(), shape.dim(), shape.dtype())]
    Tensors {
        /// What the manifest says.
        shape: Shape,
    },
}
