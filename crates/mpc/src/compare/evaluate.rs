//! Walking each key's tree to one place.

use std::hint::black_box;

use hushtable_prg::Prg;
use zeroize::Zeroize;

use super::{Comparisons, Half, WordsError};

/// This server's shares of \[`at[i]` < `points[i]`\], each 0 or 1: the XOR of both servers' is that bit. `roots` are
/// this server's.
///
/// # Errors
/// [`WordsError`] for words of another length.
///
/// # Panics
/// Unless there are as many roots and numbers as keys. Of a number, the lowest bits count.
///
/// # Security
/// Time and memory accesses depend on the count and bits of the keys alone.
pub fn evaluate(
    prg: Prg,
    half: Half,
    keys: Comparisons,
    roots: &[u128],
    words: &[u8],
    at: &[u64],
) -> Result<Vec<u8>, WordsError> {
    let (expected, found) = (keys.words_bytes(), words.len());
    if expected != found {
        return Err(WordsError { expected, found });
    }
    assert_eq!(roots.len(), keys.count, "a root for each key");
    assert_eq!(at.len(), keys.count, "a number for each key");
    let (levels, leaf_words) = words.split_at(keys.levels() as usize * keys.level_bytes());
    let mut shares = vec![0_u8; keys.count];
    let mut nodes: Vec<u128> =
        roots.iter().map(|root| (root & !1) | u128::from(half == Half::Right)).collect();
    let mut children = vec![0; 2 * keys.count];
    for (level, words) in (0..).zip(levels.chunks_exact(keys.level_bytes().max(1))) {
        prg.expand(&nodes, &[0, 0], &mut children);
        let (left_words, right_bits) = words.split_at(16 * keys.count);
        let (left_words, _) = left_words.as_chunks();
        let (pairs, _) = children.as_chunks::<2>();
        for (key, (node, [left, right])) in nodes.iter_mut().zip(pairs).enumerate() {
            let correction = u128::from_le_bytes(left_words[key]);
            let right_bit = u128::from(right_bits[key / 8] >> (key % 8) & 1);
            let corrected = mask(*node & 1);
            let left = left ^ (correction & corrected);
            let right = right ^ (((correction & !1) | right_bit) & corrected);
            let turn = u128::from(keys.turn(at[key], level));
            // Where the way goes left, what is below its right sibling is greater.
            shares[key] ^= ((right & 1) & (turn ^ 1)) as u8;
            *node = left ^ ((left ^ right) & mask(turn));
        }
    }
    let mut leaves = vec![0; 4 * keys.count];
    prg.convert(&nodes, &[0; 4], &mut leaves);
    let (blocks, _) = leaves.as_chunks::<4>();
    let leaf_words = leaf_words.chunks_exact(keys.leaf_bytes());
    for (key, ((node, [leaf, ..]), word)) in nodes.iter().zip(blocks).zip(leaf_words).enumerate() {
        let mut bytes = [0; 16];
        bytes[..word.len()].copy_from_slice(word);
        let leaf = leaf ^ (u128::from_le_bytes(bytes) & mask(node & 1));
        // What is behind its position is greater.
        let behind = (u128::MAX << keys.position(at[key])) << 1;
        shares[key] ^= ((leaf & behind & keys.leaf_mask()).count_ones() & 1) as u8;
    }
    nodes.zeroize();
    children.zeroize();
    leaves.zeroize();
    Ok(shares)
}

/// All ones of a 1. Opaque to the compiler, which could otherwise branch on the bit.
fn mask(bit: u128) -> u128 {
    black_box(bit).wrapping_neg()
}
