//! What can go wrong with a prepared file, and what to do about it.

use std::io;
use std::path::PathBuf;

use crate::version::Version;

/// What can go wrong with a prepared file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PreparedError {
    /// A block's bytes are not those that were written.
    #[error(
        "{}: block {block} of {blocks} is damaged: it hashes to {found}, where the file says \
         {expected}; see to the disk, then fetch the file again, or prepare the table again",
        path.display()
    )]
    Block {
        /// The file.
        path: PathBuf,
        /// The first damaged block, from 0 on.
        block: u32,
        /// How many there are.
        blocks: u32,
        /// What the file says it hashes to.
        expected: Version,
        /// What it hashes to.
        found: Version,
    },
    /// A block was finished twice, with another hash the second time.
    #[error(
        "{}: block {block} was finished with hash {expected} and again with {found}; the engine \
         must make the same bytes each time: remove the file and prepare the table again",
        path.display()
    )]
    BlockHash {
        /// The file to be made.
        path: PathBuf,
        /// Which block.
        block: u32,
        /// The hash it was first finished with.
        expected: Version,
        /// The hash it was finished with now.
        found: Version,
    },
    /// There is no such block.
    #[error("{}: there is no block {block}; there are {blocks}", path.display())]
    BlockIndex {
        /// The file to be made.
        path: PathBuf,
        /// The block named.
        block: u32,
        /// How many there are.
        blocks: u32,
    },
    /// The file is made in another number of blocks.
    #[error("{} was made in {found} blocks, not {expected}; prepare the table again", path.display())]
    Blocks {
        /// The file.
        path: PathBuf,
        /// How many were expected.
        expected: u32,
        /// How many the file says.
        found: u32,
    },
    /// The file was written to, or cut short, while it was open.
    #[error(
        "{} was written to, cut short, or could not be read while it was served; nothing more is \
         answered from it: start again, which checks it, and put new files in its place by renaming, \
         never by writing into it",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged, cut short, not finished, or no prepared file.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: PreparedFormatError,
    },
    /// The payload has another form than this program reads.
    #[error(
        "{} has format {found} of its kind, this program reads {expected}; prepare the table again",
        path.display()
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format expected.
        expected: u32,
        /// The format in the file.
        found: u32,
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
    /// The file is for another engine or parameter set.
    #[error("{} is prepared for {found:?}, not {expected:?}; choose another path, or prepare the table again", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
        /// The kind expected.
        expected: String,
        /// The kind in the file.
        found: String,
    },
    /// Another writer is at this file, or at the same part of it.
    #[error(
        "{} is being prepared by another process or thread; wait for it, or choose another path",
        path.display()
    )]
    Locked {
        /// The file to be made.
        path: PathBuf,
    },
    /// The memory for the payload is not there.
    #[error("there is no memory for {bytes} bytes of payload: {source}; map the file instead")]
    Memory {
        /// Bytes asked for.
        bytes: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The engine's geometry is another.
    #[error(
        "{} is prepared with another geometry ({found_bytes} bytes of it, {expected_bytes} \
         expected; the first differs at byte {differs_at}); prepare the table again",
        path.display()
    )]
    Meta {
        /// The file.
        path: PathBuf,
        /// Bytes of the meta expected.
        expected_bytes: usize,
        /// Bytes of the meta in the file.
        found_bytes: usize,
        /// The first byte that differs, or the shorter one's length.
        differs_at: usize,
    },
    /// There is no such file.
    #[error("there is no prepared file {}; prepare the table first", path.display())]
    Missing {
        /// The path as given.
        path: PathBuf,
    },
    /// A part of a file that nobody has begun.
    #[error(
        "no writer has begun {} for this table and these parameters, so that no part of it can be \
         written; begin it, and write its parts while that writer is open",
        path.display()
    )]
    NotBegun {
        /// The file to be made.
        path: PathBuf,
    },
    /// Not a plain file.
    #[error("{} is a folder, pipe or device, not a plain file; choose another path", path.display())]
    NotAFile {
        /// What is in the way.
        path: PathBuf,
    },
    /// Something else is where a file is to be written.
    #[error("{} is not a prepared file nor part of one and will not be overwritten; remove it or choose another path", path.display())]
    Occupied {
        /// What is in the way.
        path: PathBuf,
    },
    /// A part that is none of the file, or a block that is none of the part.
    #[error(
        "{}: blocks {first} to {end} are no part of blocks {own_first} to {own_end}; a part has one \
         block or more of those",
        path.display()
    )]
    PartRange {
        /// The file to be made.
        path: PathBuf,
        /// The first block named.
        first: u32,
        /// The one after the last.
        end: u32,
        /// The first block that there is.
        own_first: u32,
        /// The one after the last that there is.
        own_end: u32,
    },
    /// The file's payload has another size.
    #[error("{} has a payload of {found} bytes, not {expected}; prepare the table again", path.display())]
    PayloadBytes {
        /// The file.
        path: PathBuf,
        /// Bytes expected.
        expected: u64,
        /// Bytes in the file.
        found: u64,
    },
    /// Bytes that do not all lie in the payload.
    #[error(
        "{}: {byte_count} bytes at {offset} do not lie in a payload of {payload_bytes} bytes",
        path.display()
    )]
    PayloadRange {
        /// The file to be made.
        path: PathBuf,
        /// Where they were to go.
        offset: u64,
        /// How many they are.
        byte_count: usize,
        /// How many the payload has.
        payload_bytes: u64,
    },
    /// A spec outside the limits.
    #[error(transparent)]
    Spec(#[from] PreparedSpecError),
    /// The file is made from another table.
    #[error(
        "{} is stale: it is made from table version {found}, but the table is version {expected}; \
         prepare the table again",
        path.display()
    )]
    Stale {
        /// The file.
        path: PathBuf,
        /// The table's version.
        expected: Version,
        /// The version that the file is made from.
        found: Version,
    },
    /// An earlier write to the disk failed, so that nothing later can be relied on.
    #[error(
        "{}: an earlier write failed, and what came after may not be on the disk; see to the disk \
         (is it full?) and prepare again, which goes on from the last blocks that are",
        path.display()
    )]
    Stopped {
        /// The file to be made.
        path: PathBuf,
    },
    /// Blocks are missing.
    #[error("{} is not finished: {found} of {expected} blocks are done", path.display())]
    Undone {
        /// The file to be made.
        path: PathBuf,
        /// Blocks there are.
        expected: u32,
        /// Blocks that are done.
        found: u32,
    },
    /// No file can be named by this path.
    #[error("{} cannot name a prepared file; give a path that ends in a file name", path.display())]
    Unnamed {
        /// The path as given.
        path: PathBuf,
    },
}

impl PreparedError {
    /// For `map_err`: the error of doing `action` on `path`.
    pub(super) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

/// What is wrong with the bytes of a prepared file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PreparedFormatError {
    /// The header does not hash to the checksum at its end.
    #[error(
        "the header is damaged: it hashes to {found}, but says {expected}; prepare the table again"
    )]
    Checksum {
        /// What the header says.
        expected: Version,
        /// What it hashes to.
        found: Version,
    },
    /// The file has the wrong size.
    #[error(
        "the file has {found} bytes where its header needs {expected}; it is truncated or was \
         added to: prepare the table again"
    )]
    FileSize {
        /// Bytes needed; for a file that ends within its header, the least.
        expected: u64,
        /// Bytes there are.
        found: u64,
    },
    /// The header has fields that no writer writes.
    #[error("the header's {field} is not {expected}; prepare the table again")]
    Header {
        /// Which field.
        field: &'static str,
        /// What it has to be.
        expected: &'static str,
    },
    /// The file does not start as a prepared file does.
    #[error(
        "the file does not start with the mark of a prepared file; it is something else, or \
         written by a newer program"
    )]
    Mark,
    /// Bytes that are zero in every prepared file are not.
    #[error(
        "byte {offset} of the padding is {found:#04x}, not 0: the file is damaged; prepare the table again"
    )]
    Padding {
        /// Where in the file.
        offset: u64,
        /// What it is.
        found: u8,
    },
    /// A header within the format, but outside the limits.
    #[error("the header is outside the limits: {source}")]
    Spec {
        /// Which limit.
        #[from]
        source: PreparedSpecError,
    },
    /// A writer has not finished the file.
    #[error("the file is not finished; let the table be prepared to the end")]
    Unfinished,
    /// Header and block hashes do not hash to the version at the end.
    #[error(
        "the block hashes are damaged: the file hashes to version {found}, but says {expected}; \
         prepare the table again"
    )]
    Version {
        /// What the file says.
        expected: Version,
        /// What it hashes to.
        found: Version,
    },
}

/// What is wrong with a [`PreparedSpec`](super::PreparedSpec).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PreparedSpecError {
    /// A kind of other than printable ASCII characters.
    #[error("a kind is printable ASCII without spaces; this one has {character:?}")]
    KindCharacter {
        /// The first other character.
        character: char,
    },
    /// A number outside its limits.
    #[error("a prepared file's {field} is {value}, but must be {min} to {max}")]
    Range {
        /// Which number.
        field: &'static str,
        /// What it is.
        value: u64,
        /// The least it may be.
        min: u64,
        /// The most it may be.
        max: u64,
    },
}
