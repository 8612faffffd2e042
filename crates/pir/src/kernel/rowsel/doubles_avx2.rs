//! RowSel of wide numbers by fused products of doubles.
//!
//! A product is two doubles, each exact: two fused products and a subtraction, and two integer sums.
//! Rows go in blocks whose numbers are unpacked once, for all queries and both sides.

#![allow(clippy::needless_range_loop, reason = "sums of a column by client, by number")]

use std::arch::x86_64::*;

use super::{CHUNK_VECTORS, GROUP_COLUMNS, LANES, Packing, Task, out_index};

/// Rows that are unpacked together: their numbers, and a query's, fit into the first level's cache.
const BLOCK_ROWS: usize = 64;
/// Most queries whose factors are held for all eight lanes at once: beyond, they would outgrow the
/// second level's cache, and each group reads them all.
const WHOLE_CLIENTS: usize = 8;
/// Most bits of a modulus whose products serve two rows: factors are then a bit longer.
const PAIRED_BITS: u32 = 50;
/// 3 · 2^102, 3 · 2^51, and their sum.
const HIGH_BASE: f64 = (3u128 << 102) as f64;
const LOW_BASE: f64 = (3u64 << 51) as f64;
const BASES: f64 = ((3u128 << 102) + (3u128 << 51)) as f64;
/// 2^52.
const INTEGER_BASE: f64 = (1u64 << 52) as f64;

/// Four lanes of doubles, aligned: half of those that are not would lie in two lines of a cache.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Lanes([f64; 4]);

impl Lanes {
    const ZERO: Self = Self([0.0; 4]);
}

/// Sums in units of 2^51 and of 1.
type Sum = [__m256i; 2];

/// See [`RowSelect::multiply`](super::RowSelect::multiply).
///
/// # Safety
/// AVX2 and FMA; lengths as `Task::check` holds them.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn multiply(task: &Task<'_>, out: &mut [u64]) {
    // SAFETY: as this function's.
    unsafe {
        match (task.packing, task.modulus.bits() <= PAIRED_BITS) {
            (Packing::Narrow, _) => multiply_as::<true, true>(task, out),
            (Packing::Wide, true) => multiply_as::<false, true>(task, out),
            (Packing::Wide, false) => multiply_as::<false, false>(task, out),
        }
    }
}

/// Products of up to 102 bits, in two doubles each (Emmart, Zheng and Weems, "Faster modular
/// exponentiation using double precision floating point arithmetic on the GPU", ARITH 2018, section
/// III): x · y + 3 · 2^102 rounds to a multiple of 2^51, and what it was rounded by is added to
/// 3 · 2^51. Both then have the exponents of these two, so that the bits of either, taken for an
/// integer, are those of its first summand, more by how many units the second is: integer sums of
/// them are exact.
///
/// With `PAIRED` one product serves two rows (Winograd, "A new algorithm for inner product", IEEE
/// Transactions on Computers, 1968): (x0 + y1) · (x1 + y0) is x0 · y0 + x1 · y1, and besides
/// x0 · x1 + y0 · y1. The sums of those are taken off at the end: the table's serve all queries, and
/// a query's all columns.
///
/// # Safety
/// As [`multiply`]'s.
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_as<const NARROW: bool, const PAIRED: bool>(task: &Task<'_>, out: &mut [u64]) {
    let (rows, sides) = (task.rows.next_multiple_of(2), 2 * task.queries.len());
    let products = if PAIRED { rows / 2 } else { rows };
    let reduction = Reduction::new(task, products as u64);
    let halves = if task.queries.len() <= WHOLE_CLIENTS { 2 } else { 1 };
    let zero = [_mm256_setzero_si256(); 2];
    // Each by half, then client and side; of sums one more for the table's own.
    let mut factors = vec![Lanes::ZERO; 2 * sides * rows];
    let mut squares = vec![zero; 2 * sides];
    let mut numbers = vec![[Lanes::ZERO; GROUP_COLUMNS]; halves * BLOCK_ROWS];
    let mut sums = vec![[zero; GROUP_COLUMNS]; halves * (sides + 1)];
    for vector in 0..CHUNK_VECTORS {
        for (client, query) in task.queries.iter().enumerate() {
            let query = &query[vector * task.query_vector()..][..task.query_vector()];
            to_factors::<NARROW>(query, 2 * client, sides, &mut factors);
        }
        if PAIRED {
            for (factors, square) in factors.chunks_exact(rows).zip(&mut squares) {
                *square = reduction.without_bases(pair_products(factors));
            }
        }
        let parts = (0..2).step_by(halves);
        for (first_half, group) in parts.flat_map(|half| (0..task.groups).map(move |g| (half, g))) {
            sums.fill([zero; GROUP_COLUMNS]);
            for first in (0..rows).step_by(BLOCK_ROWS) {
                let count = BLOCK_ROWS.min(rows - first);
                let base = (vector * task.groups + group) * task.group_bytes();
                let row_bytes = GROUP_COLUMNS * task.packing.vector_bytes();
                let mut ahead = Ahead::new(task, base + (first + count) * row_bytes);
                for (half, numbers) in numbers.chunks_exact_mut(BLOCK_ROWS).enumerate() {
                    let numbers = &mut numbers[..count];
                    // SAFETY: the group is one of the task's, and `count` of its rows are left.
                    unsafe { unpack::<NARROW>(task, base, first, first_half + half, numbers) };
                    let (own, sums) =
                        sums[half * (sides + 1)..][..=sides].split_last_mut().expect("one more");
                    if PAIRED {
                        add_own_products(numbers, own);
                    }
                    let factors = &factors[(first_half + half) * sides * rows..][..sides * rows];
                    for (factors, sums) in factors.chunks_exact(rows).zip(sums) {
                        let factors = &factors[first..first + count];
                        match PAIRED {
                            true => add_paired_products(numbers, factors, sums, &mut ahead),
                            false => add_products(numbers, factors, sums),
                        }
                    }
                }
            }
            for (half, sums) in sums.chunks_exact(sides + 1).enumerate() {
                let squares = &squares[(first_half + half) * sides..];
                for column in 0..GROUP_COLUMNS {
                    let own = reduction.without_bases(sums[sides][column]);
                    let reduced = |side: usize| {
                        let sum = reduction.without_bases(sums[side][column]);
                        match PAIRED {
                            true => reduction.reduce(minus(minus(sum, own), squares[side])),
                            false => reduction.reduce(sum),
                        }
                    };
                    for client in 0..task.queries.len() {
                        let (mask, body) = (reduced(2 * client), reduced(2 * client + 1));
                        let words = match NARROW {
                            true => [_mm256_or_si256(mask, _mm256_slli_epi64::<32>(body)); 2],
                            false => [mask, body],
                        };
                        let column = group * GROUP_COLUMNS + column;
                        let at = out_index(task, client, column, vector);
                        for (words, at) in words.into_iter().zip(at) {
                            let to = &mut out[at + (first_half + half) * 4..][..4];
                            // SAFETY: four words are written to four.
                            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), words) };
                        }
                    }
                }
            }
        }
    }
}

/// A query's numbers as doubles: sides `side` and `side + 1` of `sides` in either half.
#[target_feature(enable = "avx2")]
fn to_factors<const NARROW: bool>(query: &[u64], side: usize, sides: usize, out: &mut [Lanes]) {
    let rows = out.len() / (2 * sides);
    let words = if NARROW { LANES } else { 2 * LANES };
    let low = _mm256_set1_epi64x(u32::MAX.into());
    for (row, query) in query.chunks_exact(words).enumerate() {
        for half in 0..2 {
            let at = (half * sides + side) * rows + row;
            let numbers = read_words(&query[half * 4..]);
            let [mask, body] = match NARROW {
                true => [_mm256_and_si256(numbers, low), _mm256_srli_epi64::<32>(numbers)],
                false => [numbers, read_words(&query[LANES + half * 4..])],
            };
            store(to_doubles(mask), &mut out[at]);
            store(to_doubles(body), &mut out[at + rows]);
        }
    }
}

/// The first four words.
#[target_feature(enable = "avx2")]
#[inline]
fn read_words(words: &[u64]) -> __m256i {
    // SAFETY: four words are read of four.
    unsafe { _mm256_loadu_si256(words[..4].as_ptr().cast()) }
}

/// The lines of the table that come next: a few are asked for by every product, as memory would
/// otherwise rest while queries are multiplied.
struct Ahead {
    next: *const i8,
    lines_left: usize,
}

impl Ahead {
    /// A block of rows from byte `from` on; nothing is read where the table ends before.
    fn new(task: &Task<'_>, from: usize) -> Self {
        let bytes = BLOCK_ROWS * GROUP_COLUMNS * task.packing.vector_bytes();
        Self {
            next: task.table.as_ptr().wrapping_add(from).cast(),
            lines_left: bytes.min(task.table.len().saturating_sub(from)) / 64,
        }
    }

    /// Where `count` lines start that are to be asked for, if they are still to be.
    fn take(&mut self, count: usize) -> Option<*const i8> {
        let next = self.next;
        self.next = next.wrapping_add(64 * count);
        let is_left = self.lines_left > 0;
        self.lines_left = self.lines_left.saturating_sub(count);
        is_left.then_some(next)
    }
}

/// Four lanes of the rows from `first` on of the group at `base`, as doubles; zeros after the last.
///
/// # Safety
/// The table has the group, and a row of it for each of `out` but one.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn unpack<const NARROW: bool>(
    task: &Task<'_>,
    base: usize,
    first: usize,
    half: usize,
    out: &mut [[Lanes; GROUP_COLUMNS]],
) {
    let vector_bytes = task.packing.vector_bytes();
    let mut from = base + first * GROUP_COLUMNS * vector_bytes + half * vector_bytes / 2;
    let there = out.len().min(task.rows - first);
    let (out, padding) = out.split_at_mut(there);
    padding.fill([Lanes::ZERO; GROUP_COLUMNS]);
    for out in out.as_flattened_mut() {
        // SAFETY: `check` held that the table has all rows, and SLACK_BYTES more.
        store(to_doubles(unsafe { load::<NARROW>(task.table.as_ptr().add(from)) }), out);
        from += vector_bytes;
    }
}

/// The bits of both doubles of x · y, added to `sum`.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn add_product(x: __m256d, y: __m256d, [high_sum, low_sum]: &mut Sum) {
    let (high_base, bases) = (_mm256_set1_pd(HIGH_BASE), _mm256_set1_pd(BASES));
    let high = _mm256_fmadd_pd(x, y, high_base);
    let low = _mm256_fmadd_pd(x, y, _mm256_sub_pd(bases, high));
    *high_sum = _mm256_add_epi64(*high_sum, _mm256_castpd_si256(high));
    *low_sum = _mm256_add_epi64(*low_sum, _mm256_castpd_si256(low));
}

/// Adds each column's products with the factors.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn add_products(
    numbers: &[[Lanes; GROUP_COLUMNS]],
    factors: &[Lanes],
    sums: &mut [Sum; GROUP_COLUMNS],
) {
    let mut own = *sums;
    for (numbers, factor) in numbers.iter().zip(factors) {
        let factor = read(factor);
        for (number, sum) in numbers.iter().zip(&mut own) {
            add_product(read(number), factor, sum);
        }
    }
    *sums = own;
}

/// Adds each column's products of pairs, as [`multiply_as`] says.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn add_paired_products(
    numbers: &[[Lanes; GROUP_COLUMNS]],
    factors: &[Lanes],
    sums: &mut [Sum; GROUP_COLUMNS],
    ahead: &mut Ahead,
) {
    match ahead.take(numbers.len() / 2) {
        Some(lines) => add_pairs::<true>(numbers, factors, sums, lines),
        None => add_pairs::<false>(numbers, factors, sums, std::ptr::null()),
    }
}

#[target_feature(enable = "avx2,fma")]
#[inline]
fn add_pairs<const AHEAD: bool>(
    numbers: &[[Lanes; GROUP_COLUMNS]],
    factors: &[Lanes],
    sums: &mut [Sum; GROUP_COLUMNS],
    mut lines: *const i8,
) {
    let mut own = *sums;
    let (numbers, _) = numbers.as_chunks();
    let (factors, _) = factors.as_chunks();
    for ([even, odd], [factor_even, factor_odd]) in numbers.iter().zip(factors) {
        if AHEAD {
            _mm_prefetch::<_MM_HINT_T1>(lines);
            lines = lines.wrapping_add(64);
        }
        let (factor_even, factor_odd) = (read(factor_even), read(factor_odd));
        for ((even, odd), sum) in even.iter().zip(odd).zip(&mut own) {
            let x = _mm256_add_pd(read(even), factor_odd);
            let y = _mm256_add_pd(read(odd), factor_even);
            add_product(x, y, sum);
        }
    }
    *sums = own;
}

/// Adds each column's products of one row with the next.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn add_own_products(numbers: &[[Lanes; GROUP_COLUMNS]], sums: &mut [Sum; GROUP_COLUMNS]) {
    let (numbers, _) = numbers.as_chunks::<2>();
    // Two columns at a time: their sums, and what is on its way to them, fill the registers.
    for (pair, sums) in sums.as_chunks_mut::<2>().0.iter_mut().enumerate() {
        let mut own = *sums;
        for [even, odd] in numbers {
            for (column, sum) in own.iter_mut().enumerate() {
                let column = 2 * pair + column;
                add_product(read(&even[column]), read(&odd[column]), sum);
            }
        }
        *sums = own;
    }
}

/// The sum of the products of each even factor with the next.
#[target_feature(enable = "avx2,fma")]
fn pair_products(factors: &[Lanes]) -> Sum {
    let mut sum = [_mm256_setzero_si256(); 2];
    let (factors, _) = factors.as_chunks();
    for [even, odd] in factors {
        add_product(read(even), read(odd), &mut sum);
    }
    sum
}

#[target_feature(enable = "avx2")]
#[inline]
fn minus(x: Sum, y: Sum) -> Sum {
    [_mm256_sub_epi64(x[0], y[0]), _mm256_sub_epi64(x[1], y[1])]
}

#[target_feature(enable = "avx2")]
#[inline]
fn read(lanes: &Lanes) -> __m256d {
    // SAFETY: four doubles, aligned.
    unsafe { _mm256_load_pd(lanes.0.as_ptr()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(numbers: __m256d, lanes: &mut Lanes) {
    // SAFETY: four doubles, aligned.
    unsafe { _mm256_store_pd(lanes.0.as_mut_ptr(), numbers) };
}

/// Integers below 2^52 as doubles: the bits of 2^52 + n end in those of n.
#[target_feature(enable = "avx2")]
#[inline]
fn to_doubles(integers: __m256i) -> __m256d {
    let base = _mm256_set1_pd(INTEGER_BASE);
    let number = _mm256_or_si256(integers, _mm256_castpd_si256(base));
    _mm256_sub_pd(_mm256_castsi256_pd(number), base)
}

/// Reduction of sums of products.
///
/// Products modulo q by doubles as the ring's are: with t the integer nearest to x · (w / q) as
/// computed, x · w − t · q is exact, and at most q · (1/2 + 3 · |x| · 2^-53).
struct Reduction {
    /// What the bits of the bases add up to.
    base_bits: Sum,
    q: __m256d,
    reciprocal: __m256d,
    /// 2^51 and 2^102 modulo q, and either over q.
    middle: [__m256d; 2],
    high: [__m256d; 2],
}

impl Reduction {
    /// For sums of so many `products`.
    #[target_feature(enable = "avx2")]
    fn new(task: &Task<'_>, products: u64) -> Self {
        let (modulus, q) = (task.modulus, task.modulus.value() as f64);
        let power = |bits: u32| modulus.reduce_u128(1 << bits) as f64;
        let factor = |w: f64| [_mm256_set1_pd(w), _mm256_set1_pd(w * (1.0 / q))];
        let bits = |base: f64| _mm256_set1_epi64x(products.wrapping_mul(base.to_bits()) as i64);
        Self {
            base_bits: [bits(HIGH_BASE), bits(LOW_BASE)],
            q: _mm256_set1_pd(q),
            reciprocal: _mm256_set1_pd(1.0 / q),
            middle: factor(power(51)),
            high: factor(power(102)),
        }
    }

    /// The sums alone.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn without_bases(&self, sum: Sum) -> Sum {
        minus(sum, self.base_bits)
    }

    /// A sum from 0 to 2^113 whose second word is of −2^62 to 2^62, modulo q.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn reduce(&self, [high, low]: Sum) -> __m256i {
        // The lower word of 51 bits, and what it carries: 2^62 is 2^11 of its units.
        let low = _mm256_add_epi64(low, _mm256_set1_epi64x(1 << 62));
        let high = _mm256_add_epi64(high, _mm256_srli_epi64::<51>(low));
        let high = _mm256_sub_epi64(high, _mm256_set1_epi64x(1 << 11));
        let mask = _mm256_set1_epi64x((1 << 51) - 1);
        let low = to_doubles(_mm256_and_si256(low, mask));
        let middle = to_doubles(_mm256_and_si256(high, mask));
        let high = to_doubles(_mm256_srli_epi64::<51>(high));
        // At most 0.51 q, 1.25 q and 0.5 q.
        let sum = _mm256_add_pd(self.times(high, self.high), self.times(middle, self.middle));
        let rest = self.rest(_mm256_add_pd(sum, self.rest(low)));
        let negative = _mm256_cmp_pd::<_CMP_LT_OQ>(rest, _mm256_setzero_pd());
        let rest = _mm256_add_pd(rest, _mm256_and_pd(self.q, negative));
        let base = _mm256_set1_pd(INTEGER_BASE);
        _mm256_castpd_si256(_mm256_xor_pd(_mm256_add_pd(rest, base), base))
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn times(&self, x: __m256d, [w, over_q]: [__m256d; 2]) -> __m256d {
        let quotient = nearest(_mm256_mul_pd(x, over_q));
        let high = _mm256_mul_pd(x, w);
        let low = _mm256_fmsub_pd(x, w, high);
        _mm256_add_pd(_mm256_fnmadd_pd(quotient, self.q, high), low)
    }

    /// x modulo q, from −q/2 to q/2.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn rest(&self, x: __m256d) -> __m256d {
        _mm256_fnmadd_pd(nearest(_mm256_mul_pd(x, self.reciprocal)), self.q, x)
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn nearest(x: __m256d) -> __m256d {
    _mm256_round_pd::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(x)
}

/// Four packed numbers.
///
/// # Safety
/// 16 bytes can be read at `from` where they are narrow, else 32.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load<const NARROW: bool>(from: *const u8) -> __m256i {
    // SAFETY: the caller's.
    unsafe {
        match NARROW {
            true => _mm256_cvtepu32_epi64(_mm_loadu_si128(from.cast())),
            false => load_wide(from),
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
