//! X → X^r: signed shuffles of coefficients, plain shuffles of evaluations.

use crate::ntt::reverse_bits;
use crate::{Coefficients, Evaluations, Poly, Ring};

/// The automorphism X → X^exponent of rings of one degree, for an odd exponent.
#[derive(Clone, Debug)]
pub struct Automorphism {
    exponent: usize,
    /// Evaluation i of the image is evaluation `indices[i]` of the argument.
    indices: Vec<u32>,
}

impl Automorphism {
    /// The automorphism with the odd `exponent` (taken modulo 2N) of rings of degree `degree`.
    ///
    /// # Panics
    /// If the exponent is even: X → X^2 is no automorphism.
    pub fn new(exponent: usize, degree: usize) -> Self {
        assert!(exponent % 2 == 1, "an automorphism has an odd exponent");
        let exponent = exponent % (2 * degree);
        let source = |index| {
            let root = 2 * reverse_bits(index, degree) + 1;
            reverse_bits((root * exponent % (2 * degree) - 1) / 2, degree) as u32
        };
        Self { exponent, indices: (0..degree).map(source).collect() }
    }

    /// r.
    pub fn exponent(&self) -> usize {
        self.exponent
    }

    /// Evaluation i of the image is evaluation `indices()[i]` of the argument.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }
}

impl Ring {
    /// `poly`(X^r).
    pub fn automorphism(&self, map: &Automorphism, poly: &Poly<Evaluations>) -> Poly<Evaluations> {
        let mut out = self.zero();
        self.automorphism_into(map, poly, &mut out);
        out
    }

    /// `out` = `poly`(X^r), over room that is there already.
    pub fn automorphism_into(
        &self,
        map: &Automorphism,
        poly: &Poly<Evaluations>,
        out: &mut Poly<Evaluations>,
    ) {
        for limb in 0..self.limbs() {
            self.kernel().permute(poly.limb(limb), &map.indices, out.limb_mut(limb));
        }
    }

    /// `poly`(X^r).
    pub fn automorphism_coefficients(
        &self,
        map: &Automorphism,
        poly: &Poly<Coefficients>,
    ) -> Poly<Coefficients> {
        let degree = self.degree();
        let mut out = self.zero();
        for (limb, modulus) in self.moduli().enumerate() {
            let (from, to) = (poly.limb(limb), out.limb_mut(limb));
            for (index, &value) in from.iter().enumerate() {
                let image = index * map.exponent % (2 * degree);
                to[image % degree] = if image < degree { value } else { modulus.neg(value) };
            }
        }
        out
    }
}
