//! Bootstrapping: every stage on ciphertexts, simulated and in the clear; its keys; what is refused.

use hushtable_rlwe::SecretKind;
use hushtable_rlwe::ckks::{
    Bootstrap, BootstrapLevels, Ciphertext, Clear, Encrypted, Error, Evaluate, EvaluationKeys,
    KeySpec, Parameters, PreparedBootstrap, Simulated, Transform, decrypt, key_bytes,
    published_keys, write_keys,
};
use hushtable_rlwe::ring::Platform;

use super::fixtures::{Client, deviation, largest_error, numbers};

/// The levels of the sets in use, but for those left and for P.
pub const LEVELS: BootstrapLevels =
    BootstrapLevels { left: 2, special: (51, 3), ..BootstrapLevels::R16 };

pub const SLOTS: usize = 64;

pub fn parameters(degree: usize, levels: BootstrapLevels) -> Parameters {
    let spec = levels.spec("bootstrap_test", degree).unwrap();
    Parameters::new(spec, Platform::detect()).unwrap()
}

fn keys(client: &mut Client, spec: &KeySpec) -> EvaluationKeys {
    let (parameters, secret) = (&client.parameters, &client.secret);
    EvaluationKeys::generate(parameters, secret, spec, &[8; 32], &mut client.source).unwrap()
}

/// Vectors that a sine treats differently: random numbers, a constant, a single number that is not 0,
/// numbers of one sign, and numbers at the ends of the range.
fn vectors(slots: usize, range: f64) -> Vec<(&'static str, Vec<f64>)> {
    let random: Vec<f64> = numbers(1, slots).into_iter().map(|value| range * value).collect();
    let one_hot = (0..slots).map(|slot| if slot == slots / 3 { range } else { 0.0 }).collect();
    let signs = random.iter().map(|value| range * value.signum()).collect();
    vec![
        ("positive", random.iter().map(|value| value.abs()).collect()),
        ("random", random),
        ("constant", vec![0.7 * range; slots]),
        ("one-hot", one_hot),
        ("largest", signs),
    ]
}

#[test]
fn numbers_come_back_at_every_count_of_slots() {
    for (slots, special, maps) in [(2, 3, 2), (16, 1, 1), (SLOTS, 3, 2), (512, 5, 3)] {
        let levels = BootstrapLevels {
            special: (51, special),
            to_coefficients: maps,
            to_slots: maps,
            ..LEVELS
        };
        let params = parameters(1024, levels);
        let bootstrap = Bootstrap::new(&params, levels, slots, 1.0).unwrap();
        let spec = bootstrap.key_spec();
        let mut client = Client::new(&params, slots as u8);
        let keys = keys(&mut client, &spec);
        let encoder = client.encoder.clone();
        let mut encrypted = Encrypted::new(&encoder, &keys);
        let prepared = bootstrap.prepare(&encrypted).unwrap();
        let mut clear = Clear::with_keys(&params, &spec);
        let in_clear = bootstrap.prepare(&clear).unwrap();
        let mut simulated = Simulated::new(clear.clone(), &[3; 32]);
        let (level, scale) = (bootstrap.input_level(), params.scale());
        let (mut measured, mut expected) = (0.0, 0.0);
        for (name, values) in vectors(slots, 1.0) {
            let x = clear.vector(&values, level, scale).unwrap();
            let exact = in_clear.run(&mut clear, &x).unwrap();
            // The sine and the polynomial alone.
            let sine = largest_error(exact.values(), &values);
            assert!(sine < bootstrap.sine_error() + 2e-6, "{slots} {name}: {sine}");
            let x = simulated.vector(&values, level, scale).unwrap();
            let predicted = in_clear.run(&mut simulated, &x).unwrap();
            assert_eq!(predicted.exact(), exact.values());
            let out = prepared.run(&mut encrypted, &client.encrypt(&values, level)).unwrap();
            assert_eq!((out.level(), out.level()), (levels.output(), clear.level(&exact)));
            assert!((out.scale() / scale - 1.0).abs() < 1e-9, "{}", out.scale() / scale);
            let found = client.decrypt(&out);
            let (error, noise) =
                (largest_error(&found, &values), deviation(&found, exact.values()));
            measured += noise.powi(2);
            expected += deviation(predicted.values(), exact.values()).powi(2);
            println!(
                "{slots} {name}: largest 2^{:.1}, sine 2^{:.1}, noise 2^{:.1}",
                error.log2(),
                sine.log2(),
                noise.log2()
            );
            assert!(error < 2f64.powi(-14), "{slots} {name}: {error}");
        }
        let ratio = (measured / expected).sqrt();
        println!("{slots}: of the prediction {ratio:.2}");
        // What noise becomes depends on the multiples of q_0, and a few numbers have few of them.
        assert!(slots < SLOTS || (0.5..2.0).contains(&ratio), "{slots}: {ratio}");
    }
}

/// A client with keys, and the maps in both worlds.
struct Fixture {
    client: Client,
    keys: EvaluationKeys,
    bootstrap: Bootstrap,
}

impl Fixture {
    fn new(slots: usize, range: f64) -> Self {
        let params = parameters(1024, LEVELS);
        let bootstrap = Bootstrap::new(&params, LEVELS, slots, range).unwrap();
        let mut client = Client::new(&params, 70);
        let keys = keys(&mut client, &bootstrap.key_spec());
        Self { client, keys, bootstrap }
    }

    fn encrypted(&self) -> (Encrypted<'_>, PreparedBootstrap<Transform>) {
        let encrypted = Encrypted::new(&self.client.encoder, &self.keys);
        let prepared = self.bootstrap.prepare(&encrypted).unwrap();
        (encrypted, prepared)
    }
}

/// The coefficients modulo q_0, centred, and the multiple of q_0 in each, which every other limb agrees on.
pub fn wraps(client: &Client, x: &Ciphertext) -> Vec<(i64, i64)> {
    let params = &client.parameters;
    let plain = decrypt(params, &client.secret, x).unwrap();
    let ring = params.ring(x.level());
    let poly = ring.inverse(plain.poly().clone());
    let first = ring.modulus(0);
    let of = |index: usize| {
        let rest = first.to_signed(poly.limb(0)[index]);
        let multiple = |limb: usize| {
            let modulus = ring.modulus(limb);
            let above = modulus.sub(poly.limb(limb)[index], modulus.from_signed_vartime(rest));
            modulus.to_signed(modulus.mul(above, modulus.inv(first.value() % modulus.value())))
        };
        let found = multiple(1);
        assert!((2..ring.limbs()).all(|limb| multiple(limb) == found), "{index}: {found}");
        (rest, found)
    };
    (0..params.degree()).map(of).collect()
}

#[test]
fn every_stage_is_what_it_is_in_the_clear() {
    let mut fixture = Fixture::new(SLOTS, 1.0);
    let values = numbers(4, SLOTS);
    let input = fixture.client.encrypt(&values, 4);
    let params = fixture.client.parameters.clone();
    let (client, bootstrap) = (&fixture.client, &fixture.bootstrap);
    let (mut encrypted, prepared) = fixture.encrypted();
    let mut clear = Clear::new(&params);
    let in_clear = bootstrap.prepare(&clear).unwrap();

    let x = clear.vector(&values, 4, params.scale()).unwrap();
    let exact = in_clear.coefficients(&mut clear, &x).unwrap();
    let coefficients = prepared.coefficients(&mut encrypted, &input).unwrap();
    assert_eq!((coefficients.level(), clear.level(&exact)), (0, 0));
    let plain = decrypt(&params, &client.secret, &coefficients).unwrap();
    let slots: Vec<f64> = client.encoder.decode(&plain).into_iter().map(|slot| slot.im).collect();
    let expected: Vec<f64> = exact.complex().into_iter().map(|slot| slot.im).collect();
    assert!(largest_error(&slots, &expected) < 2f64.powi(-20));
    assert!(largest_error(&client.decrypt(&coefficients), exact.values()) < 2f64.powi(-20));

    // The raise leaves what was there modulo q_0, but for noise, and few multiples of q_0.
    let before = wraps_at_first(client, &coefficients);
    let raised = encrypted.raise(&coefficients, LEVELS.top(), 1.0).unwrap();
    assert_eq!(raised.level(), LEVELS.top());
    let all = wraps(client, &raised);
    for (index, ((rest, wraps), before)) in all.iter().zip(&before).enumerate() {
        assert!((rest - before).abs() < 1 << 20, "{index}: {rest} {before}");
        assert!(wraps.abs() <= 16, "{index}: {wraps}");
    }
    // Sums of 33 uniform numbers, rounded: their variance is 33/12.
    let squares: i64 = all.iter().map(|(_, wraps)| wraps * wraps).sum();
    let variance = squares as f64 / all.len() as f64;
    assert!((variance / (33.0 / 12.0) - 1.0).abs() < 0.2, "{variance}");

    // The third stage: slots are the numbers and a multiple of the period.
    let raised = prepared.raise(&mut encrypted, &coefficients).unwrap();
    let slots = prepared.slots(&mut encrypted, &raised).unwrap();
    let period = {
        let x = in_clear.raise(&mut clear, &exact).unwrap();
        let x = in_clear.slots(&mut clear, &x).unwrap();
        // In the clear there are no multiples.
        let (index, value) =
            (0..SLOTS).map(|i| (i, values[i])).find(|(_, v)| v.abs() > 0.1).unwrap();
        let share = params.scale() / params.modulus(0).value() as f64;
        let period = x.values()[index] / (value * share);
        assert!(
            largest_error(
                x.values(),
                &values.iter().map(|v| v * share * period).collect::<Vec<_>>()
            ) < 1e-12
        );
        period
    };
    let share = params.scale() / params.modulus(0).value() as f64;
    let found = client.decrypt(&slots);
    let mut is_wrapped = false;
    for (slot, value) in found.iter().enumerate() {
        let turns = value / period;
        let rest = (turns - turns.round()) / share;
        is_wrapped |= turns.round() != 0.0;
        assert!((rest - values[slot % SLOTS]).abs() < 2f64.powi(-14), "{slot}: {turns} {rest}");
    }
    assert!(is_wrapped);
    // The last stage takes them off.
    let out = prepared.reduce(&mut encrypted, &slots).unwrap();
    assert!(largest_error(&client.decrypt(&out), &values) < 2f64.powi(-14));
}

fn wraps_at_first(client: &Client, x: &Ciphertext) -> Vec<i64> {
    let params = &client.parameters;
    let ring = params.ring(0);
    let plain = decrypt(params, &client.secret, x).unwrap();
    let poly = ring.inverse(plain.poly().clone());
    poly.limb(0).iter().map(|&value| ring.modulus(0).to_signed(value)).collect()
}

#[test]
fn a_multiple_beyond_the_range_shows() {
    let params = parameters(1024, LEVELS);
    let bootstrap = Bootstrap::new(&params, LEVELS, SLOTS, 1.0).unwrap();
    let mut clear = Clear::new(&params);
    let prepared = bootstrap.prepare(&clear).unwrap();
    let share = params.scale() / params.modulus(0).value() as f64;
    let width = 16.0 + share + 0.25;
    let (level, scale) = (LEVELS.output() + 8, params.scale_at(LEVELS.output() + 8));
    let mut error = |wraps: f64| {
        let value = (wraps + 0.5 * share) / width;
        let x = clear.vector(&[value], level, scale).unwrap();
        let out = prepared.reduce(&mut clear, &x).unwrap();
        (out.values()[0] - 0.5).abs()
    };
    for wraps in -16..=16 {
        assert!(error(f64::from(wraps)) < 4e-6, "{wraps}: {}", error(f64::from(wraps)));
    }
    for wraps in [17.0, -17.0, 20.0] {
        assert!(error(wraps) > 1e-4, "{wraps}: {}", error(wraps));
    }
}

#[test]
fn longer_ranges_lose_to_the_sine() {
    let params = parameters(1024, LEVELS);
    let mut clear = Clear::new(&params);
    for range in [0.5, 8.0, 32.0] {
        let bootstrap = Bootstrap::new(&params, LEVELS, SLOTS, range).unwrap();
        let prepared = bootstrap.prepare(&clear).unwrap();
        let (_, values) = vectors(SLOTS, range).pop().unwrap();
        let x = clear.vector(&values, 2, params.scale()).unwrap();
        let out = prepared.run(&mut clear, &x).unwrap();
        let error = largest_error(out.values(), &values);
        let sine = bootstrap.sine_error();
        assert!((error - sine).abs() < 0.05 * sine + 2e-6, "{range}: {error} {sine}");
        // One that is larger is refused where numbers are known.
        let x = clear.vector(&[1.01 * range, 0.0], 2, params.scale()).unwrap();
        assert!(matches!(prepared.run(&mut clear, &x), Err(Error::Value { .. })), "{range}");
        let mut simulated = Simulated::new(clear.clone(), &[1; 32]);
        let x = simulated.vector(&[1.01 * range, 0.0], 2, params.scale()).unwrap();
        assert!(matches!(prepared.run(&mut simulated, &x), Err(Error::Value { .. })), "{range}");
    }
}

#[test]
fn scales_within_the_tolerance_lose_no_more_than_it() {
    let mut fixture = Fixture::new(SLOTS, 1.0);
    let values = numbers(6, SLOTS);
    let input = fixture.client.encrypt(&values, 2);
    let params = fixture.client.parameters.clone();
    let (mut encrypted, prepared) = fixture.encrypted();
    let mut simulated = Simulated::new(Clear::new(&params), &[4; 32]);
    let in_clear = fixture.bootstrap.prepare(&simulated).unwrap();
    for factor in [1.0 + 2f64.powi(-21), 1.0 - 2f64.powi(-21)] {
        let mut x = input.clone();
        encrypted.weigh(&mut x, factor).unwrap();
        let out = prepared.run(&mut encrypted, &x).unwrap();
        let error = largest_error(&fixture.client.decrypt(&out), &values);
        assert!(error < 2f64.powi(-14), "{factor}: 2^{:.1}", error.log2());
        let mut x = simulated.vector(&values, 2, params.scale()).unwrap();
        simulated.weigh(&mut x, factor).unwrap();
        let out = in_clear.run(&mut simulated, &x).unwrap();
        let error = largest_error(out.values(), &values);
        assert!(error < 2f64.powi(-14), "{factor}: simulated 2^{:.1}", error.log2());
    }
}

#[test]
fn what_cannot_be_bootstrapped_is_refused() {
    let params = parameters(1024, LEVELS);
    let refused = |levels, slots, range| match Bootstrap::new(&params, levels, slots, range) {
        Err(Error::Bootstrap { why }) => why,
        other => panic!("{other:?}"),
    };
    let most = usize::MAX;
    for (slots, nearest) in [(0, 2), (1, 2), (3, 4), (48, 64), (1024, 512), (most, 512)] {
        let why = refused(LEVELS, slots, 1.0);
        assert!(
            why.contains(&format!("{slots} slots")) && why.contains(&format!("{nearest} comes")),
            "{why}"
        );
    }
    for range in [0.0, -1.0, f64::NAN, f64::INFINITY, 513.0] {
        assert!(refused(LEVELS, SLOTS, range).contains("a positive range up to"), "{range}");
    }
    let deeper = BootstrapLevels { left: 3, ..LEVELS };
    assert!(refused(deeper, SLOTS, 1.0).contains("has 14 levels, expected 15"));
    let other = BootstrapLevels { to_slots: 1, left: 3, ..LEVELS };
    assert!(refused(other, SLOTS, 1.0).contains("level 5 has 51 bits, expected 40"));
    let none = BootstrapLevels { left: 0, ..LEVELS };
    assert!(refused(none, SLOTS, 1.0).contains("a level that is left"));
    let endless = BootstrapLevels { left: most, ..LEVELS };
    assert!(refused(endless, SLOTS, 1.0).contains("has 14 levels"));

    let small = parameters(16, LEVELS);
    let spec = Bootstrap::new(&small, LEVELS, 4, 1.0).unwrap().key_spec();
    let refused = key_bytes(&small, &spec).unwrap_err().to_string();
    assert!(refused.contains("degree 16 is below 32"), "{refused}");

    let bootstrap = Bootstrap::new(&params, LEVELS, SLOTS, 1.0).unwrap();
    let mut quieter = LEVELS.spec("quieter_test", 1024).unwrap();
    quieter.scale_log2 -= 1;
    let others = Clear::new(&Parameters::new(quieter, Platform::detect()).unwrap());
    let refused = bootstrap.prepare(&others).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("for the set \"bootstrap_test\""), "{refused}");
    let mut clear = Clear::new(&params);
    let prepared = bootstrap.prepare(&clear).unwrap();
    let low = clear.vector(&[0.5], 1, params.scale()).unwrap();
    let refused = prepared.run(&mut clear, &low).unwrap_err();
    assert!(matches!(refused, Error::Level { operation: "bootstrap", found: 1, expected: 2 }));
    let louder = clear.vector(&[0.5], 2, 1.5 * params.scale()).unwrap();
    assert!(matches!(prepared.run(&mut clear, &louder), Err(Error::Scale { .. })));
    let high = clear.vector(&[0.5], 1, params.scale()).unwrap();
    assert!(matches!(clear.raise(&high, 5, 1.0), Err(Error::Level { found: 1, expected: 0, .. })));
    let first = clear.vector(&[0.5], 0, params.scale()).unwrap();
    assert!(matches!(clear.raise(&first, 15, 1.0), Err(Error::Level { expected: 14, .. })));
}

#[test]
fn keys_that_are_missing_or_of_another_bootstrap_are_refused() {
    let params = parameters(1024, LEVELS);
    let bootstrap = Bootstrap::new(&params, LEVELS, SLOTS, 1.0).unwrap();
    let whole = bootstrap.key_spec();
    let mut client = Client::new(&params, 71);
    let x = client.encrypt(&[0.5], 2);
    let mut specs = vec![
        ("raise the modulus", KeySpec { raise: None, ..whole.clone() }),
        ("raise the modulus", KeySpec { raise: Some(LEVELS.top() - 1), ..whole.clone() }),
        ("conjugate", KeySpec { conjugation: None, ..whole.clone() }),
        ("multiply", KeySpec { products: Some(LEVELS.top() - 3), ..whole.clone() }),
        // Of half as many slots.
        ("rotation by", Bootstrap::new(&params, LEVELS, SLOTS / 2, 1.0).unwrap().key_spec()),
    ];
    for (steps, level) in whole.rotations.iter() {
        let rotations = whole.rotations.iter().filter(|&(other, _)| other != steps).collect();
        specs.push(("rotation by", KeySpec { rotations, ..whole.clone() }));
        // Or for lower levels alone.
        let lower = |(other, own)| (other, if other == steps { level - 1 } else { own });
        let rotations = whole.rotations.iter().map(lower).collect();
        specs.push(("rotation by", KeySpec { rotations, ..whole.clone() }));
    }
    for (what, spec) in specs {
        let keys = keys(&mut client, &spec);
        let mut encrypted = Encrypted::new(&client.encoder, &keys);
        let prepared = bootstrap.prepare(&encrypted).unwrap();
        let refused = prepared.run(&mut encrypted, &x).unwrap_err().to_string();
        assert!(refused.contains(what), "{what}: {refused}");
        // In the clear for the same.
        let mut clear = Clear::with_keys(&params, &spec);
        let in_clear = bootstrap.prepare(&clear).unwrap();
        let x = clear.vector(&[0.5], 2, params.scale()).unwrap();
        assert_eq!(in_clear.run(&mut clear, &x).unwrap_err().to_string(), refused);
    }
}

#[test]
fn keys_come_back_from_their_bytes() {
    let params = parameters(1024, LEVELS);
    let bootstrap = Bootstrap::new(&params, LEVELS, 8, 1.0).unwrap();
    let spec = bootstrap.key_spec();
    let mut client = Client::new(&params, 72);
    let mut bytes = Vec::new();
    let sink = |piece: &[u8]| bytes.extend_from_slice(piece);
    write_keys(&params, &client.secret, &spec, &[8; 32], &mut client.source, sink).unwrap();
    assert_eq!(bytes.len(), key_bytes(&params, &spec).unwrap());
    let keys = EvaluationKeys::parse(&params, &spec, &bytes).unwrap();
    let values = numbers(5, 8);
    let x = client.encrypt(&values, 2);
    let mut encrypted = Encrypted::new(&client.encoder, &keys);
    let prepared = bootstrap.prepare(&encrypted).unwrap();
    let out = prepared.run(&mut encrypted, &x).unwrap();
    assert!(largest_error(&client.decrypt(&out), &values) < 2f64.powi(-14));
}

#[test]
fn every_published_modulus_is_below_its_secrets_limit() {
    let sets = [
        ("r16", 65536, BootstrapLevels::R16, 512),
        ("l16", 65536, BootstrapLevels::L16, 512),
        ("f16", 65536, BootstrapLevels::F16, 32768),
        ("y15", 32768, BootstrapLevels::Y15, 512),
    ];
    for (degree, slots, levels) in [
        (65536, 2, BootstrapLevels::R16),
        (65536, 2048, BootstrapLevels::R16),
        (65536, 4096, BootstrapLevels::F16),
        (32768, 16384, BootstrapLevels::Y15),
    ] {
        assert_eq!(BootstrapLevels::of(degree, slots).unwrap(), levels);
    }
    for (degree, nearest) in [(1024, 32768), (50000, 65536), (131072, 65536)] {
        let refused = BootstrapLevels::of(degree, 512).unwrap_err().to_string();
        assert!(refused.contains(&format!("{nearest} is nearest")), "{refused}");
        assert!(!refused.contains("  "), "{refused}");
    }
    for (name, degree, levels, slots) in sets {
        let spec = levels.spec(name, degree).unwrap();
        let params = Parameters::new(spec, Platform::detect()).unwrap();
        let bootstrap = Bootstrap::new(&params, levels, slots, 1.0).unwrap();
        let keys = bootstrap.key_spec();
        let bytes = key_bytes(&params, &keys).unwrap();
        assert!(bootstrap.failure_log2() < -138.0);
        println!(
            "{name}: log2 QP {:.1}, {} rotations, keys {:.0} MB",
            params.lattice().key_ring().modulus_log2(),
            keys.rotations.len(),
            bytes as f64 / 1e6
        );
        let mut sparse = 0;
        for key in published_keys(&params, &keys).unwrap() {
            let log2: f64 = key.moduli.iter().map(|&modulus| (modulus as f64).log2()).sum();
            let limit = key.secret.modulus_log2_max(degree);
            assert!(log2 <= limit, "{name}: {log2} above {limit} of {:?}", key.secret);
            if key.secret == SecretKind::Weight32 {
                sparse += 1;
                let own = [params.spec().moduli[0], params.spec().special_moduli[0]];
                assert_eq!(key.moduli, own);
            }
        }
        assert_eq!(sparse, 1);
        // The limits are poulpy's presets and ePrint 2026/279; the estimator itself was not run for them.
        // Fresh ciphertexts are modulo Q alone. A longer modulus under the sparse secret is refused.
        let lattice = params.lattice();
        let limit = SecretKind::Weight32.modulus_log2_max(degree);
        lattice.check(SecretKind::Weight32, limit).unwrap();
        let refused = lattice.check(SecretKind::Weight32, limit + 0.1).unwrap_err().to_string();
        assert!(refused.contains("a secret of weight 32"), "{refused}");
        assert!(refused.contains("2026/279"), "{refused}");
        // As q_0 to q_2 and P, which is what a key for two levels more would be.
        let low = lattice.key_ring().modulus_log2() - params.ring(params.levels()).modulus_log2()
            + params.ring(2).modulus_log2();
        assert_eq!(lattice.check(SecretKind::Weight32, low).is_err(), low > limit);
    }
    assert_eq!(SecretKind::Weight32.modulus_log2_max(16384), 0.0);
}
