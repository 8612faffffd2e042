//! The batch scheduler: requests that arrive within a waiting window share one pass over the table.
//!
//! [`queue`] decides, a [`Scheduler`] has passes run by its [`Runner`]'s thread, in [`Turns`] with the
//! other schedulers of that runner. None of them knows what a query
//! is: [`Answerer`] is the seam, and each scheme says what one of its queries holds.

pub(crate) mod check;
mod fairness;
mod metrics;
pub mod queue;
mod runner;
mod scheduler;
mod turns;

pub use fairness::Origin;
pub use metrics::{PassFamilies, PassMetrics, PassNames};
pub use queue::{Due, Full, Next, Pass, Pushed, Queue, QueueLimits, Waiting, Wake};
pub use runner::Runner;
pub use scheduler::{Answered, Scheduler, SchedulerSpec, Unanswered};
pub use turns::Turns;

use std::time::Duration;

/// Answers batches of queries that were checked before.
pub trait Answerer: Send + Sync + 'static {
    /// A checked query.
    type Query: Send + 'static;
    /// Why a batch failed.
    type Error: std::error::Error;

    /// Bytes of the answer to one query.
    fn answer_bytes(&self) -> usize;

    /// Answers every query: that to `queries[i]` lands in `answers[i * answer_bytes..]`.
    ///
    /// # Errors
    /// The whole batch fails or none of it does.
    fn answer(&self, queries: &[Self::Query], answers: &mut [u8]) -> Result<(), Self::Error>;

    /// Where a batch failed for want of a part of what answers that lies elsewhere: whoever asked is
    /// told so at once, and when to come back.
    #[allow(unused_variables, reason = "an answerer names it")]
    fn absent(error: &Self::Error) -> Option<Absent> {
        None
    }
}

/// A part of what answers that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "it is made of its fields")]
pub struct Absent {
    /// Its number.
    pub shard: usize,
    /// When it may be there again.
    pub retry_after: Duration,
}

/// No server is set to wait longer.
pub(crate) const WINDOW_MAX: Duration = Duration::from_secs(60);
