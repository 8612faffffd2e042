//! From one set of moduli to another, and the sums of a key switch, by AVX-512 IFMA.

#![allow(clippy::needless_range_loop, reason = "registers side by side, by number")]

use std::arch::x86_64::*;

use super::ROW_BLOCK;
use super::avx512::{LANES, Sum, q_inverse};
use super::lanes_avx512::Lanes;
use crate::Modulus;

/// See [`Kernel::combine`](super::Kernel::combine).
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn combine(
    modulus: Modulus,
    xs: &[&[u64]],
    weights: &[u64],
    counts: &[u8],
    wrap: u64,
    out: &mut [u64],
) {
    match xs.len() {
        1 => combine_sources::<1>(modulus, xs, weights, counts, wrap, out),
        2 => combine_sources::<2>(modulus, xs, weights, counts, wrap, out),
        3 => combine_sources::<3>(modulus, xs, weights, counts, wrap, out),
        4 => combine_sources::<4>(modulus, xs, weights, counts, wrap, out),
        5 => combine_sources::<5>(modulus, xs, weights, counts, wrap, out),
        6 => combine_sources::<6>(modulus, xs, weights, counts, wrap, out),
        _ => combine_sources::<7>(modulus, xs, weights, counts, wrap, out),
    }
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn combine_sources<const SOURCES: usize>(
    modulus: Modulus,
    xs: &[&[u64]],
    weights: &[u64],
    counts: &[u8],
    wrap: u64,
    out: &mut [u64],
) {
    let length = out.len();
    assert!(xs.len() == SOURCES && weights.len() == SOURCES && length.is_multiple_of(LANES));
    assert!(xs.iter().all(|x| x.len() == length) && counts.len() == length);
    let lanes = Lanes::<true>::new(modulus);
    let q_inverse = q_inverse(modulus);
    let four_q = _mm512_add_epi64(lanes.two_q, lanes.two_q);
    let mut w = [_mm512_setzero_si512(); SOURCES];
    let mut x = [std::ptr::null::<u64>(); SOURCES];
    for j in 0..SOURCES {
        // Montgomery's reduction divides by 2^52: the weights are multiplied with it before.
        let weight = modulus.reduce_u128(u128::from(weights[j]) << 52);
        w[j] = _mm512_set1_epi64(weight as i64);
        x[j] = xs[j].as_ptr();
    }
    let mut table = [0; LANES];
    for (count, entry) in table.iter_mut().enumerate() {
        *entry = modulus.mul(wrap, count as u64 % modulus.value());
    }
    // SAFETY: 64 bytes.
    let table = unsafe { _mm512_loadu_si512(table.as_ptr().cast()) };
    let sum = Combination { lanes, q_inverse, four_q, w, x, counts: counts.as_ptr(), table };
    let out = out.as_mut_ptr();
    let mut start = 0;
    while start < length {
        // SAFETY: `out` and every source have `length` elements, and those from `start` on that are
        // read and written do lie in them.
        start += unsafe {
            match length - start {
                32.. => sum.at::<4>(start, out),
                _ => sum.at::<1>(start, out),
            }
        };
    }
}

/// What one call of [`combine`] computes with.
struct Combination<const SOURCES: usize> {
    lanes: Lanes<true>,
    q_inverse: __m512i,
    four_q: __m512i,
    /// The weights times 2^52.
    w: [__m512i; SOURCES],
    x: [*const u64; SOURCES],
    counts: *const u8,
    /// What 0 to 7 wraps add.
    table: __m512i,
}

impl<const SOURCES: usize> Combination<SOURCES> {
    /// `VECTORS` vectors from element `start` on; how many elements that were.
    ///
    /// # Safety
    /// The sources, the counts and what `out` points to reach as far.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn at<const VECTORS: usize>(&self, start: usize, out: *mut u64) -> usize {
        let lanes = self.lanes;
        let zero = _mm512_setzero_si512();
        let (mut low, mut high) = ([zero; VECTORS], [lanes.q; VECTORS]);
        for j in 0..SOURCES {
            for i in 0..VECTORS {
                // SAFETY: as the caller promises.
                let x = unsafe { _mm512_loadu_si512(self.x[j].add(start + LANES * i).cast()) };
                low[i] = _mm512_madd52lo_epu64(low[i], x, self.w[j]);
                high[i] = _mm512_madd52hi_epu64(high[i], x, self.w[j]);
            }
        }
        let mut quotient = [zero; VECTORS];
        for i in 0..VECTORS {
            quotient[i] = _mm512_madd52lo_epu64(zero, low[i], self.q_inverse);
        }
        for i in 0..VECTORS {
            // SAFETY: as the caller promises; eight bytes.
            let counts = unsafe { _mm_loadl_epi64(self.counts.add(start + LANES * i).cast()) };
            let wraps = _mm512_permutexvar_epi64(_mm512_cvtepu8_epi64(counts), self.table);
            // Each product adds at most q / 2 to the high word: with q and a wrap besides the sum is
            // below (2 + SOURCES / 2) · q once the low words, which are the same, are taken off.
            let sum = _mm512_add_epi64(high[i], _mm512_srli_epi64::<52>(low[i]));
            let reduced = _mm512_madd52hi_epu64(zero, quotient[i], lanes.q);
            high[i] = _mm512_sub_epi64(_mm512_add_epi64(sum, wraps), reduced);
        }
        for i in 0..VECTORS {
            if SOURCES > 4 {
                high[i] = Lanes::<true>::minus_once(high[i], self.four_q);
            }
            high[i] = Lanes::<true>::minus_once(high[i], lanes.two_q);
            high[i] = Lanes::<true>::minus_once(high[i], lanes.q);
            // SAFETY: as the caller promises.
            unsafe { _mm512_storeu_si512(out.add(start + LANES * i).cast(), high[i]) };
        }
        LANES * VECTORS
    }
}

/// See [`Kernel::count_wraps`](super::Kernel::count_wraps).
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) fn count_wraps(moduli: &[Modulus], xs: &[&[u64]], out: &mut [u8]) {
    let length = out.len();
    assert!(xs.len() == moduli.len() && length.is_multiple_of(LANES));
    assert!(xs.iter().all(|x| x.len() == length));
    for start in (0..length).step_by(LANES) {
        let mut sum = _mm512_set1_pd(0.5);
        for (x, modulus) in xs.iter().zip(moduli) {
            // SAFETY: `start` + LANES is at most the length, which is each slice's.
            let x = unsafe { _mm512_loadu_si512(x.as_ptr().add(start).cast()) };
            let inverse = _mm512_set1_pd(1.0 / modulus.value() as f64);
            sum = _mm512_add_pd(sum, _mm512_mul_pd(_mm512_cvtepu64_pd(x), inverse));
        }
        let counts = _mm512_cvtepi64_epi8(_mm512_cvttpd_epi64(sum));
        // SAFETY: likewise; eight bytes.
        unsafe { _mm_storel_epi64(out.as_mut_ptr().add(start).cast(), counts) };
    }
}

/// See [`Kernel::inner_products`](super::Kernel::inner_products).
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn inner_products(
    modulus: Modulus,
    xs: &[&[u64]],
    ys: [&[&[u64]]; 2],
    outs: [&mut [u64]; 2],
) {
    let length = outs[0].len();
    assert!(outs[1].len() == length && length.is_multiple_of(LANES));
    assert!(ys.iter().all(|ys| ys.len() == xs.len()));
    assert!(xs.iter().chain(ys[0]).chain(ys[1]).all(|values| values.len() == length));
    let sum = Sum::new(modulus);
    let [first, second] = outs;
    let outs = [first.as_mut_ptr(), second.as_mut_ptr()];
    let mut start = 0;
    while start < length {
        // SAFETY: every slice has `length` elements, and those from `start` on that are read and
        // written do lie in them.
        start += unsafe {
            match length - start {
                32.. => inner_products_at::<4>(&sum, xs, ys, start, outs),
                16.. => inner_products_at::<2>(&sum, xs, ys, start, outs),
                _ => inner_products_at::<1>(&sum, xs, ys, start, outs),
            }
        };
    }
}

/// `VECTORS` vectors of both sums from element `start` on; how many elements that were.
///
/// # Safety
/// All slices, and what `outs` point to, reach as far; the slices of a side are as many as `xs`.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
unsafe fn inner_products_at<const VECTORS: usize>(
    sum: &Sum,
    xs: &[&[u64]],
    ys: [&[&[u64]]; 2],
    start: usize,
    outs: [*mut u64; 2],
) -> usize {
    let mut low = [[_mm512_setzero_si512(); VECTORS]; 2];
    let mut high = low;
    for (x, (y0, y1)) in xs.iter().zip(ys[0].iter().zip(ys[1])) {
        for i in 0..VECTORS {
            let at = start + LANES * i;
            // SAFETY: as the caller promises.
            let (x, y) = unsafe {
                (
                    _mm512_loadu_si512(x.as_ptr().add(at).cast()),
                    [y0, y1].map(|y| _mm512_loadu_si512(y.as_ptr().add(at).cast())),
                )
            };
            for side in 0..2 {
                low[side][i] = _mm512_madd52lo_epu64(low[side][i], x, y[side]);
                high[side][i] = _mm512_madd52hi_epu64(high[side][i], x, y[side]);
            }
        }
    }
    for side in 0..2 {
        for i in 0..VECTORS {
            let value = sum.reduce(high[side][i], low[side][i]);
            // SAFETY: as the caller promises.
            unsafe { _mm512_storeu_si512(outs[side].add(start + LANES * i).cast(), value) };
        }
    }
    LANES * VECTORS
}

/// See [`Kernel::row_products`](super::Kernel::row_products).
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn row_products(
    modulus: Modulus,
    xs: &[&[u64]],
    rows: &[u64],
    more: &[(&[u64], [&[u64]; 2])],
    outs: [&mut [u64]; 2],
) {
    let length = outs[0].len();
    assert!(outs[1].len() == length && length.is_multiple_of(ROW_BLOCK));
    assert!(xs.iter().all(|x| x.len() == length) && xs.len() <= rows.len() / (2 * length));
    assert!(more.iter().all(|(x, [y, z])| [x, y, z].iter().all(|v| v.len() == length)));
    let [first, second] = outs;
    let outs = [first.as_mut_ptr(), second.as_mut_ptr()];
    let count = rows.len() / (2 * length);
    let sum = RowSum { lanes: Lanes::new(modulus), q_inverse: q_inverse(modulus) };
    // Every term adds less than q / 2 to the high word; the reduction leaves it and q.
    let terms = xs.len() + more.len();
    for start in (0..length).step_by(ROW_BLOCK) {
        // SAFETY: every slice has `length` elements, `rows` 2 · `count` times as many, and those from
        // `start` on that are read and written do lie in them.
        unsafe {
            let rows = rows.as_ptr().add(start * 2 * count);
            match terms {
                0..=6 => sum.at::<2>(xs, rows, more, start, outs),
                7..=14 => sum.at::<3>(xs, rows, more, start, outs),
                _ => sum.at::<5>(xs, rows, more, start, outs),
            }
        }
    }
}

/// The constants of [`row_products`].
struct RowSum {
    lanes: Lanes<true>,
    q_inverse: __m512i,
}

impl RowSum {
    /// [`ROW_BLOCK`] elements of both sums from element `start` on, which `STEPS` halvings of their
    /// range reduce.
    ///
    /// # Safety
    /// All slices, and what `outs` point to, reach as far; `rows` has a block of each side for each of
    /// `xs`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn at<const STEPS: usize>(
        &self,
        xs: &[&[u64]],
        rows: *const u64,
        more: &[(&[u64], [&[u64]; 2])],
        start: usize,
        outs: [*mut u64; 2],
    ) {
        const VECTORS: usize = ROW_BLOCK / LANES;
        let zero = _mm512_setzero_si512();
        let mut low = [[zero; VECTORS]; 2];
        let mut high = [[self.lanes.q; VECTORS]; 2];
        for (j, x) in xs.iter().enumerate() {
            for i in 0..VECTORS {
                // SAFETY: as the caller promises.
                let (x, y) = unsafe {
                    let at = rows.add(2 * j * ROW_BLOCK + LANES * i);
                    (
                        _mm512_loadu_si512(x.as_ptr().add(start + LANES * i).cast()),
                        [at, at.add(ROW_BLOCK)].map(|y| _mm512_loadu_si512(y.cast())),
                    )
                };
                for side in 0..2 {
                    low[side][i] = _mm512_madd52lo_epu64(low[side][i], x, y[side]);
                    high[side][i] = _mm512_madd52hi_epu64(high[side][i], x, y[side]);
                }
            }
        }
        for (x, ys) in more {
            for i in 0..VECTORS {
                // SAFETY: as the caller promises.
                let (x, y) = unsafe {
                    let at = start + LANES * i;
                    (
                        _mm512_loadu_si512(x.as_ptr().add(at).cast()),
                        ys.map(|y| _mm512_loadu_si512(y.as_ptr().add(at).cast())),
                    )
                };
                for side in 0..2 {
                    low[side][i] = _mm512_madd52lo_epu64(low[side][i], x, y[side]);
                    high[side][i] = _mm512_madd52hi_epu64(high[side][i], x, y[side]);
                }
            }
        }
        for side in 0..2 {
            for i in 0..VECTORS {
                // Montgomery's reduction: the low words are the same, the high ones' difference is the
                // sum over 2^52, and q.
                let quotient = _mm512_madd52lo_epu64(zero, low[side][i], self.q_inverse);
                let carried =
                    _mm512_add_epi64(high[side][i], _mm512_srli_epi64::<52>(low[side][i]));
                let taken = _mm512_madd52hi_epu64(zero, quotient, self.lanes.q);
                let mut value = _mm512_sub_epi64(carried, taken);
                let mut bound = self.lanes.q;
                let mut bounds = [bound; STEPS];
                for step in (0..STEPS).rev() {
                    bounds[step] = bound;
                    bound = _mm512_add_epi64(bound, bound);
                }
                for bound in bounds {
                    value = Lanes::<true>::minus_once(value, bound);
                }
                // SAFETY: as the caller promises.
                unsafe { _mm512_storeu_si512(outs[side].add(start + LANES * i).cast(), value) };
            }
        }
    }
}
