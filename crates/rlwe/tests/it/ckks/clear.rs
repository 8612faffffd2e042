//! Circuits in the clear: values, levels, scales, and misuse.

use hushtable_rlwe::ckks::{Clear, Diagonals, Error, Evaluate, Parameters, Split};

use super::fixtures::{largest_error, numbers, parameters};

fn params() -> Parameters {
    parameters(64, 40, 3)
}

#[test]
fn operations_are_what_they_say() {
    let params = params();
    let mut clear = Clear::new(&params);
    let (a, b) = (numbers(1, 32), numbers(2, 8));
    let scale = params.scale();
    let x = clear.vector(&a, 3, scale).unwrap();
    let y = clear.vector(&b, 3, scale).unwrap();
    let slot = |values: &[f64], index: usize| values[index % values.len()];
    let all = |f: &dyn Fn(usize) -> f64| (0..32).map(f).collect::<Vec<f64>>();

    let mut sum = x.clone();
    clear.add_assign(&mut sum, &y).unwrap();
    assert!(largest_error(sum.values(), &all(&|i| a[i] + slot(&b, i))) == 0.0);
    let mut difference = x.clone();
    clear.sub_assign(&mut difference, &y).unwrap();
    assert!(largest_error(difference.values(), &all(&|i| a[i] - slot(&b, i))) == 0.0);
    let product = clear.multiply(&x, &y).unwrap();
    assert!(largest_error(product.values(), &all(&|i| a[i] * slot(&b, i))) == 0.0);
    assert_eq!((clear.level(&product), clear.scale(&product)), (3, scale * scale));
    let mut down = product.clone();
    clear.rescale(&mut down).unwrap();
    let prime = params.modulus(3).value() as f64;
    assert_eq!((clear.level(&down), clear.scale(&down)), (2, scale * scale / prime));
    let turned = clear.rotate(&x, 5).unwrap();
    assert!(largest_error(turned.values(), &all(&|i| a[(i + 5) % 32])) == 0.0);
    let mut folded = x.clone();
    clear.fold(&mut folded, 4, 8).unwrap();
    let sums = all(&|i| (0..8).map(|k| a[(i + 4 * k) % 32]).sum());
    assert!(largest_error(folded.values(), &sums) < 1e-14);
    let mut plain = x.clone();
    let encoded = clear.encode(&b, 3, 2f64.powi(30)).unwrap();
    clear.multiply_plain(&mut plain, &encoded).unwrap();
    assert!(largest_error(plain.values(), product.values()) == 0.0);
    assert_eq!(clear.scale(&plain), scale * 2f64.powi(30));
    clear.multiply_constant(&mut plain, -2.0, 4.0).unwrap();
    clear.add_constant(&mut plain, 1.0).unwrap();
    assert!(largest_error(plain.values(), &all(&|i| 1.0 - 2.0 * a[i] * slot(&b, i))) < 1e-15);
}

#[test]
fn transforms_are_their_diagonals() {
    let params = params();
    let mut clear = Clear::new(&params);
    let mut maps = [Diagonals::new(32), Diagonals::new(32)];
    for (number, steps, period) in [(0, 0, 32), (0, 7, 4), (0, 31, 1), (1, 7, 16), (1, 20, 32)] {
        maps[number].insert(steps, numbers(steps as u8, period)).unwrap();
    }
    let (a, b) = (numbers(3, 32), numbers(4, 16));
    let xs = [&a, &b].map(|values| clear.vector(values, 2, params.scale()).unwrap());
    let split = Split::new(8);
    let prepared =
        [0, 1].map(|number| clear.prepare(&maps[number], split, 2, 2f64.powi(30)).unwrap());
    let out = clear.transform(&[&prepared[0], &prepared[1]], &[&xs[0], &xs[1]]).unwrap();
    let expected: Vec<f64> =
        maps[0].apply(&a).iter().zip(maps[1].apply(&b)).map(|(x, y)| x + y).collect();
    assert!(largest_error(out.values(), &expected) < 1e-14);
    assert_eq!((clear.level(&out), clear.scale(&out)), (2, params.scale() * 2f64.powi(30)));
    // Baby steps 4 and 7, giant steps 16 and 24.
    for missing in [4, 7, 16, 24] {
        let keys = [4, 7, 16, 24].into_iter().filter(|&steps| steps != missing);
        let mut clear = Clear::with_rotations(&params, keys);
        let refused = clear.transform(&[&prepared[0], &prepared[1]], &[&xs[0], &xs[1]]);
        assert!(matches!(refused, Err(Error::MissingRotation { steps }) if steps == missing));
    }
    let mut clear = Clear::with_rotations(&params, [4, 7, 16, 24]);
    clear.transform(&[&prepared[0], &prepared[1]], &[&xs[0], &xs[1]]).unwrap();
    assert!(matches!(clear.rotate(&xs[0], 5), Err(Error::MissingRotation { steps: 5 })));
    // By nothing, and all around, there is nothing to rotate.
    clear.rotate(&xs[0], 0).unwrap();
    clear.rotate(&xs[0], 64).unwrap();
}

#[test]
fn misuse_is_refused() {
    let params = params();
    let mut clear = Clear::new(&params);
    let scale = params.scale();
    let mut x = clear.vector(&[1.0], 3, scale).unwrap();
    let lower = clear.vector(&[1.0], 2, scale).unwrap();
    let louder = clear.vector(&[1.0], 3, scale * 1.001).unwrap();
    let level = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Level { .. })));
    let scaled = |result: Result<(), Error>| assert!(matches!(result, Err(Error::Scale { .. })));
    level(clear.add_assign(&mut x, &lower));
    level(clear.sub_assign(&mut x, &lower));
    level(clear.multiply(&x, &lower).map(|_| ()));
    scaled(clear.add_assign(&mut x, &louder));
    scaled(clear.sub_assign(&mut x, &louder));
    let plain = clear.encode(&[1.0], 2, scale).unwrap();
    level(clear.add_plain(&mut x, &plain));
    level(clear.multiply_plain(&mut x, &plain));
    level(clear.drop_to(&mut lower.clone(), 3));
    level(clear.encode(&[1.0], 4, scale).map(|_| ()));
    // 2^160 at 170 bits of modulus holds one more bit, not 40; and not at fewer limbs.
    let square = clear.square(&x).unwrap();
    let fourth = clear.square(&square).unwrap();
    scaled(clear.multiply(&fourth, &x).map(|_| ()));
    scaled(clear.multiply_constant(&mut fourth.clone(), 1.0, scale));
    scaled(clear.drop_to(&mut fourth.clone(), 2));
    for value in [f64::NAN, f64::INFINITY, 1e30] {
        let refused = clear.add_constant(&mut x, value);
        assert!(matches!(refused, Err(Error::Value { .. })));
        assert!(matches!(clear.vector(&[value], 3, scale), Err(Error::Value { .. })));
    }
    let mut last = clear.vector(&[1.0], 0, scale).unwrap();
    let refused = clear.rescale(&mut last).unwrap_err();
    assert!(refused.to_string().contains("deeper than the 3 levels of \"ckks_test\""), "{refused}");
    let refused = clear.prepare(&Diagonals::new(16), Split::new(1), 1, scale);
    assert!(matches!(refused, Err(Error::Slots { found: 16, slots: 32 })));
}
