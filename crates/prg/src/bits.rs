//! Branch-free selection.

/// All ones if the node's control bit (bit 0) is set, else zero.
///
/// Arithmetic, so that the AND with a correction word that follows stays data flow; see "Constant
/// time" in the crate documentation.
#[inline(always)]
pub(crate) fn mask(node: u128) -> u128 {
    0u128.wrapping_sub(node & 1)
}
