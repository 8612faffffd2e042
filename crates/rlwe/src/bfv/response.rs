//! A ciphertext made small for its way back.

use hushtable_ring::{Modulus, NttTable};

use super::Parameters;
use super::round_ratio;
use crate::pack::{pack, packed_bytes, unpack};
use crate::{Ciphertext, Error, SecretKey};

/// Bytes of a response ciphertext on the wire.
pub fn response_bytes(params: &Parameters) -> usize {
    let spec = params.spec();
    packed_bytes(spec.degree, spec.response_mask_bits)
        + packed_bytes(spec.degree, spec.response_body_bits)
}

/// Switches a ciphertext modulo q to moduli 2^mask_bits and 2^body_bits, and appends its bytes.
///
/// Rounding the mask adds noise that the secret multiplies, rounding the body does not: the body
/// gets by with fewer bits.
pub fn compress(params: &Parameters, ciphertext: &Ciphertext, out: &mut Vec<u8>) {
    let (ring, spec) = (params.answer_ring(), params.spec());
    let product = ring.crt().product().expect("checked with the gadget");
    let sides =
        [(&ciphertext.mask, spec.response_mask_bits), (&ciphertext.body, spec.response_body_bits)];
    for (poly, bits) in sides {
        let poly = ring.inverse(poly.clone());
        let read = |index: usize| {
            if ring.limbs() == 1 {
                return round_ratio(poly.limb(0)[index].into(), product, bits) & mask(bits);
            }
            let value = ring.crt().compose_signed(|limb| poly.limb(limb)[index]);
            let value = value.rem_euclid(product as i128) as u128;
            round_ratio(value, product, bits) & mask(bits)
        };
        let values: Vec<u64> = (0..params.degree()).map(read).collect();
        pack(&values, bits, out);
    }
}

/// Opens what [`compress`] made: N coefficients modulo P.
///
/// # Errors
/// [`Error::Bytes`] for another length than [`response_bytes`].
pub fn open(params: &Parameters, secret: &SecretKey, bytes: &[u8]) -> Result<Vec<u64>, Error> {
    let (mask_bits, plain_bits) = (params.spec().response_mask_bits, params.plain_bits());
    // The top plain_bits, rounded.
    let half = 1 << (mask_bits - plain_bits - 1);
    let read = |phase: u64| ((phase + half) >> (mask_bits - plain_bits)) & mask(plain_bits);
    Ok(phase(params, secret, bytes)?.into_iter().map(read).collect())
}

/// b + a · s of what [`compress`] made, modulo 2^mask_bits: N numbers, each a coefficient times
/// 2^(mask_bits − plain_bits), and its noise.
///
/// # Errors
/// [`Error::Bytes`] for another length than [`response_bytes`].
pub fn phase(params: &Parameters, secret: &SecretKey, bytes: &[u8]) -> Result<Vec<u64>, Error> {
    let (degree, spec) = (params.degree(), params.spec());
    let mask_bytes = packed_bytes(degree, spec.response_mask_bits);
    let expected = response_bytes(params);
    if bytes.len() != expected {
        return Err(Error::Bytes { what: "response", expected, found: bytes.len() });
    }
    let (mut masks, mut bodies) = (vec![0; degree], vec![0; degree]);
    unpack("response", &bytes[..mask_bytes], spec.response_mask_bits, &mut masks)?;
    unpack("response", &bytes[mask_bytes..], spec.response_body_bits, &mut bodies)?;
    let products = multiply_by_secret(params, secret, &masks)?;
    let mask_bits = spec.response_mask_bits;
    let read = |(&body, product): (&u64, u64)| {
        // Both at 2^mask_bits, modulo that.
        let body = match mask_bits.checked_sub(spec.response_body_bits) {
            Some(shift) => body << shift,
            None => body >> (spec.response_body_bits - mask_bits),
        };
        body.wrapping_add(product) & mask(mask_bits)
    };
    Ok(bodies.iter().zip(products).map(read).collect())
}

/// `masks` · s over the integers, as two's complement numbers.
///
/// Products are below N · 2^50 < 2^67: too long for one prime, so two halves of 25 bits are
/// multiplied apart and added up.
fn multiply_by_secret(
    params: &Parameters,
    secret: &SecretKey,
    masks: &[u64],
) -> Result<Vec<u64>, Error> {
    let ring = params.ring();
    // Parts of this many bits times a ternary secret stay below half of a prime of this length; of
    // one bit, below half of any prime: that is at least 2N + 1.
    let half_bits = (ring.modulus(0).bits() - 2 - params.degree().trailing_zeros()).max(1);
    let mut out = vec![0u64; masks.len()];
    let halves = params.spec().response_mask_bits.div_ceil(half_bits);
    for half in 0..halves {
        let mut poly = ring.prefix(1)?.zero();
        for (value, &number) in poly.limb_mut(0).iter_mut().zip(masks) {
            *value = (number >> (half * half_bits)) & mask(half_bits);
        }
        let product = multiply(ring.table(0), ring, poly, secret);
        for (out, value) in out.iter_mut().zip(product) {
            *out = out.wrapping_add((value << (half * half_bits)) as u64);
        }
    }
    Ok(out)
}

fn multiply(
    table: &NttTable,
    ring: &hushtable_ring::Ring,
    poly: hushtable_ring::Poly<hushtable_ring::Coefficients>,
    secret: &SecretKey,
) -> Vec<i64> {
    let modulus: Modulus = table.modulus();
    let one = ring.prefix(1).expect("a ring has a limb");
    let mut poly = one.forward(poly);
    one.mul_assign(&mut poly, secret.poly());
    let product = one.inverse(poly);
    product.limb(0).iter().map(|&value| modulus.to_signed(value)).collect()
}

fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}
