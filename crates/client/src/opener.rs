//! How a client comes to a session: asks the servers of one route what they hold, and those of the next where
//! they cannot be asked, or do not fit each other.

use std::sync::Arc;
use std::time::Duration;

use super::exchange::Patience;
use super::route::{Route, Travel};
use super::run::{Ids, Run, States};
use super::shared::Connect;
use super::{CallError, CallFault, CallId, Error, Protocol, Random, Step, Stepped};

/// See the module.
pub(super) struct Opener<S: Connect, E> {
    /// What the client had before.
    known: Option<Arc<S::Session>>,
    route: Route,
    /// Nothing is asked before.
    rests_until: Duration,
    /// What calls of earlier routes took that have a time of their own.
    put_off: Duration,
    run: Option<Run<S::Opening, E>>,
}

/// What an opening came to.
pub(super) struct Opened<T> {
    pub session: T,
    pub route: Route,
    /// What the servers said of their states.
    pub states: States,
    /// What its calls took that have a time of their own.
    pub put_off: Duration,
}

impl<S: Connect, E> Opener<S, E> {
    /// Asks the servers of `route`, at `rests_until` or later.
    pub fn new(known: Option<Arc<S::Session>>, route: Route, rests_until: Duration) -> Self {
        Self { known, route, rests_until, put_off: Duration::ZERO, run: None }
    }

    /// Without `travel`, the servers of other routes are not asked.
    pub fn poll(
        &mut self,
        now: Duration,
        scheme: &S,
        patience: Patience,
        ids: &mut Ids,
        mut travel: Option<&mut Travel>,
        random: &mut Random,
    ) -> Stepped<S::Protocol, Opened<S::Session>, E> {
        loop {
            let Some(run) = &mut self.run else {
                if now < self.rests_until {
                    return Step::Wait { until: self.rests_until };
                }
                let opening = scheme.opening(self.known.as_ref());
                let deadline = patience.deadline.saturating_add(self.put_off);
                self.run = Some(Run::new(opening, self.route, Patience { deadline, ..patience }));
                continue;
            };
            match run.poll(now, ids) {
                Step::Done(Ok(session)) => {
                    let put_off = run.patience.deadline.saturating_sub(patience.deadline);
                    let (route, states) = (self.route, run.heard);
                    return Step::Done(Ok(Opened { session, route, states, put_off }));
                }
                Step::Done(Err(error)) => {
                    self.put_off = run.patience.deadline.saturating_sub(patience.deadline);
                    let next = travel.as_deref_mut();
                    let next =
                        next.and_then(|travel| self.next_route(scheme, travel, &error, random));
                    let Some((route, pause)) = next else {
                        return Step::Done(Err(error));
                    };
                    if now + pause >= patience.deadline.saturating_add(self.put_off) {
                        return Step::Done(Err(error));
                    }
                    (self.route, self.rests_until, self.run) = (route, now + pause, None);
                }
                step => return step.undone(),
            }
        }
    }

    /// Where to go on after an error, and after which pause.
    fn next_route(
        &self,
        scheme: &S,
        travel: &mut Travel,
        error: &Error<<S::Protocol as Protocol>::Failure, E>,
        random: &mut Random,
    ) -> Option<(Route, Duration)> {
        let is_misfit = match error {
            Error::Call { fault: CallFault::Changed { .. }, .. } => true,
            Error::Call { place, fault, .. } => {
                return travel.leave(self.route, *place, fault, random.number());
            }
            Error::Failure(failure) => scheme.is_misfit(failure),
        };
        is_misfit.then(|| travel.step(self.route, random.number())).flatten()
    }

    pub fn received(
        &mut self,
        now: Duration,
        id: CallId,
        outcome: Result<<S::Protocol as Protocol>::Reply, CallError<E>>,
        random: impl FnOnce() -> u64,
    ) {
        if let Some(run) = &mut self.run {
            run.received(now, id, outcome, random);
        }
    }

    pub fn awaits(&self, id: CallId) -> bool {
        self.run.as_ref().is_some_and(|run| run.awaits(id))
    }

    pub fn computes(&self) -> bool {
        self.run.as_ref().is_some_and(Run::computes)
    }
}
