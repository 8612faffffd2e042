//! Weights times columns of numbers modulo 2^52 or 2^64, by AVX-512.

use std::arch::x86_64::*;

use super::COLUMNS;

/// Elements of a vector.
const LANES: usize = 8;

/// Vectors of a row of columns.
const VECTORS: usize = COLUMNS / LANES;

/// Rows whose sums are held in registers together.
const ROWS: usize = 6;

/// As [`portable`](super::portable::add_columns) modulo 2^52.
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) fn add_columns_52(
    weights: &[i32],
    stride: usize,
    columns: &[[u64; COLUMNS]],
    outs: &mut [[u64; COLUMNS]],
) {
    add_columns::<true>(weights, stride, columns, outs);
}

/// As [`portable`](super::portable::add_columns).
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
pub(super) fn add_columns_64(
    weights: &[i32],
    stride: usize,
    columns: &[[u64; COLUMNS]],
    outs: &mut [[u64; COLUMNS]],
) {
    add_columns::<false>(weights, stride, columns, outs);
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
fn add_columns<const SHORT: bool>(
    weights: &[i32],
    stride: usize,
    columns: &[[u64; COLUMNS]],
    outs: &mut [[u64; COLUMNS]],
) {
    let (blocks, rest) = outs.as_chunks_mut::<ROWS>();
    let first = blocks.len() * ROWS;
    for (index, block) in blocks.iter_mut().enumerate() {
        let own = std::array::from_fn(|row| &weights[(index * ROWS + row) * stride..]);
        add_rows::<SHORT, ROWS>(own, columns, block);
    }
    for (index, out) in rest.iter_mut().enumerate() {
        let own = [&weights[(first + index) * stride..]];
        add_rows::<SHORT, 1>(own, columns, std::array::from_mut(out));
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512ifma")]
fn add_rows<const SHORT: bool, const COUNT: usize>(
    weights: [&[i32]; COUNT],
    columns: &[[u64; COLUMNS]],
    outs: &mut [[u64; COLUMNS]; COUNT],
) {
    let weights = weights.map(|own| &own[..columns.len()]);
    let mut sums = [[_mm512_setzero_si512(); VECTORS]; COUNT];
    for (sums, out) in sums.iter_mut().zip(&*outs) {
        for (sum, out) in sums.iter_mut().zip(out.as_chunks::<LANES>().0) {
            // SAFETY: 64 bytes.
            *sum = unsafe { _mm512_loadu_si512(out.as_ptr().cast()) };
        }
    }
    for (index, column) in columns.iter().enumerate() {
        let mut values = [_mm512_setzero_si512(); VECTORS];
        for (value, from) in values.iter_mut().zip(column.as_chunks::<LANES>().0) {
            // SAFETY: 64 bytes.
            *value = unsafe { _mm512_loadu_si512(from.as_ptr().cast()) };
        }
        for (sums, own) in sums.iter_mut().zip(&weights) {
            let weight = _mm512_set1_epi64(i64::from(own[index]));
            for (sum, &value) in sums.iter_mut().zip(&values) {
                *sum = if SHORT {
                    _mm512_madd52lo_epu64(*sum, value, weight)
                } else {
                    _mm512_add_epi64(*sum, _mm512_mullo_epi64(value, weight))
                };
            }
        }
    }
    for (sums, out) in sums.iter().zip(outs) {
        for (&sum, out) in sums.iter().zip(out.as_chunks_mut::<LANES>().0) {
            // SAFETY: 64 bytes.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), sum) };
        }
    }
}
