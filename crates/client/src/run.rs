//! Rounds of calls: each round's calls are made at once, and what they bring decides the next.

use std::time::Duration;

use super::exchange::{Exchange, Patience, Want};
use super::route::Route;
use super::{CallError, CallFault, CallId, Error, Place, Protocol, Step, Stepped};

/// What a client does in rounds: asks, and makes of the replies what it asks next.
pub trait Script: Send {
    /// What it asks.
    type Protocol: Protocol;
    /// What comes of it.
    type Output;

    /// Goes on: with no replies at first, then with those to its last calls, in their order.
    ///
    /// # Errors
    /// The scheme's failure, which ends it.
    fn next(
        &mut self,
        replies: Vec<<Self::Protocol as Protocol>::Reply>,
        tally: Tally,
    ) -> RoundOf<Self::Protocol, Self::Output>;

    /// Whether a failed call is a reason to go on, with a call of [`next`](Self::next) without
    /// replies.
    ///
    /// # Errors
    /// The scheme's failure, which ends it in the place of the call's.
    fn failed(&mut self, _: &CallFault) -> Result<Verdict, <Self::Protocol as Protocol>::Failure> {
        Ok(Verdict::End)
    }

    /// Whether the next step computes for milliseconds.
    fn computes(&self) -> bool {
        false
    }
}

/// What a script of the protocol `P` wants next, or why it ends.
pub type RoundOf<P, T> = Result<Round<<P as Protocol>::Call, T>, <P as Protocol>::Failure>;

/// What a script wants next; `C` is its protocol's call.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "every script's rounds are run alike")]
pub enum Round<C, T> {
    /// These calls.
    Ask(Vec<(Place, C)>),
    /// To be asked again once what machines share has changed: another one waits for this server, for as long as
    /// is given, which is not the operation's time; without, for what is left of that.
    Pause(Place, Option<Duration>),
    /// Nothing more.
    Done(T),
}

/// What a script makes of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a script says one of both")]
pub enum Verdict {
    /// The end of it.
    End,
    /// It goes on otherwise.
    GoOn,
}

/// What the calls of a script cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Bytes of keys and queries sent, once for each time that a server was busy.
    pub sent_bytes: u64,
    /// How often a busy server was asked again.
    pub retries: u32,
    /// Since the operation began.
    pub elapsed: Duration,
}

/// A script on its way.
pub(super) struct Run<S: Script, E> {
    script: S,
    exchanges: Vec<Exchange<S::Protocol, E>>,
    tally: Tally,
    /// Since when it waits for another operation.
    paused: Option<Duration>,
    /// The servers that are asked.
    route: Route,
    pub patience: Patience,
    /// What each server first said of its state.
    pub heard: States,
}

/// What changes with the newest of what servers hold, by their places.
pub(super) type States = [Option<u64>; Place::ALL.len()];

impl<S: Script, E> Run<S, E> {
    pub fn new(script: S, route: Route, patience: Patience) -> Self {
        let (exchanges, tally) = (Vec::new(), Tally::default());
        let heard = States::default();
        Self { script, exchanges, tally, paused: None, route, patience, heard }
    }

    pub fn poll(&mut self, now: Duration, ids: &mut Ids) -> Stepped<S::Protocol, S::Output, E> {
        loop {
            let mut until = None;
            for exchange in &mut self.exchanges {
                let id = ids.next();
                match exchange.poll(now, id, &self.patience) {
                    Want::Send(call) => {
                        let place = exchange.place;
                        let server = self.route.at(place);
                        return Step::Send { id, place, server, call };
                    }
                    Want::Wait(at) => {
                        until = Some(until.map_or(at, |until: Duration| until.min(at)))
                    }
                    Want::Nothing => {}
                }
            }
            if let Some(failed) = self.exchanges.iter().position(Exchange::has_failed) {
                self.count();
                self.put_off();
                let outcome = self.exchanges.swap_remove(failed).into_outcome();
                let Some(Err(error)) = outcome else { unreachable!("it has failed") };
                self.exchanges.clear();
                let verdict = match &error {
                    Error::Call { fault, .. } => self.script.failed(fault),
                    Error::Failure(_) => Ok(Verdict::End),
                };
                match verdict {
                    Ok(Verdict::GoOn) => continue,
                    Ok(Verdict::End) => return Step::Done(Err(error)),
                    Err(failure) => return Step::Done(Err(Error::Failure(failure))),
                }
            }
            if let Some(until) = until {
                return Step::Wait { until };
            }
            self.tally.elapsed = now.saturating_sub(self.patience.started);
            let round = self.turn();
            if let Some(since) = self.paused
                && !matches!(round, Ok(Round::Pause(_, Some(_))))
            {
                self.paused = None;
                self.patience.deadline += now.saturating_sub(since);
            }
            match round {
                Ok(Round::Ask(calls)) => {
                    let calls = calls.into_iter();
                    self.exchanges = calls.map(|(at, call)| Exchange::new(at, call)).collect();
                }
                Ok(Round::Pause(place, within)) => {
                    let (since, until) = match within.filter(|_| !self.patience.is_final) {
                        None => (self.patience.started, self.patience.deadline),
                        Some(within) => {
                            let since = *self.paused.get_or_insert(now);
                            (since, since.saturating_add(within))
                        }
                    };
                    if now < until {
                        return Step::Wait { until };
                    }
                    let late = S::Protocol::timed_out(place, now.saturating_sub(since));
                    return Step::Done(Err(Error::Failure(late)));
                }
                Ok(Round::Done(output)) => return Step::Done(Ok(output)),
                Err(failure) => return Step::Done(Err(Error::Failure(failure))),
            }
        }
    }

    /// Hands the script the replies of the round that is over.
    fn turn(&mut self) -> RoundOf<S::Protocol, S::Output> {
        self.count();
        self.put_off();
        let mut replies = Vec::with_capacity(self.exchanges.len());
        for exchange in self.exchanges.drain(..) {
            let place = exchange.place;
            let Some(Ok(reply)) = exchange.into_outcome() else { continue };
            let heard = &mut self.heard[place as usize];
            *heard = heard.or(S::Protocol::state(&reply));
            replies.push(reply);
        }
        self.script.next(replies, self.tally)
    }

    /// What has a time of its own does not take the operation's.
    fn put_off(&mut self) {
        let own = self.exchanges.iter().map(Exchange::own_took);
        self.patience.deadline += own.max().unwrap_or_default();
    }

    fn count(&mut self) {
        for exchange in &self.exchanges {
            self.tally.sent_bytes += exchange.sent_bytes();
            self.tally.retries += exchange.retries();
        }
    }

    pub fn received(
        &mut self,
        now: Duration,
        id: CallId,
        outcome: Result<<S::Protocol as Protocol>::Reply, CallError<E>>,
        random: impl FnOnce() -> u64,
    ) {
        if let Some(exchange) = self.exchanges.iter_mut().find(|exchange| exchange.is_of(id)) {
            exchange.received(now, outcome, &self.patience, random);
        }
    }

    /// How often busy servers were asked again.
    pub fn retries(&self) -> u32 {
        self.tally.retries
    }

    pub fn awaits(&self, id: CallId) -> bool {
        self.exchanges.iter().any(|exchange| exchange.is_of(id))
    }

    pub fn computes(&self) -> bool {
        self.exchanges.iter().all(Exchange::is_over) && self.script.computes()
    }
}

/// Gives every call a number of its own.
#[derive(Default)]
pub(super) struct Ids(u64);

impl Ids {
    fn next(&mut self) -> CallId {
        self.0 += 1;
        CallId(self.0)
    }
}
