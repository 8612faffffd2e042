//! How a client that makes its own calls asks a busy server again, and the next one where it has several.

use std::time::Duration;

use hushtable_client::{CallFault, Moves, pause};
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
    /// Whether there are others to ask than a server that drains.
    pub has_others: bool,
}

impl Patience {
    /// Makes a call, each within the given limit, until it is answered, refused for good, or time
    /// is up; a server that drains is waited for. How often it was made again comes with the reply.
    pub async fn until_answered<T, F: Future<Output = Result<T, Error>>>(
        self,
        call: impl Fn(Duration) -> F,
    ) -> Result<(T, u32), Error> {
        let (mut retries, mut moves) = (0, Moves::new(1));
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let error = match call(self.call_max.min(left)).await {
                Ok(reply) => return Ok((reply, retries)),
                Err(error) => error,
            };
            let random = random_u64()?;
            let pause = match &error {
                Error::Refused { refusal: Refusal::Busy { retry_after, .. }, .. } => {
                    pause(*retry_after, retries, random)
                }
                _ if self.has_others => return Err(error),
                waits => match next(&mut moves, waits, random) {
                    Some(pause) => pause,
                    None => return Err(error),
                },
            };
            if Instant::now() + pause >= self.deadline {
                return Err(error);
            }
            sleep(pause).await;
            retries += 1;
        }
    }
}

/// How long to wait before the next server is asked, or the same again, after an error; `None` where the error is
/// no reason to.
pub(crate) fn next(moves: &mut Moves, error: &Error, random: u64) -> Option<Duration> {
    let fault = match error {
        Error::Refused { refusal: Refusal::Draining, .. } => CallFault::Draining,
        Error::Unavailable { .. } => CallFault::Unreachable,
        _ => return None,
    };
    moves.next(&fault, random)
}
