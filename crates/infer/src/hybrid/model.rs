//! What a server computes with: a network and its weights, ready.

use std::sync::Arc;

use hushtable_mpc::Platform;

use super::error::Error;
use super::linear::Prepared;
use super::outline::Outline;
use super::program::{Program, Weights};

/// A network with its weights.
pub struct HybridModel {
    outline: Arc<Outline>,
    weights: Weights,
    prepared: Arc<Prepared>,
}

impl HybridModel {
    /// Prepares a network.
    ///
    /// # Errors
    /// [`Error::Linear`] for weights whose noise the program's parameters do not carry, [`Error::Garble`].
    pub fn new(program: Program, weights: Weights, platform: Platform) -> Result<Self, Error> {
        let outline = Arc::new(Outline::new(program, platform)?);
        let prepared = Prepared::new(Arc::clone(outline.layers()), &weights.convolutions)?;
        Ok(Self { outline, weights, prepared: Arc::new(prepared) })
    }

    /// What clients know of it too.
    pub fn outline(&self) -> &Arc<Outline> {
        &self.outline
    }

    /// The weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// The weights as the encryption takes them.
    pub(super) fn prepared(&self) -> &Arc<Prepared> {
        &self.prepared
    }
}
