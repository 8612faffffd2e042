//! One checker that every backend's test calls.

use hushtable_prg::Platform;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::*;

/// Holds `kernel` to sums worked out bit by bit.
fn check(platform: Platform) {
    let kernel = Kernel::new(platform);
    let mut rng = ChaCha12Rng::seed_from_u64(7);
    for units in 1..=TILE_UNITS_MAX {
        for (query_groups, groups) in
            [(1, 64), (2, 2), (3, 64), (4, 34), (5, 64), (8, 64), (9, 18), (9, 64)]
        {
            let mut tile = vec![0u8; groups * units * UNIT_BYTES];
            rng.fill(&mut tile[..]);
            let mut next = vec![0u8; tile.len() / query_groups];
            rng.fill(&mut next[..]);
            let shares: Vec<[u8; 64]> = (0..query_groups * LANES).map(|_| rng.random()).collect();
            let mut operands = vec![0; query_groups * kernel.operand_bytes()];
            for (shares, operand) in
                shares.chunks_exact(LANES).zip(operands.chunks_exact_mut(kernel.operand_bytes()))
            {
                kernel.pack(&std::array::from_fn(|lane| &shares[lane]), operand);
            }
            // Sums are added to, not overwritten.
            let mut sums = vec![0u8; query_groups * units * UNIT_BYTES];
            rng.fill(&mut sums[..]);
            let mut expected = sums.clone();
            for (query, shares) in shares.iter().enumerate() {
                for column in 0..units * UNIT_BYTES {
                    let sum = (0..groups).fold(0, |sum, group| {
                        let planes = tile[group * units * UNIT_BYTES + column];
                        sum ^ ((planes & shares[group]).count_ones() % 2)
                    });
                    let at = query / LANES * units * UNIT_BYTES + column;
                    expected[at] ^= (sum as u8) << (query % LANES);
                }
            }
            kernel.multiply(&tile, &next, units, &operands, &mut sums);
            assert_eq!(sums, expected, "{} {units} units {query_groups} groups", kernel.name());

            let mut sums = vec![0u8; units * UNIT_BYTES];
            kernel.scan(&tile, &next, units, &shares[0], &mut sums);
            for (column, sum) in sums.iter().enumerate() {
                let expected = (0..groups).fold(0, |sum, group| {
                    let planes = tile[group * units * UNIT_BYTES + column];
                    sum ^ ((planes & shares[0][group]).count_ones() % 2)
                });
                assert_eq!(u32::from(*sum), expected, "scan, column {column}");
            }
        }
    }
}

/// Every backend that this machine can run, whatever the cap.
#[test]
fn every_backend_agrees_with_the_definition() {
    for platform in Platform::available() {
        check(platform);
    }
}
