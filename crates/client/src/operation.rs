//! An operation of a client: asks within its session, once more within a new one where what the servers hold has
//! changed, and within one with other servers where these drain or are out of reach.

use std::sync::Arc;
use std::time::Duration;

use super::exchange::Patience;
use super::opener::{Opened, Opener};
use super::route::{Route, Travel};
use super::run::{Ids, Run};
use super::shared::{Ask, Bell, Cause, Connect, Renewal, Shared, Turn};
use super::{
    CallError, CallFault, CallId, Error, Limits, Machine, Protocol, Random, Step, Stepped, Timed,
    Tried,
};

/// An error of an operation.
type Failed<S, E> = Error<<<S as Connect>::Protocol as Protocol>::Failure, E>;

/// See the module.
pub struct Operation<S: Connect, A: Ask<S>, E> {
    shared: Arc<Shared<S>>,
    ask: A,
    state: State<S, A, E>,
    started: Option<Duration>,
    /// When it ends, where whoever asks says so.
    end: Option<Duration>,
    /// The deadline is put off by what calls took that have a time of their own.
    put_off: Duration,
    /// Whether the session has been made anew for what has changed.
    is_second: bool,
    /// Whether it has asked, or seen that there is nothing newer.
    has_begun: bool,
    travel: Travel,
    /// How often it was made anew within the same session.
    anew: u32,
    /// How often busy servers were asked again before what failed.
    retries: u32,
    random: Random,
    ids: Ids,
}

enum State<S: Connect, A: Ask<S>, E> {
    /// To ask within this session.
    Begin(Arc<S::Session>, Route),
    /// To ask within this session, from a time on.
    Resting(Arc<S::Session>, Route, Duration),
    Asking(Arc<S::Session>, Route, Run<A::Script, E>),
    /// To come to another session than this one, with the servers of a route, which may be asked from a time on.
    Renew(Arc<S::Session>, Route, Duration),
    Opening(Turn<S>, Opener<S, E>),
    /// To see what there is that is newer than this session, which does where that fails.
    Refreshing(Turn<S>, Opener<S, E>, Arc<S::Session>, Route),
    Over,
}

impl<S: Connect, A: Ask<S>, E> Operation<S, A, E> {
    /// Asks `ask` within the session that there is. `random` spreads retries.
    pub fn new(shared: &Arc<Shared<S>>, ask: A, random: u64) -> Self {
        let (session, route) = shared.routed();
        Self {
            ask,
            state: State::Begin(session, route),
            shared: Arc::clone(shared),
            started: None,
            end: None,
            put_off: Duration::ZERO,
            is_second: false,
            has_begun: false,
            travel: Travel::new(shared.scheme.servers()),
            anew: 0,
            retries: 0,
            random: Random::new(random),
            ids: Ids::default(),
        }
    }

    fn patience(&self, started: Duration) -> Patience {
        if let Some(end) = self.end {
            return Patience::until(started, end);
        }
        let limits = self.ask.limits().unwrap_or_else(|| {
            let (call, whole) = self.shared.scheme.limits();
            Limits { call, whole, may_overrun: false, busy: Duration::MAX }
        });
        let Limits { call: call_max, whole, may_overrun, busy: busy_max } = limits;
        let deadline = started.saturating_add(whole).saturating_add(self.put_off);
        Patience { call_max, started, deadline, may_overrun, is_final: false, busy_max }
    }

    /// With which servers to go on after an error, and after which pause; `None` where that is the end.
    fn next_route(&mut self, route: Route, error: &Failed<S, E>) -> Option<(Route, Duration)> {
        let is_stale = match error {
            Error::Call { fault: CallFault::Changed { .. }, .. } => true,
            Error::Call { place, fault, .. } => {
                return self.travel.leave(route, *place, fault, self.random.number());
            }
            Error::Failure(failure) => self.ask.is_stale(failure),
        };
        if !is_stale {
            return None;
        }
        match std::mem::replace(&mut self.is_second, true) {
            false => Some((route, Duration::ZERO)),
            true => self.travel.step(route, self.random.number()),
        }
    }

    /// What follows an error within a session.
    fn after(
        &mut self,
        now: Duration,
        (session, route): (Arc<S::Session>, Route),
        error: Failed<S, E>,
        started: Duration,
    ) -> Result<State<S, A, E>, Failed<S, E>> {
        if !self.ask.is_repeatable() {
            return Err(error);
        }
        let deadline = self.patience(started).deadline;
        let cause = match &error {
            Error::Call { fault, .. } => Cause::Fault(fault),
            Error::Failure(failure) => Cause::Failure(failure),
        };
        let tried = Tried { times: self.anew, elapsed: now.saturating_sub(started) };
        if let Some(pause) = self.ask.again(cause, tried, self.random.number()) {
            let from = now + pause;
            self.anew += 1;
            return match from < deadline {
                true => Ok(State::Resting(session, route, from)),
                false => Err(error),
            };
        }
        match self.next_route(route, &error) {
            Some((route, pause)) if now + pause < deadline => {
                Ok(State::Renew(session, route, now + pause))
            }
            _ => Err(error),
        }
    }
}

impl<S: Connect, A: Ask<S>, E: Send> Machine<E> for Operation<S, A, E> {
    type Protocol = S::Protocol;
    type Output = A::Output;

    fn poll(&mut self, now: Duration) -> Stepped<S::Protocol, A::Output, E> {
        let started = *self.started.get_or_insert(now);
        loop {
            // Within the loop: what put the end off a moment ago counts for what follows.
            let patience = self.patience(started);
            match std::mem::replace(&mut self.state, State::Over) {
                State::Begin(session, route) if !self.has_begun => {
                    self.has_begun = true;
                    self.state = match self.shared.refresh(now) {
                        None => State::Begin(session, route),
                        Some(turn) => {
                            let known = Some(Arc::clone(&session));
                            let opener = Opener::new(known, route, Duration::ZERO);
                            State::Refreshing(turn, opener, session, route)
                        }
                    };
                }
                State::Begin(session, route) => {
                    match self.ask.script(&session, self.random.number()) {
                        Ok(script) => {
                            let run = Run::new(script, route, self.patience(started));
                            self.state = State::Asking(session, route, run);
                        }
                        Err(failure) => {
                            let from = (session, route);
                            match self.after(now, from, Error::Failure(failure), started) {
                                Ok(state) => self.state = state,
                                Err(error) => return Step::Done(Err(error)),
                            }
                        }
                    }
                }
                State::Resting(session, route, from) if now < from => {
                    self.state = State::Resting(session, route, from);
                    return Step::Wait { until: from };
                }
                State::Resting(session, route, _) => self.state = State::Begin(session, route),
                State::Asking(session, route, mut run) => match run.poll(now, &mut self.ids) {
                    Step::Done(Ok(mut output)) => {
                        self.shared.hear(&session, run.heard);
                        let again = self.travel.made + self.anew + self.retries;
                        output.took(now.saturating_sub(started), again);
                        return Step::Done(Ok(output));
                    }
                    Step::Done(Err(error)) => {
                        self.put_off += run.patience.deadline.saturating_sub(patience.deadline);
                        self.retries += run.retries();
                        match self.after(now, (session, route), error, started) {
                            Ok(state) => self.state = state,
                            Err(error) => return Step::Done(Err(error)),
                        }
                    }
                    step => {
                        self.state = State::Asking(session, route, run);
                        return step.undone();
                    }
                },
                State::Renew(stale, route, from) => match self.shared.renew(&stale) {
                    Renewal::Made(session, route) => self.state = State::Begin(session, route),
                    Renewal::Turn(turn) => {
                        // What has changed is asked for anew, keys and all.
                        let known = (!self.is_second).then_some(stale);
                        self.state = State::Opening(turn, Opener::new(known, route, from));
                    }
                    Renewal::Wait if now >= patience.deadline => {
                        let after = now - started;
                        let place = self.shared.scheme.first();
                        let late = S::Protocol::timed_out(place, after);
                        return Step::Done(Err(Error::Failure(late)));
                    }
                    Renewal::Wait => {
                        self.state = State::Renew(stale, route, from);
                        return Step::Wait { until: patience.deadline };
                    }
                },
                State::Opening(turn, mut opener) => {
                    let (scheme, travel) = (&self.shared.scheme, &mut self.travel);
                    let (ids, random) = (&mut self.ids, &mut self.random);
                    match opener.poll(now, scheme, patience, ids, Some(travel), random) {
                        Step::Done(Ok(Opened { session, route, states, put_off })) => {
                            self.put_off += put_off;
                            self.state = State::Begin(turn.end(session, route, states), route);
                        }
                        Step::Done(Err(error)) => return Step::Done(Err(error)),
                        step => {
                            self.state = State::Opening(turn, opener);
                            return step.undone();
                        }
                    }
                }
                State::Refreshing(turn, mut opener, old, at) => {
                    let scheme = &self.shared.scheme;
                    let (ids, random) = (&mut self.ids, &mut self.random);
                    match opener.poll(now, scheme, patience, ids, None, random) {
                        Step::Done(Ok(Opened { session, route, states, put_off })) => {
                            self.put_off += put_off;
                            self.state = State::Begin(turn.end(session, route, states), route);
                        }
                        Step::Done(Err(_)) => self.state = State::Begin(old, at),
                        step => {
                            self.state = State::Refreshing(turn, opener, old, at);
                            return step.undone();
                        }
                    }
                }
                State::Over => return Step::Wait { until: Duration::MAX },
            }
        }
    }

    fn received(
        &mut self,
        id: CallId,
        now: Duration,
        outcome: Result<<S::Protocol as Protocol>::Reply, CallError<E>>,
    ) {
        let random = || self.random.number();
        match &mut self.state {
            State::Asking(_, _, run) => run.received(now, id, outcome, random),
            State::Opening(_, opener) | State::Refreshing(_, opener, ..) => {
                opener.received(now, id, outcome, random);
            }
            State::Begin(..) | State::Resting(..) | State::Renew(..) | State::Over => {}
        }
    }

    fn awaits(&self, id: CallId) -> bool {
        match &self.state {
            State::Asking(_, _, run) => run.awaits(id),
            State::Opening(_, opener) | State::Refreshing(_, opener, ..) => opener.awaits(id),
            State::Begin(..) | State::Resting(..) | State::Renew(..) | State::Over => false,
        }
    }

    fn end_by(&mut self, end: Duration) {
        self.end = Some(end);
    }

    fn computes(&self) -> bool {
        match &self.state {
            State::Begin(session, _) | State::Resting(session, ..) | State::Renew(session, ..) => {
                self.ask.computes(session)
            }
            State::Asking(_, _, run) => run.computes(),
            State::Opening(_, opener) | State::Refreshing(_, opener, ..) => opener.computes(),
            State::Over => false,
        }
    }
}

/// The first session of a client, whole calls of which have a limit and all together none.
pub struct Opening<S: Connect, T, E> {
    scheme: Option<S>,
    bell: Bell,
    opener: Opener<S, E>,
    started: Option<Duration>,
    end: Option<Duration>,
    make: fn(Arc<Shared<S>>) -> T,
    travel: Travel,
    random: Random,
    ids: Ids,
}

impl<S: Connect, T, E> Opening<S, T, E> {
    /// Opens a session of `scheme`, and makes of it what all operations of the client share. `bell` is rung for
    /// machines that wait for each other; `random` spreads retries.
    pub fn new(scheme: S, bell: Bell, random: u64, make: fn(Arc<Shared<S>>) -> T) -> Self {
        let (random, ids) = (Random::new(random), Ids::default());
        let travel = Travel::new(scheme.servers());
        let opener = Opener::new(None, Route::default(), Duration::ZERO);
        Self {
            scheme: Some(scheme),
            bell,
            opener,
            started: None,
            end: None,
            make,
            travel,
            random,
            ids,
        }
    }
}

impl<S: Connect, T, E: Send> Machine<E> for Opening<S, T, E> {
    type Protocol = S::Protocol;
    type Output = T;

    fn poll(&mut self, now: Duration) -> Stepped<S::Protocol, T, E> {
        let Some(scheme) = &self.scheme else { return Step::Wait { until: Duration::MAX } };
        let started = *self.started.get_or_insert(now);
        let patience = match self.end {
            Some(end) => Patience::until(started, end),
            None => {
                let (call_max, operation_max) = scheme.limits();
                let end = started.saturating_add(operation_max.max(call_max));
                Patience { call_max, is_final: false, ..Patience::until(started, end) }
            }
        };
        let (ids, travel, random) = (&mut self.ids, &mut self.travel, &mut self.random);
        match self.opener.poll(now, scheme, patience, ids, Some(travel), random) {
            Step::Done(Ok(Opened { session, route, states, .. })) => {
                let Some(scheme) = self.scheme.take() else { unreachable!("it was there") };
                let shared = Shared::new(scheme, session, (route, states), self.bell.clone());
                Step::Done(Ok((self.make)(shared)))
            }
            Step::Done(Err(error)) => Step::Done(Err(error)),
            step => step.undone(),
        }
    }

    fn received(
        &mut self,
        id: CallId,
        now: Duration,
        outcome: Result<<S::Protocol as Protocol>::Reply, CallError<E>>,
    ) {
        self.opener.received(now, id, outcome, || self.random.number());
    }

    fn awaits(&self, id: CallId) -> bool {
        self.opener.awaits(id)
    }

    fn end_by(&mut self, end: Duration) {
        self.end = Some(end);
    }

    fn computes(&self) -> bool {
        self.opener.computes()
    }
}
