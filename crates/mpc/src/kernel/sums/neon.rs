//! PMULL: a product of two words an instruction.

use std::arch::aarch64::*;

use super::{Factors, Row, Sums};

#[target_feature(enable = "neon,aes")]
pub(super) fn add(rows: &[Row], factors: &Factors, sums: &mut [Sums]) {
    for (row, sums) in rows.iter().zip(sums) {
        for (block, bits) in row.iter().enumerate() {
            for (sum, factors) in sums.iter_mut().zip(factors) {
                *sum ^= vmull_p64(*bits as u64, factors[2 * block]);
                *sum ^= vmull_p64((*bits >> 64) as u64, factors[2 * block + 1]);
            }
        }
    }
}
