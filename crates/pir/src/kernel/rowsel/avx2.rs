//! RowSel by 32-bit integer products, for primes up to 28 bits: one product and one sum each. Wider
//! ones go by doubles (`doubles_avx2`).

use std::arch::x86_64::*;

use hushtable_rlwe::ring::Modulus;

use super::{CHUNK_VECTORS, GROUP_COLUMNS, LANES, Packing, Task, doubles_avx2, out_index};

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
    unsafe { doubles_avx2::multiply(task, out) }
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
