//! PCLMULQDQ: a product of two words an instruction.

use std::arch::x86_64::*;

use super::{Factors, Row, SUMS, Sums};

#[target_feature(enable = "avx2,pclmulqdq")]
pub(super) fn add(rows: &[Row], factors: &Factors, sums: &mut [Sums]) {
    for (row, sums) in rows.iter().zip(sums) {
        let mut own = [_mm_setzero_si128(); SUMS];
        for (block, bits) in row.iter().enumerate() {
            let bits = register(*bits as u64, (*bits >> 64) as u64);
            for (own, factors) in own.iter_mut().zip(factors) {
                let factors = register(factors[2 * block], factors[2 * block + 1]);
                *own = _mm_xor_si128(*own, _mm_clmulepi64_si128::<0x00>(bits, factors));
                *own = _mm_xor_si128(*own, _mm_clmulepi64_si128::<0x11>(bits, factors));
            }
        }
        for (sum, own) in sums.iter_mut().zip(own) {
            let halves = [_mm_extract_epi64::<0>(own) as u64, _mm_extract_epi64::<1>(own) as u64];
            *sum ^= u128::from(halves[0]) | u128::from(halves[1]) << 64;
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn register(low: u64, high: u64) -> __m128i {
    _mm_set_epi64x(high as i64, low as i64)
}
