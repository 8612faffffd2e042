//! 32 rows at a time: their bytes are turned by unpacking, their bits taken one by one as signs.

use std::arch::x86_64::*;

use super::{ROW, ROWS, Row, TILE};

#[target_feature(enable = "avx2")]
pub(super) fn transpose(rows: &[Row; ROWS], labels: &mut [u128; TILE]) {
    let (labels, _) = labels.as_chunks_mut::<128>();
    for (block, labels) in labels.iter_mut().enumerate().take(ROW) {
        let mut words = [[_mm256_setzero_si256(); 16]; ROWS / 32];
        for (turned, rows) in words.iter_mut().zip(rows.chunks_exact(32)) {
            for (i, turned) in turned.iter_mut().enumerate() {
                *turned = load(rows[i][block], rows[16 + i][block]);
            }
            // An element is at (register, byte of a lane); each turn rotates these eight bits by one.
            for _ in 0..4 {
                let from = *turned;
                for i in 0..8 {
                    turned[2 * i] = _mm256_unpacklo_epi8(from[i], from[i + 8]);
                    turned[2 * i + 1] = _mm256_unpackhi_epi8(from[i], from[i + 8]);
                }
            }
        }
        for (byte, labels) in labels.chunks_exact_mut(8).enumerate() {
            let mut words = [words[0][byte], words[1][byte], words[2][byte], words[3][byte]];
            for label in labels.iter_mut().rev() {
                let mut signs = [0; 4];
                for (sign, word) in signs.iter_mut().zip(&mut words) {
                    *sign = u128::from(_mm256_movemask_epi8(*word) as u32);
                    *word = _mm256_add_epi8(*word, *word);
                }
                *label = signs[0] | signs[1] << 32 | signs[2] << 64 | signs[3] << 96;
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(low: u128, high: u128) -> __m256i {
    let half = |x: u128| _mm_set_epi64x((x >> 64) as i64, x as i64);
    _mm256_set_m128i(half(high), half(low))
}
