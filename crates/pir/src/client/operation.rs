//! An operation of a client: asks within its session, and once more within a new one where what the
//! servers hold has changed.

use std::sync::Arc;
use std::time::Duration;

use super::exchange::Patience;
use super::run::{Ids, Run};
use super::shared::{Ask, Bell, Renewal, Scheme, Shared, Timed, Turn};
use super::{CallError, CallFault, CallId, Error, Failure, Machine, Reply, Step};

/// See the module.
pub(super) struct Operation<S: Scheme, A: Ask<S>, E> {
    shared: Arc<Shared<S>>,
    ask: A,
    state: State<S, A, E>,
    started: Option<Duration>,
    /// The deadline is put off by what a layout took.
    put_off: Duration,
    is_second: bool,
    random: Random,
    ids: Ids,
}

enum State<S: Scheme, A: Ask<S>, E> {
    /// To ask within this session.
    Begin(Arc<S::Session>),
    Asking(Arc<S::Session>, Run<A::Script, E>),
    /// To come to another session than this one.
    Renew(Arc<S::Session>),
    Opening(Turn<S>, Run<S::Opening, E>),
    Over,
}

impl<S: Scheme, A: Ask<S>, E> Operation<S, A, E> {
    pub fn new(shared: &Arc<Shared<S>>, ask: A, random: u64) -> Self {
        Self {
            ask,
            state: State::Begin(shared.session()),
            shared: Arc::clone(shared),
            started: None,
            put_off: Duration::ZERO,
            is_second: false,
            random: Random(random),
            ids: Ids::default(),
        }
    }

    fn patience(&self, started: Duration) -> Patience {
        let (call_max, operation_max) = self.shared.scheme.limits();
        Patience { call_max, started, deadline: started + operation_max + self.put_off }
    }

    /// Whether what ended the first try may not end a second.
    fn is_stale(&self, error: &Error<E>) -> bool {
        match error {
            _ if self.is_second => false,
            Error::Call { fault, .. } => matches!(fault, CallFault::Changed { .. }),
            Error::Failure(failure) => self.ask.is_stale(failure),
        }
    }
}

impl<S: Scheme, A: Ask<S>, E: Send> Machine<E> for Operation<S, A, E> {
    type Output = A::Output;

    fn poll(&mut self, now: Duration) -> Step<Result<A::Output, Error<E>>> {
        let started = *self.started.get_or_insert(now);
        let patience = self.patience(started);
        loop {
            match std::mem::replace(&mut self.state, State::Over) {
                State::Begin(session) => match self.ask.script(&session, self.random.next()) {
                    Ok(script) => {
                        let run = Run::new(script, self.patience(started));
                        self.state = State::Asking(session, run);
                    }
                    Err(failure) => {
                        let error = failure.into();
                        if !self.is_stale(&error) {
                            return Step::Done(Err(error));
                        }
                        self.state = State::Renew(session);
                    }
                },
                State::Asking(session, mut run) => match run.poll(now, &mut self.ids) {
                    Step::Done(Err(error)) if self.is_stale(&error) => {
                        self.state = State::Renew(session);
                    }
                    Step::Done(outcome) => {
                        return Step::Done(outcome.map(|mut output| {
                            output.took(now.saturating_sub(started));
                            output
                        }));
                    }
                    step => {
                        self.state = State::Asking(session, run);
                        return step.undone();
                    }
                },
                State::Renew(stale) => match self.shared.renew(&stale) {
                    Renewal::Made(session) => {
                        self.is_second = true;
                        self.state = State::Begin(session);
                    }
                    Renewal::Turn(turn) => {
                        let run = Run::new(self.shared.scheme.opening(), patience);
                        self.state = State::Opening(turn, run);
                    }
                    Renewal::Wait if now >= patience.deadline => {
                        let after = now - started;
                        let place = self.shared.scheme.first();
                        return Step::Done(Err(Failure::Timeout { place, after }.into()));
                    }
                    Renewal::Wait => {
                        self.state = State::Renew(stale);
                        return Step::Wait { until: patience.deadline };
                    }
                },
                State::Opening(turn, mut run) => match run.poll(now, &mut self.ids) {
                    Step::Done(Ok(session)) => {
                        self.put_off += run.patience.deadline - patience.deadline;
                        self.is_second = true;
                        self.state = State::Begin(turn.end(session));
                    }
                    Step::Done(Err(error)) => return Step::Done(Err(error)),
                    step => {
                        self.state = State::Opening(turn, run);
                        return step.undone();
                    }
                },
                State::Over => return Step::Wait { until: Duration::MAX },
            }
        }
    }

    fn received(&mut self, id: CallId, now: Duration, outcome: Result<Reply, CallError<E>>) {
        let random = || self.random.next();
        match &mut self.state {
            State::Asking(_, run) => run.received(now, id, outcome, random),
            State::Opening(_, run) => run.received(now, id, outcome, random),
            State::Begin(_) | State::Renew(_) | State::Over => {}
        }
    }

    fn computes(&self) -> bool {
        match &self.state {
            State::Begin(session) => self.ask.computes(session),
            State::Asking(_, run) => run.computes(),
            State::Opening(_, run) => run.computes(),
            State::Renew(_) | State::Over => false,
        }
    }
}

/// The first session of a client, whole calls of which have a limit and all together none.
pub(super) struct Opening<S: Scheme, T, E> {
    scheme: Option<S>,
    bell: Bell,
    run: Option<Run<S::Opening, E>>,
    make: fn(Arc<Shared<S>>) -> T,
    random: Random,
    ids: Ids,
}

impl<S: Scheme, T, E> Opening<S, T, E> {
    pub fn new(scheme: S, bell: Bell, random: u64, make: fn(Arc<Shared<S>>) -> T) -> Self {
        let (random, ids) = (Random(random), Ids::default());
        Self { scheme: Some(scheme), bell, run: None, make, random, ids }
    }
}

impl<S: Scheme, T, E: Send> Machine<E> for Opening<S, T, E> {
    type Output = T;

    fn poll(&mut self, now: Duration) -> Step<Result<T, Error<E>>> {
        let Some(scheme) = &self.scheme else { return Step::Wait { until: Duration::MAX } };
        let run = self.run.get_or_insert_with(|| {
            let (call_max, operation_max) = scheme.limits();
            let deadline = now + operation_max.max(call_max);
            Run::new(scheme.opening(), Patience { call_max, started: now, deadline })
        });
        match run.poll(now, &mut self.ids) {
            Step::Done(Ok(session)) => {
                let Some(scheme) = self.scheme.take() else { unreachable!("it was there") };
                let shared = Shared::new(scheme, session, self.bell.clone());
                Step::Done(Ok((self.make)(shared)))
            }
            Step::Done(Err(error)) => Step::Done(Err(error)),
            step => step.undone(),
        }
    }

    fn received(&mut self, id: CallId, now: Duration, outcome: Result<Reply, CallError<E>>) {
        if let Some(run) = &mut self.run {
            run.received(now, id, outcome, || self.random.next());
        }
    }

    fn computes(&self) -> bool {
        self.run.as_ref().is_some_and(Run::computes)
    }
}

/// SplitMix64: numbers that nothing secret hangs on.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
