//! The way through the sparse secret: "Bootstrapping for Approximate Homomorphic Encryption with
//! Negligible Failure-Probability by Using Sparse-Secret Encapsulation" (Bossuat, Troncoso-Pastoriza
//! and Hubaux, ACNS 2022, section 4).

use hushtable_ring::{Coefficients, Evaluations, Poly, Ring};

use crate::Ciphertext;

/// An encryption of the secret under the sparse one, modulo q_0 and one of P's primes: the only thing
/// that is published under the sparse secret, which longer moduli would give away.
pub(in crate::ckks) struct SparseKey {
    /// q_0 and the prime of P.
    ring: Ring,
    mask: Poly<Evaluations>,
    body: Poly<Evaluations>,
}

impl SparseKey {
    /// Of the row's mask and body as keys hold them: over P modulo Q's primes.
    pub fn new(ring: Ring, [mut mask, mut body]: [Poly<Evaluations>; 2]) -> Self {
        let (first, special) = (ring.modulus(0), ring.modulus(1));
        let weights = [special.value() % first.value(), 1];
        ring.scale_assign(&mut mask, &weights);
        ring.scale_assign(&mut body, &weights);
        Self { ring, mask, body }
    }

    /// `x`, modulo q_0, under the sparse secret and over `ring`: its decryption is what it was and, in each
    /// coefficient, a multiple of q_0.
    pub fn raise(&self, ring: &Ring, x: &Ciphertext) -> Ciphertext {
        let first = self.ring.prefix(1).expect("a ring has a limb");
        let mut product = [&self.mask, &self.body].map(Poly::clone);
        let digit = self.ring.forward(extended(&first, &self.ring, &x.mask));
        let [mask, body] = &mut product;
        let switched = [mask, body].map(|side| {
            self.ring.mul_assign(side, &digit);
            let mut quotient = first.zero();
            self.ring.drop_last_limb_into(side, &mut quotient);
            quotient
        });
        let [mask, mut body] = switched;
        first.add_assign(&mut body, &x.body);
        let raised = |poly| ring.forward(extended(&first, ring, &poly));
        Ciphertext { mask: raised(mask), body: raised(body) }
    }

    /// Bytes of memory of such a key over `ring`.
    pub fn bytes(ring: &Ring) -> usize {
        2 * ring.zero::<Evaluations>().memory_bytes()
    }

    pub fn memory_bytes(&self) -> usize {
        self.mask.memory_bytes() + self.body.memory_bytes()
    }
}

/// The coefficients of `poly`, modulo `first`'s prime and centred, over `ring`. They are public.
fn extended(first: &Ring, ring: &Ring, poly: &Poly<Evaluations>) -> Poly<Coefficients> {
    let modulus = first.modulus(0);
    let coefficients = first.inverse(poly.clone());
    let centred: Vec<i64> =
        coefficients.limb(0).iter().map(|&value| modulus.to_signed(value)).collect();
    ring.from_signed_vartime(&centred)
}
