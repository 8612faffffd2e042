//! Geometric noise about a few rows more than were asked for, never fewer than some.
//!
//! The noise is the clamped geometric's of rounds of K + `by` requests, of which the union has `by`
//! more; what it gives is clamped once more, to `least`..=K. Neighbouring unions stay neighbours under
//! the shift, and no function of an outcome tells more than the outcome: ε is the geometric's,
//! exactly. Clamping only joins outcomes, so that sums of the geometric's integers are the
//! probabilities here.

use rand::CryptoRng;

use super::geometric::Geometric;

#[derive(Debug)]
pub(super) struct Shifted {
    /// Over 1..=K + `by`.
    geometric: Geometric,
    by: u64,
    least: u64,
    requests: u64,
}

impl Shifted {
    /// For 2 ≤ `requests` ≤ 2^22, 1e-9 ≤ `epsilon` ≤ 40 and `least` ≥ 1. A shift or a least above
    /// `requests` reads as many rows as one of `requests`, or nearly.
    pub(super) fn new(epsilon: f64, by: u64, least: u64, requests: u64) -> Self {
        let (by, least) = (by.min(requests), least.min(requests));
        Self { geometric: Geometric::new(epsilon, requests + by), by, least, requests }
    }

    /// `union_rows` must be in 1..=K. Time and addresses do not depend on it, nor on the draw.
    pub(super) fn sample<R: CryptoRng + ?Sized>(&self, union_rows: u64, rng: &mut R) -> u64 {
        let wide = self.geometric.sample(union_rows.wrapping_add(self.by), rng);
        super::clamp(wide as i64, self.least as i64, self.requests as i64) as u64
    }

    /// The probability of reading `reads` rows, as an integer over the geometric's total; both of
    /// 1..=K.
    pub(super) fn numerator(&self, union_rows: u64, reads: u64) -> u128 {
        if reads < self.least {
            return 0;
        }
        let first = if reads == self.least { 1 } else { reads };
        let last = if reads == self.requests { self.requests + self.by } else { reads };
        (first..=last).map(|wide| self.geometric.numerator(union_rows + self.by, wide)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::geometric;
    use super::super::tests::Given;
    use super::Shifted;

    #[test]
    fn every_draw_is_the_geometrics_clamped_once_more() {
        for (by, least) in [(0, 1), (3, 1), (0, 4), (5, 7), (90, 20), (4, 500)] {
            let table = Shifted::new(0.4, by, least, 20);
            let (by, least) = (by.min(20), least.min(20));
            let plain = geometric::Geometric::new(0.4, 20 + by);
            for union in 1..=20 {
                for draw in 0..500_u128 {
                    // Over the positions, with both signs.
                    let bytes = (draw * (u128::MAX / 500)).to_le_bytes().to_vec();
                    let wide = plain.sample(union + by, &mut Given(bytes.clone()));
                    let reads = table.sample(union, &mut Given(bytes));
                    assert_eq!(reads, wide.clamp(least, 20), "{by}, {least}, {union}");
                }
                let sum: u128 = (1..=20).map(|reads| table.numerator(union, reads)).sum();
                assert_eq!(sum, 1 << geometric::TOTAL_BITS);
                assert!((1..least).all(|reads| table.numerator(union, reads) == 0));
            }
        }
    }
}
