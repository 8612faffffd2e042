//! Known answers: `vectors/ckks.json` and `vectors/ckks_bootstrap.json`, which this crate made, byte by byte,
//! and `vectors/ckks_tenseal.json`, which another library made, number by number.

use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{
    Basis, Bootstrap, BootstrapLevels, Ciphertext, Complex64, Diagonals, Encoder, Encrypted,
    Evaluate, EvaluationKeys, KeySpec, ModulusBits, ParameterSpec, Parameters, Polynomial, Split,
    decrypt, encrypt, write_keys,
};
use hushtable_rlwe::pack::pack_poly;
use hushtable_rlwe::ring::{NoiseSource, Platform};
use serde::Deserialize;
use std::collections::BTreeMap;

use super::fixtures::{Client, largest_error};

#[derive(Deserialize)]
struct File {
    format: u32,
    vectors: Vec<Vector>,
}

#[derive(Deserialize)]
struct Vector {
    degree: usize,
    moduli: Vec<u64>,
    special_moduli: Vec<u64>,
    seed: String,
    mask_seed: String,
    key_seed: String,
    index: u64,
    level: usize,
    scale_log2: u32,
    values: Vec<(f64, f64)>,
    encoded: String,
    fresh: String,
    rotations: Vec<usize>,
    keys: String,
    rotated_by_3: String,
    squared: String,
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn seed(hex: &str) -> [u8; 32] {
    bytes(hex).try_into().unwrap()
}

#[test]
fn the_vectors_come_out_again() {
    let file: File =
        serde_json::from_str(include_str!("../../../../../vectors/ckks.json")).unwrap();
    assert_eq!(file.format, 1);
    assert_eq!(file.vectors.len(), 3);
    for vector in file.vectors {
        let spec = ParameterSpec {
            name: "ckks_test".to_owned(),
            degree: vector.degree,
            moduli: vector.moduli,
            special_moduli: vector.special_moduli,
            scale_log2: 40,
        };
        let parameters = Parameters::new(spec, Platform::detect()).unwrap();
        let mut source = NoiseSource::from_seed(&seed(&vector.seed));
        let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
        let encoder = Encoder::new(&parameters);
        let slots: Vec<Complex64> =
            vector.values.iter().map(|&(re, im)| Complex64::new(re, im)).collect();
        let scale = f64::from(vector.scale_log2).exp2();
        let plain = encoder.encode(&slots, vector.level, scale).unwrap();
        let mut encoded = Vec::new();
        pack_poly(parameters.ring(vector.level), plain.poly(), &mut encoded);
        assert_eq!(encoded, bytes(&vector.encoded));
        let (mask_seed, index) = (seed(&vector.mask_seed), vector.index);
        let fresh = encrypt(&parameters, &secret, &plain, &mask_seed, index, &mut source).unwrap();
        let fresh_bytes = fresh.to_fresh_bytes(&parameters, &mask_seed, index).unwrap();
        assert_eq!(fresh_bytes, bytes(&vector.fresh));
        let key_spec = KeySpec::at_every_level(&parameters, vector.rotations);
        let mut key_bytes = Vec::new();
        let sink = |piece: &[u8]| key_bytes.extend(piece);
        let key_seed = seed(&vector.key_seed);
        write_keys(&parameters, &secret, &key_spec, &key_seed, &mut source, sink).unwrap();
        assert_eq!(key_bytes, bytes(&vector.keys));
        // From here on, what a server does with bytes.
        let keys = EvaluationKeys::parse(&parameters, &key_spec, &key_bytes).unwrap();
        let fresh = Ciphertext::parse(&parameters, &bytes(&vector.fresh)).unwrap();
        let mut evaluator = Encrypted::new(&encoder, &keys);
        let rotated = evaluator.rotate(&fresh, 3).unwrap();
        assert_eq!(rotated.to_bytes(&parameters), bytes(&vector.rotated_by_3));
        let squared = evaluator.square_rescale(&fresh).unwrap();
        assert_eq!(squared.to_bytes(&parameters), bytes(&vector.squared));
        // And they hold what they say.
        let found = encoder.decode(&decrypt(&parameters, &secret, &rotated).unwrap());
        for (slot, found) in found.iter().enumerate() {
            let expected = slots[(slot + 3) % slots.len()];
            assert!((found - expected).norm() < 400.0 / scale, "{found} {expected}");
        }
    }
}

#[derive(Deserialize)]
struct Bootstraps {
    format: u32,
    vectors: Vec<Refreshed>,
}

/// A bootstrap, by digests of what each of its stages gives.
#[derive(Deserialize)]
struct Refreshed {
    degree: usize,
    moduli: Vec<u64>,
    special_moduli: Vec<u64>,
    to_coefficients: usize,
    left: usize,
    to_slots: usize,
    special: (u32, usize),
    range: f64,
    seed: String,
    mask_seed: String,
    key_seed: String,
    values: Vec<f64>,
    digests: BTreeMap<String, String>,
}

#[test]
fn bootstraps_come_out_again_on_every_platform() {
    let text = include_str!("../../../../../vectors/ckks_bootstrap.json");
    let file: Bootstraps = serde_json::from_str(text).unwrap();
    assert_eq!((file.format, file.vectors.len()), (1, 2));
    for vector in &file.vectors {
        for platform in Platform::available() {
            let found = refreshed(vector, platform);
            // Roots of unity are of the C library, whose last bits others may give otherwise.
            if cfg!(all(target_os = "linux", target_env = "gnu")) {
                assert_eq!(found, vector.digests, "{platform:?}");
            }
        }
    }
}

/// What the vector's digests are on a platform.
fn refreshed(vector: &Refreshed, platform: Platform) -> BTreeMap<String, String> {
    let levels = BootstrapLevels {
        to_coefficients: vector.to_coefficients,
        left: vector.left,
        to_slots: vector.to_slots,
        special: vector.special,
        ..BootstrapLevels::R16
    };
    let spec = levels.spec("bootstrap_test", vector.degree).unwrap();
    assert_eq!((&spec.moduli, &spec.special_moduli), (&vector.moduli, &vector.special_moduli));
    let parameters = Parameters::new(spec, platform).unwrap();
    let slots = vector.values.len();
    let bootstrap = Bootstrap::new(&parameters, levels, slots, vector.range).unwrap();
    let mut source = NoiseSource::from_seed(&seed(&vector.seed));
    let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
    let encoder = Encoder::new(&parameters);
    let (level, scale) = (bootstrap.input_level(), parameters.scale());
    let plain = encoder.encode_real(&vector.values, level, scale).unwrap();
    let mask_seed = seed(&vector.mask_seed);
    let input = encrypt(&parameters, &secret, &plain, &mask_seed, 0, &mut source).unwrap();
    let key_spec = bootstrap.key_spec();
    let mut key_bytes = Vec::new();
    let sink = |piece: &[u8]| key_bytes.extend_from_slice(piece);
    write_keys(&parameters, &secret, &key_spec, &seed(&vector.key_seed), &mut source, sink)
        .unwrap();
    let keys = EvaluationKeys::parse(&parameters, &key_spec, &key_bytes).unwrap();
    let mut evaluator = Encrypted::new(&encoder, &keys);
    let prepared = bootstrap.prepare(&evaluator).unwrap();
    let coefficients = prepared.coefficients(&mut evaluator, &input).unwrap();
    let raised = prepared.raise(&mut evaluator, &coefficients).unwrap();
    let in_slots = prepared.slots(&mut evaluator, &raised).unwrap();
    let output = prepared.reduce(&mut evaluator, &in_slots).unwrap();
    // Stage by stage is what it is in one.
    let at_once = prepared.run(&mut evaluator, &input).unwrap();
    assert!(at_once.to_bytes(&parameters) == output.to_bytes(&parameters));
    // It holds what it says.
    let found = encoder.decode_real(&decrypt(&parameters, &secret, &output).unwrap());
    let error = largest_error(&found, &vector.values);
    assert!(error < 2f64.powi(-14), "{error}");
    let stages = [
        ("input", &input),
        ("coefficients", &coefficients),
        ("raised", &raised),
        ("slots", &in_slots),
        ("output", &output),
    ];
    let digest = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
    let stages = stages.map(|(name, x)| (name.to_owned(), digest(&x.to_bytes(&parameters))));
    let keys = ("keys".to_owned(), digest(&key_bytes));
    stages.into_iter().chain([keys]).collect()
}

#[derive(Deserialize)]
struct Foreign {
    format: u32,
    degree: usize,
    a: Vec<f64>,
    b: Vec<f64>,
    matrix: Vec<Vec<f64>>,
    cubic: Vec<f64>,
    exact: BTreeMap<String, Vec<f64>>,
    results: BTreeMap<String, Vec<f64>>,
}

/// The map of vectors of 64 numbers whose row of `matrix` number i has what input i gives to each output.
fn map_of(slots: usize, matrix: &[Vec<f64>]) -> Diagonals {
    let mut map = Diagonals::new(slots);
    let outputs = matrix[0].len();
    for steps in 0..matrix.len() {
        let entry = |slot: usize| matrix[(slot + steps) % matrix.len()][slot % outputs];
        map.insert(steps, (0..matrix.len()).map(entry).collect()).unwrap();
    }
    map
}

#[test]
fn another_library_gets_the_same_values() {
    let text = include_str!("../../../../../vectors/ckks_tenseal.json");
    let foreign: Foreign = serde_json::from_str(text).unwrap();
    assert_eq!(foreign.format, 1);
    let bits = ModulusBits { first: 50, level: 36, special: 51 };
    let spec = ParameterSpec::of_bits("ckks8192", foreign.degree, bits, 3, 1).unwrap();
    let params = Parameters::new(spec, Platform::detect()).unwrap();
    let mut client = Client::new(&params, 50);
    let steps: Vec<usize> = (1..8).chain((8..64).step_by(8)).chain([16, 32]).collect();
    let keys = client.keys(&steps);
    let (a, b) = (&foreign.a, &foreign.b);
    let [x, y] = [a, b].map(|values| client.encrypt(values, 3));
    let encoder = client.encoder.clone();
    let mut e = Encrypted::new(&encoder, &keys);
    let scale = params.scale();
    let split = Split::new(8);
    let sum = |e: &mut Encrypted<'_>, x: &Ciphertext| {
        let mut sum = x.clone();
        e.fold(&mut sum, 1, 64).unwrap();
        sum
    };
    for (name, expected) in &foreign.results {
        let out = match name.as_str() {
            "add" => {
                let mut out = x.clone();
                e.add_assign(&mut out, &y).unwrap();
                out
            }
            "multiply" => e.multiply(&x, &y).unwrap(),
            "multiply_plain" => {
                let mut out = x.clone();
                let plain = e.encode(b, 3, scale).unwrap();
                e.multiply_plain(&mut out, &plain).unwrap();
                out
            }
            "square_square" => {
                let square = e.square_rescale(&x).unwrap();
                e.square_rescale(&square).unwrap()
            }
            "rotate_5" => e.rotate(&x, 5).unwrap(),
            "sum" => sum(&mut e, &x),
            "dot" => {
                let product = e.multiply_rescale(&x, &y).unwrap();
                sum(&mut e, &product)
            }
            "cubic" => {
                let cubic = Polynomial::new(Basis::Monomial, foreign.cubic.clone()).unwrap();
                cubic.evaluate(&mut e, &x, 1, scale).unwrap()
            }
            "layer" => {
                let map = map_of(params.slots(), &foreign.matrix);
                let map = e.prepare(&map, split, 3, scale).unwrap();
                let mut out = e.transform_rescale(&[&map], &[&x]).unwrap();
                let (level, scale) = (e.level(&out), e.scale(&out));
                let bias = e.encode(&b[..16], level, scale).unwrap();
                e.add_plain(&mut out, &bias).unwrap();
                e.square_rescale(&out).unwrap()
            }
            other => panic!("{other} is not known here"),
        };
        let found = client.decrypt(&out);
        let error = largest_error(&found, expected);
        let [ours, theirs] =
            [&found, expected].map(|found| largest_error(found, &foreign.exact[name]));
        println!("{name}: ours 2^{:.1}, theirs 2^{:.1}", ours.log2(), theirs.log2());
        // At scales of 2^36 and 2^40, N = 2^13; the layer squares numbers of up to 20.
        assert!(ours < 2f64.powi(-14) && error < 1e-3, "{name}: {ours}, apart {error}");
    }
    assert_eq!(foreign.results.len(), 9);
}
