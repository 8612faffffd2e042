//! Comparison keys written to be read: one key at a time, on the portable path.
//!
//! Slow on purpose. The fast path is tested against it.

use hushtable_prg::{Platform, Prg, PrgKind};

use super::{Comparisons, Half};

/// This server's share of \[`at` < r\] by key number `key` of `keys`.
pub fn evaluate(
    prg: PrgKind,
    half: Half,
    keys: Comparisons,
    (key, root): (usize, u128),
    words: &[u8],
    at: u64,
) -> u8 {
    let prg = Prg::new(prg, Platform::PORTABLE);
    let mut share = 0;
    let mut node = match half {
        Half::Left => root & !1,
        Half::Right => root | 1,
    };
    for level in 0..keys.levels() {
        let words = &words[level as usize * keys.level_bytes()..][..keys.level_bytes()];
        let mut children = [0; 2];
        prg.expand(&[node], &[0, 0], &mut children);
        if node & 1 == 1 {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&words[16 * key..16 * key + 16]);
            let left = u128::from_le_bytes(bytes);
            let right_bit = words[16 * keys.count + key / 8] >> (key % 8) & 1;
            children[0] ^= left;
            children[1] ^= left & !1 | u128::from(right_bit);
        }
        let turn = keys.turn(at, level);
        if turn == 0 {
            // All numbers below the right child are greater; its control bits differ if r is among them.
            share ^= (children[1] & 1) as u8;
        }
        node = children[usize::from(turn)];
    }
    // The leaf has a bit for each number below it.
    let mut leaf = [0; 4];
    prg.convert(&[node], &[0; 4], &mut leaf);
    let start = keys.levels() as usize * keys.level_bytes() + key * keys.leaf_bytes();
    for position in keys.position(at) + 1..1 << keys.bits.min(super::LEAF_BITS) {
        let corrected = words[start + position as usize / 8] >> (position % 8) & 1;
        let bit = (leaf[0] >> position & 1) as u8;
        share ^= if node & 1 == 1 { bit ^ corrected } else { bit };
    }
    share
}
