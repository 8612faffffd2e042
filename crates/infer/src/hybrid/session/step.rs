//! One thing that a worker does at a precompute: begins it, makes a step, ends it.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{
    Ask, CallFault, Cause, Limits, Place, Round, RoundOf, Script, Tally, Timed, Tried, pause,
};
use hushtable_mpc::Party;

use super::super::error::Error;
use super::super::offline::{Next, OfflineClient, Parallel};
use super::call::{Call, Failure, Inference, PrecomputeId, Reply};
use super::halves::{Half, Halves};
use super::scheme::{Server, Session, SessionSpec};
use crate::records::Records;

/// A precompute that is being made.
pub(super) struct Attempt {
    id: PrecomputeId,
    /// Its steps that were made.
    pub done: AtomicU64,
    /// This client's half, and the machine of its steps, once it was begun.
    begun: OnceLock<(Arc<dyn Half>, OfflineClient)>,
}

impl Attempt {
    pub fn new(id: PrecomputeId) -> Self {
        Self { id, done: AtomicU64::new(0), begun: OnceLock::new() }
    }

    /// What there is to do at it.
    pub fn next(&self) -> Next {
        self.begun.get().map_or(Next::Wait, |(_, machine)| machine.next())
    }

    /// Makes room for the half. A call that is made again finds it made.
    fn begin(&self, session: &Session, halves: &dyn Halves) -> Result<(), Failure> {
        if self.begun.get().is_some() {
            return Ok(());
        }
        let begun = halves.begin(session.head(self.id), &session.record_bytes());
        let half = begun.map_err(Failure::Halves)?;
        let records: Arc<dyn Records> = Arc::clone(&half) as _;
        let (outline, garbler) = (Arc::clone(&session.outline), session.spec.garbler);
        let machine = OfflineClient::new(outline, garbler, Parallel::Layers, records)?;
        drop(self.begun.set((half, machine)));
        Ok(())
    }

    fn half(&self) -> Result<&(Arc<dyn Half>, OfflineClient), Failure> {
        let what = "a step".to_owned();
        let order = Error::Order { what, why: "the precompute's beginning" };
        Ok(self.begun.get().ok_or(order)?)
    }
}

#[derive(Clone, Copy)]
pub(super) enum What {
    Begin,
    Step(u32),
    Finish,
}

/// What came of it.
pub(super) struct Made {
    /// Bytes of the step's request, each time that it was sent, and of its reply.
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub retries: u32,
}

impl Timed for Made {
    fn took(&mut self, _: Duration, moves: u32) {
        self.retries += moves;
    }
}

pub(super) struct MakeAsk {
    halves: Arc<dyn Halves>,
    attempt: Arc<Attempt>,
    what: What,
    limits: Limits,
    /// The call, which is made again as it was.
    call: Mutex<Option<Call>>,
}

impl MakeAsk {
    pub fn new(
        spec: &SessionSpec,
        halves: Arc<dyn Halves>,
        attempt: Arc<Attempt>,
        what: What,
    ) -> Self {
        // A server that is busy or out of reach comes back, and what was made of the precompute is still there.
        let (call, whole) = (spec.call_max, spec.retry_max);
        let limits = Limits { call, whole, may_overrun: true, busy: whole };
        Self { halves, attempt, what, limits, call: Mutex::default() }
    }

    fn call(&self, session: &Session) -> Result<Call, Failure> {
        let id = self.attempt.id;
        Ok(match self.what {
            What::Begin => {
                self.attempt.begin(session, &*self.halves)?;
                let client_garbles = session.spec.garbler == Party::Client;
                Call::Begin { plan: session.announced.plan, id, client_garbles }
            }
            What::Step(step) => {
                let payload = Bytes::from(self.attempt.half()?.1.request(step)?);
                Call::Step { id, step, payload }
            }
            What::Finish => Call::Finish { id },
        })
    }
}

impl Ask<Server> for MakeAsk {
    type Output = Made;
    type Script = MakeScript;

    fn script(&self, session: &Arc<Session>, _: u64) -> Result<MakeScript, Failure> {
        let mut made = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        let call = match &*made {
            Some(call) => call.clone(),
            None => made.insert(self.call(session)?).clone(),
        };
        let (attempt, what) = (Arc::clone(&self.attempt), self.what);
        Ok(MakeScript { call: Some(call), attempt, what, sent_bytes: 0 })
    }

    fn limits(&self) -> Option<Limits> {
        Some(self.limits)
    }

    fn again(&self, cause: Cause<'_, Inference>, tried: Tried, random: u64) -> Option<Duration> {
        match cause {
            Cause::Fault(CallFault::Draining | CallFault::Unreachable)
            | Cause::Failure(Failure::Timeout { .. }) => {
                Some(pause(RECONNECT, tried.times, random))
            }
            _ => None,
        }
    }

    fn computes(&self, _: &Session) -> bool {
        true
    }
}

pub(super) struct MakeScript {
    call: Option<Call>,
    attempt: Arc<Attempt>,
    what: What,
    sent_bytes: u64,
}

impl Script for MakeScript {
    type Protocol = Inference;
    type Output = Made;

    fn next(&mut self, replies: Vec<Reply>, tally: Tally) -> RoundOf<Inference, Made> {
        if let Some(call) = self.call.take() {
            if let Call::Step { payload, .. } = &call {
                self.sent_bytes = payload.len() as u64;
            }
            return Ok(Round::Ask(vec![(Place::Single, call)]));
        }
        let mut received_bytes = 0;
        match (self.what, replies.into_iter().next()) {
            (What::Begin, Some(Reply::Done)) => {}
            (What::Step(step), Some(Reply::Step(payload))) => {
                received_bytes = payload.len() as u64;
                self.attempt.half()?.1.accept(step, &payload)?;
            }
            (What::Finish, Some(Reply::Done)) => {
                self.attempt.half()?.0.commit().map_err(Failure::Halves)?;
            }
            _ => return Err(Failure::OtherCall),
        }
        let (sent_bytes, retries) = (self.sent_bytes, tally.retries);
        Ok(Round::Done(Made { sent_bytes, received_bytes, retries }))
    }

    // The reply to a step, and the request of what the worker is at next.
    fn computes(&self) -> bool {
        self.call.is_none()
    }
}

/// How soon a server that is out of reach is tried again.
const RECONNECT: Duration = Duration::from_millis(200);
