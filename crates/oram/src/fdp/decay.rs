//! Integers that fall by at most e^-ε a step: rounding never costs privacy.

/// 1 in fixed point.
pub(super) const ONE: u128 = 1 << FRACTION_BITS;
const FRACTION_BITS: u32 = 127;
/// Terms of the series: below 2^-6, the 24th is less than 2^-200.
const TERMS: u128 = 24;

/// A factor that is at least e^-ε, and at most 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decay {
    factor: u128,
}

impl Decay {
    /// For `epsilon` ≥ 0 and finite.
    pub(super) fn new(epsilon: f64) -> Self {
        Self { factor: exp_negative_above(epsilon) }
    }

    /// The least that may follow `weight`: in [e^-ε · weight, weight], and never 0 after a
    /// positive one.
    pub(super) fn next(self, weight: u128) -> u128 {
        multiply_up(weight, self.factor)
    }

    /// Whether `more` + x ≤ e^ε · x for this x (and so for every larger one).
    pub(super) fn covers(self, more: u128, x: u128) -> bool {
        multiply_wide(more, self.factor) <= multiply_wide(x, ONE - self.factor)
    }
}

/// An upper bound of e^-x in units of 2^-127, by less than 2^-105 for x below 64.
fn exp_negative_above(x: f64) -> u128 {
    let mut halvings = 0;
    let mut scaled = x;
    while scaled >= 1.0 / 64.0 {
        scaled /= 2.0; // exact
        halvings += 1;
    }
    // Rounded down, which makes e^-y larger.
    let y = (scaled * 2_f64.powi(FRACTION_BITS as i32)) as u128;
    // 1 - y + y²/2 - … alternates and falls, so that stopping after an even term bounds it above.
    let (mut sum, mut above, mut below) = (ONE, ONE, ONE);
    for n in 1..=TERMS {
        above = multiply_up(above, y).div_ceil(n);
        below = multiply_down(below, y) / n;
        if n % 2 == 0 { sum += above } else { sum -= below }
    }
    for _ in 0..halvings {
        sum = multiply_up(sum, sum);
    }
    sum.min(ONE)
}

fn multiply_down(a: u128, b: u128) -> u128 {
    let (high, low) = multiply_wide(a, b);
    high << 1 | low >> FRACTION_BITS
}

/// a · b / 2^127 rounded up, for a < 2^127 or b ≤ 2^127.
fn multiply_up(a: u128, b: u128) -> u128 {
    let (_, low) = multiply_wide(a, b);
    multiply_down(a, b) + u128::from(low << 1 != 0)
}

/// The high and the low half of a product.
pub(super) fn multiply_wide(a: u128, b: u128) -> (u128, u128) {
    let half = u128::from(u64::MAX);
    let (a1, a0, b1, b0) = (a >> 64, a & half, b >> 64, b & half);
    let low = a0 * b0;
    // At most (2^64 - 1)² + 2 · (2^64 - 1) < 2^128.
    let middle = a1 * b0 + (low >> 64);
    let other = a0 * b1 + (middle & half);
    (a1 * b1 + (middle >> 64) + (other >> 64), other << 64 | low & half)
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;

    use super::{Decay, ONE, exp_negative_above, multiply_wide};

    /// floor(e^-x · 2^127), by Python's `decimal` at 80 digits.
    const KNOWN: [(f64, u128); 7] = [
        (1e-09, 0x7ffffffdda3e82ffc1c4d46df6b7a9ff),
        (0.005, 0x7f5c91a49f4a2bc3b98122d3c4105a16),
        (0.01, 0x7eb9f3f4ae73f6144ce8f047216d4ce2),
        (0.1, 0x73d1b66754ace9d255100c4c1e196368),
        (1.0, 0x2f16ac6c59de6f8d5d6f63c1482a7c86),
        (3.0, 0x065f6c3333ac2bb2520980c8e4204340),
        (40.0, 0x00000000000000272f249336344852a9),
    ];

    #[test]
    fn bounds_the_exponential_from_above_and_closely() {
        assert_eq!(exp_negative_above(0.0), ONE);
        for (x, floor) in KNOWN {
            let bound = exp_negative_above(x);
            assert!(bound > floor, "e^-{x}: {bound} is below {floor}");
            assert!(bound - floor < 1 << 22, "e^-{x}: {} too much", bound - floor);
        }
    }

    #[test]
    fn weights_fall_no_faster_than_allowed_and_never_to_zero() {
        for (x, floor) in KNOWN {
            let decay = Decay::new(x);
            let mut weight = 1_u128 << 96;
            for _ in 0..2000 {
                let next = decay.next(weight);
                assert!(0 < next && next <= weight);
                let product = BigUint::from(next) << 127;
                assert!(product >= BigUint::from(weight) * floor);
                weight = next;
            }
        }
    }

    #[test]
    fn multiplies_wide() {
        let numbers =
            [0, 1, 2, u128::MAX, u128::MAX - 1, 1 << 64, (1 << 64) - 1, ONE, 0x1234 << 99];
        for a in numbers {
            for b in numbers {
                let (high, low) = multiply_wide(a, b);
                let product = (BigUint::from(high) << 128) + low;
                assert_eq!(product, BigUint::from(a) * b, "{a} · {b}");
            }
        }
    }

    #[test]
    fn covers_what_a_floor_hides() {
        // e^ε - 1 = 1.718… at ε = 1.
        let decay = Decay::new(1.0);
        assert!(decay.covers(1_718_281_828, 1_000_000_000));
        assert!(!decay.covers(1_718_281_829, 1_000_000_000));
    }
}
