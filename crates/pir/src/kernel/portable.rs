//! The product in plain Rust: the specification of the other backends.

use super::{BLOCK_GROUPS, LANES, TILE_UNITS_MAX, UNIT_BYTES};

/// Eight queries' share bytes, query by query.
pub(super) const OPERAND_BYTES: usize = LANES * BLOCK_GROUPS;

pub(super) fn pack(shares: &[&[u8; 64]; LANES], operand: &mut [u8]) {
    for (to, from) in operand.chunks_exact_mut(BLOCK_GROUPS).zip(shares) {
        to.copy_from_slice(*from);
    }
}

pub(super) fn multiply(tile: &[u8], next: &[u8], units: usize, operands: &[u8], sums: &mut [u8]) {
    let groups =
        operands.chunks_exact(OPERAND_BYTES).zip(sums.chunks_exact_mut(units * UNIT_BYTES));
    for (operand, sums) in groups {
        for (lane, shares) in operand.chunks_exact(BLOCK_GROUPS).enumerate() {
            accumulate(tile, units, shares, lane, sums);
        }
    }
    let _ = next;
}

pub(super) fn scan(tile: &[u8], next: &[u8], units: usize, shares: &[u8; 64], sums: &mut [u8]) {
    accumulate(tile, units, shares, 0, sums);
    let _ = next;
}

/// Adds one query's sum over the tile to bit `lane` of `sums`.
///
/// A stored byte holds eight rows' bits: ANDed with the query's byte for those rows and XORed over
/// the groups it holds eight partial sums, whose parity is the sum.
fn accumulate(tile: &[u8], units: usize, shares: &[u8], lane: usize, sums: &mut [u8]) {
    let width = units * UNIT_BYTES;
    let mut partial = [0u8; TILE_UNITS_MAX * UNIT_BYTES];
    let partial = &mut partial[..width];
    for (planes, share) in tile.chunks_exact(width).zip(shares) {
        for (sum, byte) in partial.iter_mut().zip(planes) {
            *sum ^= byte & share;
        }
    }
    for (sum, partial) in sums.iter_mut().zip(partial) {
        *sum ^= parity(*partial) << lane;
    }
}

/// 1 if an odd number of bits is set.
fn parity(x: u8) -> u8 {
    let x = x ^ (x >> 4);
    let x = x ^ (x >> 2);
    (x ^ (x >> 1)) & 1
}
