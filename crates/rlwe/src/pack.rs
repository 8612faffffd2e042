//! Polynomials as bytes: each residue in just its modulus' bits.

use hushtable_ring::{Form, Poly, Ring};

use crate::Error;

/// Bytes that `count` numbers of `bits` bits take.
pub fn packed_bytes(count: usize, bits: u32) -> usize {
    (count * bits as usize).div_ceil(8)
}

/// Appends `values`, each in `bits` bits (1 to 56), low bits first.
pub fn pack(values: &[u64], bits: u32, out: &mut Vec<u8>) {
    out.reserve(packed_bytes(values.len(), bits));
    let (mut held, mut held_bits) = (0u64, 0);
    for &value in values {
        held |= value << held_bits;
        held_bits += bits;
        if held_bits >= u64::BITS {
            out.extend_from_slice(&held.to_le_bytes());
            held_bits -= u64::BITS;
            // The upper bits of `value`, of which there were `bits` at most 56.
            held = value >> (bits - held_bits);
        }
    }
    out.extend_from_slice(&held.to_le_bytes()[..held_bits.div_ceil(8) as usize]);
}

/// Reads `out.len()` numbers of `bits` bits (1 to 56) from `bytes`, which hold just them.
///
/// # Errors
/// [`Error::Bytes`] for another length.
pub fn unpack(what: &'static str, bytes: &[u8], bits: u32, out: &mut [u64]) -> Result<(), Error> {
    let expected = packed_bytes(out.len(), bits);
    if bytes.len() != expected {
        return Err(Error::Bytes { what, expected, found: bytes.len() });
    }
    let mask = u64::MAX >> (64 - bits);
    for (index, value) in out.iter_mut().enumerate() {
        let bit = index * bits as usize;
        let rest = &bytes[bit / 8..];
        let word = rest.first_chunk().copied().unwrap_or_else(|| {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            word
        });
        *value = (u64::from_le_bytes(word) >> (bit % 8)) & mask;
    }
    Ok(())
}

/// Bytes of a polynomial of `ring`, packed.
pub fn poly_bytes(ring: &Ring) -> usize {
    ring.moduli().map(|modulus| packed_bytes(ring.degree(), modulus.bits())).sum()
}

/// Appends a polynomial of `ring`, limb by limb.
pub fn pack_poly<F: Form>(ring: &Ring, poly: &Poly<F>, out: &mut Vec<u8>) {
    for (limb, modulus) in ring.moduli().enumerate() {
        pack(poly.limb(limb), modulus.bits(), out);
    }
}

/// Takes a polynomial of `ring` from the front of `bytes`.
///
/// # Errors
/// [`Error::Bytes`] where there are too few, [`Error::Residue`] for a number that is no residue.
pub fn unpack_poly<F: Form>(
    what: &'static str,
    ring: &Ring,
    bytes: &mut &[u8],
) -> Result<Poly<F>, Error> {
    let mut poly = ring.zero();
    for (limb, modulus) in ring.moduli().enumerate() {
        let expected = packed_bytes(ring.degree(), modulus.bits());
        let Some((own, rest)) = bytes.split_at_checked(expected) else {
            return Err(Error::Bytes { what, expected, found: bytes.len() });
        };
        *bytes = rest;
        let values = poly.limb_mut(limb);
        unpack(what, own, modulus.bits(), values)?;
        if values.iter().any(|&value| value >= modulus.value()) {
            return Err(Error::Residue { what });
        }
    }
    Ok(poly)
}
