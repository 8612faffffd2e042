//! Encrypted vectors: the numbers, the secret and all noise are secret.

use hushtable_prg::valgrind::mark_public;
use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{self, Encoder, KeySpec, ModulusBits, ParameterSpec, Parameters};
use hushtable_rlwe::ring::{NoiseSource, Platform};

use crate::secret::{bytes, number, secret};
use crate::{Check, Work};

/// Made before anything is watched: it takes most of the steps.
fn encoder() -> Encoder {
    let bits = ModulusBits { first: 45, level: 35, special: 45 };
    let spec = ParameterSpec::of_bits("ckks_test", 32, bits, 1, 1).expect("enough primes");
    let parameters = Parameters::new(spec, Platform::detect()).expect("a small set");
    Encoder::new(&parameters)
}

/// Numbers from −1 to 1, of all signs and sizes; 0 and 1 are among them.
fn numbers(of: u64) -> [f64; 8] {
    std::array::from_fn(|index| match (index as u64 + of) % 8 {
        0 => 0.0,
        1 => 1.0,
        other => (number(10 * of + other) as i64 as f64) * 2f64.powi(-63 - other as i32),
    })
}

/// The bytes of an encryption of `values`.
fn encrypted(
    encoder: &Encoder,
    secret: &SecretKey,
    values: &[f64],
    source: &mut NoiseSource,
) -> Vec<u8> {
    let parameters = encoder.parameters();
    let plain = encoder.encode_real(values, 1, parameters.scale()).expect("small numbers");
    let fresh = ckks::encrypt(parameters, secret, &plain, &[1; 32], 0, source).expect("a level");
    fresh.to_fresh_bytes(parameters, &[1; 32], 0).expect("its own seed")
}

fn key(encoder: &Encoder, source: &mut NoiseSource) -> SecretKey {
    SecretKey::draw(encoder.parameters().lattice().key_ring(), source)
}

pub fn encrypt(of: u64) -> Work {
    let encoder = encoder();
    let secret_key = key(&encoder, &mut NoiseSource::from_seed(&secret(bytes(of, 10))));
    let values = numbers(of);
    Box::new(move || {
        let mut source = NoiseSource::from_seed(&secret(bytes(of, 11)));
        let mut found = encrypted(&encoder, &secret_key, &secret(values), &mut source);
        Box::new(move || {
            mark_public(&mut found);
            let key = key(&encoder, &mut NoiseSource::from_seed(&bytes(of, 10)));
            let same = |values: &[f64]| {
                encrypted(&encoder, &key, values, &mut NoiseSource::from_seed(&bytes(of, 11)))
            };
            assert_eq!(found, same(&values));
            assert_ne!(found, same(&[0.5]), "the numbers are in the ciphertext");
        }) as Check
    })
}

pub fn decrypt(of: u64) -> Work {
    let encoder = encoder();
    let source = || NoiseSource::from_seed(&secret(bytes(of, 12)));
    let key = key(&encoder, &mut source());
    let values = numbers(of);
    let mut sent = encrypted(&encoder, &key, &secret(values), &mut source());
    mark_public(&mut sent);
    Box::new(move || {
        let parameters = encoder.parameters();
        let ciphertext = ckks::Ciphertext::parse(parameters, &sent).expect("a ciphertext");
        let plain = ckks::decrypt(parameters, &key, &ciphertext).expect("a level");
        let mut found = encoder.decode_real(&plain);
        Box::new(move || {
            mark_public(&mut found);
            for (found, expected) in found.iter().zip(values.iter().cycle()) {
                assert!((found - expected).abs() < 1e-6, "{found} {expected}");
            }
        }) as Check
    })
}

/// Keys of a modulus raise: the sparse secret is drawn and encrypted.
pub fn raise_keys(of: u64) -> Work {
    let encoder = encoder();
    let secret_key = key(&encoder, &mut NoiseSource::from_seed(&secret(bytes(of, 13))));
    let drawn = |encoder: &Encoder, key: &SecretKey, source: &mut NoiseSource| {
        let spec = KeySpec { raise: Some(1), ..KeySpec::default() };
        let mut out = Vec::new();
        let sink = |piece: &[u8]| out.extend_from_slice(piece);
        let written = ckks::write_keys(encoder.parameters(), key, &spec, &[1; 32], source, sink);
        written.expect("a level");
        out
    };
    Box::new(move || {
        let mut source = NoiseSource::from_seed(&secret(bytes(of, 14)));
        let mut found = drawn(&encoder, &secret_key, &mut source);
        Box::new(move || {
            mark_public(&mut found);
            let key = key(&encoder, &mut NoiseSource::from_seed(&bytes(of, 13)));
            let source = |number| NoiseSource::from_seed(&bytes(of, number));
            assert_eq!(found, drawn(&encoder, &key, &mut source(14)));
            assert_ne!(found, drawn(&encoder, &key, &mut source(15)), "a source gives the secret");
        }) as Check
    })
}
