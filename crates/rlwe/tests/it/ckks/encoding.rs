//! Encoding and encryption: round trips, the order of slots, what is refused.

use hushtable_rlwe::ckks::{Ciphertext, Complex64, Encoder, Error, Parameters, Plaintext, decrypt};
use hushtable_rlwe::pack::{pack_poly, poly_bytes};
use hushtable_rlwe::ring::{Automorphism, Evaluations, Platform, Poly, Ring};

use super::fixtures::{Client, complex_numbers, largest_error, numbers, parameters};

/// The largest part of a difference between slots, of which `expected` repeats.
fn largest(found: &[Complex64], expected: &[Complex64]) -> f64 {
    let pairs = found.iter().zip(expected.iter().cycle());
    hushtable_rlwe::largest(pairs.map(|(found, expected)| (found - expected).norm()))
}

#[test]
fn vectors_of_every_period_come_back() {
    let params = parameters(1 << 10, 40, 3);
    let encoder = Encoder::new(&params);
    for period in (0..10).map(|log2| 1usize << log2) {
        let values = complex_numbers(1, period);
        for (level, scale_log2) in [(3, 40), (3, 25), (2, 80), (0, 40), (3, 88)] {
            let scale = f64::from(scale_log2).exp2();
            let plain = encoder.encode(&values, level, scale).unwrap();
            assert_eq!((plain.level(), plain.scale()), (level, scale));
            let slots = encoder.decode(&plain);
            assert_eq!(slots.len(), 512);
            // Each of N coefficients is wrong by half at most, and a double by 2^-53 a step.
            let bound = 6.0 * (2.0 * period as f64 / 12.0).sqrt() / scale + 2f64.powi(-48);
            let error = largest(&slots, &values);
            assert!(error < bound, "{period} {level} {scale_log2}: {error} {bound}");
        }
    }
}

#[test]
fn real_vectors_come_back_at_the_degrees_that_are_used() {
    for (degree, bits, levels, scale_log2, bits_right) in
        [(1 << 13, 36, 2, 36, 26.0), (1 << 14, 40, 6, 45, 34.0), (1 << 15, 49, 8, 49, 38.0)]
    {
        let params = parameters(degree, bits, levels);
        let encoder = Encoder::new(&params);
        for period in [degree / 2, degree / 64, 1] {
            let values = numbers(2, period);
            let scale = f64::from(scale_log2).exp2();
            let plain = encoder.encode_real(&values, levels, scale).unwrap();
            let slots = encoder.decode(&plain);
            let pairs = slots.iter().zip(values.iter().cycle());
            let error =
                hushtable_rlwe::largest(pairs.map(|(found, expected)| (found - expected).norm()));
            assert!(-error.log2() > bits_right, "{degree} {period}: {error}");
        }
    }
}

#[test]
fn short_vectors_are_what_long_ones_would_be() {
    // Over Q's ring, and over one of some of its primes and P's, in another order.
    let params = parameters(256, 40, 3);
    let encoder = Encoder::new(&params);
    let key_ring = params.lattice().key_ring();
    let moduli: Vec<u64> = key_ring.moduli().map(|modulus| modulus.value()).collect();
    let other = Ring::new(256, &[moduli[4], moduli[1]], Platform::detect()).unwrap();
    for ring in [params.ring(3), params.ring(0), key_ring, &other] {
        for period in [1, 2, 4, 32] {
            let values = numbers(3, period);
            let all: Vec<f64> = values.iter().copied().cycle().take(128).collect();
            let scale = 2f64.powi(38);
            let short = encoder.encode_over(ring, &values, scale).unwrap();
            let long = encoder.encode_over(ring, &all, scale).unwrap();
            let (short, long) = (ring.inverse(short), ring.inverse(long));
            for (limb, modulus) in ring.moduli().enumerate() {
                for (&a, &b) in short.limb(limb).iter().zip(long.limb(limb)) {
                    // Where rounding is a tie but for a double's last bit.
                    assert!(modulus.to_signed(modulus.sub(a, b)).abs() <= 1, "{period} {limb}");
                }
            }
        }
    }
}

#[test]
fn powers_of_five_rotate_slots_to_the_left() {
    let params = parameters(64, 40, 1);
    let encoder = Encoder::new(&params);
    let values = complex_numbers(4, 32);
    let mut client = Client::new(&params, 4);
    let scale = params.scale();
    let plain = encoder.encode(&values, 1, scale).unwrap();
    let ring = params.ring(1);
    let mut exponent = 1;
    for steps in 0..32 {
        let map = Automorphism::new(exponent, 64);
        let zero = client.encrypt(&[0.0], 1);
        let turned = ring.automorphism(&map, plain.poly());
        let slots = encoder.decode(&plain_of(&mut client, &zero, &turned));
        let expected: Vec<Complex64> = (0..32).map(|slot| values[(slot + steps) % 32]).collect();
        assert!(largest(&slots, &expected) < 1e-8, "{steps}");
        exponent = exponent * 5 % 128;
    }
    // And −1 conjugates them.
    let zero = client.encrypt(&[0.0], 1);
    let turned = ring.automorphism(&Automorphism::new(127, 64), plain.poly());
    let slots = encoder.decode(&plain_of(&mut client, &zero, &turned));
    let expected: Vec<Complex64> = values.iter().map(Complex64::conj).collect();
    assert!(largest(&slots, &expected) < 1e-8);
}

/// The plaintext of `poly`, by an encryption of zero that it is added to.
fn plain_of(client: &mut Client, zero: &Ciphertext, poly: &Poly<Evaluations>) -> Plaintext {
    let (params, ring) = (&client.parameters, client.parameters.ring(1));
    let mut bytes = zero.to_bytes(params);
    let mut body = zero.parts().body.clone();
    ring.add_assign(&mut body, poly);
    bytes.truncate(bytes.len() - poly_bytes(ring));
    pack_poly(ring, &body, &mut bytes);
    let sum = Ciphertext::parse(params, &bytes).unwrap();
    decrypt(params, &client.secret, &sum).unwrap()
}

#[test]
fn encryption_adds_the_error_of_a_fresh_ciphertext_and_no_more() {
    for (degree, bits, levels) in [(1 << 10, 40, 2), (1 << 13, 36, 2)] {
        let params = parameters(degree, bits, levels);
        let mut client = Client::new(&params, 5);
        for level in [0, levels] {
            let values = numbers(6, degree / 2);
            let ciphertext = client.encrypt(&values, level);
            assert_eq!((ciphertext.level(), ciphertext.scale()), (level, params.scale()));
            let error = largest_error(&client.decrypt(&ciphertext), &values);
            let deviation = 3.3 * (degree as f64 / 2.0).sqrt() / params.scale();
            assert!((2.5..7.0).contains(&(error / deviation)), "{}", error / deviation);
        }
    }
}

#[test]
fn what_cannot_be_encoded_is_refused() {
    let params: Parameters = parameters(64, 30, 2);
    let encoder = Encoder::new(&params);
    let scale = params.scale();
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -2f64.powi(70)] {
        for index in [0, 5] {
            let mut values = vec![0.25; 8];
            values[index] = bad;
            match encoder.encode_real(&values, 2, scale) {
                Err(Error::Value { index: found, value, .. }) => {
                    assert!(found == index && (value == bad || bad.is_nan() && value.is_nan()));
                }
                other => panic!("{bad}: {other:?}"),
            }
            let mut values = vec![Complex64::new(0.1, -0.2); 8];
            values[index].im = bad;
            let refused = encoder.encode(&values, 2, scale);
            assert!(matches!(refused, Err(Error::Value { index: i, .. }) if i == index));
        }
        assert!(encoder.constant(params.ring(2), bad, scale).is_err());
    }
    // At level 0 a number may have 40 − 1 − 30 bits; an unlucky neighbour of the limit is refused.
    assert!(encoder.encode_real(&[500.0], 0, scale).is_ok());
    assert!(matches!(encoder.encode_real(&[512.0], 0, scale), Err(Error::Value { .. })));
    for count in [0, 3, 33, 64] {
        let refused = encoder.encode_real(&vec![0.0; count], 2, scale);
        assert!(matches!(refused, Err(Error::Slots { found, slots: 32 }) if found == count));
    }
    for scale in [0.0, 0.5, -4.0, f64::NAN, f64::INFINITY, 2f64.powi(99)] {
        let refused = encoder.encode_real(&[0.0], 2, scale);
        assert!(matches!(refused, Err(Error::Scale { .. })), "{scale}");
    }
    assert!(matches!(
        encoder.encode_real(&[0.0], 3, scale),
        Err(Error::Level { found: 3, expected: 2, .. })
    ));
}

#[test]
fn constants_are_a_vector_of_one_value() {
    let params = parameters(64, 40, 2);
    let encoder = Encoder::new(&params);
    let ring = params.ring(2);
    for (value, scale_log2) in [(1.5, 40.0), (-0.3, 80.5), (1e4, 20.25), (0.0, 40.0)] {
        let scale = f64::exp2(scale_log2);
        let residues = encoder.constant(ring, value, scale).unwrap();
        let poly = ring.inverse(encoder.encode_over(ring, &[value], scale).unwrap());
        for (limb, &residue) in residues.iter().enumerate() {
            assert_eq!(poly.limb(limb)[0], residue);
            assert!(poly.limb(limb)[1..].iter().all(|&other| other == 0));
        }
    }
}
