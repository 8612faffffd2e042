//! The batch scheduler: requests that arrive within a waiting window share one pass over the table.
//!
//! [`queue`] decides, a [`Scheduler`] has passes run by its [`Runner`]'s thread, in [`Turns`] with the
//! other schedulers of that runner. None of them knows what a query is: [`Answerer`] is the seam. A
//! query of [`hushtable_pir::dpf::Server`] is one key, a query of [`hushtable_pir::batch::Server`] all
//! keys of one inference over a layout, a query of [`hushtable_pir::model::Server`] all keys of one
//! inference of a model, a query of [`hushtable_pir::onion::Server`] one encrypted query with its
//! client's keys.

pub(crate) mod check;
mod metrics;
pub mod queue;
mod runner;
mod scheduler;
mod turns;

pub use metrics::PassMetrics;
pub(crate) use metrics::{PassFamilies, PassNames};
pub use queue::{Due, Full, Next, Pass, Queue, QueueLimits, Waiting, Wake};
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
}

/// No server is set to wait longer.
pub(crate) const WINDOW_MAX: Duration = Duration::from_secs(60);
