//! 8 × 8 bit transposition.

/// Swaps byte and bit numbers: bit j of byte i becomes bit i of byte j (Warren, "Hacker's Delight",
/// 2nd ed., §7-3).
pub(crate) fn transpose8(x: u64) -> u64 {
    let t = (x ^ (x >> 7)) & 0x00AA_00AA_00AA_00AA;
    let x = x ^ t ^ (t << 7);
    let t = (x ^ (x >> 14)) & 0x0000_CCCC_0000_CCCC;
    let x = x ^ t ^ (t << 14);
    let t = (x ^ (x >> 28)) & 0x0000_0000_F0F0_F0F0;
    x ^ t ^ (t << 28)
}

#[cfg(test)]
mod tests {
    use super::transpose8;

    #[test]
    fn every_bit_moves_to_its_mirror() {
        for byte in 0..8 {
            for bit in 0..8 {
                assert_eq!(transpose8(1 << (8 * byte + bit)), 1 << (8 * bit + byte));
            }
        }
    }
}
