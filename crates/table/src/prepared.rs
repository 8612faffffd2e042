//! A file that an engine makes out of a table once, and from then on only maps.
//!
//! Single-server retrieval, say, wants every row as number-theoretic transforms, 3.25 times the
//! table's bytes, which take longer to compute than to read. A [`PreparedWriter`] takes them from
//! many threads, block by block, into `PATH.partial`, and notes in `PATH.journal` which blocks are
//! on the disk; killed at any moment, the next one goes on from there, and the finished file is the
//! same byte for byte. Meanwhile other processes, on machines that share the disk, may each write a
//! [`PreparedPart`] of the blocks into the same file. [`Prepared::open`] maps a finished file if it is just
//! what is expected.
//!
//! | offset | what it holds |
//! |---|---|
//! | 0 | header: mark, sizes, kind, format, table version, the engine's `meta`, a checksum of these |
//! | next multiple of 4096 | the payload |
//! | payload's end | [`SLACK_BYTES`] zeros, so that a vector load at the end stays inside the file |
//! | then | 32 bytes a block: the hash that the engine gave |
//! | last 32 bytes | the file's version: BLAKE3 of the header and of the block hashes |
//!
//! Numbers are little-endian. What is between these parts is zero.
//!
//! ```
//! use hushtable_table::Version;
//! use hushtable_table::prepared::{Prepared, PreparedSpec, PreparedWriter};
//!
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("films.prepared");
//! let spec = PreparedSpec {
//!     kind: "example/doubled".to_owned(),
//!     format: 1,
//!     table_version: Version::from([7; 32]),
//!     meta: vec![],
//!     payload_bytes: 8,
//!     blocks: 2,
//! };
//! let writer = PreparedWriter::open(&path, &spec)?;
//! for block in 0..2 {
//!     let bytes = [2 * block as u8; 4];
//!     writer.write_at(4 * u64::from(block), &bytes)?;
//!     writer.finish_block(block, [bytes[0]; 32])?; // an engine gives the BLAKE3 of the bytes
//! }
//! writer.finish()?;
//! assert_eq!(Prepared::open(&path, &spec)?.payload(), [0, 0, 0, 0, 2, 2, 2, 2]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocks;
mod error;
mod file;
mod journal;
mod part;
mod reader;
mod stamp;
mod writer;

use self::file::Extents;
use crate::version::Version;

pub use error::{PreparedError, PreparedFormatError, PreparedSpecError};
pub use file::PreparedBytes;
pub use part::PreparedPart;
pub use reader::{Loaded, Prepared, Standing};
pub use writer::PreparedWriter;

/// The most bytes of [`PreparedSpec::kind`].
pub const KIND_BYTES_MAX: usize = 32;

/// The most bytes of [`PreparedSpec::meta`].
pub const META_BYTES_MAX: usize = 65_536;

/// The most blocks of a file.
pub const BLOCKS_MAX: u32 = 1 << 24;

/// The most bytes of a payload: sixteen times the largest table.
pub const PAYLOAD_BYTES_MAX: u64 = 1 << 52;

/// Readable zeros after the payload.
pub const SLACK_BYTES: usize = 64;

/// A prepared file's parameters, except those that depend on the table's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct PreparedSpec {
    /// Which engine and parameter set reads it: 1 to [`KIND_BYTES_MAX`] printable ASCII
    /// characters without spaces, such as `onion/n4096_128`.
    pub kind: String,
    /// Which form of this kind the payload has, counted up by the engine when it changes.
    pub format: u32,
    /// The table that it is made from.
    pub table_version: Version,
    /// The engine's geometry, in bytes of its own; at most [`META_BYTES_MAX`].
    pub meta: Vec<u8>,
    /// Bytes of the payload, 1 to [`PAYLOAD_BYTES_MAX`].
    pub payload_bytes: u64,
    /// In how many units of work it is made, 1 to [`BLOCKS_MAX`]. Which bytes of the payload are
    /// whose is the engine's affair.
    pub blocks: u32,
}

impl PreparedSpec {
    /// Checks the limits that the fields state.
    ///
    /// # Errors
    /// [`PreparedSpecError`] names the field.
    pub fn check(&self) -> Result<(), PreparedSpecError> {
        let range = |field, value: u64, min, max| match (min..=max).contains(&value) {
            true => Ok(()),
            false => Err(PreparedSpecError::Range { field, value, min, max }),
        };
        range("kind's length", self.kind.len() as u64, 1, KIND_BYTES_MAX as u64)?;
        if let Some(character) = self.kind.chars().find(|c| !c.is_ascii_graphic()) {
            return Err(PreparedSpecError::KindCharacter { character });
        }
        range("meta's length", self.meta.len() as u64, 0, META_BYTES_MAX as u64)?;
        range("payload_bytes", self.payload_bytes, 1, PAYLOAD_BYTES_MAX)?;
        range("blocks", self.blocks.into(), 1, BLOCKS_MAX.into())
    }

    /// Where the payload begins in a file of this spec, and bytes of the whole file: what a copy of some of the
    /// payload is cut by.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn extents(&self) -> Result<(u64, u64), PreparedSpecError> {
        self.check()?;
        let extents = Extents::of(self);
        Ok((extents.payload_start, extents.file_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_held_at_both_ends() {
        let good = PreparedSpec {
            kind: "k".repeat(KIND_BYTES_MAX),
            format: u32::MAX,
            table_version: Version::from([1; 32]),
            meta: vec![0; META_BYTES_MAX],
            payload_bytes: PAYLOAD_BYTES_MAX,
            blocks: BLOCKS_MAX,
        };
        assert_eq!(good.check(), Ok(()));
        let field = |change: fn(&mut PreparedSpec)| {
            let mut spec = good.clone();
            change(&mut spec);
            match spec.check() {
                Err(PreparedSpecError::Range { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(field(|spec| spec.kind.push('k')), "kind's length");
        assert_eq!(field(|spec| spec.kind.clear()), "kind's length");
        assert_eq!(field(|spec| spec.meta.push(0)), "meta's length");
        assert_eq!(field(|spec| spec.payload_bytes += 1), "payload_bytes");
        assert_eq!(field(|spec| spec.payload_bytes = 0), "payload_bytes");
        assert_eq!(field(|spec| spec.blocks += 1), "blocks");
        assert_eq!(field(|spec| spec.blocks = 0), "blocks");
        for (kind, character) in [("a b", ' '), ("é", 'é'), ("a\0", '\0')] {
            let spec = PreparedSpec { kind: kind.to_owned(), ..good.clone() };
            assert_eq!(spec.check(), Err(PreparedSpecError::KindCharacter { character }));
        }
    }
}
