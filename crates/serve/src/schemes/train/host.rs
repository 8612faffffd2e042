//! Drives the rounds of a server: locks, timers, threads around [`Rounds`], which knows who came, what
//! the round waits for and when it goes on.
//!
//! Two locks, always taken in this order: the memory's, held through calls that may take seconds,
//! by one call at a time and off the threads of connections; the rounds', held for microseconds. A
//! round goes on by whoever finds it due (the last user to come, the deadline, the operator), and
//! what it comes to is written down by the same work, so that a client that goes away meanwhile
//! loses nothing but its reply.

mod asking;

use std::error::Error as StdError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hushtable_oram::round::Error as RoundError;
use hushtable_oram::rounds::{
    self, MemoryFailed, Next, NotCommitted, OpenRound, Progress, Refused, RoundLimits, RoundStage,
    Rounds,
};
use hushtable_oram::wire::{ControllerKey, Pin, RefusedReason, Terms, random_round};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::{Instant, timeout_at};
use zeroize::Zeroizing;

use super::audit::{Audit, Committed, Event, REFUSED_MAX};
use super::info::TrainInfo;
use super::metrics::TrainMetrics;
use super::seats::{Given, Place, Seats};
use super::{
    Awaited, BudgetSpent, CommitError, MemoryError, Outcome, RoundMemory, RoundReport, TrainRefusal,
};
use crate::endpoint::SOFTWARE;
use crate::{Limit, Refusal};

/// The rounds of one controller.
pub(super) struct Host {
    rounds: Mutex<Rounds>,
    /// Locked after `rounds` where both are.
    seats: Mutex<Seats>,
    memory: Arc<AsyncMutex<Box<dyn RoundMemory>>>,
    /// Counts changes of the rounds, for those that wait for one.
    changes: watch::Sender<u64>,
    metrics: TrainMetrics,
    /// Whether rounds can be written, as it was last seen.
    writable: watch::Sender<bool>,
    audit: Option<Audit>,
    /// Messages of the open round that were refused.
    refused: AtomicU64,
}

impl Host {
    pub fn new(
        terms: Terms,
        key: ControllerKey,
        memory: Box<dyn RoundMemory>,
        metrics: TrainMetrics,
        seats: Seats,
        audit: Option<Audit>,
    ) -> Arc<Self> {
        let (committed, settled) = (memory.rounds(), memory.settled());
        if let Some(audit) = &audit {
            let pin = Pin::new(key.public(), &terms).to_string();
            audit.note(Event::Started { software: SOFTWARE, pin, rounds: committed });
        }
        let rounds = Rounds::new(terms, key, committed, memory.spent(), &settled);
        Arc::new(Self {
            rounds: Mutex::new(rounds),
            seats: Mutex::new(seats),
            memory: Arc::new(AsyncMutex::new(memory)),
            changes: watch::channel(0).0,
            metrics,
            writable: watch::channel(true).0,
            audit,
            refused: AtomicU64::new(0),
        })
    }

    /// The memory below, for what is no round's.
    pub fn memory(&self) -> &Arc<AsyncMutex<Box<dyn RoundMemory>>> {
        &self.memory
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

    /// Opens a round, once it is sure that it can be written, to the audit log too; its deadlines are
    /// watched from now on.
    pub async fn open(self: &Arc<Self>, terms: RoundLimits) -> Result<u64, Refusal> {
        // Zero says that there is none.
        let round = random_round().map_err(|error| failed("draw a number", &error))?.max(1);
        self.check(terms.users).await?;
        let opened = self.rounds().open(&terms, round, Instant::now().into_std());
        opened.map_err(|refused| self.refuse(refused))?;
        self.metrics.rounds_opened.inc();
        self.refused.store(0, Ordering::Relaxed);
        self.changed();
        let RoundLimits { users, users_min, request_max, upload_max, finish_max } = terms;
        if let Some(until) = request_max.and_then(|time| Instant::now().checked_add(time)) {
            self.wake_at(until);
        }
        tracing::info!(round, users, users_min, "opened a round");
        if self.audit.is_some() {
            let ms = |time: Option<Duration>| time.map(|time| time.as_millis() as u64);
            let [request_ms, upload_ms, finish_ms] = [request_max, upload_max, finish_max].map(ms);
            let event = Event::Opened { round, users, users_min, request_ms, upload_ms, finish_ms };
            let host = Arc::clone(self);
            let note = move || Ok(host.audit.as_ref().is_none_or(|log| log.note_durably(event)));
            if !blocking(note).await? {
                self.abandon(round).await?;
                let retry_after = CHECK_EVERY;
                return Err(TrainRefusal::Unwritable { retry_after }.into());
            }
        }
        Ok(round)
    }

    /// Goes on with the round at a deadline.
    fn wake_at(self: &Arc<Self>, until: Instant) {
        let host = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            if let Some(host) = host.upgrade() {
                // What goes wrong is logged, and users are told as they ask.
                let _ = host.drive().await;
            }
        });
    }

    /// Whether rounds can be written, for those that wait for a change.
    pub fn writable(&self) -> watch::Receiver<bool> {
        self.writable.subscribe()
    }

    /// Makes sure, between rounds, that one of `users` users could be written, and learns how those
    /// ended of which nobody knew.
    async fn check(self: &Arc<Self>, users: usize) -> Result<(), Refusal> {
        let mut memory = Arc::clone(&self.memory).lock_owned().await;
        let host = Arc::clone(self);
        blocking(move || host.check_memory(memory.as_mut(), users)).await
    }

    fn check_memory(&self, memory: &mut dyn RoundMemory, users: usize) -> Result<(), Refusal> {
        // An open round has the memory; it moves on under the memory's lock only.
        if self.rounds().open_round().is_some_and(|open| open.stage != RoundStage::Requests) {
            return Ok(());
        }
        let logged = self.audit_fault().map_or(Ok(()), |fault| Err(MemoryError::from(fault)));
        let checked = logged.and_then(|()| memory.check(users));
        if let Err(error) = &checked {
            tracing::error!(%error, "rounds cannot be written");
        } else {
            let known = self.rounds().settle(memory.rounds(), &memory.settled());
            for (round, outcome) in known {
                self.over(round, outcome, memory.rounds());
            }
        }
        let is_writable = checked.is_ok();
        let was_other =
            |writable: &mut bool| std::mem::replace(writable, is_writable) != is_writable;
        if self.writable.send_if_modified(was_other) && is_writable {
            tracing::info!("rounds can be written again");
        }
        let retry_after = CHECK_EVERY;
        checked.map_err(|_| TrainRefusal::Unwritable { retry_after }.into())
    }

    /// Looks now and then, as long as there is a host, whether rounds can be written.
    pub fn watch(self: &Arc<Self>) {
        let host = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut pause = CHECK_EVERY;
            loop {
                let Some(host) = host.upgrade() else { return };
                // Opening a memory again may take long: not too often.
                pause = match host.check(1).await {
                    Ok(()) => CHECK_EVERY,
                    Err(_) => (pause * 2).min(CHECK_PAUSE_MAX),
                };
                drop(host);
                tokio::time::sleep(pause).await;
            }
        });
    }

    /// Begins the round with whoever has come. Returns their number.
    pub async fn close(self: &Arc<Self>, round: u64) -> Result<usize, Refusal> {
        self.settle(round, None, |rounds, _| rounds.close(round)).await
    }

    /// A user's sealed rows, as soon as the round has begun: made once, and given again as they are.
    pub async fn rows(
        self: &Arc<Self>,
        place: Place,
        wait_max: Duration,
    ) -> Result<Bytes, Refusal> {
        let Place { round, user, .. } = place;
        let note = |refused: &Refused| self.note_message(place, refused);
        let call = |rounds: &mut Rounds, _| rounds.rows(round, user).inspect_err(note);
        self.settle(round, Some(wait_max), call).await?;
        self.check_holder("rows", place)?;
        if let Some(sealed) = self.given(round, user)? {
            return Ok(sealed);
        }
        let mut memory = Arc::clone(&self.memory).lock_owned().await;
        let host = Arc::clone(self);
        blocking(move || {
            // It may be over by now, but it cannot end before this call has let go of the memory.
            let (promised, shape) = {
                let mut rounds = host.rounds();
                (rounds.rows(round, user), rounds.terms().shape())
            };
            if promised.map_err(|refused| host.refuse_of(place, refused))? != Progress::Done(()) {
                return Err(TrainRefusal::NotBegun { round }.into());
            }
            // Another call of the same user's may have had the memory meanwhile.
            if let Some(sealed) = host.given(round, user)? {
                return Ok(sealed);
            }
            let mut rows = Zeroizing::new(vec![0.0; shape.numbers()]);
            let mut found = vec![false; shape.slots()];
            memory
                .rows(user as usize, &mut rows, &mut found)
                .map_err(|error| failed("give a user its rows", &*error))?;
            let sealed = host.rounds().seal(round, user, &rows, &found);
            let sealed = Bytes::from(sealed.map_err(|refused| host.refuse_of(place, refused))?);
            host.seats().keep(round, user, &sealed, Instant::now());
            Ok(sealed)
        })
        .await
    }

    /// The sealed rows that a user was given before, where they are kept.
    fn given(&self, round: u64, user: u32) -> Result<Option<Bytes>, Refusal> {
        match self.seats().given(round, user, Instant::now()) {
            Given::Kept(sealed) => Ok(Some(sealed)),
            Given::Nothing => Ok(None),
            Given::Lately { retry_after } => {
                Err(Refusal::Busy { limit: Limit::RowsAgain, retry_after })
            }
        }
    }

    /// Refuses whoever's certificate is another than the one that took the place, and whoever has lost
    /// it, as it refuses a place that nobody took.
    fn check_holder(&self, what: &'static str, place: Place) -> Result<(), Refusal> {
        let reason = self.seats().is_anothers(&place);
        match reason {
            Some(reason) => {
                self.note_refused(place, what, reason);
                Err(TrainRefusal::NotRequested { user: place.user }.into())
            }
            None => Ok(()),
        }
    }

    /// Takes a user's upload.
    pub async fn upload(self: &Arc<Self>, place: Place, sealed: Bytes) -> Result<(), Refusal> {
        let Place { round, user, .. } = place;
        self.check_holder("upload", place)?;
        let mut memory = Arc::clone(&self.memory).lock_owned().await;
        let host = Arc::clone(self);
        blocking(move || {
            // Taken meanwhile, by another.
            host.check_holder("upload", place)?;
            let taken = host.rounds().upload(round, user, &sealed);
            match taken.map_err(|refused| host.refuse_of(place, refused))? {
                Progress::Done(Some(upload)) => {
                    let gradients = Zeroizing::new(upload.gradients);
                    if let Err(error) = memory.add(user as usize, &gradients, upload.weight) {
                        return Err(host.not_added(place, &*error));
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
            Ok(()) => {}
            Err(refusal) if matches!(refusal.of(), Some(TrainRefusal::RoundOver { .. })) => {}
            Err(refusal) => tracing::error!(%refusal, "the open round could not be abandoned"),
        }
    }

    /// The server has stopped: notes so, durably.
    pub async fn note_stopped(self: &Arc<Self>) {
        let host = Arc::clone(self);
        let note = move || {
            let rounds = host.rounds().committed_count();
            let event = Event::Stopped { rounds };
            Ok(host.audit.as_ref().is_none_or(|audit| audit.note_durably(event)))
        };
        // The log's own writer says what was lost.
        drop(blocking(note).await);
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
            let mut progress = call(&mut self.rounds(), Instant::now().into_std());
            if let Err(Refused::Over { outcome: rounds::Outcome::Unknown, .. }) = progress
                && self.check(1).await.is_ok()
            {
                progress = call(&mut self.rounds(), Instant::now().into_std());
            }
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

    fn work(self: &Arc<Self>, memory: &mut dyn RoundMemory) -> Result<(), Refusal> {
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
                Next::Begin { name, users, ids } => {
                    self.seats().begin();
                    let begun = memory.begin(name, users, &ids);
                    self.metrics.begin_seconds.observe(started.elapsed().as_secs_f64());
                    let begun = begun.map_err(|error| tell("begin a round", error));
                    let (spent, now) = (memory.spent(), std::time::Instant::now());
                    let is_begun = begun.is_ok();
                    self.rounds().begun(begun, spent, now);
                    if is_begun {
                        self.note_begun(memory.accesses());
                    }
                }
                Next::Commit => {
                    let committed = memory.commit();
                    self.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
                    if let Ok(report) = &committed {
                        self.metrics.read_bytes.inc_by(report.read_bytes);
                        self.metrics.written_bytes.inc_by(report.written_bytes);
                    }
                    let committed = committed.map_err(|error| {
                        let (error, not_committed) = match error {
                            CommitError::Failed(error) => (error, NotCommitted::Failed),
                            CommitError::Unsettled(error) => (error, NotCommitted::Unsettled),
                        };
                        let MemoryFailed = tell("commit a round", error);
                        not_committed
                    });
                    self.rounds().committed(committed);
                }
                Next::Abandon => {
                    let abandoned = memory.abandon();
                    let abandoned = abandoned.map_err(|error| tell("abandon a round", error));
                    self.rounds().abandoned(abandoned);
                }
                Next::Over { round, outcome } => {
                    self.seats().clear();
                    self.over(round, outcome, memory.rounds());
                }
                Next::Wait { until } => {
                    if let Some(until) = until {
                        self.wake_at(Instant::from_std(until));
                    }
                    if worked.is_err() {
                        // Whether that was all, and what became of the round.
                        let _ = self.check_memory(memory, 1);
                    }
                    return worked;
                }
                _ => return worked,
            }
            self.changed();
        }
    }

    /// Tells the operator how a round ended, once it is known.
    fn over(&self, round: u64, outcome: rounds::Outcome, rounds: u64) {
        self.note_over(round, outcome);
        match outcome {
            rounds::Outcome::Committed => drop(self.metrics.rounds_committed.inc()),
            rounds::Outcome::Unknown => {}
            _ => drop(self.metrics.rounds_abandoned.inc()),
        }
        tracing::info!(round, %outcome, rounds, "a round is over");
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// What a user is told whose upload was taken and could not be added. It may send another: without
    /// this, the same one sent again would be answered as if it counted.
    fn not_added(&self, place: Place, error: &(dyn StdError + 'static)) -> Refusal {
        let gradients = match error.downcast_ref::<RoundError>() {
            Some(RoundError::Gradients(error)) => Some(error.reason()),
            _ => None,
        };
        let reason = gradients.unwrap_or(RefusedReason::Failed);
        let refused = self.rounds().not_added(place.user, reason);
        match gradients {
            Some(_) => self.refuse_of(place, refused),
            None => failed("add a user's gradients", error),
        }
    }

    /// As [`refuse`](Self::refuse), for what the user of a place has sent or asked for.
    fn refuse_of(&self, place: Place, refused: Refused) -> Refusal {
        self.note_message(place, &refused);
        self.refuse(refused)
    }

    fn note_message(&self, place: Place, refused: &Refused) {
        if let Refused::Message { what, source } = refused {
            self.note_refused(place, what, source.reason().name());
        }
    }

    /// Tells the operator why a message is refused, and whose place it was for. The user is told no more
    /// than that it is.
    fn note_refused(&self, place: Place, what: &'static str, reason: &'static str) {
        let Place { round, user, .. } = place;
        self.metrics.refuse(what, reason);
        // Who sends rubbish must fill neither the log nor the disk.
        if self.refused.fetch_add(1, Ordering::Relaxed) < REFUSED_MAX {
            tracing::warn!(round, user, what, reason, "refused a user's message");
            self.note(Event::Refused { round, user, what, reason });
        }
    }

    /// Why the audit log cannot be written; None while it can, and where there is none.
    pub fn audit_fault(&self) -> Option<String> {
        self.audit.as_ref().and_then(Audit::fault)
    }

    fn note(&self, event: Event) {
        if let Some(audit) = &self.audit {
            audit.note(event);
        }
    }

    /// Notes that the memory has begun the open round.
    fn note_begun(&self, accesses: Option<u64>) {
        let open = self.rounds().open_round();
        if let Some(OpenRound { round, requested, .. }) = open {
            self.note(Event::Begun { round, requested, accesses });
        }
    }

    /// Notes how a round has ended.
    fn note_over(&self, round: u64, outcome: rounds::Outcome) {
        let finished = self.rounds().finish(round, false, std::time::Instant::now());
        let report = match finished {
            Ok(Progress::Done(report)) => Some(Committed {
                rounds: report.rounds,
                users: report.users,
                requested: report.requested,
                uploaded: report.uploaded,
                accesses: report.accesses,
            }),
            _ => None,
        };
        let refused = self.refused.load(Ordering::Relaxed);
        self.note(Event::Over { round, outcome: outcome.to_string(), refused, report });
    }

    fn refuse(&self, refused: Refused) -> Refusal {
        match refused {
            Refused::Message { what, source } => TrainRefusal::of_message(what, &source),
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
            Refused::Unsettled { .. } => TrainRefusal::Unwritable { retry_after: CHECK_EVERY },
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
        rounds::Outcome::Expired => Outcome::Expired,
        rounds::Outcome::Unknown => Outcome::Unknown,
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
/// How often it is looked whether rounds can be written, and how seldom at most.
const CHECK_EVERY: Duration = Duration::from_secs(2);
const CHECK_PAUSE_MAX: Duration = Duration::from_secs(60);
