//! What all operations of one client share: the session, and whose turn it is to renew it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::route::Route;
use super::run::{Script, States};
use super::{CallFault, Limits, Place, Protocol, Timed, Tried};

/// How a client of one scheme makes a session: what it knows of one version of what servers hold.
pub trait Connect: Send + Sync + 'static {
    /// What it asks.
    type Protocol: Protocol;
    /// What it knows.
    type Session: Send + Sync;
    /// How it comes to that.
    type Opening: Script<Protocol = Self::Protocol, Output = Self::Session>;

    /// Asks the servers what they hold. What `known` has may be taken from it, where the servers announce the
    /// same.
    fn opening(&self, known: Option<&Arc<Self::Session>>) -> Self::Opening;

    /// The place that is asked first.
    fn first(&self) -> Place;

    /// How many servers there are at each place, in the order of [`Place::ALL`]; 0 where none is asked.
    fn servers(&self) -> [usize; Place::ALL.len()];

    /// How long one call may take, and a whole operation.
    fn limits(&self) -> (Duration, Duration);

    /// Whether servers of another route may do where those of one did not fit each other, or what is asked for.
    fn is_misfit(&self, failure: &<Self::Protocol as Protocol>::Failure) -> bool;
}

/// What is asked within a session.
pub trait Ask<S: Connect>: Send {
    /// What comes of it.
    type Output: Timed;
    /// How it is asked.
    type Script: Script<Protocol = S::Protocol, Output = Self::Output>;

    /// Makes the requests. `random` decides what needs no secret.
    ///
    /// # Errors
    /// The scheme's failure where that cannot be asked within this session.
    fn script(
        &self,
        session: &Arc<S::Session>,
        random: u64,
    ) -> Result<Self::Script, <S::Protocol as Protocol>::Failure>;

    /// Whether a new session may do where this failure came of the last.
    fn is_stale(&self, _: &<S::Protocol as Protocol>::Failure) -> bool {
        false
    }

    /// How long it may take, where that is not what any operation of the client may ([`Connect::limits`]).
    fn limits(&self) -> Option<Limits> {
        None
    }

    /// Whether it may be asked more than once at all: not where a server may have done it though it did not say so.
    fn is_repeatable(&self) -> bool {
        true
    }

    /// After which pause the requests are made anew within the same session; `None` where `cause` is no reason
    /// to. `random` spreads many clients.
    fn again(
        &self,
        _cause: Cause<'_, S::Protocol>,
        _tried: Tried,
        _random: u64,
    ) -> Option<Duration> {
        None
    }

    /// Whether [`script`](Self::script) computes for milliseconds.
    fn computes(&self, _: &S::Session) -> bool {
        false
    }
}

/// What a client's requests failed by.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "a call failed, or the client refuses")]
pub enum Cause<'a, P: Protocol> {
    /// A call.
    Fault(&'a CallFault),
    /// The client's refusal, before or after a call.
    Failure(&'a P::Failure),
}

/// Rung whenever something changes that another operation may wait for.
#[derive(Clone)]
pub struct Bell(Arc<dyn Fn() + Send + Sync>);

impl Bell {
    /// A bell that calls `ring`: it must have every operation of the client polled that waits.
    pub fn new(ring: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(ring))
    }

    /// Rings it.
    pub fn ring(&self) {
        (self.0)();
    }
}

/// The state of a client.
pub struct Shared<S: Connect> {
    pub(crate) scheme: S,
    bell: Bell,
    state: Mutex<State<S>>,
}

struct State<S: Connect> {
    session: Arc<S::Session>,
    /// The servers that it is with.
    route: Route,
    is_opening: bool,
    /// What the servers said of their states when it was made.
    states: States,
    /// Whether one of them has said another since: it may hold something newer.
    is_outdated: bool,
    /// When they were last asked for that reason.
    refreshed: Option<Duration>,
}

/// How an operation comes to a session that is not stale.
pub(super) enum Renewal<S: Connect> {
    /// Another operation has made one.
    Made(Arc<S::Session>, Route),
    /// Another one is making it.
    Wait,
    /// It is to make it itself.
    Turn(Turn<S>),
}

/// The turn to make a new session; it ends with the value, however that ends.
pub(super) struct Turn<S: Connect>(Arc<Shared<S>>);

impl<S: Connect> Shared<S> {
    pub(crate) fn new(
        scheme: S,
        session: S::Session,
        (route, states): (Route, States),
        bell: Bell,
    ) -> Arc<Self> {
        let state = State {
            session: Arc::new(session),
            route,
            is_opening: false,
            states,
            is_outdated: false,
            refreshed: None,
        };
        Arc::new(Self { scheme, bell, state: Mutex::new(state) })
    }

    /// What has machines polled that wait for each other.
    pub fn bell(&self) -> Bell {
        self.bell.clone()
    }

    /// What is known of what servers hold.
    pub fn session(&self) -> Arc<S::Session> {
        self.routed().0
    }

    /// The session, and the servers that it is with.
    pub(crate) fn routed(&self) -> (Arc<S::Session>, Route) {
        let state = self.locked();
        (Arc::clone(&state.session), state.route)
    }

    /// Where many find their session stale at once, one asks what there is now.
    pub(crate) fn renew(self: &Arc<Self>, stale: &Arc<S::Session>) -> Renewal<S> {
        let mut state = self.locked();
        if !Arc::ptr_eq(&state.session, stale) {
            return Renewal::Made(Arc::clone(&state.session), state.route);
        }
        match std::mem::replace(&mut state.is_opening, true) {
            true => Renewal::Wait,
            false => Renewal::Turn(Turn(Arc::clone(self))),
        }
    }

    /// Notes what the servers said of their states in answers within a session.
    pub(crate) fn hear(&self, session: &Arc<S::Session>, heard: States) {
        let mut state = self.locked();
        if Arc::ptr_eq(&state.session, session) {
            let is_other = |(now, then): (&Option<u64>, &Option<u64>)| now.is_some() && now != then;
            state.is_outdated |= heard.iter().zip(&state.states).any(is_other);
        }
    }

    /// The turn to see what there is that is newer, where a server has said that there is: one operation asks,
    /// the others go on with what there was. However often a server says so, it is asked once in a while.
    pub(crate) fn refresh(self: &Arc<Self>, now: Duration) -> Option<Turn<S>> {
        let mut state = self.locked();
        let rests = state.refreshed.is_some_and(|at| now < at + REFRESH_EVERY);
        if !state.is_outdated || state.is_opening || rests {
            return None;
        }
        (state.is_opening, state.refreshed) = (true, Some(now));
        drop(state);
        Some(Turn(Arc::clone(self)))
    }

    fn locked(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Connect> Turn<S> {
    /// Gives all operations the new session.
    pub fn end(self, session: S::Session, route: Route, states: States) -> Arc<S::Session> {
        let session = Arc::new(session);
        let mut state = self.0.locked();
        (state.session, state.route) = (Arc::clone(&session), route);
        (state.states, state.is_outdated) = (states, false);
        drop(state);
        session
    }
}

impl<S: Connect> Drop for Turn<S> {
    fn drop(&mut self) {
        self.0.locked().is_opening = false;
        self.0.bell.ring();
    }
}

/// A server that says with every answer that it holds something newer is asked no more often.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::super::run::{Round, RoundOf, Tally};
    use super::*;

    struct Nothing;

    impl Protocol for Nothing {
        type Call = ();
        type Reply = ();
        type Failure = ();

        fn timed_out(_: Place, _: Duration) {}
    }

    impl Script for Nothing {
        type Protocol = Self;
        type Output = ();

        fn next(&mut self, _: Vec<()>, _: Tally) -> RoundOf<Self, ()> {
            Ok(Round::Done(()))
        }
    }

    impl Connect for Nothing {
        type Protocol = Self;
        type Session = ();
        type Opening = Nothing;

        fn opening(&self, _: Option<&Arc<()>>) -> Nothing {
            Nothing
        }

        fn first(&self) -> Place {
            Place::Left
        }

        fn servers(&self) -> [usize; 3] {
            [1, 1, 0]
        }

        fn limits(&self) -> (Duration, Duration) {
            (Duration::ZERO, Duration::ZERO)
        }

        fn is_misfit(&self, (): &()) -> bool {
            false
        }
    }

    #[test]
    fn a_server_that_says_with_every_answer_that_it_changed_is_asked_once_a_second() {
        let states = [Some(1), Some(1), None];
        let shared = Shared::new(Nothing, (), (Route::default(), states), Bell::new(|| {}));
        let session = shared.session();
        shared.hear(&session, states);
        // One that says nothing has not changed.
        shared.hear(&session, [None, None, None]);
        assert!(shared.refresh(Duration::ZERO).is_none());
        let mut asked = 0;
        for ms in 0..10_000 {
            shared.hear(&shared.session(), [Some(1), Some(ms + 2), None]);
            if let Some(turn) = shared.refresh(Duration::from_millis(ms)) {
                assert!(shared.refresh(Duration::from_millis(ms)).is_none(), "one at a time");
                turn.end((), Route::default(), [Some(1), Some(ms + 1), None]);
                asked += 1;
            }
        }
        assert_eq!(asked, 10);
        // What is heard within a session that is over says nothing of the one that there is.
        let turn = shared.refresh(Duration::from_secs(60));
        turn.expect("it has changed").end((), Route::default(), states);
        shared.hear(&session, [Some(7), Some(7), None]);
        assert!(shared.refresh(Duration::from_secs(120)).is_none());
    }
}
