//! What clients of every scheme do alike: keep one session for all calls, ask a busy server again.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use crate::peer::random_u64;
use crate::{Error, Refusal};

/// The session that calls share: what is known of one version of the servers' table.
pub(crate) struct Sessions<S> {
    current: RwLock<Arc<S>>,
    reopening: Mutex<()>,
}

impl<S> Sessions<S> {
    pub fn new(session: S) -> Self {
        Self { current: RwLock::new(Arc::new(session)), reopening: Mutex::new(()) }
    }

    pub fn current(&self) -> Arc<S> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Opens a new session, unless another call has done so since `stale`: where many find the table
    /// changed at once, one asks what there is now.
    pub async fn reopen(
        &self,
        stale: &Arc<S>,
        open: impl Future<Output = Result<S, Error>>,
    ) -> Result<Arc<S>, Error> {
        let _turn = self.reopening.lock().await;
        let current = self.current();
        if !Arc::ptr_eq(&current, stale) {
            return Ok(current);
        }
        let session = Arc::new(open.await?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&session);
        Ok(session)
    }
}

/// How long one lookup waits for a server.
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
            let pause = jittered(*retry_after, retries)?;
            if Instant::now() + pause >= self.deadline {
                return Err(error);
            }
            sleep(pause).await;
            retries += 1;
        }
    }
}

/// Between one and two times the server's hint, doubled with each retry: many clients that were
/// refused together must not come back together.
fn jittered(hint: Duration, retries: u32) -> Result<Duration, Error> {
    let base = hint.clamp(RETRY_MIN, RETRY_MAX) * (1 << retries.min(4));
    let fraction = (random_u64()? >> 11) as f64 / (1u64 << 53) as f64;
    Ok(base.mul_f64(1.0 + fraction))
}

const RETRY_MIN: Duration = Duration::from_millis(1);
const RETRY_MAX: Duration = Duration::from_secs(10);
