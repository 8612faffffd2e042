//! A batch request's shares written to be read: one row of one bin at a time, on the portable path.
//!
//! Slow on purpose. [`BatchEngine`](super::BatchEngine) is tested against it, and
//! `vectors/batch.json` comes from it.

use hushtable_prg::{Platform, Prg};

use super::{BatchKeys, Geometry};
use crate::dpf::{self, Side};

/// Whether key number `key` of `request` asks for row `row` of its bin: this side's share, a bit.
///
/// # Panics
/// Unless `key` and `row` are below the geometry's.
pub fn share(geometry: &Geometry, request: &BatchKeys, key: usize, row: usize) -> u8 {
    // Find the key's part and its bytes in the request.
    let (mut first, mut at) = (0, super::geometry::HEADER_BYTES);
    let mut parts = geometry.parts().iter();
    let part = loop {
        let part = parts.next().expect("a key of the request");
        if key < first + part.keys() {
            break part;
        }
        first += part.keys();
        at += part.keys() * part.key_bytes(request.side());
    };
    at += (key - first) * part.key_bytes(request.side());
    assert!(row < part.bin_rows(), "row {row} of a bin with {}", part.bin_rows());

    if part.leaf_count > 1 {
        let key = request.key(part, at, key);
        return dpf::reference::share(&key, part.index(row as u32)) as u8;
    }
    let byte = match request.side() {
        // Left expands the key's seed to 512 bits and uses the first ones.
        Side::Left => {
            let mut leaf = [0; 4];
            let prg = Prg::new(request.prg(), Platform::PORTABLE);
            prg.convert(&[request.root(key)], &[0; 4], &mut leaf);
            leaf[row / 128].to_le_bytes()[row % 128 / 8]
        }
        // Right was sent them, with the wanted row's bit flipped.
        Side::Right => request.key_bytes(at, part.key_bytes(Side::Right))[row / 8],
    };
    byte >> (row % 8) & 1
}
