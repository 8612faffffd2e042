//! Operations on ciphertexts against the same on plain numbers, at several levels and key layouts.

use hushtable_rlwe::ckks::{
    Ciphertext, Complex64, Diagonals, Encoder, Encrypted, Error, Evaluate, EvaluationKeys, KeySpec,
    ModulusBits, ParameterSpec, Parameters, Split, Work, decrypt, encrypt, key_bytes, write_keys,
};
use hushtable_rlwe::ring::{NoiseSource, Platform};
use hushtable_rlwe::{SecretKey, largest};

/// A set, a secret and keys for it.
struct Fixture {
    parameters: Parameters,
    encoder: Encoder,
    secret: SecretKey,
    keys: EvaluationKeys,
}

const STEPS: [usize; 12] = [1, 2, 3, 4, 5, 7, 8, 9, 16, 24, 100, 255];

impl Fixture {
    /// `special` primes in P: digits of as many limbs.
    fn new(levels: usize, special: usize) -> Self {
        Self::on(Platform::detect(), levels, special)
    }

    fn on(platform: Platform, levels: usize, special: usize) -> Self {
        let bits = ModulusBits { first: 50, level: 40, special: 50 };
        let spec = ParameterSpec::of_bits("ckks_test", 512, bits, levels, special).unwrap();
        let parameters = Parameters::new(spec, platform).unwrap();
        let encoder = Encoder::new(&parameters);
        let mut source = NoiseSource::from_seed(&[1; 32]);
        let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
        let mut spec = KeySpec::at_every_level(&parameters, STEPS);
        spec.conjugation = Some(levels);
        let keys =
            EvaluationKeys::generate(&parameters, &secret, &spec, &[2; 32], &mut source).unwrap();
        Self { parameters, encoder, secret, keys }
    }

    fn encrypted(&self) -> Encrypted<'_> {
        Encrypted::new(&self.encoder, &self.keys)
    }

    fn encrypt(&self, values: &[f64], level: usize) -> Ciphertext {
        let plain = self.encoder.encode_real(values, level, self.parameters.scale()).unwrap();
        let mut source = NoiseSource::from_seed(&[3; 32]);
        let seed = source.seed();
        encrypt(&self.parameters, &self.secret, &plain, &seed, 0, &mut source).unwrap()
    }

    fn decrypt(&self, ciphertext: &Ciphertext) -> Vec<f64> {
        let plain = decrypt(&self.parameters, &self.secret, ciphertext).unwrap();
        self.encoder.decode_real(&plain)
    }

    /// Numbers of −1..1, one a slot.
    fn numbers(&self, which: u64) -> Vec<f64> {
        let number = |index: u64| {
            let mixed = (index + 1 + 1000 * which).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            mixed as f64 / f64::from(1 << 23) - 1.0
        };
        (0..self.parameters.slots() as u64).map(number).collect()
    }
}

/// log2 of the largest difference.
fn error_log2(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    largest(found.iter().zip(expected).map(|(x, y)| x - y)).log2()
}

fn rotated(values: &[f64], steps: usize) -> Vec<f64> {
    let mut values = values.to_vec();
    values.rotate_left(steps);
    values
}

/// Layouts of digits: one limb each; digits of two and three limbs, the last one short at some levels; as
/// many as there can be, with a second digit of one.
const LAYOUTS: [(usize, usize); 6] = [(3, 1), (4, 2), (5, 2), (4, 3), (2, 3), (12, 12)];

/// The bound on errors, for numbers of −1..1 at a scale of 2^40 and N = 512.
///
/// Of a coefficient, a switch adds Σ_d d · e / P, d uniform below Q_d / 2 ≤ P / 2 and e of standard
/// deviation 3.2: with one large digit, √512 · 3.2 / √12 = 2^4.4; the others are 2^10 smaller. A division
/// adds √(N · 2/3 / 12) = 2^2.4, encryption 2^1.7. In a slot it is √N = 2^4.5 times as much, 2^9 in all,
/// and six deviations are 2^11.6: relatively 2^-28.4. Four bits are for what adds up to 16 of them.
const ERROR_LOG2_MAX: f64 = -24.0;

fn close(what: &str, found: &[f64], expected: &[f64]) {
    let error = error_log2(found, expected);
    assert!(error < ERROR_LOG2_MAX, "{what}: an error of 2^{error}");
}

#[test]
fn rotations_rotate_at_every_level() {
    for (levels, special) in LAYOUTS {
        let fixture = Fixture::new(levels, special);
        let mut evaluator = fixture.encrypted();
        let values = fixture.numbers(0);
        for level in 0..=levels {
            let x = fixture.encrypt(&values, level);
            let many = evaluator.rotate_many(&x, &[0, 1, 7, 100, 255]).unwrap();
            for (steps, hoisted) in [0, 1, 7, 100, 255].into_iter().zip(many) {
                let alone = evaluator.rotate(&x, steps).unwrap();
                let what = format!("by {steps} at level {level} with {special} limbs a digit");
                close(&what, &fixture.decrypt(&alone), &rotated(&values, steps));
                // The same digits and the same sums: bit by bit.
                assert_eq!(alone.parts().mask.values(), hoisted.parts().mask.values(), "{what}");
                assert_eq!(alone.parts().body.values(), hoisted.parts().body.values(), "{what}");
                assert_eq!((alone.level(), alone.scale()), (level, fixture.parameters.scale()));
                evaluator.recycle(alone);
            }
        }
    }
}

#[test]
fn conjugation_conjugates() {
    let fixture = Fixture::new(3, 2);
    let slots = fixture.parameters.slots();
    let values: Vec<_> = fixture
        .numbers(1)
        .into_iter()
        .zip(fixture.numbers(2))
        .map(|(re, im)| Complex64::new(re, im))
        .collect();
    for level in 0..=3 {
        let plain = fixture.encoder.encode(&values, level, fixture.parameters.scale()).unwrap();
        let mut source = NoiseSource::from_seed(&[4; 32]);
        let x = encrypt(&fixture.parameters, &fixture.secret, &plain, &[5; 32], 0, &mut source);
        let image = fixture.encrypted().conjugate(&x.unwrap()).unwrap();
        let plain = decrypt(&fixture.parameters, &fixture.secret, &image).unwrap();
        let found = fixture.encoder.decode(&plain);
        assert_eq!(found.len(), slots);
        let error = found.iter().zip(&values).map(|(x, y)| (x - y.conj()).norm());
        let error = largest(error).log2();
        assert!(error < ERROR_LOG2_MAX, "an error of 2^{error}");
    }
}

#[test]
fn products_multiply_at_every_level() {
    for (levels, special) in LAYOUTS {
        let fixture = Fixture::new(levels, special);
        let mut evaluator = fixture.encrypted();
        let (a, b) = (fixture.numbers(3), fixture.numbers(4));
        let expected: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
        let squares: Vec<f64> = a.iter().map(|a| a * a).collect();
        for level in 1..=levels {
            let what = format!("level {level} with {special} limbs a digit");
            let (x, y) = (fixture.encrypt(&a, level), fixture.encrypt(&b, level));
            let mut product = evaluator.multiply(&x, &y).unwrap();
            assert_eq!((product.level(), product.scale()), (level, x.scale() * y.scale()));
            close(&what, &fixture.decrypt(&product), &expected);
            evaluator.rescale(&mut product).unwrap();
            close(&what, &fixture.decrypt(&product), &expected);
            let fused = evaluator.multiply_rescale(&x, &y).unwrap();
            assert_eq!((fused.level(), fused.scale()), (product.level(), product.scale()));
            close(&what, &fixture.decrypt(&fused), &expected);
            close(&what, &fixture.decrypt(&evaluator.square(&x).unwrap()), &squares);
            close(&what, &fixture.decrypt(&evaluator.square_rescale(&x).unwrap()), &squares);
        }
    }
}

#[test]
fn sums_constants_and_plaintexts_agree_with_numbers() {
    let fixture = Fixture::new(3, 2);
    let mut evaluator = fixture.encrypted();
    let (a, b) = (fixture.numbers(5), fixture.numbers(6));
    let of =
        |f: fn(f64, f64) -> f64| -> Vec<f64> { a.iter().zip(&b).map(|(&a, &b)| f(a, b)).collect() };
    for level in 1..=3 {
        let (x, y) = (fixture.encrypt(&a, level), fixture.encrypt(&b, level));
        let plain = evaluator.encode(&b, level, y.scale()).unwrap();
        let mut z = x.clone();
        evaluator.add_assign(&mut z, &y).unwrap();
        close("add", &fixture.decrypt(&z), &of(|a, b| a + b));
        let mut z = x.clone();
        evaluator.sub_assign(&mut z, &y).unwrap();
        close("sub", &fixture.decrypt(&z), &of(|a, b| a - b));
        let mut z = x.clone();
        evaluator.add_plain(&mut z, &plain).unwrap();
        close("add a plaintext", &fixture.decrypt(&z), &of(|a, b| a + b));
        let mut z = x.clone();
        evaluator.multiply_plain(&mut z, &plain).unwrap();
        assert_eq!(z.scale(), x.scale() * y.scale());
        close("multiply by a plaintext", &fixture.decrypt(&z), &of(|a, b| a * b));
        evaluator.rescale(&mut z).unwrap();
        assert_eq!(z.level(), level - 1);
        close("rescale", &fixture.decrypt(&z), &of(|a, b| a * b));
        let mut z = x.clone();
        evaluator.add_constant(&mut z, -0.75).unwrap();
        evaluator.multiply_constant(&mut z, 0.625, 2f64.powi(30)).unwrap();
        close("constants", &fixture.decrypt(&z), &of(|a, _| (a - 0.75) * 0.625));
        let mut z = x.clone();
        evaluator.drop_to(&mut z, 0).unwrap();
        assert_eq!(z.level(), 0);
        close("drop", &fixture.decrypt(&z), &a);
        let mut z = x.clone();
        evaluator.fold(&mut z, 1, 8).unwrap();
        let sums: Vec<f64> =
            (0..a.len()).map(|i| (0..8).map(|j| a[(i + j) % a.len()]).sum()).collect();
        close("fold", &fixture.decrypt(&z), &sums);
    }
}

/// A map with the diagonals `steps`, of several periods.
fn map(fixture: &Fixture, steps: &[usize], which: u64) -> Diagonals {
    let mut map = Diagonals::new(fixture.parameters.slots());
    for (index, &steps) in steps.iter().enumerate() {
        let mut values = fixture.numbers(which + index as u64);
        values.truncate(values.len() >> (2 * (index % 4)));
        map.insert(steps, values).unwrap();
    }
    map
}

#[test]
fn transforms_agree_with_their_diagonals() {
    let steps: [&[usize]; 4] = [&[0, 1, 2, 3, 5, 8, 9, 24], &[16], &[0], &[1, 4, 24]];
    for (levels, special) in LAYOUTS {
        let fixture = Fixture::new(levels, special);
        let mut evaluator = fixture.encrypted();
        let values: Vec<_> = (0..4).map(|which| fixture.numbers(10 + which)).collect();
        let maps: Vec<_> = steps.iter().map(|steps| map(&fixture, steps, 20)).collect();
        let images: Vec<_> =
            maps.iter().zip(&values).map(|(map, values)| map.apply(values)).collect();
        for level in 1..=levels {
            for baby_steps in [1, 2, 4, 8, 256] {
                let split = Split::new(baby_steps);
                let xs: Vec<_> = values.iter().map(|v| fixture.encrypt(v, level)).collect();
                let prepare = |map| evaluator.prepare(map, split, level, 2f64.powi(40)).unwrap();
                let prepared: Vec<_> = maps.iter().map(prepare).collect();
                for count in 1..=4 {
                    let (maps, xs): (Vec<_>, Vec<_>) = prepared.iter().zip(&xs).take(count).unzip();
                    let expected = images[..count].iter().fold(vec![0.0; 256], |sum, image| {
                        sum.iter().zip(image).map(|(x, y)| x + y).collect()
                    });
                    let found = evaluator.transform(&maps, &xs).unwrap();
                    let what = format!(
                        "{count} maps, {baby_steps} baby steps, level {level}, {special} limbs"
                    );
                    assert_eq!(found.level(), level);
                    close(&what, &fixture.decrypt(&found), &expected);
                    let rescaled = evaluator.transform_rescale(&maps, &xs).unwrap();
                    assert_eq!(rescaled.level(), level - 1);
                    close(&what, &fixture.decrypt(&rescaled), &expected);
                }
            }
        }
    }
}

#[test]
fn more_products_than_one_sum_holds_are_added_up() {
    let mut fixture = Fixture::new(2, 2);
    let all = KeySpec::at_every_level(&fixture.parameters, 1..256);
    let mut source = NoiseSource::from_seed(&[6; 32]);
    let (parameters, secret) = (&fixture.parameters, &fixture.secret);
    fixture.keys =
        EvaluationKeys::generate(parameters, secret, &all, &[7; 32], &mut source).unwrap();
    let mut evaluator = fixture.encrypted();
    let steps: Vec<usize> = (0..256).collect();
    let map = map(&fixture, &steps, 40);
    let split = Split::new(256);
    let prepared = evaluator.prepare(&map, split, 2, 2f64.powi(40)).unwrap();
    let values = [fixture.numbers(12), fixture.numbers(13)];
    let xs = [0, 1].map(|which| fixture.encrypt(&values[which], 2));
    let found = evaluator.transform(&[&prepared; 2], &[&xs[0], &xs[1]]).unwrap();
    let images = values.map(|values| map.apply(&values));
    let expected: Vec<f64> = images[0].iter().zip(&images[1]).map(|(x, y)| x + y).collect();
    let error = error_log2(&fixture.decrypt(&found), &expected);
    // 512 products of random errors: the root's share more than one.
    assert!(error < ERROR_LOG2_MAX + 4.5, "an error of 2^{error}");
}

#[test]
fn every_platform_computes_the_same() {
    let results: Vec<_> = Platform::available()
        .into_iter()
        .map(|platform| {
            let fixture = Fixture::on(platform, 3, 2);
            let mut evaluator = fixture.encrypted();
            let x = fixture.encrypt(&fixture.numbers(7), 3);
            let map = map(&fixture, &[0, 1, 2, 8], 30);
            let map = evaluator.prepare(&map, Split::new(2), 3, 2f64.powi(40)).unwrap();
            let x = evaluator.transform_rescale(&[&map], &[&x]).unwrap();
            let y = evaluator.rotate(&x, 5).unwrap();
            let z = evaluator.multiply_rescale(&x, &y).unwrap();
            [z.parts().mask.values().to_vec(), z.parts().body.values().to_vec()]
        })
        .collect();
    for result in &results[1..] {
        assert!(*result == results[0], "a platform differs");
    }
}

#[test]
fn keys_come_back_from_their_bytes() {
    let fixture = Fixture::new(4, 2);
    let parameters = &fixture.parameters;
    let mut spec = KeySpec { products: Some(2), conjugation: Some(1), ..KeySpec::default() };
    spec.rotations.extend([(3, 4), (5, 0)]);
    let mut bytes = Vec::new();
    let mut source = NoiseSource::from_seed(&[8; 32]);
    let secret = &fixture.secret;
    write_keys(parameters, secret, &spec, &[9; 32], &mut source, |part| bytes.extend(part))
        .unwrap();
    assert_eq!(bytes.len(), key_bytes(parameters, &spec).unwrap());
    let parsed = EvaluationKeys::parse(parameters, &spec, &bytes).unwrap();
    let mut source = NoiseSource::from_seed(&[8; 32]);
    let made = EvaluationKeys::generate(parameters, secret, &spec, &[9; 32], &mut source).unwrap();
    assert_eq!(parsed.memory_bytes(), made.memory_bytes());
    let values = fixture.numbers(9);
    for (level, steps) in [(4, 3), (1, 3), (0, 5)] {
        let x = fixture.encrypt(&values, level);
        let [first, second] = [&parsed, &made]
            .map(|keys| Encrypted::new(&fixture.encoder, keys).rotate(&x, steps).unwrap());
        close("parsed", &fixture.decrypt(&first), &rotated(&values, steps));
        assert_eq!(first.parts().mask.values(), second.parts().mask.values());
        assert_eq!(first.parts().body.values(), second.parts().body.values());
    }
    // A key made for low levels is none for higher ones.
    let mut evaluator = Encrypted::new(&fixture.encoder, &parsed);
    let x = fixture.encrypt(&values, 1);
    let refused = |result: Result<Ciphertext, Error>| match result {
        Err(error) => error.to_string(),
        Ok(_) => panic!("nothing was refused"),
    };
    assert!(refused(evaluator.rotate(&x, 5)).contains("no rotation by 5 slots"));
    assert!(refused(evaluator.rotate(&x, 7)).contains("no rotation by 7 slots"));
    assert!(refused(evaluator.conjugate(&fixture.encrypt(&values, 2))).contains("conjugate"));
    let x = fixture.encrypt(&values, 3);
    assert!(refused(evaluator.square(&x)).contains("multiply at level 3"));
}

#[test]
fn damaged_keys_are_refused() {
    let fixture = Fixture::new(2, 1);
    let parameters = &fixture.parameters;
    let spec = KeySpec::at_every_level(parameters, [1]);
    let mut bytes = Vec::new();
    let mut source = NoiseSource::from_seed(&[8; 32]);
    let secret = &fixture.secret;
    write_keys(parameters, secret, &spec, &[9; 32], &mut source, |part| bytes.extend(part))
        .unwrap();
    let parse = |bytes: &[u8]| EvaluationKeys::parse(parameters, &spec, bytes).map(|_| ());
    parse(&bytes).unwrap();
    for length in [0, 31, 32, bytes.len() - 1] {
        let error = parse(&bytes[..length]).unwrap_err();
        assert!(matches!(error, Error::Core(hushtable_rlwe::Error::Bytes { .. })), "{error}");
    }
    let longer = [bytes.as_slice(), &[0]].concat();
    let error = parse(&longer).unwrap_err();
    assert!(matches!(error, Error::Core(hushtable_rlwe::Error::Bytes { .. })), "{error}");
    let mut damaged = bytes.clone();
    damaged[32..48].fill(0xff);
    let error = parse(&damaged).unwrap_err();
    assert!(matches!(error, Error::Core(hushtable_rlwe::Error::Residue { .. })), "{error}");
    let above = KeySpec { products: Some(3), ..KeySpec::default() };
    let error = key_bytes(parameters, &above).unwrap_err();
    assert!(matches!(error, Error::Level { found: 3, expected: 2, .. }), "{error}");
    let mut beyond = KeySpec::default();
    beyond.rotations.insert(256, 1);
    let error = key_bytes(parameters, &beyond).unwrap_err();
    assert!(matches!(error, Error::Slots { found: 256, slots: 256 }), "{error}");
}

#[test]
fn misuse_is_refused() {
    let fixture = Fixture::new(2, 1);
    let mut evaluator = fixture.encrypted();
    let values = fixture.numbers(11);
    let high = fixture.encrypt(&values, 2);
    let low = fixture.encrypt(&values, 1);
    let mut x = high.clone();
    let error = evaluator.add_assign(&mut x, &low).unwrap_err();
    assert!(matches!(error, Error::Level { found: 1, expected: 2, .. }), "{error}");
    let error = evaluator.multiply(&high, &low).unwrap_err();
    assert!(matches!(error, Error::Level { .. }), "{error}");
    evaluator.multiply_constant(&mut x, 1.0, 4.0).unwrap();
    let error = evaluator.sub_assign(&mut x, &high).unwrap_err();
    assert!(matches!(error, Error::Scale { .. }), "{error}");
    let error = evaluator.drop_to(&mut low.clone(), 2).unwrap_err();
    assert!(matches!(error, Error::Level { found: 1, expected: 2, .. }), "{error}");
    let bottom = fixture.encrypt(&values, 0);
    let error = evaluator.rescale(&mut bottom.clone()).unwrap_err();
    assert!(matches!(error, Error::Exhausted { levels: 2, .. }), "{error}");
    let error = evaluator.multiply_constant(&mut bottom.clone(), 1.0, 1e6).unwrap_err();
    assert!(matches!(error, Error::Scale { .. }), "{error}");
    let map = map(&fixture, &[0, 9], 30);
    let split = Split::new(4);
    let prepared = evaluator.prepare(&map, split, 2, 1024.0).unwrap();
    let error = evaluator.transform(&[&prepared], &[&low]).unwrap_err();
    assert!(matches!(error, Error::Level { .. }), "{error}");
    let twice = evaluator.prepare(&map, split, 2, 2048.0).unwrap();
    let error = evaluator.transform(&[&prepared, &twice], &[&high, &high]).unwrap_err();
    assert!(matches!(error, Error::Scale { .. }), "{error}");
}

#[test]
fn sets_of_limbs_are_secure_and_fast() {
    // Degree, limbs, primes of P, log2 Q at least.
    for (degree, limbs, special, least) in [
        (8192, 4, 1, 155.0),
        (16384, 8, 1, 360.0),
        (32768, 16, 4, 660.0),
        (32768, 6, 3, 270.0),
        (65536, 28, 10, 1230.0),
    ] {
        let spec = ParameterSpec::of_limbs("limbs_128", degree, limbs).unwrap();
        let parameters = Parameters::new(spec, Platform::detect()).unwrap();
        assert_eq!(parameters.levels() + 1, limbs);
        assert_eq!(parameters.special_limbs(), special, "{degree} {limbs}");
        let log2 = parameters.lattice().ring().modulus_log2();
        assert!(log2 > least, "N = {degree}, {limbs} limbs: log2 Q = {log2}");
        let (rotate, multiply) =
            (Work::rotate(&parameters, limbs - 1), Work::multiply(&parameters, limbs - 1));
        assert!(rotate.multiplications(degree) < multiply.multiplications(degree));
        assert!(Work::rescale(limbs - 1).multiplications(degree) < rotate.multiplications(degree));
    }
    for (degree, limbs) in [(8192, 11), (8192, 0), (4000, 2), (32768, 60)] {
        let error = ParameterSpec::of_limbs("limbs_128", degree, limbs).unwrap_err();
        assert!(matches!(error, Error::Parameters { .. }), "{error}");
    }
}

#[test]
fn a_rotation_is_counted_by_hand() {
    // Three limbs, one in P: six limbs are extended from three digits, and six divided to.
    let fixture = Fixture::new(2, 1);
    let work = Work::rotate(&fixture.parameters, 2);
    assert_eq!(work.transforms, 3 + (3 * 4 - 3) + 2 * (1 + 3));
    assert_eq!(work.products, 9 * 4 + 4 * 2 * 8 + 2 * 3 * 4);
    // Primes of 50, 40, 40 and 50 bits.
    assert_eq!(work.bytes, 2 * 3 * 512 * (7 + 5 + 5 + 7));
}
