//! Things that are expensive to make, kept for the next who needs one.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

/// Idle things of one kind.
pub(crate) struct Pool<T>(Arc<Mutex<Vec<T>>>);

/// A thing that goes back to its pool when it is dropped; its content is whatever it last was.
pub(crate) struct Lent<T> {
    /// Always there until the drop.
    thing: Option<T>,
    pool: Arc<Mutex<Vec<T>>>,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Pool<T> {
    /// An idle thing, or a new one.
    pub(crate) fn take(&self, make: impl FnOnce() -> T) -> Lent<T> {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Lent { thing: Some(idle.unwrap_or_else(make)), pool: Arc::clone(&self.0) }
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.thing.as_ref().expect("there until the drop")
    }
}

impl<T> DerefMut for Lent<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.thing.as_mut().expect("there until the drop")
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner).extend(self.thing.take());
    }
}
