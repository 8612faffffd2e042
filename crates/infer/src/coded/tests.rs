use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{
    Clear, Encoder, Encrypted, EvaluationKeys, ModulusBits, ParameterSpec, Simulated, decrypt,
    encrypt,
};
use hushtable_rlwe::ring::{NoiseSource, Platform};

use super::*;

/// A chain of 40 bits a level, without security.
fn chain(levels: usize) -> Parameters {
    let bits = ModulusBits { first: 50, level: 40, special: 50 };
    let spec = ParameterSpec::of_bits("coded_test", 1 << 10, bits, levels, 1).unwrap();
    Parameters::new(spec, Platform::detect()).unwrap()
}

/// The levels of a set that bootstraps with `left` levels left, and the set without security.
fn refreshed(left: usize) -> (BootstrapLevels, Parameters) {
    let levels = BootstrapLevels { left, special: (50, 3), ..BootstrapLevels::R16 };
    let spec = levels.spec("coded_test", 1 << 10).unwrap();
    (levels, Parameters::new(spec, Platform::detect()).unwrap())
}

fn tables(base: usize, digits: usize, dim: usize) -> DigitTables {
    let number = |index: usize| ((index * 7919 + 13) % 201) as f64 / 100.0 - 1.0;
    let rows = (0..base * digits * dim).map(number).collect();
    DigitTables::new(base, digits, dim, rows)
}

fn tokens(base: usize, digits: usize) -> Vec<usize> {
    (0..digits).map(|table| (table * 5 + 1) % base).collect()
}

fn largest_error(found: &[f64], expected: f64) -> f64 {
    hushtable_rlwe::largest(found.iter().map(|found| found - expected))
}

/// CodedHELUT of all numbers.
fn lookup<E: Evaluate>(
    tables: &DigitTables,
    evaluator: &mut E,
    schedule: &Schedule,
    bootstrap: Option<&Bootstrap>,
    repeated: &E::Ciphertext,
) -> Result<Vec<E::Ciphertext>, Error> {
    let prepared = bootstrap.map(|bootstrap| bootstrap.prepare(evaluator)).transpose()?;
    let one_hot = tables.one_hot_coded(evaluator, schedule, prepared.as_ref(), repeated)?;
    let number = |index: usize| {
        let column = tables.column_coded(evaluator, schedule, index)?;
        tables.number_coded(evaluator, &one_hot, &column)
    };
    (0..tables.dim).map(number).collect()
}

#[test]
fn an_indicator_tells_zero_from_other_integers() {
    for base in Indicator::BASES {
        let indicator = Indicator::of_base(base).unwrap();
        assert_eq!(indicator.value(0.0), 1.0);
        for difference in 1..base {
            let value = indicator.value(difference as f64 / base as f64);
            assert!((0.0..0.01).contains(&value), "base {base}: {difference} gives {value}");
        }
    }
    assert_eq!(Indicator::of_base(5), None);
}

#[test]
fn both_ways_look_up_the_same_embedding() {
    for (base, digits, dim) in [(4, 3, 5), (4, 8, 20), (8, 2, 16)] {
        let (tables, indicator) = (tables(base, digits, dim), Indicator::of_base(base).unwrap());
        let tokens = tokens(base, digits);
        let expected = tables.lookup(&tokens);

        let parameters = chain(Schedule::levels(indicator, 0));
        let schedule = Schedule::new(&parameters, None, indicator, 0).unwrap();
        assert_eq!((schedule.bootstraps(), schedule.start().0), (0, parameters.levels()));
        let mut evaluator = Clear::with_keys(&parameters, &tables.keys_coded(&schedule, None));
        let (level, scale) = schedule.start();
        let repeated = evaluator.vector(&tables.repeated(&tokens), level, scale).unwrap();
        let found = lookup(&tables, &mut evaluator, &schedule, None, &repeated).unwrap();
        for (found, &expected) in found.iter().zip(&expected) {
            assert_eq!(evaluator.level(found), 0);
            assert!(largest_error(found.values(), expected) < 0.01);
        }

        let parameters = chain(1);
        let mut evaluator = Clear::new(&parameters);
        let (map, scale) = (tables.map(parameters.slots()).unwrap(), parameters.scale());
        let map = evaluator.prepare(&map, tables.split(), 1, scale).unwrap();
        let one_hot = evaluator.vector(&tables.one_hot(&tokens), 1, scale).unwrap();
        let mut found = evaluator.transform(&[&map], &[&one_hot]).unwrap();
        evaluator.rescale(&mut found).unwrap();
        for (found, expected) in found.values().iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-9, "{found} for {expected}");
        }
    }
}

#[test]
fn bootstraps_are_placed_before_cleanings() {
    use super::schedule::Step::{Align, Bootstrap, Clean, Differ, Square};
    let (levels, parameters) = refreshed(5);
    let indicator = Indicator::of_base(64).unwrap();
    // 15 levels, 4 that end in a bootstrap, and 5 of which 2 are left.
    let schedule = Schedule::new(&parameters, Some(levels), indicator, 2).unwrap();
    let mut expected = vec![Differ];
    expected.extend([Square; 13]);
    expected.extend([Bootstrap { then: 5 }, Clean, Align]);
    expected.extend([Bootstrap { then: 7 }, Clean, Clean]);
    assert_eq!(schedule.steps(), expected);
    // The client's level is the least that will do.
    assert_eq!(schedule.start().0, 16);
    assert_eq!(schedule.end().0, 3);
    // Of base 4 all fits below the top.
    let schedule = Schedule::new(&parameters, Some(levels), Indicator::of_base(4).unwrap(), 2);
    assert_eq!(schedule.unwrap().bootstraps(), 0);
}

/// A lookup in a set that bootstraps: in the clear, simulated and encrypted.
fn bootstrapped(base: usize, (left, left_behind): (usize, usize), bootstraps: usize) {
    let (levels, parameters) = refreshed(left);
    let (tables, indicator) = (tables(base, 2, 3), Indicator::of_base(base).unwrap());
    let tokens = tokens(base, 2);
    let expected = tables.lookup(&tokens);
    let schedule = Schedule::new(&parameters, Some(levels), indicator, left_behind).unwrap();
    assert_eq!(schedule.bootstraps(), bootstraps);
    let bootstrap = tables.bootstrap(&parameters, levels).unwrap();
    let spec = tables.keys_coded(&schedule, Some(&bootstrap));
    let (input, (level, scale)) = (tables.repeated(&tokens), schedule.start());

    let mut clear = Clear::with_keys(&parameters, &spec);
    let repeated = clear.vector(&input, level, scale).unwrap();
    let exact = lookup(&tables, &mut clear, &schedule, Some(&bootstrap), &repeated).unwrap();
    let mut simulated = Simulated::new(clear.clone(), &[5; 32]);
    let repeated = simulated.vector(&input, level, scale).unwrap();
    let noisy = lookup(&tables, &mut simulated, &schedule, Some(&bootstrap), &repeated).unwrap();

    let mut source = NoiseSource::from_seed(&[6; 32]);
    let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
    let keys = EvaluationKeys::generate(&parameters, &secret, &spec, &[7; 32], &mut source);
    let (keys, encoder) = (keys.unwrap(), Encoder::new(&parameters));
    let mut encrypted = Encrypted::new(&encoder, &keys);
    let plain = encoder.encode_real(&input, level, scale).unwrap();
    let repeated = encrypt(&parameters, &secret, &plain, &[8; 32], 0, &mut source).unwrap();
    let found = lookup(&tables, &mut encrypted, &schedule, Some(&bootstrap), &repeated).unwrap();

    let (mut measured, mut predicted) = (Vec::new(), Vec::new());
    for (index, &expected) in expected.iter().enumerate() {
        assert_eq!(encrypted.level(&found[index]), left_behind);
        assert_eq!(clear.level(&exact[index]), left_behind);
        let ratio = encrypted.scale(&found[index]) / parameters.scale();
        assert!((ratio - 1.0).abs() < 1e-9, "{ratio}");
        let value = exact[index].values()[0];
        assert!((value - expected).abs() < 0.02, "{value} for {expected}");
        let slots = encoder.decode_real(&decrypt(&parameters, &secret, &found[index]).unwrap());
        measured.push(largest_error(&slots, value));
        predicted.push(largest_error(noisy[index].values(), value));
    }
    let (measured, predicted) =
        (hushtable_rlwe::largest(measured), hushtable_rlwe::largest(predicted));
    assert!(measured < 2f64.powi(-16), "{measured}");
    assert!((0.25..4.0).contains(&(measured / predicted)), "{measured} {predicted}");
}

#[test]
fn a_lookup_with_one_bootstrap_is_what_it_is_in_the_clear() {
    bootstrapped(16, (6, 4), 1);
}

#[test]
fn a_lookup_with_two_bootstraps_is_what_it_is_in_the_clear() {
    bootstrapped(64, (5, 2), 2);
}

#[test]
fn what_a_schedule_needs_is_asked_for() {
    let (levels, parameters) = refreshed(6);
    let (tables, indicator) = (tables(16, 2, 1), Indicator::of_base(16).unwrap());
    let schedule = Schedule::new(&parameters, Some(levels), indicator, 4).unwrap();
    let bootstrap = tables.bootstrap(&parameters, levels).unwrap();
    let keys = tables.keys_coded(&schedule, Some(&bootstrap));
    let (level, scale) = schedule.start();
    let run = |keys: &KeySpec, bootstrap, level, scale| {
        let mut evaluator = Clear::with_keys(&parameters, keys);
        let repeated = evaluator.vector(&tables.repeated(&[0, 1]), level, scale).unwrap();
        lookup(&tables, &mut evaluator, &schedule, bootstrap, &repeated).map(|_| ()).unwrap_err()
    };
    let refused = run(&keys, None, level, scale).to_string();
    assert!(refused.contains("was given none: prepare one"), "{refused}");
    let lower = run(&keys, Some(&bootstrap), level - 1, scale);
    assert!(matches!(lower, Error::Level { .. }), "{lower}");
    let louder = run(&keys, Some(&bootstrap), level, 2.0 * scale);
    assert!(matches!(louder, Error::Scale { .. }), "{louder}");
    let keys = KeySpec { raise: None, ..keys };
    let without = run(&keys, Some(&bootstrap), level, scale);
    assert!(matches!(without, Error::MissingKey { .. }), "{without}");
}

#[test]
fn a_chain_that_is_too_short_says_what_works() {
    let indicator = Indicator::of_base(16).unwrap();
    let refused = |levels, parameters: &Parameters, left| {
        Schedule::new(parameters, levels, indicator, left).unwrap_err().to_string()
    };
    assert_eq!(
        refused(None, &chain(20), 6),
        "the set \"coded_test\": its 20 levels are too few: a lookup in tables of 16 rows takes 16 and \
         leaves 6: leave at most 4, or take tables of 8 rows, or take a set that bootstraps"
    );
    assert_eq!(
        refused(None, &chain(3), 0),
        "the set \"coded_test\": its 3 levels are too few: a lookup in tables of 16 rows takes 16 and \
         leaves 0: take a set that bootstraps"
    );
    // What the messages name works.
    Schedule::new(&chain(20), None, indicator, 4).unwrap();
    Schedule::new(&chain(20), None, Indicator::of_base(8).unwrap(), 6).unwrap();

    let (levels, parameters) = refreshed(6);
    let refused = refused(Some(levels), &parameters, 8);
    assert!(refused.contains("with bootstraps too"), "{refused}");
    assert!(refused.contains("leave at most 7, or take tables of 4 rows"), "{refused}");
    Schedule::new(&parameters, Some(levels), indicator, 7).unwrap();
}

#[test]
fn a_set_that_bootstraps_is_measured() {
    let (levels, parameters) = refreshed(6);
    let measure = |base, left| {
        let indicator = Indicator::of_base(base).unwrap();
        let asked = Asked { dim: 3, indicator, digits: 2, left, is_bootstrapped: true, runs: 2 };
        compare::Lookup::new(&asked, Platform::detect()).bootstrapped(levels, &parameters).unwrap()
    };
    let (with, without) = (measure(16, 4), measure(4, 4));
    assert_eq!((with.coded.bootstraps, without.coded.bootstraps), (1, 0));
    for found in [&with, &without] {
        assert_eq!((found.coded.ciphertexts, found.linear.ciphertexts), (3, 1));
        assert_eq!((found.coded.levels, found.linear.levels), (levels.top(), levels.top()));
        assert!(found.coded.error < 0.02 && found.linear.error < 1e-4, "{found:?}");
        assert!(found.linear.key_bytes < found.coded.key_bytes, "{found:?}");
    }
    // Keys for a bootstrap are only made where there is one.
    assert!(2 * without.coded.key_bytes < with.coded.key_bytes, "{without:?}");
}

#[test]
fn both_ways_are_compared_under_encryption() {
    let asked = Asked {
        dim: 5,
        indicator: Indicator::of_base(4).unwrap(),
        digits: 3,
        left: 0,
        is_bootstrapped: false,
        runs: 1,
    };
    let found = compare(&asked, Platform::detect()).unwrap();
    let (coded, linear) = (found.coded.unwrap(), found.linear);
    let (coded, same_ring) = (coded.coded, coded.linear);
    // Its authors' indicator is within 2 % of 0 and 1 before cleaning, 0.1 % after.
    assert!(coded.error < 0.02, "{coded:?}");
    assert!(linear.error < 1e-4, "{linear:?}");
    assert_eq!((coded.ciphertexts, linear.ciphertexts), (5, 1));
    assert_eq!((coded.levels, coded.bootstraps, linear.levels), (10, 0, 1));
    assert!(coded.degree > linear.degree);
    assert_eq!(same_ring.degree, coded.degree);
    assert!(same_ring.error < 1e-4 && same_ring.levels == 1, "{same_ring:?}");
    assert_eq!((found.levels_needed, found.levels_max), (10, 41));
    assert_eq!(found.leveled_until_base, Some(64));
    assert_eq!(found.bootstraps_from_base, None);
    assert_eq!(found.bootstrapped, None);

    let refused = compare(&Asked { left: 32, ..asked }, Platform::detect()).unwrap_err();
    assert!(refused.to_string().contains("leave at most 31"), "{refused}");
    let all = Asked { left: 32, is_bootstrapped: true, ..asked };
    let refused = compare(&all, Platform::detect()).unwrap_err();
    assert!(refused.to_string().contains("leave at most 22"), "{refused}");
}
