//! The products in registers of 32 bytes or 8 words: half a unit.
//!
//! AVX2 has no sum of byte products that keeps the low bits, so bytes are multiplied as 16-bit
//! numbers, those of even rows apart from those of odd ones.

use std::arch::x86_64::*;

use super::{BLOCK_GROUPS, Panel, Ring, UNIT_BYTES, portable, prefetch};

/// Bytes of a register.
const HALF: usize = 32;

#[target_feature(enable = "avx2")]
pub(super) fn unpack(ring: Ring, tile: &[u8], rows: &mut [u8]) {
    portable::unpack(ring, tile, rows);
}

#[target_feature(enable = "avx2")]
pub(super) fn multiply(ring: Ring, panel: Panel<'_>, next: &[u8], shares: &[u8], sums: &mut [u8]) {
    let share_bytes = ring.share_bytes();
    let count = shares.len() / share_bytes;
    let stride = panel.units * UNIT_BYTES;
    assert_eq!(panel.rows.len(), BLOCK_GROUPS * stride);
    assert_eq!(shares.len(), count * share_bytes);
    assert_eq!(sums.len(), count * stride);
    let mut first = 0;
    while first < count {
        let step = if count - first < 4 { 1 } else { 4 };
        let shares = shares[first * share_bytes..].as_ptr();
        for (unit, rows) in panel.tiles() {
            let width = rows.len() / BLOCK_GROUPS;
            for column in (0..width).step_by(UNIT_BYTES) {
                let sums = sums[first * stride + unit * UNIT_BYTES + column..].as_mut_ptr();
                let tile = Tile { rows: rows[column..].as_ptr(), width, shares, sums, stride };
                // SAFETY: by the lengths checked above the shares of `step` queries, a unit of each of
                // 64 groups, `width` apart, and of `step` sums, `stride` apart, lie behind the pointers.
                unsafe {
                    match (ring, step) {
                        (Ring::Z8, 1) => tile.add_bytes::<1>(),
                        (Ring::Z8, _) => tile.add_bytes::<4>(),
                        (Ring::Z32, 1) => tile.add_words::<1>(),
                        (Ring::Z32, _) => tile.add_words::<4>(),
                    }
                }
            }
        }
        prefetch(next, first, step, count);
        first += step;
    }
}

/// A unit of a block's rows and some queries.
///
/// Its methods are for `Q` queries where `rows` points at 64 readable units, `width` apart, `sums` at `Q`
/// writable ones, `stride` apart, and `shares` at the `Q` queries' readable shares.
struct Tile {
    rows: *const u8,
    width: usize,
    shares: *const u8,
    sums: *mut u8,
    stride: usize,
}

impl Tile {
    /// # Safety
    /// The type's promises.
    #[target_feature(enable = "avx2")]
    unsafe fn add_bytes<const Q: usize>(&self) {
        // SAFETY: the caller's promises.
        unsafe {
            let mut acc = self.sums::<Q>();
            let even = _mm256_set1_epi16(0xFF);
            for group in 0..BLOCK_GROUPS {
                let rows = self
                    .group(group)
                    .map(|rows| [_mm256_and_si256(rows, even), _mm256_srli_epi16::<8>(rows)]);
                for (q, acc) in acc.iter_mut().enumerate() {
                    let shares = self.shares.add(q * Ring::Z8.share_bytes() + group * 8);
                    let shares = _mm256_set1_epi64x(shares.cast::<i64>().read_unaligned());
                    let shares = [_mm256_and_si256(shares, even), _mm256_srli_epi16::<8>(shares)];
                    for (acc, rows) in acc.iter_mut().zip(&rows) {
                        let products = _mm256_add_epi32(
                            _mm256_madd_epi16(rows[0], shares[0]),
                            _mm256_madd_epi16(rows[1], shares[1]),
                        );
                        *acc = _mm256_add_epi32(*acc, products);
                    }
                }
            }
            let low = _mm256_set1_epi32(0xFF);
            self.store(&acc.map(|acc| acc.map(|acc| _mm256_and_si256(acc, low))));
        }
    }

    /// # Safety
    /// The type's promises.
    #[target_feature(enable = "avx2")]
    unsafe fn add_words<const Q: usize>(&self) {
        // SAFETY: the caller's promises.
        unsafe {
            let mut acc = self.sums::<Q>();
            for group in 0..BLOCK_GROUPS {
                let rows = self.group(group);
                for (q, acc) in acc.iter_mut().enumerate() {
                    let shares = self.shares.add(q * Ring::Z32.share_bytes() + group * 32);
                    let shares = _mm256_loadu_si256(shares.cast());
                    for (acc, rows) in acc.iter_mut().zip(&rows) {
                        *acc = _mm256_add_epi32(*acc, _mm256_mullo_epi32(*rows, shares));
                    }
                }
            }
            self.store(&acc);
        }
    }

    /// # Safety
    /// The type's promises, and `group` is below 64.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn group(&self, group: usize) -> [__m256i; 2] {
        [0, HALF].map(|half| {
            // SAFETY: the caller's promise.
            unsafe { _mm256_loadu_si256(self.rows.add(group * self.width + half).cast()) }
        })
    }

    /// # Safety
    /// The type's promises.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn sums<const Q: usize>(&self) -> [[__m256i; 2]; Q] {
        std::array::from_fn(|q| {
            [0, HALF].map(|half| {
                // SAFETY: the caller's promise.
                unsafe { _mm256_loadu_si256(self.sums.add(q * self.stride + half).cast()) }
            })
        })
    }

    /// # Safety
    /// The type's promises.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn store<const Q: usize>(&self, acc: &[[__m256i; 2]; Q]) {
        for (q, halves) in acc.iter().enumerate() {
            for (half, acc) in [0, HALF].into_iter().zip(halves) {
                // SAFETY: the caller's promise.
                unsafe { _mm256_storeu_si256(self.sums.add(q * self.stride + half).cast(), *acc) }
            }
        }
    }
}
