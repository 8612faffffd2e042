//! The answer kernels: a GF(2) matrix product of query bits and table bits.
//!
//! The table is stored once, bit-transposed in groups of eight rows ([`Planes`]): each stored byte
//! holds one bit position of eight rows. Eight queries' bits for the same eight rows form an 8 × 8
//! matrix, and one 8 × 8 by 8-vector product per stored byte yields that bit of eight answers.
//! AVX-512 has the product as an instruction; AVX2 and NEON look nibbles of *table* bytes up in
//! registers that hold the matrix's column sums (the method of the four Russians with the roles
//! swapped, so that no address depends on a query); the portable path masks and folds.
//!
//! [`portable`] is the specification; `check` holds every backend to it. No backend branches on a
//! query bit or uses one in an address.

#![allow(unsafe_code, reason = "SIMD intrinsics")]

use hushtable_prg::{Platform, Tier};

pub(crate) mod additive;
mod planes;
mod portable;
pub(crate) mod rowsel;
mod transpose;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;

#[cfg(test)]
mod check;
pub mod floor;

pub(crate) use planes::{Planes, Strip};
pub(crate) use transpose::{transpose_bytes8, transpose8};

/// Rows of a block: one leaf of bit shares. Where bins are smaller, blocks are too.
pub(crate) const BLOCK_ROWS: usize = 512;
/// Groups of eight rows in a block.
pub(crate) const BLOCK_GROUPS: usize = BLOCK_ROWS / 8;
/// Row bytes of a unit: their 64 bit planes make 64 stored bytes a group, one AVX-512 register.
pub(crate) const UNIT_ROW_BYTES: usize = 8;
/// Stored bytes of a unit and group.
pub(crate) const UNIT_BYTES: usize = 8 * UNIT_ROW_BYTES;
/// Most units of a tile (block × strip): 16 KiB, half of a usual first-level cache.
pub(crate) const TILE_UNITS_MAX: usize = 4;
/// Queries that share an operand.
pub(crate) const LANES: usize = 8;

fn check_tile(tile: &[u8], units: usize) {
    assert!((1..=TILE_UNITS_MAX).contains(&units));
    let group_bytes = units * UNIT_BYTES;
    assert!(tile.len().is_multiple_of(2 * group_bytes));
    assert!(tile.len() <= BLOCK_GROUPS * group_bytes);
}

/// One backend of the product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel(Platform);

impl Kernel {
    pub(crate) fn new(platform: Platform) -> Self {
        Self(platform)
    }

    /// Bytes of one operand: eight queries' bits for one block, in this backend's form.
    pub(crate) fn operand_bytes(self) -> usize {
        match self.0.tier() {
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => avx512::OPERAND_BYTES,
            #[cfg(target_arch = "x86_64")]
            Tier::Avx2 => avx2::OPERAND_BYTES,
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Tier::Neon => neon::OPERAND_BYTES,
            _ => portable::OPERAND_BYTES,
        }
    }

    /// Turns eight queries' shares of one block (bit r of the 512: row r) into an operand.
    pub(crate) fn pack(self, shares: &[&[u8; 64]; LANES], operand: &mut [u8]) {
        assert_eq!(operand.len(), self.operand_bytes());
        match self.0.tier() {
            // SAFETY: a `Platform` of this tier exists only where its features were detected; the
            // operand's length was checked above.
            #[cfg(target_arch = "x86_64")]
            Tier::Avx512 => unsafe { avx512::pack(shares, operand) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Tier::Avx2 => unsafe { avx2::pack(shares, operand) },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            // SAFETY: as above.
            Tier::Neon => unsafe { neon::pack(shares, operand) },
            _ => portable::pack(shares, operand),
        }
    }

    /// Adds `operands × tile` to `sums`.
    ///
    /// `tile` is one block of one strip: its groups (an even number, at most 64) × `units` × 64
    /// bytes; a share's bits past the last group are not used. `operands` are the query
    /// groups' for that block; `sums` holds `units × 64` bytes for each of them, whose bit j is the
    /// sum for query j of the group. `next` is the tile that comes after, to be prefetched.
    pub(crate) fn multiply(
        self,
        tile: &[u8],
        next: &[u8],
        units: usize,
        operands: &[u8],
        sums: &mut [u8],
    ) {
        let query_groups = operands.len() / self.operand_bytes();
        check_tile(tile, units);
        assert_eq!(operands.len(), query_groups * self.operand_bytes());
        assert_eq!(sums.len(), query_groups * units * UNIT_BYTES);
        match self.0.tier() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Platform` of this tier exists only where its features were detected; the
            // lengths were checked above.
            Tier::Avx512 => unsafe { avx512::multiply(tile, next, units, operands, sums) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Tier::Avx2 => unsafe { avx2::multiply(tile, next, units, operands, sums) },
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            // SAFETY: as above.
            Tier::Neon => unsafe { neon::multiply(tile, next, units, operands, sums) },
            _ => portable::multiply(tile, next, units, operands, sums),
        }
    }

    /// The same for one query, whose 64 share bytes are `shares`; `sums` is that of a query group
    /// with the query in bit 0. A masked XOR: one pass at the memory's speed on every tier.
    pub(crate) fn scan(
        self,
        tile: &[u8],
        next: &[u8],
        units: usize,
        shares: &[u8; 64],
        sums: &mut [u8],
    ) {
        check_tile(tile, units);
        assert_eq!(sums.len(), units * UNIT_BYTES);
        match self.0.tier() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a `Platform` of this tier exists only where its features were detected; the
            // lengths were checked above.
            Tier::Avx512 => unsafe { avx512::scan(tile, units, shares, sums) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Tier::Avx2 => unsafe { avx2::scan(tile, next, units, shares, sums) },
            _ => portable::scan(tile, next, units, shares, sums),
        }
    }

    /// The tier's name.
    pub(crate) fn name(self) -> &'static str {
        self.0.name()
    }
}
