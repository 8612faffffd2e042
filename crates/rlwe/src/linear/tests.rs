//! Sums, their noise, what they hide, and bytes that are none.

use hushtable_ring::{Coefficients, NoiseSource, Platform, Poly};

use super::*;
use crate::Error;

/// Both parties, and encryptions of random numbers.
struct Fixture {
    parameters: Parameters,
    client: Client,
    key: PublicKey,
    plain: Vec<Vec<u64>>,
    uploads: Vec<Upload>,
    source: NoiseSource,
}

impl Fixture {
    fn new(name: &str, bits: u32, count: usize, seed: u8) -> Self {
        let parameters = Parameters::new(name, bits, Platform::detect()).unwrap();
        let mut source = NoiseSource::from_seed(&[seed; 32]);
        let client = Client::draw(parameters.clone(), &mut source);
        let key = PublicKey::read(&parameters, &client.public_key(&mut source)).unwrap();
        let plain: Vec<_> =
            (0..count).map(|_| numbers(&mut source, parameters.degree(), bits)).collect();
        let upload = |(index, plain): (u64, &Vec<u64>)| {
            let mut bytes = Vec::new();
            client.encrypt(index, plain, &mut source, &mut bytes);
            key.upload(&parameters, index, &bytes).unwrap()
        };
        let uploads = (1..).zip(&plain).map(upload).collect();
        Self { client, key, plain, uploads, source, parameters }
    }

    /// Weights of absolute value at most `largest`, a few in each polynomial.
    fn weights(&mut self, taps: usize, largest: i32) -> Vec<Vec<(usize, i32)>> {
        let degree = self.parameters.degree();
        let mut polynomial = || -> Vec<(usize, i32)> {
            let draw = numbers(&mut self.source, taps, 64);
            let tap = |(index, draw): (usize, u64)| {
                let weight = (draw % (2 * largest as u64 + 1)) as i32 - largest;
                (index * (degree / taps) + (draw >> 40) as usize % (degree / taps), weight)
            };
            draw.into_iter().enumerate().map(tap).collect()
        };
        self.plain.iter().map(|_| polynomial()).collect()
    }

    fn sum(&self, weights: &[Vec<(usize, i32)>]) -> Sum {
        let parameters = &self.parameters;
        let mut plaintexts = Plaintexts::new(parameters, weights.len(), 1);
        for taps in weights {
            plaintexts.push(parameters, |each| taps.iter().for_each(|&(at, w)| each(at, w)));
        }
        let mut sums = [Sum::zero(parameters)];
        let uploads = [self.uploads.iter().collect()];
        add_products(parameters, &plaintexts, &uploads, &mut [&mut sums]);
        let [sum] = sums;
        sum
    }

    /// The sum of the plain polynomials, modulo 2^64.
    fn clear(&self, weights: &[Vec<(usize, i32)>]) -> Vec<u64> {
        let degree = self.parameters.degree();
        let mut out = vec![0u64; degree];
        for (plain, taps) in self.plain.iter().zip(weights) {
            for &(at, weight) in taps {
                for (index, value) in plain.iter().enumerate() {
                    let product = value.wrapping_mul(i64::from(weight) as u64);
                    let to = &mut out[(at + index) % degree];
                    *to = if at + index < degree {
                        to.wrapping_add(product)
                    } else {
                        to.wrapping_sub(product)
                    };
                }
            }
        }
        out
    }

    fn energy(weights: &[Vec<(usize, i32)>]) -> f64 {
        weights.iter().flatten().map(|&(_, weight)| f64::from(weight).powi(2)).sum()
    }

    /// poly − round(Q · values / t), as numbers; for two limbs.
    fn noise(&self, mut poly: Poly<Coefficients>, values: &[u64]) -> Vec<i128> {
        let ring = self.parameters.ring();
        let mask = u64::MAX >> (64 - self.parameters.bits());
        let values: Vec<_> = values.iter().map(|value| value & mask).collect();
        ring.sub_assign(&mut poly, &self.parameters.encode(&values));
        let of = |index: usize| ring.crt().compose_signed(|limb| poly.limb(limb)[index]);
        (0..ring.degree()).map(of).collect()
    }
}

fn numbers(source: &mut NoiseSource, count: usize, bits: u32) -> Vec<u64> {
    let mut out = vec![0; count];
    source.words(&mut out);
    out.iter().map(|word| word >> (64 - bits)).collect()
}

#[test]
fn sums_are_opened_whatever_the_bits() {
    for (name, bits) in [
        ("linear_4096", 16),
        ("linear_4096", 37),
        ("linear_4096", 40),
        ("linear_4096", 41),
        ("linear_4096", 44),
        ("linear_8192", 16),
        ("linear_8192", 48),
        ("linear_8192", 49),
        ("linear_8192", 64),
        ("linear_8192_verified", 16),
        ("linear_8192_verified", 45),
        ("linear_8192_4_verified", 49),
        ("linear_8192_4_verified", 62),
    ] {
        let mut fixture = Fixture::new(name, bits, 3, bits as u8);
        let weights = fixture.weights(16, 9);
        let wanted: Vec<usize> = (0..fixture.parameters.degree()).step_by(3).collect();
        let mut shares = numbers(&mut fixture.source, wanted.len(), bits);
        shares[..2].copy_from_slice(&[0, u64::MAX >> (64 - bits)]);
        let mut bytes = Vec::new();
        let mut source = NoiseSource::from_seed(&[9; 32]);
        let (parameters, key) = (&fixture.parameters, &fixture.key);
        fixture.sum(&weights).seal(parameters, key, &wanted, &shares, &mut source, &mut bytes);
        assert_eq!(bytes.len(), parameters.answer_bytes(wanted.len()));
        let mut found = vec![0; wanted.len()];
        fixture.client.open(&bytes, &wanted, &mut found).unwrap();
        let clear = fixture.clear(&weights);
        for ((&at, share), found) in wanted.iter().zip(shares).zip(found) {
            let expected = clear[at].wrapping_sub(share) & (u64::MAX >> (64 - bits));
            assert_eq!(found, expected, "{name} {bits}: coefficient {at}");
        }
    }
}

#[test]
fn noise_stays_below_its_bound_and_not_far() {
    for (taps, largest) in [(1, 1), (9, 100), (64, 4000), (4096, 30)] {
        let mut fixture = Fixture::new("linear_4096", 37, 8, 5);
        let weights = fixture.weights(taps, largest);
        let wanted: Vec<usize> = (0..4096).collect();
        let shares = vec![0; 4096];
        let mut source = NoiseSource::from_seed(&[9; 32]);
        let (sum, again) = (fixture.sum(&weights), fixture.sum(&weights));
        let clear = fixture.clear(&weights);
        let before = fixture.noise(fixture.client.phase(&sum), &clear);
        let (parameters, key) = (&fixture.parameters, &fixture.key);
        // Re-randomised, with a flood of −1 and 0.
        let [mask, body] = again.hide(parameters, key, (&wanted, &shares), 0, &mut source);
        let sealed = Sum::of(parameters, mask, body);
        let after = fixture.noise(fixture.client.phase(&sealed), &clear);
        let largest_of =
            |noise: &[i128]| noise.iter().map(|x| x.unsigned_abs()).max().unwrap() as f64;
        let bound = noise_log2(4096, Fixture::energy(&weights)).exp2();
        let [before, after] = [largest_of(&before), largest_of(&after)];
        assert!(before < bound && after < bound, "{taps}: {before} {after} of {bound}");
        assert!(after > bound / 8.0, "{taps}: {after} of {bound}");
    }
}

#[test]
fn weights_beyond_the_bound_of_a_set_are_known() {
    let parameters = Parameters::new("linear_4096", 37, Platform::detect()).unwrap();
    assert_eq!((parameters.flood_log2(), parameters.noise_log2_max()), (63, 23.0));
    // 4,608 weights of about 12 fraction bits of a layer of 512 channels.
    assert!(noise_log2(4096, 4608.0 * 85.0 * 85.0) < 23.0);
    assert!(noise_log2(4096, 4608.0 * 85_000.0 * 85_000.0) > 23.0);
}

/// Does the client's view depend on the weights? It knows its uploads and may guess the weights: then it
/// knows the masks' sum and the errors' sum. |correlation| · √N between what it sees and what it guesses.
fn statistics(seed: u8, flood_log2: u32, is_random: bool) -> [f64; 2] {
    let mut fixture = Fixture::new("linear_4096", 37, 4, seed);
    let weights = fixture.weights(9, 4000);
    let clear = fixture.clear(&weights);
    let sum = fixture.sum(&weights);
    let ring = fixture.parameters.ring().clone();
    let guessed_mask = ring.inverse(sum.ciphertext().mask.clone());
    let guessed_noise = fixture.noise(fixture.client.phase(&sum), &clear);
    let wanted: Vec<usize> = (0..4096).collect();
    let shares = vec![0; 4096];
    let mut source = NoiseSource::from_seed(&[seed ^ 0x55; 32]);
    let hidden = (&wanted[..], &shares[..]);
    let (parameters, key) = (&fixture.parameters, &fixture.key);
    let again = fixture.sum(&weights);
    let [mask, body] = if is_random {
        again.hide(parameters, key, hidden, flood_log2, &mut source)
    } else {
        // The planted leak: no encryption of zero is added.
        let zero = PublicKey::zero(parameters);
        again.hide(parameters, &zero, hidden, flood_log2, &mut source)
    };
    let centred = |poly: &Poly<Coefficients>| -> Vec<f64> {
        let of = |index: usize| ring.crt().compose_signed(|limb| poly.limb(limb)[index]) as f64;
        (0..4096).map(of).collect()
    };
    let masks = correlation(&centred(&mask), &centred(&guessed_mask));
    let noise = fixture.noise(fixture.client.phase(&Sum::of(parameters, mask, body)), &clear);
    let floats = |noise: Vec<i128>| noise.into_iter().map(|x| x as f64).collect::<Vec<_>>();
    [masks, correlation(&floats(noise), &floats(guessed_noise))]
}

fn correlation(x: &[f64], y: &[f64]) -> f64 {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    dot(x, y).abs() / (dot(x, x) * dot(y, y)).sqrt() * (x.len() as f64).sqrt()
}

#[test]
fn answers_tell_nothing_of_the_weights() {
    const LARGEST: f64 = 5.0;
    for seed in 0..12 {
        let found = statistics(seed, 63, true);
        assert!(found.iter().all(|&found| found < LARGEST), "{seed}: {found:?}");
    }
    let [masks, _] = statistics(1, 63, false);
    assert!(masks > LARGEST, "sums of masks went unseen: {masks}");
    let [_, noise] = statistics(1, 20, true);
    assert!(noise > LARGEST, "a flood as large as the noise went unseen: {noise}");
}

#[test]
fn bytes_that_are_none_are_refused() {
    let fixture = Fixture::new("linear_4096", 37, 1, 1);
    let parameters = &fixture.parameters;
    let key_bytes = PublicKey::bytes(parameters);
    for length in [0, 31, 32, key_bytes - 1, key_bytes + 1] {
        let refused = PublicKey::read(parameters, &vec![0; length]);
        assert!(matches!(refused, Err(Error::Bytes { .. })), "{length}");
    }
    let refused = PublicKey::read(parameters, &vec![0xff; key_bytes]);
    assert!(matches!(refused, Err(Error::Residue { .. })));
    let bytes = parameters.upload_bytes();
    for length in [0, bytes - 1, bytes + 1] {
        let refused = fixture.key.upload(parameters, 1, &vec![0; length]);
        assert!(matches!(refused, Err(Error::Bytes { .. })), "{length}");
    }
    let refused = fixture.key.upload(parameters, 1, &vec![0xff; bytes]);
    assert!(matches!(refused, Err(Error::Residue { .. })));
    let mut out = [0; 3];
    for (name, bits) in [("linear_4096", 37), ("linear_4096", 44), ("linear_8192", 64)] {
        let fixture = Fixture::new(name, bits, 0, 1);
        let bytes = fixture.parameters.answer_bytes(3);
        for length in [0, bytes - 1, bytes + 1] {
            let refused = fixture.client.open(&vec![0; length], &[0, 5, 9], &mut out);
            assert!(matches!(refused, Err(Error::Bytes { .. })), "{length}");
        }
        // Any bytes of the right length are numbers: which, nobody promises.
        for byte in [0, 0x55, 0xff] {
            fixture.client.open(&vec![byte; bytes], &[0, 5, 9], &mut out).unwrap();
            assert!(out.iter().all(|value| value >> (bits - 1) >> 1 == 0));
        }
    }
}

#[test]
fn sets_and_bits_that_there_are_not_are_refused() {
    let new = |name: &str, bits| Parameters::new(name, bits, Platform::detect());
    assert!(matches!(new("linear_2048", 37), Err(Error::UnknownSet { .. })));
    for (name, bits) in [("linear_4096", 15), ("linear_4096", 65), ("linear_8192", 0)] {
        assert!(matches!(new(name, bits), Err(Error::LinearBits { .. })), "{name} {bits}");
    }
    // All bits are carried; what they leave for noise is another question.
    for bits in 16..=64 {
        assert!(new("linear_8192", bits).unwrap().noise_log2_max() > 40.0);
    }
}

/// Reads the parities of 64 weights with one upload of half a step, by what an answer's phase is beside whole steps;
/// how many of them are right.
fn parities_read(name: &str) -> usize {
    let bits = 37;
    let mut fixture = Fixture::new(name, bits, 1, 5);
    let parameters = fixture.parameters.clone();
    // The same secret and masks; 1/2 in units of a step.
    let fine =
        Parameters::new(&name.replace("_verified", ""), bits + 1, Platform::detect()).unwrap();
    let fine = Client::draw(fine, &mut NoiseSource::from_seed(&[5; 32]));
    let mut half = vec![0; parameters.degree()];
    half[0] = 1;
    let mut bytes = Vec::new();
    fine.encrypt(1, &half, &mut fixture.source, &mut bytes);
    fixture.uploads = vec![fixture.key.upload(&parameters, 1, &bytes).unwrap()];
    let weights: Vec<_> = fixture.weights(64, 1 << 12).swap_remove(0);
    let sum = fixture.sum(std::slice::from_ref(&weights));
    let wanted: Vec<_> = weights.iter().map(|&(at, _)| at).collect();
    let shares = numbers(&mut fixture.source, wanted.len(), bits);
    let flood = parameters.flood_log2();
    let hidden =
        sum.hide(&parameters, &fixture.key, (&wanted, &shares), flood, &mut fixture.source);
    let [mask, body] = hidden;
    let phase = fixture.client.phase(&Sum::of(&parameters, mask, body));
    // Of the phase times 2^bits / Q, what is beside the nearest integer.
    let (ring, two) = (parameters.ring(), parameters.ring().prefix(2).unwrap());
    let phase = server::drop_limbs(ring, &two, phase);
    let product = two.crt().product().unwrap() as f64;
    let fraction = |at: usize| {
        let value = two.crt().compose_signed(|limb| phase.limb(limb)[at]);
        let scaled = value as f64 / product * f64::from(bits).exp2();
        scaled - scaled.round()
    };
    let right = weights.iter().filter(|&&(at, weight)| {
        let is_odd = fraction(at).abs() > 0.25;
        is_odd == (weight & 1 == 1)
    });
    right.count()
}

#[test]
fn half_steps_read_parities_but_where_answers_hide_them() {
    // What a proof rules out elsewhere; a proof lets half steps pass, and answers hide them.
    assert_eq!(parities_read("linear_4096"), 64);
    let found = parities_read("linear_8192_verified");
    assert!((14..=50).contains(&found), "{found} of 64");
}
