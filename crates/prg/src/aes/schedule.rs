//! The AES-128 key schedule (FIPS-197, section 5.2) as a constant function.
//!
//! The key is fixed and public, so the schedule is part of the program's constants; nothing here
//! runs on a secret.

/// The eleven round keys of `key`, each as a little-endian `u128`.
pub const fn round_keys(key: [u8; 16]) -> [u128; 11] {
    let mut keys = [0u128; 11];
    keys[0] = u128::from_le_bytes(key);
    let mut rcon = 1u8;
    let mut round = 1;
    while round < 11 {
        let last = keys[round - 1];
        // RotWord on the last column, then SubWord, then Rcon on its first byte.
        let mut word = sub_word(((last >> 96) as u32).rotate_right(8)) ^ rcon as u32;
        let mut column = 0;
        while column < 4 {
            word ^= (last >> (32 * column)) as u32;
            keys[round] |= (word as u128) << (32 * column);
            column += 1;
        }
        rcon = double(rcon);
        round += 1;
    }
    keys
}

const fn sub_word(word: u32) -> u32 {
    let b = word.to_le_bytes();
    u32::from_le_bytes([sub_byte(b[0]), sub_byte(b[1]), sub_byte(b[2]), sub_byte(b[3])])
}

/// The S-box: the inverse in GF(2^8), then the affine map (FIPS-197, section 5.1.1).
const fn sub_byte(byte: u8) -> u8 {
    // byte^254 is the inverse, and 0 for 0.
    let mut inverse = 1u8;
    let mut power = 0;
    while power < 254 {
        inverse = multiply(inverse, byte);
        power += 1;
    }
    inverse
        ^ inverse.rotate_left(1)
        ^ inverse.rotate_left(2)
        ^ inverse.rotate_left(3)
        ^ inverse.rotate_left(4)
        ^ 0x63
}

const fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    product
}

const fn double(a: u8) -> u8 {
    (a << 1) ^ (0x1b * (a >> 7))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fips_197_appendix_a1() {
        let key = hex::decode("2b7e151628aed2a6abf7158809cf4f3c").unwrap().try_into().unwrap();
        let keys = round_keys(key).map(|k| hex::encode(k.to_le_bytes()));
        assert_eq!(keys[0], "2b7e151628aed2a6abf7158809cf4f3c");
        assert_eq!(keys[1], "a0fafe1788542cb123a339392a6c7605");
        assert_eq!(keys[2], "f2c295f27a96b9435935807a7359f67f");
        assert_eq!(keys[9], "ac7766f319fadc2128d12941575c006e");
        assert_eq!(keys[10], "d014f9a8c9ee2589e13f0cc8b6630ca6");
    }
}
