//! Sums of carry-less products of a tile's rows and public numbers: what a transfer's consistency is checked by.
//!
//! [`portable`] is the specification; the other files compute the same numbers, and the tests hold
//! them to that.

mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;

#[cfg(test)]
mod check;

use hushtable_prg::{Platform, Tier};

use super::transpose::{Row, TILE};

/// Words of 64 bits of a row.
pub(crate) const WORDS: usize = TILE / 64;
/// Sums of each row.
pub(crate) const SUMS: usize = 3;

/// Of each sum, a number for each word. They are public: kernels may use them as addresses.
pub(crate) type Factors = [[u64; WORDS]; SUMS];
/// A row's sums: polynomials over GF(2) of degree 126 at most, bit i that of x^i.
pub(crate) type Sums = [u128; SUMS];

/// Adds to each row's sums the products of its words and their factors, as polynomials over GF(2). Word w of a row is its
/// bits 64 · w and up.
///
/// # Panics
/// Unless there are sums for each row.
pub(crate) fn add(platform: Platform, rows: &[Row], factors: &Factors, sums: &mut [Sums]) {
    assert_eq!(rows.len(), sums.len(), "sums for each row");
    match platform.tier() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the tier says that its flags were detected.
        Tier::Avx512 => unsafe { avx512::add(rows, factors, sums) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: likewise.
        Tier::Avx2 => unsafe { avx2::add(rows, factors, sums) },
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        // SAFETY: likewise.
        Tier::Neon => unsafe { neon::add(rows, factors, sums) },
        _ => portable::add(rows, factors, sums),
    }
}

/// A sum modulo x^64 + x^4 + x^3 + x + 1, which is irreducible: an element of a field of 2^64.
pub(crate) fn reduce(sum: u128) -> u64 {
    let fold = |high: u128| high ^ (high << 1) ^ (high << 3) ^ (high << 4);
    // Of degree 66 at most.
    let once = (sum & u128::from(u64::MAX)) ^ fold(sum >> 64);
    (once ^ fold(once >> 64)) as u64
}
