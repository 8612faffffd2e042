//! Signed digits of a residue polynomial, low bits dropped.

use crate::Error;

/// A number x of −Q/2..Q/2 as Σ d_j · 2^(dropped + j · base) + rest: ℓ signed digits d_j of
/// `base_bits` bits (base z = 2^base_bits), and a rest of at most 2^(dropped − 1) in absolute value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GadgetSpec {
    /// ℓ, the number of digits: 1 to 32.
    pub digits: usize,
    /// log2 of the base z: 2 to 50.
    pub base_bits: u32,
    /// Low bits that no digit holds.
    pub dropped_bits: u32,
}

/// A [`GadgetSpec`] that covers the modulus it was checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gadget {
    spec: GadgetSpec,
    /// 2^(dropped − 1) + Σ z/2 · 2^(dropped + j · base) over all digits but the last: makes them
    /// non-negative, and leaves the rest to the last.
    offset: u128,
}

impl Gadget {
    /// Checks that digits and dropped bits cover a modulus of `modulus_bits` bits (at most 110).
    ///
    /// # Errors
    /// [`Error::Gadget`].
    pub fn new(spec: GadgetSpec, modulus_bits: u32) -> Result<Self, Error> {
        let GadgetSpec { digits, base_bits, dropped_bits } = spec;
        let refused = Err(Error::Gadget { digits, base_bits, dropped_bits, modulus_bits });
        if !(1..=32).contains(&digits) || !(2..=50).contains(&base_bits) || dropped_bits > 100 {
            return refused;
        }
        let covered = digits as u32 * base_bits + dropped_bits;
        // The last digit must have something to hold.
        if covered < modulus_bits || covered - base_bits >= modulus_bits || modulus_bits > 110 {
            return refused;
        }
        let half = |bits: u32| (1u128 << bits) >> 1;
        let digits = 0..digits as u32 - 1;
        let offset = half(dropped_bits)
            + digits.map(|j| half(base_bits) << (dropped_bits + j * base_bits)).sum::<u128>();
        Ok(Self { spec, offset })
    }

    /// ℓ.
    pub fn digits(self) -> usize {
        self.spec.digits
    }

    /// log2 z.
    pub fn base_bits(self) -> u32 {
        self.spec.base_bits
    }

    /// Bits that are dropped.
    pub fn dropped_bits(self) -> u32 {
        self.spec.dropped_bits
    }

    /// log2 of what digit `index` counts.
    pub fn weight_bits(self, index: usize) -> u32 {
        self.spec.dropped_bits + index as u32 * self.spec.base_bits
    }

    /// What is added to a number before its digits are cut: all but the last are then non-negative,
    /// half a base above what they stand for.
    pub fn offset(self) -> u128 {
        self.offset
    }

    /// Digit `index` of `x`, a number of −Q/2..Q/2; in constant time.
    #[inline(always)]
    pub fn digit(self, x: i128, index: usize) -> i64 {
        let shifted = x.wrapping_add(self.offset as i128) >> self.weight_bits(index);
        if index + 1 == self.spec.digits {
            return shifted as i64;
        }
        let digit = shifted as u64 & ((1 << self.spec.base_bits) - 1);
        digit as i64 - (1i64 << (self.spec.base_bits - 1))
    }
}
