//! The product by `vgf2p8affineqb`: eight 8 × 8 products of bits per 64-bit lane and instruction.

use std::arch::x86_64::*;

use super::{BLOCK_GROUPS, LANES, TILE_UNITS_MAX, UNIT_BYTES};

/// One 8 × 8 matrix a group of rows, as the instruction takes it: byte 7 − j is query j's row.
pub(super) const OPERAND_BYTES: usize = 8 * BLOCK_GROUPS;

/// Interleaves the bytes of eight queries.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub(super) fn pack(shares: &[&[u8; 64]; LANES], operand: &mut [u8]) {
    assert_eq!(operand.len(), OPERAND_BYTES);
    let mut z = [_mm512_setzero_si512(); LANES];
    for (z, shares) in z.iter_mut().zip(shares.iter().rev()) {
        // SAFETY: the array has the 64 bytes that are loaded.
        *z = unsafe { _mm512_loadu_si512(shares.as_ptr().cast()) };
    }
    let [z0, z1, z2, z3, z4, z5, z6, z7] = z;
    let bytes = [
        [_mm512_unpacklo_epi8(z0, z1), _mm512_unpackhi_epi8(z0, z1)],
        [_mm512_unpacklo_epi8(z2, z3), _mm512_unpackhi_epi8(z2, z3)],
        [_mm512_unpacklo_epi8(z4, z5), _mm512_unpackhi_epi8(z4, z5)],
        [_mm512_unpacklo_epi8(z6, z7), _mm512_unpackhi_epi8(z6, z7)],
    ];
    for h in 0..2 {
        let low = [
            _mm512_unpacklo_epi16(bytes[0][h], bytes[1][h]),
            _mm512_unpackhi_epi16(bytes[0][h], bytes[1][h]),
        ];
        let high = [
            _mm512_unpacklo_epi16(bytes[2][h], bytes[3][h]),
            _mm512_unpackhi_epi16(bytes[2][h], bytes[3][h]),
        ];
        for i in 0..2 {
            // Lane l of these holds groups 16 l + 8 h + 4 i + {0, 1} and + {2, 3}.
            let first = _mm512_unpacklo_epi32(low[i], high[i]);
            let second = _mm512_unpackhi_epi32(low[i], high[i]);
            let to = operand[64 * (4 * h + 2 * i)..][..128].as_mut_ptr();
            // SAFETY: `to` has the 128 bytes that are stored.
            unsafe {
                _mm512_storeu_si512(to.cast(), first);
                _mm512_storeu_si512(to.add(64).cast(), second);
            }
        }
    }
}

/// Where in an operand `pack` leaves the matrices of groups `2 × pair` and, after it, its odd twin.
#[inline]
fn matrix_index(pair: usize) -> usize {
    pair % 8 * 8 + pair / 8 * 2
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn multiply(tile: &[u8], next: &[u8], units: usize, operands: &[u8], sums: &mut [u8]) {
    match units {
        1 => multiply_units::<1>(tile, next, operands, sums),
        2 => multiply_units::<2>(tile, next, operands, sums),
        3 => multiply_units::<3>(tile, next, operands, sums),
        _ => multiply_units::<4>(tile, next, operands, sums),
    }
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn multiply_units<const U: usize>(tile: &[u8], next: &[u8], operands: &[u8], sums: &mut [u8]) {
    let count = operands.len() / OPERAND_BYTES;
    assert!(tile.len().is_multiple_of(2 * U * UNIT_BYTES));
    assert!(tile.len() <= BLOCK_GROUPS * U * UNIT_BYTES);
    assert_eq!(operands.len(), count * OPERAND_BYTES);
    assert_eq!(sums.len(), count * U * UNIT_BYTES);
    let passes = count.div_ceil(4);
    for pass in 0..passes {
        let first = 4 * pass;
        let operands = operands[first * OPERAND_BYTES..].as_ptr();
        let sums = sums[first * U * UNIT_BYTES..].as_mut_ptr();
        // Each pass fetches its part of the tile that comes next.
        let share = next.len() * pass / passes..next.len() * (pass + 1) / passes;
        let ahead = &next[share];
        // SAFETY: by the lengths checked above, `min(4, count - first)` operands and sums lie
        // behind the pointers.
        unsafe {
            match count - first {
                1 => multiply_pass::<U, 1>(tile, ahead, operands, sums),
                2 => multiply_pass::<U, 2>(tile, ahead, operands, sums),
                3 => multiply_pass::<U, 3>(tile, ahead, operands, sums),
                _ => multiply_pass::<U, 4>(tile, ahead, operands, sums),
            }
        }
    }
}

/// `Q` query groups over the tile, their sums in `Q × U` registers; two groups of rows a step, so
/// that one three-way XOR folds two products.
///
/// # Safety
/// `operands` points at `Q × OPERAND_BYTES` readable bytes, `sums` at `Q × U × 64` writable ones.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn multiply_pass<const U: usize, const Q: usize>(
    tile: &[u8],
    ahead: &[u8],
    operands: *const u8,
    sums: *mut u8,
) {
    // SAFETY: the caller's promise about `sums`.
    let sum_at = |q: usize, u: usize| unsafe { sums.add((q * U + u) * UNIT_BYTES) };
    let mut acc = [[_mm512_setzero_si512(); U]; Q];
    for (q, acc) in acc.iter_mut().enumerate() {
        for (u, acc) in acc.iter_mut().enumerate() {
            // SAFETY: as `sum_at`.
            *acc = unsafe { _mm512_loadu_si512(sum_at(q, u).cast()) };
        }
    }
    let steps = tile.len() / (2 * U * UNIT_BYTES);
    let ahead_step = ahead.len().div_ceil(steps.max(1)).next_multiple_of(64);
    let (tile, matrices) = (tile.as_ptr(), operands.cast::<i64>());
    for step in 0..steps {
        let from = (step * ahead_step).min(ahead.len());
        for line in ahead[from..(from + ahead_step).min(ahead.len())].chunks(64) {
            _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast());
        }
        let group = 2 * step;
        // SAFETY: `group + 1 < 2 × steps`, the number of groups of `U` units that the tile has.
        let planes = |g: usize, u: usize| unsafe {
            _mm512_loadu_si512(tile.add(((group + g) * U + u) * UNIT_BYTES).cast())
        };
        let even: [__m512i; U] = std::array::from_fn(|u| planes(0, u));
        let odd: [__m512i; U] = std::array::from_fn(|u| planes(1, u));
        for (q, acc) in acc.iter_mut().enumerate() {
            // SAFETY: an operand is 64 matrices of 8 bytes, and a tile has at most 64 groups
            // (checked by the caller).
            let (a, b) = unsafe {
                let matrix = matrices.add(q * BLOCK_GROUPS + matrix_index(step));
                (matrix.read_unaligned(), matrix.add(1).read_unaligned())
            };
            let (a, b) = (_mm512_set1_epi64(a), _mm512_set1_epi64(b));
            for (acc, (even, odd)) in acc.iter_mut().zip(even.iter().zip(&odd)) {
                let x = _mm512_gf2p8affine_epi64_epi8::<0>(*even, a);
                let y = _mm512_gf2p8affine_epi64_epi8::<0>(*odd, b);
                *acc = _mm512_ternarylogic_epi64::<0x96>(*acc, x, y);
            }
        }
    }
    for (q, acc) in acc.iter().enumerate() {
        for (u, acc) in acc.iter().enumerate() {
            // SAFETY: as `sum_at`.
            unsafe { _mm512_storeu_si512(sum_at(q, u).cast(), *acc) }
        }
    }
}

/// One query: each group's planes masked by the query's byte, folded, and the parities taken last.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn scan(tile: &[u8], units: usize, shares: &[u8; 64], sums: &mut [u8]) {
    match units {
        1 => scan_units::<1>(tile, shares, sums),
        2 => scan_units::<2>(tile, shares, sums),
        3 => scan_units::<3>(tile, shares, sums),
        _ => scan_units::<4>(tile, shares, sums),
    }
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn scan_units<const U: usize>(tile: &[u8], shares: &[u8; 64], sums: &mut [u8]) {
    const { assert!(TILE_UNITS_MAX == 4) };
    assert_eq!(sums.len(), U * UNIT_BYTES);
    let mut acc = [_mm512_setzero_si512(); U];
    for (group, planes) in tile.chunks_exact(U * UNIT_BYTES).enumerate() {
        let mask = _mm512_set1_epi8(shares[group] as i8);
        for (u, acc) in acc.iter_mut().enumerate() {
            let line = planes[u * UNIT_BYTES..].as_ptr();
            // Of this tile or of the next one, or past the table: nothing is read there.
            _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(SCAN_AHEAD_BYTES).cast());
            // SAFETY: `planes` has `U × 64` bytes.
            let x = unsafe { _mm512_loadu_si512(line.cast()) };
            // acc ^ (x & mask)
            *acc = _mm512_ternarylogic_epi64::<0x78>(*acc, x, mask);
        }
    }
    for (u, acc) in acc.into_iter().enumerate() {
        // A matrix whose last byte is all ones puts each byte's parity in its bit 0.
        let parity = _mm512_gf2p8affine_epi64_epi8::<0>(acc, _mm512_set1_epi64(0xFF << 56));
        let to = sums[u * UNIT_BYTES..][..UNIT_BYTES].as_mut_ptr();
        // SAFETY: `to` has the 64 bytes that are read and written.
        unsafe {
            let sum = _mm512_xor_si512(_mm512_loadu_si512(to.cast()), parity);
            _mm512_storeu_si512(to.cast(), sum);
        }
    }
}

/// How far ahead of a scan a line is asked for. A tile's length, 16 KiB, is so far that part of it has left
/// the first-level cache again: passes took 1.03 times as long (Zen 5).
const SCAN_AHEAD_BYTES: usize = 4 << 10;
