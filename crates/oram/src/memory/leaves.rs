//! Random leaves.

use hushtable_prg::{EntropyError, Secret, fill_random};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

/// Leaves from ChaCha20, its seed from the operating system.
pub(crate) struct Leaves(ChaCha20Rng);

impl Leaves {
    pub(crate) fn new() -> Result<Self, EntropyError> {
        let mut seed = Secret::new([0; 32]);
        fill_random(seed.expose_mut())?;
        Ok(Self(ChaCha20Rng::from_seed(*seed.expose())))
    }

    /// A uniform leaf of a tree of `leaves` leaves.
    #[inline]
    pub(crate) fn draw(&mut self, leaves: u32) -> u32 {
        crate::shape::uniform(leaves, &mut self.0)
    }
}
