//! BFV from plaintext to plaintext, by way of dropped limbs and of small responses.

use crate::fixtures;

use fixtures::{mean, noise, noiseless, offered, parameters, plains, scaled, source};
use hushtable_rlwe::bfv::noise::{Noise, measure};
use hushtable_rlwe::bfv::{Evaluator, ParameterSpec, Parameters, response};
use hushtable_rlwe::ring::{Coefficients, Platform, Poly, ntt_primes};
use hushtable_rlwe::{Ciphertext, Error, SecretKey, bfv};

#[test]
fn plaintexts_come_back_after_limbs_were_dropped() {
    for params in offered() {
        let secret = SecretKey::generate(params.ring()).unwrap();
        let mut evaluator = Evaluator::new(&params);
        for plain in plains(&params) {
            let fresh = bfv::encrypt(&params, &secret, &plain).unwrap();
            assert_eq!(fresh.mask.limbs(), params.ring().limbs());
            let kept = evaluator.drop_limbs(fresh);
            assert_eq!(kept.body.limbs(), params.answer_ring().limbs());
            assert_eq!(bfv::decrypt(&params, &secret, &kept), plain, "{}", params.name());
            // A secret that is another's opens nothing.
            let other = SecretKey::generate(params.ring()).unwrap();
            assert_ne!(bfv::decrypt(&params, &other, &kept), plain, "{}", params.name());
        }
        // Fewer numbers than N, and none.
        for plain in [&[1, 2, 3][..], &[]] {
            let kept = evaluator.drop_limbs(bfv::encrypt(&params, &secret, plain).unwrap());
            let opened = bfv::decrypt(&params, &secret, &kept);
            assert_eq!(opened[..plain.len()], *plain);
            assert!(opened[plain.len()..].iter().all(|&value| value == 0));
        }
    }
}

#[test]
fn fresh_noise_is_what_was_predicted() {
    for params in offered() {
        let (model, mut source) = (Noise::new(&params), source(3));
        let secret = SecretKey::draw(params.ring(), &mut source);
        let mut evaluator = Evaluator::new(&params);
        let plain = plains(&params).pop().unwrap();
        let message = scaled(&params, &plain);
        let (mut plain_ratios, mut query_ratios) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            // As a BFV ciphertext: an error alone, before the limbs go.
            let kept = evaluator.drop_limbs(bfv::encrypt(&params, &secret, &plain).unwrap());
            let at = |index: usize| {
                params.answer_ring().crt().compose_signed(|limb| message.limb(limb)[index])
            };
            let measured = measure(&params, &secret, &kept, at);
            let predicted = model.drop_limbs(3.2 * 3.2);
            plain_ratios.push(measured.variance / predicted);
            assert!(measured.largest < 8.0 * predicted.sqrt());
            let by_phase = noise(params.answer_ring(), &secret, &kept, &message);
            assert!((by_phase.variance / measured.variance - 1.0).abs() < 1e-9);

            // As a query: its body is sent without the limbs that are dropped.
            let ring = params.ring();
            let zero: Poly<Coefficients> = ring.zero();
            let mut query =
                secret.encrypt(ring, &source.seed(), 0, &ring.forward(zero.clone()), &mut source);
            let body = evaluator.drop_limbs(query.clone()).body;
            let scale = params.query_residues(|_| 1, 0);
            if params.answer_ring().limbs() < ring.limbs() {
                query.body = ring.zero();
                for limb in 0..params.answer_ring().limbs() {
                    let (modulus, scale) = (ring.modulus(limb), scale[limb]);
                    for (out, &value) in query.body.limb_mut(limb).iter_mut().zip(body.limb(limb)) {
                        *out = modulus.mul(value, scale);
                    }
                }
            }
            query_ratios.push(noise(ring, &secret, &query, &zero).variance / model.query());
        }
        let ratios = [mean(plain_ratios), mean(query_ratios)];
        println!(
            "{}: dropped {:.3}, query {:.3} of predicted",
            params.name(),
            ratios[0],
            ratios[1]
        );
        assert!(ratios.iter().all(|ratio| (0.9..1.1).contains(ratio)), "{ratios:?}");
    }
}

#[test]
fn responses_open_to_what_was_compressed() {
    for params in offered() {
        let mut source = source(4);
        let (ring, secret) = (params.answer_ring(), SecretKey::draw(params.ring(), &mut source));
        let mut evaluator = Evaluator::new(&params);
        let spec = params.spec();
        let bits = (spec.response_mask_bits + spec.response_body_bits) as usize;
        assert_eq!(response::response_bytes(&params), params.degree() * bits / 8);
        for plain in plains(&params) {
            let message = scaled(&params, &plain);
            let bare = Ciphertext { mask: ring.zero(), body: ring.forward(message.clone()) };
            let exact = noiseless(ring, &secret, 5, &message);
            let noisy = evaluator.drop_limbs(bfv::encrypt(&params, &secret, &plain).unwrap());
            for ciphertext in [bare, exact, noisy] {
                // What stands in the buffer already stays.
                let mut bytes = vec![7];
                response::compress(&params, &ciphertext, &mut bytes);
                assert_eq!((bytes[0], bytes.len()), (7, 1 + response::response_bytes(&params)));
                assert_eq!(response::open(&params, &secret, &bytes[1..]).unwrap(), plain);
            }
        }
    }
}

#[test]
fn responses_of_another_length_are_refused() {
    for params in offered() {
        let secret = SecretKey::generate(params.ring()).unwrap();
        let right = response::response_bytes(&params);
        for wrong in [0, 1, right - 1, right + 1, 2 * right] {
            let error = response::open(&params, &secret, &vec![0; wrong]).unwrap_err();
            assert!(
                matches!(error, Error::Bytes { what: "response", expected, found }
                    if (expected, found) == (right, wrong)),
                "{error}"
            );
        }
        // Any bytes of the right length are numbers below P.
        let opened = response::open(&params, &secret, &vec![0xff; right]).unwrap();
        assert_eq!(opened.len(), params.degree());
        assert!(opened.iter().all(|&value| value < 1 << params.plain_bits()));
    }
}

#[test]
fn a_first_prime_as_short_as_can_be_opens_responses() {
    // 65537 = 2 · 32768 + 1: a product of masks with a secret only fits it bit by bit.
    let moduli = [vec![65537], ntt_primes(50, 32768, 1)].concat();
    let spec = ParameterSpec {
        name: "short_test".into(),
        degree: 32768,
        moduli,
        answer_limbs: 2,
        plain_bits: 8,
        key_switch: hushtable_rlwe::ring::GadgetSpec { digits: 3, base_bits: 25, dropped_bits: 0 },
        selector: hushtable_rlwe::ring::GadgetSpec { digits: 3, base_bits: 25, dropped_bits: 0 },
        response_mask_bits: 30,
        response_body_bits: 20,
    };
    let params = Parameters::new(spec, Platform::detect()).unwrap();
    let secret = SecretKey::generate(params.ring()).unwrap();
    for plain in plains(&params) {
        let ciphertext = bfv::encrypt(&params, &secret, &plain).unwrap();
        let mut bytes = Vec::new();
        response::compress(&params, &ciphertext, &mut bytes);
        assert_eq!(response::open(&params, &secret, &bytes).unwrap(), plain);
    }
}

#[test]
fn a_ciphertext_hides_its_mask_and_error_from_a_second_one() {
    let params = parameters(ParameterSpec::n256_test());
    let mut source = source(6);
    let secret = SecretKey::draw(params.ring(), &mut source);
    let ring = params.ring();
    let (seed, zero) = (source.seed(), ring.zero());
    let first = secret.encrypt(ring, &seed, 0, &zero, &mut source);
    let again = secret.encrypt(ring, &seed, 0, &zero, &mut source);
    let next = secret.encrypt(ring, &seed, 1, &zero, &mut source);
    // One place in a seed's stream is one mask, but every encryption has an error of its own.
    assert_eq!(first.mask.values(), again.mask.values());
    assert_ne!(first.body.values(), again.body.values());
    assert_ne!(first.mask.values(), next.mask.values());
}
