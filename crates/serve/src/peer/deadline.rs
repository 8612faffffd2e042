//! Until when all that a client does in one call may take.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::Error;

tokio::task_local! {
    static HELD: Deadline;
}

/// The end of one call of a client, whatever it consists of: several operations, retries, connections, uploads.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    end: Instant,
    after: Duration,
}

impl Deadline {
    /// So long from now.
    pub fn after(after: Duration) -> Self {
        let now = Instant::now();
        Self { end: now.checked_add(after).unwrap_or(now + FAR), after }
    }

    /// Makes `call`, in the place of the client's own limits by this one. What waits for a server fails at the end,
    /// and names it; what waits for anything else is given up a moment later.
    ///
    /// # Errors
    /// What `call` says; [`Error::Late`].
    pub async fn hold<T, E: From<Error>>(
        self,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        match timeout_at(self.end + GRACE, HELD.scope(self, call)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Error::Late { after: self.after }.into()),
        }
    }

    /// The one that holds here.
    pub(crate) fn held() -> Option<Self> {
        HELD.try_with(|deadline| *deadline).ok()
    }

    /// What goes on elsewhere, by the deadline that held where it came from.
    pub(crate) async fn carry<T>(held: Option<Self>, call: impl Future<Output = T>) -> T {
        match held {
            Some(deadline) => HELD.scope(deadline, call).await,
            None => call.await,
        }
    }

    /// When it is, from `epoch` on.
    pub(crate) fn since(self, epoch: Instant) -> Duration {
        self.end.saturating_duration_since(epoch)
    }
}

/// A machine ends by itself, and says which server it waited for.
const GRACE: Duration = Duration::from_millis(20);
/// In the place of an end that no clock comes to.
const FAR: Duration = Duration::from_secs(1 << 30);
