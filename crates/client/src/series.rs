//! Operations that one machine makes one after the other, each with time of its own.

use std::time::Duration;

use super::{CallError, CallId, Machine, Outcome, Protocol, Step, Stepped};

/// What a client does in several operations, each of which decides the next.
pub trait Series<E>: Send {
    /// What it asks.
    type Protocol: Protocol;
    /// One of the operations.
    type Part: Machine<E, Protocol = Self::Protocol>;
    /// What comes of all of them.
    type Output;

    /// Goes on: with nothing at first and after a pause, else with what came of the last part.
    fn next(
        &mut self,
        ended: Option<PartOutcome<Self::Part, E>>,
    ) -> Then<Self::Part, Outcome<Self::Protocol, Self::Output, E>>;
}

/// What comes of the machine `M`.
pub type PartOutcome<M, E> = Outcome<<M as Machine<E>>::Protocol, <M as Machine<E>>::Output, E>;

/// What a series wants next.
#[allow(clippy::exhaustive_enums, reason = "every series' parts are run alike")]
pub enum Then<M, T> {
    /// This operation.
    Part(M),
    /// To be asked again once the client's [`Bell`](super::Bell) has rung.
    Pause,
    /// Nothing more.
    Done(T),
}

/// The machine of a series. A part begins in the poll that ends the one before or a pause: polls that end a part
/// which has computed say so ([`Machine::computes`]), and so do all after a pause.
pub struct InTurn<S: Series<E>, E> {
    series: S,
    part: Option<S::Part>,
    is_over: bool,
    /// Calls of earlier parts have numbers up to this one: a part's own are counted from there, so that no part
    /// is given what another one waited for.
    before: u64,
    last: u64,
    /// When all of it ends, where that is said.
    end: Option<Duration>,
}

impl<S: Series<E>, E> InTurn<S, E> {
    /// Of this series, from its beginning.
    pub fn new(series: S) -> Self {
        Self { series, part: None, is_over: false, before: 0, last: 0, end: None }
    }

    /// The number of a call as the part that made it knows it; none for one of an earlier part.
    fn own(&self, CallId(id): CallId) -> Option<CallId> {
        (id > self.before).then(|| CallId(id - self.before))
    }
}

impl<S: Series<E>, E> Machine<E> for InTurn<S, E> {
    type Protocol = S::Protocol;
    type Output = S::Output;

    fn poll(&mut self, now: Duration) -> Stepped<S::Protocol, S::Output, E> {
        loop {
            if self.is_over {
                return Step::Wait { until: Duration::MAX };
            }
            let ended = match &mut self.part {
                None => None,
                Some(part) => match part.poll(now) {
                    Step::Send { id: CallId(id), place, server, call } => {
                        let id = self.before + id;
                        self.last = self.last.max(id);
                        return Step::Send { id: CallId(id), place, server, call };
                    }
                    Step::Wait { until } => return Step::Wait { until },
                    Step::Done(outcome) => Some(outcome),
                },
            };
            (self.part, self.before) = (None, self.last);
            match self.series.next(ended) {
                Then::Part(mut part) => {
                    if let Some(end) = self.end {
                        part.end_by(end);
                    }
                    self.part = Some(part);
                }
                Then::Pause => return Step::Wait { until: Duration::MAX },
                Then::Done(outcome) => {
                    self.is_over = true;
                    return Step::Done(outcome);
                }
            }
        }
    }

    fn received(
        &mut self,
        id: CallId,
        now: Duration,
        outcome: Result<<S::Protocol as Protocol>::Reply, CallError<E>>,
    ) {
        let own = self.own(id);
        if let (Some(part), Some(id)) = (&mut self.part, own) {
            part.received(id, now, outcome);
        }
    }

    fn awaits(&self, id: CallId) -> bool {
        let own = self.own(id);
        self.part.as_ref().zip(own).is_some_and(|(part, id)| part.awaits(id))
    }

    fn end_by(&mut self, end: Duration) {
        self.end = Some(end);
    }

    fn computes(&self) -> bool {
        !self.is_over && self.part.as_ref().is_none_or(Machine::computes)
    }
}
