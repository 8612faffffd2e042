//! The rounds of federated training that a controller offers its users, as a machine without I/O:
//! who came, what the round waits for, what the memory is to do next, how it ended.
//!
//! [`Rounds`] owns no lock, no timer and no memory. Calls of users and of the operator say how far they
//! have come ([`Progress`]), and [`Rounds::next`] says what is to be done: begin the memory's round,
//! commit it, abandon it, wait until a time. Whoever drives the machine does that, tells it the outcome
//! ([`begun`](Rounds::begun), [`committed`](Rounds::committed), [`abandoned`](Rounds::abandoned)) and
//! asks again. The time is an argument. `hushtable_serve` drives it with threads and timers, the Python
//! package with direct calls, a test with a clock of its own.
//!
//! ```text
//!           full, closed or late                    finish, abandon
//! Requests ─────────────────────▶ Beginning ──▶ Serving ──▶ Finishing ──▶ over
//!     │                               │            ▲            │
//!     │ abandoned, or deserted        │ failed     └────────────┘ not committed
//!     └──▶ over                       └──▶ over
//! ```
//!
//! A round that its operator does not finish in time ends without an update ([`Outcome::Expired`]). One
//! whose commit failed in such a way that only the memory, opened again, can tell is
//! [`Outcome::Unknown`] until [`settle`](Rounds::settle) is told.
//!
//! Otherwise a round ends once, in one [`Outcome`]. Calls that are repeated after a lost reply get the reply again:
//! the same request, the same upload, [`finish`](Rounds::finish), [`abandon`](Rounds::abandon).
//!
//! Whoever drives calls the memory for one thing at a time, and keeps it from the moment that an upload
//! is taken until its gradients are added: otherwise a commit could come between.

mod places;
mod refused;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use zeroize::Zeroizing;

use crate::round::{self, RoundName, RoundReport, Settled, one_each};
use crate::wire::{self, ControllerKey, RefusedReason, SealedRound, Terms, Upload};

pub use refused::{Awaited, BudgetSpent, Outcome, Refused};

/// The rounds of one controller; at most one is open.
pub struct Rounds {
    terms: Terms,
    key: ControllerKey,
    committed: u64,
    spent: Option<BudgetSpent>,
    open: Option<Open>,
    /// How the last rounds ended, oldest first, for calls that are repeated after a lost reply, or after
    /// a restart.
    ended: VecDeque<(u64, Ended)>,
    /// The end of the last of them has not been told by [`Rounds::next`] yet.
    is_end_untold: bool,
}

/// How a round is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct RoundLimits {
    /// Places of users.
    pub users: usize,
    /// Users without which the round does not begin, 0 to `users`.
    pub users_min: usize,
    /// How long requests are taken, from the moment that the round is opened; None for no end.
    pub request_max: Option<Duration>,
    /// How long uploads are waited for, from the moment that the round has begun; None for no end.
    pub upload_max: Option<Duration>,
    /// How long, from then on, the operator is waited for: a round that is not finished by then ends
    /// without an update. None for no end.
    pub finish_max: Option<Duration>,
}

/// What an open round is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RoundStage {
    /// Requests are taken.
    Requests,
    /// The memory fetches the rows.
    Beginning,
    /// Rows are given and uploads taken.
    Serving,
    /// The memory writes the rows back, updated or, where the round is given up, as they were.
    Finishing,
}

/// The open round, for whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenRound {
    /// Its number.
    pub round: u64,
    /// What it is doing.
    pub stage: RoundStage,
    /// Places of users.
    pub users: usize,
    /// Requests taken.
    pub requested: usize,
    /// Uploads taken.
    pub uploaded: usize,
}

/// What is to be done next.
#[derive(Debug)]
#[non_exhaustive]
pub enum Next {
    /// Begin the memory's round, then call [`Rounds::begun`].
    Begin {
        /// What the memory is to know the round by.
        name: RoundName,
        /// Places of users.
        users: usize,
        /// Users × slots ids.
        ids: Zeroizing<Vec<u32>>,
    },
    /// Commit the memory's round, then call [`Rounds::committed`] or [`Rounds::not_committed`].
    Commit,
    /// Abandon the memory's round, then call [`Rounds::abandoned`].
    Abandon,
    /// Nothing: a round has ended. Told once a round.
    Over {
        /// The round.
        round: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// Nothing before somebody calls, or before this time.
    Wait {
        /// When to ask again at the latest; None where only calls change anything.
        until: Option<Instant>,
    },
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress<T> {
    /// It is answered.
    Done(T),
    /// Ask [`Rounds::next`] what is to be done, do it, and make the call again.
    Due,
    /// Make the call again when the round has changed, or at this time.
    Wait {
        /// What it waits for.
        awaited: Awaited,
        /// When it is answered at the latest, where time alone answers it.
        until: Option<Instant>,
    },
}

/// Why the memory has not committed a round. Its log says more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there is no third")]
pub enum NotCommitted {
    /// The table is as it was before the round.
    Failed,
    /// Whether the table is updated shows when the memory is opened again: [`Rounds::settle`].
    Unsettled,
}

/// The memory could not do what it was asked. Its log says why: users are told no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "it says nothing else")]
pub struct MemoryFailed;

struct Open {
    sealed: SealedRound,
    users_min: usize,
    requests_until: Option<Instant>,
    /// Full, the round does not begin before.
    held_until: Option<Instant>,
    upload_max: Option<Duration>,
    finish_max: Option<Duration>,
    /// None before the round has begun, and where there is no deadline.
    uploads_until: Option<Instant>,
    /// As [`uploads_until`](Self::uploads_until): when the operator is given up.
    finish_until: Option<Instant>,
    stage: RoundStage,
    wish: Wish,
    /// Users whose messages were refused, and why: of each the reason that proves most.
    refused: BTreeMap<u32, RefusedReason>,
}

/// What the operator wants of the round, and has not got yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    None,
    /// To begin with whoever has come.
    Close,
    /// To commit.
    Finish,
    /// To end without an update.
    Abandon,
    /// Nothing, for so long that the round is to end.
    Expire,
}

/// How many rounds' ends are known, at most.
const ENDED_MAX: usize = 256;

/// [`Next`], before the round is moved to it.
enum Due {
    Tell { round: u64, outcome: Outcome },
    End(Outcome),
    Begin,
    Commit,
    Abandon,
    Expire,
    Wait(Option<Instant>),
}

#[derive(Clone)]
enum Ended {
    Committed(RoundReport),
    Otherwise(Outcome),
}

impl Ended {
    fn of(settled: &Settled) -> Self {
        match &settled.ended {
            round::Ended::Committed(report) => Self::Committed(report.clone()),
            round::Ended::Abandoned => Self::Otherwise(Outcome::Abandoned),
            round::Ended::Failed => Self::Otherwise(Outcome::Failed),
        }
    }

    fn outcome(&self) -> Outcome {
        match self {
            Self::Committed(_) => Outcome::Committed,
            Self::Otherwise(outcome) => *outcome,
        }
    }
}

impl Rounds {
    /// The rounds of the controller that `terms` describe, after `committed` rounds of it, of which
    /// the last ones ended as `settled` says; `spent` says so where no further round may begin.
    pub fn new(
        terms: Terms,
        key: ControllerKey,
        committed: u64,
        spent: Option<BudgetSpent>,
        settled: &[Settled],
    ) -> Self {
        let ended = settled.iter().map(|settled| (settled.round, Ended::of(settled))).collect();
        Self { terms, key, committed, spent, open: None, ended, is_end_untold: false }
    }

    /// The memory was opened again, with `committed` rounds, and these are how rounds of it have ended:
    /// what was unknown is known now. Returns what it was.
    pub fn settle(&mut self, committed: u64, settled: &[Settled]) -> Vec<(u64, Outcome)> {
        self.committed = committed;
        let mut known = Vec::new();
        for (round, ended) in &mut self.ended {
            if ended.outcome() == Outcome::Unknown {
                let found = settled.iter().find(|settled| settled.round == *round);
                // What the memory does not know has not begun.
                *ended = found.map_or(Ended::Otherwise(Outcome::Failed), Ended::of);
                known.push((*round, ended.outcome()));
            }
        }
        known
    }

    /// The round whose outcome is [`Outcome::Unknown`].
    pub fn unsettled(&self) -> Option<u64> {
        let mut ended = self.ended.iter();
        ended.find(|(_, ended)| ended.outcome() == Outcome::Unknown).map(|(round, _)| *round)
    }

    fn ended(&self, round: u64) -> Option<&Ended> {
        self.ended.iter().rev().find(|(ended, _)| *ended == round).map(|(_, ended)| ended)
    }

    /// The controller's terms.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The controller's keys.
    pub fn key(&self) -> &ControllerKey {
        &self.key
    }

    /// Rounds committed.
    pub fn committed_count(&self) -> u64 {
        self.committed
    }

    /// The open round.
    pub fn open_round(&self) -> Option<OpenRound> {
        self.open.as_ref().map(|open| OpenRound {
            round: open.sealed.round(),
            stage: open.stage,
            users: open.sealed.users(),
            requested: open.sealed.requested(),
            uploaded: open.sealed.uploaded(),
        })
    }

    /// Opens a round, whose number is `round`: one that no other round has, from
    /// [`random_round`](crate::wire::random_round).
    ///
    /// # Errors
    /// [`Refused::TooManyUsers`], [`Refused::Setting`] for terms that cannot be;
    /// [`Refused::RoundOpen`]; [`Refused::Unsettled`]; [`Refused::BudgetSpent`], before users have sent
    /// anything.
    pub fn open(&mut self, terms: &RoundLimits, round: u64, now: Instant) -> Result<(), Refused> {
        let &RoundLimits { users, users_min, request_max, upload_max, finish_max } = terms;
        let users_max = self.terms.spec().users_max;
        if users > users_max {
            return Err(Refused::TooManyUsers { users, users_max });
        }
        for (name, value, min, max) in
            [("users", users, 1, users_max), ("users_min", users_min, 0, users)]
        {
            if !(min..=max).contains(&value) {
                let [value, min, max] = [value, min, max].map(|count| count as u64);
                return Err(Refused::Setting { name, value, min, max });
            }
        }
        if let Some(open) = &self.open {
            return Err(Refused::RoundOpen { round: open.sealed.round() });
        }
        if let Some(round) = self.unsettled() {
            return Err(Refused::Unsettled { round });
        }
        if let Some(spent) = &self.spent {
            return Err(Refused::BudgetSpent(spent.clone()));
        }
        let sealed =
            SealedRound::new(&self.terms, round, users).map_err(Refused::of("the round"))?;
        self.open = Some(Open {
            sealed,
            users_min,
            // A deadline that no clock reaches is none.
            requests_until: request_max.and_then(|time| now.checked_add(time)),
            held_until: None,
            upload_max,
            finish_max,
            uploads_until: None,
            finish_until: None,
            stage: RoundStage::Requests,
            wish: Wish::None,
            refused: BTreeMap::new(),
        });
        Ok(())
    }

    /// Takes a user's request, or the same one again.
    ///
    /// # Errors
    /// [`Refused::Message`] for one that is not taken: the round and its other users go on;
    /// [`Refused::NoRound`], [`Refused::Over`].
    pub fn request(&mut self, round: u64, user: u32, sealed: &[u8]) -> Result<(), Refused> {
        // Not by `open_mut`: it borrows all of `self`, and the key is needed beside the round.
        self.check_open(round)?;
        let Some(open) = &mut self.open else { return Err(Refused::NoRound { round }) };
        let taken = open.sealed.request(&self.key, user, sealed);
        taken.map_err(|source| open.refuse("request", user, source))
    }

    /// Begins the round with the users that have come: their number, once it has begun.
    ///
    /// # Errors
    /// [`Refused::TooFewUsers`]; [`Refused::NoRound`], [`Refused::Over`].
    pub fn close(&mut self, round: u64) -> Result<Progress<usize>, Refused> {
        let open = self.open_mut(round)?;
        let (users, users_min) = (open.sealed.requested(), open.users_min);
        match open.stage {
            // Once it is given up, nothing makes it begin.
            RoundStage::Requests if open.wish == Wish::Abandon => Ok(Progress::Due),
            RoundStage::Requests if users < users_min => {
                Err(Refused::TooFewUsers { users, users_min })
            }
            RoundStage::Requests => {
                open.wish = Wish::Close;
                Ok(Progress::Due)
            }
            RoundStage::Beginning => Ok(Progress::Wait { awaited: Awaited::Requests, until: None }),
            RoundStage::Serving | RoundStage::Finishing => Ok(Progress::Done(users)),
        }
    }

    /// Whether `user` may be given its rows, which [`seal`](Self::seal) takes.
    ///
    /// # Errors
    /// [`Refused::Message`] for a user whose request was not taken; [`Refused::NoRound`],
    /// [`Refused::Over`].
    pub fn rows(&mut self, round: u64, user: u32) -> Result<Progress<()>, Refused> {
        let open = self.open_mut(round)?;
        if open.stage != RoundStage::Serving {
            return Ok(Progress::Wait { awaited: Awaited::Requests, until: None });
        }
        open.sealed.check_member(user).map_err(Refused::of("rows"))?;
        Ok(Progress::Done(()))
    }

    /// Seals a user's rows to that user.
    ///
    /// # Errors
    /// As [`rows`](Self::rows), and [`Refused::NotBegun`].
    pub fn seal(
        &mut self,
        round: u64,
        user: u32,
        rows: &[f32],
        found: &[bool],
    ) -> Result<Vec<u8>, Refused> {
        let open = self.open_mut(round)?;
        if open.stage != RoundStage::Serving {
            return Err(Refused::NotBegun { round });
        }
        open.sealed.reply(user, rows, found).map_err(Refused::of("rows"))
    }

    /// Takes a user's upload: what the memory is to add, None where the very same was taken before.
    ///
    /// # Errors
    /// [`Refused::Message`] for one that is not taken: the round and its other users go on;
    /// [`Refused::NotBegun`], [`Refused::NoRound`], [`Refused::Over`].
    pub fn upload(
        &mut self,
        round: u64,
        user: u32,
        sealed: &[u8],
    ) -> Result<Progress<Option<Upload>>, Refused> {
        let open = self.open_mut(round)?;
        match open.stage {
            RoundStage::Requests | RoundStage::Beginning => Err(Refused::NotBegun { round }),
            RoundStage::Serving => {
                let taken = open.sealed.upload(user, sealed);
                taken.map(Progress::Done).map_err(|source| open.refuse("upload", user, source))
            }
            RoundStage::Finishing => Ok(Progress::Wait { awaited: Awaited::Uploads, until: None }),
        }
    }

    /// The memory has not added the upload that was taken of `user`, for `reason`: the user may send
    /// another, and the round's other users are unharmed. What the user is told.
    pub fn not_added(&mut self, user: u32, reason: RefusedReason) -> Refused {
        let source = wire::Error::Refused { what: "upload", reason };
        match &mut self.open {
            Some(open) => {
                open.sealed.forget_upload(user);
                open.refuse("upload", user, source)
            }
            None => Refused::of("upload")(source),
        }
    }

    /// Commits the round: once all that asked have uploaded, once the deadline for uploads is over, or
    /// at once where `is_hurried`. What it did; the same again for a round that was committed.
    ///
    /// # Errors
    /// [`Refused::NoRound`]; [`Refused::Over`] for a round that ended otherwise.
    pub fn finish(
        &mut self,
        round: u64,
        is_hurried: bool,
        now: Instant,
    ) -> Result<Progress<RoundReport>, Refused> {
        if let Some(Ended::Committed(report)) = self.ended(round) {
            return Ok(Progress::Done(report.clone()));
        }
        let open = self.open_mut(round)?;
        let wait = |until| Ok(Progress::Wait { awaited: Awaited::Uploads, until });
        if open.stage != RoundStage::Serving || matches!(open.wish, Wish::Abandon | Wish::Expire) {
            return wait(None);
        }
        let is_complete = open.sealed.uploaded() == open.sealed.requested();
        let is_late = open.uploads_until.is_some_and(|until| until <= now);
        if !(is_hurried || is_complete || is_late) {
            return wait(open.uploads_until);
        }
        open.wish = Wish::Finish;
        Ok(Progress::Due)
    }

    /// Ends the round without an update. Done once it has; done again for a round that ended without
    /// one.
    ///
    /// # Errors
    /// [`Refused::NoRound`]; [`Refused::Over`] for a round that was committed.
    pub fn abandon(&mut self, round: u64) -> Result<Progress<()>, Refused> {
        match self.ended(round) {
            Some(Ended::Otherwise(outcome)) if *outcome != Outcome::Unknown => {
                return Ok(Progress::Done(()));
            }
            _ => {}
        }
        let open = self.open_mut(round)?;
        match open.stage {
            RoundStage::Finishing => Ok(Progress::Wait { awaited: Awaited::Uploads, until: None }),
            _ => {
                open.wish = Wish::Abandon;
                Ok(Progress::Due)
            }
        }
    }

    /// Whether [`next`](Self::next) has anything to be done.
    pub fn is_due(&self, now: Instant) -> bool {
        !matches!(self.due(now), Due::Wait(_))
    }

    /// What is to be done now. Ask after every call that changes something, after every outcome, and
    /// at the time of the last [`Next::Wait`].
    pub fn next(&mut self, now: Instant) -> Next {
        loop {
            match (self.due(now), &mut self.open) {
                (Due::End(outcome), _) => self.end(Ended::Otherwise(outcome)),
                (Due::Tell { round, outcome }, _) => {
                    self.is_end_untold = false;
                    return Next::Over { round, outcome };
                }
                (Due::Begin, Some(open)) => {
                    open.stage = RoundStage::Beginning;
                    open.wish = Wish::None;
                    let ids = Zeroizing::new(open.sealed.close().to_vec());
                    let (number, requested) = (open.sealed.round(), open.sealed.requested());
                    let name = RoundName { number, requested };
                    return Next::Begin { name, users: open.sealed.users(), ids };
                }
                (Due::Commit, Some(open)) => {
                    open.stage = RoundStage::Finishing;
                    return Next::Commit;
                }
                (Due::Abandon, Some(open)) => {
                    open.stage = RoundStage::Finishing;
                    return Next::Abandon;
                }
                (Due::Wait(until), _) => return Next::Wait { until },
                (Due::Expire, Some(open)) => {
                    open.stage = RoundStage::Finishing;
                    open.wish = Wish::Expire;
                    return Next::Abandon;
                }
                (Due::Begin | Due::Commit | Due::Abandon | Due::Expire, None) => {
                    return Next::Wait { until: None };
                }
            }
        }
    }

    fn due(&self, now: Instant) -> Due {
        if self.is_end_untold
            && let Some((round, ended)) = self.ended.back()
        {
            return Due::Tell { round: *round, outcome: ended.outcome() };
        }
        let Some(open) = &self.open else { return Due::Wait(None) };
        match (open.stage, open.wish) {
            (RoundStage::Requests, Wish::Abandon | Wish::Expire) => Due::End(Outcome::Abandoned),
            (RoundStage::Requests, wish) => {
                let requested = open.sealed.requested();
                let is_late = open.requests_until.is_some_and(|until| until <= now);
                let is_full = requested == open.sealed.users() && !open.is_held(now);
                match is_full || is_late || wish == Wish::Close {
                    false => Due::Wait(open.wait_until(now)),
                    true if requested < open.users_min => Due::End(Outcome::Deserted),
                    true => Due::Begin,
                }
            }
            (RoundStage::Serving, Wish::Finish) => Due::Commit,
            (RoundStage::Serving, Wish::Abandon) => Due::Abandon,
            (RoundStage::Serving, Wish::Expire) => Due::Expire,
            (RoundStage::Serving, Wish::None | Wish::Close) => {
                if open.finish_until.is_some_and(|until| until <= now) {
                    return Due::Expire;
                }
                let deadlines = [open.uploads_until, open.finish_until].into_iter().flatten();
                Due::Wait(deadlines.filter(|until| *until > now).min())
            }
            // Whoever was told to do it is at it.
            (RoundStage::Beginning | RoundStage::Finishing, _) => Due::Wait(None),
        }
    }

    /// The memory has begun the round, or could not. `spent` says so where no further round may begin.
    /// Without a round that is beginning, nothing changes.
    pub fn begun(
        &mut self,
        outcome: Result<(), MemoryFailed>,
        spent: Option<BudgetSpent>,
        now: Instant,
    ) {
        let Some(open) = self.at(RoundStage::Beginning) else { return };
        match outcome {
            Ok(()) => {
                open.stage = RoundStage::Serving;
                open.uploads_until = open.upload_max.and_then(|time| now.checked_add(time));
                let last = open.uploads_until.zip(open.finish_max);
                open.finish_until = last.and_then(|(until, time)| until.checked_add(time));
            }
            Err(MemoryFailed) => self.end(Ended::Otherwise(Outcome::Failed)),
        }
        self.spent = spent;
    }

    /// The memory has committed the round, with this report of it, or has lost it, or cannot say. What the
    /// report says of the round and its users is filled in here. Without a round that is finishing,
    /// nothing changes.
    pub fn committed(&mut self, outcome: Result<RoundReport, NotCommitted>) {
        let Some(open) = self.finishing(Wish::Finish) else { return };
        let sealed = &open.sealed;
        let (round, users) = (sealed.round(), sealed.users());
        let (requested, uploaded) = (sealed.requested(), sealed.uploaded());
        match outcome {
            Ok(done) => {
                let noted = open.refused.iter().map(|(&user, &reason)| (user, reason));
                let refused = one_each(noted.chain(done.refused).collect());
                self.committed = done.rounds;
                let report = RoundReport { round, users, requested, uploaded, refused, ..done };
                self.end(Ended::Committed(report));
            }
            Err(NotCommitted::Failed) => self.end(Ended::Otherwise(Outcome::Failed)),
            Err(NotCommitted::Unsettled) => self.end(Ended::Otherwise(Outcome::Unknown)),
        }
    }

    /// The memory has not committed the round, which is still open there: it serves again.
    pub fn not_committed(&mut self) {
        if let Some(open) = self.finishing(Wish::Finish) {
            open.stage = RoundStage::Serving;
            open.wish = Wish::None;
        }
    }

    /// The memory has abandoned the round, or has lost it. Without a round that is being abandoned,
    /// nothing changes.
    pub fn abandoned(&mut self, outcome: Result<(), MemoryFailed>) {
        let is_expired = self.finishing(Wish::Expire).is_some();
        if is_expired || self.finishing(Wish::Abandon).is_some() {
            self.end(Ended::Otherwise(match outcome {
                Ok(()) if is_expired => Outcome::Expired,
                Ok(()) => Outcome::Abandoned,
                Err(MemoryFailed) => Outcome::Failed,
            }));
        }
    }

    fn end(&mut self, ended: Ended) {
        if let Some(open) = self.open.take() {
            if self.ended.len() >= ENDED_MAX {
                self.ended.pop_front();
            }
            self.ended.push_back((open.sealed.round(), ended));
            self.is_end_untold = true;
        }
    }

    fn at(&mut self, stage: RoundStage) -> Option<&mut Open> {
        self.open.as_mut().filter(|open| open.stage == stage)
    }

    fn finishing(&mut self, wish: Wish) -> Option<&mut Open> {
        self.at(RoundStage::Finishing).filter(|open| open.wish == wish)
    }

    fn check_open(&self, round: u64) -> Result<(), Refused> {
        match (&self.open, self.ended(round)) {
            (Some(open), _) if open.sealed.round() == round => Ok(()),
            (_, Some(ended)) => Err(Refused::Over { round, outcome: ended.outcome() }),
            _ => Err(Refused::NoRound { round }),
        }
    }

    fn open_mut(&mut self, round: u64) -> Result<&mut Open, Refused> {
        self.check_open(round)?;
        self.open.as_mut().ok_or(Refused::NoRound { round })
    }
}

impl Open {
    /// Notes why a message of `user` is refused; the number of a place that there is not is noted
    /// nowhere.
    fn refuse(&mut self, what: &'static str, user: u32, source: wire::Error) -> Refused {
        if (user as usize) < self.sealed.users() {
            let reason = source.reason();
            let noted = self.refused.entry(user).or_insert(reason);
            *noted = reason.max(*noted);
        }
        Refused::of(what)(source)
    }
}

impl RoundStage {
    /// As text: `requests`, `beginning`, `serving` or `finishing`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Beginning => "beginning",
            Self::Serving => "serving",
            Self::Finishing => "finishing",
        }
    }
}
