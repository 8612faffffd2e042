//! The clamped two-sided geometric distribution over an integer table.
//!
//! A distance d is drawn with the weight h(d), h(0) being half of what the others suggest, then a
//! sign; the number of rows is the union's plus that, clamped to 1..=K. Weights fall by at most
//! e^-ε a step, so that two neighbouring unions give any outcome within e^ε, with one exception:
//! the first distance past the table, whose neighbour is in it. That one is paid for by the mass
//! left over, which goes where it is the same for every union and large enough:
//!
//! - the table reaches K - 1: the mass is of "K - 1 or farther", which clamping sends to 1 or K;
//! - it does not: the mass (about 2^-31) is spread over all of 1..=K.
//!
//! Both are checked in integers as the table is made.

use std::hint::black_box;

use rand::CryptoRng;
use zeroize::Zeroize as _;

use super::decay::Decay;

/// Bits of the draw of a distance.
const MASS_BITS: u32 = 96;
const MASS: u128 = 1 << MASS_BITS;
/// Bits of the draw among 1..=K that the left-over mass makes.
const FLOOR_BITS: u32 = 28;
const FLOOR: u64 = 1 << FLOOR_BITS;
/// The least mass that is spread over 1..=K: 2^-32 of all.
const FLOOR_MASS: u128 = MASS >> 32;
/// Probabilities are integers over 2 to this.
pub(super) const TOTAL_BITS: u32 = MASS_BITS + 1 + FLOOR_BITS;

/// What probabilities are integers over.
pub(super) fn total() -> f64 {
    2_f64.powi(TOTAL_BITS as i32)
}

#[derive(Debug)]
pub(super) struct Geometric {
    requests: u64,
    /// The weights of all distances up to this one, summed.
    cumulative: Vec<u128>,
    /// Whether the left-over mass is of distance K - 1 and beyond, not spread over 1..=K.
    reaches_ends: bool,
}

impl Geometric {
    /// For 2 ≤ `requests` ≤ 2^23 and 1e-9 ≤ `epsilon` ≤ 40.
    pub(super) fn new(epsilon: f64, requests: u64) -> Self {
        let decay = Decay::new(epsilon);
        // Without rounding, h(0) · (1 + α) / (1 - α) is all of it.
        let share = (epsilon / 2.0).tanh() * (1.0 - 2_f64.powi(-31));
        let mut centre = (share * 2_f64.powi(MASS_BITS as i32)) as u128;
        loop {
            if let Some(table) = Self::with_centre(centre, decay, requests) {
                return table;
            }
            // Rounding left too little over; a centre of 0 leaves all.
            centre -= (centre >> 16) + 1;
        }
    }

    fn with_centre(centre: u128, decay: Decay, requests: u64) -> Option<Self> {
        let reach = usize::try_from(requests - 1).ok()?;
        let floor = 2 * FLOOR_MASS * u128::from(FLOOR / requests);
        let is_covered = |weight: u128| decay.covers(weight << FLOOR_BITS, floor);
        let mut cumulative = vec![centre];
        let mut sum = centre;
        // Of z = 0 both signs count.
        let mut last = 2 * centre;
        while cumulative.len() < reach && !is_covered(last) {
            last = decay.next(last);
            sum += last;
            cumulative.push(sum);
        }
        let rest = MASS.checked_sub(sum)?;
        let reaches_ends = cumulative.len() == reach;
        let is_private = if reaches_ends { decay.covers(last, rest) } else { rest >= FLOOR_MASS };
        is_private.then_some(Self { requests, cumulative, reaches_ends })
    }

    /// `union_rows` must be in 1..=K. Time and addresses do not depend on it, nor on the draw.
    pub(super) fn sample<R: CryptoRng + ?Sized>(&self, union_rows: u64, rng: &mut R) -> u64 {
        let mut bytes = [0; 16];
        rng.fill_bytes(&mut bytes);
        let draw = black_box(u128::from_le_bytes(bytes));
        bytes.zeroize();
        let position = draw & (MASS - 1);
        let mut distance = 0_u64;
        for &sum in &self.cumulative {
            // Bit 127 of the difference is set where position < sum.
            let is_past = 1 ^ (position.wrapping_sub(sum) >> 127) as u64;
            distance = distance.wrapping_add(is_past);
        }
        let sign = 0_i64.wrapping_sub((draw >> MASS_BITS) as i64 & 1);
        let noise = (distance as i64 ^ sign).wrapping_sub(sign);
        let near = super::clamp((union_rows as i64).wrapping_add(noise), 1, self.requests as i64);
        // Public: which of the two tables this is.
        if self.reaches_ends {
            return near as u64;
        }
        let choice = (draw >> (MASS_BITS + 1)) as u64 & (FLOOR - 1);
        let anywhere = (choice.wrapping_mul(self.requests) >> FLOOR_BITS).wrapping_add(1) as i64;
        let past = (distance as i64).wrapping_sub(self.cumulative.len() as i64);
        let is_in_table = black_box(past >> 63);
        (near & is_in_table | anywhere & !is_in_table) as u64
    }

    /// The probability of reading `reads` rows, as an integer over 2^[`TOTAL_BITS`]; both of 1..=K.
    pub(super) fn numerator(&self, union_rows: u64, reads: u64) -> u128 {
        let distance = union_rows.abs_diff(reads);
        let near = if reads == 1 || reads == self.requests {
            // All of the noise that clamping brings here.
            self.at_least(distance)
        } else {
            self.weight(distance)
        };
        (near << FLOOR_BITS) + self.anywhere(reads)
    }

    /// The weight of noise z, both signs of 0 together.
    fn weight(&self, distance: u64) -> u128 {
        let Ok(index) = usize::try_from(distance) else { return 0 };
        match index {
            0 => 2 * self.cumulative[0],
            _ => self.cumulative.get(index).map_or(0, |sum| sum - self.cumulative[index - 1]),
        }
    }

    /// The weight of noise of one sign, `distance` or farther.
    fn at_least(&self, distance: u64) -> u128 {
        let in_table = self.cumulative[self.cumulative.len() - 1];
        let all = if self.reaches_ends { MASS } else { in_table };
        let index = usize::try_from(distance).unwrap_or(usize::MAX);
        match index {
            // And half of z = 0 beside all of one sign.
            0 => self.cumulative[0] + all,
            _ => self.cumulative.get(index - 1).map_or(all - in_table, |sum| all - sum),
        }
    }

    fn anywhere(&self, reads: u64) -> u128 {
        if self.reaches_ends {
            return 0;
        }
        let starts_at = |outcome: u64| (outcome << FLOOR_BITS).div_ceil(self.requests);
        let rest = MASS - self.cumulative[self.cumulative.len() - 1];
        2 * rest * u128::from(starts_at(reads) - starts_at(reads - 1))
    }

    #[cfg(test)]
    pub(super) fn reaches_ends(&self) -> bool {
        self.reaches_ends
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::Given;
    use super::{FLOOR, Geometric, MASS, MASS_BITS};

    fn sample(table: &Geometric, union: u64, position: u128, sign: u128, choice: u64) -> u64 {
        let draw = position | sign << MASS_BITS | u128::from(choice) << (MASS_BITS + 1);
        table.sample(union, &mut Given(draw.to_le_bytes().to_vec()))
    }

    #[test]
    fn every_draw_gives_the_outcome_it_is_counted_for() {
        for (epsilon, requests) in [(1.0, 2), (1.0, 5), (0.1, 50), (1.0, 200), (3.0, 200)] {
            let table = Geometric::new(epsilon, requests);
            let mut start = 0;
            for (distance, &end) in table.cumulative.iter().enumerate() {
                for position in [start, end - 1] {
                    for union in 1..=requests as i64 {
                        let distance = distance as i64;
                        for (sign, noise) in [(0, distance), (1, -distance)] {
                            let expected = (union + noise).clamp(1, requests as i64);
                            let reads = sample(&table, union as u64, position, sign, 0);
                            assert_eq!(reads, expected as u64, "{union} + {noise} of {requests}");
                        }
                    }
                }
                start = end;
            }
            for position in [start, MASS - 1] {
                for union in 1..=requests {
                    if table.reaches_ends {
                        assert_eq!(sample(&table, union, position, 0, 0), requests);
                        assert_eq!(sample(&table, union, position, 1, 0), 1);
                        continue;
                    }
                    let mut choice = 0;
                    for reads in 1..=requests {
                        assert_eq!(sample(&table, union, position, 1, choice), reads);
                        let rest = 2 * (MASS - start);
                        choice += (table.anywhere(reads) / rest) as u64;
                        assert_eq!(table.anywhere(reads) % rest, 0);
                        assert_eq!(sample(&table, union, position, 0, choice - 1), reads);
                    }
                    assert_eq!(choice, FLOOR);
                }
            }
        }
    }
}
