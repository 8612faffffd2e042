//! ε proved by trying all pairs of neighbours and all outcomes in exact integers, and what the
//! mechanisms cost.

use std::convert::Infallible;

use num_bigint::BigUint;
use proptest::prelude::*;
use rand::{SeedableRng as _, TryCryptoRng, TryRng};
use rand_chacha::ChaCha20Rng;

use super::{
    EPSILON_MIN, Expectation, FdpError, FdpSpec, Mechanism, MechanismSpec, Protects, REQUESTS_MAX,
    Shape, Table, geometric,
};

/// "Random" bytes that a test chose; asked for once.
pub(super) struct Given(pub(super) Vec<u8>);

impl TryRng for Given {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut bytes = [0; 4];
        self.try_fill_bytes(&mut bytes).map(|()| u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut bytes = [0; 8];
        self.try_fill_bytes(&mut bytes).map(|()| u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), Infallible> {
        to.copy_from_slice(&self.0);
        Ok(())
    }
}

impl TryCryptoRng for Given {}

const BITS: u32 = 300;

/// A lower bound of e^ε in units of 2^-300, by the series, from the exact value of the `f64`.
fn exp_below(epsilon: f64) -> BigUint {
    let (mantissa, exponent) =
        (epsilon.to_bits() & ((1 << 52) - 1) | 1 << 52, epsilon.to_bits() >> 52);
    // epsilon = mantissa · 2^(exponent - 1075)
    let point = u32::try_from(1075 - exponent).expect("a positive epsilon below 2^52");
    let mut term = BigUint::from(1_u32) << BITS;
    let mut sum = term.clone();
    for n in 1_u32..400 {
        term = ((term * mantissa) >> point) / n;
        sum += &term;
    }
    sum
}

/// What makes a mechanism worse than ε: the outcome `reads`, for these two unions.
#[derive(Debug, PartialEq)]
struct Violation {
    k_union: u64,
    neighbour: u64,
    reads: u64,
}

/// Whether neighbouring rows (of unions `first`, `first` + 1, …) of weights are within e^ε.
fn check(first: u64, rows: &[Vec<BigUint>], epsilon: f64) -> Result<(), Violation> {
    let factor = exp_below(epsilon);
    for (at, pair) in (first..).zip(rows.windows(2)) {
        for (from, to, k_union, neighbour) in
            [(&pair[0], &pair[1], at, at + 1), (&pair[1], &pair[0], at + 1, at)]
        {
            let (from_total, to_total): (BigUint, BigUint) = (from.iter().sum(), to.iter().sum());
            let (less, more) = (to_total << BITS, from_total * &factor);
            for (reads, (p, q)) in (1..).zip(from.iter().zip(to)) {
                if p * &less > q * &more {
                    return Err(Violation { k_union, neighbour, reads });
                }
            }
        }
    }
    Ok(())
}

/// The integers that the sampler's probabilities are.
fn rows(mechanism: &Mechanism, unions: std::ops::RangeInclusive<u64>) -> Vec<Vec<BigUint>> {
    let row = |k_union: u64| -> Vec<BigUint> {
        let all = 1..=mechanism.requests;
        match &mechanism.table {
            Table::Constant(reads) => all.map(|k| BigUint::from(u8::from(k == *reads))).collect(),
            Table::Clamped { low, high } => {
                let reads = k_union.clamp(*low, *high);
                all.map(|k| BigUint::from(u8::from(k == reads))).collect()
            }
            Table::Geometric(table) => {
                let row: Vec<_> = all.map(|k| table.numerator(k_union, k)).collect();
                assert_eq!(row.iter().sum::<u128>(), 1 << geometric::TOTAL_BITS);
                row.into_iter().map(BigUint::from).collect()
            }
            Table::Shifted(table) => {
                let row: Vec<_> = all.map(|k| table.numerator(k_union, k)).collect();
                assert_eq!(row.iter().sum::<u128>(), 1 << geometric::TOTAL_BITS);
                row.into_iter().map(BigUint::from).collect()
            }
            Table::Exponential(table) => {
                let row = table.draws(k_union);
                assert_eq!(row.iter().sum::<BigUint>(), BigUint::from(1_u32) << 256_u32);
                row
            }
        }
    };
    unions.map(row).collect()
}

fn mechanism(epsilon: f64, mechanism: MechanismSpec, requests: u64) -> Mechanism {
    let spec = FdpSpec { epsilon, mechanism, protects: Protects::Value };
    Mechanism::new(&spec, requests).expect("a mechanism")
}

fn exponential(epsilon: f64, shape: Shape, requests: u64) -> Mechanism {
    mechanism(epsilon, MechanismSpec::Exponential { shape }, requests)
}

fn shapes(requests: u64) -> Vec<MechanismSpec> {
    let middle = requests.div_ceil(2);
    let mut all = vec![
        MechanismSpec::Geometric,
        MechanismSpec::Shifted { by: 3, least: middle },
        MechanismSpec::Shifted { by: 2 * requests, least: 1 },
    ];
    all.extend(
        [
            Shape::Uniform,
            Shape::Square { low: middle, high: requests },
            Shape::Square { low: 1, high: middle },
            Shape::Power { exponent: 5.0 },
            Shape::Power { exponent: 0.5 },
            Shape::Delta { at: None },
            Shape::Delta { at: Some(middle) },
        ]
        .map(|shape| MechanismSpec::Exponential { shape }),
    );
    all
}

#[test]
fn no_outcome_of_neighbours_differs_by_more_than_epsilon() {
    for requests in [1, 2, 3, 7, 40, 120] {
        for epsilon in [EPSILON_MIN, 0.01, 0.1, 1.0, 3.0, 12.5, 39.0] {
            for spec in shapes(requests) {
                let mechanism = mechanism(epsilon, spec, requests);
                let rows = rows(&mechanism, 1..=requests);
                assert_eq!(check(1, &rows, epsilon), Ok(()), "{spec:?}, {epsilon}, {requests}");
                assert!(mechanism.exact_epsilon() <= epsilon * (1.0 + 1e-9) + 1e-12);
            }
        }
    }
}

#[test]
fn the_geometric_mechanism_spends_exactly_epsilon() {
    for requests in [2, 3, 7, 120, 300] {
        for epsilon in [0.01, 0.1, 1.0, 3.0] {
            let mechanism = mechanism(epsilon, MechanismSpec::Geometric, requests);
            let spent = mechanism.exact_epsilon();
            assert!((spent - epsilon).abs() < 1e-6 * epsilon, "{spent} of {epsilon}, {requests}");
            // And the integers cannot be bounded by less.
            let rows = rows(&mechanism, 1..=requests);
            assert!(check(1, &rows, epsilon * (1.0 - 1e-6)).is_err());
        }
    }
}

#[test]
fn a_shift_spends_exactly_epsilon() {
    for (by, least) in [(0, 1), (5, 1), (0, 9), (30, 12)] {
        for epsilon in [0.01, 0.1, 1.0, 3.0] {
            let mechanism = mechanism(epsilon, MechanismSpec::Shifted { by, least }, 120);
            let spent = mechanism.exact_epsilon();
            assert!(
                (spent - epsilon).abs() < 1e-6 * epsilon,
                "{spent} of {epsilon}, {by}, {least}"
            );
            let rows = rows(&mechanism, 1..=120);
            assert!(check(1, &rows, epsilon * (1.0 - 1e-6)).is_err());
        }
    }
}

/// What the spec's text says of losses, and that the least is never undercut.
#[test]
fn a_shift_loses_as_few_rows_as_said() {
    let (by, least, requests) = (47, 100, 10_000);
    let epsilon = 0.01_f64;
    let mechanism = mechanism(epsilon, MechanismSpec::Shifted { by, least }, requests);
    let r = (-epsilon).exp();
    for k_union in [1, 95, 100, 101, 250, 887, 5000, 10_000] {
        let found = mechanism.expectation(k_union);
        let over = k_union.saturating_sub(least) as i32;
        let lost = r.powi(by as i32) * r / (1.0 - r * r) * (1.0 - r.powi(over));
        let share = lost / k_union as f64;
        assert!((found.lost_fraction - share).abs() < 1e-6, "{k_union}: {found:?}, not {share}");
        assert!(found.lost_fraction < 0.1, "{k_union}");
        assert!(found.reads >= least as f64);
    }
    // As hushtable._fdp computes it.
    let found = mechanism.expectation(887);
    assert!((found.dummy_fraction - 0.0882).abs() < 1e-4, "{found:?}");
    assert!((found.lost_fraction - 0.0352).abs() < 1e-4, "{found:?}");
}

#[test]
fn what_a_round_spends_is_what_enumerating_finds() {
    for spec in shapes(120) {
        for epsilon in [0.0, 0.01, 0.3, 1.0, 3.0] {
            let spec = FdpSpec { epsilon, mechanism: spec, protects: Protects::Value };
            let exact = Mechanism::new(&spec, 120).expect("a mechanism").exact_epsilon();
            assert!(exact <= spec.spent() * (1.0 + 1e-9) + 1e-12, "{spec:?}: {exact}");
            assert!(spec.spent() <= epsilon, "{spec:?}");
        }
    }
    let uniform = |protects| FdpSpec {
        epsilon: 1.0,
        mechanism: MechanismSpec::Exponential { shape: Shape::Uniform },
        protects,
    };
    assert!((uniform(Protects::Value).spent() - 0.7144).abs() < 1e-3);
    let all = uniform(Protects::Count { values: 100 }).spent();
    assert!(0.99 < all && all < 1.0, "{all}");
    let constant = MechanismSpec::Exponential { shape: Shape::Delta { at: None } };
    assert_eq!(FdpSpec { mechanism: constant, ..FdpSpec::default() }.spent(), 0.0);
}

#[test]
fn equation_3_spends_half_inside_and_more_at_the_edges() {
    for (epsilon, worst) in [(1.0, 0.714), (0.1, 0.0953), (3.0, 1.66)] {
        let mechanism = exponential(epsilon, Shape::Uniform, 1000);
        let spent = mechanism.exact_epsilon();
        assert!((spent - worst).abs() < 0.006 * worst, "{spent}, expected {worst}");
    }
    // Far from the edges.
    let mechanism = exponential(1.0, Shape::Uniform, 200);
    let inside = rows(&mechanism, 99..=101);
    assert_eq!(check(99, &inside, 0.5 + 1e-9), Ok(()));
    assert!(check(99, &inside, 0.5 - 1e-9).is_err());
    let power = exponential(1.0, Shape::Power { exponent: 5.0 }, 200);
    assert!((power.exact_epsilon() - 1.0).abs() < 0.05, "{}", power.exact_epsilon());
}

/// Tables that end before K: the floor under all outcomes is what keeps ε finite.
#[test]
fn large_rounds_stay_within_epsilon() {
    for (epsilon, requests, is_whole) in [
        (1.0, 700, false),
        (0.1, 2_000, false),
        (3.0, 16_384, false),
        (0.01, 1_500, true),
        (0.1, 100_000, false),
        (1e-5, 16_384, true),
    ] {
        let mechanism = mechanism(epsilon, MechanismSpec::Geometric, requests);
        let Table::Geometric(table) = &mechanism.table else { panic!("{mechanism:?}") };
        assert_eq!(table.reaches_ends(), is_whole, "{epsilon}, {requests}");
        for start in [1, 2, 40, requests / 2, requests - 2] {
            let rows = rows(&mechanism, start..=start + 2);
            assert!(rows[0].iter().all(|p| *p > BigUint::ZERO));
            assert_eq!(check(start, &rows, epsilon), Ok(()), "{epsilon}, {requests}");
        }
    }
    for epsilon in [0.01, 1.0] {
        for shape in [Shape::Uniform, Shape::Power { exponent: 5.0 }] {
            let mechanism = exponential(epsilon, shape, 16_384);
            for start in [1, 8_000, 16_383] {
                let rows = rows(&mechanism, start..=start + 1);
                assert!(rows[0].iter().all(|p| *p > BigUint::ZERO));
                assert_eq!(check(start, &rows, epsilon), Ok(()), "{shape:?}, {epsilon}");
            }
        }
    }
}

/// As the published artifact samples equation 3.
fn softmax_f32(epsilon: f32, requests: u64, k_union: u64) -> Vec<f32> {
    let terms = (1..=requests).map(|i| (-epsilon / 2.0 * k_union.abs_diff(i) as f32).exp());
    let terms: Vec<f32> = terms.collect();
    let all: f32 = terms.iter().sum();
    terms.into_iter().map(|term| term / all).collect()
}

#[test]
fn the_checker_catches_a_float32_softmax() {
    let row = |k_union| -> Vec<BigUint> {
        // Any f32 is an integer over 2^149.
        let integer = |p: f32| match p.to_bits() >> 23 {
            0 => BigUint::from(p.to_bits()),
            exponent => BigUint::from(p.to_bits() & 0x7f_ffff | 0x80_0000) << (exponent - 1),
        };
        softmax_f32(1.0, 16_384, k_union).into_iter().map(integer).collect()
    };
    let rows: Vec<_> = [8_000, 8_001].map(row).to_vec();
    assert!(rows[0].iter().filter(|p| **p == BigUint::ZERO).count() > 15_900);
    // No ε is large enough, as an outcome that one union can give is impossible to its neighbour.
    for epsilon in [1.0, 20.0, 100.0] {
        let Violation { reads, .. } = check(8_000, &rows, epsilon).expect_err("a bad mechanism");
        assert!(reads.abs_diff(8_000) > 100, "{reads}");
    }
}

#[test]
fn the_checker_catches_the_strawman() {
    let mechanism = mechanism(f64::INFINITY, MechanismSpec::Geometric, 9);
    assert!(check(1, &rows(&mechanism, 1..=9), 100.0).is_err());
    assert_eq!(mechanism.exact_epsilon(), f64::INFINITY);
}

#[test]
fn noise_is_as_small_as_said() {
    for (epsilon, geometric, equation_3) in
        [(1.0, 0.851, 1.919), (0.1, 9.98, 19.99), (0.01, 100.0, 200.0)]
    {
        let requests = 10_001;
        let noise = |mechanism: Mechanism| mechanism.expectation(5_001).noise;
        let found = noise(mechanism(epsilon, MechanismSpec::Geometric, requests));
        assert!((found - geometric).abs() < 6e-4 * geometric, "{found}, expected {geometric}");
        let found = noise(exponential(epsilon, Shape::Uniform, requests));
        assert!((found - equation_3).abs() < 6e-4 * equation_3, "{found}, expected {equation_3}");
    }
}

/// Table 1 of the paper, "hide # of priv vals": ε is divided by 100.
#[test]
fn reproduces_the_accesses_of_table_1() {
    for (k_union, epsilon, dummies, lost, reduced) in [
        (887, 1.0, 0.1134, 0.1061, 0.9107),
        (887, 0.1, 1.576, 0.1230, 0.7824),
        (95, 1.0, 1.529, 0.1254, 0.9772),
        (95, 0.1, 19.41, 0.0219, 0.8063),
    ] {
        let spec = FdpSpec {
            epsilon,
            mechanism: MechanismSpec::Exponential { shape: Shape::Uniform },
            protects: Protects::Count { values: 100 },
        };
        let mechanism = Mechanism::new(&spec, 10_000).expect("a mechanism");
        let Expectation { dummy_fraction, lost_fraction, reduced_fraction, .. } =
            mechanism.expectation(k_union);
        let near = |found: f64, expected: f64| (found - expected).abs() < 0.005 * expected;
        assert!(near(dummy_fraction, dummies), "{k_union}, {epsilon}: {dummy_fraction}");
        assert!(near(lost_fraction, lost), "{k_union}, {epsilon}: {lost_fraction}");
        assert!(near(reduced_fraction, reduced), "{k_union}, {epsilon}: {reduced_fraction}");
    }
}

#[test]
fn samples_follow_the_probabilities() {
    let mut rng = ChaCha20Rng::from_seed([5; 32]);
    let samples = 100_000_u32;
    for (requests, epsilon) in [(2, 1.0), (20, 0.3), (90, 2.0)] {
        for spec in shapes(requests) {
            let mechanism = mechanism(epsilon, spec, requests);
            for k_union in [1, requests / 2, requests] {
                let mut counts = vec![0_u32; requests as usize];
                for _ in 0..samples {
                    counts[mechanism.sample(k_union, &mut rng) as usize - 1] += 1;
                }
                let (mut statistic, mut cells, mut rare, mut rare_count) = (0.0, 0.0_f64, 0.0, 0.0);
                for (count, p) in counts.into_iter().zip(mechanism.probabilities(k_union)) {
                    let expected = p * f64::from(samples);
                    if expected < 10.0 {
                        rare += expected;
                        rare_count += f64::from(count);
                        continue;
                    }
                    statistic += (f64::from(count) - expected).powi(2) / expected;
                    cells += 1.0;
                }
                // Far out in the tail of a chi-square of so many degrees of freedom.
                let bound = cells + 6.0 * (2.0 * cells).sqrt() + 12.0;
                assert!(statistic < bound, "{spec:?}, {k_union} of {requests}: {statistic}");
                assert!((rare_count - rare).abs() < 6.0 * (rare + 2.0).sqrt(), "{rare_count}");
            }
        }
    }
}

#[test]
fn extremes_are_the_strawmen() {
    let mut rng = ChaCha20Rng::from_seed([6; 32]);
    let mut draw = |mechanism: &Mechanism, k_union| mechanism.sample(k_union, &mut rng);
    let none = FdpSpec { epsilon: f64::INFINITY, ..FdpSpec::default() };
    let none = Mechanism::new(&none, 50).expect("a mechanism");
    let all = Mechanism::new(&FdpSpec { epsilon: 0.0, ..FdpSpec::default() }, 50).expect("one");
    let square = exponential(f64::INFINITY, Shape::Square { low: 10, high: 20 }, 50);
    let large = mechanism(1e6, MechanismSpec::Geometric, 50);
    for k_union in 1..=50 {
        assert_eq!(draw(&none, k_union), k_union);
        assert_eq!(draw(&all, k_union), 50);
        assert_eq!(draw(&square, k_union), k_union.clamp(10, 20));
        assert_eq!(draw(&large, k_union), k_union);
        assert_eq!(draw(&exponential(1.0, Shape::Delta { at: None }, 50), k_union), 50);
    }
    assert_eq!(all.exact_epsilon(), 0.0);
    // A union of nothing (all padding), and one that cannot be.
    assert_eq!(draw(&none, 0), 1);
    assert_eq!(draw(&none, 99), 50);
}

#[test]
fn hiding_the_number_costs_as_many_times() {
    let spec = FdpSpec { protects: Protects::Count { values: 3 }, ..FdpSpec::default() };
    let mechanism = Mechanism::new(&spec, 64).expect("a mechanism");
    let each = mechanism.epsilon_per_value();
    assert!(3.0 * each <= 1.0 && 3.0 * each > 1.0 - 1e-12, "{each}");
    // Three values may change the union by three.
    let rows = rows(&mechanism, 1..=64);
    for step in 1..=3 {
        let apart: Vec<_> = rows.iter().skip(4).step_by(step).cloned().collect();
        assert_eq!(check(1, &apart, step as f64 * each * (1.0 + 1e-15)), Ok(()));
        assert_eq!(check(1, &apart, 1.0), Ok(()));
    }
}

#[test]
fn refuses_what_cannot_be() {
    let new = |epsilon, mechanism, protects, requests| {
        Mechanism::new(&FdpSpec { epsilon, mechanism, protects }, requests).expect_err("a bad spec")
    };
    let shaped =
        |shape, requests| new(1.0, MechanismSpec::Exponential { shape }, Protects::Value, requests);
    let plain =
        |epsilon, requests| new(epsilon, MechanismSpec::Geometric, Protects::Value, requests);
    assert!(matches!(plain(f64::NAN, 9), FdpError::Epsilon { .. }));
    assert_eq!(plain(-1.0, 9), FdpError::Epsilon { epsilon: -1.0 });
    assert!(matches!(plain(1e-10, 9), FdpError::EpsilonTooSmall { values: 1, .. }));
    assert_eq!(plain(1.0, 0), FdpError::Requests { requests: 0, max: REQUESTS_MAX });
    assert!(matches!(plain(1.0, u64::MAX), FdpError::Requests { .. }));
    let count = |values| Protects::Count { values };
    assert_eq!(new(1.0, MechanismSpec::Geometric, count(0), 9), FdpError::NoValues);
    let error = new(1e-8, MechanismSpec::Geometric, count(100), 9);
    assert!(error.to_string().contains("for 100 values at once leaves"), "{error}");
    let shifted = MechanismSpec::Shifted { by: 1, least: 0 };
    assert_eq!(new(1.0, shifted, Protects::Value, 9), FdpError::NoLeast);
    for (low, high) in [(0, 3), (4, 3), (2, 10), (11, 12)] {
        let error = FdpError::Square { low, high, requests: 9 };
        assert_eq!(shaped(Shape::Square { low, high }, 9), error);
    }
    for exponent in [-1.0, f64::INFINITY, 1e9] {
        assert_eq!(shaped(Shape::Power { exponent }, 9), FdpError::Exponent { exponent });
    }
    for at in [0, 10] {
        assert_eq!(shaped(Shape::Delta { at: Some(at) }, 9), FdpError::Delta { at, requests: 9 });
    }
}

#[test]
fn the_largest_rounds_are_sampled() {
    let mut rng = ChaCha20Rng::from_seed([8; 32]);
    for spec in [
        MechanismSpec::Geometric,
        MechanismSpec::Shifted { by: 1 << 30, least: 1 },
        MechanismSpec::Shifted { by: 7, least: 1 },
        MechanismSpec::Exponential { shape: Shape::Uniform },
    ] {
        for epsilon in [EPSILON_MIN, 1.0] {
            let mechanism = mechanism(epsilon, spec, REQUESTS_MAX);
            for k_union in [1, REQUESTS_MAX / 2, REQUESTS_MAX] {
                let reads = mechanism.sample(k_union, &mut rng);
                let noise = if epsilon < 1.0 { REQUESTS_MAX } else { 100 };
                let centre = match spec {
                    MechanismSpec::Shifted { by, .. } => (k_union + by).min(REQUESTS_MAX),
                    _ => k_union,
                };
                assert!((1..=REQUESTS_MAX).contains(&reads) && reads.abs_diff(centre) <= noise);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_mechanism_is_within_epsilon(
        log in -9.0..1.6_f64,
        requests in 1..60_u64,
        which in 0..10_usize,
        k_union in 0..80_u64,
        seed: [u8; 32],
    ) {
        let epsilon = 10_f64.powf(log).max(EPSILON_MIN);
        let mechanism = mechanism(epsilon, shapes(requests)[which], requests);
        prop_assert_eq!(check(1, &rows(&mechanism, 1..=requests), epsilon), Ok(()));
        let reads = mechanism.sample(k_union, &mut ChaCha20Rng::from_seed(seed));
        prop_assert!((1..=requests).contains(&reads));
        prop_assert!(mechanism.probability(k_union, reads) > 0.0);
        let sum: f64 = mechanism.probabilities(k_union).iter().sum();
        prop_assert!((sum - 1.0).abs() < 1e-12);
    }
}
