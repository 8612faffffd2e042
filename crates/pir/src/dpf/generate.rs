//! Key generation, in time that does not depend on the index.

use std::hint::black_box;

use hushtable_prg::valgrind::declassify;
use hushtable_prg::{Prg, Secret, fill_random};
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use super::key::Words;
use super::{Domain, Group, Key, KeyParams, Side};
use crate::Error;

/// The two keys of one point: each is for one server.
pub struct KeyPair {
    /// For the left server.
    pub left: Key,
    /// For the right server.
    pub right: Key,
}

impl KeyPair {
    /// Keys whose expansions add up to 1 at `index` and 0 elsewhere, with seeds from the operating
    /// system.
    ///
    /// # Errors
    /// [`Error::IdRange`] unless `index` is below the domain's rows; [`Error::Entropy`].
    ///
    /// # Security
    /// Time and memory accesses depend on the domain and generator alone, not on `index`.
    pub fn generate(prg: Prg, domain: Domain, index: u64) -> Result<Self, Error> {
        let mut seeds = Secret::new([[0u8; 16]; 2]);
        fill_random(seeds.expose_mut().as_flattened_mut()).map_err(|_| Error::Entropy)?;
        Self::from_seeds(prg, domain, index, seeds.expose())
    }

    /// The same from given root seeds (left's, right's): for known-answer vectors and simulations.
    ///
    /// The low bit of a seed's first byte is ignored. Seeds must be uniform, independent, and used
    /// once: whoever knows the other side's seed knows the index.
    ///
    /// # Errors
    /// [`Error::IdRange`] unless `index` is below the domain's rows.
    pub fn from_seeds(
        prg: Prg,
        domain: Domain,
        index: u64,
        seeds: &[[u8; 16]; 2],
    ) -> Result<Self, Error> {
        let mut is_row = u8::from(index < domain.rows());
        // Whether an id is a row is told to the caller.
        declassify(&mut is_row);
        if is_row == 0 {
            return Err(Error::IdRange { id: index, rows: domain.rows() });
        }
        let roots = seeds.map(|seed| u128::from_le_bytes(seed) & !1);
        // Nodes hold their control bit in the low bit: left starts with 0, right with 1.
        let mut nodes = [[roots[0], roots[1] | 1]];
        let depth = domain.depth();
        let leaf_index = index >> domain.group().leaf_bits();
        let mut levels = vec![[0; 2]; depth as usize];
        for (level, correction) in (0..depth).rev().zip(&mut levels) {
            let go_right = (leaf_index >> level & 1) as u8;
            prg.descend(&mut nodes, &[go_right], std::slice::from_mut(correction));
        }
        let leaf = leaf_correction(prg, domain, nodes[0], index);
        nodes.zeroize();
        let key = |side: Side, root: u128| {
            let params = KeyParams { side, domain, prg: prg.kind() };
            Key::new(params, Words { root, levels: levels.clone(), leaf })
        };
        let pair = Self { left: key(Side::Left, roots[0]), right: key(Side::Right, roots[1]) };
        levels.zeroize();
        Ok(pair)
    }
}

/// The leaf's correction word: what turns the two sides' leaf blocks into shares of the unit.
fn leaf_correction(prg: Prg, domain: Domain, nodes: [u128; 2], index: u64) -> [u128; 4] {
    let mut blocks = [0; 8];
    prg.convert(&nodes, &[0; 4], &mut blocks);
    let left = block_bytes(&blocks[..4]);
    let right = block_bytes(&blocks[4..]);
    blocks.zeroize();
    let offset = index & (domain.group().rows_per_leaf() - 1);
    // 1 where right's control bit is set: then right, whose shares count negatively, applies the
    // correction, and it must be negated.
    let negate = black_box(nodes[1] & 1);
    let mut correction = [0u8; 64];
    match domain.group() {
        Group::Bits => {
            for (i, byte) in correction.iter_mut().enumerate() {
                let here = (i as u64).ct_eq(&(offset / 8)).unwrap_u8();
                *byte = left[i] ^ right[i] ^ (here << (offset % 8));
            }
        }
        Group::Z8 => {
            let negate = (negate as u8).wrapping_neg();
            for (i, byte) in correction.iter_mut().enumerate() {
                let here = (i as u64).ct_eq(&offset).unwrap_u8();
                let value = here.wrapping_sub(left[i]).wrapping_add(right[i]);
                *byte = (value ^ negate).wrapping_sub(negate);
            }
        }
        Group::Z32 => {
            let negate = (negate as u32).wrapping_neg();
            for i in 0..16 {
                let word = |block: &[u8; 64]| {
                    let mut bytes = [0; 4];
                    bytes.copy_from_slice(&block[4 * i..4 * i + 4]);
                    u32::from_le_bytes(bytes)
                };
                let here = u32::from((i as u64).ct_eq(&offset).unwrap_u8());
                let value = here.wrapping_sub(word(&left)).wrapping_add(word(&right));
                let value = (value ^ negate).wrapping_sub(negate);
                correction[4 * i..4 * i + 4].copy_from_slice(&value.to_le_bytes());
            }
        }
    }
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(correction.chunks_exact(16)) {
        let mut array = [0; 16];
        array.copy_from_slice(bytes);
        *word = u128::from_le_bytes(array);
    }
    words
}

fn block_bytes(words: &[u128]) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (to, word) in bytes.chunks_exact_mut(16).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}
