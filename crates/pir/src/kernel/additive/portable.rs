//! The product in plain Rust: the specification of the other backends.
//!
//! The 64 bytes of a group of eight rows and a unit of eight row bytes are, of bytes, each column's eight
//! rows side by side, and of words, each of the unit's two words' eight rows. Sums have the same lanes.

use super::super::transpose8;
use super::{BLOCK_GROUPS, Panel, Ring, UNIT_BYTES};

#[inline(always)]
pub(super) fn unpack(ring: Ring, tile: &[u8], rows: &mut [u8]) {
    for (planes, rows) in tile.chunks_exact(UNIT_BYTES).zip(rows.chunks_exact_mut(UNIT_BYTES)) {
        let columns = planes.as_chunks::<8>().0.iter().zip(rows.as_chunks_mut::<8>().0);
        for (planes, rows) in columns {
            *rows = transpose8(u64::from_le_bytes(*planes)).to_le_bytes();
        }
        if ring == Ring::Z32 {
            for columns in rows.as_chunks_mut::<32>().0 {
                let from = *columns;
                for (at, byte) in columns.iter_mut().enumerate() {
                    *byte = from[at % 4 * 8 + at / 4];
                }
            }
        }
    }
}

pub(super) fn multiply(ring: Ring, panel: Panel<'_>, shares: &[u8], sums: &mut [u8]) {
    let queries = shares.chunks_exact(ring.share_bytes());
    for (shares, sums) in queries.zip(sums.chunks_exact_mut(panel.units * UNIT_BYTES)) {
        for (first, rows) in panel.tiles() {
            let rows = rows.as_chunks::<UNIT_BYTES>().0;
            let units = rows.len() / BLOCK_GROUPS;
            let sums = sums.as_chunks_mut::<UNIT_BYTES>().0;
            for (unit, sums) in sums[first..first + units].iter_mut().enumerate() {
                let rows = rows.iter().skip(unit).step_by(units);
                match ring {
                    Ring::Z8 => add_bytes(rows, shares.as_chunks().0, sums),
                    Ring::Z32 => add_words(rows, shares.as_chunks().0, sums),
                }
            }
        }
    }
}

/// `sums[column][row] += shares[row] × rows[column][row]`, over the groups of rows.
fn add_bytes<'a>(
    rows: impl Iterator<Item = &'a [u8; UNIT_BYTES]>,
    shares: &[[u8; 8]],
    sums: &mut [u8; UNIT_BYTES],
) {
    // Bytes of even rows and of odd ones, as 16-bit numbers: vectors are multiplied so.
    let [mut even, mut odd] = halves(sums);
    for (rows, shares) in rows.zip(shares) {
        let ([even_rows, odd_rows], [even_shares, odd_shares]) = (halves(rows), halves(shares));
        add_products(&mut even, &even_rows, &even_shares);
        add_products(&mut odd, &odd_rows, &odd_shares);
    }
    for (to, (even, odd)) in sums.as_chunks_mut::<2>().0.iter_mut().zip(even.iter().zip(odd)) {
        *to = [*even as u8, odd as u8];
    }
}

/// Numbers of 16 bits: the lower bytes and the upper ones.
#[inline(always)]
fn halves<const BYTES: usize, const N: usize>(bytes: &[u8; BYTES]) -> [[u16; N]; 2] {
    let words = bytes.as_chunks::<2>().0;
    [
        std::array::from_fn(|at| u16::from_le_bytes(words[at]) & 0xFF),
        std::array::from_fn(|at| u16::from_le_bytes(words[at]) >> 8),
    ]
}

/// Of four rows' shares over eight columns.
#[inline(always)]
fn add_products(sums: &mut [u16; 32], rows: &[u16; 32], shares: &[u16; 4]) {
    for lane in 0..32 {
        sums[lane] = sums[lane].wrapping_add(rows[lane].wrapping_mul(shares[lane % 4]));
    }
}

/// `sums[word][row] += shares[row] × rows[word][row]`, over the groups of rows.
fn add_words<'a>(
    rows: impl Iterator<Item = &'a [u8; UNIT_BYTES]>,
    shares: &[[u8; 32]],
    sums: &mut [u8; UNIT_BYTES],
) {
    let mut lanes = words::<16>(sums);
    for (rows, shares) in rows.zip(shares) {
        let (rows, shares) = (words::<16>(rows), words::<8>(shares));
        for (lane, (sum, row)) in lanes.iter_mut().zip(rows).enumerate() {
            *sum = sum.wrapping_add(row.wrapping_mul(shares[lane % 8]));
        }
    }
    for (to, lane) in sums.as_chunks_mut::<4>().0.iter_mut().zip(lanes) {
        *to = lane.to_le_bytes();
    }
}

fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let words = bytes.as_chunks::<4>().0;
    std::array::from_fn(|at| u32::from_le_bytes(words[at]))
}
