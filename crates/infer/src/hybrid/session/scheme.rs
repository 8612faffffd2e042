//! How a client comes to a network that its server computes.

use std::sync::Arc;
use std::time::Duration;

use hushtable_client::{Connect, Place, Round, RoundOf, Script, Tally};
use hushtable_mpc::{Party, Platform};
use hushtable_table::Version;

use super::super::outline::Outline;
use super::call::{Announced, Call, Failure, Inference, Reply};
use crate::store::Head;

/// What a client of hybrid inference is told.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct SessionSpec {
    /// The only version of the model to ask; `None` for whatever the server has.
    pub version: Option<Version>,
    /// Who garbles.
    pub garbler: Party,
    /// How long one call may take, and how long the server may be silent in a prediction.
    pub call_max: Duration,
    /// How long a call is made again where the server is out of reach or busy, while precomputes are made.
    pub retry_max: Duration,
    /// Most bytes of a half at this client.
    pub half_bytes_max: u64,
}

/// What is known of the server.
#[derive(Clone)]
pub struct Session {
    pub announced: Arc<Announced>,
    pub outline: Arc<Outline>,
    pub spec: SessionSpec,
}

impl Session {
    /// Bytes of each record of this client's half of a precompute.
    pub fn record_bytes(&self) -> Vec<u64> {
        self.outline.record_bytes(self.spec.garbler, Party::Client)
    }

    /// What this client's half of a precompute is called.
    pub fn head(&self, id: [u8; 16]) -> Head {
        Head {
            id,
            plan: *self.announced.plan.as_bytes(),
            client_garbles: self.spec.garbler == Party::Client,
            role: Party::Client.into(),
        }
    }

    /// Whether a half is such a one.
    pub fn fits(&self, head: &Head) -> bool {
        *head == self.head(head.id)
    }
}

/// See [`Connect`].
pub struct Server(pub SessionSpec);

/// Asks what the server computes, and holds it against what the client was told.
pub struct HybridOpening {
    spec: SessionSpec,
    known: Option<Arc<Session>>,
    has_asked: bool,
}

impl Connect for Server {
    type Protocol = Inference;
    type Session = Session;
    type Opening = HybridOpening;

    fn opening(&self, known: Option<&Arc<Session>>) -> HybridOpening {
        HybridOpening { spec: self.0, known: known.cloned(), has_asked: false }
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

impl HybridOpening {
    fn check(&self, announced: Announced) -> Result<Session, Failure> {
        let (spec, found) = (self.spec, announced.version);
        if let Some(expected) = spec.version.filter(|&expected| expected != found) {
            return Err(Failure::VersionMismatch { expected, found });
        }
        let garbler = spec.garbler;
        if !announced.lets_garble(garbler) {
            return Err(Failure::Garbler { garbler });
        }
        let outline = Outline::new(announced.terms.program().clone(), Platform::detect())?;
        let session = Session { announced: Arc::new(announced), outline: Arc::new(outline), spec };
        let (bytes, bytes_max) = (session.record_bytes().iter().sum(), spec.half_bytes_max);
        match bytes > bytes_max {
            true => Err(Failure::PrecomputeBytes { bytes, bytes_max }),
            false => Ok(session),
        }
    }
}

impl Script for HybridOpening {
    type Protocol = Inference;
    type Output = Session;

    fn next(&mut self, replies: Vec<Reply>, _: Tally) -> RoundOf<Inference, Session> {
        // Halves are of one plan: a server that comes back is asked by that, and refuses where it has another.
        if let Some(known) = &self.known {
            return Ok(Round::Done(Session::clone(known)));
        }
        if !std::mem::replace(&mut self.has_asked, true) {
            return Ok(Round::Ask(vec![(Place::Single, Call::Info)]));
        }
        match replies.into_iter().next() {
            Some(Reply::Info(announced)) => self.check(*announced).map(Round::Done),
            _ => Err(Failure::OtherCall),
        }
    }

    fn computes(&self) -> bool {
        self.has_asked
    }
}
