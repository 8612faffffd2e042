//! Additive shares of numbers modulo 2^k or a prime, and their bytes.
//!
//! x is held as r and x − r, and each of the two alone is uniform where r is. Modulo 2^k, numbers that are
//! given need only be right modulo 2^k, and those that come back are below it.

use zeroize::Zeroizing;

/// 2^`bits` − 1, of 1 to 64 bits.
pub fn mask(bits: u32) -> u64 {
    assert!((1..=64).contains(&bits), "1 to 64 bits, not {bits}");
    u64::MAX >> (64 - bits)
}

/// Uniform numbers of `bits` bits, from a seed that is used for nothing else with this `stream`.
pub fn random(seed: &[u8; 32], stream: u64, bits: u32, out: &mut [u64]) {
    let mask = mask(bits);
    let mut hasher = blake3::Hasher::new_derive_key("hushtable share v1");
    let mut stream = hasher.update(seed).update(&stream.to_le_bytes()).finalize_xof();
    let mut bytes = Zeroizing::new([0; 8192]);
    for out in out.chunks_mut(bytes.len() / 8) {
        let bytes = &mut bytes[..8 * out.len()];
        stream.fill(bytes);
        let (words, _) = bytes.as_chunks();
        for (out, word) in out.iter_mut().zip(words) {
            *out = u64::from_le_bytes(*word) & mask;
        }
    }
    zeroize::Zeroize::zeroize(&mut stream);
    zeroize::Zeroize::zeroize(&mut hasher);
}

/// The other share of each number: x − r modulo 2^`bits`.
pub fn split(bits: u32, values: &[u64], share: &[u64]) -> Vec<u64> {
    zip(values, share, mask(bits), u64::wrapping_sub)
}

/// The number of each pair of shares.
pub fn join(bits: u32, share: &[u64], other: &[u64]) -> Vec<u64> {
    zip(share, other, mask(bits), u64::wrapping_add)
}

fn zip(x: &[u64], y: &[u64], mask: u64, of: impl Fn(u64, u64) -> u64) -> Vec<u64> {
    assert_eq!(x.len(), y.len(), "shares of the same numbers");
    x.iter().zip(y).map(|(x, y)| of(*x, *y) & mask).collect()
}

/// x += y modulo 2^`bits`.
pub fn add_assign(bits: u32, x: &mut [u64], y: &[u64]) {
    assert_eq!(x.len(), y.len(), "shares of as many numbers");
    let mask = mask(bits);
    x.iter_mut().zip(y).for_each(|(x, y)| *x = x.wrapping_add(*y) & mask);
}

/// x −= y modulo 2^`bits`.
pub fn sub_assign(bits: u32, x: &mut [u64], y: &[u64]) {
    assert_eq!(x.len(), y.len(), "shares of as many numbers");
    let mask = mask(bits);
    x.iter_mut().zip(y).for_each(|(x, y)| *x = x.wrapping_sub(*y) & mask);
}

/// Packed numbers that are none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// Another count of bytes than there must be.
    #[error(
        "{count} numbers of {bits} bits take {expected} bytes, not {found}: \
         the message was cut, or is of another network"
    )]
    Length {
        /// Numbers.
        count: usize,
        /// Bits of each.
        bits: u32,
        /// Bytes that there must be.
        expected: usize,
        /// Bytes that there were.
        found: usize,
    },
    /// Bits after the last number.
    #[error(
        "there are bits after the last of {count} numbers of {bits} bits: the message is broken"
    )]
    Padding {
        /// Numbers.
        count: usize,
        /// Bits of each.
        bits: u32,
    },
}

/// Bytes of so many numbers, one after the other without gaps.
pub fn packed_bytes(bits: u32, count: usize) -> usize {
    // Halves are apart so that no count overflows.
    count / 8 * bits as usize + (count % 8 * bits as usize).div_ceil(8)
}

/// Packs the lowest `bits` bits of each number, the first in the lowest bits of the first byte; the last
/// byte is filled up with zeros.
pub fn pack(bits: u32, values: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(packed_bytes(bits, values.len()) + 8);
    let mask = mask(bits);
    let (mut held, mut fill) = (0_u64, 0);
    for value in values {
        let value = value & mask;
        held |= value << fill;
        fill += bits;
        if fill >= 64 {
            bytes.extend_from_slice(&held.to_le_bytes());
            fill -= 64;
            // Where all of it went, nothing is left: a shift by 64 in two steps.
            held = value >> 1 >> (bits - 1 - fill);
        }
    }
    bytes.extend_from_slice(&held.to_le_bytes()[..fill.div_ceil(8) as usize]);
    bytes
}

/// Undoes [`pack`].
///
/// # Errors
/// [`PackError`] for another length, or bits after the last number.
pub fn unpack(bits: u32, count: usize, bytes: &[u8]) -> Result<Vec<u64>, PackError> {
    let expected = packed_bytes(bits, count);
    if bytes.len() != expected {
        return Err(PackError::Length { count, bits, expected, found: bytes.len() });
    }
    let mask = mask(bits);
    let mut values = Vec::with_capacity(count);
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let mut words =
        words.iter().chain(std::iter::once(&last)).map(|word| u64::from_le_bytes(*word));
    let (mut held, mut fill) = (0_u64, 0);
    for _ in 0..count {
        let mut value = held;
        if fill < bits {
            let word = words.next().unwrap_or(0);
            value |= word << fill;
            // What of the word is left after this number.
            let used = bits - fill;
            held = word >> 1 >> (used - 1);
            fill = 64 - used;
        } else {
            held = held >> 1 >> (bits - 1);
            fill -= bits;
        }
        values.push(value & mask);
    }
    match held == 0 && words.all(|word| word == 0) {
        true => Ok(values),
        false => Err(PackError::Padding { count, bits }),
    }
}

/// Shares modulo a prime below 2^63: what the circuits that this crate compares itself with take.
pub mod prime {
    use zeroize::Zeroizing;

    /// Uniform numbers below `prime`, from a seed that is used for nothing else with this `stream`.
    pub fn random(seed: &[u8; 32], stream: u64, prime: u64, out: &mut [u64]) {
        check(prime);
        let mut hasher = blake3::Hasher::new_derive_key("hushtable prime share v1");
        let mut stream = hasher.update(seed).update(&stream.to_le_bytes()).finalize_xof();
        for out in out {
            // 128 bits more or less even: no number is likelier than another by more than 2^−64.
            let mut wide = Zeroizing::new([0; 16]);
            stream.fill(&mut *wide);
            *out = (u128::from_le_bytes(*wide) % u128::from(prime)) as u64;
        }
        zeroize::Zeroize::zeroize(&mut stream);
        zeroize::Zeroize::zeroize(&mut hasher);
    }

    /// The other share of each number: x − r. All below `prime`.
    pub fn split(prime: u64, values: &[u64], share: &[u64]) -> Vec<u64> {
        check(prime);
        assert_eq!(values.len(), share.len(), "a share of each number");
        values.iter().zip(share).map(|(x, r)| sum(prime, *x, prime - r)).collect()
    }

    /// The number of each pair of shares, all below `prime`.
    pub fn join(prime: u64, share: &[u64], other: &[u64]) -> Vec<u64> {
        check(prime);
        assert_eq!(share.len(), other.len(), "shares of the same numbers");
        share.iter().zip(other).map(|(x, y)| sum(prime, *x, *y)).collect()
    }

    /// x + y, where it is at most 2 · `prime` − 1, without a branch.
    fn sum(prime: u64, x: u64, y: u64) -> u64 {
        let less = (x + y).wrapping_sub(prime);
        less.wrapping_add(prime & (less >> 63).wrapping_neg())
    }

    fn check(prime: u64) {
        assert!((2..1 << 63).contains(&prime), "a prime below 2^63, not {prime}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bit by bit: what `pack` is held to.
    fn pack_reference(bits: u32, values: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; packed_bytes(bits, values.len())];
        for (i, value) in values.iter().enumerate() {
            for bit in 0..bits as usize {
                let place = i * bits as usize + bit;
                bytes[place / 8] |= ((value >> bit & 1) as u8) << (place % 8);
            }
        }
        bytes
    }

    proptest! {
        #[test]
        fn packed_numbers_come_back(
            bits in 1..=64_u32,
            values in prop::collection::vec(any::<u64>(), 0..200),
        ) {
            let bytes = pack(bits, &values);
            prop_assert_eq!(&bytes, &pack_reference(bits, &values));
            let masked: Vec<u64> = values.iter().map(|value| value & mask(bits)).collect();
            prop_assert_eq!(unpack(bits, values.len(), &bytes), Ok(masked));
            let longer = [bytes.as_slice(), &[0]].concat();
            let is_refused =
                matches!(unpack(bits, values.len(), &longer), Err(PackError::Length { .. }));
            prop_assert!(is_refused);
            if !(bits as usize * values.len()).is_multiple_of(8) {
                let mut padded = bytes;
                *padded.last_mut().unwrap() |= 0x80;
                let is_refused =
                    matches!(unpack(bits, values.len(), &padded), Err(PackError::Padding { .. }));
                prop_assert!(is_refused);
            }
        }

        #[test]
        fn shares_join_to_their_number(
            bits in 1..=64_u32,
            seed: [u8; 32],
            values in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let mut share = vec![0; values.len()];
            random(&seed, 3, bits, &mut share);
            let other = split(bits, &values, &share);
            prop_assert!(share.iter().chain(&other).all(|x| *x <= mask(bits)));
            let masked: Vec<u64> = values.iter().map(|value| value & mask(bits)).collect();
            prop_assert_eq!(&join(bits, &share, &other), &masked);
            let mut sum = share.clone();
            add_assign(bits, &mut sum, &other);
            prop_assert_eq!(&sum, &masked);
            sub_assign(bits, &mut sum, &other);
            prop_assert_eq!(sum, share);
        }

        #[test]
        fn shares_modulo_a_prime_join_to_their_number(
            seed: [u8; 32],
            prime in prop::sample::select(vec![2, 3, 2_061_584_302_081, (1_u64 << 61) - 1]),
            values in prop::collection::vec(any::<u64>(), 0..50),
        ) {
            let values: Vec<u64> = values.iter().map(|value| value % prime).collect();
            let mut share = vec![0; values.len()];
            prime::random(&seed, 0, prime, &mut share);
            let other = prime::split(prime, &values, &share);
            prop_assert!(share.iter().chain(&other).all(|x| *x < prime));
            prop_assert_eq!(prime::join(prime, &share, &other), values);
        }
    }

    #[test]
    fn streams_of_a_seed_differ_and_are_uniform_in_their_top_bit() {
        let mut draws = [vec![0; 4096], vec![0; 4096]];
        random(&[7; 32], 0, 37, &mut draws[0]);
        random(&[7; 32], 1, 37, &mut draws[1]);
        assert!(draws[0].iter().zip(&draws[1]).all(|(x, y)| x != y));
        let ones: u64 = draws.iter().flatten().map(|x| x >> 36).sum();
        // Twelve deviations of 45.
        assert!((3556..4636).contains(&ones), "{ones}");
    }
}
