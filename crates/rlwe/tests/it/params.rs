//! Which parameters are refused, and why.

use crate::fixtures;

use std::collections::BTreeMap;

use fixtures::{offered, parameters};
use hushtable_rlwe::bfv::{ParameterSpec, Parameters, SwitchKey};
use hushtable_rlwe::ring::{Error as RingError, GadgetSpec, Platform, ntt_primes};
use hushtable_rlwe::{Error, modulus_log2_max};

/// Lengths of primes in bits, and how many of each.
type Lengths = &'static [(u32, usize)];

/// Every row of the published table: the degree, log2 Q, and primes whose product is just below.
const LIMITS: [(usize, f64, Lengths); 6] = [
    (1024, 26.0, &[(26, 1)]),
    (2048, 53.0, &[(27, 1), (26, 1)]),
    (4096, 106.0, &[(36, 1), (35, 2)]),
    (8192, 214.0, &[(43, 4), (42, 1)]),
    (16384, 430.0, &[(43, 10)]),
    (32768, 868.0, &[(31, 28)]),
];

fn primes(degree: usize, lengths: &[(u32, usize)]) -> Vec<u64> {
    lengths.iter().flat_map(|&(bits, count)| ntt_primes(bits, degree, count)).collect()
}

fn spec(name: &str, degree: usize, moduli: Vec<u64>) -> ParameterSpec {
    let bits = |moduli: &[u64]| moduli.iter().map(|&q| (q as f64).log2()).sum::<f64>().ceil();
    let gadget = |bits: f64| GadgetSpec {
        digits: (bits / 25.0).ceil() as usize,
        base_bits: 25,
        dropped_bits: 0,
    };
    ParameterSpec {
        name: name.into(),
        degree,
        answer_limbs: 1,
        plain_bits: 8,
        key_switch: gadget(bits(&moduli)),
        selector: gadget(bits(&moduli[..1])),
        response_mask_bits: 18,
        response_body_bits: 12,
        moduli,
    }
}

fn refused(spec: ParameterSpec) -> Error {
    Parameters::new(spec, Platform::detect()).expect_err("refused")
}

#[test]
fn moduli_up_to_the_published_limit_are_accepted() {
    for (degree, limit, lengths) in LIMITS {
        assert_eq!(modulus_log2_max(degree), limit);
        let made = spec("named", degree, primes(degree, lengths));
        let log2 = made.moduli.iter().map(|&q| (q as f64).log2()).sum::<f64>();
        assert!(log2 <= limit && log2 > limit - 0.3, "N = {degree}: {log2}");
        match Parameters::new(made, Platform::detect()) {
            Ok(made) => assert!((made.ring().modulus_log2() - log2).abs() < 1e-9 && limit < 110.0),
            // Secure, but longer than what digits are cut of.
            Err(Error::Ring(RingError::Gadget { .. })) => assert!(limit > 110.0, "N = {degree}"),
            Err(other) => panic!("N = {degree}: {other}"),
        }
    }
}

#[test]
fn moduli_above_the_published_limit_need_a_name_that_says_so() {
    for (degree, limit, lengths) in LIMITS {
        // The same, the last prime a bit longer.
        let mut counts = BTreeMap::new();
        for &(bits, count) in lengths {
            *counts.entry(bits).or_insert(0) += count;
        }
        let (last, _) = lengths[lengths.len() - 1];
        *counts.entry(last).or_insert(0) -= 1;
        *counts.entry(last + 1).or_insert(0) += 1;
        let moduli = primes(degree, &counts.into_iter().collect::<Vec<_>>());
        let log2 = moduli.iter().map(|&q| (q as f64).log2()).sum::<f64>();
        assert!(log2 > limit, "{log2}");
        for name in ["named", "", "paper", "_paper_128", "test_set", "n_tests"] {
            let error = refused(spec(name, degree, moduli.clone()));
            let Error::Security { name: found, degree: n, modulus_log2, modulus_log2_max, .. } =
                error
            else {
                panic!("{name}: {error}");
            };
            assert_eq!((found.as_str(), n, modulus_log2_max), (name, degree, limit));
            assert!((modulus_log2 - log2).abs() < 1e-9);
        }
        for name in ["n_paper", "n_test", "_test"] {
            match Parameters::new(spec(name, degree, moduli.clone()), Platform::detect()) {
                Ok(made) => assert_eq!(made.name(), name),
                Err(Error::Ring(RingError::Gadget { .. })) => assert!(limit > 106.0),
                Err(other) => panic!("{name}: {other}"),
            }
        }
    }
    // No entry: nothing is known to be secure.
    for degree in [256, 512, 131072] {
        assert_eq!(modulus_log2_max(degree), 0.0);
        let error = refused(spec("named", degree, ntt_primes(25, degree, 1)));
        assert!(matches!(error, Error::Security { modulus_log2_max: 0.0, .. }), "{error}");
    }
    let text = refused(ParameterSpec { name: "fast".into(), ..ParameterSpec::ive_paper() });
    let text = text.to_string();
    for part in ["\"fast\"", "108.07", "N = 4096", "106", "smaller primes", "ends in _paper"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
}

#[test]
fn everything_that_cannot_be_is_refused() {
    let base = ParameterSpec::n4096_128;
    for answer_limbs in [0, 3, usize::MAX] {
        let error = refused(ParameterSpec { answer_limbs, ..base() });
        assert!(
            matches!(error, Error::AnswerLimbs { answer_limbs: found, limbs: 2 } if found == answer_limbs),
            "{error}"
        );
    }
    for plain_bits in [0, 33, 49, u32::MAX] {
        let error = refused(ParameterSpec { plain_bits, ..base() });
        assert!(matches!(error, Error::PlainBits { plain_bits: b } if b == plain_bits), "{error}");
    }
    // 26 bits hold plaintexts of 24, not of 25.
    let narrow = |plain_bits| {
        let moduli = ntt_primes(26, 1024, 1);
        ParameterSpec {
            plain_bits,
            response_mask_bits: 40,
            response_body_bits: 40,
            ..spec("named", 1024, moduli)
        }
    };
    assert!(Parameters::new(narrow(24), Platform::detect()).is_ok());
    assert!(matches!(refused(narrow(25)), Error::PlainBits { plain_bits: 25 }));
    for (mask, body) in [(16, 20), (25, 16), (51, 20), (25, 51), (0, 0)] {
        let error =
            refused(ParameterSpec { response_mask_bits: mask, response_body_bits: body, ..base() });
        assert!(
            matches!(error, Error::ResponseBits { mask_bits, body_bits, plain_bits: 16 }
                if (mask_bits, body_bits) == (mask, body)),
            "{error}"
        );
        assert!(error.to_string().contains("17 to 50"), "{error}");
    }
    let digits = |digits, base_bits, dropped_bits| GadgetSpec { digits, base_bits, dropped_bits };
    for gadget in [digits(2, 31, 36), digits(0, 32, 36), digits(2, 51, 36), digits(4, 32, 36)] {
        let error = refused(ParameterSpec { key_switch: gadget, ..base() });
        assert!(
            matches!(error, Error::Ring(RingError::Gadget { modulus_bits: 100, .. })),
            "{error}"
        );
    }
    let error = refused(ParameterSpec { selector: digits(2, 14, 20), ..base() });
    assert!(matches!(error, Error::Ring(RingError::Gadget { modulus_bits: 50, .. })), "{error}");

    let prime = base().moduli[0];
    let moduli = |moduli: &[u64]| refused(ParameterSpec { moduli: moduli.into(), ..base() });
    assert!(matches!(moduli(&[]), Error::Ring(RingError::Limbs { limbs: 0 })));
    assert!(matches!(moduli(&[3; 65]), Error::Ring(RingError::Limbs { limbs: 65 })));
    assert!(matches!(moduli(&[prime, prime]), Error::Ring(RingError::Repeated { .. })));
    assert!(matches!(moduli(&[prime + 2]), Error::Ring(RingError::NoRoot { .. })));
    assert!(matches!(moduli(&[1 << 40]), Error::Ring(RingError::Modulus { .. })));
    for degree in [0, 7, 100, 4095, 1 << 18, usize::MAX] {
        let error = refused(ParameterSpec { degree, ..base() });
        assert!(matches!(error, Error::Ring(RingError::Degree { .. })), "{degree}: {error}");
    }
}

#[test]
fn the_default_is_within_the_table_with_all_that_a_client_publishes() {
    let params = parameters(ParameterSpec::n4096_128());
    assert!(params.ring().modulus_log2() <= 106.0);
    assert_eq!(params.ring().moduli().map(|q| q.bits()).collect::<Vec<_>>(), [50, 50]);
    // Keys and fresh ciphertexts are modulo Q and nothing above it: no key has a modulus of its own.
    let mut source = fixtures::source(1);
    let secret = hushtable_rlwe::SecretKey::draw(params.ring(), &mut source);
    let key = SwitchKey::of_square(&params, &secret, &source.seed(), 0, &mut source);
    assert_eq!(key.rows().len(), 2);
    for row in key.rows() {
        assert_eq!((row.mask.limbs(), row.body.limbs()), (2, 2));
    }
    assert_eq!(SwitchKey::bytes(&params), 2 * 2 * 4096 * 50 / 8);
}

#[test]
fn the_papers_set_has_the_papers_numbers() {
    let [_, params] = offered();
    assert_eq!(params.spec().moduli, [134_250_497, 134_348_801, 136_314_881, 138_412_033]);
    assert!((params.ring().modulus_log2() - 108.07).abs() < 0.005);
    assert!(params.ring().modulus_log2() > modulus_log2_max(4096));
    assert_eq!((params.degree(), params.plain_bits()), (4096, 32));
    assert_eq!(params.answer_ring().limbs(), 4);
    assert_eq!(params.name(), "ive_paper");
    assert_eq!(params.spec(), &ParameterSpec::ive_paper());
}
