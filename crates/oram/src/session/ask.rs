//! What a client asks of its training server: one call an operation.

use std::sync::Arc;
use std::time::Duration;

use hushtable_client::{
    Ask, CallFault, Called, Cause, Limits, Place, Round, RoundOf, Script, Tally, Tried,
};

use super::call::{Call, Failure, Reply, Training};
use super::scheme::{Server, Session};

/// A call, and how its reply is read.
pub struct TrainAsk<T> {
    pub call: Call,
    pub limits: Limits,
    pub read: fn(Reply) -> Option<T>,
}

/// The call on its way.
pub struct TrainScript<T> {
    call: Option<Call>,
    read: fn(Reply) -> Option<T>,
}

impl<T: Send> Ask<Server> for TrainAsk<T> {
    type Output = Called<T>;
    type Script = TrainScript<T>;

    fn script(&self, _: &Arc<Session>, _: u64) -> Result<TrainScript<T>, Failure> {
        Ok(TrainScript { call: Some(self.call.clone()), read: self.read })
    }

    fn limits(&self) -> Option<Limits> {
        Some(self.limits)
    }

    fn is_repeatable(&self) -> bool {
        !matches!(self.call, Call::OpenRound { .. })
    }

    /// Makes a call again whose server waits for others, until the call's own time is over.
    fn again(&self, cause: Cause<'_, Training>, tried: Tried, _: u64) -> Option<Duration> {
        match cause {
            Cause::Fault(&CallFault::Pending { retry_after })
                if self.call.within().is_some_and(|within| tried.elapsed < within) =>
            {
                Some(retry_after.clamp(PAUSE_MIN, PAUSE_MAX))
            }
            _ => None,
        }
    }
}

impl<T: Send> Script for TrainScript<T> {
    type Protocol = Training;
    type Output = Called<T>;

    fn next(&mut self, replies: Vec<Reply>, tally: Tally) -> RoundOf<Training, Called<T>> {
        if let Some(call) = self.call.take() {
            return Ok(Round::Ask(vec![(Place::Single, call)]));
        }
        let reply = replies.into_iter().next().and_then(self.read).ok_or(Failure::OtherCall)?;
        Ok(Round::Done(Called { reply, retries: tally.retries }))
    }
}

const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);
