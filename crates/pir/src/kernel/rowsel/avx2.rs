//! RowSel by 32-bit products: numbers in two halves of 26 bits, three sums a result.

use std::arch::x86_64::*;

use super::{CHUNK_VECTORS, GROUP_COLUMNS, LANES, Packing, Task, out_index};

/// See [`RowSelect::multiply`](super::RowSelect::multiply).
///
/// # Safety
/// AVX2; lengths as `Task::check` holds them.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn multiply(task: &Task<'_>, out: &mut [u64]) {
    for vector in 0..CHUNK_VECTORS {
        for column in 0..task.groups * GROUP_COLUMNS {
            for client in 0..task.queries.len() {
                for half in 0..2 {
                    // SAFETY: vector, column and client exist.
                    unsafe { sums(task, vector, column, client, half, out) };
                }
            }
        }
    }
}

/// Lanes `half * 4..` of one column's two sums for one client.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn sums(
    task: &Task<'_>,
    vector: usize,
    column: usize,
    client: usize,
    half: usize,
    out: &mut [u64],
) {
    let vector_bytes = task.packing.vector_bytes();
    let group = vector * task.groups + column / GROUP_COLUMNS;
    let base = group * task.group_bytes() + column % GROUP_COLUMNS * vector_bytes;
    let mask = _mm256_set1_epi64x((1 << 26) - 1);
    let mut total = [[_mm256_setzero_si256(); 3]; 2];
    // SAFETY: `check` held that the table has all vectors and SLACK_BYTES, and each query all rows.
    unsafe {
        let mut table = task.table.as_ptr().add(base);
        let mut query = task.queries[client].as_ptr().add(vector * task.query_vector() + half * 4);
        for _ in 0..task.rows {
            let number = match task.packing {
                Packing::Narrow => {
                    _mm256_cvtepu32_epi64(_mm_loadu_si128(table.add(half * 16).cast()))
                }
                Packing::Wide => load_wide(table.add(half * 26)),
            };
            let (low, high) = (_mm256_and_si256(number, mask), _mm256_srli_epi64::<26>(number));
            for (side, total) in total.iter_mut().enumerate() {
                let factor = match (task.packing, side) {
                    (Packing::Wide, _) => _mm256_loadu_si256(query.add(side * LANES).cast()),
                    (Packing::Narrow, 0) => {
                        let whole = _mm256_set1_epi64x(u32::MAX.into());
                        _mm256_and_si256(_mm256_loadu_si256(query.cast()), whole)
                    }
                    (Packing::Narrow, _) => {
                        _mm256_srli_epi64::<32>(_mm256_loadu_si256(query.cast()))
                    }
                };
                let factor_low = _mm256_and_si256(factor, mask);
                let factor_high = _mm256_srli_epi64::<26>(factor);
                let cross = _mm256_add_epi64(
                    _mm256_mul_epu32(low, factor_high),
                    _mm256_mul_epu32(high, factor_low),
                );
                total[0] = _mm256_add_epi64(total[0], _mm256_mul_epu32(low, factor_low));
                total[1] = _mm256_add_epi64(total[1], cross);
                total[2] = _mm256_add_epi64(total[2], _mm256_mul_epu32(high, factor_high));
            }
            query = query.add(task.packing.query_words());
            table = table.add(GROUP_COLUMNS * vector_bytes);
        }
        let at = out_index(task, client, column, vector).map(|at| at + half * 4);
        for (side, (total, at)) in total.iter().zip(at).enumerate() {
            let mut words = [[0u64; 4]; 3];
            for (words, &total) in words.iter_mut().zip(total) {
                _mm256_storeu_si256(words.as_mut_ptr().cast(), total);
            }
            for (lane, out) in out[at..at + 4].iter_mut().enumerate() {
                let [low, cross, high] = words.map(|words| u128::from(words[lane]));
                let sum = task.modulus.reduce_u128(low + (cross << 26) + (high << 52));
                *out = match (task.packing, side) {
                    (Packing::Narrow, 1) => *out | sum << 32,
                    _ => sum,
                };
            }
        }
    }
}

/// Four numbers of 52 bits.
///
/// # Safety
/// 32 bytes can be read at `from`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load_wide(from: *const u8) -> __m256i {
    // SAFETY: the caller's: two times 16 bytes, from bytes 0 and 13 on.
    let (first, second) =
        unsafe { (_mm_loadu_si128(from.cast()), _mm_loadu_si128(from.add(13).cast())) };
    let packed = _mm256_set_m128i(second, first);
    // In each half: a number from byte 0, and one from byte 6 that starts 4 bits on.
    let bytes = _mm256_setr_epi8(
        0, 1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9, 10, 11, 12, 13, //
        0, 1, 2, 3, 4, 5, 6, 7, 6, 7, 8, 9, 10, 11, 12, 13,
    );
    let words = _mm256_shuffle_epi8(packed, bytes);
    let words = _mm256_srlv_epi64(words, _mm256_setr_epi64x(0, 4, 0, 4));
    _mm256_and_si256(words, _mm256_set1_epi64x((1 << 52) - 1))
}
