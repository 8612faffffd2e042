//! How a client comes to its training server.

use std::sync::Arc;
use std::time::Duration;

use hushtable_client::{Connect, Place, Round, RoundOf, Script, Tally};

use super::call::{Announced, Call, Failure, Reply, Token, Training};
use crate::wire::Pin;

/// What a client of a training server is told.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct SessionSpec {
    /// The controller that the server's must be.
    pub pin: Option<Pin>,
    /// Whether, without a pin, whatever is announced is believed.
    pub trusts_announced: bool,
    /// What the operator's calls carry.
    pub operator_token: Option<Token>,
    /// How long one call may take that waits for nobody.
    pub call_max: Duration,
}

/// What is known of the server.
#[derive(Clone)]
pub struct Session {
    pub announced: Announced,
    /// What users seal to.
    pub pin: Option<Pin>,
    pub spec: SessionSpec,
}

/// See [`Connect`].
pub struct Server(pub SessionSpec);

/// Asks what is trained, and holds it against the pin.
pub struct TrainOpening {
    spec: SessionSpec,
    known: Option<Arc<Session>>,
    has_asked: bool,
}

impl Connect for Server {
    type Protocol = Training;
    type Session = Session;
    type Opening = TrainOpening;

    fn opening(&self, known: Option<&Arc<Session>>) -> TrainOpening {
        TrainOpening { spec: self.0.clone(), known: known.cloned(), has_asked: false }
    }

    fn first(&self) -> Place {
        Place::Single
    }

    fn servers(&self) -> [usize; 3] {
        [0, 0, 1]
    }

    fn limits(&self) -> (Duration, Duration) {
        (self.0.call_max, self.0.call_max)
    }

    // There is one server.
    fn is_misfit(&self, _: &Failure) -> bool {
        false
    }
}

impl Script for TrainOpening {
    type Protocol = Training;
    type Output = Session;

    fn next(&mut self, replies: Vec<Reply>, _: Tally) -> RoundOf<Training, Session> {
        // A controller does not change while its server is away: the one that was held against the pin is gone on
        // with, and another one opens nothing that is sealed to it.
        if let Some(known) = &self.known {
            return Ok(Round::Done(Session::clone(known)));
        }
        if !std::mem::replace(&mut self.has_asked, true) {
            return Ok(Round::Ask(vec![(Place::Single, Call::Info)]));
        }
        let Some(Reply::Info(announced)) = replies.into_iter().next() else {
            return Err(Failure::OtherCall);
        };
        let (spec, found) = (self.spec.clone(), announced.pin());
        if spec.pin.is_some_and(|pin| pin != found) {
            return Err(Failure::Pinned);
        }
        let pin = spec.pin.or(spec.trusts_announced.then_some(found));
        Ok(Round::Done(Session { announced: *announced, pin, spec }))
    }
}
