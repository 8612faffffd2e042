//! A server's precomputes: those that are being made, and those that wait to be used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::PrecomputeId;
use super::keep::{Half, Keep, KeepError, Kept, Opened, PrecomputeCount, lock};
use super::machines::{Head, HybridModel, OfflineServer, Party, Records};
use super::refusal::{HybridRefusal, StepDefect, of_keep, of_step};
use crate::{Limit, Refusal};

/// Bounded by number, by bytes and by how long each may rest.
pub(super) struct Precomputes {
    model: Arc<HybridModel>,
    plan: [u8; 32],
    keep: Keep,
    sessions_max: usize,
    idle_max: Duration,
    age_max: Duration,
    sessions: Mutex<HashMap<PrecomputeId, Arc<Session>>>,
}

/// A precompute that is being made.
struct Session {
    garbler: Party,
    machine: OfflineServer,
    half: Arc<Opened>,
    touched: Mutex<Instant>,
    /// Held while it ends, so that it ends once.
    ended: Mutex<bool>,
}

impl Precomputes {
    pub fn new(
        model: Arc<HybridModel>,
        plan: [u8; 32],
        keep: Keep,
        sessions_max: usize,
        [idle_max, age_max]: [Duration; 2],
    ) -> Self {
        Self { model, plan, keep, sessions_max, idle_max, age_max, sessions: Mutex::default() }
    }

    /// Opens one; whether it was open.
    pub fn begin(&self, id: PrecomputeId, garbler: Party) -> Result<bool, Refusal> {
        self.sweep();
        if let Some(session) = lock(&self.sessions).get(&id) {
            *lock(&session.touched) = Instant::now();
            return match session.garbler == garbler {
                true => Ok(true),
                false => Err(order("the precompute is open, with another garbler")),
            };
        }
        let busy = || Refusal::Busy { limit: Limit::Precomputes, retry_after: BUSY_RETRY };
        if lock(&self.sessions).len() >= self.sessions_max {
            return Err(busy());
        }
        if self.keep.has(&id) {
            return Err(order("the precompute was made before"));
        }
        let head = Head {
            id,
            plan: self.plan,
            client_garbles: garbler == Party::Client,
            role: Party::Server.into(),
        };
        let sizes = self.model.outline().record_bytes(garbler, Party::Server);
        let half = self.keep.begin(head, &sizes).map_err(of_keep)?;
        let records: Arc<dyn Records> = Arc::clone(&half) as _;
        let machine = OfflineServer::new(Arc::clone(&self.model), garbler, records)
            .map_err(|error| of_step(&error))?;
        let (touched, ended) = (Mutex::new(Instant::now()), Mutex::default());
        let session = Arc::new(Session { garbler, machine, half, touched, ended });
        let mut sessions = lock(&self.sessions);
        // Others may have begun since it was looked, this one as well.
        if sessions.contains_key(&id) {
            return Ok(true);
        }
        if sessions.len() >= self.sessions_max {
            return Err(busy());
        }
        sessions.insert(id, session);
        Ok(false)
    }

    /// Answers a step. Computes.
    pub fn answer(&self, id: &PrecomputeId, step: u32, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
        let session = self.session(id)?;
        *lock(&session.touched) = Instant::now();
        let reply = session.machine.answer(step, bytes).map_err(|error| of_step(&error));
        *lock(&session.touched) = Instant::now();
        if matches!(reply, Err(Refusal::Backend)) {
            // What cannot be kept now will not be whole later.
            lock(&self.sessions).remove(id);
        }
        reply
    }

    /// Ends one: it can be used from now on.
    pub fn finish(&self, id: &PrecomputeId) -> Result<(), Refusal> {
        let Ok(session) = self.session(id) else {
            return if self.keep.has(id) {
                Ok(())
            } else {
                Err(HybridRefusal::UnknownPrecompute.into())
            };
        };
        let mut ended = lock(&session.ended);
        if !*ended {
            if !session.machine.is_complete() {
                return Err(order("not every step of the precompute was made"));
            }
            session.half.commit().map_err(of_keep)?;
            *ended = true;
        }
        lock(&self.sessions).remove(id);
        Ok(())
    }

    /// Takes one out, to be used for one prediction.
    pub fn take(&self, id: &PrecomputeId) -> Result<Half, Refusal> {
        let half = self.keep.take(id).map_err(of_keep)?;
        let half = half.ok_or(Refusal::from(HybridRefusal::UnknownPrecompute))?;
        if half.head.plan != self.plan || half.head.role != Party::Server.into() {
            return Err(HybridRefusal::UnknownPrecompute.into());
        }
        Ok(half)
    }

    /// Drops those that nobody goes on with.
    pub fn sweep(&self) {
        let idle_max = self.idle_max;
        lock(&self.sessions).retain(|_, session| lock(&session.touched).elapsed() <= idle_max);
    }

    /// Drops those of other plans, which no client will ask for.
    pub fn drop_others(&self) -> Result<usize, KeepError> {
        self.drop_where(|kept| kept.head.plan != self.plan)
    }

    /// Drops those that have waited for longer than they may.
    pub fn drop_old(&self) -> Result<usize, KeepError> {
        let age_max = self.age_max;
        self.drop_where(|kept| kept.made.elapsed().is_ok_and(|age| age > age_max))
    }

    fn drop_where(&self, is_dropped: impl Fn(&Kept) -> bool) -> Result<usize, KeepError> {
        let dropped: Vec<_> = self.keep.list().into_iter().filter(is_dropped).collect();
        dropped.iter().try_for_each(|kept| self.keep.discard(&kept.head.id))?;
        Ok(dropped.len())
    }

    /// Precomputes that are being made.
    pub fn open(&self) -> usize {
        lock(&self.sessions).len()
    }

    pub fn count(&self) -> PrecomputeCount {
        self.keep.count()
    }

    fn session(&self, id: &PrecomputeId) -> Result<Arc<Session>, Refusal> {
        let found = lock(&self.sessions).get(id).map(Arc::clone);
        found.ok_or(HybridRefusal::UnknownPrecompute.into())
    }
}

fn order(message: &str) -> Refusal {
    HybridRefusal::BadStep { defect: StepDefect::Order, message: message.to_owned() }.into()
}

const BUSY_RETRY: Duration = Duration::from_millis(500);
