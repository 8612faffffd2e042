//! A computation's limbs, spread over the threads of a pool.

use std::sync::{Mutex, PoisonError};

use super::switch::Words;

/// The room of the threads that compute together.
///
/// Work that is begun on a thread of a rayon pool is shared with that pool's other threads, so that
/// whoever owns the pool decides on how many; outside of a pool it stays on the thread that began it.
/// Either way the same numbers come out.
#[derive(Default)]
pub(super) struct Crew(Vec<Seat>);

/// Room of one thread.
#[derive(Default)]
pub(super) struct Seat {
    /// One limb of each digit.
    pub digits: Words,
    pub limb: Words,
    /// One limb of a key's masks, where it does not hold them.
    pub masks: Words,
    /// One limb of every ciphertext's baby steps, mask and body.
    pub babies: Words,
}

impl Crew {
    /// Runs `work` on every item, all of which together read or write about `numbers` numbers.
    pub fn each<T: Send>(
        &mut self,
        numbers: usize,
        items: impl ExactSizeIterator<Item = T> + Send,
        work: impl Fn(&mut Seat, T) + Sync,
    ) {
        let threads = match rayon::current_thread_index() {
            Some(_) if numbers >= SHARED_MIN => rayon::current_num_threads().min(items.len()),
            _ => 1,
        };
        self.0.resize_with(self.0.len().max(threads).max(1), Seat::default);
        if threads <= 1 {
            items.for_each(|item| work(&mut self.0[0], item));
            return;
        }
        // One at a time: a thread that other work keeps takes fewer.
        let items = Mutex::new(items);
        let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
        rayon::scope(|scope| {
            for seat in &mut self.0[..threads] {
                scope.spawn(|_| {
                    while let Some(item) = next() {
                        work(seat, item);
                    }
                });
            }
        });
    }
}

/// To wake threads and to wait for them takes some ten microseconds; this many numbers are transformed
/// in several times that.
const SHARED_MIN: usize = 1 << 16;
