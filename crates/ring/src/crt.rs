//! Residues to integers and back, and from one set of moduli to another.

use crate::{Coefficients, Error, Modulus, Poly, Ring};

/// The Chinese remainder theorem for a set of moduli, in mixed radix (Garner): an integer of 0..Q is
/// v_0 + q_0 · (v_1 + q_1 · (v_2 + ...)) with v_i below q_i.
#[derive(Clone, Debug)]
pub struct Crt {
    moduli: Vec<Modulus>,
    /// `inverses[i]` = 1 / (q_0 ⋯ q_(i−1)) modulo q_i.
    inverses: Vec<u64>,
    /// Q where it has at most 110 bits.
    product: Option<u128>,
}

impl Crt {
    /// Prepares for `moduli`, distinct primes.
    pub(crate) fn new(moduli: &[Modulus]) -> Self {
        let inverses = moduli.iter().enumerate().map(|(index, modulus)| {
            let product = moduli[..index]
                .iter()
                .fold(1, |product, other| modulus.mul(product, other.value() % modulus.value()));
            modulus.inv(product)
        });
        let product = moduli.iter().try_fold(1u128, |product, modulus| {
            let product = product.checked_mul(modulus.value().into())?;
            (product < 1 << COMPOSED_BITS_MAX).then_some(product)
        });
        Self { inverses: inverses.collect(), moduli: moduli.to_vec(), product }
    }

    /// How many moduli there are.
    pub fn limbs(&self) -> usize {
        self.moduli.len()
    }

    /// The moduli.
    pub fn moduli(&self) -> &[Modulus] {
        &self.moduli
    }

    /// `inverses()[i]` = 1 / (q_0 ⋯ q_(i−1)) modulo q_i.
    pub(crate) fn inverses(&self) -> &[u64] {
        &self.inverses
    }

    /// Q, the product of the moduli, where it has at most 110 bits.
    pub fn product(&self) -> Option<u128> {
        self.product
    }

    /// The mixed radix digit v_`limb`, from the residue and the digits below it.
    fn radix_digit(&self, limb: usize, residue: u64, below: &[u64]) -> u64 {
        let modulus = self.moduli[limb];
        let value = self.evaluate(modulus, below);
        modulus.mul(modulus.sub(residue, value), self.inverses[limb])
    }

    /// The integer with mixed radix digits `digits`, modulo `modulus`.
    fn evaluate(&self, modulus: Modulus, digits: &[u64]) -> u64 {
        digits.iter().zip(&self.moduli).rev().fold(0, |value, (&digit, radix)| {
            let value = modulus.mul(value, radix.value() % modulus.value());
            modulus.add(value, digit % modulus.value())
        })
    }

    /// The integer in −Q/2..Q/2 that has the given residues.
    ///
    /// # Panics
    /// If Q has more than 110 bits.
    pub fn compose_signed(&self, residue: impl Fn(usize) -> u64) -> i128 {
        let product = self.product.expect("composed integers are of at most 110 bits");
        let (mut value, mut radix) = (0u128, 1u128);
        for (limb, modulus) in self.moduli.iter().enumerate() {
            let below = (value % u128::from(modulus.value())) as u64;
            let digit = modulus.mul(modulus.sub(residue(limb), below), self.inverses[limb]);
            value += radix * u128::from(digit);
            radix *= u128::from(modulus.value());
        }
        let centred = if value > product / 2 { value.wrapping_sub(product) } else { value };
        centred as i128
    }
}

impl Ring {
    /// The polynomial over `to`'s moduli with `poly`'s coefficients, taken from −Q/2..Q/2: an
    /// exact change of basis, in mixed radix arithmetic, for any number of limbs.
    ///
    /// # Errors
    /// [`Error::Degree`] where `to` has another degree.
    pub fn change_basis(
        &self,
        poly: &Poly<Coefficients>,
        to: &Ring,
    ) -> Result<Poly<Coefficients>, Error> {
        if to.degree() != self.degree() {
            return Err(Error::Degree { degree: to.degree() });
        }
        let crt = self.crt();
        // Q/2 in mixed radix, to tell which half a number is in: added before, taken off after.
        let halves: Vec<u64> = self.half_residues();
        let half_digits = {
            let mut digits = Vec::new();
            for (limb, &half) in halves.iter().enumerate() {
                digits.push(crt.radix_digit(limb, half, &digits));
            }
            digits
        };
        let mut out = to.zero();
        let mut digits = Vec::with_capacity(crt.limbs());
        for index in 0..self.degree() {
            digits.clear();
            for (limb, modulus) in crt.moduli().iter().enumerate() {
                let shifted = modulus.add(poly.limb(limb)[index], halves[limb]);
                digits.push(crt.radix_digit(limb, shifted, &digits));
            }
            for (limb, modulus) in to.moduli().enumerate() {
                let value = crt.evaluate(modulus, &digits);
                let half = crt.evaluate(modulus, &half_digits);
                out.limb_mut(limb)[index] = modulus.sub(value, half);
            }
        }
        Ok(out)
    }

    /// floor(Q / 2) in every residue.
    fn half_residues(&self) -> Vec<u64> {
        // (Q − 1) / 2 is −1 / 2, as Q is odd.
        self.moduli().map(|modulus| modulus.neg(modulus.inv(2))).collect()
    }
}

/// Integers up to here leave room beside them in 128 bits for a gadget's offset.
const COMPOSED_BITS_MAX: u32 = 110;
