//! Prints `vectors/ckks_bootstrap.json`: bootstraps of small sets from given seeds, as digests of the keys
//! and of what each stage gives.
//!
//! `cargo run -p hushtable-rlwe --example ckks_bootstrap_vectors > vectors/ckks_bootstrap.json`

use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{
    Bootstrap, BootstrapLevels, Ciphertext, Encoder, Encrypted, Error, EvaluationKeys, Parameters,
    encrypt, write_keys,
};
use hushtable_rlwe::ring::{NoiseSource, Platform};
use serde_json::{Value, json};

fn main() -> Result<(), Error> {
    let levels = BootstrapLevels { left: 2, special: (51, 3), ..BootstrapLevels::R16 };
    // Few numbers, with a trace; all slots, by three maps each way.
    let full = BootstrapLevels { to_coefficients: 3, to_slots: 3, special: (51, 5), ..levels };
    let vectors = [vector(1024, levels, 64, 1.0)?, vector(1024, full, 512, 2.0)?];
    let file = json!({ "format": 1, "vectors": vectors });
    println!("{}", serde_json::to_string_pretty(&file).expect("a value without maps of odd keys"));
    Ok(())
}

fn vector(
    degree: usize,
    levels: BootstrapLevels,
    slots: usize,
    range: f64,
) -> Result<Value, Error> {
    let spec = levels.spec("bootstrap_test", degree)?;
    let parameters = Parameters::new(spec.clone(), Platform::detect())?;
    let bootstrap = Bootstrap::new(&parameters, levels, slots, range)?;
    // One source gives the secret, the errors of the ciphertext, and the sparse secret and the errors of keys.
    let (seed, mask_seed, key_seed) = ([slots as u8 + 1; 32], [0xc0; 32], [0xd0; 32]);
    let mut source = NoiseSource::from_seed(&seed);
    let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
    let encoder = Encoder::new(&parameters);
    let values: Vec<f64> =
        (0..slots).map(|slot| range * ((slot * 37 % 101) as f64 - 50.0) / 64.0).collect();
    let plain = encoder.encode_real(&values, bootstrap.input_level(), parameters.scale())?;
    let input = encrypt(&parameters, &secret, &plain, &mask_seed, 0, &mut source)?;
    let key_spec = bootstrap.key_spec();
    let mut keys = Vec::new();
    let sink = |piece: &[u8]| keys.extend_from_slice(piece);
    write_keys(&parameters, &secret, &key_spec, &key_seed, &mut source, sink)?;
    let parsed = EvaluationKeys::parse(&parameters, &key_spec, &keys)?;
    let mut evaluator = Encrypted::new(&encoder, &parsed);
    let prepared = bootstrap.prepare(&evaluator)?;
    let coefficients = prepared.coefficients(&mut evaluator, &input)?;
    let raised = prepared.raise(&mut evaluator, &coefficients)?;
    let in_slots = prepared.slots(&mut evaluator, &raised)?;
    let output = prepared.reduce(&mut evaluator, &in_slots)?;
    let digest = |x: &Ciphertext| blake3::hash(&x.to_bytes(&parameters)).to_hex().to_string();
    Ok(json!({
        "degree": degree,
        "moduli": spec.moduli,
        "special_moduli": spec.special_moduli,
        "to_coefficients": levels.to_coefficients,
        "left": levels.left,
        "to_slots": levels.to_slots,
        "special": levels.special,
        "range": range,
        "seed": hex(&seed),
        "mask_seed": hex(&mask_seed),
        "key_seed": hex(&key_seed),
        "values": values,
        "digests": {
            "keys": blake3::hash(&keys).to_hex().to_string(),
            "input": digest(&input),
            "coefficients": digest(&coefficients),
            "raised": digest(&raised),
            "slots": digest(&in_slots),
            "output": digest(&output),
        },
    }))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
