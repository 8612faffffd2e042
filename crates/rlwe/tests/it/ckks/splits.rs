//! Every split of a map's rotations: the map itself, with the keys that it names and no other.

use hushtable_rlwe::ckks::{
    Clear, Diagonals, Encrypted, Error, Evaluate, EvaluationKeys, KeySpec, ModulusBits, Parameters,
    Simulated, Split, Steps,
};

use super::fixtures::{Client, largest_error, numbers, of_bits, source};

const SLOTS: usize = 256;
const LEVEL: usize = 3;

/// Limbs a digit: one, several with a short last one, and all of them.
fn sets() -> [Parameters; 3] {
    let bits = ModulusBits { first: 50, level: 40, special: 50 };
    [1, 3, 5].map(|special| of_bits(2 * SLOTS, bits, 4, special))
}

fn splits() -> Vec<Split> {
    let mut all = Vec::new();
    for baby_steps in [1, 4, 8, 16, 256] {
        for inner_steps in [1, 2, 4, 16, 256] {
            let one = Split { inner_steps, ..Split::new(baby_steps) };
            all.extend([one, Split { is_chained: true, ..one }]);
        }
    }
    all
}

fn map(steps: &[usize]) -> Diagonals {
    let mut map = Diagonals::new(SLOTS);
    for &steps in steps {
        let count = if steps % 2 == 0 { SLOTS } else { 16 };
        map.insert(steps, numbers(steps as u8, count)).unwrap();
    }
    map
}

/// Two maps that share some giant steps, with gaps.
fn maps() -> [Diagonals; 2] {
    [map(&[0, 1, 2, 3, 5, 7, 8, 9, 12, 15, 33]), map(&[4, 11, 17, 49])]
}

fn keys_of(split: Split, maps: &[Diagonals]) -> Vec<usize> {
    let mut all = Vec::new();
    for map in maps {
        let (babies, giants) = split.rotations(map.steps());
        all.extend(babies.into_iter().chain(giants));
    }
    all.sort_unstable();
    all.dedup();
    all
}

fn spec(steps: impl IntoIterator<Item = usize>) -> KeySpec {
    KeySpec {
        rotations: steps.into_iter().map(|steps| (steps, LEVEL)).collect(),
        ..KeySpec::default()
    }
}

fn run<E: Evaluate>(
    evaluator: &mut E,
    split: Split,
    maps: &[Diagonals],
    xs: &[E::Ciphertext],
) -> Result<E::Ciphertext, Error> {
    let prepare = |map| evaluator.prepare(map, split, LEVEL, 2f64.powi(40)).unwrap();
    let maps: Vec<_> = maps.iter().map(prepare).collect();
    evaluator.transform_rescale(&maps.iter().collect::<Vec<_>>(), &xs.iter().collect::<Vec<_>>())
}

#[test]
fn every_split_is_the_map_with_the_keys_that_it_names() {
    let values = [numbers(90, SLOTS), numbers(91, SLOTS)];
    for params in sets() {
        let mut client = Client::new(&params, 5);
        let encoder = client.encoder.clone();
        for (split, count) in splits().into_iter().flat_map(|split| [(split, 1), (split, 2)]) {
            let maps = &maps()[..count];
            let values = &values[..count];
            let images: Vec<_> = maps.iter().zip(values).map(|(map, x)| map.apply(x)).collect();
            let expected: Vec<f64> =
                (0..SLOTS).map(|slot| images.iter().map(|image| image[slot]).sum()).collect();
            let steps = keys_of(split, maps);
            let what = format!("{split:?}, {count} maps, {} limbs", params.special_limbs());

            let own = spec(steps.iter().copied());
            let keys =
                EvaluationKeys::generate(&params, &client.secret, &own, &[8; 32], &mut source(6));
            let keys = keys.unwrap();
            let mut encrypted = Encrypted::new(&encoder, &keys);
            let xs: Vec<_> = values.iter().map(|values| client.encrypt(values, LEVEL)).collect();
            let found = run(&mut encrypted, split, maps, &xs).unwrap();
            let error = largest_error(&client.decrypt(&found), &expected);
            assert!(error < 2f64.powi(-22), "{what}: an error of {error}");

            let mut clear = Clear::with_keys(&params, &own);
            let vector = |x: &Vec<f64>| clear.vector(x, LEVEL, params.scale()).unwrap();
            let xs: Vec<_> = values.iter().map(vector).collect();
            let found = run(&mut clear, split, maps, &xs).unwrap();
            assert!(largest_error(found.values(), &expected) < 1e-12, "{what}");
            let mut simulated = Simulated::new(clear, &[1; 32]);
            let vector = |x: &Vec<f64>| simulated.vector(x, LEVEL, params.scale()).unwrap();
            let xs: Vec<_> = values.iter().map(vector).collect();
            let found = run(&mut simulated, split, maps, &xs).unwrap();
            let error = largest_error(found.values(), &expected);
            assert!(error < 2f64.powi(-22) && error > 0.0, "{what}: an error of {error}");
        }
    }
}

#[test]
fn without_any_of_its_keys_a_split_is_refused() {
    let params = &sets()[1];
    let mut client = Client::new(params, 7);
    let encoder = client.encoder.clone();
    let values = [numbers(90, SLOTS), numbers(91, SLOTS)];
    let encrypted_xs = [0, 1].map(|which| client.encrypt(&values[which], LEVEL));
    for split in [
        Split::new(8),
        Split { is_chained: true, ..Split::new(8) },
        Split { baby_steps: 16, inner_steps: 4, is_chained: true },
        Split { baby_steps: 1, inner_steps: 1, is_chained: true },
    ] {
        let steps = keys_of(split, &maps());
        for missing in steps.clone() {
            let own = spec(steps.iter().copied().filter(|&steps| steps != missing));
            let mut clear = Clear::with_keys(params, &own);
            let vector = |x: &Vec<f64>| clear.vector(x, LEVEL, params.scale()).unwrap();
            let xs: Vec<_> = values.iter().map(vector).collect();
            let refused = run(&mut clear, split, &maps(), &xs);
            let is_named =
                |error| matches!(error, Error::MissingRotation { steps } if steps == missing);
            assert!(is_named(refused.unwrap_err()), "{split:?} {missing}");
            let keys =
                EvaluationKeys::generate(params, &client.secret, &own, &[8; 32], &mut source(6));
            let keys = keys.unwrap();
            let refused = run(&mut Encrypted::new(&encoder, &keys), split, &maps(), &encrypted_xs);
            assert!(refused.is_err_and(is_named), "{split:?} {missing}");
        }
    }
}

#[test]
fn keys_and_steps_are_counted_by_hand() {
    let count = |split: Split| {
        let (babies, giants) = split.rotations(0..256);
        let Steps { babies: hoisted, cuts, giants: sums, divisions, .. } = split.steps(0..256);
        (babies.len() + giants.len(), hoisted, cuts, sums, divisions)
    };
    assert_eq!(count(Split::new(16)), (30, 15, 1, 15, 15));
    assert_eq!(count(Split { is_chained: true, ..Split::new(16) }), (16, 15, 1, 15, 15));
    let few = Split { baby_steps: 16, inner_steps: 4, is_chained: true };
    assert_eq!(few.rotations(0..256), (vec![1, 2, 3, 4, 8, 12], vec![16]));
    assert_eq!(count(few), (7, 15, 4, 15, 18));
    assert_eq!(count(Split::new(1)), (255, 0, 0, 255, 0));
    assert_eq!(count(Split { is_chained: true, ..Split::new(1) }), (1, 0, 0, 255, 254));
    assert_eq!(count(Split::new(256)), (255, 255, 1, 0, 0));
}

#[test]
#[should_panic(expected = "have one split")]
fn maps_of_two_splits_are_no_transform() {
    let params = &sets()[0];
    let mut clear = Clear::new(params);
    let x = clear.vector(&numbers(1, SLOTS), LEVEL, params.scale()).unwrap();
    let prepare = |baby_steps| {
        clear.prepare(&map(&[0, 3]), Split::new(baby_steps), LEVEL, 2f64.powi(40)).unwrap()
    };
    let maps = [prepare(2), prepare(4)];
    let _ = clear.transform(&[&maps[0], &maps[1]], &[&x, &x]);
}
