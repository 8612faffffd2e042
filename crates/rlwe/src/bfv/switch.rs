//! Keys that carry a ciphertext from one secret to another.

use hushtable_ring::{Automorphism, Evaluations, NoiseSource, Poly, Seed};

use super::Parameters;
use crate::pack::{pack_poly, poly_bytes, unpack_poly};
use crate::{Ciphertext, Error, SecretKey};

/// Encryptions of 2^w_j · s' under s, one for each digit j of the gadget (w_j its weight): what
/// turns digits of a mask under s' into a ciphertext under s.
pub struct SwitchKey {
    rows: Vec<Ciphertext>,
}

impl SwitchKey {
    /// Bytes on the wire, the seed of the masks not counted.
    pub fn bytes(params: &Parameters) -> usize {
        params.key_switch().digits() * poly_bytes(params.ring())
    }

    /// A key from `from` to `secret`; its masks are the polynomials `first_index..` of `seed`.
    pub fn generate(
        params: &Parameters,
        secret: &SecretKey,
        from: &Poly<Evaluations>,
        seed: &Seed,
        first_index: u64,
        source: &mut NoiseSource,
    ) -> Self {
        let (ring, gadget) = (params.ring(), params.key_switch());
        let row = |digit| {
            let mut message = from.clone();
            let weight = 1u128 << gadget.weight_bits(digit);
            let weights: Vec<_> = ring.moduli().map(|m| m.reduce_u128(weight)).collect();
            ring.scale_assign(&mut message, &weights);
            secret.encrypt(ring, seed, first_index + digit as u64, &message, source)
        };
        Self { rows: (0..gadget.digits()).map(row).collect() }
    }

    /// The key of the substitution X → X^r: from s(X^r) to s.
    pub fn of_automorphism(
        params: &Parameters,
        secret: &SecretKey,
        map: &Automorphism,
        seed: &Seed,
        first_index: u64,
        source: &mut NoiseSource,
    ) -> Self {
        let from = params.ring().automorphism(map, secret.poly());
        Self::generate(params, secret, &from, seed, first_index, source)
    }

    /// The key from s² to s.
    pub fn of_square(
        params: &Parameters,
        secret: &SecretKey,
        seed: &Seed,
        first_index: u64,
        source: &mut NoiseSource,
    ) -> Self {
        let mut from = secret.poly().clone();
        params.ring().mul_assign(&mut from, secret.poly());
        Self::generate(params, secret, &from, seed, first_index, source)
    }

    /// One ciphertext for each digit, the lowest first.
    pub fn rows(&self) -> &[Ciphertext] {
        &self.rows
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.rows.iter().map(Ciphertext::memory_bytes).sum::<usize>()
    }

    /// Appends the bodies; the masks follow from the seed.
    pub fn pack(&self, params: &Parameters, out: &mut Vec<u8>) {
        for row in &self.rows {
            pack_poly(params.ring(), &row.body, out);
        }
    }

    /// Takes a key from the front of `bytes`.
    ///
    /// # Errors
    /// [`Error::Bytes`], [`Error::Residue`].
    pub fn unpack(
        params: &Parameters,
        seed: &Seed,
        first_index: u64,
        bytes: &mut &[u8],
    ) -> Result<Self, Error> {
        let ring = params.ring();
        let row = |digit| {
            let body = unpack_poly("keys", ring, bytes)?;
            Ok(Ciphertext { mask: ring.uniform(seed, first_index + digit as u64), body })
        };
        Ok(Self { rows: (0..params.key_switch().digits()).map(row).collect::<Result<_, Error>>()? })
    }
}
