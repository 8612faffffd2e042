//! What parameters and ciphertexts cannot be.

use hushtable_ring::EntropyError;

/// Why parameters or bytes were refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Packed polynomials of another length.
    #[error("{what}: {found} bytes, expected {expected}")]
    Bytes {
        /// What was being read.
        what: &'static str,
        /// Bytes there should be.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// There is no such set for linear layers.
    #[error(
        "{name:?} is no set for linear layers: there are linear_4096 and linear_8192, and with proofs of uploads \
         linear_8192_verified and linear_8192_4_verified"
    )]
    UnknownSet {
        /// What was asked for.
        name: String,
    },
    /// Numbers of a length that a set for linear layers does not carry.
    #[error("the set {name} does not carry numbers of {bits} bits: take 16 to 64, or linear_8192")]
    LinearBits {
        /// The set.
        name: String,
        /// Bits asked for.
        bits: u32,
    },
    /// Uploads that are not proven to be encryptions.
    #[error("row {row} of the proof that uploads are encryptions of numbers does not hold: {what}")]
    Unproven {
        /// Which row.
        row: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A proof that would show something.
    #[error("no mask hides the proof's answer, which happens once in 2^24: make it again")]
    NoMask,
    /// The operating system gave no randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// How many limbs are left for answers.
    #[error("{answer_limbs} of {limbs} limbs for answers: 1 to all of them are possible")]
    AnswerLimbs {
        /// Limbs asked for.
        answer_limbs: usize,
        /// Limbs there are.
        limbs: usize,
    },
    /// The plaintext modulus.
    #[error(
        "plaintexts of {plain_bits} bits a coefficient: 1 to 32 are possible, and less than the modulus"
    )]
    PlainBits {
        /// Bits asked for.
        plain_bits: u32,
    },
    /// The bits of a response's coefficients.
    #[error(
        "responses of {mask_bits} and {body_bits} bits a coefficient: {} to 50 are possible",
        plain_bits + 1
    )]
    ResponseBits {
        /// Bits of the mask's coefficients.
        mask_bits: u32,
        /// Bits of the body's coefficients.
        body_bits: u32,
        /// Bits of a plaintext's.
        plain_bits: u32,
    },
    /// A packed number at or above its modulus.
    #[error(
        "{what}: a number at or above its modulus: the bytes are damaged, or of other parameters"
    )]
    Residue {
        /// What was being read.
        what: &'static str,
    },
    /// The ring.
    #[error(transparent)]
    Ring(#[from] hushtable_ring::Error),
    /// Less than 128 bits of security under a name that does not say so.
    #[error(
        "the set {name:?} has log2 Q = {modulus_log2:.2} at N = {degree}; 128 bits of security with \
         {secret} allow {modulus_log2_max} ({table}): take smaller primes, or a name that ends in \
         _paper"
    )]
    Security {
        /// The set's name.
        name: String,
        /// What it is published under.
        secret: &'static str,
        /// What says how much is allowed.
        table: &'static str,
        /// N.
        degree: usize,
        /// log2 of the largest published modulus.
        modulus_log2: f64,
        /// The most the table allows; 0 where it has no entry.
        modulus_log2_max: f64,
    },
}
