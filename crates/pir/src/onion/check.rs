//! Whether a prepared table's bytes are those that were written.

use std::ops::Range;
use std::path::Path;

use hushtable_table::Version;
use hushtable_table::prepared::PreparedError;
use rayon::prelude::*;

use super::Geometry;
use crate::kernel::rowsel::LANES;

/// Compares each unit of work of a payload with the hash that was stored when it was made, on the
/// current pool's threads, at the speed of memory or of the disk.
pub(super) fn check_blocks(
    path: &Path,
    geometry: &Geometry,
    payload: &[u8],
    hashes: &[[u8; 32]],
) -> Result<(), PreparedError> {
    check_columns(path, geometry, &(0..geometry.columns()), payload, hashes)
}

/// The same of the blocks of some columns, which lie between blocks: what is elsewhere may be anything, or a hole.
pub(super) fn check_columns(
    path: &Path,
    geometry: &Geometry,
    columns: &Range<u64>,
    payload: &[u8],
    hashes: &[[u8; 32]],
) -> Result<(), PreparedError> {
    let ring = geometry.params().answer_ring();
    let vectors = ring.limbs() * ring.degree() / LANES;
    let blocks = geometry.blocks();
    let units: Vec<_> = blocks
        .iter()
        .flat_map(|block| (0..block.groups).map(move |group| (block, group)))
        .collect();
    let damaged =
        units.par_iter().zip(hashes).enumerate().find_map_first(|(index, (unit, hash))| {
            let (block, group) = *unit;
            if !columns.contains(&block.first) {
                return None;
            }
            let mut hasher = blake3::Hasher::new();
            for vector in 0..vectors {
                let at = block.offset + block.group_offset(vector, group);
                hasher.update(&payload[at..at + block.group_bytes]);
            }
            let found = *hasher.finalize().as_bytes();
            (found != *hash).then_some((index, *hash, found))
        });
    match damaged {
        None => Ok(()),
        Some((block, expected, found)) => Err(PreparedError::Block {
            path: path.to_owned(),
            block: block as u32,
            blocks: units.len() as u32,
            expected: Version::from(expected),
            found: Version::from(found),
        }),
    }
}
