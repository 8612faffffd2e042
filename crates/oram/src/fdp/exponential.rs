//! Equation 3 of the paper: P(k = i) ∝ Y_i · e^(-ε/2 · |union - i|).
//!
//! The exponentials are integers w(d) that fall from 2^62 by at most e^-ε/2 a step and never to
//! zero. The paper's proof then holds for them word for word: one step changes a term by at most
//! e^ε/2, and so the sum N of all terms, whose share is the probability. A uniform number of 256
//! bits is scaled to 0..N, N being a secret, by one multiplication: each outcome's share of the
//! 2^256 numbers is off by less than one, of 2^72 or more. That costs less than 2^-70, which is
//! taken off ε beforehand.

use std::hint::black_box;

use rand::CryptoRng;
use zeroize::{Zeroize as _, Zeroizing};

use super::decay::{Decay, multiply_wide};
use super::spec::Shape;

const WEIGHT_BITS: u32 = 62;
/// Y of i = K under a power; smaller than 2^-100 of it is taken as that.
const SHAPE_BITS: i32 = 100;
/// Part of ε left for the rounding of probabilities, at least 2^-70 where ε ≥ 2^-30.
const ROUNDING_SHARE: f64 = 1.0 / (1_u64 << 40) as f64;

#[derive(Debug)]
pub(super) struct Exponential {
    /// Y_1 to Y_K, below 2^101, not all zero.
    shape: Vec<u128>,
    /// w(0) to w(K - 1).
    weights: Vec<u64>,
}

impl Exponential {
    /// For 1 ≤ `requests` ≤ 2^22, 1e-9 ≤ `epsilon` ≤ 40, and a checked shape.
    pub(super) fn new(epsilon: f64, shape: Shape, requests: u64) -> Self {
        let decay = Decay::new(epsilon * (1.0 - ROUNDING_SHARE) / 2.0);
        let mut weight = 1 << WEIGHT_BITS;
        let mut weights = Vec::new();
        let mut values = Vec::new();
        for i in 1..=requests {
            weights.push(weight as u64);
            weight = decay.next(weight);
            values.push(match shape {
                Shape::Uniform => 1,
                Shape::Square { low, high } => u128::from(low <= i && i <= high),
                Shape::Power { exponent } => {
                    let ratio = (i as f64 / requests as f64).powf(exponent);
                    ((ratio * 2_f64.powi(SHAPE_BITS)) as u128).max(1)
                }
                Shape::Delta { at } => u128::from(i == at.unwrap_or(requests)),
            });
        }
        Self { shape: values, weights }
    }

    /// `union_rows` must be in 1..=K. Time and addresses do not depend on it, nor on the draw.
    pub(super) fn sample<R: CryptoRng + ?Sized>(&self, union_rows: u64, rng: &mut R) -> u64 {
        let weights = self.weights_around(union_rows);
        let mut all = Wide::default();
        for (&value, &weight) in self.shape.iter().zip(weights.iter()) {
            all = all.plus(Wide::product(value, weight));
        }
        let mut bytes = [0; 32];
        rng.fill_bytes(&mut bytes);
        let draw = Wide {
            high: u128::from_le_bytes(*bytes.last_chunk().unwrap_or(&[0; 16])),
            low: u128::from_le_bytes(*bytes.first_chunk().unwrap_or(&[0; 16])),
        };
        bytes.zeroize();
        let position = black_box(draw.times_shifted(all));
        let mut sum = Wide::default();
        let mut reads = 1_u64;
        for (&value, &weight) in self.shape.iter().zip(weights.iter()) {
            sum = sum.plus(Wide::product(value, weight));
            reads = reads.wrapping_add(1 ^ position.is_less(sum));
        }
        reads
    }

    /// w(|union - i|) for i of 1..=K: the table of all differences, shifted by a secret, one bit
    /// of the shift at a time.
    fn weights_around(&self, union_rows: u64) -> Zeroizing<Vec<u64>> {
        let count = self.weights.len();
        let bits = usize::BITS - (count - 1).leading_zeros();
        let shift = black_box((count as u64).wrapping_sub(union_rows));
        // w(K-1) … w(1) w(0) w(1) … w(K-1), and zeros that are never kept.
        let mut from = Zeroizing::new(vec![0_u64; count + (1 << bits) - 1]);
        let mirrored = self.weights.iter().rev().chain(&self.weights[1..]);
        from.iter_mut().zip(mirrored).for_each(|(to, &weight)| *to = weight);
        let mut to = Zeroizing::new(vec![0_u64; from.len()]);
        for bit in (0..bits).rev() {
            let step = 1 << bit;
            let mask = black_box(0_u64.wrapping_sub(shift >> bit & 1));
            let kept = count + step - 1;
            let pairs = from[..kept].iter().zip(&from[step..step + kept]);
            for (to, (&stay, &moved)) in to.iter_mut().zip(pairs) {
                *to = stay & !mask | moved & mask;
            }
            std::mem::swap(&mut from, &mut to);
        }
        from.truncate(count);
        from
    }

    /// The terms of all outcomes (not obliviously).
    fn terms(&self, union_rows: u64) -> impl Iterator<Item = (u128, u64)> {
        let values = self.shape.iter().zip(1_u64..);
        values.map(move |(&value, i)| (value, self.weights[i.abs_diff(union_rows) as usize]))
    }

    /// The probabilities of reading 1 to K rows.
    pub(super) fn probabilities(&self, union_rows: u64) -> Vec<f64> {
        let terms = self.terms(union_rows).map(|(value, weight)| value as f64 * weight as f64);
        let terms: Vec<f64> = terms.collect();
        let all: f64 = terms.iter().sum();
        terms.into_iter().map(|term| term / all).collect()
    }

    /// How many of the 2^256 draws give each outcome.
    #[cfg(test)]
    pub(super) fn draws(&self, union_rows: u64) -> Vec<num_bigint::BigUint> {
        use num_bigint::BigUint;
        let terms: Vec<BigUint> =
            self.terms(union_rows).map(|(value, weight)| BigUint::from(value) * weight).collect();
        let all: BigUint = terms.iter().sum();
        let (mut sum, mut before) = (BigUint::ZERO, BigUint::ZERO);
        let mut draws = Vec::new();
        for term in terms {
            sum += term;
            let up_to = ((&sum << 256_u32) + &all - 1_u32) / &all;
            draws.push(&up_to - &before);
            before = up_to;
        }
        draws
    }
}

/// A number of 256 bits.
#[derive(Clone, Copy, Debug, Default)]
struct Wide {
    high: u128,
    low: u128,
}

impl Wide {
    fn product(value: u128, weight: u64) -> Self {
        let (high, low) = multiply_wide(value, u128::from(weight));
        Self { high, low }
    }

    fn plus(self, other: Self) -> Self {
        let (low, carry) = self.low.overflowing_add(other.low);
        let high = self.high.wrapping_add(other.high).wrapping_add(u128::from(carry));
        Self { high, low }
    }

    /// 1 or 0, by the borrow.
    fn is_less(self, other: Self) -> u64 {
        let (_, borrow) = self.low.overflowing_sub(other.low);
        let difference = self.high.wrapping_sub(other.high).wrapping_sub(u128::from(borrow));
        // Both are far below 2^255.
        (difference >> 127) as u64
    }

    /// The high 256 bits of the product.
    fn times_shifted(self, other: Self) -> Self {
        let (low, _) = multiply_wide(self.low, other.low);
        let a = multiply_wide(self.high, other.low);
        let b = multiply_wide(self.low, other.high);
        let c = multiply_wide(self.high, other.high);
        let wide = |high, low| Self { high, low };
        // Bits 128 and up: low + a + b, of which the part past 128 bits more is carried.
        let middle = wide(0, low).plus(wide(0, a.1)).plus(wide(0, b.1));
        wide(c.0, c.1).plus(wide(0, a.0)).plus(wide(0, b.0)).plus(wide(0, middle.high))
    }
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;

    use super::super::tests::Given;
    use super::{Exponential, Shape, Wide};

    #[test]
    fn wide_numbers_agree_with_big_ones() {
        let big = |wide: Wide| (BigUint::from(wide.high) << 128_u32) + wide.low;
        let parts = [0, 1, u128::MAX, 1 << 127, 0xdead_beef << 70, u128::MAX - 5];
        for high in parts {
            for low in parts {
                let a = Wide { high, low };
                for b in parts.map(|low| Wide { high: low >> 70, low }) {
                    assert_eq!(big(a.times_shifted(b)), (big(a) * big(b)) >> 256_u32);
                    let (x, y) = (Wide { high: high >> 2, low }, b);
                    assert_eq!(big(x.plus(y)), big(x) + big(y));
                    assert_eq!(x.is_less(y) == 1, big(x) < big(y));
                }
                let product = BigUint::from(high) * (low as u64);
                assert_eq!(big(Wide::product(high, low as u64)), product);
            }
        }
    }

    #[test]
    fn every_draw_gives_the_outcome_it_is_counted_for() {
        for shape in
            [Shape::Uniform, Shape::Power { exponent: 5.0 }, Shape::Square { low: 3, high: 7 }]
        {
            let table = Exponential::new(0.7, shape, 9);
            for union in 1..=9 {
                let mut end = BigUint::ZERO;
                for (index, count) in table.draws(union).into_iter().enumerate() {
                    let start = end.clone();
                    end += &count;
                    if count == BigUint::ZERO {
                        continue;
                    }
                    for draw in [start, &end - 1_u32] {
                        let mut bytes = draw.to_bytes_le();
                        bytes.resize(32, 0);
                        let reads = table.sample(union, &mut Given(bytes));
                        assert_eq!(reads, index as u64 + 1, "{shape:?}, {union}, {draw:x}");
                    }
                }
                assert_eq!(end, BigUint::from(1_u32) << 256_u32);
            }
        }
    }

    #[test]
    fn weights_are_shifted_to_the_union() {
        for requests in [1, 2, 3, 4, 5, 8, 31, 32, 33, 100] {
            let table = Exponential::new(0.3, Shape::Uniform, requests);
            for union in 1..=requests {
                let expected: Vec<u64> = table.terms(union).map(|(_, weight)| weight).collect();
                assert_eq!(*table.weights_around(union), expected, "{union} of {requests}");
            }
        }
    }
}
