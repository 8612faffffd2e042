//! The Fourier transform between slots and coefficients.

use std::f64::consts::TAU;

use num_complex::Complex64;

/// Roots for transforms of up to some number of slots.
///
/// The 2n real coefficients of a polynomial in Y = X^(N / 2n) are the real and imaginary parts of n
/// complex numbers c_j (of Y^j and of Y^(n + j)); slot j is its value where Y is
/// exp(2πi · 5^j / 4n). As 5 generates the group of those powers, X → X^(5^r) rotates the slots to
/// the left by r (Cheon, Han, Kim, Kim and Song, "Bootstrapping for Approximate Homomorphic
/// Encryption", EUROCRYPT 2018, section 5.2, gives the network of butterflies).
#[derive(Debug)]
pub(super) struct Roots {
    /// At len/2 + j, for each power of two len and j below len/2: exp(2πi · (5^j mod 4len) / 4len).
    roots: Vec<Complex64>,
}

impl Roots {
    /// Roots for up to `slots` (a power of two) slots.
    pub(super) fn new(slots: usize) -> Self {
        let mut roots = vec![Complex64::new(1.0, 0.0); slots.max(1)];
        let mut half = 1;
        while 2 * half <= slots {
            let order = 8 * half;
            let mut power = 1;
            for root in &mut roots[half..2 * half] {
                *root = Complex64::cis(TAU * power as f64 / order as f64);
                power = 5 * power % order;
            }
            half *= 2;
        }
        Self { roots }
    }

    /// At half + j, for each power of two half below the slots: the root of butterfly j at that distance.
    pub(super) fn all(&self) -> &[Complex64] {
        &self.roots
    }

    /// Slots to coefficients: `values`, a power of two of them, in place.
    ///
    /// The same additions and multiplications whatever the values are.
    pub(super) fn inverse(&self, values: &mut [Complex64]) {
        let count = values.len();
        let mut half = count / 2;
        while half >= 1 {
            let roots = &self.roots[half..2 * half];
            for block in values.chunks_exact_mut(2 * half) {
                let (low, high) = block.split_at_mut(half);
                for ((x, y), root) in low.iter_mut().zip(high).zip(roots) {
                    let (sum, difference) = (*x + *y, *x - *y);
                    *x = sum;
                    *y = difference * root.conj();
                }
            }
            half /= 2;
        }
        reverse(values);
        let share = 1.0 / count as f64;
        for value in values {
            *value *= share;
        }
    }

    /// Coefficients to slots, in place.
    pub(super) fn forward(&self, values: &mut [Complex64]) {
        reverse(values);
        let mut half = 1;
        while 2 * half <= values.len() {
            let roots = &self.roots[half..2 * half];
            for block in values.chunks_exact_mut(2 * half) {
                let (low, high) = block.split_at_mut(half);
                for ((x, y), root) in low.iter_mut().zip(high).zip(roots) {
                    let turned = *y * root;
                    (*x, *y) = (*x + turned, *x - turned);
                }
            }
            half *= 2;
        }
    }
}

/// Puts each value where its index's bits in reverse say.
fn reverse(values: &mut [Complex64]) {
    let count = values.len();
    if count < 2 {
        return;
    }
    let shift = usize::BITS - count.trailing_zeros();
    for index in 0..count {
        let other = index.reverse_bits() >> shift;
        if index < other {
            values.swap(index, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize) -> Vec<Complex64> {
        let part = |index: usize, factor: usize| ((index * factor) % 97) as f64 / 48.5 - 1.0;
        (0..count).map(|index| Complex64::new(part(index, 31), part(index, 57))).collect()
    }

    #[test]
    fn slots_are_the_values_at_the_powers_of_five() {
        for count in [1, 2, 4, 8, 64] {
            let roots = Roots::new(64);
            let coefficients = values(count);
            let mut slots = coefficients.clone();
            roots.forward(&mut slots);
            let mut power = 1usize;
            for &slot in &slots {
                // Of c_j's parts at Y^j and Y^(n + j), and Y^n is i at these points or −i: c_j · Y^j
                // where the power is 1 modulo 4, which all powers of five are.
                let at = |index: usize| {
                    Complex64::cis(TAU * (power * index % (4 * count)) as f64 / (4 * count) as f64)
                };
                let expected: Complex64 = coefficients
                    .iter()
                    .enumerate()
                    .map(|(index, c)| at(index) * c.re + at(index + count) * c.im)
                    .sum();
                assert!((slot - expected).norm() < 1e-12, "{count}: {slot} {expected}");
                power = 5 * power % (4 * count);
            }
            roots.inverse(&mut slots);
            for (a, b) in slots.iter().zip(&coefficients) {
                assert!((a - b).norm() < 1e-13, "{count}: {a} {b}");
            }
        }
    }
}
