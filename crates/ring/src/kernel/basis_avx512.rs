//! From one set of moduli to another, and the sums of a key switch, by AVX-512 IFMA.

#![allow(clippy::needless_range_loop, reason = "registers side by side, by number")]

use std::arch::x86_64::*;

use super::avx512::{LANES, q_inverse};
use super::lanes_avx512::Lanes;
use super::{PackedGroup, ROW_BLOCK, Rows, SOURCES_MAX, width_bytes};
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
        7 => combine_sources::<7>(modulus, xs, weights, counts, wrap, out),
        8 => combine_sources::<8>(modulus, xs, weights, counts, wrap, out),
        9 => combine_sources::<9>(modulus, xs, weights, counts, wrap, out),
        10 => combine_sources::<10>(modulus, xs, weights, counts, wrap, out),
        11 => combine_sources::<11>(modulus, xs, weights, counts, wrap, out),
        12 => combine_sources::<12>(modulus, xs, weights, counts, wrap, out),
        _ => combine_sources::<{ SOURCES_MAX }>(modulus, xs, weights, counts, wrap, out),
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
    let eight_q = _mm512_add_epi64(four_q, four_q);
    let mut w = [_mm512_setzero_si512(); SOURCES];
    let mut x = [std::ptr::null::<u64>(); SOURCES];
    for j in 0..SOURCES {
        // Montgomery's reduction divides by 2^52: the weights are multiplied with it before.
        let weight = modulus.reduce_u128(u128::from(weights[j]) << 52);
        w[j] = _mm512_set1_epi64(weight as i64);
        x[j] = xs[j].as_ptr();
    }
    let mut table = [0; 2 * LANES];
    for (count, entry) in table.iter_mut().enumerate() {
        *entry = modulus.mul(wrap, count as u64 % modulus.value());
    }
    // SAFETY: 64 bytes each.
    let table = [0, LANES].map(|from| unsafe { _mm512_loadu_si512(table[from..].as_ptr().cast()) });
    let sum =
        Combination { lanes, q_inverse, four_q, eight_q, w, x, counts: counts.as_ptr(), table };
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
    eight_q: __m512i,
    /// The weights times 2^52.
    w: [__m512i; SOURCES],
    x: [*const u64; SOURCES],
    counts: *const u8,
    /// What 0 to 15 wraps add.
    table: [__m512i; 2],
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
            let [few, many] = self.table;
            let wraps = _mm512_permutex2var_epi64(few, _mm512_cvtepu8_epi64(counts), many);
            // x < 2^51 and w < q < 2^51. Of 13 products the low words, below 2^52 each, add up to less
            // than 2^56, and what they carry is added to the high words. Those, with the carry, are at
            // most Σ x · w / 2^52 < SOURCES · q / 2: with the q that they start from, and a wrap, below
            // (2 + SOURCES / 2) · q, at most 8.5 · 2^51 < 2^55. What is taken off, the same low words in
            // another way, is below q, and so never more than there is.
            let sum = _mm512_add_epi64(high[i], _mm512_srli_epi64::<52>(low[i]));
            let reduced = _mm512_madd52hi_epu64(zero, quotient[i], lanes.q);
            high[i] = _mm512_sub_epi64(_mm512_add_epi64(sum, wraps), reduced);
        }
        for i in 0..VECTORS {
            // Of less than 16 q, 8 q, 4 q.
            if SOURCES > 12 {
                high[i] = Lanes::<true>::minus_once(high[i], self.eight_q);
            }
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

/// Unpacks eight numbers of a few bytes each, of which neighbours may be one.
#[derive(Clone, Copy)]
struct Unpacking {
    width: usize,
    /// The bytes that are read, and those of each lane that they go to.
    read: __mmask64,
    filled: __mmask64,
    order: __m512i,
}

impl Unpacking {
    /// Of numbers in runs of 2^`run_log2`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn new(modulus: Modulus, run_log2: u32) -> Self {
        let width = width_bytes(modulus);
        let repeats = run_log2.min(LANES.ilog2());
        let order = &ORDERS[width][repeats as usize];
        Self {
            width,
            read: u64::MAX >> (64 - (LANES >> repeats) * width),
            filled: 0x0101_0101_0101_0101 * ((1u64 << width) - 1),
            // SAFETY: 64 bytes.
            order: unsafe { _mm512_loadu_si512(order.as_ptr().cast()) },
        }
    }

    /// The eight numbers at `from`, as many of them as differ.
    ///
    /// # Safety
    /// They lie in one allocation.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn load(self, from: *const u8) -> __m512i {
        // SAFETY: bytes behind those numbers are not read.
        let bytes = unsafe { _mm512_maskz_loadu_epi8(self.read, from.cast()) };
        _mm512_maskz_permutexvar_epi8(self.filled, self.order, bytes)
    }
}

/// By bytes of a number and log2 of a run: which byte of those that are read goes where.
static ORDERS: [[[u8; 64]; 4]; 8] = {
    let mut orders = [[[0; 64]; 4]; 8];
    let mut width = 1;
    while width < orders.len() {
        let mut repeats = 0;
        while repeats < orders[width].len() {
            let mut index = 0;
            while index < 64 {
                orders[width][repeats][index] =
                    (((index / 8) >> repeats) * width + index % 8) as u8 & 63;
                index += 1;
            }
            repeats += 1;
        }
        width += 1;
    }
    orders
};

/// See [`Kernel::row_products`](super::Kernel::row_products).
#[target_feature(enable = "avx512f,avx512bw,avx512ifma,avx512vbmi")]
pub(super) fn row_products(
    modulus: Modulus,
    xs: &[&[u64]],
    rows: Rows,
    more: &[(&[u64], [&[u64]; 2])],
    outs: [&mut [u64]; 2],
) {
    let length = outs[0].len();
    assert!(outs[1].len() == length && length.is_multiple_of(ROW_BLOCK));
    let count = rows.count(modulus, length);
    assert!(xs.iter().all(|x| x.len() == length) && xs.len() <= count);
    assert!(more.iter().all(|(x, [y, z])| [x, y, z].iter().all(|v| v.len() == length)));
    let [first, second] = outs;
    let outs = [first.as_mut_ptr(), second.as_mut_ptr()];
    let reduction = Reduction::new(modulus, xs.len() + more.len());
    for start in (0..length).step_by(ROW_BLOCK) {
        let mut sum = PairSum::new(reduction.lanes.q);
        // SAFETY: every slice has `length` elements, `rows` as many of `count` rows at least, and those
        // from `start` on that are read and written do lie in them.
        unsafe {
            match rows {
                Rows::Packed(rows) => sum.add_packed(modulus, xs, rows, start),
                Rows::Apart { firsts, seconds } => {
                    sum.add_apart(modulus, xs, (firsts, seconds), start);
                }
            }
            for (x, ys) in more {
                for i in 0..VECTORS {
                    let at = start + LANES * i;
                    let x = _mm512_loadu_si512(x.as_ptr().add(at).cast());
                    sum.add(i, x, ys.map(|y| _mm512_loadu_si512(y.as_ptr().add(at).cast())));
                }
            }
            sum.store(&reduction, start, outs);
        }
    }
}

/// See [`Kernel::packed_products`](super::Kernel::packed_products).
#[target_feature(enable = "avx512f,avx512bw,avx512ifma,avx512vbmi")]
pub(super) fn packed_products(
    modulus: Modulus,
    groups: &[PackedGroup],
    terms: usize,
    start: usize,
    outs: [&mut [u64]; 2],
) {
    let length = outs[0].len();
    assert!(outs[1].len() == length && length.is_multiple_of(ROW_BLOCK));
    assert!(start.is_multiple_of(ROW_BLOCK));
    for group in groups {
        let all = group.length(modulus);
        assert!(group.run.is_power_of_two() && start + length <= all);
        assert!(all.is_multiple_of(ROW_BLOCK));
        assert!(group.packed.len() == group.count * (all / group.run) * width_bytes(modulus));
        let fits = |(term, sides): &(usize, [&[u64]; 2])| {
            *term < group.count && sides.iter().all(|side| side.len() == all)
        };
        assert!(group.terms.iter().all(fits));
    }
    let [first, second] = outs;
    let outs = [first.as_mut_ptr(), second.as_mut_ptr()];
    let reduction = Reduction::new(modulus, terms);
    for at in (0..length).step_by(ROW_BLOCK) {
        let mut sum = PairSum::new(reduction.lanes.q);
        for group in groups {
            // SAFETY: every factor has as many elements as `packed` stands for in each of `count`
            // polynomials, and those from `start + at` on that are read do lie in them.
            unsafe { sum.add_group(modulus, group, start + at) };
        }
        // SAFETY: `outs` have `length` elements.
        unsafe { sum.store(&reduction, at, outs) };
    }
}

/// Bytes that come from memory at once.
const LINE_BYTES: usize = 64;

/// Vectors of a block.
const VECTORS: usize = ROW_BLOCK / LANES;

/// A block of two sums of products, in words of 52 bits that are not carried.
struct PairSum {
    low: [[__m512i; VECTORS]; 2],
    high: [[__m512i; VECTORS]; 2],
}

impl PairSum {
    /// Nothing, and q in the high words.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(q: __m512i) -> Self {
        Self { low: [[_mm512_setzero_si512(); VECTORS]; 2], high: [[q; VECTORS]; 2] }
    }

    /// Adds x · y to each side's vector `i`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn add(&mut self, i: usize, x: __m512i, y: [__m512i; 2]) {
        for side in 0..2 {
            self.low[side][i] = _mm512_madd52lo_epu64(self.low[side][i], x, y[side]);
            self.high[side][i] = _mm512_madd52hi_epu64(self.high[side][i], x, y[side]);
        }
    }

    /// Adds the products of `xs` with `rows`, of which both sides are packed, from number `start` on.
    ///
    /// # Safety
    /// A block from there on lies in each of `xs`, which are of one length, and there are as many rows.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512ifma,avx512vbmi")]
    unsafe fn add_packed(&mut self, modulus: Modulus, xs: &[&[u64]], rows: &[u8], start: usize) {
        let Some(length) = xs.first().map(|x| x.len()) else { return };
        let unpacking = Unpacking::new(modulus, 0);
        let block_bytes = ROW_BLOCK * unpacking.width;
        // SAFETY: as the caller promises, here and below.
        let rows = unsafe { rows.as_ptr().add(rows.len() / length * start) };
        for (j, x) in xs.iter().enumerate() {
            for i in 0..VECTORS {
                // SAFETY: likewise.
                unsafe {
                    let x = _mm512_loadu_si512(x.as_ptr().add(start + LANES * i).cast());
                    let at = rows.add(2 * j * block_bytes + LANES * i * unpacking.width);
                    let y = [unpacking.load(at), unpacking.load(at.add(block_bytes))];
                    self.add(i, x, y);
                }
            }
        }
    }

    /// As [`add_packed`](Self::add_packed), of rows whose second sides alone are packed.
    ///
    /// # Safety
    /// Likewise.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512ifma,avx512vbmi")]
    unsafe fn add_apart(
        &mut self,
        modulus: Modulus,
        xs: &[&[u64]],
        (firsts, seconds): (&[u64], &[u8]),
        start: usize,
    ) {
        let Some(length) = xs.first().map(|x| x.len()) else { return };
        let unpacking = Unpacking::new(modulus, 0);
        let block_bytes = ROW_BLOCK * unpacking.width;
        // SAFETY: as the caller promises, here and below.
        let seconds = unsafe { seconds.as_ptr().add(seconds.len() / length * start) };
        for (j, x) in xs.iter().enumerate() {
            for i in 0..VECTORS {
                let at = start + LANES * i;
                // SAFETY: likewise.
                unsafe {
                    let x = _mm512_loadu_si512(x.as_ptr().add(at).cast());
                    let first = firsts.as_ptr().add(j * length + at);
                    let second = seconds.add(j * block_bytes + LANES * i * unpacking.width);
                    let y = [_mm512_loadu_si512(first.cast()), unpacking.load(second)];
                    self.add(i, x, y);
                }
            }
        }
    }

    /// Adds the products of `group` from number `start` on.
    ///
    /// # Safety
    /// A block from there on lies in what the group's slices hold or stand for.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512ifma,avx512vbmi")]
    unsafe fn add_group(&mut self, modulus: Modulus, group: &PackedGroup, start: usize) {
        let run_log2 = group.run.trailing_zeros();
        let unpacking = Unpacking::new(modulus, run_log2);
        let words = (ROW_BLOCK >> run_log2).max(1);
        let block_bytes = words * unpacking.width;
        // SAFETY: as the caller promises, here and below.
        let packed = unsafe {
            let block = (start >> run_log2) / words;
            group.packed.as_ptr().add(block * group.count * block_bytes)
        };
        // SAFETY: likewise.
        let factors = |sides: [&[u64]; 2], i: usize| unsafe {
            sides.map(|side| _mm512_loadu_si512(side.as_ptr().add(start + LANES * i).cast()))
        };
        if words == 1 {
            for &(term, sides) in &group.terms {
                // SAFETY: likewise.
                let plain = unsafe { unpacking.load(packed.add(term * block_bytes)) };
                for i in 0..VECTORS {
                    self.add(i, plain, factors(sides, i));
                }
            }
            return;
        }
        for &(term, sides) in &group.terms {
            // SAFETY: likewise.
            let packed = unsafe { packed.add(term * block_bytes) };
            // Hundreds of groups are more streams than the processor follows by itself. What it
            // is told of may lie past the end: it is not read then.
            let next = packed.wrapping_add(group.count * block_bytes);
            for line in (0..block_bytes).step_by(LINE_BYTES) {
                _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(line).cast());
            }
            for i in 0..VECTORS {
                let at = ((LANES * i) >> run_log2) * unpacking.width;
                // SAFETY: likewise.
                let plain = unsafe { unpacking.load(packed.add(at)) };
                self.add(i, plain, factors(sides, i));
            }
        }
    }

    /// Reduces the block and writes it from element `start` on.
    ///
    /// # Safety
    /// What `outs` point to reaches as far.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    unsafe fn store(&self, reduction: &Reduction, start: usize, outs: [*mut u64; 2]) {
        for side in 0..2 {
            for i in 0..VECTORS {
                let value = reduction.reduce(self.high[side][i], self.low[side][i]);
                // SAFETY: as the caller promises.
                unsafe { _mm512_storeu_si512(outs[side].add(start + LANES * i).cast(), value) };
            }
        }
    }
}

/// Montgomery's reduction of long sums.
struct Reduction {
    lanes: Lanes<true>,
    q_inverse: __m512i,
    /// Halvings of the range that leave 0..q.
    steps: u32,
}

impl Reduction {
    /// For sums of `terms` products.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(modulus: Modulus, terms: usize) -> Self {
        // Every term adds less than q / 2 to the high word, which has q besides and a carry.
        let range = (terms + 2).div_ceil(2).next_power_of_two();
        Self {
            lanes: Lanes::new(modulus),
            q_inverse: q_inverse(modulus),
            steps: range.trailing_zeros(),
        }
    }

    /// (high · 2^52 + low) / 2^52 modulo q, for `high` with q besides.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn reduce(&self, high: __m512i, low: __m512i) -> __m512i {
        let zero = _mm512_setzero_si512();
        let quotient = _mm512_madd52lo_epu64(zero, low, self.q_inverse);
        let carried = _mm512_add_epi64(high, _mm512_srli_epi64::<52>(low));
        // The low words are the same: the difference of the high ones is the sum over 2^52, and q.
        let taken = _mm512_madd52hi_epu64(zero, quotient, self.lanes.q);
        let mut value = _mm512_sub_epi64(carried, taken);
        for step in (0..self.steps).rev() {
            let bound = _mm512_sll_epi64(self.lanes.q, _mm_cvtsi32_si128(step as i32));
            value = Lanes::<true>::minus_once(value, bound);
        }
        value
    }
}
