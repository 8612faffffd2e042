//! How a client that makes its own calls asks a busy server again.

use std::time::Duration;

use hushtable_pir::client::pause;
use tokio::time::{Instant, sleep};

use crate::peer::random_u64;
use crate::{Error, Refusal};

/// How long an operation waits for a server.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// For one call.
    pub call_max: Duration,
    /// For all of them.
    pub deadline: Instant,
}

impl Patience {
    /// Makes a call, each within the given limit, until it is answered, refused for good, or time
    /// is up. How often it was made again comes with the reply.
    pub async fn until_answered<T, F: Future<Output = Result<T, Error>>>(
        self,
        call: impl Fn(Duration) -> F,
    ) -> Result<(T, u32), Error> {
        let mut retries = 0;
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let error = match call(self.call_max.min(left)).await {
                Ok(reply) => return Ok((reply, retries)),
                Err(error) => error,
            };
            let Error::Refused { refusal: Refusal::Busy { retry_after, .. }, .. } = &error else {
                return Err(error);
            };
            let pause = pause(*retry_after, retries, random_u64()?);
            if Instant::now() + pause >= self.deadline {
                return Err(error);
            }
            sleep(pause).await;
            retries += 1;
        }
    }
}
