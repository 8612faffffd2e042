//! Encrypted vectors: the numbers, the secret and all noise are secret.

use hushtable_prg::valgrind::mark_public;
use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{self, Encoder, ModulusBits, ParameterSpec, Parameters};
use hushtable_rlwe::ring::{NoiseSource, Platform};

use crate::secret::{bytes, number, secret};
use crate::{Check, Work};

fn parameters() -> Parameters {
    let bits = ModulusBits { first: 45, level: 35, special: 45 };
    let spec = ParameterSpec::of_bits("ckks_test", 32, bits, 1, 1).expect("enough primes");
    Parameters::new(spec, Platform::detect()).expect("a small set")
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
fn encrypted(secret: &SecretKey, values: &[f64], source: &mut NoiseSource) -> Vec<u8> {
    let parameters = parameters();
    let plain = Encoder::new(&parameters)
        .encode_real(values, 1, parameters.scale())
        .expect("small numbers");
    let fresh = ckks::encrypt(&parameters, secret, &plain, &[1; 32], 0, source).expect("a level");
    fresh.to_fresh_bytes(&parameters, &[1; 32], 0).expect("its own seed")
}

fn key(source: &mut NoiseSource) -> SecretKey {
    SecretKey::draw(parameters().lattice().key_ring(), source)
}

pub fn encrypt(of: u64) -> Work {
    let key_of = key(&mut NoiseSource::from_seed(&secret(bytes(of, 10))));
    let values = numbers(of);
    Box::new(move || {
        let mut source = NoiseSource::from_seed(&secret(bytes(of, 11)));
        let mut found = encrypted(&key_of, &secret(values), &mut source);
        Box::new(move || {
            mark_public(&mut found);
            let key = key(&mut NoiseSource::from_seed(&bytes(of, 10)));
            let same = |values: &[f64]| {
                encrypted(&key, values, &mut NoiseSource::from_seed(&bytes(of, 11)))
            };
            assert_eq!(found, same(&values));
            assert_ne!(found, same(&[0.5]), "the numbers are in the ciphertext");
        }) as Check
    })
}

pub fn decrypt(of: u64) -> Work {
    let source = || NoiseSource::from_seed(&secret(bytes(of, 12)));
    let key = key(&mut source());
    let values = numbers(of);
    let mut sent = encrypted(&key, &secret(values), &mut source());
    mark_public(&mut sent);
    Box::new(move || {
        let parameters = parameters();
        let ciphertext = ckks::Ciphertext::parse(&parameters, &sent).expect("a ciphertext");
        let plain = ckks::decrypt(&parameters, &key, &ciphertext).expect("a level");
        let mut found = Encoder::new(&parameters).decode_real(&plain);
        Box::new(move || {
            mark_public(&mut found);
            for (found, expected) in found.iter().zip(values.iter().cycle()) {
                assert!((found - expected).abs() < 1e-6, "{found} {expected}");
            }
        }) as Check
    })
}
