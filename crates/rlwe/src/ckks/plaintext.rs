//! Encoded vectors.

use hushtable_ring::{Evaluations, Poly};

/// A vector encoded at a level and a scale.
#[derive(Clone, Debug)]
pub struct Plaintext {
    /// Over the level's ring.
    pub(super) poly: Poly<Evaluations>,
    pub(super) level: usize,
    pub(super) scale: f64,
}

impl Plaintext {
    /// The polynomial, over the level's ring.
    pub fn poly(&self) -> &Poly<Evaluations> {
        &self.poly
    }

    /// The level.
    pub fn level(&self) -> usize {
        self.level
    }

    /// What the numbers inside were multiplied with.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.poly.memory_bytes()
    }
}
