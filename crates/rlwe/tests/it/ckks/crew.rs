//! Computing on the threads of a pool: the same numbers as on one thread.

use hushtable_rlwe::ckks::{Encrypted, EvaluationKeys, KeySpec, Masks, ModulusBits};

use super::fixtures::{Client, key_switches, numbers, of_bits, source, words};

/// Large enough for every part of a key switch to be shared.
const DEGREE: usize = 1 << 14;
const LEVEL: usize = 3;

#[test]
fn results_are_the_same_on_any_number_of_threads() {
    let bits = ModulusBits { first: 50, level: 40, special: 50 };
    let params = of_bits(DEGREE, bits, LEVEL + 1, 2);
    let mut client = Client::new(&params, 5);
    let spec = KeySpec {
        products: Some(LEVEL),
        rotations: (1..24).map(|steps| (steps, LEVEL)).collect(),
        conjugation: Some(LEVEL),
        ..KeySpec::default()
    };
    let drawn = Masks::Drawn;
    let (secret, noise) = (&client.secret, &mut source(3));
    let keys = EvaluationKeys::generate_with(&params, secret, &spec, &[8; 32], noise, drawn);
    let keys = keys.unwrap();
    let [x, y] = [1, 2].map(|number| client.encrypt(&numbers(number, DEGREE / 2), LEVEL));
    let compute = || {
        let mut evaluator = Encrypted::new(&client.encoder, &keys);
        let made = key_switches(&mut evaluator, [&x, &y]);
        made.iter().map(words).collect::<Vec<_>>()
    };
    let alone = compute();
    for threads in [1, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let together = pool.install(compute);
        assert_eq!(together.len(), alone.len());
        for (number, (found, expected)) in together.iter().zip(&alone).enumerate() {
            assert!(found == expected, "result {number} on {threads} threads");
        }
    }
}
