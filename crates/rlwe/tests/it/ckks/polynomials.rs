//! Polynomials and approximations: depth, level, scale, values and error.

use hushtable_rlwe::ckks::{Approximation, Basis, Clear, Error, Evaluate, Function, Polynomial};

use super::fixtures::{largest_error, numbers, parameters};

#[test]
fn polynomials_of_every_degree_take_the_smallest_depth() {
    let params = parameters(64, 40, 9);
    let mut clear = Clear::new(&params);
    let t = numbers(1, 32);
    for basis in [Basis::Monomial, Basis::Chebyshev] {
        for degree in (1..=40).chain([63, 64, 127, 128, 255]) {
            for parity in [None, Some(0), Some(1)] {
                let mut coefficients = numbers(degree as u8, degree + 1);
                for (power, coefficient) in coefficients.iter_mut().enumerate() {
                    if power != degree && parity.is_some_and(|parity| power % 2 != parity) {
                        *coefficient = 0.0;
                    }
                }
                let polynomial = Polynomial::new(basis, coefficients).unwrap();
                let depth = (degree as f64 + 1.0).log2().ceil() as usize;
                assert_eq!((polynomial.degree(), polynomial.depth()), (degree, depth));
                // At the lowest level it can be had from, and from one above.
                for spare in [0, 1.min(9 - depth)] {
                    let x = clear.vector(&t, depth + spare, params.scale()).unwrap();
                    let scale = params.scale() * 0.8;
                    let out = polynomial.evaluate(&mut clear, &x, 0, scale).unwrap();
                    assert_eq!(clear.level(&out), 0);
                    assert!((clear.scale(&out) / scale - 1.0).abs() < 1e-12);
                    let expected: Vec<f64> = t.iter().map(|&t| polynomial.at(t)).collect();
                    let error = largest_error(out.values(), &expected);
                    assert!(error < 1e-11, "{basis:?} {degree} {parity:?}: {error}");
                }
                let low = clear.vector(&t, depth - 1, params.scale()).unwrap();
                let refused = polynomial.evaluate(&mut clear, &low, 0, params.scale());
                assert!(matches!(refused, Err(Error::Level { expected, .. }) if expected == depth));
            }
        }
    }
}

#[test]
fn few_products_are_taken() {
    // 2 sqrt(degree) and a depth, about; none for a line.
    for (degree, most) in [(1, 0), (2, 1), (3, 2), (7, 5), (15, 8), (31, 13), (63, 19), (127, 28)] {
        let polynomial = Polynomial::new(Basis::Chebyshev, vec![1.0; degree + 1]).unwrap();
        assert!(polynomial.products() <= most, "{degree}: {}", polynomial.products());
    }
    // Half the powers of an odd one are not there.
    let odd = |k: usize| if k % 2 == 1 { 1.0 } else { 0.0 };
    let odd = Polynomial::new(Basis::Chebyshev, (0..28).map(odd).collect()).unwrap();
    assert!(odd.products() <= 9, "{}", odd.products());
}

#[test]
fn constants_and_bad_coefficients() {
    let params = parameters(64, 40, 2);
    let mut clear = Clear::new(&params);
    let x = clear.vector(&[0.7], 2, params.scale()).unwrap();
    for coefficients in [vec![], vec![0.25], vec![0.25, 0.0, 0.0]] {
        let constant = coefficients.first().copied().unwrap_or(0.0);
        let polynomial = Polynomial::new(Basis::Monomial, coefficients).unwrap();
        let out = polynomial.evaluate(&mut clear, &x, 1, params.scale()).unwrap();
        assert!(out.values().iter().all(|&value| value == constant));
    }
    for bad in [f64::NAN, f64::INFINITY] {
        let refused = Polynomial::new(Basis::Monomial, vec![0.0, 1.0, bad]);
        assert!(matches!(refused, Err(Error::Value { index: 2, .. })));
    }
    for bad in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
        let refused = [
            Approximation::silu(7, bad),
            Approximation::relu(&[3], bad),
            Approximation::nearest_relu(31, bad),
        ];
        assert!(refused.iter().all(|refused| matches!(refused, Err(Error::Range { .. }))));
    }
    for bad in [&[3, 4][..], &[]] {
        let refused = Approximation::relu(bad, 1.0);
        assert!(matches!(refused, Err(Error::Degrees { found }) if found == bad));
    }
    for bad in [0, 1, 256] {
        let refused = Approximation::nearest_relu(bad, 1.0);
        assert!(matches!(refused, Err(Error::Degree { found, .. }) if found == bad));
    }
    assert!(
        Polynomial::interpolate(|x| 1.0 / x, 2).is_err()
            || Polynomial::interpolate(f64::ln, 2).is_err()
    );
}

#[test]
fn functions_come_as_near_as_is_said() {
    let params = parameters(64, 40, 15);
    let mut clear = Clear::new(&params);
    let relu = |degrees: &[usize]| Approximation::relu(degrees, 8.0).unwrap();
    for (approximation, depth, largest_log2) in [
        (Approximation::silu(15, 8.0).unwrap(), 4, -5.0),
        (Approximation::silu(31, 8.0).unwrap(), 5, -12.0),
        (Approximation::silu(63, 8.0).unwrap(), 6, -27.0),
        (Approximation::silu(127, 20.0).unwrap(), 7, -22.0),
        (Approximation::sigmoid(31, 8.0).unwrap(), 5, -13.0),
        (relu(&[15, 15, 27]), 14, -10.0),
        (relu(&[7, 7]), 7, -3.0),
        (Approximation::nearest_relu(31, 8.0).unwrap(), 5, -4.7),
        (Approximation::nearest_relu(63, 8.0).unwrap(), 6, -5.7),
        (Approximation::nearest_relu(127, 8.0).unwrap(), 7, -6.8),
    ] {
        let (function, range) = (approximation.function(), approximation.range());
        let error = approximation.error();
        println!(
            "{function:?} {:?} error 2^{:.2} products {}",
            approximation.stages().iter().map(Polynomial::degree).collect::<Vec<_>>(),
            error.log2(),
            approximation.products()
        );
        assert_eq!(approximation.depth(), depth);
        assert!(error.log2() < largest_log2 && error > 0.0, "{function:?}: 2^{}", error.log2());
        // The error that is said is met, at points it was not measured at.
        let points = numbers(9, 2048);
        let error_at = |&t: &f64| approximation.at(range * t) - function.at(range * t);
        let largest = hushtable_rlwe::largest(points.iter().map(error_at));
        assert!(largest <= error * 1.001 && largest > error / 8.0, "{largest} {error}");
        // And by the circuit.
        let t = &points[..32];
        let x = clear.vector(t, depth, params.scale()).unwrap();
        let out = approximation.evaluate(&mut clear, &x, 0, params.scale()).unwrap();
        assert_eq!(clear.level(&out), 0);
        assert!((clear.scale(&out) / params.scale() - 1.0).abs() < 1e-9);
        let expected: Vec<f64> = t.iter().map(|&t| approximation.at(range * t)).collect();
        assert!(largest_error(out.values(), &expected) < 1e-9, "{function:?}");
        let low = clear.vector(t, depth - 1, params.scale()).unwrap();
        let refused = approximation.evaluate(&mut clear, &low, 0, params.scale());
        assert!(matches!(refused, Err(Error::Level { .. })));
    }
    assert_eq!(Function::Relu.at(-3.0), 0.0);
}

#[test]
fn no_polynomial_of_its_degree_is_nearer_to_relu() {
    // Largest errors on [−8, 8] as another program's exchange has them.
    for (degree, published) in [(15, 0.080), (31, 0.037), (63, 0.018), (127, 0.0089)] {
        let relu = Approximation::nearest_relu(degree, 8.0).unwrap();
        let [polynomial] = relu.stages() else { panic!("{} stages", relu.stages().len()) };
        let coefficients = polynomial.coefficients();
        // Beside x / 2 it is even, so that degree 31 has 30.
        assert_eq!((polynomial.degree(), coefficients[1]), (degree - 1, 4.0));
        assert!(coefficients.iter().skip(3).step_by(2).all(|&odd| odd == 0.0));
        // x = 8 cos θ, dense and with both ends and 0.
        let half = 40 * degree;
        let error = |step: usize| {
            let angle = std::f64::consts::FRAC_PI_2 * step as f64 / half as f64;
            let terms = coefficients.iter().enumerate();
            let sum: f64 = terms.map(|(k, c)| c * (k as f64 * angle).cos()).sum();
            sum - (8.0 * angle.cos()).max(0.0)
        };
        let errors: Vec<f64> = (0..=2 * half).map(error).collect();
        let largest = errors.iter().fold(0.0f64, |largest, error| largest.max(error.abs()));
        assert!((largest / published - 1.0).abs() < 0.012, "{degree}: {largest}");
        assert!((relu.error() / largest - 1.0).abs() < 1e-3, "{} {largest}", relu.error());
        // Of |x|, degree times error comes to Bernstein's constant, as 1 / degree² goes.
        let even = (degree - 1) as f64;
        let constant = largest / 4.0 * even + 4.0 * 0.043_97 / (even * even);
        assert!((constant - 0.280_169).abs() < 3e-5, "{constant}");
        // As large at degree + 2 places, with alternating signs: by Chebyshev's theorem none is nearer.
        let mut last = 0.0;
        let mut turns = 0;
        for &error in errors.iter().filter(|error| error.abs() > largest * 0.999) {
            turns += usize::from(error.signum() != last);
            last = error.signum();
        }
        assert!(turns >= degree + 2, "{degree}: {turns}");
    }
}
