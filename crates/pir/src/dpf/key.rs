//! A key and its bytes.
//!
//! Format 1, all numbers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 1 | format: 1 |
//! | 1 | side: 0 left, 1 right |
//! | 1 | output group: 0 bits, 1 Z_2^8, 2 Z_2^32 |
//! | 1 | pseudorandom generator (`PrgKind::id`) |
//! | 4 | rows − 1 |
//! | 16 | root seed; its low bit is zero |
//! | 16 × depth | correction words, root first: 127 seed bits, the left control bit in the low bit |
//! | ceil(depth / 8) | the right control bits, level i in bit i % 8 of byte i / 8; the rest zero |
//! | 64 | the leaf's correction word |

use hushtable_prg::{PrgKind, Secret};
use zeroize::Zeroize;

use super::{Domain, Group, Side};
use crate::Error;

/// A key's public parameters: its side, its domain, its generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyParams {
    /// The server it goes to.
    pub side: Side,
    /// The rows it addresses and the group of its shares.
    pub domain: Domain,
    /// The generator that expands its tree.
    pub prg: PrgKind,
}

impl KeyParams {
    /// Bytes of a key with these parameters.
    pub fn key_bytes(&self) -> usize {
        let depth = self.domain.depth() as usize;
        HEADER_BYTES + 16 + 16 * depth + depth.div_ceil(8) + LEAF_BYTES
    }
}

/// One server's share of a point function.
///
/// Either key alone says nothing of the point; both together are the point. It is therefore a
/// secret of the client until it is sent, wiped when dropped, and never printed.
pub struct Key {
    params: KeyParams,
    secret: Secret<Words>,
}

/// The words of a key. `levels[i]` corrects (left, right) children at level i, control bits in the
/// low bits.
#[derive(Clone)]
pub(crate) struct Words {
    pub root: u128,
    pub levels: Vec<[u128; 2]>,
    pub leaf: [u128; 4],
}

impl Zeroize for Words {
    fn zeroize(&mut self) {
        self.root.zeroize();
        self.levels.zeroize();
        self.leaf.zeroize();
    }
}

pub(crate) const HEADER_BYTES: usize = 8;
const LEAF_BYTES: usize = 64;
const FORMAT: u8 = 1;

impl Key {
    pub(crate) fn new(params: KeyParams, words: Words) -> Self {
        debug_assert_eq!(words.levels.len(), params.domain.depth() as usize);
        Self { params, secret: Secret::new(words) }
    }

    /// The public parameters.
    pub fn params(&self) -> KeyParams {
        self.params
    }

    /// The same key once more: not `Clone`, so that no copy of a secret is made by chance.
    pub(crate) fn copy(&self) -> Self {
        Self { params: self.params, secret: Secret::new(self.words().clone()) }
    }

    pub(crate) fn words(&self) -> &Words {
        self.secret.expose()
    }

    /// The root node: the seed with this side's control bit in the low bit.
    pub(crate) fn root_node(&self) -> u128 {
        self.words().root | u128::from(self.params.side.id())
    }

    /// The key as 32-bit words, the lowest of each 128 bits first, for devices that work on those:
    /// the root node (4 words; bit 0 of the first is 0 for left, 1 for right), for every level the
    /// corrections of the left and of the right child (4 words each, the control bit in bit 0), and
    /// the leaf's correction (16 words). 20 + 8 × depth words, for every key of a domain as many.
    pub fn device_words(&self) -> Secret<Vec<u32>> {
        let key = self.words();
        // Of the right length at once: no other copy of the words is left behind.
        let mut words = Vec::with_capacity(20 + 8 * key.levels.len());
        let mut push = |word: u128| words.extend([0, 32, 64, 96].map(|bit| (word >> bit) as u32));
        push(self.root_node());
        key.levels.as_flattened().iter().chain(&key.leaf).copied().for_each(&mut push);
        Secret::new(words)
    }

    /// The key's bytes, as the table in this module's source says.
    pub fn to_bytes(&self) -> Vec<u8> {
        let KeyParams { side, domain, prg } = self.params;
        let words = self.words();
        let mut bytes = Vec::with_capacity(self.params.key_bytes());
        bytes.extend([FORMAT, side.id(), domain.group().id(), prg.id()]);
        bytes.extend(((domain.rows() - 1) as u32).to_le_bytes());
        bytes.extend(words.root.to_le_bytes());
        let mut right_bits = vec![0u8; words.levels.len().div_ceil(8)];
        for (i, [left, right]) in words.levels.iter().enumerate() {
            bytes.extend(left.to_le_bytes());
            right_bits[i / 8] |= ((right & 1) as u8) << (i % 8);
        }
        bytes.extend(right_bits);
        for word in words.leaf {
            bytes.extend(word.to_le_bytes());
        }
        bytes
    }

    /// Reads a key; memory is bounded by the 32 levels that 2^32 rows need.
    ///
    /// # Errors
    /// One error a defect: header, format, side, group, generator, length, unused bits.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(Error::KeyHeader { expected: HEADER_BYTES, found: bytes.len() });
        };
        let [format, side, group, prg, r0, r1, r2, r3] = *header;
        if format != FORMAT {
            return Err(Error::KeyFormat { expected: FORMAT, found: format });
        }
        let rows = u64::from(u32::from_le_bytes([r0, r1, r2, r3])) + 1;
        let params = KeyParams {
            side: Side::from_id(side)?,
            domain: Domain::new(rows, Group::from_id(group)?)?,
            prg: PrgKind::from_id(prg).map_err(|_| Error::UnknownPrg { found: prg })?,
        };
        let expected = params.key_bytes();
        if bytes.len() != expected {
            return Err(Error::KeyBytes { rows, expected, found: bytes.len() });
        }
        let depth = params.domain.depth() as usize;
        let (words, right_bits_and_leaf) = rest.split_at(16 * (1 + depth));
        let (right_bits, leaf) = right_bits_and_leaf.split_at(depth.div_ceil(8));
        let mut words = words.chunks_exact(16).map(word);
        let root = words.next().unwrap_or_default();
        let mut levels = Vec::with_capacity(depth);
        for (i, left) in words.enumerate() {
            let right_bit = u128::from(right_bits[i / 8] >> (i % 8) & 1);
            levels.push([left, left & !1 | right_bit]);
        }
        let unused = right_bits.last().map_or(0, |last| match depth % 8 {
            0 => 0,
            used => last >> used,
        });
        if unused != 0 || root & 1 != 0 {
            return Err(Error::KeyPadding);
        }
        let mut leaf_words = [0; 4];
        for (to, from) in leaf_words.iter_mut().zip(leaf.chunks_exact(16)) {
            *to = word(from);
        }
        Ok(Self::new(params, Words { root, levels, leaf: leaf_words }))
    }
}

fn word(bytes: &[u8]) -> u128 {
    let mut word = [0; 16];
    word.copy_from_slice(bytes);
    u128::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::super::{Domain, Group, KeyPair};
    use hushtable_prg::{Platform, Prg, PrgKind};

    #[test]
    fn device_words_are_the_bytes_in_another_order() {
        let prg = Prg::new(PrgKind::ChaCha20, Platform::detect());
        // Ten levels: the right children's control bits take two bytes.
        let domain = Domain::new(16 * 1000, Group::Z32).unwrap();
        let pair = KeyPair::from_seeds(prg, domain, 12_345, &[[1; 16], [2; 16]]).unwrap();
        for (side, key) in [pair.left, pair.right].iter().enumerate() {
            let bytes = key.to_bytes();
            let (words, right_bits) = (&bytes[8..][..16 * 11], &bytes[8 + 16 * 11..][..2]);
            let mut expected = words[..16].to_vec();
            expected[0] |= side as u8;
            for (level, left) in words[16..].chunks_exact(16).enumerate() {
                expected.extend(left);
                expected.extend(left);
                let first = expected.len() - 16;
                expected[first] = left[0] & !1 | right_bits[level / 8] >> (level % 8) & 1;
            }
            expected.extend(&bytes[bytes.len() - 64..]);
            let words = key.device_words();
            let found: Vec<u8> = words.expose().iter().flat_map(|w| w.to_le_bytes()).collect();
            assert_eq!(found, expected);
        }
    }
}
