//! Ciphertexts at a level and a scale.

use super::{Error, rules};

/// An encrypted vector.
#[derive(Clone, Debug)]
pub struct Ciphertext {
    /// Mask and body, over the level's ring.
    pub(super) parts: crate::Ciphertext,
    pub(super) level: usize,
    pub(super) scale: f64,
}

impl Ciphertext {
    /// Mask and body.
    pub fn parts(&self) -> &crate::Ciphertext {
        &self.parts
    }

    /// Rescalings left.
    pub fn level(&self) -> usize {
        self.level
    }

    /// What the numbers inside were multiplied with.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.parts.memory_bytes()
    }

    /// Holds a ciphertext that came from outside to the level and the scale (to 2^-20, relatively) that
    /// `operation` is about to take it at.
    ///
    /// # Errors
    /// [`Error::Level`], [`Error::Scale`].
    pub fn expect(&self, operation: &'static str, level: usize, scale: f64) -> Result<(), Error> {
        rules::same_level(operation, self.level, level)?;
        rules::same_scale(operation, self.scale, scale)
    }
}
