//! What a retrieval protocol asks of an encryption scheme, and one that encrypts nothing.

use hushtable_ring::{Automorphism, Coefficients, Poly, Ring};

use super::{Evaluator, Selector, Substitution, SwitchKey};
use crate::Ciphertext;

/// The steps of expanding a query and of a column tournament.
pub trait Scheme {
    /// What is computed on.
    type Ciphertext;
    /// An encrypted bit.
    type Selector;

    /// Splits a node at `level` into its even half (left in `node`) and its odd half.
    fn split(&mut self, level: u32, node: &mut Self::Ciphertext) -> Self::Ciphertext;

    /// Leaves `zero` or puts `one` there, as `bit` says.
    fn select(&mut self, bit: &Self::Selector, zero: &mut Self::Ciphertext, one: Self::Ciphertext);
}

/// The real scheme, with one client's keys.
pub struct Encrypted<'a> {
    /// Where it is computed.
    pub evaluator: &'a mut Evaluator,
    /// One for each level.
    pub levels: &'a [Substitution],
    /// One for each level.
    pub keys: &'a [SwitchKey],
}

impl Scheme for Encrypted<'_> {
    type Ciphertext = Ciphertext;
    type Selector = Selector;

    fn split(&mut self, level: u32, node: &mut Ciphertext) -> Ciphertext {
        let level = level as usize;
        self.evaluator.split(&self.levels[level], &self.keys[level], node)
    }

    fn select(&mut self, bit: &Selector, zero: &mut Ciphertext, one: Ciphertext) {
        self.evaluator.select(bit, zero, one);
    }
}

/// A scheme whose ciphertext is the plaintext: protocols are tested on it without cryptography's
/// cost or noise. It hides nothing.
pub struct NoOp {
    ring: Ring,
}

impl NoOp {
    /// Over `ring`, in which messages are exact.
    pub fn new(ring: Ring) -> Self {
        Self { ring }
    }

    /// The ring.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }
}

impl Scheme for NoOp {
    type Ciphertext = Poly<Coefficients>;
    type Selector = bool;

    fn split(&mut self, level: u32, node: &mut Self::Ciphertext) -> Self::Ciphertext {
        let (ring, degree) = (&self.ring, self.ring.degree());
        let map = Automorphism::new((degree >> level) + 1, degree);
        let image = ring.automorphism_coefficients(&map, node);
        let mut odd = node.clone();
        ring.sub_assign(&mut odd, &image);
        ring.add_assign(node, &image);
        let mut shifted = ring.forward(odd);
        ring.mul_assign(&mut shifted, &ring.monomial(2 * degree - (1 << level)));
        ring.inverse(shifted)
    }

    fn select(&mut self, bit: &bool, zero: &mut Self::Ciphertext, one: Self::Ciphertext) {
        if *bit {
            *zero = one;
        }
    }
}
