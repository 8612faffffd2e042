//! RowSel by 32-bit integer products, and by fused products of doubles.
//!
//! Numbers of primes up to 28 bits are factors of integer products: one product and one sum each.
//! Products of wider ones are two doubles each, three instructions, and two sums.

use std::arch::x86_64::*;

use hushtable_rlwe::ring::Modulus;

use super::{CHUNK_VECTORS, GROUP_COLUMNS, LANES, Packing, Task, out_index};

/// Most bits of a modulus whose products are summed whole.
const SHORT_BITS: u32 = 28;

/// See [`RowSelect::multiply`](super::RowSelect::multiply).
///
/// # Safety
/// AVX2 and FMA; lengths as `Task::check` holds them.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn multiply(task: &Task<'_>, out: &mut [u64]) {
    if task.packing == Packing::Narrow && task.modulus.bits() <= SHORT_BITS {
        // SAFETY: as this function's.
        return unsafe { multiply_short(task, out) };
    }
    // SAFETY: as this function's.
    unsafe {
        match task.packing {
            Packing::Narrow => multiply_long::<true>(task, out),
            Packing::Wide => multiply_long::<false>(task, out),
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
/// # Safety
/// As [`multiply`]'s.
#[target_feature(enable = "avx2,fma")]
unsafe fn multiply_long<const NARROW: bool>(task: &Task<'_>, out: &mut [u64]) {
    let reduction = LongReduction::new(task);
    // Four lanes of a group's numbers, unpacked once for all clients and both sides.
    let mut numbers = vec![[0.0; 4]; task.rows * GROUP_COLUMNS];
    for vector in 0..CHUNK_VECTORS {
        for group in 0..task.groups {
            for half in 0..2 {
                let base = (vector * task.groups + group) * task.group_bytes();
                let vector_bytes = task.packing.vector_bytes();
                let mut from = base + half * vector_bytes / 2;
                for number in &mut numbers {
                    // SAFETY: `check` held that the table has all vectors, and SLACK_BYTES more.
                    unsafe {
                        let unpacked = load::<NARROW>(task.table.as_ptr().add(from));
                        _mm256_storeu_pd(number.as_mut_ptr(), to_doubles(unpacked));
                    }
                    from += vector_bytes;
                }
                let (numbers, _) = numbers.as_chunks();
                for client in 0..task.queries.len() {
                    let query = &task.queries[client][vector * task.query_vector()..];
                    let query = &query[..task.query_vector()];
                    let mask = long_sums::<NARROW>(query, half, 0, numbers);
                    let body = long_sums::<NARROW>(query, half, 1, numbers);
                    for (column, (mask, body)) in mask.into_iter().zip(body).enumerate() {
                        let (mask, body) = (reduction.reduce(mask), reduction.reduce(body));
                        let column = group * GROUP_COLUMNS + column;
                        let at = out_index(task, client, column, vector).map(|at| at + half * 4);
                        let words = match NARROW {
                            true => [_mm256_or_si256(mask, _mm256_slli_epi64::<32>(body)); 2],
                            false => [mask, body],
                        };
                        for (words, at) in words.into_iter().zip(at) {
                            let to = &mut out[at..at + 4];
                            // SAFETY: four words are written to four.
                            unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), words) };
                        }
                    }
                }
            }
        }
    }
}

/// 3 · 2^102, 3 · 2^51, and their sum.
const HIGH_BASE: f64 = (3u128 << 102) as f64;
const LOW_BASE: f64 = (3u64 << 51) as f64;
const BASES: f64 = ((3u128 << 102) + (3u128 << 51)) as f64;

/// The columns' sums of one side of a query, in units of 2^51 and 1, as the bits of doubles.
#[target_feature(enable = "avx2,fma")]
#[inline]
fn long_sums<const NARROW: bool>(
    query: &[u64],
    half: usize,
    side: usize,
    numbers: &[[[f64; 4]; GROUP_COLUMNS]],
) -> [[__m256i; 2]; GROUP_COLUMNS] {
    let words = if NARROW { LANES } else { 2 * LANES };
    let first = half * 4 + if NARROW { 0 } else { side * LANES };
    let (high_base, bases) = (_mm256_set1_pd(HIGH_BASE), _mm256_set1_pd(BASES));
    let mut sums = [[_mm256_setzero_si256(); 2]; GROUP_COLUMNS];
    for (query, numbers) in query.chunks_exact(words).zip(numbers) {
        let factor = &query[first..first + 4];
        // SAFETY: four words are read of four.
        let factor = unsafe { _mm256_loadu_si256(factor.as_ptr().cast()) };
        let factor = match (NARROW, side) {
            (false, _) => factor,
            (true, 0) => _mm256_and_si256(factor, _mm256_set1_epi64x(u32::MAX.into())),
            (true, _) => _mm256_srli_epi64::<32>(factor),
        };
        let factor = to_doubles(factor);
        for (number, [sum_high, sum_low]) in numbers.iter().zip(&mut sums) {
            // SAFETY: four doubles.
            let number = unsafe { _mm256_loadu_pd(number.as_ptr()) };
            let high = _mm256_fmadd_pd(number, factor, high_base);
            let low = _mm256_fmadd_pd(number, factor, _mm256_sub_pd(bases, high));
            *sum_high = _mm256_add_epi64(*sum_high, _mm256_castpd_si256(high));
            *sum_low = _mm256_add_epi64(*sum_low, _mm256_castpd_si256(low));
        }
    }
    sums
}

/// Integers below 2^52 as doubles: the bits of 2^52 + n end in those of n.
#[target_feature(enable = "avx2")]
#[inline]
fn to_doubles(integers: __m256i) -> __m256d {
    let offset = _mm256_set1_pd((1u64 << 52) as f64);
    let number = _mm256_or_si256(integers, _mm256_castpd_si256(offset));
    _mm256_sub_pd(_mm256_castsi256_pd(number), offset)
}

/// Reduction of sums of products as [`long_sums`] leaves them.
///
/// Products modulo q by doubles as the ring's are: with t the integer nearest to x · (w / q) as
/// computed, x · w − t · q is exact, and at most q · (1/2 + 3 · |x| · 2^-53).
struct LongReduction {
    /// What the bits of the bases have added up to.
    base_bits: [__m256i; 2],
    /// A multiple of q from 2^61 on: low sums are down to −2^61.
    multiple: __m256i,
    q: __m256d,
    reciprocal: __m256d,
    /// 2^51 and 2^102 modulo q, and either over q.
    middle: [__m256d; 2],
    high: [__m256d; 2],
}

impl LongReduction {
    #[target_feature(enable = "avx2")]
    fn new(task: &Task<'_>) -> Self {
        let (modulus, rows) = (task.modulus, task.rows as u64);
        let (value, q) = (modulus.value(), modulus.value() as f64);
        let power = |bits: u32| modulus.reduce_u128(1 << bits) as f64;
        let factor = |w: f64| [w, w * (1.0 / q)];
        let bits = |base: f64| rows.wrapping_mul(base.to_bits()) as i64;
        let ([middle, middle_over], [high, high_over]) = (factor(power(51)), factor(power(102)));
        Self {
            base_bits: [_mm256_set1_epi64x(bits(HIGH_BASE)), _mm256_set1_epi64x(bits(LOW_BASE))],
            multiple: _mm256_set1_epi64x(((1u64 << 61).div_ceil(value) * value) as i64),
            q: _mm256_set1_pd(q),
            reciprocal: _mm256_set1_pd(1.0 / q),
            middle: [_mm256_set1_pd(middle), _mm256_set1_pd(middle_over)],
            high: [_mm256_set1_pd(high), _mm256_set1_pd(high_over)],
        }
    }

    #[target_feature(enable = "avx2,fma")]
    #[inline]
    fn reduce(&self, [high, low]: [__m256i; 2]) -> __m256i {
        // Below 2^62, and below 2^62 + q.
        let high = _mm256_sub_epi64(high, self.base_bits[0]);
        let low = _mm256_sub_epi64(low, self.base_bits[1]);
        let low = _mm256_add_epi64(low, self.multiple);
        let mask = _mm256_set1_epi64x((1 << 51) - 1);
        let middle = _mm256_add_epi64(_mm256_and_si256(high, mask), _mm256_srli_epi64::<51>(low));
        let high = to_doubles(_mm256_srli_epi64::<51>(high));
        let (middle, low) = (to_doubles(middle), to_doubles(_mm256_and_si256(low, mask)));
        // At most 0.51 q, 1.26 q and 0.5 q.
        let sum = _mm256_add_pd(self.times(high, self.high), self.times(middle, self.middle));
        let rest = self.rest(_mm256_add_pd(sum, self.rest(low)));
        let negative = _mm256_cmp_pd::<_CMP_LT_OQ>(rest, _mm256_setzero_pd());
        let rest = _mm256_add_pd(rest, _mm256_and_pd(self.q, negative));
        let offset = _mm256_set1_pd((1u64 << 52) as f64);
        _mm256_castpd_si256(_mm256_xor_pd(_mm256_add_pd(rest, offset), offset))
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

/// # Safety
/// As [`multiply`]'s.
#[target_feature(enable = "avx2")]
unsafe fn multiply_short(task: &Task<'_>, out: &mut [u64]) {
    let reduction = Reduction::new(task.modulus);
    for vector in 0..CHUNK_VECTORS {
        for group in 0..task.groups {
            for client in 0..task.queries.len() {
                for half in 0..2 {
                    // SAFETY: vector, group and client exist.
                    unsafe { short_tile(task, &reduction, vector, group, client, half, out) };
                }
            }
        }
    }
}

/// Lanes `half * 4..` of the sums of one group's columns for one client: eight sums in registers. The
/// multiplications bind, so a tile of more clients, which reads the table less often, gains nothing.
///
/// # Safety
/// As [`multiply`]'s, where `vector`, `group` and `client` are the task's.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn short_tile(
    task: &Task<'_>,
    reduction: &Reduction,
    vector: usize,
    group: usize,
    client: usize,
    half: usize,
    out: &mut [u64],
) {
    let vector_bytes = task.packing.vector_bytes();
    let base = (vector * task.groups + group) * task.group_bytes();
    let mut masks = [_mm256_setzero_si256(); GROUP_COLUMNS];
    let mut bodies = [_mm256_setzero_si256(); GROUP_COLUMNS];
    // SAFETY: `check` held that the table has all vectors, and each query all rows.
    unsafe {
        let mut table = task.table.as_ptr().add(base + half * vector_bytes / 2);
        let mut query = task.queries[client].as_ptr().add(vector * task.query_vector() + half * 4);
        let mut rows_left = task.rows;
        while rows_left > 0 {
            let rows = rows_left.min(reduction.rows_between_folds);
            rows_left -= rows;
            for _ in 0..rows {
                // Products take the lower halves of their factors.
                let mask = _mm256_loadu_si256(query.cast());
                let body = _mm256_srli_epi64::<32>(mask);
                for column in 0..GROUP_COLUMNS {
                    let packed = _mm_loadu_si128(table.add(column * vector_bytes).cast());
                    let number = _mm256_cvtepu32_epi64(packed);
                    let products = [_mm256_mul_epu32(number, mask), _mm256_mul_epu32(number, body)];
                    masks[column] = _mm256_add_epi64(masks[column], products[0]);
                    bodies[column] = _mm256_add_epi64(bodies[column], products[1]);
                }
                query = query.add(LANES);
                table = table.add(GROUP_COLUMNS * vector_bytes);
            }
            for column in 0..GROUP_COLUMNS {
                masks[column] = reduction.fold(masks[column]);
                bodies[column] = reduction.fold(bodies[column]);
            }
        }
        for column in 0..GROUP_COLUMNS {
            let (mask, body) = (reduction.reduce(masks[column]), reduction.reduce(bodies[column]));
            let words = _mm256_or_si256(mask, _mm256_slli_epi64::<32>(body));
            let [at, _] = out_index(task, client, group * GROUP_COLUMNS + column, vector);
            let to = &mut out[at + half * 4..][..4];
            _mm256_storeu_si256(to.as_mut_ptr().cast(), words);
        }
    }
}

/// Reduction of sums of products modulo a prime of at most [`SHORT_BITS`] bits.
struct Reduction {
    /// So many products fit on a folded sum.
    rows_between_folds: usize,
    modulus: __m256i,
    /// The largest multiple of the modulus up to 2^62.
    multiple: __m256i,
    /// 2^32 modulo the modulus.
    shift: __m256i,
    /// 1 / modulus.
    inverse: __m256d,
}

impl Reduction {
    #[target_feature(enable = "avx2")]
    fn new(modulus: Modulus) -> Self {
        let value = modulus.value();
        let multiple = (1 << 62) / value * value;
        // After a fold a sum is below 2^62 + q, and it must stay below 2^63.
        let rows_between_folds = (((1 << 62) - value) / (value - 1).pow(2)) as usize;
        Self {
            rows_between_folds,
            modulus: _mm256_set1_epi64x(value as i64),
            multiple: _mm256_set1_epi64x(multiple as i64),
            shift: _mm256_set1_epi64x(modulus.reduce_u128(1 << 32) as i64),
            inverse: _mm256_set1_pd(1.0 / value as f64),
        }
    }

    /// A sum below 2^63, less a multiple of the modulus where it has one: below 2^62 + q.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn fold(&self, sum: __m256i) -> __m256i {
        let less = _mm256_sub_epi64(sum, self.multiple);
        select_negative(less, sum, less)
    }

    /// A sum below 2^63, modulo the modulus.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn reduce(&self, sum: __m256i) -> __m256i {
        let low_half = _mm256_set1_epi64x(u32::MAX.into());
        let mut x = sum;
        // high · 2^32 + low: below 2^59 + 2^32, then 2^55 + 2^33, then 2^51 + 2^33.
        for _ in 0..3 {
            let high = _mm256_mul_epu32(_mm256_srli_epi64::<32>(x), self.shift);
            x = _mm256_add_epi64(high, _mm256_and_si256(x, low_half));
        }
        // The bits of the double 2^52 + n end in those of n, for n below 2^52.
        let offset = _mm256_set1_pd((1u64 << 52) as f64);
        let number = _mm256_or_si256(x, _mm256_castpd_si256(offset));
        let number = _mm256_sub_pd(_mm256_castsi256_pd(number), offset);
        // The quotient to the nearest integer, below 2^32: the rest is half a modulus at most, or
        // less than nothing by as much.
        let quotient = _mm256_add_pd(_mm256_mul_pd(number, self.inverse), offset);
        let quotient = _mm256_castpd_si256(quotient);
        let rest = _mm256_sub_epi64(x, _mm256_mul_epu32(quotient, self.modulus));
        select_negative(rest, _mm256_add_epi64(rest, self.modulus), rest)
    }
}

/// `below` where `sign` is negative, else `above`.
#[target_feature(enable = "avx2")]
#[inline]
fn select_negative(sign: __m256i, below: __m256i, above: __m256i) -> __m256i {
    let (below, above) = (_mm256_castsi256_pd(below), _mm256_castsi256_pd(above));
    _mm256_castpd_si256(_mm256_blendv_pd(above, below, _mm256_castsi256_pd(sign)))
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
