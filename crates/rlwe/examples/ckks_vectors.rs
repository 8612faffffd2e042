//! Prints `vectors/ckks.json`: encodings, fresh ciphertexts, keys and what is computed with them, from
//! given seeds.
//!
//! `cargo run -p hushtable-rlwe --example ckks_vectors > vectors/ckks.json`

use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{
    Complex64, Encoder, Encrypted, Error, Evaluate, EvaluationKeys, KeySpec, ModulusBits,
    ParameterSpec, Parameters, encrypt, write_keys,
};
use hushtable_rlwe::pack::pack_poly;
use hushtable_rlwe::ring::{NoiseSource, Platform};
use serde_json::{Value, json};

fn main() -> Result<(), Error> {
    // One prime in P and two; all slots and short vectors; levels and scales that are not the first.
    let vectors = [
        vector(16, 1, (0, 2, 40), &[(0.5, -0.25), (1.0, 0.0), (-3.75, 2.0), (0.1, 0.2)])?,
        vector(32, 2, (7, 1, 30), &[(0.7, 0.0)])?,
        vector(32, 2, (1 << 40, 3, 36), &[(1e-3, 0.0), (-123.456, 0.0)])?,
    ];
    let file = json!({ "format": 1, "vectors": vectors });
    println!("{}", serde_json::to_string_pretty(&file).expect("a value without maps of odd keys"));
    Ok(())
}

fn vector(
    degree: usize,
    special: usize,
    (index, level, scale_log2): (u64, usize, u32),
    values: &[(f64, f64)],
) -> Result<Value, Error> {
    let bits = ModulusBits { first: 48, level: 40, special: 49 };
    let spec = ParameterSpec::of_bits("ckks_test", degree, bits, 3, special)?;
    let parameters = Parameters::new(spec.clone(), Platform::detect())?;
    // One source gives the secret, the errors of the ciphertext, and those of the keys.
    let seed = [degree as u8 + special as u8; 32];
    let (mask_seed, key_seed) = ([0xa0 + special as u8; 32], [0xb0; 32]);
    let mut source = NoiseSource::from_seed(&seed);
    let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
    let encoder = Encoder::new(&parameters);
    let slots: Vec<_> = values.iter().map(|&(re, im)| Complex64::new(re, im)).collect();
    let scale = f64::from(scale_log2).exp2();
    let plain = encoder.encode(&slots, level, scale)?;
    let mut encoded = Vec::new();
    pack_poly(parameters.ring(level), plain.poly(), &mut encoded);
    let fresh = encrypt(&parameters, &secret, &plain, &mask_seed, index, &mut source)?;
    let key_spec = KeySpec::at_every_level(&parameters, [1, 3]);
    let mut bytes = Vec::new();
    let sink = |piece: &[u8]| bytes.extend(piece);
    write_keys(&parameters, &secret, &key_spec, &key_seed, &mut source, sink)?;
    let keys = EvaluationKeys::parse(&parameters, &key_spec, &bytes)?;
    let mut evaluator = Encrypted::new(&encoder, &keys);
    let rotated = evaluator.rotate(&fresh, 3)?;
    let squared = evaluator.square_rescale(&fresh)?;
    Ok(json!({
        "degree": degree,
        "moduli": spec.moduli,
        "special_moduli": spec.special_moduli,
        "seed": hex(&seed),
        "mask_seed": hex(&mask_seed),
        "key_seed": hex(&key_seed),
        "index": index,
        "level": level,
        "scale_log2": scale_log2,
        "values": values,
        "encoded": hex(&encoded),
        "fresh": hex(&fresh.to_fresh_bytes(&parameters, &mask_seed, index)?),
        "rotations": [1, 3],
        "keys": hex(&bytes),
        "rotated_by_3": hex(&rotated.to_bytes(&parameters)),
        "squared": hex(&squared.to_bytes(&parameters)),
    }))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
