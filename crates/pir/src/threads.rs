//! The threads that answer.

use std::sync::Arc;

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::Error;

/// Threads that engines share: a server of many tables has one set of them.
///
/// A pass that runs on one of these threads already stays among them, so passes over several tables
/// may be started side by side from within [`run`](Self::run).
#[derive(Clone, Debug)]
pub struct Threads(Arc<ThreadPool>);

impl Threads {
    /// So many threads; 0 for one a core.
    ///
    /// # Errors
    /// [`Error::Threads`] where the system gives none.
    pub fn new(count: usize) -> Result<Self, Error> {
        Self::named(count, "hushtable-answer")
    }

    pub(crate) fn named(count: usize, name: &'static str) -> Result<Self, Error> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(move |i| format!("{name}-{i}"))
            .build()
            .map_err(|error| Error::Threads { threads: count, reason: error.to_string() })?;
        Ok(Self(Arc::new(pool)))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.current_num_threads()
    }

    /// Runs `work` on one of them.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.0.install(work)
    }

    /// Runs `work` on every item, one a thread as long as there are some.
    pub fn each<T: Send>(&self, items: Vec<T>, work: impl Fn(T) + Send + Sync) {
        self.0.install(|| items.into_par_iter().with_max_len(1).for_each(work));
    }

    /// Runs `work` on one of them, and lets it share itself out over the others, where it is enough for
    /// that; else on the calling thread. `cost` is the stored bytes that it reads, times the groups of eight keys that they are
    /// multiplied with.
    pub(crate) fn run_if_worth<T: Send>(
        &self,
        cost: usize,
        work: impl FnOnce(Sharing) -> T + Send,
    ) -> T {
        match cost > COST_ALONE_MAX {
            true => self.0.install(|| work(Sharing { threads: self.count() })),
            // To hand it over, and to wait for it, could take longer than it does.
            false => work(Sharing { threads: 1 }),
        }
    }
}

/// How a piece of work is shared out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sharing {
    /// Threads that take part: one where the work stays on the thread that began it.
    pub threads: usize,
}

impl Sharing {
    /// What `make` makes of `0..count`, in order.
    pub fn map<T: Send>(self, count: usize, make: impl Fn(usize) -> T + Send + Sync) -> Vec<T> {
        match self.threads {
            1 => (0..count).map(make).collect(),
            threads => {
                // Few at once, so that a thread that is done early finds some left.
                let at_once = (count / (8 * threads)).max(1);
                (0..count).into_par_iter().with_max_len(at_once).map(make).collect()
            }
        }
    }
}

/// Waking threads and waiting for them costs some ten microseconds. Work of this cost takes one
/// thread a few times as long.
const COST_ALONE_MAX: usize = 256 << 10;
