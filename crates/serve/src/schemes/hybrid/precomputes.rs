//! A server's precomputes: those that are being made, and those that wait to be used.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;

use super::PrecomputeId;
use super::keep::{Half, Keep, KeepError, Kept, Opened, PrecomputeCount, lock};
use super::machines::{Head, HybridModel, OfflineServer, Party, Records};
use super::refusal::{HybridRefusal, StepDefect, of_keep, of_step};
use crate::host::quota::{Full, Holder, Quota};
use crate::{Limit, Refusal};

/// Bounded by number, by bytes and by how long each may rest. Of places and of bytes each client has its part.
pub(super) struct Precomputes {
    model: Arc<HybridModel>,
    plan: [u8; 32],
    keep: Keep,
    bytes_max: u64,
    per_day: u64,
    idle_max: Duration,
    age_max: Duration,
    state: Mutex<State>,
    displaced: Counter,
}

struct State {
    sessions: HashMap<PrecomputeId, Arc<Session>>,
    places: Quota<PrecomputeId>,
    /// Of those that are being made and of those that are kept.
    bytes: Quota<PrecomputeId>,
    /// How many each client has begun, and since when they are counted.
    begun: HashMap<Holder, (u64, Instant)>,
}

/// A precompute that is being made.
struct Session {
    garbler: Party,
    machine: OfflineServer,
    half: Arc<Opened>,
    /// Held while it ends, so that it ends once.
    ended: Mutex<bool>,
}

/// What went for a precompute that is begun.
#[derive(Default)]
struct Gone {
    /// Of those that are kept.
    kept: Vec<PrecomputeId>,
    /// Of those that are being made: their files go with them, which the state does not wait for.
    sessions: Vec<Arc<Session>>,
}

impl State {
    #[must_use]
    fn forget(&mut self, id: &PrecomputeId) -> Option<Arc<Session>> {
        self.places.leave(id);
        self.bytes.leave(id);
        self.sessions.remove(id)
    }

    /// Counts one more of a client's.
    fn allow(&mut self, holder: Holder, per_day: u64, now: Instant) -> Result<(), Refusal> {
        if per_day == 0 {
            return Ok(());
        }
        self.begun.retain(|_, (_, since)| now.saturating_duration_since(*since) < DAY);
        let (count, _) = self.begun.entry(holder).or_insert((0, now));
        if *count >= per_day {
            return Err(HybridRefusal::PrecomputeAllowance { per_day }.into());
        }
        *count += 1;
        Ok(())
    }

    /// One that was counted was not begun.
    fn disallow(&mut self, holder: Holder) {
        if let Some((count, _)) = self.begun.get_mut(&holder) {
            *count = count.saturating_sub(1);
        }
    }

    /// Makes room for one more, or changes nothing.
    fn enter(
        &mut self,
        id: PrecomputeId,
        holder: Holder,
        bytes: u64,
        (now, displaced): (Instant, &Counter),
    ) -> Result<Gone, Full> {
        if !self.bytes.has_room(&id, holder, bytes, now) {
            return Err(Full);
        }
        let mut gone = Gone::default();
        for name in self.places.enter(id, holder, 1, now)? {
            gone.sessions.extend(self.forget(&name));
            displaced.inc();
        }
        // What went meanwhile has only made more room.
        for name in self.bytes.enter(id, holder, bytes, now)? {
            match self.forget(&name) {
                Some(session) => gone.sessions.push(session),
                None => gone.kept.push(name),
            }
            displaced.inc();
        }
        Ok(gone)
    }
}

impl Precomputes {
    pub fn new(
        model: Arc<HybridModel>,
        plan: [u8; 32],
        keep: Keep,
        [sessions_max, bytes_max, per_day]: [u64; 3],
        [idle_max, age_max]: [Duration; 2],
        displaced: Counter,
    ) -> Self {
        let (sessions, places) = (HashMap::new(), Quota::new(sessions_max).resting(REST_MAX));
        let mut bytes = Quota::new(bytes_max);
        let now = Instant::now();
        // Whose they were is not known any more. Where there may be fewer now, the oldest go.
        for kept in keep.list().iter().rev() {
            let id = kept.head.id;
            match bytes.enter(id, Holder::default(), kept.bytes, now) {
                Ok(_) => bytes.touch(&id, now),
                Err(Full) => {
                    tracing::warn!("a precompute is dropped: store_bytes_max is less than is kept");
                    if let Err(error) = keep.discard(&id) {
                        tracing::warn!(%error, "it cannot be dropped");
                    }
                }
            }
        }
        let state = Mutex::new(State { sessions, places, bytes, begun: HashMap::new() });
        Self { model, plan, keep, bytes_max, per_day, idle_max, age_max, state, displaced }
    }

    /// Opens one; whether it was open.
    pub fn begin(&self, id: PrecomputeId, garbler: Party, holder: Holder) -> Result<bool, Refusal> {
        self.sweep();
        if let Some(session) = lock(&self.state).sessions.get(&id) {
            return match session.garbler == garbler {
                true => Ok(true),
                false => Err(order("the precompute is open, with another garbler")),
            };
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
        let (bytes, bytes_max) = (self.keep.bytes_of(&sizes), self.bytes_max);
        if bytes > bytes_max {
            return Err(of_keep(KeepError::Budget { bytes, bytes_max }));
        }
        lock(&self.state).allow(holder, self.per_day, Instant::now())?;
        let begun = self.begin_new(head, holder, (&sizes, bytes), garbler);
        if !matches!(begun, Ok(false)) {
            lock(&self.state).disallow(holder);
        }
        begun
    }

    fn begin_new(
        &self,
        head: Head,
        holder: Holder,
        (sizes, bytes): (&[u64], u64),
        garbler: Party,
    ) -> Result<bool, Refusal> {
        let id = head.id;
        let now = (Instant::now(), &self.displaced);
        let entered = lock(&self.state).enter(id, holder, bytes, now);
        let busy = || Refusal::Busy { limit: Limit::Precomputes, retry_after: BUSY_RETRY };
        let opened = entered.map_err(|Full| busy()).and_then(|Gone { kept, sessions }| {
            drop(sessions);
            let dropped: Vec<_> = kept.iter().map(|kept| self.keep.discard(kept)).collect();
            dropped.into_iter().collect::<Result<(), _>>().map_err(of_keep)?;
            self.open_session(head, sizes, garbler)
        });
        let mut state = lock(&self.state);
        match opened {
            // Others may have begun since it was looked, this one as well.
            Ok(_) if state.sessions.contains_key(&id) => Ok(true),
            // Its place may be gone already.
            Ok(session) if state.places.holds(&id) => {
                state.sessions.insert(id, session);
                Ok(false)
            }
            Ok(_) => Err(busy()),
            Err(refusal) => {
                if !state.sessions.contains_key(&id) {
                    drop(state.forget(&id));
                }
                Err(refusal)
            }
        }
    }

    fn open_session(
        &self,
        head: Head,
        sizes: &[u64],
        garbler: Party,
    ) -> Result<Arc<Session>, Refusal> {
        let half = self.keep.begin(head, sizes).map_err(of_keep)?;
        let records: Arc<dyn Records> = Arc::clone(&half) as _;
        let machine = OfflineServer::new(Arc::clone(&self.model), garbler, records)
            .map_err(|error| of_step(&error))?;
        Ok(Arc::new(Session { garbler, machine, half, ended: Mutex::default() }))
    }

    /// A step of one has come, and waits to be computed.
    pub fn arrived(&self, id: &PrecomputeId) {
        lock(&self.state).places.resume(id, Instant::now());
    }

    /// Answers a step. Computes.
    pub fn answer(&self, id: &PrecomputeId, step: u32, bytes: &[u8]) -> Result<Vec<u8>, Refusal> {
        let session = self.session(id)?;
        let reply = session.machine.answer(step, bytes).map_err(|error| of_step(&error));
        let mut state = lock(&self.state);
        let gone = match &reply {
            Ok(_) => {
                let now = Instant::now();
                state.places.touch(id, now);
                state.bytes.touch(id, now);
                None
            }
            // What cannot be kept now will not be whole later.
            Err(Refusal::Backend) => state.forget(id),
            Err(_) => None,
        };
        drop(state);
        drop(gone);
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
        let mut state = lock(&self.state);
        state.sessions.remove(id);
        state.places.leave(id);
        // Others may have needed its room just now.
        if !state.bytes.holds(id) {
            drop(state);
            self.keep.discard(id).map_err(of_keep)?;
            return Err(HybridRefusal::UnknownPrecompute.into());
        }
        Ok(())
    }

    /// Takes one out, to be used for one prediction.
    pub fn take(&self, id: &PrecomputeId) -> Result<Half, Refusal> {
        let half = self.keep.take(id);
        lock(&self.state).bytes.leave(id);
        let half = half.map_err(of_keep)?;
        let half = half.ok_or(Refusal::from(HybridRefusal::UnknownPrecompute))?;
        if half.head.plan != self.plan || half.head.role != Party::Server.into() {
            return Err(HybridRefusal::UnknownPrecompute.into());
        }
        Ok(half)
    }

    /// Whether one can be taken.
    pub fn has(&self, id: &PrecomputeId) -> bool {
        self.keep.has(id)
    }

    /// Drops those that nobody goes on with.
    pub fn sweep(&self) {
        let mut state = lock(&self.state);
        let unused_max = self.idle_max.min(UNUSED_MAX);
        let late = state.places.expire(Instant::now(), unused_max, self.idle_max);
        let gone: Vec<_> = late.iter().filter_map(|late| state.forget(late)).collect();
        drop(state);
        drop(gone);
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
        for kept in &dropped {
            self.keep.discard(&kept.head.id)?;
            lock(&self.state).bytes.leave(&kept.head.id);
        }
        Ok(dropped.len())
    }

    /// Precomputes that are being made.
    pub fn open(&self) -> usize {
        lock(&self.state).places.len()
    }

    /// How many were refused so far, for they may have been used before.
    pub fn refused(&self) -> u64 {
        self.keep.refused()
    }

    pub fn count(&self) -> PrecomputeCount {
        self.keep.count()
    }

    fn session(&self, id: &PrecomputeId) -> Result<Arc<Session>, Refusal> {
        let found = lock(&self.state).sessions.get(id).map(Arc::clone);
        found.ok_or(HybridRefusal::UnknownPrecompute.into())
    }
}

fn order(message: &str) -> Refusal {
    HybridRefusal::BadStep { defect: StepDefect::Order, message: message.to_owned() }.into()
}

const BUSY_RETRY: Duration = Duration::from_millis(500);
/// A client that begins another has given up what it left alone for so long.
const REST_MAX: Duration = Duration::from_secs(30);
/// Precomputes of a client are counted over so long.
const DAY: Duration = Duration::from_secs(86_400);
/// How long a precompute keeps its place before its first step has come: what that takes on a slow line.
const UNUSED_MAX: Duration = Duration::from_secs(15);
