//! Makes precomputes: the steps of the offline phase.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use hushtable_infer::hybrid::session::{Counted, Halves, Pace};
use tokio::time::Instant;

use super::{HybridClient, Parallelism, PrecomputeProgress};
use crate::Error;
use crate::peer::random_u64;

/// What precomputes cost to make.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PrecomputeStats {
    /// How many were made.
    pub precomputes: usize,
    /// Steps of all.
    pub steps: u64,
    /// Bytes of steps sent.
    pub sent_bytes: u64,
    /// Bytes of replies received.
    pub received_bytes: u64,
    /// From the call to its end.
    pub elapsed: Duration,
    /// How often a call was made again.
    pub retries: u64,
    /// Precomputes that the server lost while they were made, so that they were begun again.
    pub begun_again: u64,
}

impl HybridClient {
    /// Makes `count` precomputes, and keeps this client's halves. A call that is lost is made again, and a
    /// precompute that the server lost is begun again.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Unavailable`], [`Error::Timeout`] for a server that does not go on;
    /// [`hushtable_infer::hybrid::Error`] for replies that are none of the protocol's; [`HybridError::Precomputes`](crate::HybridError::Precomputes) where halves
    /// cannot be kept. Those that were made before stay.
    pub async fn precompute(
        &self,
        count: usize,
        progress: Option<PrecomputeProgress>,
    ) -> Result<PrecomputeStats, Error> {
        let started = Instant::now();
        let at_once = self.steps_max;
        let pace = match self.parallelism {
            Parallelism::Layer => Pace { precomputes: 1, steps: at_once },
            Parallelism::Sequential => Pace { precomputes: 1, steps: 1 },
            Parallelism::Request => Pace { precomputes: at_once, steps: 1 },
        };
        let halves = Arc::clone(&self.halves) as Arc<dyn Halves>;
        let making = self.predictor.make(halves, count, pace, progress);
        let workers = making.workers(random_u64()?).into_iter();
        try_join_all(workers.map(|worker| self.driver.run(worker))).await?;
        let Counted { steps, sent_bytes, received_bytes, retries, begun_again, .. } =
            making.counted();
        Ok(PrecomputeStats {
            precomputes: count,
            steps,
            sent_bytes,
            received_bytes,
            elapsed: started.elapsed(),
            retries,
            begun_again,
        })
    }
}
