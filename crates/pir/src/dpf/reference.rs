//! The scheme written to be read: one row at a time, from the root, on the portable path.
//!
//! Slow on purpose. Every fast path is tested against it, and the vectors in `vectors/dpf.json`
//! come from it.

use hushtable_prg::{Platform, Prg};

use super::{Group, Key, Side};

/// This side's share of "is it this row?": one bit, one byte or one word, zero-extended.
///
/// # Panics
/// Unless `row` is below the key's rows.
pub fn share(key: &Key, row: u64) -> u32 {
    let params = key.params();
    let words = key.words();
    let (group, depth) = (params.domain.group(), params.domain.depth());
    assert!(row < params.domain.rows(), "row {row} is outside the key's domain");
    let prg = Prg::new(params.prg, Platform::PORTABLE);

    // Walk down from the root: each level's children are corrected if the control bit is set.
    let leaf_index = row / group.rows_per_leaf();
    let mut node = key.root_node();
    for level in 0..depth {
        let mut children = [0; 2];
        prg.expand(&[node], &[0, 0], &mut children);
        if node & 1 == 1 {
            let [left, right] = words.levels[level as usize];
            children[0] ^= left;
            children[1] ^= right;
        }
        let direction = leaf_index >> (depth - 1 - level) & 1;
        node = children[direction as usize];
    }

    // Turn the leaf's seed into 512 bits and take the row's part of them.
    let mut block = [0u128; 4];
    prg.convert(&[node], &[0; 4], &mut block);
    let mut leaf = [0u8; 64];
    let mut correction = [0u8; 64];
    for i in 0..4 {
        leaf[16 * i..16 * i + 16].copy_from_slice(&block[i].to_le_bytes());
        correction[16 * i..16 * i + 16].copy_from_slice(&words.leaf[i].to_le_bytes());
    }
    let corrected = node & 1 == 1;
    let offset = (row % group.rows_per_leaf()) as usize;
    match group {
        Group::Bits => {
            let bit = |bytes: &[u8; 64]| u32::from(bytes[offset / 8] >> (offset % 8) & 1);
            bit(&leaf) ^ if corrected { bit(&correction) } else { 0 }
        }
        Group::Z8 => {
            let sum = leaf[offset].wrapping_add(if corrected { correction[offset] } else { 0 });
            u32::from(if params.side == Side::Right { sum.wrapping_neg() } else { sum })
        }
        Group::Z32 => {
            let word = |bytes: &[u8; 64]| {
                u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[4 * offset + byte]))
            };
            let sum = word(&leaf).wrapping_add(if corrected { word(&correction) } else { 0 });
            if params.side == Side::Right { sum.wrapping_neg() } else { sum }
        }
    }
}

/// This side's answer over `rows`, the table's bytes row by row.
///
/// # Panics
/// Unless `rows` holds `key.rows() × row_bytes` bytes.
pub fn answer(key: &Key, rows: &[u8], row_bytes: usize) -> Vec<u8> {
    let domain = key.params().domain;
    assert_eq!(rows.len() as u64, domain.rows() * row_bytes as u64, "the table's bytes");
    let mut words = vec![0u32; row_bytes.div_ceil(4)];
    let mut bytes = vec![0u8; row_bytes];
    for (index, row) in rows.chunks_exact(row_bytes).enumerate() {
        let share = share(key, index as u64);
        match domain.group() {
            Group::Bits => {
                for (sum, byte) in bytes.iter_mut().zip(row) {
                    *sum ^= byte & (share as u8).wrapping_neg();
                }
            }
            Group::Z8 => {
                for (sum, byte) in bytes.iter_mut().zip(row) {
                    *sum = sum.wrapping_add(byte.wrapping_mul(share as u8));
                }
            }
            Group::Z32 => {
                for (sum, chunk) in words.iter_mut().zip(row.chunks(4)) {
                    let mut word = [0; 4];
                    word[..chunk.len()].copy_from_slice(chunk);
                    *sum = sum.wrapping_add(u32::from_le_bytes(word).wrapping_mul(share));
                }
            }
        }
    }
    if domain.group() == Group::Z32 {
        for (chunk, word) in bytes.chunks_mut(4).zip(&words) {
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
    }
    bytes
}
