//! Where a prepared table's bytes are.

use hushtable_table::prepared::{Loaded, Prepared};

/// The bytes of a prepared table.
pub(crate) enum Payload {
    /// Mapped from its file.
    File(Prepared),
    /// Copied to memory of huge pages.
    Memory(Loaded),
    /// Made in memory.
    Made(Vec<u8>),
}

impl Payload {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::File(prepared) => prepared.payload(),
            Self::Memory(loaded) => loaded.payload(),
            Self::Made(bytes) => bytes,
        }
    }
}
