//! BFV: plaintexts modulo P = 2^plain_bits at the top of the modulus, and what a retrieval protocol
//! computes with it.
//!
//! [`ParameterSpec`] is a set as written down, [`Parameters`] one whose security was checked; an
//! [`Evaluator`] computes on ciphertexts with public [`SwitchKey`]s and [`Selector`]s (RGSW), and
//! [`noise`] says how far from failing the result is. [`scheme`] is what a protocol needs of all
//! this, with a stand-in that encrypts nothing.

mod evaluator;
pub mod noise;
mod params;
pub mod response;
pub mod scheme;
mod switch;

pub use evaluator::{Evaluator, Selector, Spare, Substitution};
pub use params::{ParameterSpec, Parameters};
pub use switch::SwitchKey;

use hushtable_ring::{Coefficients, NoiseSource, Poly};

use crate::{Ciphertext, Error, SecretKey};

/// Encrypts `plain` (N coefficients modulo P, or fewer) modulo Q, so that
/// [`drop_limbs`](Evaluator::drop_limbs) leaves Δ · plain modulo q
/// (Brakerski, CRYPTO 2012; Fan and Vercauteren, 2012).
///
/// # Errors
/// [`Error::Entropy`].
pub fn encrypt(
    params: &Parameters,
    secret: &SecretKey,
    plain: &[u64],
) -> Result<Ciphertext, Error> {
    let mut source = NoiseSource::from_os()?;
    let (ring, seed, delta) = (params.ring(), source.seed(), params.delta());
    let scale = params.query_residues(|limb| delta[limb], 0);
    let mut message: Poly<Coefficients> = ring.zero();
    for (limb, modulus) in ring.moduli().enumerate() {
        for (out, &value) in message.limb_mut(limb).iter_mut().zip(plain) {
            // Plaintexts have up to 32 bits, moduli may have fewer.
            *out = modulus.mul(modulus.reduce_u128(value.into()), scale[limb]);
        }
    }
    Ok(secret.encrypt(ring, &seed, 0, &ring.forward(message), &mut source))
}

/// Decrypts a ciphertext modulo q to N coefficients modulo P.
pub fn decrypt(params: &Parameters, secret: &SecretKey, ciphertext: &Ciphertext) -> Vec<u64> {
    let ring = params.answer_ring();
    let phase = secret.phase(ring, ciphertext);
    let product = ring.crt().product().expect("checked with the gadget");
    let bits = params.plain_bits();
    let read = |index: usize| {
        let value = ring.crt().compose_signed(|limb| phase.limb(limb)[index]);
        let value = value.rem_euclid(product as i128) as u128;
        round_ratio(value, product, bits) & ((1 << bits) - 1)
    };
    (0..params.degree()).map(read).collect()
}

/// round(value · 2^bits / modulus), for value < modulus < 2^110 and bits ≤ 50.
pub(crate) fn round_ratio(value: u128, modulus: u128, bits: u32) -> u64 {
    // In steps of 16 bits: each leaves a remainder below the modulus, so nothing overflows.
    let (mut quotient, mut rest, mut left) = (0u128, value, bits);
    while left > 0 {
        let step = left.min(16);
        rest <<= step;
        quotient = (quotient << step) + rest / modulus;
        rest %= modulus;
        left -= step;
    }
    (quotient + u128::from(2 * rest >= modulus)) as u64
}
