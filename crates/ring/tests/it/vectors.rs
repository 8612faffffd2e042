//! `vectors/ring.json`, which every implementation reads: transforms, streams and digits.

use hushtable_ring::{Gadget, GadgetSpec, NoiseSource, Platform, Ring, Seed};
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    format: u32,
    transforms: Vec<Transform>,
    uniform: Vec<Uniform>,
    noise: Vec<Noise>,
    digits: Vec<Digits>,
}

#[derive(Deserialize)]
struct Transform {
    degree: usize,
    modulus: u64,
    psi: u64,
    evaluations: Vec<u64>,
}

#[derive(Deserialize)]
struct Uniform {
    degree: usize,
    moduli: Vec<u64>,
    seed: String,
    index: u64,
    evaluations: Vec<u64>,
}

#[derive(Deserialize)]
struct Noise {
    seed: String,
    ternary: Vec<i64>,
    gaussian: Vec<i64>,
    next_seed: String,
}

#[derive(Deserialize)]
struct Digits {
    moduli: Vec<u64>,
    base_bits: u32,
    dropped_bits: u32,
    coefficients: Vec<Vec<u64>>,
    digits: Vec<Vec<i64>>,
}

fn file() -> File {
    let file: File = serde_json::from_str(include_str!("../../../../vectors/ring.json"))
        .expect("ring.json parses");
    assert_eq!(file.format, 1);
    file
}

fn seed(hex: &str) -> Seed {
    let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
    assert_eq!(hex.len(), 64);
    std::array::from_fn(byte)
}

#[test]
fn transforms_reproduce_the_vectors() {
    let vectors = file().transforms;
    assert!(vectors.iter().any(|vector| vector.degree >= 1024) && vectors.len() >= 5);
    for vector in vectors {
        for platform in Platform::available() {
            let ring = Ring::new(vector.degree, &[vector.modulus], platform).unwrap();
            assert_eq!(ring.table(0).psi(), vector.psi);
            let mut poly = ring.zero();
            for (i, value) in (0..).zip(poly.limb_mut(0)) {
                *value = (7 * i * i + 3 * i + 1) % vector.modulus;
            }
            let image = ring.forward(poly.clone());
            assert_eq!(image.values(), vector.evaluations, "{platform:?} {}", vector.modulus);
            assert_eq!(ring.inverse(image).values(), poly.values());
        }
    }
}

#[test]
fn streams_reproduce_the_vectors() {
    let file = file();
    assert!(file.uniform.len() >= 3 && file.noise.len() >= 2);
    for vector in file.uniform {
        let ring = Ring::new(vector.degree, &vector.moduli, Platform::detect()).unwrap();
        let poly = ring.uniform(&seed(&vector.seed), vector.index);
        assert_eq!(poly.values(), vector.evaluations);
    }
    for vector in file.noise {
        // Whatever the modulus, the numbers are the same.
        for bits in [27, 50] {
            let primes = hushtable_ring::ntt_primes(bits, vector.ternary.len(), 2);
            let ring = Ring::new(vector.ternary.len(), &primes, Platform::detect()).unwrap();
            let mut source = NoiseSource::from_seed(&seed(&vector.seed));
            for expected in [&vector.ternary, &vector.gaussian] {
                let poly = match expected == &vector.ternary {
                    true => source.ternary(&ring),
                    false => source.gaussian(&ring),
                };
                assert_eq!(poly.values(), ring.from_signed_vartime(expected).values());
            }
            assert_eq!(source.seed(), seed(&vector.next_seed));
        }
    }
}

#[test]
fn digits_reproduce_the_vectors() {
    let vectors = file().digits;
    assert!(vectors.len() >= 4);
    for vector in vectors {
        let (degree, limbs) = (vector.coefficients[0].len(), vector.moduli.len());
        for platform in Platform::available() {
            let ring = Ring::new(degree, &vector.moduli, platform).unwrap();
            let (base_bits, dropped_bits) = (vector.base_bits, vector.dropped_bits);
            let spec = GadgetSpec { digits: vector.digits.len(), base_bits, dropped_bits };
            let gadget = Gadget::new(spec, ring.modulus_log2().ceil() as u32).unwrap();
            let mut out = vec![0; degree * limbs * gadget.digits()];
            let coefficients = vector.coefficients.concat();
            ring.kernel().decompose(gadget, ring.crt(), &coefficients, &mut out);
            for (index, values) in out.chunks_exact(degree).enumerate() {
                let modulus = ring.modulus(index % limbs);
                let expected: Vec<_> = vector.digits[index / limbs]
                    .iter()
                    .map(|&digit| modulus.from_signed_vartime(digit))
                    .collect();
                assert_eq!(values, expected, "{platform:?} digit {}", index / limbs);
            }
        }
    }
}
