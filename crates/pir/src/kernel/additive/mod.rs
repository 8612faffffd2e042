//! The products of additive shares: bytes modulo 2^8 and little-endian words modulo 2^32.
//!
//! A tile's bits are transposed back once for all queries ([`Additive::unpack`]), not into rows but so
//! that a register holds the numbers of a few rows side by side for each of its columns, and a query's
//! shares of these rows, as they lie in a leaf, are repeated in another. What the lanes of a register
//! sum up for one column is added at a pass's end ([`Additive::fold`]). Rows of any width fill registers
//! so.
//!
//! The floor is the multiplier's: one instruction does 64 products of bytes, or 16 of words, where that
//! of bits does 4,096. So, at as many instructions a cycle (two on Zen 5), a pass of either ring takes
//! eight times a pass of bits, to which the shares' expansion comes: 8 and 32 times that of bits. Of
//! bytes up to a third of the multiplications is saved ([`avx512`]).
//!
//! [`portable`] is the specification; `check` holds every backend to it. No backend branches on a
//! share or uses one in an address.

use hushtable_prg::Platform;
#[cfg(target_arch = "x86_64")]
use hushtable_prg::Tier;

use super::{BLOCK_GROUPS, BLOCK_ROWS, TILE_UNITS_MAX, UNIT_BYTES, UNIT_ROW_BYTES};

mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

#[cfg(test)]
mod check;

/// Tiles of a panel: 64 KiB of rows.
pub(crate) const PANEL_TILES: usize = 4;
const PANEL_UNITS: usize = PANEL_TILES * TILE_UNITS_MAX;
/// Bytes of a block's rows in one unit.
pub(crate) const UNIT_ROWS_BYTES: usize = BLOCK_GROUPS * UNIT_BYTES;

/// What shares and rows are numbers of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ring {
    /// Bytes, modulo 2^8.
    Z8,
    /// Little-endian words, modulo 2^32.
    Z32,
}

impl Ring {
    /// Bytes of one query's shares of a block.
    pub(crate) const fn share_bytes(self) -> usize {
        match self {
            Self::Z8 => BLOCK_ROWS,
            Self::Z32 => 4 * BLOCK_ROWS,
        }
    }
}

/// One backend of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Additive {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512Vnni,
}

impl Additive {
    pub(crate) fn new(platform: Platform) -> Self {
        #[cfg(target_arch = "x86_64")]
        match platform.tier() {
            Tier::Avx512 if is_x86_feature_detected!("avx512vnni") => return Self::Avx512Vnni,
            Tier::Avx512 | Tier::Avx2 => return Self::Avx2,
            _ => {}
        }
        let _ = platform;
        Self::Portable
    }

    /// Turns one tile of a block, 64 groups × `units` × 64 bytes, into as many bytes of rows, in this
    /// backend's form.
    pub(crate) fn unpack(self, ring: Ring, tile: &[u8], rows: &mut [u8]) {
        let units = tile.len() / UNIT_ROWS_BYTES;
        assert!((1..=TILE_UNITS_MAX).contains(&units));
        assert!(tile.len() == units * UNIT_ROWS_BYTES && rows.len() == tile.len());
        match self {
            Self::Portable => portable::unpack(ring, tile, rows),
            // SAFETY: `new` chose this where AVX2 (the tier) was detected.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { avx2::unpack(ring, tile, rows) },
            // SAFETY: `new` chose this where AVX-512 F and BW, GFNI (the tier) and VNNI were detected.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => unsafe { avx512::unpack(ring, tile, rows) },
        }
    }

    /// Adds `shares × rows` to `sums`.
    ///
    /// `rows` is what [`unpack`](Self::unpack) made of a panel: up to four tiles of one block, of which
    /// the last alone may have less than four units. `shares` has [`Ring::share_bytes`] for each query,
    /// in the order of the block's rows, and `sums` 64 bytes a unit of the panel for each: zeros at
    /// first, then what this very backend left, in its form. `next` is what will be read next, to be
    /// prefetched.
    pub(crate) fn multiply(
        self,
        ring: Ring,
        rows: &[u8],
        next: &[u8],
        shares: &[u8],
        sums: &mut [u8],
    ) {
        let panel = Panel { rows, units: rows.len() / UNIT_ROWS_BYTES };
        let queries = shares.len() / ring.share_bytes();
        assert!((1..=PANEL_UNITS).contains(&panel.units));
        assert_eq!(rows.len(), panel.units * UNIT_ROWS_BYTES);
        assert_eq!(shares.len(), queries * ring.share_bytes());
        assert_eq!(sums.len(), queries * panel.units * UNIT_BYTES);
        match self {
            Self::Portable => portable::multiply(ring, panel, shares, sums),
            // SAFETY: `new` chose this where AVX2 (the tier) was detected.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { avx2::multiply(ring, panel, next, shares, sums) },
            // SAFETY: `new` chose this where AVX-512 F and BW, GFNI (the tier) and VNNI were detected.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512Vnni => unsafe { avx512::multiply(ring, panel, next, shares, sums) },
        }
        let _ = next;
    }

    /// Adds up what one query's sums of a panel have for each column, 8 bytes of its row a unit.
    pub(crate) fn fold(self, ring: Ring, sums: &[u8], row: &mut [u8]) {
        let unit_rows = UNIT_BYTES / UNIT_ROW_BYTES;
        assert_eq!(sums.len(), row.len() * unit_rows);
        let strip = TILE_UNITS_MAX * UNIT_ROW_BYTES;
        for (row, sums) in row.chunks_mut(strip).zip(sums.chunks(strip * unit_rows)) {
            match (self, ring) {
                #[cfg(target_arch = "x86_64")]
                (Self::Avx512Vnni, Ring::Z32) if row.len() == strip => fold_words(8, sums, row),
                (_, Ring::Z32) => fold_words(32, sums, row),
                (_, Ring::Z8) => {
                    for (byte, lanes) in row.iter_mut().zip(sums.as_chunks::<8>().0) {
                        *byte = lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane));
                    }
                }
            }
        }
    }
}

/// Each word of so many bytes of lanes.
fn fold_words(lanes_bytes: usize, sums: &[u8], row: &mut [u8]) {
    for (word, lanes) in row.as_chunks_mut::<4>().0.iter_mut().zip(sums.chunks(lanes_bytes)) {
        let lanes = lanes.as_chunks::<4>().0.iter().map(|lane| u32::from_le_bytes(*lane));
        *word = lanes.fold(0, u32::wrapping_add).to_le_bytes();
    }
}

/// The rows of neighbouring tiles of a block.
#[derive(Clone, Copy)]
struct Panel<'a> {
    rows: &'a [u8],
    units: usize,
}

impl<'a> Panel<'a> {
    /// The tiles' first units and rows.
    fn tiles(self) -> impl Iterator<Item = (usize, &'a [u8])> {
        let tiles = self.rows.chunks(TILE_UNITS_MAX * UNIT_ROWS_BYTES);
        (0..).step_by(TILE_UNITS_MAX).zip(tiles)
    }
}

/// The part of what comes next that is fetched while queries `first..first + step` of `count` are
/// multiplied with.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetch(next: &[u8], first: usize, step: usize, count: usize) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    let line = |query: usize| next.len() * query / count / 64 * 64;
    let end = if first + step == count { next.len() } else { line(first + step) };
    for line in next[line(first)..end].chunks(64) {
        // SAFETY: a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) }
    }
}
