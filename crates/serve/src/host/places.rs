//! Places for what takes long, so many at once: each client has its part of them, and hears where it loses one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;

use crate::host::quota::{Full, Holder, Quota};

/// The places.
pub(crate) struct Places {
    state: Mutex<State>,
    /// Counts those that were lost to others.
    displaced: Counter,
}

struct State {
    quota: Quota<u64>,
    /// Numbers given so far.
    last: u64,
    /// What tells a place's holder that it has lost it.
    lost: HashMap<u64, oneshot::Sender<()>>,
}

/// A place; given back when dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    number: u64,
    lost: oneshot::Receiver<()>,
}

impl Places {
    pub fn new(count: usize, displaced: Counter) -> Arc<Self> {
        let state = State { quota: Quota::new(count as u64), last: 0, lost: HashMap::new() };
        Arc::new(Self { state: Mutex::new(state), displaced })
    }

    /// A place, whoever may have to give one up for it.
    ///
    /// # Errors
    /// [`Full`] where nobody has more than `holder`.
    pub fn enter(self: &Arc<Self>, holder: Holder) -> Result<Place, Full> {
        let mut state = self.lock();
        let number = state.last + 1;
        for gone in state.quota.enter(number, holder, 1, Instant::now())? {
            self.displaced.inc();
            if let Some(lost) = state.lost.remove(&gone) {
                // One that has just ended does not hear it.
                let _ = lost.send(());
            }
        }
        state.last = number;
        let (sender, lost) = oneshot::channel();
        state.lost.insert(number, sender);
        Ok(Place { places: Arc::clone(self), number, lost })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut state = self.places.lock();
        state.quota.leave(&self.number);
        state.lost.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_has_all_places_loses_one_to_who_asks_and_hears_it() {
        let displaced = Counter::default();
        let places = Places::new(2, displaced.clone());
        let [hog, other] = [1, 2].map(Holder::of_number);
        let mut first = places.enter(hog).unwrap();
        let second = places.enter(hog).unwrap();
        assert!(places.enter(hog).is_err());
        let third = places.enter(other).unwrap();
        first.lost().await;
        assert_eq!(displaced.get(), 1);
        // They have one each; what is given back twice counts once.
        assert!(places.enter(hog).is_err() && places.enter(other).is_err());
        drop(first);
        assert!(places.enter(hog).is_err());
        drop((second, third));
        assert!(places.enter(hog).is_ok() && places.lock().quota.len() == 0);
        assert!(places.lock().lost.is_empty());
    }
}
