//! The multiples of q_0 that a raise adds: how they are distributed, in integers and on ciphertexts, and
//! that the bound on a reduction's failure follows.

use hushtable_rlwe::ckks::{
    Bootstrap, BootstrapLevels, Encrypted, Evaluate, EvaluationKeys, KeySpec,
    reduction_failure_log2,
};
use hushtable_rlwe::ring::{NoiseSource, Ring};

use super::bootstrap::{LEVELS, SLOTS, parameters, wraps};
use super::fixtures::{Client, numbers};

/// Coefficients of the sparse secret that are not 0.
const WEIGHT: usize = 32;

/// C(n, k).
fn choose(n: usize, k: usize) -> f64 {
    (0..k).fold(1.0, |product, i| product * (n - i) as f64 / (i + 1) as f64)
}

/// Σ_k (−1)^k C(n, k) (x − k)^power / power! over k below x: of n numbers uniform from 0 to 1, the
/// density of their sum at x for a power of n − 1, and the chance of less than x for n. Laplace's own
/// sum, which says little near the middle, where it cancels, and all in the tail.
fn laplace(n: usize, power: usize, x: f64) -> f64 {
    let terms = (0..=n).take_while(|&k| (k as f64) < x).map(|k| {
        let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
        let factors = (1..=power).map(|i| (x - k as f64) / i as f64);
        sign * choose(n, k) * factors.product::<f64>()
    });
    terms.sum()
}

/// The chance that a coefficient has `wraps` times q_0 added, under a secret of weight `weight`.
///
/// That is the product of mask and secret over q_0, rounded: a sum of `weight` uniform numbers from −1/2 to
/// 1/2. To be rounded to a number is to be within a half of it, which is the density there of one more.
fn chance(weight: usize, wraps: i64) -> f64 {
    let count = weight + 1;
    laplace(count, count - 1, count as f64 / 2.0 - wraps.abs() as f64)
}

/// Counts of the multiples from −16 to 16.
struct Histogram {
    counts: [u64; 33],
    all: u64,
}

impl Histogram {
    fn of(multiples: impl IntoIterator<Item = i64>) -> Self {
        let (mut counts, mut all) = ([0; 33], 0);
        for multiple in multiples {
            let place = usize::try_from(multiple + 16).unwrap();
            counts[place] += 1;
            all += 1;
        }
        Self { counts, all }
    }

    /// How many are at least `least` in absolute value.
    fn beyond(&self, least: usize) -> u64 {
        let places = 0..self.counts.len();
        places.filter(|place| place.abs_diff(16) >= least).map(|place| self.counts[place]).sum()
    }

    /// Pearson's statistic against secrets of `weight`: each multiple up to 5, and all others on either side.
    fn chi_square(&self, weight: usize) -> f64 {
        let (ends, middle) = ([0..11, 22..33], 11..22);
        let cells = middle.map(|place| place..place + 1).chain(ends);
        let terms = cells.map(|cell| {
            let found: u64 = self.counts[cell.clone()].iter().sum();
            let share: f64 = cell.map(|place| chance(weight, place as i64 - 16)).sum();
            let expected = share * self.all as f64;
            (found as f64 - expected).powi(2) / expected
        });
        terms.sum()
    }
}

/// Of one secret and one mask: the multiples at every `stride`-th coefficient. Near each other, they have
/// numbers of the mask in common, and are not independent.
fn multiples(ring: &Ring, number: u64, stride: usize) -> Vec<i64> {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number.to_le_bytes());
    let mut source = NoiseSource::from_seed(&seed);
    let (degree, modulus) = (ring.degree(), ring.modulus(0));
    let secret = source.sparse(ring, WEIGHT);
    let secret: Vec<(usize, i64)> = (0..degree)
        .map(|index| (index, modulus.to_signed(secret.limb(0)[index])))
        .filter(|&(_, value)| value != 0)
        .collect();
    assert_eq!(secret.len(), WEIGHT);
    // Uniform whichever form it is in.
    let mask = ring.uniform(&seed, 0);
    let mask: Vec<i64> = mask.limb(0).iter().map(|&value| modulus.to_signed(value)).collect();
    let messages = numbers(number as u8, degree / stride);
    let own = |(at, message): (usize, &f64)| {
        let message = (message * f64::from(1u32 << 31)) as i64 * 512;
        multiple(modulus.value(), &secret, &mask, at * stride, message)
    };
    messages.iter().enumerate().map(own).collect()
}

/// The multiple of q_0 that coefficient `at` of mask · secret + body is off from `message`, for the body
/// that decrypts to it modulo q_0; products of X^N are −1.
fn multiple(modulus: u64, secret: &[(usize, i64)], mask: &[i64], at: usize, message: i64) -> i64 {
    let modulus = modulus as i64;
    let product: i64 = secret
        .iter()
        .map(|&(place, value)| {
            let turned = if at < place { -mask[at + mask.len() - place] } else { mask[at - place] };
            value * turned
        })
        .sum();
    let body = (message - product).rem_euclid(modulus);
    let body = if body > modulus / 2 { body - modulus } else { body };
    let off = product + body - message;
    assert_eq!(off % modulus, 0);
    off / modulus
}

#[test]
fn chances_add_up_and_are_those_of_small_sums() {
    // One number is rounded to 0; of two, the sum is beyond a half in an eighth of all cases each way; of
    // three, beyond a half in a sixth.
    for (weight, wraps, expected) in
        [(1, 0, 1.0), (2, 0, 0.75), (2, 1, 0.125), (3, 1, 1.0 / 6.0), (3, 2, 0.0)]
    {
        assert!((chance(weight, wraps) - expected).abs() < 1e-12, "{weight} {wraps}");
    }
    let all: f64 = (-16..=16).map(|wraps| chance(WEIGHT, wraps)).sum();
    let variance: f64 = (-16..=16).map(|i| (i * i) as f64 * chance(WEIGHT, i)).sum();
    assert!((all - 1.0).abs() < 1e-7 && (variance - 33.0 / 12.0).abs() < 1e-6, "{all} {variance}");
    assert_eq!(chance(WEIGHT, 17), 0.0);
}

#[test]
fn multiples_are_sums_of_33_uniform_numbers() {
    let params = parameters(4096, BootstrapLevels { left: 1, ..LEVELS });
    let ring = params.ring(0);
    // 2,048 secrets of 128 coefficients each.
    let all: Vec<i64> = (0..2048).flat_map(|number| multiples(ring, number, 32)).collect();
    let histogram = Histogram::of(all.iter().copied());
    let statistic = histogram.chi_square(WEIGHT);
    println!("{} multiples: {statistic:.1} of 12 degrees of freedom", histogram.all);
    // Above 45 once in 100,000 draws.
    assert!(statistic < 45.0, "{statistic}: {:?}", histogram.counts);
    // Secrets that are two coefficients off in weight would show.
    for other in [30, 34] {
        let statistic = histogram.chi_square(other);
        assert!(statistic > 200.0, "{other}: {statistic}");
    }
    for least in 4..=7 {
        let share: f64 = 2.0 * (least as i64..=16).map(|i| chance(WEIGHT, i)).sum::<f64>();
        let (expected, found) = (share * histogram.all as f64, histogram.beyond(least));
        println!("{least} and beyond: {found}, expected {expected:.1}");
        let off = (found as f64 - expected).abs();
        assert!(off < 5.0 * expected.sqrt() + 1.0, "{least}: {found} {expected}");
    }
    // None of the size of which there is one in a thousand such tests.
    assert_eq!(histogram.beyond(11), 0);
}

#[test]
fn multiples_of_ciphertexts_are_distributed_so() {
    let params = parameters(1024, BootstrapLevels { left: 1, ..LEVELS });
    let spec = KeySpec { raise: Some(2), ..KeySpec::default() };
    let mut found = Vec::new();
    for number in 0..64 {
        let mut client = Client::new(&params, number);
        let (secret, noise) = (&client.secret, &mut client.source);
        // Each set of keys draws a sparse secret.
        let keys = EvaluationKeys::generate(&params, secret, &spec, &[8; 32], noise).unwrap();
        let x = client.encrypt(&numbers(number, SLOTS), 0);
        let raised = Encrypted::new(&client.encoder, &keys).raise(&x, 2, 1.0).unwrap();
        found.extend(wraps(&client, &raised).into_iter().step_by(8).map(|(_, wraps)| wraps));
    }
    let histogram = Histogram::of(found);
    let statistic = histogram.chi_square(WEIGHT);
    println!("{} multiples: {statistic:.1} of 12 degrees of freedom", histogram.all);
    assert!(statistic < 45.0, "{statistic}: {:?}", histogram.counts);
    // So few tell secrets of another kind.
    assert!(histogram.chi_square(24) > 100.0);
}

#[test]
fn the_worst_mask_adds_what_the_reduction_takes() {
    // All products are as large as they can be: 32 halves of q_0, less than one of 1, and half of it at most
    // from the body. That is 16 and no more.
    let modulus = (1i64 << 50) - 27;
    let half = modulus / 2;
    let secret: Vec<(usize, i64)> = (0..WEIGHT).map(|place| (place, 1)).collect();
    let most = multiple(modulus as u64, &secret, &[half; 64], 40, half / 512);
    assert_eq!(most, 16);
    let most = multiple(modulus as u64, &secret, &[-half; 64], 40, -half / 512);
    assert_eq!(most, -16);
}

#[test]
fn the_bound_on_failure_follows() {
    // Beyond 16 is less than a half from the end of a sum of 33: there, all but the first term are 0, and
    // the chance is 2 · (1/2)^33 / 33!, which integers give.
    let factorial_log2: f64 = (1..=33).map(|i| f64::from(i).log2()).sum();
    let exact = |coefficients: usize| 1.0 - 33.0 - factorial_log2 + (coefficients as f64).log2();
    for (coefficients, stated) in [(512, -145.7), (1 << 15, -139.7), (1 << 16, -138.7)] {
        let found = reduction_failure_log2(WEIGHT, 16.0, coefficients);
        assert!((found - exact(coefficients)).abs() < 1e-9, "{found} {}", exact(coefficients));
        assert!((found - stated).abs() < 0.05, "{found} {stated}");
    }
    // Of other ranges and weights by Laplace's sum, which is exact enough in the tail.
    for (weight, wraps) in [(32, 14.0), (32, 12.0), (32, 10.0), (24, 9.5), (64, 28.0), (16, 6.25)] {
        let count = weight + 1;
        let below = laplace(count, count, count as f64 / 2.0 - wraps);
        let expected = (2.0 * below * 1024.0).log2();
        let found = reduction_failure_log2(weight, wraps, 1024);
        assert!((found - expected).abs() < 1e-6, "{weight} {wraps}: {found} {expected}");
    }
    // Whole multiples are rarer still than the bound: beyond 16 there are none.
    let whole: f64 = 2.0 * (15..=16).map(|wraps| chance(WEIGHT, wraps)).sum::<f64>();
    assert!(whole < reduction_failure_log2(WEIGHT, 14.5, 1).exp2(), "{whole}");
    assert_eq!(chance(WEIGHT, 17), 0.0);
    // What a bootstrap says of itself is this, for the numbers that it takes.
    let params = parameters(1024, LEVELS);
    for slots in [2, SLOTS, 512] {
        let bootstrap = Bootstrap::new(&params, LEVELS, slots, 1.0).unwrap();
        assert!((bootstrap.failure_log2() - exact(slots)).abs() < 1e-9, "{slots}");
    }
}
