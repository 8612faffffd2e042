//! A request's bytes.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | format: 1 |
//! | 1 | side: 0 left, 1 right |
//! | 1 | pseudorandom generator (`PrgKind::id`) |
//! | 1 | 0 |
//! | 16 | the seed that this server's root seeds are made from |
//! | … | the keys: part by part, bin by bin |
//!
//! A key for a bin of one leaf is, to the right server, one bit a row, and to the left server
//! nothing. A key for a larger bin is the same for both servers: 16 bytes a level (127 seed bits,
//! the left control bit in the low bit), the right control bits (level i in bit i % 8 of byte
//! i / 8, the rest zero), and the leaf's correction, one bit a row of a leaf.

use hushtable_prg::{PrgKind, Secret};
use zeroize::Zeroize;

use super::geometry::HEADER_BYTES;
use super::{Geometry, PartGeometry};
use crate::Error;
use crate::dpf::{Key, KeyParams, Side, Words};

/// A checked request: the keys of one inference.
pub struct BatchKeys {
    side: Side,
    prg: PrgKind,
    bytes: Secret<Vec<u8>>,
    roots: Secret<Vec<u128>>,
}

pub(super) const FORMAT: u8 = 1;

impl BatchKeys {
    /// The same keys once more: not `Clone`, so that no copy of secrets is made by chance.
    pub(super) fn copy(&self) -> Self {
        let bytes = Secret::new(self.bytes.expose().clone());
        let roots = Secret::new(self.roots.expose().clone());
        Self { side: self.side, prg: self.prg, bytes, roots }
    }

    /// Reads a request to `side` for the bins of `geometry`. Memory is bounded by the geometry.
    ///
    /// # Errors
    /// [`Error::RequestBytes`] for another length; [`Error::KeyFormat`], [`Error::UnknownSide`],
    /// [`Error::Side`], [`Error::UnknownPrg`], [`Error::KeyPadding`] for what is in it.
    pub fn parse(geometry: &Geometry, side: Side, bytes: Vec<u8>) -> Result<Self, Error> {
        let expected = geometry.request_bytes(side);
        // The two servers' requests have different lengths: another server's is told by its side.
        if let Some(&[FORMAT, found, ..]) = bytes.first_chunk::<HEADER_BYTES>()
            && let Ok(found) = Side::from_id(found)
            && found != side
        {
            return Err(Error::Side { expected: side, found });
        }
        let header = bytes.first_chunk::<HEADER_BYTES>();
        let (Some(&header), true) = (header, bytes.len() == expected) else {
            return Err(Error::RequestBytes { expected, found: bytes.len() });
        };
        let [format, found_side, prg, zero, seed @ ..] = header;
        if format != FORMAT {
            return Err(Error::KeyFormat { expected: FORMAT, found: format });
        }
        Side::from_id(found_side)?;
        let prg = PrgKind::from_id(prg).map_err(|_| Error::UnknownPrg { found: prg })?;
        if zero != 0 {
            return Err(Error::KeyPadding);
        }
        let mut at = HEADER_BYTES;
        for part in geometry.parts() {
            let (depth, key_bytes) = (part.depth(), part.key_bytes(side));
            let unused_bits = depth.next_multiple_of(8) - depth;
            if unused_bits > 0 && depth > 0 {
                let last = 16 * depth + depth.div_ceil(8) - 1;
                let keys = bytes[at..at + part.keys() * key_bytes].chunks_exact(key_bytes);
                if keys.into_iter().any(|key| key[last] >> (8 - unused_bits) != 0) {
                    return Err(Error::KeyPadding);
                }
            }
            at += part.keys() * key_bytes;
        }
        let roots = Secret::new(roots(&seed, geometry.keys()));
        Ok(Self { side, prg, bytes: Secret::new(bytes), roots })
    }

    /// The server it is for.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The generator that its keys use.
    pub fn prg(&self) -> PrgKind {
        self.prg
    }

    /// The request's bytes, as they came.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.expose()
    }

    /// The root seed of key number `key`, its low bit zero.
    pub(super) fn root(&self, key: usize) -> u128 {
        self.roots.expose()[key]
    }

    /// The bytes of a key that starts at `at` in the request.
    pub(super) fn key_bytes(&self, at: usize, len: usize) -> &[u8] {
        &self.bytes.expose()[at..at + len]
    }

    /// Writes the keys of part `number` of `geometry` to `to`, which the caller wipes, one after the
    /// other: [`PartGeometry::device_key_bytes`] each. They are what [`Key::device_words`] has, or,
    /// where [`PartGeometry::has_shares`] says so, a leaf's shares: one bit a row and zeros behind.
    ///
    /// # Panics
    /// Unless `to` has just their bytes and the request is of `geometry`.
    pub fn pack(&self, geometry: &Geometry, number: usize, to: &mut [u8]) {
        let parts = geometry.parts();
        let (before, part) = (&parts[..number], &parts[number]);
        let key_bytes = part.key_bytes(self.side);
        let first: usize = before.iter().map(PartGeometry::keys).sum();
        let start: usize = before.iter().map(|part| part.keys() * part.key_bytes(self.side)).sum();
        let start = HEADER_BYTES + start;
        let packed = part.device_key_bytes(self.side);
        assert_eq!(to.len(), packed * part.keys(), "another length than the keys'");
        for (index, to) in to.chunks_exact_mut(packed).enumerate() {
            let at = start + index * key_bytes;
            if part.has_shares(self.side) {
                let (bits, rest) = to.split_at_mut(key_bytes);
                bits.copy_from_slice(self.key_bytes(at, key_bytes));
                rest.fill(0);
                continue;
            }
            let words = match part.leaf_count {
                // A root and no correction, as left has no bit of its own.
                1 => {
                    let params =
                        KeyParams { side: self.side, domain: part.domain(), prg: self.prg };
                    let root = self.root(first + index);
                    Key::new(params, Words { root, levels: Vec::new(), leaf: [0; 4] })
                        .device_words()
                }
                _ => self.key(part, at, first + index).device_words(),
            };
            for (to, word) in to.chunks_exact_mut(4).zip(words.expose()) {
                to.copy_from_slice(&word.to_le_bytes());
            }
        }
    }

    /// A key of a bin with several leaves.
    pub(super) fn key(&self, part: &PartGeometry, at: usize, key: usize) -> Key {
        let depth = part.depth();
        let bytes = self.key_bytes(at, part.key_bytes(self.side));
        let (seeds, rest) = bytes.split_at(16 * depth);
        let (right_bits, leaf) = rest.split_at(depth.div_ceil(8));
        let levels = seeds
            .chunks_exact(16)
            .enumerate()
            .map(|(i, left)| {
                let left = word(left);
                let right_bit = u128::from(right_bits[i / 8] >> (i % 8) & 1);
                [left, left & !1 | right_bit]
            })
            .collect();
        let mut leaf_bytes = [0; 64];
        leaf_bytes[..leaf.len()].copy_from_slice(leaf);
        let mut leaf_words = [0; 4];
        for (to, from) in leaf_words.iter_mut().zip(leaf_bytes.chunks_exact(16)) {
            *to = word(from);
        }
        let params = KeyParams { side: self.side, domain: part.domain(), prg: self.prg };
        Key::new(params, Words { root: self.root(key), levels, leaf: leaf_words })
    }
}

/// The root seeds of a server's keys, in their order, low bits zero: BLAKE3 as an extendable
/// output of the request's seed.
pub(super) fn roots(seed: &[u8; 16], count: usize) -> Vec<u128> {
    let mut hasher = blake3::Hasher::new_derive_key("hushtable batch request roots v1");
    hasher.update(seed);
    let mut bytes = vec![0; 16 * count];
    hasher.finalize_xof().fill(&mut bytes);
    let roots = bytes.chunks_exact(16).map(|root| word(root) & !1).collect();
    bytes.zeroize();
    roots
}

/// The little-endian word at the start of `bytes`.
pub(super) fn word(bytes: &[u8]) -> u128 {
    let mut word = [0; 16];
    word.copy_from_slice(&bytes[..16]);
    u128::from_le_bytes(word)
}
