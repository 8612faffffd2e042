//! The products in registers of 64 bytes or 16 words.
//!
//! Words are multiplied by `vpmulld` and added: of four pipes two multiply, and two are left to add.
//! `vpmulld` does 16 products where three of 16-bit halves by `vpdpwssd` do as many in one and a half
//! times the multiplications, and 52-bit multiply-and-adds in twice.
//!
//! Bytes are multiplied by `vpdpbusd`, whose sums are right modulo 2^8 whatever the factors' signs. It
//! leaves two pipes idle, so most products are paired by Winograd's inner product: x y + x' y' =
//! (x + y') (x' + y) − x x' − y y', of which the last two terms are a query's and a column's alone. That
//! is three instructions for two products, one of them a multiplication; with two of three products
//! paired all pipes would be busy, for two thirds of the time.

use std::arch::x86_64::*;

use super::{
    BLOCK_GROUPS, PANEL_TILES, Panel, Ring, TILE_UNITS_MAX, UNIT_BYTES, UNIT_ROWS_BYTES, prefetch,
};

/// Groups of rows that are each paired with the one so many later.
const PAIRS: usize = BLOCK_GROUPS / 2;
/// Units of a tile of 1 to 4 whose products are paired.
const PAIRED_UNITS: [usize; TILE_UNITS_MAX] = [1, 2, 2, 3];
/// Queries whose terms of paired products are held at once.
const TERMS: usize = 16;
/// How far ahead of its use a tile is fetched into the first-level cache.
const AHEAD_BYTES: usize = 4096;
/// Bytes of a tile of whole width, of its sums for one query, and of its rows and of a query's words that
/// are multiplied in turn for all queries: a panel of them is a third of a first-level cache.
const TILE_BYTES: usize = TILE_UNITS_MAX * UNIT_ROWS_BYTES;
const TILE_SUM_BYTES: usize = TILE_UNITS_MAX * UNIT_BYTES;
const PARTS: usize = 4;

#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn unpack(ring: Ring, tile: &[u8], rows: &mut [u8]) {
    const REVERSED: [u8; 64] = index_bytes(false);
    const PAIRED: [u8; 64] = index_bytes(true);
    const WORDS: [u16; 32] = index_words();
    // SAFETY: the arrays have the 64 bytes that are loaded.
    let (reversed, paired, words) = unsafe {
        (
            _mm512_loadu_si512(REVERSED.as_ptr().cast()),
            _mm512_loadu_si512(PAIRED.as_ptr().cast()),
            _mm512_loadu_si512(WORDS.as_ptr().cast()),
        )
    };
    let identity = _mm512_set1_epi64(0x8040_2010_0804_0201_u64 as i64);
    let units = tile.len() / UNIT_ROWS_BYTES;
    let width = units * UNIT_BYTES;
    for (planes, rows) in tile.chunks_exact(width).zip(rows.chunks_exact_mut(width)) {
        let mut group = [_mm512_setzero_si512(); TILE_UNITS_MAX];
        for (unit, planes) in group.iter_mut().zip(planes.as_chunks::<UNIT_BYTES>().0) {
            _mm_prefetch::<_MM_HINT_T0>(planes.as_ptr().wrapping_add(AHEAD_BYTES).cast());
            // SAFETY: `planes` has 64 bytes.
            let planes = unsafe { _mm512_loadu_si512(planes.as_ptr().cast()) };
            // The planes as the matrix, whose first row is its last byte.
            let matrix = _mm512_shuffle_epi8(planes, reversed);
            *unit = _mm512_gf2p8affine_epi64_epi8::<0>(identity, matrix);
            if ring == Ring::Z32 {
                *unit = _mm512_permutexvar_epi16(words, _mm512_shuffle_epi8(*unit, paired));
            }
        }
        if ring == Ring::Z32 && units == TILE_UNITS_MAX {
            group = by_pairs_of_rows(group);
        }
        for (unit, rows) in group.iter().zip(rows.as_chunks_mut::<UNIT_BYTES>().0) {
            // SAFETY: `rows` has 64 bytes.
            unsafe { _mm512_storeu_si512(rows.as_mut_ptr().cast(), *unit) }
        }
    }
}

/// Two words' eight rows a register to eight words' two rows: their shares then are 64 bits, which are
/// loaded and repeated without a pipe's help, as 256 are not.
#[inline]
#[target_feature(enable = "avx512f")]
fn by_pairs_of_rows([a, b, c, d]: [__m512i; TILE_UNITS_MAX]) -> [__m512i; TILE_UNITS_MAX] {
    let rows = [
        _mm512_setr_epi64(0, 4, 8, 12, 1, 5, 9, 13),
        _mm512_setr_epi64(2, 6, 10, 14, 3, 7, 11, 15),
    ];
    let [[ab0, cd0], [ab2, cd2]] = rows
        .map(|rows| [_mm512_permutex2var_epi64(a, rows, b), _mm512_permutex2var_epi64(c, rows, d)]);
    [
        _mm512_shuffle_i64x2::<0b01_00_01_00>(ab0, cd0),
        _mm512_shuffle_i64x2::<0b11_10_11_10>(ab0, cd0),
        _mm512_shuffle_i64x2::<0b01_00_01_00>(ab2, cd2),
        _mm512_shuffle_i64x2::<0b11_10_11_10>(ab2, cd2),
    ]
}

/// Within 16 bytes: each eight reversed, or the first eight paired with the last.
const fn index_bytes(paired: bool) -> [u8; 64] {
    let mut index = [0; 64];
    let mut at = 0;
    while at < 64 {
        let within = at % 16;
        index[at] = if paired { within % 2 * 8 + within / 2 } else { within ^ 7 } as u8;
        at += 1;
    }
    index
}

/// Within 16 words: the first eight paired with the last.
const fn index_words() -> [u16; 32] {
    let mut index = [0; 32];
    let mut at = 0;
    while at < 32 {
        index[at] = (at / 16 * 16 + at % 2 * 8 + at % 16 / 2) as u16;
        at += 1;
    }
    index
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn multiply(ring: Ring, panel: Panel<'_>, next: &[u8], shares: &[u8], sums: &mut [u8]) {
    let count = shares.len() / ring.share_bytes();
    assert!((1..=PANEL_TILES * TILE_UNITS_MAX).contains(&panel.units));
    assert_eq!(panel.rows.len(), panel.units * UNIT_ROWS_BYTES);
    assert_eq!(shares.len(), count * ring.share_bytes());
    assert_eq!(sums.len(), count * panel.units * UNIT_BYTES);
    match ring {
        Ring::Z8 => multiply_bytes(panel, next, shares, sums),
        Ring::Z32 => {
            let tiles = panel.units / TILE_UNITS_MAX;
            match tiles {
                0 => {}
                1 => multiply_words::<1>(panel, next, shares, sums),
                2 => multiply_words::<2>(panel, next, shares, sums),
                3 => multiply_words::<3>(panel, next, shares, sums),
                _ => multiply_words::<4>(panel, next, shares, sums),
            }
            let next = if tiles == 0 { next } else { &[] };
            match panel.units % TILE_UNITS_MAX {
                0 => {}
                1 => multiply_last_words::<1>(panel, next, shares, sums),
                2 => multiply_last_words::<2>(panel, next, shares, sums),
                _ => multiply_last_words::<3>(panel, next, shares, sums),
            }
        }
    }
}

/// Lengths are checked by the caller.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn multiply_bytes(panel: Panel<'_>, next: &[u8], shares: &[u8], sums: &mut [u8]) {
    let share_bytes = Ring::Z8.share_bytes();
    let count = shares.len() / share_bytes;
    let stride = panel.units * UNIT_BYTES;
    let mut of_rows = [[_mm512_setzero_si512(); TILE_UNITS_MAX]; PANEL_TILES];
    for (terms, (_, rows)) in of_rows.iter_mut().zip(panel.tiles()) {
        *terms = match rows.len() / UNIT_ROWS_BYTES {
            1 => terms_of_rows::<1>(rows),
            2 => terms_of_rows::<2>(rows),
            3 => terms_of_rows::<3>(rows),
            _ => terms_of_rows::<4>(rows),
        };
    }
    let mut of_shares = [_mm512_setzero_si512(); TERMS];
    for (at, shares) in shares.chunks(TERMS * share_bytes).enumerate() {
        for (term, shares) in of_shares.iter_mut().zip(shares.chunks_exact(share_bytes)) {
            *term = term_of_shares(shares);
        }
        let start = at * TERMS;
        let queries = shares.len() / share_bytes;
        for (terms, (unit, rows)) in of_rows.iter().zip(panel.tiles()) {
            let mut first = 0;
            while first < queries {
                let of_shares = &of_shares[first..];
                let shares = shares[first * share_bytes..].as_ptr();
                let sums = sums[(start + first) * stride + unit * UNIT_BYTES..].as_mut_ptr();
                let tile = Bytes { rows, terms, of_shares, shares, sums, stride };
                // SAFETY: by the lengths that the caller checked, the shares and sums of
                // `queries - first` lie behind the pointers.
                first += unsafe {
                    match rows.len() / UNIT_ROWS_BYTES {
                        1 => tile.add_some::<1>(queries - first),
                        2 => tile.add_some::<2>(queries - first),
                        3 => tile.add_some::<3>(queries - first),
                        _ => tile.add_some::<4>(queries - first),
                    }
                };
            }
        }
        prefetch(next, start, queries, count);
    }
}

/// What a tile's paired rows add to each column, of the units whose products are paired.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn terms_of_rows<const U: usize>(rows: &[u8]) -> [__m512i; TILE_UNITS_MAX] {
    let (first, second) = rows.split_at(rows.len() / 2);
    let (first, second) = (first.chunks_exact(U * UNIT_BYTES), second.chunks_exact(U * UNIT_BYTES));
    let mut terms = [_mm512_setzero_si512(); TILE_UNITS_MAX];
    for (first, second) in first.zip(second) {
        for u in 0..const { PAIRED_UNITS[U - 1] } {
            terms[u] = add_dot(terms[u], &first[u * UNIT_BYTES..], &second[u * UNIT_BYTES..]);
        }
    }
    terms
}

/// What a query's paired shares add to each column: in each 64 bits of a register, in two halves.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn term_of_shares(shares: &[u8]) -> __m512i {
    let (first, second) = shares.split_at(shares.len() / 2);
    let mut sum = _mm512_setzero_si512();
    for (first, second) in first.chunks_exact(64).zip(second.chunks_exact(64)) {
        sum = add_dot(sum, first, second);
    }
    sum = _mm512_add_epi32(sum, _mm512_shuffle_i64x2::<0b01_00_11_10>(sum, sum));
    sum = _mm512_add_epi32(sum, _mm512_shuffle_i64x2::<0b10_11_00_01>(sum, sum));
    _mm512_add_epi32(sum, _mm512_shuffle_epi32::<0b01_00_11_10>(sum))
}

/// Adds the products of 64 bytes each, four to a sum.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn add_dot(sum: __m512i, x: &[u8], y: &[u8]) -> __m512i {
    assert!(x.len() >= 64 && y.len() >= 64);
    // SAFETY: both have the 64 bytes that are loaded.
    unsafe {
        let (x, y) = (_mm512_loadu_si512(x.as_ptr().cast()), _mm512_loadu_si512(y.as_ptr().cast()));
        _mm512_dpbusd_epi32(sum, x, y)
    }
}

/// A tile of bytes and some queries: their shares, one after the other, and their sums, `stride` apart.
struct Bytes<'a> {
    rows: &'a [u8],
    terms: &'a [__m512i; TILE_UNITS_MAX],
    of_shares: &'a [__m512i],
    shares: *const u8,
    sums: *mut u8,
    stride: usize,
}

impl Bytes<'_> {
    /// As many queries as there are registers for; how many.
    ///
    /// # Safety
    /// The rows are `U` units, and `queries`, at least one, have their shares and sums.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn add_some<const U: usize>(&self, queries: usize) -> usize {
        // SAFETY: the caller's promises.
        unsafe {
            match queries {
                1 => self.add::<U, 1>(),
                2 | 3 => self.add::<U, 2>(),
                8.. if U <= 2 => self.add::<U, 8>(),
                _ => self.add::<U, 4>(),
            }
        }
    }

    /// # Safety
    /// The rows are `U` units, and `Q` queries have their shares and sums.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn add<const U: usize, const Q: usize>(&self) -> usize {
        let share_bytes = Ring::Z8.share_bytes();
        let paired = const { PAIRED_UNITS[U - 1] };
        let (rows, shares) = (self.rows.as_ptr(), self.shares.cast::<i64>());
        let mut acc = [[_mm512_setzero_si512(); U]; Q];
        // SAFETY: the caller's promises.
        unsafe {
            for (q, acc) in acc.iter_mut().enumerate() {
                for (u, acc) in acc.iter_mut().enumerate() {
                    let sum = self.sums.add(q * self.stride + u * UNIT_BYTES);
                    *acc = _mm512_loadu_si512(sum.cast());
                    if u < paired {
                        let terms = _mm512_add_epi32(self.of_shares[q], self.terms[u]);
                        *acc = _mm512_sub_epi32(*acc, terms);
                    }
                }
            }
            for pair in 0..PAIRS {
                let unit = |group: usize, u: usize| {
                    _mm512_loadu_si512(rows.add((group * U + u) * UNIT_BYTES).cast())
                };
                let first: [__m512i; U] = std::array::from_fn(|u| unit(pair, u));
                let second: [__m512i; U] = std::array::from_fn(|u| unit(pair + PAIRS, u));
                for (q, acc) in acc.iter_mut().enumerate() {
                    let shares = shares.add(q * share_bytes / 8);
                    let x = _mm512_set1_epi64(shares.add(pair).read_unaligned());
                    let y = _mm512_set1_epi64(shares.add(pair + PAIRS).read_unaligned());
                    for (u, acc) in acc.iter_mut().enumerate() {
                        if u < paired {
                            let x = _mm512_add_epi8(x, second[u]);
                            *acc = _mm512_dpbusd_epi32(*acc, x, _mm512_add_epi8(y, first[u]));
                        } else {
                            *acc = _mm512_dpbusd_epi32(*acc, x, first[u]);
                            *acc = _mm512_dpbusd_epi32(*acc, y, second[u]);
                        }
                    }
                }
            }
            let low = _mm512_set1_epi32(0xFF);
            for (q, acc) in acc.iter().enumerate() {
                for (u, acc) in acc.iter().enumerate() {
                    let to = self.sums.add(q * self.stride + u * UNIT_BYTES);
                    _mm512_storeu_si512(to.cast(), _mm512_and_si512(*acc, low));
                }
            }
        }
        Q
    }
}

/// The panel's first `W` tiles, which are whole. Lengths are checked by the caller.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn multiply_words<const W: usize>(panel: Panel<'_>, next: &[u8], shares: &[u8], sums: &mut [u8]) {
    let share_bytes = Ring::Z32.share_bytes();
    let count = shares.len() / share_bytes;
    let stride = panel.units * UNIT_BYTES;
    assert!(panel.units >= W * TILE_UNITS_MAX);
    for part in 0..PARTS {
        let rows = panel.rows[part * TILE_BYTES / PARTS..].as_ptr();
        let mut first = 0;
        while first < count {
            let shares = shares[first * share_bytes + part * share_bytes / PARTS..].as_ptr();
            let sums = sums[first * stride..].as_mut_ptr();
            // SAFETY: by the lengths checked, the part's rows of `W` tiles, and the part's shares and
            // the sums of `count - first` queries lie behind the pointers.
            let step = unsafe {
                match count - first {
                    1 => add_words::<W, 1>(rows, shares, sums, stride),
                    2 | 3 => add_words::<W, 2>(rows, shares, sums, stride),
                    // As many as there are registers for.
                    8.. if W < 4 => add_words::<W, 8>(rows, shares, sums, stride),
                    6.. => add_words::<W, 6>(rows, shares, sums, stride),
                    _ => add_words::<W, 4>(rows, shares, sums, stride),
                }
            };
            prefetch(next, part * count + first, step, PARTS * count);
            first += step;
        }
    }
}

/// `Q` queries and a part of `W` tiles; how many queries.
///
/// # Safety
/// `rows` points at a part of a tile's readable bytes, as do the pointers `TILE_BYTES` apart for the
/// `W`; `shares` at a part of the `Q` queries' readable words; `sums`, `stride` apart, at `Q` times
/// `W × 256` writable bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn add_words<const W: usize, const Q: usize>(
    rows: *const u8,
    shares: *const u8,
    sums: *mut u8,
    stride: usize,
) -> usize {
    let share_bytes = Ring::Z32.share_bytes();
    let mut acc = [[_mm512_setzero_si512(); W]; Q];
    // SAFETY: the caller's promises.
    unsafe {
        for (q, acc) in acc.iter_mut().enumerate() {
            for (w, acc) in acc.iter_mut().enumerate() {
                *acc = _mm512_loadu_si512(sums.add(q * stride + w * TILE_SUM_BYTES).cast());
            }
        }
        for pair in 0..TILE_BYTES / PARTS / UNIT_BYTES {
            let numbers: [__m512i; W] = std::array::from_fn(|w| {
                _mm512_loadu_si512(rows.add(w * TILE_BYTES + pair * UNIT_BYTES).cast())
            });
            for (q, acc) in acc.iter_mut().enumerate() {
                let shares = shares.add(q * share_bytes + pair * 8).cast::<i64>();
                let shares = _mm512_set1_epi64(shares.read_unaligned());
                for (acc, numbers) in acc.iter_mut().zip(&numbers) {
                    *acc = _mm512_add_epi32(*acc, _mm512_mullo_epi32(*numbers, shares));
                }
            }
        }
        for (q, acc) in acc.iter().enumerate() {
            for (w, acc) in acc.iter().enumerate() {
                let to = sums.add(q * stride + w * TILE_SUM_BYTES);
                _mm512_storeu_si512(to.cast(), *acc);
            }
        }
    }
    Q
}

/// The panel's last tile, of `U` units, fewer than four. Lengths are checked by the caller.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn multiply_last_words<const U: usize>(
    panel: Panel<'_>,
    next: &[u8],
    shares: &[u8],
    sums: &mut [u8],
) {
    let share_bytes = Ring::Z32.share_bytes();
    let count = shares.len() / share_bytes;
    let stride = panel.units * UNIT_BYTES;
    let unit = panel.units - U;
    let rows = &panel.rows[unit * UNIT_ROWS_BYTES..];
    let mut first = 0;
    while first < count {
        let shares = shares[first * share_bytes..].as_ptr();
        let sums = sums[first * stride + unit * UNIT_BYTES..].as_mut_ptr();
        // SAFETY: by the lengths checked, `U` units' rows, and the shares and sums of `count - first`
        // queries lie behind the pointers.
        let step = unsafe {
            match count - first {
                1 => add_last_words::<U, 1>(rows, shares, sums, stride),
                2 | 3 => add_last_words::<U, 2>(rows, shares, sums, stride),
                8.. => add_last_words::<U, 8>(rows, shares, sums, stride),
                _ => add_last_words::<U, 4>(rows, shares, sums, stride),
            }
        };
        prefetch(next, first, step, count);
        first += step;
    }
}

/// `Q` queries; how many.
///
/// # Safety
/// `rows` has 64 groups of `U` units; `shares` points at `Q` queries' readable words, `sums` at `Q` times
/// `U × 64` writable bytes, `stride` apart.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn add_last_words<const U: usize, const Q: usize>(
    rows: &[u8],
    shares: *const u8,
    sums: *mut u8,
    stride: usize,
) -> usize {
    let share_bytes = Ring::Z32.share_bytes();
    let mut acc = [[_mm512_setzero_si512(); U]; Q];
    // SAFETY: the caller's promises.
    unsafe {
        for (q, acc) in acc.iter_mut().enumerate() {
            for (u, acc) in acc.iter_mut().enumerate() {
                *acc = _mm512_loadu_si512(sums.add(q * stride + u * UNIT_BYTES).cast());
            }
        }
        for group in 0..BLOCK_GROUPS {
            let numbers: [__m512i; U] = std::array::from_fn(|u| {
                _mm512_loadu_si512(rows.as_ptr().add((group * U + u) * UNIT_BYTES).cast())
            });
            for (q, acc) in acc.iter_mut().enumerate() {
                let shares = shares.add(q * share_bytes + group * 32);
                let shares = _mm512_broadcast_i64x4(_mm256_loadu_si256(shares.cast()));
                for (acc, numbers) in acc.iter_mut().zip(&numbers) {
                    *acc = _mm512_add_epi32(*acc, _mm512_mullo_epi32(*numbers, shares));
                }
            }
        }
        for (q, acc) in acc.iter().enumerate() {
            for (u, acc) in acc.iter().enumerate() {
                _mm512_storeu_si512(sums.add(q * stride + u * UNIT_BYTES).cast(), *acc);
            }
        }
    }
    Q
}
