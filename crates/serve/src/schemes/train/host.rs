//! Drives the rounds of a server: locks, timers, threads around [`Rounds`], which knows who came, what
//! the round waits for and when it goes on.
//!
//! Two locks, always taken in this order: the memory's, held through calls that may take seconds,
//! by one call at a time and off the threads of connections; the rounds', held for microseconds. A
//! round goes on by whoever finds it due (the last user to come, the deadline, the operator), and
//! what it comes to is written down by the same work, so that a client that goes away meanwhile
//! loses nothing but its reply.

use std::error::Error as StdError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hushtable_oram::round::Error as RoundError;
use hushtable_oram::rounds::{
    self, MemoryFailed, Next, OpenRound, Progress, Refused, RoundLimits, Rounds,
};
use hushtable_oram::wire::{ControllerKey, RefusedReason, Terms, random_round};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use super::info::TrainInfo;
use super::metrics::TrainMetrics;
use super::{Awaited, BudgetSpent, Outcome, RoundMemory, RoundReport, TrainRefusal};
use crate::Refusal;
use crate::host::SOFTWARE;

/// The rounds of one controller.
pub(super) struct Host {
    rounds: Mutex<Rounds>,
    memory: Arc<AsyncMutex<Box<dyn RoundMemory>>>,
    /// Counts changes of the rounds, for those that wait for one.
    changes: watch::Sender<u64>,
    metrics: TrainMetrics,
}

impl Host {
    pub fn new(
        terms: Terms,
        key: ControllerKey,
        memory: Box<dyn RoundMemory>,
        metrics: TrainMetrics,
    ) -> Arc<Self> {
        let rounds = Rounds::new(terms, key, memory.rounds(), memory.spent());
        Arc::new(Self {
            rounds: Mutex::new(rounds),
            memory: Arc::new(AsyncMutex::new(memory)),
            changes: watch::channel(0).0,
            metrics,
        })
    }

    pub fn info(&self) -> TrainInfo {
        let rounds = self.rounds();
        let open = rounds.open_round();
        let counts = |open: OpenRound| [open.users, open.requested, open.uploaded];
        TrainInfo {
            terms: rounds.terms().clone(),
            public_key: rounds.key().public(),
            rounds: rounds.committed_count(),
            open: open.map(|open| (open.round, open.stage)),
            users: open.map_or([0; 3], counts),
            software: SOFTWARE.into(),
        }
    }

    /// Opens a round; the deadline for its requests is watched from now on.
    pub fn open(self: &Arc<Self>, terms: &RoundLimits) -> Result<u64, Refusal> {
        // Zero says that there is none.
        let round = random_round().map_err(|error| failed("draw a number", &error))?.max(1);
        let now = Instant::now();
        let opened = self.rounds().open(terms, round, now.into_std());
        opened.map_err(|refused| self.refuse(refused))?;
        self.metrics.rounds_opened.inc();
        self.changed();
        let &RoundLimits { users, users_min, request_max, .. } = terms;
        if let Some(until) = request_max.and_then(|time| now.checked_add(time)) {
            let host = Arc::downgrade(self);
            tokio::spawn(async move {
                tokio::time::sleep_until(until).await;
                if let Some(host) = host.upgrade() {
                    host.drive_if_due();
                }
            });
        }
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
        blocking(move || {
            let taken = host.rounds().request(round, user, &sealed);
            taken.map_err(|refused| host.refuse(refused))
        })
        .await?;
        self.changed();
        // The reply need not wait for the memory.
        self.drive_if_due();
        Ok(())
    }

    /// Begins the round with whoever has come. Returns their number.
    pub async fn close(self: &Arc<Self>, round: u64) -> Result<usize, Refusal> {
        self.settle(round, None, |rounds, _| rounds.close(round)).await
    }

    /// A user's sealed rows, as soon as the round has begun.
    pub async fn rows(
        self: &Arc<Self>,
        round: u64,
        user: u32,
        wait_max: Duration,
    ) -> Result<Vec<u8>, Refusal> {
        self.settle(round, Some(wait_max), |rounds, _| rounds.rows(round, user)).await?;
        let mut memory = Arc::clone(&self.memory).lock_owned().await;
        let host = Arc::clone(self);
        blocking(move || {
            // It may be over by now, but it cannot end before this call has let go of the memory.
            let (promised, shape) = {
                let mut rounds = host.rounds();
                (rounds.rows(round, user), rounds.terms().shape())
            };
            if promised.map_err(|refused| host.refuse(refused))? != Progress::Done(()) {
                return Err(TrainRefusal::NotBegun { round }.into());
            }
            let mut rows = Zeroizing::new(vec![0.0; shape.numbers()]);
            let mut found = vec![false; shape.slots()];
            memory
                .rows(user as usize, &mut rows, &mut found)
                .map_err(|error| failed("give a user its rows", &*error))?;
            let sealed = host.rounds().seal(round, user, &rows, &found);
            sealed.map_err(|refused| host.refuse(refused))
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
            let taken = host.rounds().upload(round, user, &sealed);
            match taken.map_err(|refused| host.refuse(refused))? {
                Progress::Done(Some(upload)) => {
                    let gradients = Zeroizing::new(upload.gradients);
                    if let Err(error) = memory.add(user as usize, &gradients, upload.weight) {
                        return Err(host.not_added(user, &*error));
                    }
                }
                Progress::Done(None) => {}
                // Not while this call has the memory.
                _ => return Err(TrainRefusal::NotBegun { round }.into()),
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
        self.settle(round, Some(wait_max), |rounds, at| rounds.finish(round, now, at)).await
    }

    /// Ends the round without an update.
    pub async fn abandon(self: &Arc<Self>, round: u64) -> Result<(), Refusal> {
        self.settle(round, None, |rounds, _| rounds.abandon(round)).await
    }

    /// Ends whatever round is open: the server stops.
    pub async fn stop(self: &Arc<Self>) {
        let open = self.rounds().open_round();
        let Some(OpenRound { round, .. }) = open else { return };
        match self.abandon(round).await {
            // A commit that was under way has come to its end.
            Ok(()) | Err(Refusal::Train(TrainRefusal::RoundOver { .. })) => {}
            Err(refusal) => tracing::error!(%refusal, "the open round could not be abandoned"),
        }
    }

    /// Makes a call until it is answered, doing what the round asks for meanwhile; for at most
    /// `wait_max`, where that is given.
    async fn settle<T>(
        self: &Arc<Self>,
        round: u64,
        wait_max: Option<Duration>,
        call: impl Fn(&mut Rounds, std::time::Instant) -> Result<Progress<T>, Refused>,
    ) -> Result<T, Refusal> {
        let give_up = wait_max.map(|wait_max| Instant::now() + wait_max);
        let mut changes = self.changes.subscribe();
        loop {
            let progress = call(&mut self.rounds(), Instant::now().into_std());
            match progress.map_err(|refused| self.refuse(refused))? {
                Progress::Done(answer) => return Ok(answer),
                Progress::Due => self.drive().await?,
                Progress::Wait { awaited, until } => {
                    if give_up.is_some_and(|at| at <= Instant::now()) {
                        let (awaited, retry_after) = (of_awaited(awaited), RETRY_AFTER);
                        return Err(TrainRefusal::Pending { round, awaited, retry_after }.into());
                    }
                    // Either something changes, or it is time to look again.
                    let until = until.map(Instant::from_std);
                    match until.into_iter().chain(give_up).min() {
                        Some(at) => drop(timeout_at(at, changes.changed()).await),
                        None => drop(changes.changed().await),
                    }
                }
                // What a later version may say, and nothing says yet.
                _ => return Err(Refusal::Backend),
            }
        }
    }

    /// Does what the round asks for in the background, if it asks for anything.
    fn drive_if_due(self: &Arc<Self>) {
        if self.rounds().is_due(std::time::Instant::now()) {
            let host = Arc::clone(self);
            // What goes wrong is logged, and users are told as they ask.
            tokio::spawn(async move { host.drive().await });
        }
    }

    /// Does what the round asks for until it waits. It goes on to its end even where nobody waits for
    /// it any more. An error where the memory failed at it.
    async fn drive(self: &Arc<Self>) -> Result<(), Refusal> {
        let host = Arc::clone(self);
        let driven = tokio::spawn(async move {
            let mut memory = Arc::clone(&host.memory).lock_owned().await;
            blocking(move || host.work(memory.as_mut())).await
        });
        driven.await.unwrap_or(Err(Refusal::Backend))
    }

    fn work(&self, memory: &mut dyn RoundMemory) -> Result<(), Refusal> {
        let mut worked = Ok(());
        let mut tell = |what, error: Box<dyn StdError + Send + Sync>| {
            worked = Err(failed(what, &*error));
            MemoryFailed
        };
        loop {
            let next = self.rounds().next(std::time::Instant::now());
            self.changed();
            let started = std::time::Instant::now();
            match next {
                Next::Begin { users, ids } => {
                    let begun = memory.begin(users, &ids);
                    self.metrics.begin_seconds.observe(started.elapsed().as_secs_f64());
                    let begun = begun.map_err(|error| tell("begin a round", error));
                    let (spent, now) = (memory.spent(), std::time::Instant::now());
                    self.rounds().begun(begun, spent, now);
                }
                Next::Commit => {
                    let committed = memory.commit();
                    self.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
                    if let Ok(report) = &committed {
                        self.metrics.read_bytes.inc_by(report.read_bytes);
                        self.metrics.written_bytes.inc_by(report.written_bytes);
                    }
                    let committed = committed.map_err(|error| tell("commit a round", error));
                    self.rounds().committed(committed);
                }
                Next::Abandon => {
                    let abandoned = memory.abandon();
                    let abandoned = abandoned.map_err(|error| tell("abandon a round", error));
                    self.rounds().abandoned(abandoned);
                }
                Next::Over { round, outcome } => {
                    match outcome {
                        rounds::Outcome::Committed => self.metrics.rounds_committed.inc(),
                        _ => self.metrics.rounds_abandoned.inc(),
                    };
                    tracing::info!(round, %outcome, rounds = memory.rounds(), "a round is over");
                }
                _ => return worked,
            }
            self.changed();
        }
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// What a user is told whose upload was taken and could not be added. It may send another: without
    /// this, the same one sent again would be answered as if it counted.
    fn not_added(&self, user: u32, error: &(dyn StdError + 'static)) -> Refusal {
        let gradients = match error.downcast_ref::<RoundError>() {
            Some(RoundError::Gradients(error)) => Some(error.reason()),
            _ => None,
        };
        let reason = gradients.unwrap_or(RefusedReason::Failed);
        let refused = self.rounds().not_added(user, reason);
        match gradients {
            Some(_) => self.refuse(refused),
            None => failed("add a user's gradients", error),
        }
    }

    fn refuse(&self, refused: Refused) -> Refusal {
        match refused {
            Refused::Message { what, source } => {
                self.metrics.messages_refused.inc();
                TrainRefusal::of_message(what, &source)
            }
            Refused::NoRound { round } => TrainRefusal::NoRound { round },
            Refused::RoundOpen { round } => TrainRefusal::RoundOpen { round },
            Refused::Over { round, outcome } => {
                TrainRefusal::RoundOver { round, outcome: of_outcome(outcome) }
            }
            Refused::NotBegun { round } => TrainRefusal::NotBegun { round },
            Refused::TooFewUsers { users, users_min } => {
                TrainRefusal::TooFewUsers { users, users_min }
            }
            Refused::TooManyUsers { users, users_max } => {
                TrainRefusal::TooManyUsers { users, users_max }
            }
            Refused::Setting { name, value, min, max } => {
                TrainRefusal::BadSetting { name: name.to_owned(), value, min, max }
            }
            Refused::BudgetSpent(BudgetSpent { rounds, message }) => {
                TrainRefusal::BudgetSpent { rounds, message }
            }
            other => return failed("answer a call", &other),
        }
        .into()
    }
}

fn of_outcome(outcome: rounds::Outcome) -> Outcome {
    match outcome {
        rounds::Outcome::Committed => Outcome::Committed,
        rounds::Outcome::Abandoned => Outcome::Abandoned,
        rounds::Outcome::Deserted => Outcome::Deserted,
        _ => Outcome::Failed,
    }
}

fn of_awaited(awaited: rounds::Awaited) -> Awaited {
    match awaited {
        rounds::Awaited::Uploads => Awaited::Uploads,
        _ => Awaited::Requests,
    }
}

/// Says in the log what users are not told.
fn failed(what: &str, error: &dyn StdError) -> Refusal {
    tracing::error!(%error, "could not {what}");
    Refusal::Backend
}

/// Runs what may block off the threads of connections, to its end even where nobody waits any more.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    // A panic was logged where it happened.
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Refusal::Backend))
}

const RETRY_AFTER: Duration = Duration::from_millis(1);
