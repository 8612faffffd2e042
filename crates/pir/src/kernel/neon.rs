//! The product by `tbl`, as in the AVX2 backend: 16-entry tables of query bits in registers, indexed
//! by nibbles of table bytes.

use std::arch::aarch64::*;

use super::{BLOCK_GROUPS, LANES, UNIT_BYTES, transpose8};

/// Two 16-byte tables a group of rows: the sums of the matrix's columns 0 to 3 and 4 to 7.
pub(super) const OPERAND_BYTES: usize = 32 * BLOCK_GROUPS;

#[target_feature(enable = "neon")]
pub(super) fn pack(shares: &[&[u8; 64]; LANES], operand: &mut [u8]) {
    assert_eq!(operand.len(), OPERAND_BYTES);
    for (group, tables) in operand.chunks_exact_mut(32).enumerate() {
        let rows = u64::from_le_bytes(std::array::from_fn(|lane| shares[lane][group]));
        // Byte r now holds the eight queries' bits for row r: the matrix's column r.
        let columns = transpose8(rows).to_le_bytes();
        for (table, columns) in tables.chunks_exact_mut(16).zip(columns.chunks_exact(4)) {
            for (nibble, sum) in table.iter_mut().enumerate() {
                *sum = (0..4).fold(0, |sum, i| {
                    // The nibble is a loop counter: no secret.
                    sum ^ columns[i] & ((nibble >> i & 1) as u8).wrapping_neg()
                });
            }
        }
    }
}

#[target_feature(enable = "neon")]
pub(super) fn multiply(tile: &[u8], next: &[u8], units: usize, operands: &[u8], sums: &mut [u8]) {
    let width = units * UNIT_BYTES;
    let count = operands.len() / OPERAND_BYTES;
    let groups = tile.len() / width;
    assert!(tile.len() == groups * width && groups <= BLOCK_GROUPS);
    assert_eq!(operands.len(), count * OPERAND_BYTES);
    assert_eq!(sums.len(), count * width);
    let _ = next;
    let mut first = 0;
    while first < count {
        let step = (count - first).min(4);
        let operands = operands[first * OPERAND_BYTES..].as_ptr();
        for column in (0..width).step_by(32) {
            let sums = sums[first * width + column..].as_mut_ptr();
            let tile = tile[column..].as_ptr();
            // SAFETY: by the lengths checked above, `step` operands lie behind `operands`, and 32
            // bytes at `column` of each of `groups` groups and of `step` sums behind the other two.
            unsafe {
                match step {
                    1 => multiply_column::<1>(tile, groups, width, operands, sums),
                    2 => multiply_column::<2>(tile, groups, width, operands, sums),
                    3 => multiply_column::<3>(tile, groups, width, operands, sums),
                    _ => multiply_column::<4>(tile, groups, width, operands, sums),
                }
            }
        }
        first += step;
    }
}

/// `Q` query groups over 32 bytes of each group of rows, the sums in `2 Q` registers.
///
/// # Safety
/// Behind `tile` lie `groups` × `width` bytes less the column's offset, of which 32 are read every
/// `width`; behind `operands` `Q × OPERAND_BYTES`; `sums` is read and written likewise, `Q` times.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn multiply_column<const Q: usize>(
    tile: *const u8,
    groups: usize,
    width: usize,
    operands: *const u8,
    sums: *mut u8,
) {
    let nibble = vdupq_n_u8(0x0F);
    let mut acc = [[vdupq_n_u8(0); 2]; Q];
    for group in 0..groups {
        // SAFETY: the caller's promise about `tile`.
        let planes: [uint8x16_t; 2] =
            std::array::from_fn(|i| unsafe { vld1q_u8(tile.add(group * width + 16 * i)) });
        let low = planes.map(|x| vandq_u8(x, nibble));
        let high = planes.map(|x| vshrq_n_u8::<4>(x));
        for (q, acc) in acc.iter_mut().enumerate() {
            // SAFETY: the caller's promise about `operands`.
            let (t_low, t_high) = unsafe {
                let table = operands.add(q * OPERAND_BYTES + 32 * group);
                (vld1q_u8(table), vld1q_u8(table.add(16)))
            };
            for i in 0..2 {
                let x = vqtbl1q_u8(t_low, low[i]);
                let y = vqtbl1q_u8(t_high, high[i]);
                acc[i] = veorq_u8(acc[i], veorq_u8(x, y));
            }
        }
    }
    for (q, acc) in acc.into_iter().enumerate() {
        for (i, acc) in acc.into_iter().enumerate() {
            // SAFETY: the caller's promise about `sums`.
            unsafe {
                let to = sums.add(q * width + 16 * i);
                vst1q_u8(to, veorq_u8(vld1q_u8(to), acc));
            }
        }
    }
}
