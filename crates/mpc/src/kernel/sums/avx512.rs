//! VPCLMULQDQ: four products of two words an instruction. A tile's factors stay in registers.

use std::arch::x86_64::*;

use super::{Factors, Row, SUMS, Sums, WORDS};

/// Registers of a row.
const WIDE: usize = WORDS / 8;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vpclmulqdq")]
pub(super) fn add(rows: &[Row], factors: &Factors, sums: &mut [Sums]) {
    let mut wide = [[_mm512_setzero_si512(); WIDE]; SUMS];
    for (wide, factors) in wide.iter_mut().zip(factors) {
        let (eights, _) = factors.as_chunks::<8>();
        for (wide, eight) in wide.iter_mut().zip(eights) {
            // SAFETY: eight words are 64 readable bytes; the load needs no alignment.
            *wide = unsafe { _mm512_loadu_si512(eight.as_ptr().cast()) };
        }
    }
    for (row, sums) in rows.iter().zip(sums) {
        let mut own = [_mm512_setzero_si512(); SUMS];
        let (fours, _) = row.as_chunks::<4>();
        for (place, four) in fours.iter().enumerate() {
            // SAFETY: four blocks are 64 readable bytes; the load needs no alignment.
            let bits = unsafe { _mm512_loadu_si512(four.as_ptr().cast()) };
            for (own, wide) in own.iter_mut().zip(&wide) {
                let low = _mm512_clmulepi64_epi128::<0x00>(bits, wide[place]);
                let high = _mm512_clmulepi64_epi128::<0x11>(bits, wide[place]);
                *own = _mm512_ternarylogic_epi64::<0x96>(*own, low, high);
            }
        }
        for (sum, own) in sums.iter_mut().zip(own) {
            let mut lanes = [0_u128; 4];
            // SAFETY: four blocks are 64 writable bytes; the store needs no alignment.
            unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), own) };
            *sum ^= lanes[0] ^ lanes[1] ^ lanes[2] ^ lanes[3];
        }
    }
}
