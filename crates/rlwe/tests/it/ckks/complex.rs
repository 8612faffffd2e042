//! Complex slots: maps with complex diagonals, conjugation, scales that weigh.

use hushtable_rlwe::ckks::{
    Ciphertext, Clear, Complex64, Diagonals, Encrypted, Error, Evaluate, EvaluationKeys, KeySpec,
    Parameters, Simulated, Split, decrypt,
};

use super::fixtures::{Client, complex_numbers, numbers, of_bits};
use hushtable_rlwe::ckks::ModulusBits;

const SPLIT: Split = Split::new(4);

fn params() -> Parameters {
    of_bits(1024, ModulusBits { first: 50, level: 40, special: 50 }, 4, 1)
}

fn key_spec(level: usize) -> KeySpec {
    let mut spec =
        KeySpec { conjugation: Some(level), products: Some(level), ..KeySpec::default() };
    spec.rotations.extend([(1, level), (3, level), (508, level)]);
    spec
}

/// A map with real and complex diagonals of several periods.
fn map(slots: usize) -> Diagonals {
    let mut map = Diagonals::new(slots);
    map.insert_complex(0, &complex_numbers(1, 8)).unwrap();
    map.insert(1, numbers(2, 4)).unwrap();
    map.insert_complex(3, &complex_numbers(3, 1)).unwrap();
    map.insert_complex(509, &complex_numbers(4, slots)).unwrap();
    map
}

/// Every operation that complex numbers go through.
fn circuit<E: Evaluate>(e: &mut E, x: &E::Ciphertext) -> Result<E::Ciphertext, Error> {
    let level = e.level(x);
    let scale = e.parameters().modulus(level).value() as f64;
    let map = e.prepare(&map(e.parameters().slots()), SPLIT, level, scale)?;
    let turned = e.transform_rescale(&[&map], &[x])?;
    let mut squared = e.square_rescale(&turned)?;
    let plain = e.encode(&numbers(5, 8), level - 2, e.scale(&squared))?;
    e.add_plain(&mut squared, &plain)?;
    let conjugate = e.conjugate(&squared)?;
    let rotated = e.rotate(&conjugate, 1)?;
    e.sub_assign(&mut squared, &rotated)?;
    let prime = e.parameters().modulus(level - 2).value() as f64;
    e.multiply_constant(&mut squared, 0.7, prime)?;
    e.rescale(&mut squared)?;
    e.weigh(&mut squared, 4.0)?;
    Ok(squared)
}

/// The same on numbers alone.
fn expected(values: &[f64]) -> Vec<Complex64> {
    let slots = 512;
    let values: Vec<_> = values.iter().map(|&re| Complex64::new(re, 0.0)).collect();
    let turned = map(slots).apply_complex(&values);
    let plain = numbers(5, 8);
    let squared: Vec<_> =
        turned.iter().enumerate().map(|(slot, x)| x * x + plain[slot % 8]).collect();
    let of = |slot: usize| 4.0 * 0.7 * (squared[slot] - squared[(slot + 1) % slots].conj());
    (0..slots).map(of).collect()
}

fn deviation(found: &[Complex64], expected: &[Complex64]) -> f64 {
    let squares: f64 = found.iter().zip(expected).map(|(x, y)| (x - y).norm_sqr()).sum();
    (squares / (2 * found.len()) as f64).sqrt()
}

#[test]
fn complex_slots_are_the_same_everywhere() {
    let params = params();
    let values = numbers(6, 512);
    let expected = expected(&values);
    let (level, scale) = (params.levels(), params.scale());
    let mut clear = Clear::with_keys(&params, &key_spec(level));
    let x = clear.vector(&values, level, scale).unwrap();
    let exact = circuit(&mut clear, &x).unwrap();
    assert!(deviation(&exact.complex(), &expected) < 1e-13);
    assert!(exact.complex().iter().any(|value| value.im.abs() > 0.1));

    let mut client = Client::new(&params, 60);
    let keys = EvaluationKeys::generate(
        &params,
        &client.secret,
        &key_spec(level),
        &[8; 32],
        &mut client.source,
    )
    .unwrap();
    let encoder = client.encoder.clone();
    let mut encrypted = Encrypted::new(&encoder, &keys);
    let mut simulated = Simulated::new(clear, &[9; 32]);
    let (mut predicted, mut measured) = (0.0, 0.0);
    for _ in 0..4 {
        let x = simulated.vector(&values, level, scale).unwrap();
        let out = circuit(&mut simulated, &x).unwrap();
        assert_eq!(out.exact(), exact.values());
        predicted += deviation(&out.complex(), &expected).powi(2);
        let x = client.encrypt(&values, level);
        let out: Ciphertext = circuit(&mut encrypted, &x).unwrap();
        assert_eq!(out.level(), 1);
        let plain = decrypt(&params, &client.secret, &out).unwrap();
        measured += deviation(&encoder.decode(&plain), &expected).powi(2);
    }
    let ratio = (measured / predicted).sqrt();
    println!("measured 2^{:.2}, of the prediction {ratio:.3}", measured.sqrt().log2() - 1.0);
    assert!((0.7..1.4).contains(&ratio), "{ratio}");
}

#[test]
fn a_conjugate_of_a_sum_is_real_again() {
    let params = params();
    let mut clear = Clear::new(&params);
    let x = clear.vector(&numbers(7, 512), 2, params.scale()).unwrap();
    let map = clear.prepare(&map(512), SPLIT, 2, 2f64.powi(40)).unwrap();
    let mut image = clear.transform(&[&map], &[&x]).unwrap();
    let conjugate = clear.conjugate(&image).unwrap();
    let real: Vec<f64> = image.values().iter().map(|value| 2.0 * value).collect();
    clear.add_assign(&mut image, &conjugate).unwrap();
    assert_eq!(image.values(), real);
    assert!(image.complex().iter().all(|value| value.im == 0.0));
}

#[test]
fn what_is_complex_is_refused_for_the_same() {
    let params = params();
    let mut map = Diagonals::new(512);
    let bad = Complex64::new(0.0, f64::NAN);
    assert!(matches!(map.insert_complex(0, &[bad]), Err(Error::Value { index: 0, .. })));
    let three = [Complex64::new(1.0, 1.0); 3];
    assert!(matches!(map.insert_complex(0, &three), Err(Error::Slots { found: 3, .. })));
    assert_eq!(map.steps().len(), 0);
    map.insert_complex(5, &[Complex64::new(0.0, 1e30)]).unwrap();
    assert_eq!((map.imaginary(5), map.max_abs()), (Some([1e30].as_slice()), 1e30));
    map.insert_complex(5, &[Complex64::ZERO]).unwrap();
    assert_eq!(map.steps().len(), 0);
    map.insert_complex(5, &[Complex64::new(0.0, 1e30)]).unwrap();
    let mut clear = Clear::with_keys(&params, &key_spec(2));
    let refused = clear.prepare(&map, SPLIT, 3, params.scale());
    assert!(matches!(refused, Err(Error::Value { .. })));
    let mut x = clear.vector(&[1.0], 3, params.scale()).unwrap();
    let refused = clear.conjugate(&x).unwrap_err();
    assert!(matches!(refused, Error::MissingKey { operation: "conjugate", level: 3 }));
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-300, 1e30] {
        assert!(matches!(clear.weigh(&mut x, factor), Err(Error::Scale { .. })), "{factor}");
    }
}
