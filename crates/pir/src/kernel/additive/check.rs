//! One checker that every backend's test calls.

use std::ops::Range;

use hushtable_prg::Platform;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::super::transpose8;
use super::*;

/// Shares times rows, straight from the definition.
fn add_expected(ring: Ring, rows: &[u8], width: usize, shares: &[u8], sums: &mut [u8]) {
    let number_bytes = ring.share_bytes() / BLOCK_ROWS;
    let number = |bytes: &[u8]| match ring {
        Ring::Z8 => u32::from(bytes[0]),
        Ring::Z32 => u32::from_le_bytes(bytes.try_into().unwrap()),
    };
    for (row, share) in rows.chunks_exact(width).zip(shares.chunks_exact(number_bytes)) {
        let numbers = sums.chunks_exact_mut(number_bytes).zip(row.chunks_exact(number_bytes));
        for (sum, row) in numbers {
            let next = number(sum).wrapping_add(number(row).wrapping_mul(number(share)));
            sum.copy_from_slice(&next.to_le_bytes()[..number_bytes]);
        }
    }
}

/// The tile of some columns of a block's rows.
fn planes(rows: &[u8], width: usize, columns: Range<usize>) -> Vec<u8> {
    let groups = rows.chunks_exact(8 * width);
    let tile = groups.flat_map(|rows| {
        columns.clone().flat_map(move |column| {
            let bytes = std::array::from_fn(|row| rows[row * width + column]);
            transpose8(u64::from_le_bytes(bytes)).to_le_bytes()
        })
    });
    tile.collect()
}

/// Random and extreme shares and rows, for panels of all widths and for batches at the edges of the
/// kernels' steps; over two blocks, as sums are added to.
fn check(backend: Additive) {
    let mut rng = ChaCha12Rng::seed_from_u64(7);
    let strip = TILE_UNITS_MAX * UNIT_ROW_BYTES;
    for ring in [Ring::Z8, Ring::Z32] {
        for (units, queries) in (1..=PANEL_UNITS)
            .flat_map(|units| [1, 2, 3, 4, 5, 6, 7, 9, 13, 17, 33].map(|queries| (units, queries)))
        {
            let width = units * UNIT_ROW_BYTES;
            let mut sums = vec![0; queries * units * UNIT_BYTES];
            let mut answers = vec![0; queries * width];
            for block in 0..2 {
                let mut rows = vec![0; BLOCK_ROWS * width];
                rng.fill(&mut rows[..]);
                let mut shares = vec![0; queries * ring.share_bytes()];
                rng.fill(&mut shares[..]);
                if block == 1 {
                    rows[..100 * width].fill(0xFF);
                    shares[..ring.share_bytes()].fill(0xFF);
                }
                let mut unpacked = vec![1; units * UNIT_ROWS_BYTES];
                let mut next = Vec::new();
                for first in (0..width).step_by(strip) {
                    let tile = planes(&rows, width, first..width.min(first + strip));
                    let to = &mut unpacked[first / UNIT_ROW_BYTES * UNIT_ROWS_BYTES..];
                    backend.unpack(ring, &tile, &mut to[..tile.len()]);
                    next = tile;
                }
                backend.multiply(ring, &unpacked, &next[..777], &shares, &mut sums);
                let shares = shares.chunks_exact(ring.share_bytes());
                for (shares, answer) in shares.zip(answers.chunks_exact_mut(width)) {
                    add_expected(ring, &rows, width, shares, answer);
                }
            }
            let mut found = vec![0; answers.len()];
            let sums = sums.chunks_exact(units * UNIT_BYTES);
            for (sums, row) in sums.zip(found.chunks_exact_mut(width)) {
                backend.fold(ring, sums, row);
            }
            assert!(found == answers, "{backend:?} {ring:?}, {units} unit(s), {queries} queries");
        }
    }
}

/// Every backend that this machine can run, whatever the cap.
#[test]
fn every_backend_agrees_with_the_definition() {
    for platform in Platform::available() {
        check(Additive::new(platform));
    }
}
