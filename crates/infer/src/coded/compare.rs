//! Both lookups, timed on the same embedding.

use std::time::Instant;

use hushtable_rlwe::ckks::{
    Encoder, Encrypted, Error, Evaluate, EvaluationKeys, KeySpec, ModulusBits, ParameterSpec,
    Parameters, decrypt, encrypt,
};
use hushtable_rlwe::ring::{NoiseSource, Platform};
use hushtable_rlwe::{SecretKey, largest};
use serde::Serialize;

use super::{DigitTables, Indicator};

/// One way's figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// N.
    pub degree: usize,
    /// Levels that the lookup takes.
    pub levels: usize,
    /// Ciphertexts that the embedding comes out in.
    pub ciphertexts: usize,
    /// The server's time, the least of the runs.
    pub ms: f64,
    /// Evaluation keys, as they are sent.
    pub key_bytes: usize,
    /// Largest error of a number of the embedding.
    pub error: f64,
}

/// Both ways of one lookup.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Numbers of an embedding.
    pub dim: usize,
    /// p.
    pub base: usize,
    /// Tokens of an index.
    pub digits: usize,
    /// CodedHELUT, in the smallest ring that carries its levels at 128 bits.
    pub coded: Figures,
    /// One-hots from the client, and one linear map, in the smallest ring that carries that.
    pub linear: Figures,
    /// The same map in CodedHELUT's ring.
    pub same_ring: Figures,
}

/// Looks one embedding of `dim` numbers up both ways, `runs` times, on one thread: an index of
/// `digits` tokens of base `base` (one that [`Indicator::of_base`] knows), rows as wide as real ones.
///
/// # Errors
/// What the parameters and the evaluator refuse.
///
/// # Panics
/// If the base has no indicator, or there are no runs.
pub fn compare(
    dim: usize,
    base: usize,
    digits: usize,
    runs: usize,
    platform: Platform,
) -> Result<Comparison, Error> {
    let indicator = Indicator::of_base(base).expect("a base that has an indicator");
    assert!(runs > 0, "at least one run");
    let number = |index: usize| ((index * 7919 + 13) % 2001) as f64 / 1000.0 - 1.0;
    let tables =
        DigitTables::new(base, digits, dim, (0..base * digits * dim).map(number).collect());
    let tokens: Vec<_> = (0..digits).map(|table| (5 * table + 1) % base).collect();
    let expected = tables.lookup(&tokens);

    let levels = indicator.depth() + 1;
    let setting = Setting::new(levels, LOG2_MIN, platform, |parameters| {
        let width = tables.width();
        let doublings = (0..width.ilog2()).map(|doubling| 1 << doubling);
        let mut spec = KeySpec::at_every_level(parameters, []);
        // Sums are rotated when all is multiplied: at level 0.
        spec.rotations.extend(doublings.map(|steps| (steps, 0)));
        spec
    })?;
    let coded =
        setting.time(runs, &tables.repeated(&tokens), &expected, |evaluator, repeated| {
            let columns = tables.columns(evaluator, 1, setting.parameters.scale())?;
            let started = Instant::now();
            let found = tables.lookup_coded(evaluator, indicator, &columns, repeated)?;
            Ok((found, started.elapsed().as_secs_f64() * 1e3))
        })?;

    let linear = |log2_min: u32| {
        let setting = Setting::new(1, log2_min, platform, |parameters| {
            let map = tables.map(parameters.slots()).expect("embeddings fit");
            let (babies, giants) = tables.split().rotations(map.steps());
            let rotations = babies.into_iter().chain(giants);
            KeySpec { products: None, ..KeySpec::at_every_level(parameters, rotations) }
        })?;
        let map = tables.map(setting.parameters.slots())?;
        setting.time(runs, &tables.one_hot(&tokens), &expected, |evaluator, one_hot| {
            let prepared =
                evaluator.prepare(&map, tables.split(), 1, setting.parameters.scale())?;
            let started = Instant::now();
            let mut found = evaluator.transform(&[&prepared], &[one_hot])?;
            evaluator.rescale(&mut found)?;
            Ok((vec![found], started.elapsed().as_secs_f64() * 1e3))
        })
    };
    let (same_ring, linear) = (linear(coded.degree.ilog2())?, linear(LOG2_MIN)?);
    Ok(Comparison { dim, base, digits, coded, linear, same_ring })
}

/// log2 of the smallest ring.
const LOG2_MIN: u32 = 13;

/// Parameters, a client and its keys.
struct Setting {
    parameters: Parameters,
    encoder: Encoder,
    secret: SecretKey,
    keys: EvaluationKeys,
    key_bytes: usize,
}

impl Setting {
    /// Of the smallest ring from 2^`log2_min` on that carries `levels` levels at 128 bits.
    fn new(
        levels: usize,
        log2_min: u32,
        platform: Platform,
        keys: impl Fn(&Parameters) -> KeySpec,
    ) -> Result<Self, Error> {
        let bits = ModulusBits { first: 50, level: 40, special: 50 };
        let of_degree = |log2: u32| {
            let spec = ParameterSpec::of_bits("lookup", 1 << log2, bits, levels, 1)?;
            Parameters::new(spec, platform)
        };
        let mut parameters = of_degree(log2_min);
        for log2 in log2_min + 1..=16 {
            if parameters.is_err() {
                parameters = of_degree(log2);
            }
        }
        let parameters = parameters?;
        let spec = keys(&parameters);
        let mut source = NoiseSource::from_os()?;
        let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
        let seed = source.seed();
        let keys = EvaluationKeys::generate(&parameters, &secret, &spec, &seed, &mut source)?;
        let key_bytes = hushtable_rlwe::ckks::key_bytes(&parameters, &spec)?;
        Ok(Self { encoder: Encoder::new(&parameters), parameters, secret, keys, key_bytes })
    }

    /// Encrypts `input`, has `lookup` do its work `runs` times, and decrypts what it found: a number
    /// a ciphertext, or all in the first slots of one.
    fn time(
        &self,
        runs: usize,
        input: &[f64],
        expected: &[f64],
        lookup: impl Fn(&mut Encrypted<'_>, &Ciphertext) -> Result<(Vec<Ciphertext>, f64), Error>,
    ) -> Result<Figures, Error> {
        let (parameters, levels) = (&self.parameters, self.parameters.levels());
        let mut source = NoiseSource::from_os()?;
        let seed = source.seed();
        let plain = self.encoder.encode_real(input, levels, parameters.scale())?;
        let sent = encrypt(parameters, &self.secret, &plain, &seed, 0, &mut source)?;
        let mut evaluator = Encrypted::new(&self.encoder, &self.keys);
        let (mut found, mut ms) = (Vec::new(), f64::INFINITY);
        for _ in 0..runs {
            let (answer, took) = lookup(&mut evaluator, &sent)?;
            (found, ms) = (answer, ms.min(took));
        }
        let mut numbers = Vec::new();
        for ciphertext in &found {
            let slots = self.encoder.decode_real(&decrypt(parameters, &self.secret, ciphertext)?);
            let of_each = if found.len() == 1 { expected.len() } else { 1 };
            numbers.extend_from_slice(&slots[..of_each]);
        }
        let errors = numbers.iter().zip(expected).map(|(found, expected)| found - expected);
        Ok(Figures {
            degree: parameters.degree(),
            levels,
            ciphertexts: found.len(),
            ms,
            key_bytes: self.key_bytes,
            error: largest(errors),
        })
    }
}

type Ciphertext = hushtable_rlwe::ckks::Ciphertext;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_find_the_embedding_under_encryption() {
        let found = compare(5, 4, 3, 1, Platform::detect()).unwrap();
        // Its authors' indicator is within 2 % of 0 and 1 before cleaning, 0.1 % after.
        assert!(found.coded.error < 0.02, "{found:?}");
        assert!(found.linear.error < 1e-4, "{found:?}");
        assert_eq!((found.coded.ciphertexts, found.linear.ciphertexts), (5, 1));
        assert_eq!((found.coded.levels, found.linear.levels), (10, 1));
        assert!(found.coded.degree > found.linear.degree);
        assert_eq!(found.same_ring.degree, found.coded.degree);
        assert!(found.same_ring.error < 1e-4 && found.same_ring.levels == 1, "{found:?}");
    }
}
