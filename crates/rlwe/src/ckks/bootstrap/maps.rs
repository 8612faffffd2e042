//! The maps between slots and coefficients, as factors of the special Fourier transform (Chen,
//! Chillotti and Song, "Improved Bootstrapping for Approximate Homomorphic Encryption", EUROCRYPT
//! 2019, section 4).
//!
//! n real numbers are n/2 = m complex ones, z_j + i · z_(m + j): the coefficients of a polynomial in
//! X^(N/n) are their parts, all n of them in use. The bits of indices are reversed neither on the way
//! there nor back: the reduction between them takes every coefficient by itself.

use std::collections::BTreeMap;

use num_complex::Complex64;

use super::super::fft::Roots;
use super::super::{Diagonals, Error};

/// A map of `size` numbers by its diagonals.
#[derive(Clone, Debug)]
struct Map {
    size: usize,
    diagonals: BTreeMap<usize, Vec<Complex64>>,
}

impl Map {
    fn identity(size: usize) -> Self {
        Self { size, diagonals: BTreeMap::from([(0, vec![Complex64::ONE; size])]) }
    }

    /// Adds to one number of a diagonal.
    fn add(&mut self, steps: usize, index: usize, value: Complex64) {
        let zeros = || vec![Complex64::ZERO; self.size];
        self.diagonals.entry(steps % self.size).or_insert_with(zeros)[index] += value;
    }

    /// This map of what `first` gives.
    fn after(&self, first: &Self) -> Self {
        let mut out = Self { size: self.size, diagonals: BTreeMap::new() };
        for (steps, own) in &self.diagonals {
            for (more, other) in &first.diagonals {
                for (index, value) in own.iter().enumerate() {
                    let value = value * other[(index + steps) % self.size];
                    if value != Complex64::ZERO {
                        out.add(steps + more, index, value);
                    }
                }
            }
        }
        out
    }

    /// The same map on vectors of twice as many numbers that repeat.
    fn doubled(&self) -> Self {
        let twice = |(steps, own): (&usize, &Vec<Complex64>)| (*steps, own.repeat(2));
        Self { size: 2 * self.size, diagonals: self.diagonals.iter().map(twice).collect() }
    }

    /// This map of what a rotation by `steps` gives.
    fn of_rotated(&self, steps: usize) -> Self {
        let moved =
            |(own, values): (&usize, &Vec<Complex64>)| ((own + steps) % self.size, values.clone());
        Self { size: self.size, diagonals: self.diagonals.iter().map(moved).collect() }
    }

    /// A rotation by `steps` of what this map gives.
    fn rotated(&self, steps: usize) -> Self {
        let mut out = self.of_rotated(steps);
        out.diagonals.values_mut().for_each(|values| values.rotate_left(steps % self.size));
        out
    }

    fn diagonals(&self, slots: usize) -> Result<Diagonals, Error> {
        let mut out = Diagonals::new(slots);
        for (&steps, values) in &self.diagonals {
            out.insert_complex(steps, values)?;
        }
        Ok(out)
    }
}

/// One round of butterflies at distance `half`, towards the slots or, `backwards`, towards the
/// coefficients.
fn round(roots: &[Complex64], size: usize, half: usize, backwards: bool) -> Map {
    let mut map = Map { size, diagonals: BTreeMap::new() };
    for index in 0..size {
        let at = index % half;
        let root = roots[half + at];
        let is_low = (index / half).is_multiple_of(2);
        // (x, y) ↦ (x + r y, x − r y), and back (x + y, (x − y) / r) / 2.
        let (own, other) = match (is_low, backwards) {
            (true, false) => (Complex64::ONE, root),
            (false, false) => (-root, Complex64::ONE),
            (true, true) => (Complex64::new(0.5, 0.0), Complex64::new(0.5, 0.0)),
            (false, true) => (-root.conj() / 2.0, root.conj() / 2.0),
        };
        map.add(0, index, own);
        map.add(if is_low { half } else { size - half }, index, other);
    }
    map
}

/// Cuts the rounds of `size` numbers in `count` runs that follow each other, as equal as can be, the
/// longest first; gives the first and last distance of each, ascending.
fn runs(size: usize, count: usize) -> Vec<std::ops::Range<u32>> {
    let rounds = size.ilog2();
    let (each, more) = (rounds / count as u32, rounds % count as u32);
    let mut from = 0;
    let lengths = (0..count as u32).map(|index| each + u32::from(index < more));
    lengths
        .map(|length| {
            from += length;
            from - length..from
        })
        .collect()
}

/// What a map of the rounds of `run` is turned by, and its neighbour of the next rounds back: its own
/// rotations are by −d to d for a d just below, the neighbour's by multiples of it. Turned, they are
/// all ahead and follow each other, so that one key can walk over them. The last rounds' go all around.
fn next(size: usize, run: &std::ops::Range<u32>) -> usize {
    (1 << run.end) % size
}

/// One factor, and the distance that all its rotations are multiples of.
#[derive(Clone, Debug)]
pub(super) struct Factor {
    pub map: Diagonals,
    pub distance: usize,
}

/// `count` maps whose composition takes n real numbers, repeated over all `slots`, to the slots of the
/// polynomial whose coefficients they are; the first is applied first.
pub(super) fn to_coefficients(
    (slots, n): (usize, usize),
    count: usize,
) -> Result<Vec<Factor>, Error> {
    let size = n / 2;
    let roots = Roots::new(size);
    // z_j + i · z_(j + m), in both halves.
    let mut packed = Map { size: n, diagonals: BTreeMap::new() };
    for index in 0..n {
        let (own, other) = match index < size {
            true => (Complex64::ONE, Complex64::I),
            false => (Complex64::I, Complex64::ONE),
        };
        packed.add(0, index, own);
        packed.add(size, index, other);
    }
    let factor = |(number, run): (usize, std::ops::Range<u32>)| {
        let distance = 1 << run.start;
        let mut map = Map::identity(size);
        let next = next(size, &run);
        for log2 in run {
            map = round(roots.all(), size, 1 << log2, false).after(&map);
        }
        // Turned by what the map before was, and by what makes its own rotations follow each other.
        map = map.of_rotated(size - if number > 0 { distance } else { size }).rotated(next);
        let map = match number {
            0 => map.doubled().after(&packed),
            _ => map,
        };
        Ok(Factor { map: map.diagonals(slots)?, distance })
    };
    runs(size, count).into_iter().enumerate().map(factor).collect()
}

/// `count` maps whose composition takes the slots of a polynomial back to its coefficients, halved: what
/// is there and its conjugate add up to n real numbers.
pub(super) fn to_slots((slots, n): (usize, usize), count: usize) -> Result<Vec<Factor>, Error> {
    let size = n / 2;
    let roots = Roots::new(size);
    let factor = |(number, run): (usize, std::ops::Range<u32>)| {
        let distance = 1 << run.start;
        let next = next(size, &run);
        let mut map = Map::identity(size);
        for log2 in run.rev() {
            map = round(roots.all(), size, 1 << log2, true).after(&map);
        }
        map = map.of_rotated(next).rotated(size - if number > 0 { distance } else { size });
        if number == 0 {
            // The last to be applied: real parts to the first half, imaginary ones to the second.
            map = map.doubled();
            let half = [Complex64::new(0.5, 0.0), Complex64::new(0.0, -0.5)];
            for values in map.diagonals.values_mut() {
                let values = values.iter_mut().enumerate();
                values.for_each(|(index, value)| *value *= half[index / size]);
            }
        }
        Ok(Factor { map: map.diagonals(slots)?, distance })
    };
    let mut factors: Vec<Factor> =
        runs(size, count).into_iter().enumerate().map(factor).collect::<Result<_, Error>>()?;
    factors.reverse();
    Ok(factors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize) -> Vec<f64> {
        (0..count).map(|index| ((index * 37) % 101) as f64 / 50.0 - 1.0).collect()
    }

    fn apply(factors: &[Factor], values: &[Complex64]) -> Vec<Complex64> {
        factors.iter().fold(values.to_vec(), |values, factor| factor.map.apply_complex(&values))
    }

    #[test]
    fn real_numbers_become_coefficients_and_come_back() {
        let slots = 128;
        for n in [2, 4, 16, 64, 128] {
            for count in 1..=3 {
                let values = numbers(n);
                let all: Vec<_> =
                    (0..slots).map(|slot| Complex64::new(values[slot % n], 0.0)).collect();
                let image = apply(&to_coefficients((slots, n), count).unwrap(), &all);
                // The n coefficients of X^(N/n) are the values, their places' bits reversed.
                let mut coefficients = image.clone();
                Roots::new(slots).inverse(&mut coefficients);
                let (size, step) = (n / 2, slots / (n / 2));
                for (index, value) in coefficients.iter().enumerate() {
                    let place = index / step;
                    let bits = size.trailing_zeros();
                    let place =
                        if bits == 0 { 0 } else { place.reverse_bits() >> (usize::BITS - bits) };
                    let expected = match index % step {
                        0 => Complex64::new(values[place], values[place + size]),
                        _ => Complex64::ZERO,
                    };
                    assert!((value - expected).norm() < 1e-12, "{n} {count} {index}: {value}");
                }
                let back = apply(&to_slots((slots, n), count).unwrap(), &image);
                for (slot, value) in back.iter().enumerate() {
                    let error = (2.0 * value.re - values[slot % n]).abs();
                    assert!(error < 1e-12, "{n} {count} {slot}: {value}");
                }
            }
        }
    }

    #[test]
    fn factors_have_the_diagonals_of_their_rounds() {
        let counts = |factors: Vec<Factor>| -> Vec<_> {
            factors.iter().map(|factor| factor.map.steps().len()).collect()
        };
        // Four rounds each of 256 complex numbers: the second's steps go all around.
        assert_eq!(counts(to_slots((32768, 512), 2).unwrap()), [16, 31]);
        assert_eq!(counts(to_coefficients((32768, 512), 2).unwrap()), [62, 16]);
        // All ahead and one after the other.
        let steps = |factor: &Factor| -> Vec<_> { factor.map.steps().collect() };
        let factors = to_slots((32768, 512), 2).unwrap();
        assert_eq!(steps(&factors[1]), (1..32).collect::<Vec<_>>());
        assert_eq!(steps(&factors[0]), (0..256).step_by(16).collect::<Vec<_>>());
        let factors = to_coefficients((32768, 512), 2).unwrap();
        assert_eq!(steps(&factors[0]), (1..32).chain(257..288).collect::<Vec<_>>());
    }
}
