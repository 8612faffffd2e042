//! Where a prepared table's bytes are.

use hushtable_table::prepared::{Loaded, Prepared};
use memmap2::MmapMut;

use super::Error;

/// The bytes of a prepared table.
pub(crate) enum Payload {
    /// Mapped from its file.
    File(Prepared),
    /// Copied to memory of huge pages.
    Memory(Loaded),
    /// Made in memory.
    Made(MmapMut),
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

/// Zeros to prepare a table in, on huge pages where the system gives them.
pub(crate) fn zeros(bytes: usize) -> Result<MmapMut, Error> {
    let map = MmapMut::map_anon(bytes).map_err(|_| Error::Memory { bytes: bytes as u64 })?;
    // Fewer page walks on a scan; a system without huge pages serves small ones.
    #[cfg(target_os = "linux")]
    let _ = map.advise(memmap2::Advice::HugePage);
    Ok(map)
}
