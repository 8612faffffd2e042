//! How much noise operations add: predicted.
//!
//! Errors of thousands of coefficients add up in every slot, so a slot's is taken as Gaussian, and those
//! of two slots or two operations as independent. A variance is of the real part of a slot, in units of
//! the slot's numbers (not times the scale).

use hushtable_ring::SIGMA;

use super::Parameters;
use super::keys::SPARSE_WEIGHT;

/// Variances of what operations add to each slot.
#[derive(Clone, Debug)]
pub struct Noise {
    parameters: Parameters,
}

impl Noise {
    /// The noise of `parameters`.
    pub fn new(parameters: &Parameters) -> Self {
        Self { parameters: parameters.clone() }
    }

    /// Of independent errors of this variance in each coefficient, which a slot adds up with weights of
    /// mean square 1/2.
    fn slot(&self, coefficient: f64, scale: f64) -> f64 {
        self.parameters.degree() as f64 / 2.0 * coefficient / (scale * scale)
    }

    /// The mean square of a coefficient of x · s where x's coefficients have mean square 1: N · 2/3.
    fn secret_gain(&self) -> f64 {
        self.parameters.degree() as f64 * 2.0 / 3.0
    }

    /// A fresh encryption at `scale`.
    pub fn fresh(&self, scale: f64) -> f64 {
        self.slot(SIGMA * SIGMA, scale)
    }

    /// Rounding the coefficients of an encoded vector of `count` real numbers.
    ///
    /// Only twice as many coefficients are not zero; as the vector is real, so is the error: nothing of
    /// it is lost to imaginary parts.
    pub fn encoding(&self, count: usize, scale: f64) -> f64 {
        let coefficients = (2 * count).min(self.parameters.degree());
        // A single number is one coefficient.
        let coefficients = if count == 1 { 1 } else { coefficients };
        coefficients as f64 / 12.0 / (scale * scale)
    }

    /// Rounding mask and body, when limbs are divided off and leave `scale`.
    pub fn division(&self, scale: f64) -> f64 {
        self.slot((1.0 + self.secret_gain()) / 12.0, scale)
    }

    /// Rounding the mask alone.
    pub fn mask_division(&self, scale: f64) -> f64 {
        self.slot(self.secret_gain() / 12.0, scale)
    }

    /// The products of digits and the key's errors in a key switch at `level`, before P is divided off.
    ///
    /// A digit is anywhere in −D/2..D/2, D the product of its limbs.
    pub fn switch_sum(&self, level: usize, scale: f64) -> f64 {
        let special = self.parameters.special_limbs();
        let prime_log2 = |limb: usize| (self.parameters.modulus(limb).value() as f64).log2();
        let key_ring = self.parameters.lattice().key_ring();
        let special_log2 =
            key_ring.modulus_log2() - self.parameters.lattice().ring().modulus_log2();
        let digit = |first: usize| {
            let last = (first + special - 1).min(level);
            let digit_log2: f64 = (first..=last).map(prime_log2).sum();
            (2.0 * (digit_log2 - special_log2)).exp2() / 12.0
        };
        let digits: f64 = (0..=level).step_by(special).map(digit).sum();
        self.slot(self.parameters.degree() as f64 * digits * SIGMA * SIGMA, scale)
    }

    /// The key switch at level 0 to the sparse secret, over one of P's primes.
    pub fn encapsulation(&self, scale: f64) -> f64 {
        let first = self.parameters.modulus(0).value() as f64;
        let special = self.parameters.spec().special_moduli[0] as f64;
        let digit = (first / special).powi(2) / 12.0;
        let products = self.parameters.degree() as f64 * digit * SIGMA * SIGMA;
        self.slot(products + (1.0 + SPARSE_WEIGHT as f64) / 12.0, scale)
    }

    /// A whole key switch at `level`: what a rotation, a conjugation or a relinearisation adds.
    pub fn switch(&self, level: usize, scale: f64) -> f64 {
        self.switch_sum(level, scale) + self.division(scale)
    }
}
