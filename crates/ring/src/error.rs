//! What a ring or a modulus cannot be made of.

/// Why a ring was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The degree is not a power of two in range.
    #[error("a ring of degree {degree}: the degree must be a power of two from 8 to 131072")]
    Degree {
        /// What was asked for.
        degree: usize,
    },
    /// The gadget cannot represent the modulus.
    #[error(
        "{digits} digits of {base_bits} bits above {dropped_bits} dropped ones do not cover a modulus \
         of {modulus_bits} bits: take more or wider digits (2 to 50 bits each)"
    )]
    Gadget {
        /// Digits.
        digits: usize,
        /// Bits of each.
        base_bits: u32,
        /// Low bits that no digit holds.
        dropped_bits: u32,
        /// Bits of the modulus that is decomposed.
        modulus_bits: u32,
    },
    /// Too many or no limbs.
    #[error("a ring of {limbs} limbs: 1 to 64 are possible")]
    Limbs {
        /// What was asked for.
        limbs: usize,
    },
    /// The modulus is out of range.
    #[error("{modulus} as a modulus: it must be an odd number of 2 to 51 bits")]
    Modulus {
        /// What was asked for.
        modulus: u64,
    },
    /// The modulus is composite, or has no root of unity of the order that the degree asks for.
    #[error("{modulus} has no NTT of degree {degree}: it must be a prime that is 1 modulo {}", 2 * degree)]
    NoRoot {
        /// The modulus.
        modulus: u64,
        /// The ring's degree.
        degree: usize,
    },
    /// A modulus stands twice in one ring.
    #[error("the modulus {modulus} stands twice: limbs must be different primes")]
    Repeated {
        /// The modulus.
        modulus: u64,
    },
}
