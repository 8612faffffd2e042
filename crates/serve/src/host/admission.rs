//! What every service asks before it works: is the server still open, is there room?

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::Refusal;
use crate::host::budget::Reservation;

/// Lets requests in until the server drains.
pub struct Admission {
    draining: AtomicBool,
    retry_after: Duration,
}

impl Admission {
    /// Of a service whose passes start within `window`.
    pub fn new(window: Duration) -> Self {
        let retry_after = window.max(Duration::from_millis(1));
        Self { draining: AtomicBool::new(false), retry_after }
    }

    /// Refuses requests from now on.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// How long a client waits before it asks a server without room for bytes again: a pass frees
    /// some.
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Refuses where the server is about to stop.
    ///
    /// # Errors
    /// [`Refusal::Draining`].
    pub fn check_open(&self) -> Result<(), Refusal> {
        match self.draining.load(Ordering::Relaxed) {
            true => Err(Refusal::Draining),
            false => Ok(()),
        }
    }

    /// Counts `bytes` more for a request, for as long as it lives.
    ///
    /// # Errors
    /// [`Refusal::Busy`] where there is no room for them.
    pub fn hold(&self, reservation: Option<&Reservation>, bytes: usize) -> Result<(), Refusal> {
        let Some(reservation) = reservation else { return Ok(()) };
        let retry_after = self.retry_after;
        reservation.grow(bytes).map_err(|limit| Refusal::Busy { limit, retry_after })
    }
}
