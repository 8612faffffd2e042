//! Key switching: what it carries over, and what noise it adds.

use crate::fixtures;

use fixtures::{mean, noise, noiseless, numbers, offered, parameters, secret_poly, source};
use hushtable_rlwe::bfv::noise::Noise;
use hushtable_rlwe::bfv::{Evaluator, ParameterSpec, Parameters, Substitution, SwitchKey};
use hushtable_rlwe::ring::{Coefficients, NoiseSource, Poly, Ring};
use hushtable_rlwe::{Ciphertext, Error, SecretKey};

/// Residues of random numbers of 60 bits: a message that fills the modulus.
fn message(ring: &Ring, source: &mut NoiseSource) -> Poly<Coefficients> {
    let mut message: Poly<Coefficients> = ring.zero();
    for (limb, modulus) in ring.moduli().enumerate() {
        for (out, value) in
            message.limb_mut(limb).iter_mut().zip(numbers(source, ring.degree(), 60))
        {
            *out = value % modulus.value();
        }
    }
    message
}

fn product(ring: &Ring, x: &Poly<Coefficients>, y: &Poly<Coefficients>) -> Poly<Coefficients> {
    let mut out = ring.forward(x.clone());
    ring.mul_assign(&mut out, &ring.forward(y.clone()));
    ring.inverse(out)
}

#[test]
fn a_ciphertext_times_its_secret_is_an_encryption_of_that() {
    for params in offered() {
        let (ring, model, mut source) = (params.ring(), Noise::new(&params), source(10));
        let mut evaluator = Evaluator::new(&params);
        let mut ratios = Vec::new();
        for seed in 0..16 {
            let secret = SecretKey::draw(params.ring(), &mut source);
            let key = SwitchKey::of_square(&params, &secret, &source.seed(), 5, &mut source);
            let message = message(ring, &mut source);
            let ciphertext = noiseless(ring, &secret, seed, &message);
            let times = evaluator.times_secret(&key, &ciphertext);
            let expected = product(ring, &message, &secret_poly(ring, &secret));
            ratios.push(noise(ring, &secret, &times, &expected).variance / model.times_secret(0.0));
        }
        let ratio = mean(ratios);
        println!("{}: s² to s {ratio:.3} of predicted", params.name());
        assert!((0.8..1.2).contains(&ratio), "{}: {ratio}", params.name());
    }
}

#[test]
fn noise_of_a_ciphertext_times_its_secret_is_multiplied_by_it() {
    // Far above what switching adds: the error of a query whose body lost its last limb.
    let params = parameters(ParameterSpec::n4096_128());
    let (ring, model, mut source) = (params.ring(), Noise::new(&params), source(11));
    let mut evaluator = Evaluator::new(&params);
    let secret = SecretKey::draw(params.ring(), &mut source);
    let key = SwitchKey::of_square(&params, &secret, &source.seed(), 0, &mut source);
    let large = |source: &mut NoiseSource| -> Vec<i64> {
        let draw = |value: u64| value as i64 - (1 << 48);
        numbers(source, params.degree(), 49).into_iter().map(draw).collect()
    };
    let ratios = (0..3).map(|seed| {
        let error = ring.from_signed_vartime(&large(&mut source));
        let ciphertext = noiseless(ring, &secret, seed, &error);
        let leaf = noise(ring, &secret, &ciphertext, &ring.zero()).variance;
        let times = evaluator.times_secret(&key, &ciphertext);
        noise(ring, &secret, &times, &ring.zero()).variance / model.times_secret(leaf)
    });
    let ratio = mean(ratios.collect::<Vec<_>>());
    assert!((0.85..1.15).contains(&ratio), "{ratio}");
}

/// Splits at `level` a message that stands at multiples of 2^level: the halves' noise over what a
/// switch is predicted to add.
fn split_ratios(params: &Parameters, level: u32, number: u8) -> [f64; 2] {
    let (ring, mut source) = (params.ring(), source(number));
    let degree = params.degree();
    let secret = SecretKey::draw(params.ring(), &mut source);
    let substitution = Substitution::of_level(params, level);
    assert_eq!(substitution.map().exponent(), (degree >> level) + 1);
    let key = SwitchKey::of_automorphism(
        params,
        &secret,
        substitution.map(),
        &source.seed(),
        0,
        &mut source,
    );
    let (step, mut whole) = (1 << level, message(ring, &mut source));
    let (mut even, mut odd): (Poly<Coefficients>, Poly<Coefficients>) = (ring.zero(), ring.zero());
    for (limb, modulus) in ring.moduli().enumerate() {
        for index in 0..degree {
            let value = &mut whole.limb_mut(limb)[index];
            if index % step != 0 {
                *value = 0;
            }
            let doubled = modulus.add(*value, *value);
            match index % (2 * step) {
                0 => even.limb_mut(limb)[index] = doubled,
                _ if index >= step => odd.limb_mut(limb)[index - step] = doubled,
                _ => assert_eq!(doubled, 0),
            }
        }
        // What was not at a multiple was zero and moved nowhere.
        (0..degree).filter(|index| index % (2 * step) != 0).for_each(|index| {
            odd.limb_mut(limb)[index] = 0;
        });
    }
    let mut node = noiseless(ring, &secret, number, &whole);
    let right = Evaluator::new(params).split(&substitution, &key, &mut node);
    let switch = Noise::new(params).switch();
    [noise(ring, &secret, &node, &even), noise(ring, &secret, &right, &odd)]
        .map(|measured| measured.variance / switch)
}

#[test]
fn halves_of_a_split_hold_doubled_coefficients() {
    for params in offered() {
        let ratios: Vec<_> = [0, 1, 4, 11]
            .into_iter()
            .flat_map(|level| split_ratios(&params, level, 20 + level as u8))
            .collect();
        let ratio = mean(ratios.iter().copied());
        println!("{}: s(X^r) to s {ratio:.3} of predicted", params.name());
        assert!(ratios.iter().all(|ratio| (0.7..1.25).contains(ratio)), "{ratios:?}");
    }
}

/// All leaves of `levels` splits.
fn expand(
    params: &Parameters,
    secret: &SecretKey,
    root: Ciphertext,
    levels: u32,
    source: &mut NoiseSource,
) -> Vec<Ciphertext> {
    let mut evaluator = Evaluator::new(params);
    let mut nodes = vec![root];
    for level in 0..levels {
        let substitution = Substitution::of_level(params, level);
        let (map, seed) = (substitution.map(), source.seed());
        let key = SwitchKey::of_automorphism(params, secret, map, &seed, 0, source);
        let odd: Vec<_> =
            nodes.iter_mut().map(|node| evaluator.split(&substitution, &key, node)).collect();
        nodes.extend(odd);
    }
    nodes
}

#[test]
fn noise_of_an_expansion_is_what_was_predicted() {
    for params in offered() {
        let (ring, model, mut source) = (params.ring(), Noise::new(&params), source(12));
        let zero: Poly<Coefficients> = ring.zero();
        let secret = SecretKey::draw(params.ring(), &mut source);
        for levels in [1, 3, 6] {
            // From a root without noise: what the switches add, level upon level.
            let root = noiseless(ring, &secret, levels as u8, &zero);
            let leaves = expand(&params, &secret, root, levels, &mut source);
            assert_eq!(leaves.len(), 1 << levels);
            let added = mean(leaves.iter().map(|leaf| noise(ring, &secret, leaf, &zero).variance));
            let predicted = model.switch() * f64::from((1 << levels) - 1);
            let ratio = added / predicted;
            // From a root with a query's noise, rounding included.
            let bound = (12.0 * model.query()).sqrt() as i64 + 1;
            let draw = |value: u64| ((u128::from(value) * bound as u128) >> 40) as i64 - bound / 2;
            let error: Vec<i64> =
                numbers(&mut source, params.degree(), 40).into_iter().map(draw).collect();
            let error = ring.from_signed_vartime(&error);
            let root = noiseless(ring, &secret, 100 + levels as u8, &error);
            let leaves = expand(&params, &secret, root, levels, &mut source);
            let all = mean(leaves.iter().map(|leaf| noise(ring, &secret, leaf, &zero).variance));
            let whole = all / model.expand(levels);
            println!(
                "{}, {levels} levels: added {ratio:.3}, leaves {whole:.3} of predicted",
                params.name()
            );
            assert!((0.75..1.25).contains(&ratio), "{} {levels}: {ratio}", params.name());
            assert!((0.75..1.25).contains(&whole), "{} {levels}: {whole}", params.name());
        }
    }
}

#[test]
fn keys_come_back_from_their_bytes() {
    let params = parameters(ParameterSpec::n256_test());
    let mut source = source(13);
    let secret = SecretKey::draw(params.ring(), &mut source);
    let seed = source.seed();
    let key = SwitchKey::of_square(&params, &secret, &seed, 9, &mut source);
    let mut bytes = Vec::new();
    key.pack(&params, &mut bytes);
    assert_eq!(bytes.len(), SwitchKey::bytes(&params));
    bytes.extend([1, 2, 3]);
    let mut rest = &bytes[..];
    let read = SwitchKey::unpack(&params, &seed, 9, &mut rest).unwrap();
    assert_eq!(rest, [1, 2, 3]);
    for (read, row) in read.rows().iter().zip(key.rows()) {
        assert_eq!(read.mask.values(), row.mask.values());
        assert_eq!(read.body.values(), row.body.values());
    }
    let other = SwitchKey::unpack(&params, &seed, 8, &mut &bytes[..]).unwrap();
    assert_ne!(other.rows()[0].mask.values(), key.rows()[0].mask.values());
    let unpack = |mut bytes: &[u8]| SwitchKey::unpack(&params, &seed, 9, &mut bytes).err();
    let error = unpack(&bytes[..SwitchKey::bytes(&params) - 1]).unwrap();
    assert!(matches!(error, Error::Bytes { what: "keys", expected: 1600, found: 1599 }), "{error}");
    bytes[..1600].fill(0xff);
    assert!(matches!(unpack(&bytes).unwrap(), Error::Residue { what: "keys" }));
}
