//! One query: both dimensions in one ciphertext.

use std::hint::black_box;

use hushtable_rlwe::bfv::{Parameters, Spare};
use hushtable_rlwe::pack::{pack_poly, unpack_poly};
use hushtable_rlwe::ring::{Coefficients, NoiseSource, Poly, Ring, Seed};
use hushtable_rlwe::{Ciphertext, SecretKey};

use super::geometry::{HEADER_BYTES, Place};
use super::keys::{Evaluated, other_parameters};
use super::{Error, Geometry};

/// A query that was read from the wire.
#[derive(Clone)]
pub struct Query {
    seed: Seed,
    /// The body modulo q.
    body: Evaluated,
}

impl Query {
    /// Asks for the item at `place`, on the wire: format, set, levels, a zero byte, the mask's seed,
    /// and the body, rounded to the answer's limbs.
    ///
    /// Coefficient m is what leaf m of the expansion will hold, divided by 2^levels: Δ at the wanted
    /// row, and for each selector that is set its digits' weights. Time does not depend on the place.
    pub(crate) fn make(
        geometry: &Geometry,
        secret: &SecretKey,
        place: Place,
        source: &mut NoiseSource,
    ) -> Vec<u8> {
        let params: &Parameters = geometry.params();
        let ring = params.ring();
        let mut message: Poly<Coefficients> = ring.zero();
        let delta = params.delta();
        let delta = params.query_residues(|limb| delta[limb], geometry.levels());
        for row in 0..geometry.rows() {
            add_masked(ring, &mut message, row, &delta, is_equal(row as u64, place.row as u64));
        }
        let gadget = params.selector();
        let mut leaf = geometry.rows();
        for game in 0..geometry.games() {
            // Opaque to the compiler, which else branches on the bit.
            let bit = black_box(place.column >> game & 1).wrapping_neg();
            for digit in 0..gadget.digits() {
                let weight = 1u128 << gadget.weight_bits(digit);
                let weight = params.query_residues(
                    |limb| params.answer_ring().modulus(limb).reduce_u128(weight),
                    geometry.levels(),
                );
                add_masked(ring, &mut message, leaf, &weight, bit);
                leaf += 1;
            }
        }
        let seed = source.seed();
        let Ciphertext { mut body, .. } =
            secret.encrypt(ring, &seed, 0, &ring.forward(message), source);
        for rings in params.rings().windows(2) {
            body = rings[0].drop_last_limb(&body);
        }
        let mut bytes = Vec::with_capacity(geometry.query_bytes());
        bytes.extend([FORMAT, geometry.set().id(), geometry.levels() as u8, 0]);
        bytes.extend(seed);
        pack_poly(params.answer_ring(), &body, &mut bytes);
        bytes
    }

    /// Reads a query for tables of this geometry.
    ///
    /// # Errors
    /// [`Error::QueryBytes`] for another length, [`Error::QueryParameters`] for another set or depth;
    /// [`Error::Residue`].
    pub fn parse(geometry: &Geometry, bytes: &[u8]) -> Result<Self, Error> {
        let expected = geometry.query_bytes();
        if bytes.len() != expected {
            return Err(Error::QueryBytes { expected, found: bytes.len() });
        }
        let (header, mut body) = bytes.split_at(HEADER_BYTES);
        if let Some([expected, found]) = other_parameters(geometry, FORMAT, header) {
            return Err(Error::QueryParameters { expected, found });
        }
        let seed = header[4..].try_into().expect("32 bytes");
        let ring = geometry.params().answer_ring();
        let body = unpack_poly("query", ring, &mut body).map_err(Error::of_query)?;
        Ok(Self { seed, body })
    }

    /// The bytes that it was read from.
    pub fn to_bytes(&self, geometry: &Geometry) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(geometry.query_bytes());
        bytes.extend([FORMAT, geometry.set().id(), geometry.levels() as u8, 0]);
        bytes.extend(self.seed);
        pack_poly(geometry.params().answer_ring(), &self.body, &mut bytes);
        bytes
    }

    /// The ciphertext modulo Q: the body times the dropped limbs, which are zero in it then.
    ///
    /// It is taken from `spare`, where its memory goes when it is used up.
    pub(crate) fn ciphertext(&self, params: &Parameters, spare: &Spare) -> Ciphertext {
        let ring = params.ring();
        let mut out = spare.take(ring);
        ring.uniform_into(&self.seed, 0, &mut out.mask);
        let scale = params.query_residues(|_| 1, 0);
        for (limb, &scale) in scale.iter().enumerate() {
            let to = out.body.limb_mut(limb);
            if limb < params.answer_ring().limbs() {
                to.copy_from_slice(self.body.limb(limb));
                ring.kernel().scale_assign(ring.modulus(limb), to, scale);
            } else {
                to.fill(0);
            }
        }
        out
    }
}

/// Adds `residues & mask` to one coefficient.
fn add_masked(
    ring: &Ring,
    message: &mut Poly<Coefficients>,
    index: usize,
    residues: &[u64],
    mask: u64,
) {
    for (limb, modulus) in ring.moduli().enumerate() {
        let value = &mut message.limb_mut(limb)[index];
        *value = modulus.add(*value, residues[limb] & mask);
    }
}

/// All ones where x = y, zero elsewhere, without a branch.
pub(crate) fn is_equal(x: u64, y: u64) -> u64 {
    let difference = x ^ y;
    let is_different = (difference | difference.wrapping_neg()) >> 63;
    black_box(is_different).wrapping_sub(1)
}

const FORMAT: u8 = 1;
