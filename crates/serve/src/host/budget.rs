//! Bytes in flight, counted where they are held.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;

use crate::Limit;
use crate::batch::Origin;

/// How many bytes may be held, and how many are. A connection's budget lies within the server's.
pub(crate) struct Budget {
    limit: Limit,
    bytes_max: usize,
    bytes: AtomicUsize,
    /// Reservations that began, and those that ended: a connection on which none does is stuck.
    begun: AtomicU64,
    ended: AtomicU64,
    /// How often one that goes on gave something back.
    shrunk: AtomicU64,
    /// Those open now that no answer is due to: somebody watches the server's health.
    watches: AtomicU64,
    within: Option<Arc<Budget>>,
    origin: Origin,
}

/// Bytes held for one request, given back when dropped.
pub struct Reservation {
    budget: Arc<Budget>,
    bytes: AtomicUsize,
    is_watch: bool,
}

impl Budget {
    pub fn new(limit: Limit, bytes_max: usize, within: Option<Arc<Self>>) -> Arc<Self> {
        Self::of(limit, bytes_max, within, Origin::default())
    }

    /// The budget of a connection, whose requests come from `origin`.
    pub fn of(
        limit: Limit,
        bytes_max: usize,
        within: Option<Arc<Self>>,
        origin: Origin,
    ) -> Arc<Self> {
        let (begun, ended, shrunk, watches) = Default::default();
        Arc::new(Self {
            limit,
            bytes_max,
            bytes: AtomicUsize::new(0),
            begun,
            ended,
            shrunk,
            watches,
            within,
            origin,
        })
    }

    /// Bytes held now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Reservations that are open now.
    pub fn open(&self) -> u64 {
        let ended = self.ended.load(Ordering::Relaxed);
        self.begun.load(Ordering::Relaxed).saturating_sub(ended)
    }

    /// Reservations that are open now to which an answer is due, as a watch's is not.
    pub fn due(&self) -> u64 {
        self.open().saturating_sub(self.watches.load(Ordering::Relaxed))
    }

    /// Reservations that have begun.
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// Reservations that have ended.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Changes as long as requests go on: reservations end, or give something back.
    pub fn progress(&self) -> u64 {
        self.ended().wrapping_add(self.shrunk.load(Ordering::Relaxed))
    }

    pub fn reserve(self: &Arc<Self>) -> Reservation {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Reservation { budget: Arc::clone(self), bytes: AtomicUsize::new(0), is_watch: false }
    }

    /// As [`reserve`](Self::reserve), of a request that lasts and that no drain waits for.
    pub fn watch(self: &Arc<Self>) -> Reservation {
        self.watches.fetch_add(1, Ordering::Relaxed);
        let mut reservation = self.reserve();
        reservation.is_watch = true;
        reservation
    }

    fn take(&self, bytes: usize) -> Result<(), Limit> {
        let taken = |held: usize| held.checked_add(bytes).filter(|&held| held <= self.bytes_max);
        self.bytes
            .try_update(Ordering::Relaxed, Ordering::Relaxed, taken)
            .map_err(|_| self.limit)?;
        if let Some(outer) = &self.within
            && let Err(limit) = outer.take(bytes)
        {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            return Err(limit);
        }
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        if let Some(outer) = &self.within {
            outer.give_back(bytes);
        }
    }
}

impl Reservation {
    /// Whose request it is for.
    pub fn origin(&self) -> Origin {
        self.budget.origin
    }

    /// Holds `bytes` more.
    ///
    /// # Errors
    /// The limit that this would pass; nothing changes then.
    pub fn grow(&self, bytes: usize) -> Result<(), Limit> {
        self.budget.take(bytes)?;
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Gives back `bytes` that are no longer held, of a request that goes on.
    pub fn shrink(&self, bytes: usize) {
        let rest = |held: usize| Some(held.saturating_sub(bytes));
        let held = self.bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        self.budget.give_back(bytes.min(held.unwrap_or_default()));
        self.budget.shrunk.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.give_back(*self.bytes.get_mut());
        if self.is_watch {
            self.budget.watches.fetch_sub(1, Ordering::Relaxed);
        }
        self.budget.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whose request a reservation is for.
pub(crate) fn origin_of(reservation: Option<&Reservation>) -> Origin {
    reservation.map(Reservation::origin).unwrap_or_default()
}

/// Bytes that keep their reservation until they have left.
pub(crate) struct Held {
    pub bytes: Bytes,
    pub _reservation: Arc<Reservation>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_limits_hold_and_all_comes_back() {
        let server = Budget::new(Limit::InflightBytes, 100, None);
        let one = Budget::new(Limit::ConnectionBytes, 70, Some(Arc::clone(&server)));
        let two = Budget::new(Limit::ConnectionBytes, 70, Some(Arc::clone(&server)));
        let a = one.reserve();
        assert_eq!(a.grow(60), Ok(()));
        assert_eq!(a.grow(11), Err(Limit::ConnectionBytes));
        let b = two.reserve();
        assert_eq!(b.grow(41), Err(Limit::InflightBytes));
        assert_eq!(b.grow(40), Ok(()));
        assert_eq!(b.grow(usize::MAX), Err(Limit::ConnectionBytes));
        assert_eq!((one.bytes(), two.bytes(), server.bytes()), (60, 40, 100));
        a.shrink(10);
        assert_eq!((one.bytes(), server.bytes()), (50, 90));
        b.shrink(usize::MAX);
        assert_eq!((two.bytes(), server.bytes()), (0, 50));
        assert_eq!((two.progress(), two.ended(), two.open()), (1, 0, 1));
        assert_eq!(b.grow(40), Ok(()));
        drop(a);
        assert_eq!((one.bytes(), server.bytes(), one.ended(), two.ended()), (0, 40, 1, 0));
        drop(b);
        assert_eq!(server.bytes(), 0);
        let watch = one.watch();
        assert_eq!((one.open(), one.due()), (1, 0));
        drop(watch);
        assert_eq!((one.open(), one.due()), (0, 0));
    }
}
