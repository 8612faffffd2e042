//! Streams of leaves, and rows turned to labels: what extending oblivious transfers is made of.
//!
//! [`portable`] is the specification; the other files compute the same numbers, and the tests hold
//! them to that.

mod portable;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

#[cfg(test)]
mod check;

use aes::Aes128Enc;
use aes::cipher::KeyInit;
use hushtable_prg::{Platform, Tier};
use zeroize::Zeroizing;

/// Labels that are made at a time.
pub(crate) const TILE: usize = 2048;
/// Blocks of a row of a tile.
pub(crate) const ROW: usize = TILE / 128;
/// Rows of a tile: bits of a label.
pub(crate) const ROWS: usize = 128;
/// Trees of leaves.
pub(crate) const TREES: usize = 32;
/// Leaves of a tree.
pub(crate) const LEAVES: usize = 16;
/// Rows of a tree: the logarithm of [`LEAVES`].
pub(crate) const DEPTH: usize = 4;

/// One bit of each label of a tile; bit `i % 128` of block `i / 128` is label `i`'s.
pub(crate) type Row = [u128; ROW];

/// The leaves of all trees, ready to be expanded: an AES key each.
pub(crate) struct Streams(Keys);

/// Keys as a tier wants them.
enum Keys {
    /// The `aes` crate's, which finds instructions by itself.
    Crate(Vec<Aes128Enc>),
    #[cfg(target_arch = "x86_64")]
    Wide(Zeroizing<Vec<[u128; 11]>>),
}

impl Streams {
    /// Schedules the keys: `leaves` of each tree in turn.
    pub(crate) fn new(platform: Platform, leaves: &[u128]) -> Self {
        assert_eq!(leaves.len(), TREES * LEAVES);
        #[cfg(target_arch = "x86_64")]
        if platform.tier() == Tier::Avx512 {
            // SAFETY: the tier says that its flags were detected.
            return Self(Keys::Wide(Zeroizing::new(unsafe { avx512::schedule(leaves) })));
        }
        let _ = (platform, Tier::Portable);
        let key = |leaf: &u128| {
            let bytes = Zeroizing::new(leaf.to_le_bytes());
            Aes128Enc::new((&*bytes).into())
        };
        Self(Keys::Crate(leaves.iter().map(key).collect()))
    }

    /// Expands the leaves of `tree` to a row each, r_0 to r_15, of AES in counter mode: block j of each
    /// is the AES of `nonce` ⊕ (`start` + j), where `start` is a multiple of [`ROW`]. Writes to `rows[i]` the sum of those r_x whose x has bit i,
    /// and to `sum` that of all.
    pub(crate) fn fold(
        &self,
        tree: usize,
        (nonce, start): (u128, u128),
        rows: &mut [Row; DEPTH],
        sum: &mut Row,
    ) {
        debug_assert!(start.is_multiple_of(ROW as u128));
        let first = nonce ^ start;
        let range = tree * LEAVES..(tree + 1) * LEAVES;
        match &self.0 {
            Keys::Crate(keys) => portable::fold(&keys[range], first, rows, sum),
            #[cfg(target_arch = "x86_64")]
            Keys::Wide(keys) => {
                let (keys, _) = keys[range].as_chunks();
                // SAFETY: such keys are made on that tier alone, whose flags were detected.
                unsafe { avx512::fold(&keys[0], first, rows, sum) }
            }
        }
    }
}

/// Makes labels of rows: bit r of label i is bit i of row r.
pub(crate) fn transpose(platform: Platform, rows: &[Row; ROWS], labels: &mut [u128; TILE]) {
    match platform.tier() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the tier says that its flags were detected.
        Tier::Avx512 => unsafe { avx512::transpose(rows, labels) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: likewise.
        Tier::Avx2 => unsafe { avx2::transpose(rows, labels) },
        _ => portable::transpose(rows, labels),
    }
}
