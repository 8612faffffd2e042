//! The places of predictions, and which precomputes they use.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use prometheus_client::metrics::counter::Counter;

use super::PrecomputeId;
use super::keep::lock;
use crate::host::places::{self, Places};
use crate::host::quota::{Full, Holder};

/// So many predictions at once, of which each client has its part.
pub(super) struct Predictions {
    places: Arc<Places>,
    /// The precomputes that are used.
    used: Mutex<HashSet<PrecomputeId>>,
}

/// A prediction's place; given back when dropped.
pub(super) struct Place {
    predictions: Arc<Predictions>,
    precompute: PrecomputeId,
    own: places::Place,
}

impl Predictions {
    pub fn new(count: usize, displaced: Counter) -> Arc<Self> {
        Arc::new(Self { places: Places::new(count, displaced), used: Mutex::default() })
    }

    /// Whether a prediction uses this precompute.
    pub fn uses(&self, precompute: &PrecomputeId) -> bool {
        lock(&self.used).contains(precompute)
    }

    /// A place, whoever may have to give up one for it.
    pub fn enter(
        self: &Arc<Self>,
        precompute: PrecomputeId,
        holder: Holder,
    ) -> Result<Place, Full> {
        let own = self.places.enter(holder)?;
        lock(&self.used).insert(precompute);
        Ok(Place { predictions: Arc::clone(self), precompute, own })
    }
}

impl Place {
    /// Waits until another needs it.
    pub async fn lost(&mut self) {
        self.own.lost().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.predictions.used).remove(&self.precompute);
    }
}
