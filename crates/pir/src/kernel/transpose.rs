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

/// The transpose of an 8 × 8 matrix of bytes: byte j of word i becomes byte i of word j.
#[inline]
pub(crate) fn transpose_bytes8(mut words: [u64; 8]) -> [u64; 8] {
    for (step, mask) in
        [(4, 0x0000_0000_FFFF_FFFF), (2, 0x0000_FFFF_0000_FFFF), (1, 0x00FF_00FF_00FF_00FF)]
    {
        let shift = 8 * step;
        for block in (0..8).step_by(2 * step) {
            for i in block..block + step {
                let (a, b) = (words[i], words[i + step]);
                words[i] = a & mask | (b & mask) << shift;
                words[i + step] = a >> shift & mask | b & !mask;
            }
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::{transpose_bytes8, transpose8};

    #[test]
    fn every_bit_moves_to_its_mirror() {
        for byte in 0..8 {
            for bit in 0..8 {
                assert_eq!(transpose8(1 << (8 * byte + bit)), 1 << (8 * bit + byte));
            }
        }
    }

    #[test]
    fn every_byte_moves_to_its_mirror() {
        let words: [[u8; 8]; 8] =
            std::array::from_fn(|i| std::array::from_fn(|j| (8 * i + j) as u8));
        let turned = transpose_bytes8(words.map(u64::from_le_bytes)).map(u64::to_le_bytes);
        for (i, word) in turned.iter().enumerate() {
            for (j, byte) in word.iter().enumerate() {
                assert_eq!(*byte, words[j][i]);
            }
        }
    }
}
