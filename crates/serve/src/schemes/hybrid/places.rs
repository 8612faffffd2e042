//! The places of predictions.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;

use super::PrecomputeId;
use super::keep::lock;
use crate::host::quota::{Full, Holder, Quota};

/// So many predictions at once, of which each client has its part.
pub(super) struct Predictions {
    state: Mutex<State>,
    displaced: Counter,
}

struct State {
    quota: Quota<u64>,
    /// Numbers given so far.
    last: u64,
    /// What tells a prediction that it has lost its place.
    lost: HashMap<u64, oneshot::Sender<()>>,
    /// The precomputes that are used.
    used: HashSet<PrecomputeId>,
}

/// A prediction's place; given back when dropped.
pub(super) struct Place {
    predictions: Arc<Predictions>,
    number: u64,
    precompute: PrecomputeId,
    lost: oneshot::Receiver<()>,
}

impl Predictions {
    pub fn new(count: usize, displaced: Counter) -> Arc<Self> {
        let quota = Quota::new(count as u64);
        let state =
            Mutex::new(State { quota, last: 0, lost: HashMap::new(), used: HashSet::new() });
        Arc::new(Self { state, displaced })
    }

    /// Whether a prediction uses this precompute.
    pub fn uses(&self, precompute: &PrecomputeId) -> bool {
        lock(&self.state).used.contains(precompute)
    }

    /// A place, whoever may have to give up one for it.
    pub fn enter(
        self: &Arc<Self>,
        precompute: PrecomputeId,
        holder: Holder,
    ) -> Result<Place, Full> {
        let mut state = lock(&self.state);
        state.last += 1;
        let number = state.last;
        for gone in state.quota.enter(number, holder, 1, Instant::now())? {
            self.displaced.inc();
            if let Some(lost) = state.lost.remove(&gone) {
                // One that has just ended does not hear it.
                let _ = lost.send(());
            }
        }
        let (sender, lost) = oneshot::channel();
        state.lost.insert(number, sender);
        state.used.insert(precompute);
        Ok(Place { predictions: Arc::clone(self), number, precompute, lost })
    }
}

impl Place {
    /// Waits until another needs it.
    pub async fn lost(&mut self) {
        if (&mut self.lost).await.is_err() {
            std::future::pending().await
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = lock(&self.predictions.state);
        state.quota.leave(&self.number);
        state.lost.remove(&self.number);
        state.used.remove(&self.precompute);
    }
}
