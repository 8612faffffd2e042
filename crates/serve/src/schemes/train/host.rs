//! The one open round of a server: who came, what it waits for, when it goes on.
//!
//! Two locks, always taken in this order: the memory's, held through calls that may take seconds,
//! by one call at a time and off the threads of connections; the round's, held for microseconds. A
//! round goes on by whoever finds it ready (the last user to come, the deadline, the operator), and
//! what it comes to is written down by the same work, so that a client that goes away meanwhile
//! loses nothing but its reply.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hushtable_oram::round::RoundReport;
use hushtable_oram::wire::{ControllerKey, SealedRound, Terms, random_round};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use super::info::{RoundStage, TrainInfo};
use super::metrics::TrainMetrics;
use super::{Awaited, BudgetSpent, Outcome, RoundMemory, TrainRefusal};
use crate::Refusal;
use crate::host::SOFTWARE;

/// The rounds of one controller.
pub(super) struct Host {
    terms: Terms,
    key: ControllerKey,
    memory: Arc<AsyncMutex<Box<dyn RoundMemory>>>,
    state: Mutex<State>,
    /// Counts changes of the state, for those that wait for one.
    changes: watch::Sender<u64>,
    metrics: TrainMetrics,
}

struct State {
    rounds: u64,
    /// Why no further round may begin, if so.
    spent: Option<BudgetSpent>,
    open: Option<Open>,
    /// How the last round ended, for calls that are repeated after a lost reply.
    last: Option<(u64, Ended)>,
}

struct Open {
    sealed: SealedRound,
    stage: RoundStage,
    users_min: usize,
    upload_max: Duration,
    /// Set once the round has begun.
    uploads_until: Option<Instant>,
}

#[derive(Clone)]
enum Ended {
    Committed(RoundReport),
    Otherwise(Outcome),
}

impl Ended {
    fn outcome(&self) -> Outcome {
        match self {
            Self::Committed(_) => Outcome::Committed,
            Self::Otherwise(outcome) => *outcome,
        }
    }
}

/// How a round is opened, checked.
pub(super) struct Opening {
    pub users: usize,
    pub users_min: usize,
    pub request_max: Duration,
    pub upload_max: Duration,
}

impl Host {
    pub fn new(
        terms: Terms,
        key: ControllerKey,
        memory: Box<dyn RoundMemory>,
        metrics: TrainMetrics,
    ) -> Arc<Self> {
        let state =
            State { rounds: memory.rounds(), spent: memory.spent(), open: None, last: None };
        Arc::new(Self {
            terms,
            key,
            memory: Arc::new(AsyncMutex::new(memory)),
            state: Mutex::new(state),
            changes: watch::channel(0).0,
            metrics,
        })
    }

    pub fn info(&self) -> TrainInfo {
        let state = self.state();
        let open = state.open.as_ref();
        TrainInfo {
            terms: self.terms.clone(),
            public_key: self.key.public(),
            rounds: state.rounds,
            open: open.map(|open| (open.sealed.round(), open.stage)),
            users: open.map_or([0; 3], |open| {
                [open.sealed.users(), open.sealed.requested(), open.sealed.uploaded()]
            }),
            software: SOFTWARE.into(),
        }
    }

    /// Opens a round; the deadline for its requests is watched from now on.
    pub fn open(self: &Arc<Self>, opening: &Opening) -> Result<u64, Refusal> {
        let &Opening { users, users_min, request_max, upload_max } = opening;
        let users_max = self.terms.spec().users_max;
        if users > users_max {
            return Err(TrainRefusal::TooManyUsers { users, users_max }.into());
        }
        for (name, value, max) in
            [("users", users, users_max), ("users_min", users_min, users.max(1))]
        {
            if !(1..=max).contains(&value) {
                let (name, value, max) = (name.to_owned(), value as u64, max as u64);
                return Err(TrainRefusal::BadSetting { name, value, min: 1, max }.into());
            }
        }
        let mut state = self.state();
        if let Some(open) = &state.open {
            return Err(TrainRefusal::RoundOpen { round: open.sealed.round() }.into());
        }
        // Before users have sent anything.
        if let Some(BudgetSpent { rounds, message }) = state.spent.clone() {
            return Err(TrainRefusal::BudgetSpent { rounds, message }.into());
        }
        // Zero says that there is none.
        let round = random_round().map_err(|error| self.failed("draw a number", &error))?.max(1);
        let sealed = SealedRound::new(&self.terms, round, users)
            .map_err(|error| self.failed("open a round", &error))?;
        let requests_until = Instant::now() + request_max;
        state.open = Some(Open {
            sealed,
            stage: RoundStage::Requests,
            users_min,
            upload_max,
            uploads_until: None,
        });
        drop(state);
        self.metrics.rounds_opened.inc();
        self.changed();
        let host = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(requests_until).await;
            if let Some(host) = host.upgrade() {
                host.close_in_time(round).await;
            }
        });
        tracing::info!(round, users, users_min, "opened a round");
        Ok(round)
    }

    /// Takes a user's request; the last user's begins the round.
    pub async fn request(
        self: &Arc<Self>,
        round: u64,
        user: u32,
        sealed: bytes::Bytes,
    ) -> Result<(), Refusal> {
        let host = Arc::clone(self);
        let all_came = blocking(move || {
            let mut state = host.state();
            let open = state.open_mut(round)?;
            let taken = open.sealed.request(&host.key, user, &sealed);
            taken.map_err(|error| host.refuse("request", &error))?;
            let all_came = open.sealed.requested() == open.sealed.users();
            Ok(all_came && open.stage == RoundStage::Requests)
        })
        .await?;
        self.changed();
        if all_came {
            // The reply need not wait for the memory.
            let host = Arc::clone(self);
            tokio::spawn(async move { host.begin(round, false).await });
        }
        Ok(())
    }

    /// Begins the round with whoever has come. Returns their number.
    pub async fn close(self: &Arc<Self>, round: u64) -> Result<usize, Refusal> {
        let requested = {
            let mut state = self.state();
            let open = state.open_mut(round)?;
            let (users, users_min) = (open.sealed.requested(), open.users_min);
            if open.stage == RoundStage::Requests && users < users_min {
                return Err(TrainRefusal::TooFewUsers { users, users_min }.into());
            }
            users
        };
        self.begin(round, false).await?;
        Ok(requested)
    }

    async fn close_in_time(self: &Arc<Self>, round: u64) {
        if let Err(refusal) = self.begin(round, true).await {
            tracing::debug!(round, %refusal, "the deadline for requests passed");
        }
    }

    /// Fetches the rows, unless that was begun already.
    async fn begin(self: &Arc<Self>, round: u64, is_late: bool) -> Result<(), Refusal> {
        let mut memory = Arc::clone(&self.memory).lock_owned().await;
        let host = Arc::clone(self);
        blocking(move || {
            let (users, ids) = {
                let mut state = host.state();
                let open = state.open_mut(round)?;
                if open.stage != RoundStage::Requests {
                    return Ok(());
                }
                let requested = open.sealed.requested();
                if requested < open.users_min {
                    let (users, users_min) = (requested, open.users_min);
                    if is_late {
                        tracing::warn!(round, users, users_min, "too few users came in time");
                        host.end(&mut state, Ended::Otherwise(Outcome::Deserted));
                    }
                    return Err(TrainRefusal::TooFewUsers { users, users_min }.into());
                }
                open.stage = RoundStage::Beginning;
                (open.sealed.users(), Zeroizing::new(open.sealed.close().to_vec()))
            };
            host.changed();
            let started = std::time::Instant::now();
            let begun = memory.begin(users, &ids);
            host.metrics.begin_seconds.observe(started.elapsed().as_secs_f64());
            let mut state = host.state();
            state.spent = memory.spent();
            let result = match begun {
                Ok(()) => {
                    let open = state.open_mut(round)?;
                    open.stage = RoundStage::Serving;
                    open.uploads_until = Some(Instant::now() + open.upload_max);
                    Ok(())
                }
                Err(error) => {
                    let refusal = host.failed("begin a round", &*error);
                    host.end(&mut state, Ended::Otherwise(Outcome::Failed));
                    Err(refusal)
                }
            };
            drop(state);
            host.changed();
            result
        })
        .await
    }

    /// A user's sealed rows, as soon as the round has begun.
    pub async fn rows(
        self: &Arc<Self>,
        round: u64,
        user: u32,
        wait_max: Duration,
    ) -> Result<Vec<u8>, Refusal> {
        let has_begun = |open: &Open| open.stage == RoundStage::Serving;
        self.wait(round, wait_max, Awaited::Requests, has_begun, |_| None).await?;
        let mut memory = Arc::clone(&self.memory).lock_owned().await;
        let host = Arc::clone(self);
        blocking(move || {
            let refuse = |error| host.refuse("rows", &error);
            host.state().serving_mut(round)?.sealed.check_member(user).map_err(refuse)?;
            let shape = host.terms.shape();
            let (mut rows, mut found) =
                (Zeroizing::new(vec![0.0; shape.numbers()]), vec![false; shape.slots()]);
            memory
                .rows(user as usize, &mut rows, &mut found)
                .map_err(|error| host.failed("give a user its rows", &*error))?;
            let mut state = host.state();
            state.serving_mut(round)?.sealed.reply(user, &rows, &found).map_err(refuse)
        })
        .await
    }

    /// Takes a user's upload.
    pub async fn upload(
        self: &Arc<Self>,
        round: u64,
        user: u32,
        sealed: bytes::Bytes,
    ) -> Result<(), Refusal> {
        let mut memory = Arc::clone(&self.memory).lock_owned().await;
        let host = Arc::clone(self);
        blocking(move || {
            let taken = {
                let mut state = host.state();
                let open = state.serving_mut(round)?;
                open.sealed.upload(user, &sealed).map_err(|error| host.refuse("upload", &error))?
            };
            if let Some(upload) = taken {
                let gradients = Zeroizing::new(upload.gradients);
                memory
                    .add(user as usize, &gradients, upload.weight)
                    .map_err(|error| host.failed("add a user's gradients", &*error))?;
            }
            host.changed();
            Ok(())
        })
        .await
    }

    /// Commits, once all that asked have uploaded, the deadline for uploads is over, or `now`.
    pub async fn finish(
        self: &Arc<Self>,
        round: u64,
        now: bool,
        wait_max: Duration,
    ) -> Result<RoundReport, Refusal> {
        let is_ready = move |open: &Open| {
            let complete = open.sealed.uploaded() == open.sealed.requested();
            let is_late = open.uploads_until.is_some_and(|until| until <= Instant::now());
            open.stage == RoundStage::Serving && (now || complete || is_late)
        };
        let waits_until = |open: &Open| open.uploads_until;
        self.wait_or_end(round, wait_max, Awaited::Uploads, is_ready, waits_until).await?;
        let mut memory = Arc::clone(&self.memory).lock_owned().await;
        let host = Arc::clone(self);
        blocking(move || {
            let (users, requested, uploaded) = {
                let mut state = host.state();
                if let Some(report) = state.report(round)? {
                    return Ok(report);
                }
                let open = state.serving_mut(round)?;
                open.stage = RoundStage::Finishing;
                (open.sealed.users(), open.sealed.requested(), open.sealed.uploaded())
            };
            host.changed();
            let started = std::time::Instant::now();
            let committed = memory.commit();
            host.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
            let mut state = host.state();
            let result = match committed {
                Ok(done) => {
                    host.metrics.read_bytes.inc_by(done.read_bytes);
                    host.metrics.written_bytes.inc_by(done.written_bytes);
                    state.rounds = done.rounds;
                    let report = RoundReport { round, users, requested, uploaded, ..done };
                    tracing::info!(round, rounds = report.rounds, uploaded, "committed a round");
                    host.end(&mut state, Ended::Committed(report.clone()));
                    Ok(report)
                }
                Err(error) => {
                    let refusal = host.failed("commit a round", &*error);
                    host.end(&mut state, Ended::Otherwise(Outcome::Failed));
                    Err(refusal)
                }
            };
            drop(state);
            host.changed();
            result
        })
        .await
    }

    /// Ends the round without an update.
    pub async fn abandon(self: &Arc<Self>, round: u64) -> Result<(), Refusal> {
        let mut memory = Arc::clone(&self.memory).lock_owned().await;
        let host = Arc::clone(self);
        blocking(move || {
            if matches!(&host.state().last, Some((last, Ended::Otherwise(_))) if *last == round) {
                return Ok(());
            }
            host.give_up(Some(round), memory.as_mut())
        })
        .await
    }

    /// Ends whatever round is open: the server stops.
    pub async fn stop(self: &Arc<Self>) {
        let mut memory = Arc::clone(&self.memory).lock_owned().await;
        let host = Arc::clone(self);
        let stopped = blocking(move || {
            let is_open = host.state().open.is_some();
            if is_open { host.give_up(None, memory.as_mut()) } else { Ok(()) }
        });
        if let Err(refusal) = stopped.await {
            tracing::error!(%refusal, "the open round could not be abandoned");
        }
    }

    fn give_up(&self, round: Option<u64>, memory: &mut dyn RoundMemory) -> Result<(), Refusal> {
        let has_begun = {
            let mut state = self.state();
            if let Some(round) = round {
                state.open_mut(round)?;
            }
            state.open.as_ref().is_some_and(|open| open.stage == RoundStage::Serving)
        };
        let abandoned = if has_begun { memory.abandon() } else { Ok(()) };
        let mut state = self.state();
        let result = match abandoned {
            Ok(()) => {
                self.end(&mut state, Ended::Otherwise(Outcome::Abandoned));
                Ok(())
            }
            Err(error) => {
                self.end(&mut state, Ended::Otherwise(Outcome::Failed));
                Err(self.failed("abandon a round", &*error))
            }
        };
        drop(state);
        self.changed();
        result
    }

    fn end(&self, state: &mut State, ended: Ended) {
        match ended.outcome() {
            Outcome::Committed => self.metrics.rounds_committed.inc(),
            _ => self.metrics.rounds_abandoned.inc(),
        };
        if let Some(open) = state.open.take() {
            state.last = Some((open.sealed.round(), ended));
        }
        // Whoever waits sees the end at once; the lock is the caller's still.
        self.changed();
    }

    /// Waits until `is_ready`, for at most `wait_max` or until the round itself gets on.
    async fn wait(
        &self,
        round: u64,
        wait_max: Duration,
        awaited: Awaited,
        is_ready: impl Fn(&Open) -> bool,
        deadline: impl Fn(&Open) -> Option<Instant>,
    ) -> Result<(), Refusal> {
        let give_up = Instant::now() + wait_max;
        let mut changes = self.changes.subscribe();
        loop {
            let next = {
                let mut state = self.state();
                let open = state.open_mut(round)?;
                if is_ready(open) {
                    return Ok(());
                }
                deadline(open).filter(|at| *at > Instant::now())
            };
            if Instant::now() >= give_up {
                let retry_after = RETRY_AFTER;
                return Err(TrainRefusal::Pending { round, awaited, retry_after }.into());
            }
            let until = next.map_or(give_up, |at| at.min(give_up));
            // Either something changed, or it is time to look again.
            let _ = timeout_at(until, changes.changed()).await;
        }
    }

    /// As [`wait`](Self::wait), and over where the round was committed.
    async fn wait_or_end(
        &self,
        round: u64,
        wait_max: Duration,
        awaited: Awaited,
        is_ready: impl Fn(&Open) -> bool,
        deadline: impl Fn(&Open) -> Option<Instant>,
    ) -> Result<(), Refusal> {
        match self.wait(round, wait_max, awaited, is_ready, deadline).await {
            Err(Refusal::Train(TrainRefusal::RoundOver {
                outcome: Outcome::Committed, ..
            })) => Ok(()),
            other => other,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    fn refuse(&self, what: &str, error: &hushtable_oram::wire::Error) -> Refusal {
        self.metrics.messages_refused.inc();
        TrainRefusal::of_message(what, error).into()
    }

    fn failed(&self, what: &str, error: &dyn std::error::Error) -> Refusal {
        tracing::error!(%error, "could not {what}");
        Refusal::Backend
    }
}

impl State {
    fn open_mut(&mut self, round: u64) -> Result<&mut Open, Refusal> {
        match (&mut self.open, &self.last) {
            (Some(open), _) if open.sealed.round() == round => Ok(open),
            (_, Some((last, ended))) if *last == round => {
                Err(TrainRefusal::RoundOver { round, outcome: ended.outcome() }.into())
            }
            _ => Err(TrainRefusal::NoRound { round }.into()),
        }
    }

    fn serving_mut(&mut self, round: u64) -> Result<&mut Open, Refusal> {
        let open = self.open_mut(round)?;
        match open.stage {
            RoundStage::Serving => Ok(open),
            _ => Err(TrainRefusal::NotBegun { round }.into()),
        }
    }

    /// The report of a round that was committed already.
    fn report(&self, round: u64) -> Result<Option<RoundReport>, Refusal> {
        match &self.last {
            Some((last, Ended::Committed(report))) if *last == round => Ok(Some(report.clone())),
            _ => Ok(None),
        }
    }
}

/// Runs what may block off the threads of connections, to its end even where nobody waits any more.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    // A panic was logged where it happened.
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Refusal::Backend))
}

const RETRY_AFTER: Duration = Duration::from_millis(1);
