//! The specification.

use aes::Aes128Enc;
use aes::cipher::{Array, BlockCipherEncrypt};
use zeroize::Zeroize;

use super::{DEPTH, ROW, ROWS, Row, TILE};

/// Block j of each stream is the AES of `first` ⊕ j.
pub(super) fn fold(keys: &[Aes128Enc], first: u128, rows: &mut [Row; DEPTH], sum: &mut Row) {
    let counters: Row = std::array::from_fn(|j| first ^ j as u128);
    *rows = [[0; ROW]; DEPTH];
    *sum = [0; ROW];
    let mut stream = counters.map(|block| Array::from(block.to_le_bytes()));
    for (x, key) in keys.iter().enumerate() {
        stream = counters.map(|block| Array::from(block.to_le_bytes()));
        key.encrypt_blocks(&mut stream);
        for (j, block) in stream.iter().enumerate() {
            let block = u128::from_le_bytes((*block).into());
            sum[j] ^= block;
            for (i, row) in rows.iter_mut().enumerate() {
                // x is a place, not a secret.
                if x >> i & 1 == 1 {
                    row[j] ^= block;
                }
            }
        }
    }
    stream.iter_mut().for_each(|block| block.as_mut_slice().zeroize());
}

pub(super) fn transpose(rows: &[Row; ROWS], labels: &mut [u128; TILE]) {
    labels.fill(0);
    for (block, labels) in labels.chunks_exact_mut(128).enumerate() {
        for (bytes, labels) in labels.chunks_exact_mut(8).enumerate() {
            for eight in 0..ROWS / 8 {
                let byte = |row: usize| (rows[8 * eight + row][block] >> (8 * bytes)) as u8;
                let square = transpose_square(u64::from_le_bytes(std::array::from_fn(byte)));
                for (label, byte) in labels.iter_mut().zip(square.to_le_bytes()) {
                    *label |= u128::from(byte) << (8 * eight);
                }
            }
        }
    }
}

/// 8 × 8 bits: bit c of byte r becomes bit r of byte c (Warren, Hacker's Delight, 7-3).
fn transpose_square(mut square: u64) -> u64 {
    for (shift, mask) in
        [(7, 0x00AA_00AA_00AA_00AA), (14, 0x0000_CCCC_0000_CCCC), (28, 0x0000_0000_F0F0_F0F0)]
    {
        let moved = (square ^ (square >> shift)) & mask;
        square ^= moved ^ (moved << shift);
    }
    square
}
