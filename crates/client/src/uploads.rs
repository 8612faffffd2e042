//! Whether a server has a client's keys, and whose turn it is to bring them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Bell;

/// How often keys were brought to a server, or found there. Where many operations miss them at once, one brings
/// them and the others wait.
pub struct Uploads {
    bell: Bell,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    count: u64,
    is_under_way: bool,
}

/// How an operation comes to keys that the server has.
#[allow(clippy::exhaustive_enums, reason = "an operation does one of these")]
pub enum Upload {
    /// They are there, for this count of times.
    Done(u64),
    /// Another operation brings them.
    Wait,
    /// It is to bring them itself.
    Turn(UploadTurn),
}

/// The turn to bring the keys; it ends with the value, however that ends.
pub struct UploadTurn(Arc<Uploads>);

impl Uploads {
    /// Of a server that was brought nothing yet; `bell` is the client's.
    pub fn new(bell: Bell) -> Arc<Self> {
        Arc::new(Self { bell, state: Mutex::default() })
    }

    /// What to do for keys that were brought, or found, once more than `seen` times.
    pub fn after(self: &Arc<Self>, seen: u64) -> Upload {
        let mut state = self.locked();
        if state.count > seen {
            return Upload::Done(state.count);
        }
        match std::mem::replace(&mut state.is_under_way, true) {
            true => Upload::Wait,
            false => Upload::Turn(UploadTurn(Arc::clone(self))),
        }
    }

    /// How often they were brought, or found.
    pub fn count(&self) -> u64 {
        self.locked().count
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UploadTurn {
    /// The keys are there: how often they were by now.
    pub fn end(self) -> u64 {
        let mut state = self.0.locked();
        state.count += 1;
        state.count
    }
}

impl Drop for UploadTurn {
    fn drop(&mut self) {
        self.0.locked().is_under_way = false;
        self.0.bell.ring();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn one_brings_the_keys_and_a_turn_that_is_dropped_goes_to_the_next() {
        let rung = Arc::new(AtomicUsize::new(0));
        let rings = Arc::clone(&rung);
        let uploads = Uploads::new(Bell::new(move || {
            rings.fetch_add(1, Ordering::Relaxed);
        }));
        let Upload::Turn(first) = uploads.after(0) else { panic!("nobody brings them") };
        assert!(matches!(uploads.after(0), Upload::Wait));
        drop(first);
        assert_eq!(rung.load(Ordering::Relaxed), 1);
        let Upload::Turn(second) = uploads.after(0) else { panic!("nobody brings them") };
        assert_eq!(second.end(), 1);
        assert_eq!(rung.load(Ordering::Relaxed), 2);
        assert!(matches!(uploads.after(0), Upload::Done(1)));
        assert!(matches!(uploads.after(1), Upload::Turn(_)));
    }
}
