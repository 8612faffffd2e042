//! Numbers and polynomials as bytes.

use crate::fixtures;

use fixtures::parameters;
use hushtable_rlwe::Error;
use hushtable_rlwe::bfv::ParameterSpec;
use hushtable_rlwe::pack::{pack, pack_poly, packed_bytes, poly_bytes, unpack, unpack_poly};
use hushtable_rlwe::ring::{Coefficients, Evaluations, Poly};
use proptest::collection::vec;
use proptest::prelude::*;

proptest! {
    #[test]
    fn numbers_of_any_length_come_back(
        bits in 1u32..=56,
        words in vec(any::<u64>(), 0..150),
        before in vec(any::<u8>(), 0..3),
    ) {
        let values: Vec<u64> = words.iter().map(|word| word >> (64 - bits)).collect();
        let mut bytes = before.clone();
        pack(&values, bits, &mut bytes);
        let (kept, packed) = bytes.split_at(before.len());
        prop_assert_eq!(kept, &before[..]);
        prop_assert_eq!(packed.len(), packed_bytes(values.len(), bits));
        // By definition: bit k of number i is bit i · bits + k of the bytes, the rest is zero.
        for at in 0..8 * packed.len() {
            let found = packed[at / 8] >> (at % 8) & 1;
            let value = values.get(at / bits as usize).copied().unwrap_or(0);
            prop_assert_eq!(u64::from(found), value >> (at % bits as usize) & 1);
        }
        let mut out = vec![u64::MAX; values.len()];
        unpack("numbers", packed, bits, &mut out).unwrap();
        prop_assert_eq!(out, values);
    }

    #[test]
    fn another_number_of_bytes_is_refused(bits in 1u32..=56, count in 0usize..60, len in 0usize..500) {
        let expected = packed_bytes(count, bits);
        let mut out = vec![0; count];
        match unpack("numbers", &vec![0xff; len], bits, &mut out) {
            Ok(()) => {
                prop_assert_eq!(len, expected);
                prop_assert!(out.iter().all(|&value| value == u64::MAX >> (64 - bits)));
            }
            Err(Error::Bytes { what, expected: e, found }) => {
                prop_assert_ne!(len, expected);
                prop_assert_eq!((what, e, found), ("numbers", expected, len));
                prop_assert!(out.iter().all(|&value| value == 0));
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}

#[test]
fn polynomials_come_back_and_leave_the_rest() {
    for spec in [ParameterSpec::n256_test(), ParameterSpec::ive_paper()] {
        let params = parameters(spec);
        let ring = params.ring();
        // The largest residues, the smallest, and random ones.
        let mut poly: Poly<Evaluations> = ring.uniform(&[4; 32], 0);
        for (limb, modulus) in ring.moduli().enumerate() {
            poly.limb_mut(limb)[..2].copy_from_slice(&[modulus.value() - 1, 0]);
        }
        let mut bytes = Vec::new();
        pack_poly(ring, &poly, &mut bytes);
        assert_eq!(bytes.len(), poly_bytes(ring));
        let bits: u32 = ring.moduli().map(|modulus| modulus.bits()).sum();
        assert_eq!(bytes.len(), params.degree() * bits as usize / 8);
        bytes.extend([1, 2]);
        let mut rest = &bytes[..];
        let read: Poly<Evaluations> = unpack_poly("poly", ring, &mut rest).unwrap();
        assert_eq!(read.values(), poly.values());
        assert_eq!(rest, [1, 2]);
    }
}

#[test]
fn damaged_polynomials_are_refused() {
    let params = parameters(ParameterSpec::n256_test());
    let ring = params.ring();
    let whole = poly_bytes(ring);
    let limb_bytes = whole / 2;
    let read = |bytes: &[u8]| {
        let mut bytes = bytes;
        unpack_poly::<Coefficients>("poly", ring, &mut bytes).map(drop)
    };
    assert!(read(&vec![0; whole]).is_ok());
    for (len, found) in
        [(0, 0), (limb_bytes - 1, limb_bytes - 1), (limb_bytes, 0), (whole - 1, limb_bytes - 1)]
    {
        let error = read(&vec![0; len]).unwrap_err();
        assert!(
            matches!(error, Error::Bytes { what: "poly", expected, found: f }
                if (expected, f) == (limb_bytes, found)),
            "{len}: {error}"
        );
    }
    // One number of each limb, put at its modulus and just below.
    for limb in 0..2 {
        for (index, above) in [(0, true), (255, true), (0, false), (255, false)] {
            let mut poly: Poly<Coefficients> = ring.zero();
            poly.limb_mut(limb)[index] = ring.modulus(limb).value() - u64::from(!above);
            let mut bytes = Vec::new();
            pack_poly(ring, &poly, &mut bytes);
            match read(&bytes) {
                Ok(()) => assert!(!above),
                Err(error) => assert!(above && matches!(error, Error::Residue { what: "poly" })),
            }
        }
    }
}
