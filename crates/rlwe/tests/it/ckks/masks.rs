//! Keys with their masks held and drawn at each use: the same results; keys from pieces of their bytes.

use hushtable_rlwe::ckks::{
    Bootstrap, BootstrapLevels, Encrypted, Error, Evaluate, EvaluationKeys, KeyReader, KeySpec,
    Masks, ModulusBits, Parameters, key_bytes, key_memory_bytes, write_keys,
};
use hushtable_rlwe::ring::Platform;

use super::fixtures::{Client, key_switches, largest_error, numbers, of_bits, source, words};

const SLOTS: usize = 256;
const LEVEL: usize = 3;

const KINDS: [Masks; 2] = [Masks::Held, Masks::Drawn];

/// The same keys, their masks held and drawn.
fn keys(client: &Client, spec: &KeySpec) -> [EvaluationKeys; 2] {
    let (parameters, secret) = (&client.parameters, &client.secret);
    KINDS.map(|masks| {
        let keys = EvaluationKeys::generate_with(
            parameters,
            secret,
            spec,
            &[8; 32],
            &mut source(3),
            masks,
        );
        keys.unwrap()
    })
}

/// The bytes of some keys.
fn bytes(client: &Client, spec: &KeySpec) -> Vec<u8> {
    let mut bytes = Vec::new();
    let sink = |piece: &[u8]| bytes.extend_from_slice(piece);
    write_keys(&client.parameters, &client.secret, spec, &[8; 32], &mut source(3), sink).unwrap();
    bytes
}

#[test]
fn results_are_the_same_whether_masks_are_held_or_drawn() {
    let bits = ModulusBits { first: 50, level: 40, special: 50 };
    // A digit is one limb, several with a short last one, and all of them.
    for params in [1, 3, 5].map(|special| of_bits(2 * SLOTS, bits, 4, special)) {
        let mut client = Client::new(&params, 5);
        let spec = KeySpec {
            products: Some(LEVEL),
            // Some keys have a limb more than is used.
            rotations: (1..24).map(|steps| (steps, LEVEL + steps % 2)).collect(),
            conjugation: Some(LEVEL),
            ..KeySpec::default()
        };
        let [x, y] = [1, 2].map(|number| client.encrypt(&numbers(number, SLOTS), LEVEL));
        let [held, drawn] = keys(&client, &spec)
            .map(|keys| key_switches(&mut Encrypted::new(&client.encoder, &keys), [&x, &y]));
        assert_eq!(held.len(), drawn.len());
        for (number, (held, drawn)) in held.iter().zip(&drawn).enumerate() {
            assert!(words(held) == words(drawn), "result {number}");
        }
        let product: Vec<f64> =
            numbers(1, SLOTS).iter().zip(numbers(2, SLOTS)).map(|(x, y)| x * y).collect();
        assert!(largest_error(&client.decrypt(&drawn[0]), &product) < 1e-6);
    }
}

#[test]
fn bootstraps_are_the_same_whether_masks_are_held_or_drawn() {
    let levels = BootstrapLevels { left: 2, special: (51, 3), ..BootstrapLevels::R16 };
    let spec = levels.spec("masks_test", 1024).unwrap();
    let params = Parameters::new(spec, Platform::detect()).unwrap();
    let bootstrap = Bootstrap::new(&params, levels, 8, 1.0).unwrap();
    let mut client = Client::new(&params, 72);
    let values = numbers(5, 8);
    let x = client.encrypt(&values, 2);
    let [held, drawn] = keys(&client, &bootstrap.key_spec()).map(|keys| {
        let mut evaluator = Encrypted::new(&client.encoder, &keys);
        bootstrap.prepare(&evaluator).unwrap().run(&mut evaluator, &x).unwrap()
    });
    assert!(words(&held) == words(&drawn));
    assert!(largest_error(&client.decrypt(&drawn), &values) < 2f64.powi(-14));
}

#[test]
fn pieces_of_any_length_make_the_same_keys() {
    let bits = ModulusBits { first: 50, level: 40, special: 50 };
    let params = of_bits(2 * SLOTS, bits, 4, 2);
    let mut client = Client::new(&params, 9);
    let spec = KeySpec {
        products: Some(LEVEL),
        rotations: [(3, LEVEL), (7, 1)].into_iter().collect(),
        ..KeySpec::default()
    };
    let all = bytes(&client, &spec);
    let x = client.encrypt(&numbers(1, SLOTS), LEVEL);
    let rotated = |keys: &EvaluationKeys| {
        words(&Encrypted::new(&client.encoder, keys).rotate(&x, 3).unwrap())
    };
    let expected = rotated(&EvaluationKeys::parse(&params, &spec, &all).unwrap());
    for masks in KINDS {
        for length in [1, 31, 32, 33, 1 << 12, all.len()] {
            let mut reader = KeyReader::new(&params, &spec, masks).unwrap();
            all.chunks(length).for_each(|piece| reader.push(piece).unwrap());
            assert!(rotated(&reader.finish().unwrap()) == expected, "{masks:?} {length}");
        }
        let length_of = |error: Error| match error {
            Error::Core(hushtable_rlwe::Error::Bytes { expected, found, .. }) => {
                assert_eq!(expected, all.len());
                found
            }
            other => panic!("{other}"),
        };
        for length in [0, 31, 32, 100, all.len() - 1] {
            let mut reader = KeyReader::new(&params, &spec, masks).unwrap();
            reader.push(&all[..length]).unwrap();
            assert_eq!(length_of(reader.finish().map(|_| ()).unwrap_err()), length);
        }
        let mut reader = KeyReader::new(&params, &spec, masks).unwrap();
        reader.push(&all).unwrap();
        assert_eq!(length_of(reader.push(&[0]).unwrap_err()), all.len() + 1);
        let mut reader = KeyReader::new(&params, &spec, masks).unwrap();
        reader.push(&all[..32]).unwrap();
        let refused = reader.push(&vec![0xff; all.len() - 32]).unwrap_err();
        assert!(matches!(refused, Error::Core(hushtable_rlwe::Error::Residue { .. })), "{refused}");
    }
    let beyond = KeySpec { products: Some(9), ..KeySpec::default() };
    assert!(KeyReader::new(&params, &beyond, Masks::Drawn).is_err());
}

#[test]
fn memory_is_known_before_there_are_keys_and_halves_without_masks() {
    let levels = BootstrapLevels { left: 2, special: (51, 3), ..BootstrapLevels::R16 };
    let params = Parameters::new(levels.spec("masks_test", 1024).unwrap(), Platform::detect());
    let params = params.unwrap();
    let spec = KeySpec {
        conjugation: Some(2),
        ..Bootstrap::new(&params, levels, 8, 1.0).unwrap().key_spec()
    };
    let client = Client::new(&params, 1);
    let found = keys(&client, &spec).map(|keys| keys.memory_bytes());
    let said = KINDS.map(|masks| key_memory_bytes(&params, &spec, masks).unwrap());
    assert_eq!(found, said);
    let wire = key_bytes(&params, &spec).unwrap();
    assert!(2 * said[1] < said[0] + said[0] / 10, "{said:?}");
    assert!(said[1] < wire + wire / 4, "{said:?} of {wire}");
}
