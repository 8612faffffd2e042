//! Branch-free selection.

use std::hint::black_box;

/// All ones if the node's control bit (bit 0) is set, else zero.
///
/// The optimiser must not know that the result is one of two values: it has turned the AND with a
/// correction word that follows into a branch on the bit.
#[inline(always)]
pub(crate) fn mask(node: u128) -> u128 {
    let mask = black_box(0u64.wrapping_sub(node as u64 & 1));
    u128::from(mask) << 64 | u128::from(mask)
}
