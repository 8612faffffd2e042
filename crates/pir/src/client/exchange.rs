//! One call to one server, made again while the server is busy, once where a connection was lost.

use std::time::Duration;

use super::{Call, CallError, CallFault, CallId, Error, Failure, Place, Reply, ReplyDefect};

/// How long a client waits for its servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For one call, or the next chunk of a layout.
    pub call_max: Duration,
    /// When the operation began.
    pub started: Duration,
    /// When it ends.
    pub deadline: Duration,
}

/// A call on its way.
pub(super) struct Exchange<E> {
    pub place: Place,
    call: Call,
    state: State<E>,
    retries: u32,
    /// The last refusal by a busy server. An operation fails with it when its time ends while the call is made again:
    /// a timeout would say that the server is silent.
    busy: Option<Error<E>>,
    may_reconnect: bool,
    /// What has come of a layout.
    layout: Vec<u8>,
    /// From its call to its end.
    layout_took: Duration,
}

enum State<E> {
    /// To be sent.
    Due,
    /// Sent, and last heard of.
    Sent { id: CallId, at: Duration, heard: Duration },
    /// The server was busy.
    Paused { until: Duration },
    /// Replied, or given up.
    Over(Result<Reply, Error<E>>),
}

/// What an exchange wants now.
pub(super) enum Want {
    /// Its call made.
    Send(Call),
    /// Nothing before this time, unless a reply comes.
    Wait(Duration),
    /// Nothing any more.
    Nothing,
}

impl<E> Exchange<E> {
    pub fn new(place: Place, call: Call) -> Self {
        let (state, layout) = (State::Due, Vec::new());
        let layout_took = Duration::ZERO;
        Self {
            place,
            call,
            state,
            retries: 0,
            busy: None,
            may_reconnect: true,
            layout,
            layout_took,
        }
    }

    pub fn poll(&mut self, now: Duration, id: CallId, patience: &Patience) -> Want {
        match self.state {
            State::Paused { until } if now < until => return Want::Wait(until),
            State::Sent { at, heard, .. } => {
                let until = self.limit(at, heard, patience);
                if now < until {
                    return Want::Wait(until);
                }
                if until == patience.deadline {
                    self.end_late(until, patience);
                } else {
                    self.time_out(until.saturating_sub(heard));
                }
                return Want::Nothing;
            }
            State::Over(_) => return Want::Nothing,
            State::Due | State::Paused { .. } => {}
        }
        if now >= patience.deadline {
            self.end_late(now, patience);
            return Want::Nothing;
        }
        self.state = State::Sent { id, at: now, heard: now };
        Want::Send(self.call.clone())
    }

    /// When a call that was sent is given up.
    fn limit(&self, at: Duration, heard: Duration, patience: &Patience) -> Duration {
        let next = heard + patience.call_max;
        match self.call {
            // A large layout may take longer than an operation: it has a time of its own.
            Call::Layout { bytes, .. } => {
                let slowest = Duration::from_secs(bytes / LAYOUT_BYTES_PER_S_MIN);
                next.min(at + patience.call_max + slowest)
            }
            _ => next.min(patience.deadline),
        }
    }

    /// Against a deadline it is the whole operation that took too long.
    fn end_late(&mut self, at: Duration, patience: &Patience) {
        match self.busy.take() {
            Some(refused) => self.state = State::Over(Err(refused)),
            None => self.time_out(at.saturating_sub(patience.started)),
        }
    }

    fn time_out(&mut self, after: Duration) {
        let place = self.place;
        self.state = State::Over(Err(Failure::Timeout { place, after }.into()));
    }

    pub fn is_of(&self, call: CallId) -> bool {
        matches!(self.state, State::Sent { id, .. } if id == call)
    }

    pub fn received(
        &mut self,
        now: Duration,
        outcome: Result<Reply, CallError<E>>,
        patience: &Patience,
        random: impl FnOnce() -> u64,
    ) {
        let State::Sent { id, at, .. } = self.state else { return };
        if self.is_of_layout() {
            self.layout_took = now.saturating_sub(at);
        }
        let over = match outcome {
            Ok(Reply::LayoutChunk(chunk)) => {
                let Call::Layout { bytes, .. } = self.call else { return self.misfit() };
                self.layout.extend_from_slice(&chunk);
                if self.layout.len() as u64 <= bytes {
                    self.state = State::Sent { id, at, heard: now };
                    return;
                }
                self.whole_layout(bytes)
            }
            Ok(Reply::LayoutEnd) => {
                let Call::Layout { bytes, .. } = self.call else { return self.misfit() };
                self.whole_layout(bytes)
            }
            Ok(reply) => Ok(reply),
            Err(CallError { fault, error }) => {
                match fault {
                    CallFault::Busy { retry_after } => {
                        let until = now + pause(retry_after, self.retries, random());
                        if until < patience.deadline {
                            self.busy = Some(Error::Call { place: self.place, fault, error });
                            self.retries += 1;
                            self.state = State::Paused { until };
                            return;
                        }
                    }
                    // The server may have been restarted since the last call, which shows only in
                    // the next one: then it fails at once.
                    CallFault::Unreachable
                        if self.may_reconnect
                            && self.layout.is_empty()
                            && now.saturating_sub(at) < RECONNECT_WITHIN =>
                    {
                        self.may_reconnect = false;
                        self.state = State::Due;
                        return;
                    }
                    _ => {}
                }
                Err(Error::Call { place: self.place, fault, error })
            }
        };
        self.state = State::Over(over);
    }

    fn whole_layout(&mut self, expected: u64) -> Result<Reply, Error<E>> {
        let bytes = std::mem::take(&mut self.layout);
        let (place, found) = (self.place, bytes.len() as u64);
        if found == expected {
            return Ok(Reply::Layout(bytes));
        }
        let defect = ReplyDefect::LayoutBytes { expected, found };
        Err(Failure::Reply { place, defect }.into())
    }

    fn misfit(&mut self) {
        let (place, defect) = (self.place, ReplyDefect::OtherCall);
        self.state = State::Over(Err(Failure::Reply { place, defect }.into()));
    }

    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    pub fn has_failed(&self) -> bool {
        matches!(self.state, State::Over(Err(_)))
    }

    fn is_of_layout(&self) -> bool {
        matches!(self.call, Call::Layout { .. })
    }

    /// What the fetch of a layout took; nothing for other calls.
    pub fn layout_took(&self) -> Duration {
        self.layout_took
    }

    /// Bytes of keys and queries sent, once for each time that the server was busy.
    pub fn sent_bytes(&self) -> u64 {
        self.call.sent_bytes() * u64::from(self.retries + 1)
    }

    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// What it ended with; `None` before.
    pub fn into_outcome(self) -> Option<Result<Reply, Error<E>>> {
        match self.state {
            State::Over(outcome) => Some(outcome),
            _ => None,
        }
    }
}

/// How long to wait before a busy server is asked again: between one and two times its hint, doubled
/// with each retry. `random` spreads many clients that were refused together.
pub fn pause(hint: Duration, retries: u32, random: u64) -> Duration {
    let base = hint.clamp(RETRY_MIN, RETRY_MAX) * (1 << retries.min(4));
    let fraction = (random >> 11) as f64 / (1u64 << 53) as f64;
    base.mul_f64(1.0 + fraction)
}

/// A connection that is lost later than this was lost under the call.
pub const RECONNECT_WITHIN: Duration = Duration::from_secs(1);
const RETRY_MIN: Duration = Duration::from_millis(1);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// A server that sends a layout slower than this is given up.
const LAYOUT_BYTES_PER_S_MIN: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// A call refused at 100 ms by a busy server and made again at 150 ms.
    fn asked_again(patience: &Patience) -> Exchange<&'static str> {
        let mut exchange = Exchange::new(Place::Left, Call::TableInfo { version: None });
        assert!(matches!(exchange.poll(ms(0), CallId(1), patience), Want::Send(_)));
        let fault = CallFault::Busy { retry_after: ms(50) };
        let refused = CallError { fault, error: "full" };
        exchange.received(ms(100), Err(refused), patience, || 0);
        assert!(
            matches!(exchange.poll(ms(100), CallId(2), patience), Want::Wait(at) if at == ms(150))
        );
        assert!(matches!(exchange.poll(ms(150), CallId(2), patience), Want::Send(_)));
        exchange
    }

    #[test]
    fn what_runs_out_of_time_at_a_busy_server_fails_as_busy() {
        let patience = Patience { call_max: ms(1000), started: ms(0), deadline: ms(300) };
        let mut exchange = asked_again(&patience);
        assert!(
            matches!(exchange.poll(ms(150), CallId(3), &patience), Want::Wait(at) if at == ms(300))
        );
        assert!(matches!(exchange.poll(ms(300), CallId(3), &patience), Want::Nothing));
        let outcome = exchange.into_outcome().unwrap();
        assert!(matches!(
            outcome,
            Err(Error::Call { fault: CallFault::Busy { .. }, error: "full", .. })
        ));
    }

    #[test]
    fn a_server_that_falls_silent_after_it_was_busy_is_late() {
        let patience = Patience { call_max: ms(200), started: ms(0), deadline: ms(9000) };
        let mut exchange = asked_again(&patience);
        assert!(matches!(exchange.poll(ms(350), CallId(3), &patience), Want::Nothing));
        let outcome = exchange.into_outcome().unwrap();
        let expected = ms(200);
        assert!(
            matches!(outcome, Err(Error::Failure(Failure::Timeout { after, .. })) if after == expected)
        );
    }
}
