//! One call to one server, made again while the server is busy, once where a connection was lost.

use std::time::Duration;

use super::{CallError, CallFault, CallId, Error, Outcome, OwnTime, Place, Protocol};

/// How long a client waits for its servers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For one call that has no time of its own.
    pub call_max: Duration,
    /// When the operation began.
    pub started: Duration,
    /// When it ends.
    pub deadline: Duration,
    /// Whether a call that was begun before the end may take all of its time.
    pub may_overrun: bool,
    /// Whether nothing puts the end off: no call has a time of its own.
    pub is_final: bool,
    /// How long a busy server is asked again, where that is less.
    pub busy_max: Duration,
}

impl Patience {
    /// Of an operation that ends then, come what may.
    pub fn until(started: Duration, deadline: Duration) -> Self {
        let call_max = deadline.saturating_sub(started);
        let (may_overrun, is_final, busy_max) = (false, true, Duration::MAX);
        Self { call_max, started, deadline, may_overrun, is_final, busy_max }
    }
}

/// A call on its way.
pub(super) struct Exchange<P: Protocol, E> {
    pub place: Place,
    call: P::Call,
    state: State<P, E>,
    retries: u32,
    /// When it was first sent.
    began: Option<Duration>,
    /// The last refusal by a busy server. An operation fails with it when its time ends while the call is made again:
    /// a timeout would say that the server is silent.
    busy: Option<CallError<E>>,
    may_reconnect: bool,
    /// What has come of a reply in several parts.
    gathered: Vec<u8>,
    /// From the call to its end, where it has a time of its own.
    own_took: Duration,
}

enum State<P: Protocol, E> {
    /// To be sent.
    Due,
    /// Sent, and last heard of.
    Sent { id: CallId, at: Duration, heard: Duration },
    /// The server was busy.
    Paused { until: Duration },
    /// Replied, or given up.
    Over(Outcome<P, P::Reply, E>),
}

/// What an exchange wants now.
pub(super) enum Want<C> {
    /// Its call made.
    Send(C),
    /// Nothing before this time, unless a reply comes.
    Wait(Duration),
    /// Nothing any more.
    Nothing,
}

impl<P: Protocol, E> Exchange<P, E> {
    pub fn new(place: Place, call: P::Call) -> Self {
        let (state, gathered) = (State::Due, Vec::new());
        let (may_reconnect, own_took) = (P::is_repeatable(&call), Duration::ZERO);
        Self {
            place,
            call,
            state,
            retries: 0,
            began: None,
            busy: None,
            may_reconnect,
            gathered,
            own_took,
        }
    }

    pub fn poll(&mut self, now: Duration, id: CallId, patience: &Patience) -> Want<P::Call> {
        match self.state {
            State::Paused { until } if now < until => return Want::Wait(until),
            State::Sent { heard, .. } => {
                let until = self.limit(heard, patience);
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
        let may_begin = patience.may_overrun && matches!(self.state, State::Due);
        if now >= self.end(patience) && !may_begin {
            self.end_late(now, patience);
            return Want::Nothing;
        }
        self.began.get_or_insert(now);
        self.state = State::Sent { id, at: now, heard: now };
        Want::Send(P::at(&self.call, now.saturating_sub(patience.started)))
    }

    /// When a call that was sent is given up.
    fn limit(&self, heard: Duration, patience: &Patience) -> Duration {
        match self.own_time(patience) {
            Some(OwnTime { next, .. }) => heard.saturating_add(next).min(self.end(patience)),
            None if patience.may_overrun => heard.saturating_add(patience.call_max),
            None => heard.saturating_add(patience.call_max).min(patience.deadline),
        }
    }

    /// When it is not made again any more.
    fn end(&self, patience: &Patience) -> Duration {
        match (self.own_time(patience), self.began) {
            (Some(OwnTime { whole, .. }), Some(began)) => began.saturating_add(whole),
            _ => patience.deadline,
        }
    }

    fn own_time(&self, patience: &Patience) -> Option<OwnTime> {
        (!patience.is_final).then(|| P::own_time(&self.call, patience.call_max)).flatten()
    }

    /// Against a deadline it is the whole operation that took too long.
    fn end_late(&mut self, at: Duration, patience: &Patience) {
        match self.busy.take() {
            Some(CallError { fault, error }) => {
                let place = self.place;
                self.state = State::Over(Err(Error::Call { place, fault, error }));
            }
            None => self.time_out(at.saturating_sub(patience.started)),
        }
    }

    fn time_out(&mut self, after: Duration) {
        let place = self.place;
        self.state = State::Over(Err(Error::Failure(P::timed_out(place, after))));
    }

    pub fn is_of(&self, call: CallId) -> bool {
        matches!(self.state, State::Sent { id, .. } if id == call)
    }

    pub fn received(
        &mut self,
        now: Duration,
        outcome: Result<P::Reply, CallError<E>>,
        patience: &Patience,
        random: impl FnOnce() -> u64,
    ) {
        let State::Sent { id, at, .. } = self.state else { return };
        if self.own_time(patience).is_some() {
            self.own_took = now.saturating_sub(self.began.unwrap_or(at));
        }
        let over = match outcome {
            Ok(reply) => match P::gather(&self.call, self.place, &mut self.gathered, reply) {
                Some(reply) => reply.map_err(Error::Failure),
                None => {
                    self.state = State::Sent { id, at, heard: now };
                    return;
                }
            },
            Err(CallError { fault, error }) => {
                match fault {
                    CallFault::Busy { retry_after } if P::is_repeatable(&self.call) => {
                        let until = now + pause(retry_after, self.retries, random());
                        let began = self.began.unwrap_or(now);
                        let busy_end = began.saturating_add(patience.busy_max);
                        if until < self.end(patience).min(busy_end) {
                            self.busy = Some(CallError { fault, error });
                            self.retries += 1;
                            self.state = State::Paused { until };
                            return;
                        }
                    }
                    // The server may have been restarted since the last call, which shows only in
                    // the next one: then it fails at once.
                    CallFault::Unreachable
                        if self.may_reconnect
                            && self.gathered.is_empty()
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

    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    pub fn has_failed(&self) -> bool {
        matches!(self.state, State::Over(Err(_)))
    }

    /// What a call took that has a time of its own; nothing for others.
    pub fn own_took(&self) -> Duration {
        self.own_took
    }

    /// Bytes of keys and queries sent, once for each time that the server was busy: but for a call with a time of its
    /// own, which a busy server refuses at its first bytes.
    pub fn sent_bytes(&self) -> u64 {
        let is_long = P::own_time(&self.call, Duration::ZERO).is_some();
        let times = if is_long { 1 } else { u64::from(self.retries) + 1 };
        P::sent_bytes(&self.call) * times
    }

    pub fn retries(&self) -> u32 {
        self.retries
    }

    /// What it ended with; `None` before.
    pub fn into_outcome(self) -> Option<Outcome<P, P::Reply, E>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A scheme whose one call says nothing.
    #[derive(Debug)]
    struct Silent;

    /// A server that was late, by so much.
    #[derive(Debug)]
    struct Late(Duration);

    impl Protocol for Silent {
        type Call = ();
        type Reply = ();
        type Failure = Late;

        fn timed_out(_: Place, after: Duration) -> Late {
            Late(after)
        }
    }

    fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    fn patience(deadline: u64) -> Patience {
        let deadline = ms(deadline);
        let (call_max, busy_max) = (deadline, Duration::MAX);
        Patience {
            call_max,
            started: ms(0),
            deadline,
            may_overrun: false,
            is_final: false,
            busy_max,
        }
    }

    /// A call refused at 100 ms by a busy server and made again at 150 ms.
    fn asked_again(patience: &Patience) -> Exchange<Silent, &'static str> {
        let mut exchange = Exchange::new(Place::Left, ());
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
        let patience = Patience { call_max: ms(1000), ..patience(300) };
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
    fn a_server_that_is_busy_for_too_long_is_not_asked_again() {
        let patience = Patience { busy_max: ms(220), ..patience(9000) };
        let mut exchange = asked_again(&patience);
        let fault = CallFault::Busy { retry_after: ms(40) };
        exchange.received(ms(200), Err(CallError { fault, error: "full" }), &patience, || 0);
        let outcome = exchange.into_outcome();
        assert!(matches!(outcome, Some(Err(Error::Call { fault: CallFault::Busy { .. }, .. }))));
    }

    #[test]
    fn a_call_that_may_overrun_has_all_of_its_time() {
        let patience = Patience { call_max: ms(200), may_overrun: true, ..patience(300) };
        let mut exchange = asked_again(&patience);
        assert!(
            matches!(exchange.poll(ms(300), CallId(3), &patience), Want::Wait(at) if at == ms(350))
        );
        exchange.received(ms(340), Ok(()), &patience, || 0);
        assert!(matches!(exchange.into_outcome(), Some(Ok(()))));
        // Also where it is made once, whatever time there is.
        let mut once = Exchange::<Silent, &'static str>::new(Place::Left, ());
        let patience = Patience { deadline: ms(0), ..patience };
        assert!(matches!(once.poll(ms(0), CallId(1), &patience), Want::Send(())));
    }

    #[test]
    fn a_server_that_falls_silent_after_it_was_busy_is_late() {
        let patience = Patience { call_max: ms(200), ..patience(9000) };
        let mut exchange = asked_again(&patience);
        assert!(matches!(exchange.poll(ms(350), CallId(3), &patience), Want::Nothing));
        let outcome = exchange.into_outcome().unwrap();
        let expected = ms(200);
        assert!(matches!(outcome, Err(Error::Failure(Late(after))) if after == expected));
    }
}
