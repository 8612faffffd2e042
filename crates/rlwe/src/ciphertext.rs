//! Ciphertexts and the secret that opens them.

use hushtable_ring::{Coefficients, Evaluations, NoiseSource, Poly, Ring, Secret};

use crate::Error;

/// (mask a, body b) with b + a · s = message + noise.
///
/// In evaluations, over the ring modulo Q or, once limbs were dropped, modulo q.
#[derive(Clone, Debug)]
pub struct Ciphertext {
    /// a.
    pub mask: Poly<Evaluations>,
    /// b.
    pub body: Poly<Evaluations>,
}

impl Ciphertext {
    /// The ciphertext (0, 0) of 0.
    pub fn zero(ring: &Ring) -> Self {
        Self { mask: ring.zero(), body: ring.zero() }
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.mask.memory_bytes() + self.body.memory_bytes()
    }

    /// The two polynomials, mask first.
    pub fn polys(&self) -> [&Poly<Evaluations>; 2] {
        [&self.mask, &self.body]
    }

    /// self += other.
    pub fn add_assign(&mut self, ring: &Ring, other: &Self) {
        ring.add_assign(&mut self.mask, &other.mask);
        ring.add_assign(&mut self.body, &other.body);
    }

    /// self −= other.
    pub fn sub_assign(&mut self, ring: &Ring, other: &Self) {
        ring.sub_assign(&mut self.mask, &other.mask);
        ring.sub_assign(&mut self.body, &other.body);
    }
}

/// A ternary secret, in evaluations modulo everything that is published: Q, or Q · P.
pub struct SecretKey {
    secret: Secret<Poly<Evaluations>>,
}

impl SecretKey {
    /// A fresh secret over `ring`, the largest that something is published in.
    ///
    /// # Errors
    /// [`Error::Entropy`].
    pub fn generate(ring: &Ring) -> Result<Self, Error> {
        Ok(Self::draw(ring, &mut NoiseSource::from_os()?))
    }

    /// The secret that `source` gives.
    pub fn draw(ring: &Ring, source: &mut NoiseSource) -> Self {
        Self { secret: Secret::new(ring.forward(source.ternary(ring))) }
    }

    /// A secret with `weight` coefficients of −1 or 1, the others 0: too weak for moduli as long as a
    /// ternary secret's ([`SecretKind`](crate::SecretKind)).
    pub(crate) fn draw_sparse(ring: &Ring, weight: usize, source: &mut NoiseSource) -> Self {
        Self { secret: Secret::new(ring.forward(source.sparse(ring, weight))) }
    }

    /// s; its first limbs are s over every prefix of the ring.
    pub(crate) fn poly(&self) -> &Poly<Evaluations> {
        self.secret.expose()
    }

    /// b + a · s over `ring`, a prefix of the secret's.
    pub fn phase(&self, ring: &Ring, ciphertext: &Ciphertext) -> Poly<Coefficients> {
        let mut phase = ciphertext.mask.clone();
        ring.mul_assign(&mut phase, self.poly());
        ring.add_assign(&mut phase, &ciphertext.body);
        ring.inverse(phase)
    }

    /// A fresh encryption over `ring`, a prefix of the secret's: mask uniform from `seed` (its polynomial number `index`), body
    /// e − a · s + `message`.
    pub fn encrypt(
        &self,
        ring: &Ring,
        seed: &[u8; 32],
        index: u64,
        message: &Poly<Evaluations>,
        source: &mut NoiseSource,
    ) -> Ciphertext {
        let mask = ring.uniform(seed, index);
        let mut body = ring.forward(source.gaussian(ring));
        ring.add_assign(&mut body, message);
        let mut product = mask.clone();
        ring.mul_assign(&mut product, self.poly());
        ring.sub_assign(&mut body, &product);
        Ciphertext { mask, body }
    }
}
