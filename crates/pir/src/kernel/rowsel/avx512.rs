//! RowSel in vectors of eight products.
//!
//! Wide numbers by 52-bit multiply-and-add: one zmm of low halves and one of high halves a sum. Narrow
//! ones, of primes up to 28 bits, by 32-bit products: the whole product is one instruction and its sum
//! another, which a processor with more units for additions than for 52-bit multiplications does in
//! half the time; and a sum takes one register, so that a tile has twice the columns.

use std::arch::x86_64::*;

use super::{CHUNK_VECTORS, GROUP_COLUMNS, LANES, Packing, Task, out_index};

/// See [`RowSelect::multiply`](super::RowSelect::multiply).
///
/// # Safety
/// AVX-512 F, DQ, BW, VL, IFMA and VBMI; lengths as `Task::check` holds them.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512ifma,avx512vbmi")]
pub(super) unsafe fn multiply(task: &Task<'_>, out: &mut [u64]) {
    // SAFETY: as this function's.
    unsafe {
        match task.packing {
            Packing::Narrow if task.modulus.bits() <= SHORT_BITS => multiply_short(task, out),
            Packing::Narrow => multiply_packed::<true>(task, out),
            Packing::Wide => multiply_packed::<false>(task, out),
        }
    }
}

#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512ifma,avx512vbmi")]
unsafe fn multiply_short(task: &Task<'_>, out: &mut [u64]) {
    let clients = task.queries.len();
    for vector in 0..CHUNK_VECTORS {
        for group in 0..task.groups {
            let mut client = 0;
            while client < clients {
                // SAFETY: the tiles cover clients and groups that exist.
                client += unsafe {
                    match clients - client {
                        1 => short_tile::<1>(task, vector, group, client, out),
                        // Four are two pairs: one alone would pay for all of the reading.
                        2 | 4 => short_tile::<2>(task, vector, group, client, out),
                        _ => short_tile::<3>(task, vector, group, client, out),
                    }
                };
            }
        }
    }
}

/// The sums of one group's columns for `CLIENTS` clients, by 32-bit products; how many.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512ifma,avx512vbmi")]
#[inline]
unsafe fn short_tile<const CLIENTS: usize>(
    task: &Task<'_>,
    vector: usize,
    group: usize,
    client: usize,
    out: &mut [u64],
) -> usize {
    let vector_bytes = task.packing.vector_bytes();
    let base = (vector * task.groups + group) * task.group_bytes();
    let mut sums = [[[_mm512_setzero_si512(); 2]; GROUP_COLUMNS]; CLIENTS];
    let modulus = task.modulus.value();
    // After a fold a sum is below 2^63 + q, so that so many products more fit.
    let rows_between_folds = (((1 << 63) - modulus) / (modulus - 1).pow(2)) as usize;
    let multiple = _mm512_set1_epi64(((1 << 63) / modulus * modulus) as i64);
    // SAFETY: `check` held that the table has all vectors, and each query all rows.
    unsafe {
        let mut table = task.table.as_ptr().add(base);
        let mut queries: [*const u64; CLIENTS] = [std::ptr::null(); CLIENTS];
        for (index, query) in queries.iter_mut().enumerate() {
            *query = task.queries[client + index].as_ptr().add(vector * task.query_vector());
        }
        let mut rows_left = task.rows;
        while rows_left > 0 {
            let rows = rows_left.min(rows_between_folds);
            rows_left -= rows;
            for _ in 0..rows {
                if client == 0 {
                    _mm_prefetch::<_MM_HINT_T1>(table.wrapping_add(PREFETCH_BYTES).cast());
                    _mm_prefetch::<_MM_HINT_T1>(table.wrapping_add(PREFETCH_BYTES + 64).cast());
                }
                let mut numbers = [_mm512_setzero_si512(); GROUP_COLUMNS];
                for (column, number) in numbers.iter_mut().enumerate() {
                    let packed = table.add(column * vector_bytes).cast();
                    *number = _mm512_cvtepu32_epi64(_mm256_loadu_si256(packed));
                }
                for (query, sums) in queries.iter_mut().zip(&mut sums) {
                    // Products take the lower halves of their factors.
                    let masks = _mm512_loadu_si512(query.cast());
                    let bodies = _mm512_srli_epi64::<32>(masks);
                    for (side, factor) in [masks, bodies].into_iter().enumerate() {
                        for (sums, &number) in sums.iter_mut().zip(&numbers) {
                            let product = _mm512_mul_epu32(number, factor);
                            sums[side] = _mm512_add_epi64(sums[side], product);
                        }
                    }
                    *query = query.add(LANES);
                }
                table = table.add(GROUP_COLUMNS * vector_bytes);
            }
            for sum in sums.as_flattened_mut().as_flattened_mut() {
                // A subtraction that borrows becomes huge, and the minimum skips it.
                *sum = _mm512_min_epu64(*sum, _mm512_sub_epi64(*sum, multiple));
            }
        }
        let reduction = Reduction::new(task);
        for (index, sums) in sums.iter().enumerate() {
            for (column, sums) in sums.iter().enumerate() {
                let [mask, body] = *sums;
                let zero = _mm512_setzero_si512();
                let reduced = [reduction.reduce(mask, zero), reduction.reduce(body, zero)];
                let column = group * GROUP_COLUMNS + column;
                store(task, reduced, out_index(task, client + index, column, vector), out);
            }
        }
    }
    CLIENTS
}

#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512ifma,avx512vbmi")]
unsafe fn multiply_packed<const NARROW: bool>(task: &Task<'_>, out: &mut [u64]) {
    let clients = task.queries.len();
    for vector in 0..CHUNK_VECTORS {
        for group in 0..task.groups {
            // SAFETY: the tiles below cover clients and columns that exist.
            unsafe {
                if clients == 1 {
                    tile::<NARROW, 4, 1>(task, vector, group, 0, 0, out);
                    continue;
                }
                // Two columns of a group at a time, for three clients: 24 sums in registers.
                for half in [0, 2] {
                    let mut client = 0;
                    while client < clients {
                        let taken = match clients - client {
                            1 => tile::<NARROW, 2, 1>(task, vector, group, half, client, out),
                            // Four are two pairs: one alone would pay for all of the unpacking.
                            2 | 4 => tile::<NARROW, 2, 2>(task, vector, group, half, client, out),
                            _ => tile::<NARROW, 2, 3>(task, vector, group, half, client, out),
                        };
                        client += taken;
                    }
                }
            }
        }
    }
}

/// The sums of `COLUMNS` columns (from `first` of the group on) for `CLIENTS` clients; how many.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vl,avx512ifma,avx512vbmi")]
#[inline]
unsafe fn tile<const NARROW: bool, const COLUMNS: usize, const CLIENTS: usize>(
    task: &Task<'_>,
    vector: usize,
    group: usize,
    first: usize,
    client: usize,
    out: &mut [u64],
) -> usize {
    let vector_bytes = task.packing.vector_bytes();
    let base = (vector * task.groups + group) * task.group_bytes() + first * vector_bytes;
    let mut low = [[[_mm512_setzero_si512(); 2]; CLIENTS]; COLUMNS];
    let mut high = [[[_mm512_setzero_si512(); 2]; CLIENTS]; COLUMNS];
    let unpack = Unpack::new();
    let query_words = if NARROW { LANES } else { 2 * LANES };
    // SAFETY: `check` held that the table has all vectors and SLACK_BYTES, and each query all rows.
    unsafe {
        let mut table = task.table.as_ptr().add(base);
        let mut queries: [*const u64; CLIENTS] = [std::ptr::null(); CLIENTS];
        for (index, query) in queries.iter_mut().enumerate() {
            *query = task.queries[client + index].as_ptr().add(vector * task.query_vector());
        }
        for _ in 0..task.rows {
            // Far ahead: the hardware's own prefetch ends at each page of four KiB.
            if first == 0 && client == 0 {
                _mm_prefetch::<_MM_HINT_T1>(table.wrapping_add(PREFETCH_BYTES).cast());
                _mm_prefetch::<_MM_HINT_T1>(table.wrapping_add(PREFETCH_BYTES + 64).cast());
                _mm_prefetch::<_MM_HINT_T1>(table.wrapping_add(PREFETCH_BYTES + 128).cast());
                _mm_prefetch::<_MM_HINT_T1>(table.wrapping_add(PREFETCH_BYTES + 192).cast());
            }
            let mut numbers = [_mm512_setzero_si512(); COLUMNS];
            for (column, number) in numbers.iter_mut().enumerate() {
                *number = unpack.load::<NARROW>(table.add(column * vector_bytes));
            }
            for index in 0..CLIENTS {
                for side in 0..2 {
                    let factor = load_factor::<NARROW>(queries[index], side);
                    for (column, &number) in numbers.iter().enumerate() {
                        let (low, high) =
                            (&mut low[column][index][side], &mut high[column][index][side]);
                        *low = _mm512_madd52lo_epu64(*low, number, factor);
                        *high = _mm512_madd52hi_epu64(*high, number, factor);
                    }
                }
                queries[index] = queries[index].add(query_words);
            }
            table = table.add(GROUP_COLUMNS * vector_bytes);
        }
        let reduction = Reduction::new(task);
        for column in 0..COLUMNS {
            for index in 0..CLIENTS {
                // No closure: one that borrows the sums keeps them in memory all through the rows.
                let ([mask_low, body_low], [mask_high, body_high]) =
                    (low[column][index], high[column][index]);
                let reduced =
                    [reduction.reduce(mask_low, mask_high), reduction.reduce(body_low, body_high)];
                let column = group * GROUP_COLUMNS + first + column;
                store(task, reduced, out_index(task, client + index, column, vector), out);
            }
        }
    }
    CLIENTS
}

/// Writes a column's masks and bodies of one vector.
#[target_feature(enable = "avx512f")]
#[inline]
fn store(task: &Task<'_>, [mask, body]: [__m512i; 2], to: [usize; 2], out: &mut [u64]) {
    let vectors = match task.packing {
        Packing::Narrow => [_mm512_or_si512(mask, _mm512_slli_epi64::<32>(body)); 2],
        Packing::Wide => [mask, body],
    };
    for (vector, at) in vectors.into_iter().zip(to) {
        let to = &mut out[at..at + LANES];
        // SAFETY: eight words are written to eight.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), vector) };
    }
}

/// One side's eight numbers of a row of a query.
///
/// # Safety
/// The row's words can be read at `query`.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn load_factor<const NARROW: bool>(query: *const u64, side: usize) -> __m512i {
    // SAFETY: the caller's.
    unsafe {
        match (NARROW, side) {
            (false, _) => _mm512_loadu_si512(query.add(side * LANES).cast()),
            (true, 0) => {
                let whole = _mm512_set1_epi64(u32::MAX.into());
                _mm512_and_si512(_mm512_loadu_si512(query.cast()), whole)
            }
            (true, _) => _mm512_srli_epi64::<32>(_mm512_loadu_si512(query.cast())),
        }
    }
}

/// From packed bytes to eight numbers; bits from 52 on are left as they come: products ignore them.
struct Unpack {
    bytes: __m512i,
    shifts: __m512i,
}

impl Unpack {
    #[target_feature(enable = "avx512f,avx512vbmi")]
    #[inline]
    fn new() -> Self {
        // Lane j starts at bit 52 j: at byte 6.5 j, rounded down, and 4 bits on where j is odd.
        let mut bytes = [0u8; 64];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = (index / 8 * 13 / 2 + index % 8) as u8;
        }
        // SAFETY: 64 bytes are read from an array of 64.
        let bytes = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
        Self { bytes, shifts: _mm512_set_epi64(4, 0, 4, 0, 4, 0, 4, 0) }
    }

    /// # Safety
    /// 64 bytes can be read at `from`, 32 if narrow.
    #[target_feature(enable = "avx512f,avx512vbmi")]
    #[inline]
    unsafe fn load<const NARROW: bool>(&self, from: *const u8) -> __m512i {
        // SAFETY: the caller's.
        unsafe {
            if NARROW {
                _mm512_cvtepu32_epi64(_mm256_loadu_si256(from.cast()))
            } else {
                let packed = _mm512_loadu_si512(from.cast());
                _mm512_srlv_epi64(_mm512_permutexvar_epi8(self.bytes, packed), self.shifts)
            }
        }
    }
}

/// low + 2^52 · high modulo q, for low and high below 2^63.
struct Reduction {
    modulus: __m512i,
    two: __m512i,
    four: __m512i,
    mask: __m512i,
    /// 2^52 mod q and 2^104 mod q, and their quotients; floor(2^52 / q).
    shift: [__m512i; 2],
    shift2: [__m512i; 2],
    one: __m512i,
}

impl Reduction {
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn new(task: &Task<'_>) -> Self {
        let modulus = task.modulus;
        let set = |value: u64| _mm512_set1_epi64(value as i64);
        let shift = modulus.reduce_u128(1 << 52);
        let shift2 = modulus.reduce_u128(1 << 104);
        Self {
            modulus: set(modulus.value()),
            two: set(2 * modulus.value()),
            four: set(4 * modulus.value()),
            mask: set((1 << 52) - 1),
            shift: [set(shift), set(modulus.shoup(shift))],
            shift2: [set(shift2), set(modulus.shoup(shift2))],
            one: set(modulus.shoup(1)),
        }
    }

    /// x · w modulo q, below 2q, for x below 2^52.
    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    fn scale(&self, x: __m512i, [w, w_shoup]: [__m512i; 2]) -> __m512i {
        let zero = _mm512_setzero_si512();
        let quotient = _mm512_madd52hi_epu64(zero, x, w_shoup);
        let product = _mm512_madd52lo_epu64(zero, x, w);
        let multiple = _mm512_madd52lo_epu64(zero, quotient, self.modulus);
        _mm512_and_si512(_mm512_sub_epi64(product, multiple), self.mask)
    }

    #[target_feature(enable = "avx512f,avx512ifma")]
    #[inline]
    fn reduce(&self, low: __m512i, high: __m512i) -> __m512i {
        let high = _mm512_add_epi64(high, _mm512_srli_epi64::<52>(low));
        let low = _mm512_and_si512(low, self.mask);
        let top = _mm512_srli_epi64::<52>(high);
        let middle = _mm512_and_si512(high, self.mask);
        let quotient = _mm512_madd52hi_epu64(_mm512_setzero_si512(), low, self.one);
        let multiple = _mm512_madd52lo_epu64(_mm512_setzero_si512(), quotient, self.modulus);
        let low = _mm512_and_si512(_mm512_sub_epi64(low, multiple), self.mask);
        let middle = self.scale(middle, self.shift);
        let top = self.scale(top, self.shift2);
        // Three numbers below 2q: a subtraction that borrows becomes huge, and the minimum skips it.
        let sum = _mm512_add_epi64(_mm512_add_epi64(low, middle), top);
        let sum = _mm512_min_epu64(sum, _mm512_sub_epi64(sum, self.four));
        let sum = _mm512_min_epu64(sum, _mm512_sub_epi64(sum, self.two));
        _mm512_min_epu64(sum, _mm512_sub_epi64(sum, self.modulus))
    }
}

/// How far ahead of its use the table is fetched.
const PREFETCH_BYTES: usize = 8192;
/// Primes of at most so many bits are multiplied by 32-bit products: 127 of them and more fit between
/// two folds of a sum.
const SHORT_BITS: u32 = 28;
