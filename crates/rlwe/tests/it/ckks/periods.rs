//! Maps whose diagonals repeat: held once a period, computed as if they were whole.

use hushtable_rlwe::ckks::{
    Ciphertext, Clear, Diagonals, Encoder, Encrypted, Evaluate, EvaluationKeys, ModulusBits,
    ParameterSpec, Parameters, Simulated, Split,
};
use hushtable_rlwe::ring::{Platform, Ring};

use super::fixtures::{Client, numbers, of_bits};

const BITS: ModulusBits = ModulusBits { first: 50, level: 40, special: 50 };
const SCALE: f64 = (1u64 << 40) as f64;
const STEPS: [usize; 9] = [0, 1, 2, 3, 4, 5, 8, 12, 64];

/// `values` over all slots.
fn whole(values: &[f64], slots: usize) -> Vec<f64> {
    values.iter().copied().cycle().take(slots).collect()
}

/// A map of the diagonals `steps`, of these periods in turn, and the same one with whole diagonals.
fn maps(slots: usize, steps: &[usize], periods: &[usize]) -> [Diagonals; 2] {
    let mut maps = [Diagonals::new(slots), Diagonals::new(slots)];
    for (index, &step) in steps.iter().enumerate() {
        let values = numbers(index as u8, periods[index % periods.len()]);
        maps[1].insert(step, whole(&values, slots)).unwrap();
        maps[0].insert(step, values).unwrap();
    }
    maps
}

fn words(x: &Ciphertext) -> [&[u64]; 2] {
    [x.parts().mask.values(), x.parts().body.values()]
}

/// Every platform's parameters, and ciphertexts and keys of one client.
fn everywhere(mut test: impl FnMut(&Parameters, &EvaluationKeys, &[Ciphertext])) {
    for platform in Platform::available() {
        let spec = ParameterSpec::of_bits("periods_test", 512, BITS, 3, 2).unwrap();
        let parameters = Parameters::new(spec, platform).unwrap();
        let mut client = Client::new(&parameters, 1);
        let keys = client.keys(&STEPS[1..]);
        let xs: Vec<_> = (0..3).map(|which| client.encrypt(&numbers(which, 256), 3)).collect();
        test(&parameters, &keys, &xs);
    }
}

#[test]
fn a_diagonal_that_repeats_is_the_whole_one() {
    everywhere(|parameters, keys, xs| {
        let encoder = Encoder::new(parameters);
        let mut evaluator = Encrypted::new(&encoder, keys);
        let alone = (0..9).map(|log2| vec![1 << log2]);
        let mixed = [vec![256, 16], vec![1, 2, 128], vec![64, 8, 8, 8, 32], vec![4, 64]];
        for (index, periods) in alone.chain(mixed).enumerate() {
            let pair = maps(parameters.slots(), &STEPS, &periods);
            let split = Split::new([1, 4, 128][index % 3]);
            let [own, all] = pair.map(|map| evaluator.prepare(&map, split, 3, SCALE).unwrap());
            let found = evaluator.transform_rescale(&[&own], &[&xs[0]]).unwrap();
            let expected = evaluator.transform_rescale(&[&all], &[&xs[0]]).unwrap();
            assert!(words(&found) == words(&expected), "{periods:?} {split:?}");
            // Maps of several periods in one sum.
            let xs = [&xs[0], &xs[1], &xs[2]];
            let found = evaluator.transform(&[&own, &all, &own], &xs).unwrap();
            let expected = evaluator.transform(&[&all, &own, &all], &xs).unwrap();
            assert!(words(&found) == words(&expected), "{periods:?} {split:?}, three maps");
        }
    });
}

/// Σ xs[i] · plaintexts[i], word by word in plain integers.
fn sum_of_products(ring: &Ring, xs: &[&[u64]], plaintexts: &[Vec<u64>]) -> Vec<u64> {
    let degree = ring.degree();
    let word = |index: usize| {
        let modulus = u128::from(ring.modulus(index / degree).value());
        let products = xs.iter().zip(plaintexts);
        let product = |(x, plain): (&&[u64], &Vec<u64>)| {
            u128::from(x[index]) * u128::from(plain[index]) % modulus
        };
        (products.map(product).sum::<u128>() % modulus) as u64
    };
    (0..degree * ring.limbs()).map(word).collect()
}

#[test]
fn products_are_those_of_whole_plaintexts_word_by_word() {
    everywhere(|parameters, keys, xs| {
        let (encoder, ring) = (Encoder::new(parameters), parameters.ring(3));
        let mut evaluator = Encrypted::new(&encoder, keys);
        for periods in [[256, 128, 64], [32, 16, 8], [4, 2, 1], [1, 256, 16]] {
            let values = periods.map(|period| numbers(period as u8, period));
            let map = |values: &Vec<f64>| {
                let mut map = Diagonals::new(parameters.slots());
                map.insert(0, values.clone()).unwrap();
                evaluator.prepare(&map, Split::new(1), 3, SCALE).unwrap()
            };
            let maps = values.each_ref().map(map);
            let plaintexts = values.each_ref().map(|values| {
                let whole = whole(values, parameters.slots());
                encoder.encode_real(&whole, 3, SCALE).unwrap().poly().values().to_vec()
            });
            let found = evaluator.transform(&maps.each_ref(), &[&xs[0], &xs[1], &xs[2]]).unwrap();
            for (side, found) in words(&found).into_iter().enumerate() {
                let xs: Vec<_> = xs.iter().map(|x| words(x)[side]).collect();
                let expected = sum_of_products(ring, &xs, &plaintexts);
                assert!(found == expected, "{periods:?}, side {side}");
            }
        }
    });
}

#[test]
fn the_clear_and_the_simulated_twin_repeat_too() {
    let parameters = of_bits(512, BITS, 3, 2);
    let mut clear = Clear::with_rotations(&parameters, STEPS);
    let [own, all] = maps(parameters.slots(), &STEPS, &[64, 1, 256, 8]);
    let (values, split) = (numbers(7, 256), Split::new(4));
    let x = clear.vector(&values, 3, parameters.scale()).unwrap();
    let images = [&own, &all].map(|map| {
        let prepared = clear.prepare(map, split, 3, SCALE).unwrap();
        clear.transform(&[&prepared], &[&x]).unwrap().values().to_vec()
    });
    assert!(images[0] == images[1]);
    let images = [&own, &all].map(|map| {
        let clear = Clear::with_rotations(&parameters, STEPS);
        let mut simulated = Simulated::new(clear, &[5; 32]);
        let x = simulated.vector(&values, 3, parameters.scale()).unwrap();
        let prepared = simulated.prepare(map, split, 3, SCALE).unwrap();
        let image = simulated.transform(&[&prepared], &[&x]).unwrap();
        (image.exact().to_vec(), image.largest_error())
    });
    // A rounding is drawn for each number that a map has: the noise differs, not its size.
    assert!(images[0].0 == images[1].0);
    let errors = [images[0].1, images[1].1];
    assert!(errors[0] < 2.0 * errors[1] && errors[1] < 2.0 * errors[0], "{errors:?}");
}

#[test]
fn memory_falls_by_the_period() {
    let parameters = of_bits(4096, BITS, 2, 1);
    let (encoder, clear) = (Encoder::new(&parameters), Clear::new(&parameters));
    let keys = Client::new(&parameters, 1).keys(&[]);
    let evaluator = Encrypted::new(&encoder, &keys);
    let simulated = Simulated::new(Clear::new(&parameters), &[5; 32]);
    let split = Split::new(16);
    let steps: Vec<_> = (0..256).collect();
    let memory = |periods: &[usize]| {
        let [map, _] = maps(parameters.slots(), &steps, periods);
        let found = evaluator.prepare(&map, split, 2, SCALE).unwrap().memory_bytes();
        // What is said before is what it takes, by all three.
        assert_eq!(evaluator.prepared_bytes(&map, split, 2).unwrap(), found);
        assert_eq!(clear.prepared_bytes(&map, split, 2).unwrap(), found);
        assert_eq!(simulated.prepared_bytes(&map, split, 2).unwrap(), found);
        found
    };
    let all = memory(&[2048]);
    // 256 diagonals of 4,096 numbers: of five bytes in two limbs, of seven in q_0 and P's.
    let packed = 256 * 4096 * (2 * 5 + 2 * 7);
    assert!((packed..packed + 16_384).contains(&all), "{all} bytes");
    for period in [1024, 256, 64, 4] {
        let run = 2048 / period;
        let found = memory(&[period]);
        assert!((packed / run..packed / run + 16_384).contains(&found), "{period}: {found} bytes");
    }
    // Of one giant step in sixteen a diagonal is whole.
    let mut periods = vec![64; 256];
    periods[17] = 2048;
    let expected = packed / 16 + packed / 16 * 15 / 32;
    let found = memory(&periods);
    assert!((expected..expected + 16_384).contains(&found), "mixed: {found} bytes");
}
