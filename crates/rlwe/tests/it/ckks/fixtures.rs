//! Sets, secrets and numbers that the tests start from.

use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{
    Ciphertext, Complex64, Diagonals, Encoder, Encrypted, Evaluate, EvaluationKeys, KeySpec,
    ModulusBits, ParameterSpec, Parameters, Split, decrypt, encrypt,
};
use hushtable_rlwe::ring::{NoiseSource, Platform};

/// A set of `levels` levels with primes of `bits` bits, q_0 ten bits longer (51 at most); without
/// security where `degree` is small.
pub fn parameters(degree: usize, bits: u32, levels: usize) -> Parameters {
    let first = (bits + 10).min(51);
    of_bits(degree, ModulusBits { first, level: bits, special: first }, levels, 1)
}

/// A set without security, with `special` primes in P.
pub fn of_bits(degree: usize, bits: ModulusBits, levels: usize, special: usize) -> Parameters {
    let spec = ParameterSpec::of_bits("ckks_test", degree, bits, levels, special).unwrap();
    Parameters::new(spec, Platform::detect()).unwrap()
}

pub fn source(number: u8) -> NoiseSource {
    NoiseSource::from_seed(&[number; 32])
}

/// `count` numbers from −1 to 1, of a seed.
pub fn numbers(number: u8, count: usize) -> Vec<f64> {
    let mut source = source(number);
    let mut out = Vec::with_capacity(count + 4);
    while out.len() < count {
        let number = |word: &[u8]| u64::from_le_bytes(word.try_into().unwrap()) >> 11;
        let scale = 2f64.powi(-52);
        out.extend(source.seed().chunks_exact(8).map(|word| number(word) as f64 * scale - 1.0));
    }
    out.truncate(count);
    out
}

pub fn complex_numbers(number: u8, count: usize) -> Vec<Complex64> {
    let parts = numbers(number, 2 * count);
    parts.chunks_exact(2).map(|parts| Complex64::new(parts[0], parts[1])).collect()
}

/// One client: a secret and what it encrypts and decrypts with.
pub struct Client {
    pub parameters: Parameters,
    pub encoder: Encoder,
    pub secret: SecretKey,
    pub source: NoiseSource,
    encrypted: u64,
}

impl Client {
    pub fn new(parameters: &Parameters, number: u8) -> Self {
        let mut source = source(number);
        let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
        let encoder = Encoder::new(parameters);
        Self { parameters: parameters.clone(), encoder, secret, source, encrypted: 0 }
    }

    /// An encryption of real `values`, at the scale of fresh ciphertexts.
    pub fn encrypt(&mut self, values: &[f64], level: usize) -> Ciphertext {
        let plain = self.encoder.encode_real(values, level, self.parameters.scale()).unwrap();
        self.encrypted += 1;
        let (seed, index) = ([7; 32], self.encrypted);
        encrypt(&self.parameters, &self.secret, &plain, &seed, index, &mut self.source).unwrap()
    }

    /// Keys for products and rotations by `steps`, at every level.
    pub fn keys(&mut self, steps: &[usize]) -> EvaluationKeys {
        let spec = KeySpec::at_every_level(&self.parameters, steps.iter().copied());
        let (parameters, secret) = (&self.parameters, &self.secret);
        EvaluationKeys::generate(parameters, secret, &spec, &[8; 32], &mut self.source).unwrap()
    }

    pub fn decrypt(&self, ciphertext: &Ciphertext) -> Vec<f64> {
        let plain = decrypt(&self.parameters, &self.secret, ciphertext).unwrap();
        self.encoder.decode_real(&plain)
    }
}

/// The square root of the mean square of a difference.
pub fn deviation(found: &[f64], expected: &[f64]) -> f64 {
    let pairs = found.iter().zip(expected.iter().cycle());
    let squares: f64 = pairs.map(|(found, expected)| (found - expected).powi(2)).sum();
    (squares / found.len() as f64).sqrt()
}

/// The largest difference between two vectors, of which `expected` repeats.
pub fn largest_error(found: &[f64], expected: &[f64]) -> f64 {
    let pairs = found.iter().zip(expected.iter().cycle());
    hushtable_rlwe::largest(pairs.map(|(found, expected)| found - expected))
}

/// The numbers of a ciphertext.
pub(super) fn words(x: &Ciphertext) -> Vec<u64> {
    [x.parts().mask.values(), x.parts().body.values()].concat()
}

/// What every operation that switches by a key makes, at the level of `x` and at the one below; rotations are
/// by at most 24.
pub(super) fn key_switches(evaluator: &mut Encrypted, [x, y]: [&Ciphertext; 2]) -> Vec<Ciphertext> {
    let slots = evaluator.parameters().slots();
    let mut out = Vec::new();
    for level in [x.level(), x.level() - 1] {
        let [mut x, mut y] = [x.clone(), y.clone()];
        evaluator.drop_to(&mut x, level).unwrap();
        evaluator.drop_to(&mut y, level).unwrap();
        out.push(evaluator.multiply(&x, &y).unwrap());
        out.push(evaluator.square_rescale(&x).unwrap());
        out.push(evaluator.rotate(&x, 5).unwrap());
        out.extend(evaluator.rotate_many(&x, &[1, 0, 2]).unwrap());
        out.push(evaluator.conjugate(&x).unwrap());
        for (inner_steps, is_chained) in [(8, false), (2, false), (8, true), (1, false)] {
            let split = Split { inner_steps, is_chained, ..Split::new(8) };
            let mut maps = Vec::new();
            for steps in [[0, 1, 2, 3, 11, 16], [1, 3, 8, 10, 16, 17]] {
                let mut map = Diagonals::new(slots);
                for step in steps {
                    map.insert(step, numbers(step as u8, slots)).unwrap();
                }
                maps.push(evaluator.prepare(&map, split, level, 2f64.powi(40)).unwrap());
            }
            let maps: Vec<_> = maps.iter().collect();
            out.push(evaluator.transform_rescale(&maps, &[&x, &y]).unwrap());
        }
    }
    out
}
