//! What the ring computes, against definitions: the schoolbook, exact integers, statistics.

use hushtable_ring::{
    Automorphism, Coefficients, Error, Evaluations, Gadget, GadgetSpec, Kernel, Modulus,
    NoiseSource, NttTable, Platform, Poly, Ring, SIGMA, ntt_primes, reference, reverse_bits,
};
use proptest::prelude::*;

/// `limbs` primes of `bits` bits, and the ring over them on one of the machine's platforms.
fn ring(degree: usize, bits: u32, limbs: usize, platform: usize) -> Ring {
    let platforms = Platform::available();
    let platform = platforms[platform % platforms.len()];
    Ring::new(degree, &ntt_primes(bits, degree, limbs), platform).unwrap()
}

/// Shapes: degree, bits and limbs of at most 110 bits together, platform.
fn shapes() -> impl Strategy<Value = Ring> {
    let bits = prop_oneof![Just(27u32), Just(28), Just(36), Just(49), Just(50), Just(51)];
    (3u32..8, bits, 1usize..=4, 0usize..4).prop_map(|(log, bits, limbs, platform)| {
        ring(1 << log, bits, limbs.min(110 / bits as usize), platform)
    })
}

/// A uniform polynomial.
fn uniform(ring: &Ring, seed: u8) -> Poly<Coefficients> {
    ring.inverse(ring.uniform(&[seed; 32], 7))
}

/// Coefficient `index` as a number of −Q/2..Q/2.
fn number(ring: &Ring, poly: &Poly<Coefficients>, index: usize) -> i128 {
    ring.crt().compose_signed(|limb| poly.limb(limb)[index])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn products_of_evaluations_are_the_schoolbooks(ring in shapes(), seed: u8) {
        let (x, y) = (uniform(&ring, seed), uniform(&ring, seed ^ 0x80));
        let mut product = ring.forward(x.clone());
        ring.mul_assign(&mut product, &ring.forward(y.clone()));
        let product = ring.inverse(product);
        for (limb, modulus) in ring.moduli().enumerate() {
            let expected = reference::multiply(modulus, x.limb(limb), y.limb(limb));
            prop_assert_eq!(product.limb(limb), &expected[..]);
        }
    }

    #[test]
    fn the_inverse_transform_undoes_the_forward_one(ring in shapes(), seed: u8) {
        let x = uniform(&ring, seed);
        let image = ring.forward(x.clone());
        prop_assert!(image.values() != x.values());
        let back = ring.inverse(image);
        prop_assert_eq!(back.values(), x.values());
    }

    #[test]
    fn composed_numbers_have_their_residues(ring in shapes(), seed: u8) {
        let x = uniform(&ring, seed);
        let product = ring.crt().product().unwrap() as i128;
        for index in 0..ring.degree() {
            let value = number(&ring, &x, index);
            prop_assert!(2 * value.abs() < product);
            for (limb, modulus) in ring.moduli().enumerate() {
                let residue = value.rem_euclid(i128::from(modulus.value()));
                prop_assert_eq!(residue, i128::from(x.limb(limb)[index]));
            }
        }
    }

    #[test]
    fn a_change_of_basis_keeps_the_numbers(from in shapes(), wider in 28u32..49, seed: u8) {
        let x = uniform(&from, seed);
        // Wide enough to hold what it gets, and then back.
        let limbs = (from.modulus_log2() / f64::from(wider - 1)).ceil() as usize;
        let to = ring(from.degree(), wider, limbs, 0);
        let there = from.change_basis(&x, &to).unwrap();
        if to.crt().product().is_some() {
            for index in 0..from.degree() {
                prop_assert_eq!(number(&from, &x, index), number(&to, &there, index));
            }
        }
        let back = to.change_basis(&there, &from).unwrap();
        prop_assert_eq!(back.values(), x.values());
    }

    #[test]
    fn digits_recompose_to_within_what_was_dropped(
        ring in shapes(), seed: u8, base_bits in 2u32..=26, dropped_bits in 0u32..30,
    ) {
        let modulus_bits = ring.modulus_log2().ceil() as u32;
        let digits = modulus_bits.saturating_sub(dropped_bits).div_ceil(base_bits) as usize;
        let Ok(gadget) = Gadget::new(GadgetSpec { digits, base_bits, dropped_bits }, modulus_bits)
        else { return Ok(()) };
        let x = uniform(&ring, seed);
        let (degree, limbs) = (ring.degree(), ring.limbs());
        let mut out = vec![0; degree * limbs * digits];
        ring.decompose(gadget, &x, &mut out);
        // All digits in all limbs are transformed: back, and each must be one small number.
        for (index, values) in out.chunks_exact_mut(degree).enumerate() {
            ring.kernel().inverse(ring.table(index % limbs), values);
        }
        let bound = 1i64 << (base_bits - 1);
        for index in 0..degree {
            let mut sum = 0i128;
            for digit in 0..digits {
                let at = |limb: usize| out[(digit * limbs + limb) * degree + index];
                let d = ring.modulus(0).to_signed(at(0));
                for (limb, modulus) in ring.moduli().enumerate() {
                    prop_assert_eq!(modulus.from_signed_vartime(d), at(limb));
                }
                prop_assert!(-bound <= d && d < bound + i64::from(digit + 1 == digits));
                sum += i128::from(d) << gadget.weight_bits(digit);
            }
            let rest = (number(&ring, &x, index) - sum).abs();
            prop_assert!(rest <= (1i128 << dropped_bits) >> 1, "{} of {}", rest, dropped_bits);
        }
    }

    #[test]
    fn automorphisms_commute_with_the_transform(
        ring in shapes(), seed: u8, r in 0usize..512, s in 0usize..512,
    ) {
        let degree = ring.degree();
        let x = uniform(&ring, seed);
        let [first, second, both] = [2 * r + 1, 2 * s + 1, (2 * r + 1) * (2 * s + 1)]
            .map(|exponent| Automorphism::new(exponent, degree));
        let moved = ring.automorphism_coefficients(&first, &x);
        // X^i goes to X^(i r): by the definition, one coefficient at a time.
        for index in 0..degree {
            let image = index * first.exponent() % (2 * degree);
            let modulus = ring.modulus(0);
            let value = moved.limb(0)[image % degree];
            let value = if image < degree { value } else { modulus.neg(value) };
            prop_assert_eq!(value, x.limb(0)[index]);
        }
        let evaluations = ring.forward(x);
        let after = ring.automorphism(&first, &evaluations);
        let moved = ring.forward(moved);
        prop_assert_eq!(moved.values(), after.values());
        let twice = ring.automorphism(&second, &after);
        let once = ring.automorphism(&both, &evaluations);
        prop_assert_eq!(twice.values(), once.values());
    }

    #[test]
    fn dropping_a_limb_rounds(bits in 27u32..=51, limbs in 2usize..=4, log in 3u32..8, seed: u8) {
        let limbs = limbs.min(110 / bits as usize);
        let ring = ring(1 << log, bits, limbs, usize::from(seed));
        let x = uniform(&ring, seed);
        let smaller = ring.prefix(limbs - 1).unwrap();
        let dropped = smaller.inverse(ring.drop_last_limb(&ring.forward(x.clone())));
        prop_assert_eq!(dropped.limbs(), limbs - 1);
        let last = i128::from(ring.modulus(limbs - 1).value());
        let product = smaller.crt().product().unwrap() as i128;
        for index in 0..ring.degree() {
            let value = number(&ring, &x, index);
            // The modulus is odd: no number is half way between two multiples.
            let nearest = (value + last / 2).div_euclid(last);
            let difference = number(&smaller, &dropped, index) - nearest;
            prop_assert_eq!(difference.rem_euclid(product), 0);
        }
    }

    #[test]
    fn sums_are_coefficient_by_coefficient(ring in shapes(), seed: u8, w: u64) {
        let (x, y) = (uniform(&ring, seed), uniform(&ring, !seed));
        let (mut sum, mut difference, mut negative, mut scaled) =
            (x.clone(), x.clone(), x.clone(), x.clone());
        ring.add_assign(&mut sum, &y);
        ring.sub_assign(&mut difference, &y);
        ring.neg_assign(&mut negative);
        let residues: Vec<_> = ring.moduli().map(|modulus| w % modulus.value()).collect();
        ring.scale_assign(&mut scaled, &residues);
        for (limb, modulus) in ring.moduli().enumerate() {
            let q = u128::from(modulus.value());
            for index in 0..ring.degree() {
                let [a, b] = [&x, &y].map(|poly| u128::from(poly.limb(limb)[index]));
                let at = |poly: &Poly<Coefficients>| u128::from(poly.limb(limb)[index]);
                prop_assert_eq!(at(&sum), (a + b) % q);
                prop_assert_eq!(at(&difference), (a + q - b) % q);
                prop_assert_eq!(at(&negative), (q - a) % q);
                prop_assert_eq!(at(&scaled), a * u128::from(residues[limb]) % q);
            }
        }
    }

    #[test]
    fn monomials_shift(ring in shapes(), exponent in 0usize..600, seed: u8) {
        let x = uniform(&ring, seed);
        let mut shifted = ring.forward(x.clone());
        ring.mul_assign(&mut shifted, &ring.monomial(exponent));
        let shifted = ring.inverse(shifted);
        let degree = ring.degree();
        for index in 0..degree {
            let to = (index + exponent) % (2 * degree);
            let value = shifted.limb(0)[to % degree];
            let value = if to < degree { value } else { ring.modulus(0).neg(value) };
            prop_assert_eq!(value, x.limb(0)[index]);
        }
    }

    #[test]
    fn moduli_agree_with_wide_integers(value in 1u64..(1 << 50), x: u64, y: u64, exponent: u64) {
        let modulus = Modulus::new(2 * value + 1).unwrap();
        let q = modulus.value();
        let (x, y) = (x % q, y % q);
        let wide = |x: u64| u128::from(x);
        prop_assert_eq!(wide(modulus.add(x, y)), (wide(x) + wide(y)) % wide(q));
        prop_assert_eq!(wide(modulus.sub(x, y)), (wide(x) + wide(q) - wide(y)) % wide(q));
        prop_assert_eq!(wide(modulus.neg(x)), (wide(q) - wide(x)) % wide(q));
        let product = wide(x) * wide(y) % wide(q);
        prop_assert_eq!(wide(modulus.mul(x, y)), product);
        prop_assert_eq!(wide(modulus.mul_shoup(x, y, modulus.shoup(y))), product);
        let lazy = modulus.mul_shoup_lazy((1 << 52) - 1, y, modulus.shoup(y));
        prop_assert!(lazy < 2 * q);
        prop_assert_eq!(wide(lazy) % wide(q), ((1u128 << 52) - 1) * wide(y) % wide(q));
        let largest = 4 * wide(q) * wide(q) - 1;
        prop_assert_eq!(wide(modulus.reduce_product(largest)), largest % wide(q));
        let mut power = 1 % wide(q);
        for bit in (0..64).rev() {
            power = power * power % wide(q);
            if exponent >> bit & 1 == 1 {
                power = power * wide(x) % wide(q);
            }
        }
        prop_assert_eq!(wide(modulus.pow_vartime(x, exponent)), power);
        let signed = modulus.to_signed(x);
        prop_assert!(2 * signed.unsigned_abs() < q);
        prop_assert_eq!(modulus.from_signed(signed), x);
        prop_assert_eq!(modulus.from_signed_vartime(signed - 3 * q as i64), x);
    }
}

#[test]
fn small_and_extreme_moduli_reduce_every_product() {
    for q in (3..130).step_by(2).chain([(1 << 50) - 27, (1 << 50) + 1, (1 << 51) - 1]) {
        let modulus = Modulus::new(q).unwrap();
        let wide = u128::from(q);
        let top = 4 * wide * wide - 1;
        for x in (0..200).chain(top - 200.min(top)..=top) {
            assert_eq!(u128::from(modulus.reduce_product(x)), x % wide, "{x} modulo {q}");
        }
    }
}

#[test]
fn primes_are_prime_largest_first_and_fit_the_degree() {
    let divides = |q: u64| (2..).take_while(|d| d * d <= q).any(|d| q.is_multiple_of(d));
    for (bits, degree) in [(14, 16), (20, 1024), (28, 4096)] {
        let primes = ntt_primes(bits, degree, 5);
        // By trial division, all of them and none left out.
        let step = 2 * degree as u64;
        let expected: Vec<u64> = (1u64 << (bits - 1)..1 << bits)
            .rev()
            .filter(|q| q % step == 1 && !divides(*q))
            .take(5)
            .collect();
        assert_eq!(primes, expected, "{bits} bits");
    }
    // Strong pseudoprimes and their like, and the extremes.
    for (value, is_prime) in [
        (3, true),
        (9, false),
        (2047, false),
        (3_215_031_751, false),
        (341_550_071_728_321, false),
        ((1 << 31) - 1, true),
        ((1 << 51) - 129, true),
        ((1 << 51) - 1, false),
    ] {
        assert_eq!(Modulus::new(value).unwrap().is_prime(), is_prime, "{value}");
    }
}

/// The transform by its definition, in O(N²), with arithmetic of its own.
#[test]
fn the_transform_evaluates_at_odd_powers_of_a_root() {
    for (bits, degree) in [(27, 8), (50, 64), (51, 256)] {
        let q = ntt_primes(bits, degree, 1)[0];
        let table = NttTable::new(Modulus::new(q).unwrap(), degree).unwrap();
        let wide = u128::from(q);
        let power = |exponent: usize| {
            (0..exponent).fold(1u128, |power, _| power * u128::from(table.psi()) % wide)
        };
        assert_eq!(power(degree), wide - 1, "psi is no primitive root");
        let values: Vec<u64> = (0..degree as u64).map(|i| (i * i * 7 + 3) % q).collect();
        for platform in Platform::available() {
            let mut found = values.clone();
            Kernel::new(platform).forward(&table, &mut found);
            for (index, found) in found.into_iter().enumerate() {
                let at = power(2 * reverse_bits(index, degree) + 1);
                let value =
                    values.iter().rev().fold(0, |sum, &c| (sum * at + u128::from(c)) % wide);
                assert_eq!(u128::from(found), value, "{platform:?} {bits} bits {index}");
            }
        }
    }
}

/// Σ (observed − expected)² / expected.
fn chi_square(observed: &[u64], expected: &[f64]) -> f64 {
    let terms = observed.iter().zip(expected);
    terms.map(|(&observed, expected)| (observed as f64 - expected).powi(2) / expected).sum()
}

/// The coefficients of a small polynomial, which all limbs must agree on.
fn small(ring: &Ring, poly: &Poly<Coefficients>) -> Vec<i64> {
    (0..ring.degree())
        .map(|index| {
            let at = |limb: usize| ring.modulus(limb).to_signed(poly.limb(limb)[index]);
            assert!((1..ring.limbs()).all(|limb| at(limb) == at(0)), "limbs differ at {index}");
            at(0)
        })
        .collect()
}

#[test]
fn sparse_coefficients_have_their_weight() {
    let ring = ring(256, 45, 2, 0);
    let (mut places, mut negative) = ([0; 256], 0);
    for number in 0..200 {
        let mut source = NoiseSource::from_seed(&[number; 32]);
        for weight in [0, 1, 32, 40, 256] {
            let values = small(&ring, &source.sparse(&ring, weight));
            assert!(values.iter().all(|value| value.abs() <= 1));
            assert_eq!(values.iter().filter(|&&value| value != 0).count(), weight);
            if weight == 32 {
                values.iter().zip(&mut places).for_each(|(value, place)| *place += value.abs());
                negative += values.iter().filter(|&&value| value < 0).count();
            }
        }
    }
    // Each place 25 times of 200 on average, half of all negative.
    assert!(places.iter().all(|place| (5..50).contains(place)), "{places:?}");
    assert!((3000..3400).contains(&negative), "{negative}");
}

#[test]
fn ternary_coefficients_are_uniform() {
    let ring = ring(1 << 14, 50, 2, 0);
    let mut counts = [0u64; 3];
    for value in small(&ring, &NoiseSource::from_seed(&[1; 32]).ternary(&ring)) {
        counts[usize::try_from(value + 1).unwrap()] += 1;
    }
    let third = ring.degree() as f64 / 3.0;
    // Two degrees of freedom: above 13.8 once in a thousand seeds.
    assert!(chi_square(&counts, &[third; 3]) < 13.8, "{counts:?}");
}

#[test]
fn gaussian_coefficients_have_the_density() {
    let ring = ring(1 << 17, 50, 2, 0);
    let values = small(&ring, &NoiseSource::from_seed(&[2; 32]).gaussian(&ring));
    let count = values.len() as f64;
    let moment = |power: i32| values.iter().map(|&x| (x as f64).powi(power)).sum::<f64>() / count;
    // Five standard errors of each.
    assert!(moment(1).abs() < 5.0 * SIGMA / count.sqrt());
    assert!((moment(2) - SIGMA.powi(2)).abs() < 5.0 * SIGMA.powi(2) * (2.0 / count).sqrt());
    assert!((moment(4) / moment(2).powi(2) - 3.0).abs() < 5.0 * (24.0 / count).sqrt());
    // −12 to 12 one by one, what is beyond together on either side.
    let density = |x: i64| (-(x * x) as f64 / (2.0 * SIGMA * SIGMA)).exp();
    let total: f64 = (-60..=60).map(density).sum();
    let clamp = |x: i64| (x.clamp(-13, 13) + 13) as usize;
    let (mut counts, mut expected) = ([0u64; 27], [0.0; 27]);
    values.iter().for_each(|&x| counts[clamp(x)] += 1);
    (-60..=60).for_each(|x| expected[clamp(x)] += count * density(x) / total);
    // 26 degrees of freedom: above 54.1 once in a thousand seeds.
    let chi_square = chi_square(&counts, &expected);
    assert!(chi_square < 54.1, "{chi_square}: {counts:?}");
}

#[test]
fn uniform_evaluations_fill_the_modulus() {
    let ring = ring(1 << 14, 27, 3, 0);
    let poly: Poly<Evaluations> = ring.uniform(&[3; 32], 1);
    for (limb, modulus) in ring.moduli().enumerate() {
        let mut counts = [0u64; 16];
        for &value in poly.limb(limb) {
            assert!(value < modulus.value());
            counts[(value * 16 / modulus.value()) as usize] += 1;
        }
        // 15 degrees of freedom: above 37.7 once in a thousand seeds.
        assert!(chi_square(&counts, &[1024.0; 16]) < 37.7, "{counts:?}");
    }
    // Other indices, seeds and limbs give other numbers; the same give the same.
    assert_eq!(ring.uniform(&[3; 32], 1).values(), poly.values());
    assert!(ring.uniform(&[3; 32], 2).values() != poly.values());
    assert!(ring.uniform(&[4; 32], 1).values() != poly.values());
    assert!(poly.limb(0) != poly.limb(1));
    // A ring of fewer limbs draws the same for those it has.
    assert_eq!(ring.prefix(2).unwrap().uniform(&[3; 32], 1).limb(1), poly.limb(1));
}

#[test]
fn noise_from_the_system_differs_every_time() {
    let ring = ring(64, 50, 1, 0);
    let draw = || NoiseSource::from_os().unwrap().ternary(&ring).values().to_vec();
    assert!(draw() != draw());
    let mut source = NoiseSource::from_seed(&[9; 32]);
    assert!(source.seed() != source.seed());
}

#[test]
fn bad_shapes_are_refused_by_name() {
    let new = |degree, moduli: &[u64]| Ring::new(degree, moduli, Platform::PORTABLE).map(|_| ());
    let [p, r] = ntt_primes(50, 16, 2)[..] else { panic!("two primes") };
    for degree in [0, 1, 4, 12, 1 << 18, usize::MAX] {
        assert_eq!(new(degree, &[p]), Err(Error::Degree { degree }));
    }
    assert_eq!(new(16, &[]), Err(Error::Limbs { limbs: 0 }));
    assert_eq!(new(16, &[p; 65]), Err(Error::Limbs { limbs: 65 }));
    assert_eq!(new(16, &[p, r, p]), Err(Error::Repeated { modulus: p }));
    for modulus in [0, 1, 2, p + 1, (1 << 51) + 1, u64::MAX] {
        assert_eq!(new(16, &[modulus]), Err(Error::Modulus { modulus }), "{modulus}");
    }
    // Composite, and prime without the root.
    for modulus in [33 * 97, 7, (1 << 31) - 1] {
        assert_eq!(new(16, &[modulus]), Err(Error::NoRoot { modulus, degree: 16 }));
    }
    let ring = Ring::new(16, &[p, r], Platform::PORTABLE).unwrap();
    for limbs in [0, 3, usize::MAX] {
        assert_eq!(ring.prefix(limbs).map(|_| ()), Err(Error::Limbs { limbs }));
    }
    let other = Ring::new(8, &[p], Platform::PORTABLE).unwrap();
    let refused = ring.change_basis(&ring.zero(), &other).map(|_| ());
    assert_eq!(refused, Err(Error::Degree { degree: 8 }));
    for (digits, base_bits, dropped_bits, modulus_bits) in [
        (0, 10, 0, 50),
        (33, 10, 0, 50),
        (5, 1, 0, 50),
        (1, 51, 0, 50),
        (4, 10, 0, 50),  // covers too little
        (6, 10, 0, 50),  // the last digit has nothing to hold
        (3, 10, 50, 50), // nothing is left
        (5, 10, 101, 50),
        (12, 10, 0, 111),
        (usize::MAX, 50, 0, 50),
    ] {
        let spec = GadgetSpec { digits, base_bits, dropped_bits };
        let expected = Error::Gadget { digits, base_bits, dropped_bits, modulus_bits };
        assert_eq!(Gadget::new(spec, modulus_bits), Err(expected.clone()));
        assert!(expected.to_string().contains(&modulus_bits.to_string()));
    }
}

/// Digits so wide that the last one's half would not fit beside the number.
#[test]
fn wide_digits_cover_the_widest_modulus() {
    let ring = ring(16, 36, 3, 0);
    let spec = GadgetSpec { digits: 3, base_bits: 50, dropped_bits: 0 };
    let gadget = Gadget::new(spec, 108).unwrap();
    let product = ring.crt().product().unwrap() as i128;
    for x in [0, 1, -1, 12_345, -(1 << 100), product / 2, -(product / 2)] {
        let sum: i128 = (0..3).map(|j| i128::from(gadget.digit(x, j)) << (50 * j)).sum();
        assert_eq!(sum, x);
    }
}

#[test]
fn polynomials_do_not_show_their_numbers() {
    let ring = ring(8, 27, 1, 0);
    let mut poly = ring.from_signed_vartime(&[77_777]);
    assert!(!format!("{poly:?}").contains("77777"));
    zeroize::Zeroize::zeroize(&mut poly);
    assert!(poly.values().is_empty());
}
