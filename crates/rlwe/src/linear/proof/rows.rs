//! Sums of shifted polynomials: what both parties make of a batch.

use hushtable_ring::{Coefficients, NoiseSource, Poly, Ring, Seed};
use zeroize::Zeroize;

/// `count` monomials ±X^k of a public seed, as exponents below 2N: X^N is −1.
pub(super) fn monomials(seed: &Seed, count: usize, degree: usize) -> Vec<usize> {
    let mut words = vec![0; count];
    NoiseSource::from_seed(seed).words(&mut words);
    words.into_iter().map(|word| word as usize & (2 * degree - 1)).collect()
}

/// Where X^exponent · x begins in x, −x, x.
fn start(exponent: usize, degree: usize) -> usize {
    (2 * degree - exponent % (2 * degree)) % (2 * degree)
}

/// A polynomial of integers modulo 2^64, of which shifts are added up.
pub(super) struct Shifted(Vec<u64>);

impl Shifted {
    pub(super) fn new(values: impl Iterator<Item = u64>) -> Self {
        let mut all: Vec<_> = values.collect();
        let degree = all.len();
        all.reserve_exact(2 * degree);
        for index in 0..degree {
            all.push(all[index].wrapping_neg());
        }
        all.extend_from_within(..degree);
        Self(all)
    }

    /// X^exponent times the polynomial.
    pub(super) fn by(&self, exponent: usize) -> &[u64] {
        let degree = self.0.len() / 3;
        &self.0[start(exponent, degree)..][..degree]
    }

    /// `out` += X^exponent times the polynomial.
    pub(super) fn add_to(&self, exponent: usize, out: &mut [u64]) {
        for (out, value) in out.iter_mut().zip(self.by(exponent)) {
            *out = out.wrapping_add(*value);
        }
    }
}

impl Drop for Shifted {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Adds X^k · `poly` to each of `sums`, for its own k.
pub(super) fn add_shifted(
    ring: &Ring,
    poly: &Poly<Coefficients>,
    exponents: impl Iterator<Item = usize> + Clone,
    sums: &mut [Poly<Coefficients>],
) {
    let degree = ring.degree();
    for (limb, modulus) in ring.moduli().enumerate() {
        let own = poly.limb(limb);
        let negated = own.iter().map(|&value| modulus.neg(value));
        let mut all = Vec::with_capacity(3 * degree);
        all.extend_from_slice(own);
        all.extend(negated);
        all.extend_from_slice(own);
        for (sum, exponent) in sums.iter_mut().zip(exponents.clone()) {
            let shifted = &all[start(exponent, degree)..][..degree];
            ring.kernel().add_assign(modulus, sum.limb_mut(limb), shifted);
        }
    }
}

#[cfg(test)]
mod tests {
    use hushtable_ring::{Platform, ntt_primes};

    use super::*;

    #[test]
    fn shifts_are_products_with_monomials() {
        let degree = 16;
        let ring = Ring::new(degree, &ntt_primes(50, degree, 2), Platform::detect()).unwrap();
        let values: Vec<i64> = (1..=degree as i64).map(|value| value * value).collect();
        let poly = ring.from_signed_vartime(&values);
        for exponent in 0..2 * degree {
            let mut product = ring.forward(poly.clone());
            ring.mul_assign(&mut product, &ring.monomial(exponent));
            let mut sums = [ring.zero()];
            add_shifted(&ring, &poly, std::iter::once(exponent), &mut sums);
            assert_eq!(sums[0].values(), ring.inverse(product).values(), "X^{exponent}");
            let shifted = Shifted::new(values.iter().map(|&value| value as u64));
            let signed: Vec<_> = shifted.by(exponent).iter().map(|&value| value as i64).collect();
            assert_eq!(ring.from_signed_vartime(&signed).values(), sums[0].values());
        }
    }
}
