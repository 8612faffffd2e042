//! The machine on a clock and a memory of the test's own: users come, repeat, drop out, come late and
//! send rubbish, the operator closes, finishes and gives up, the memory fails, replies are lost.

use std::collections::{HashMap, HashSet};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::round::ControllerSpec;
use crate::wire::{Context, DUMMY, Pin, UserSession};

const USERS_MAX: usize = 4;
const SLOTS: usize = 2;
const DIM: usize = 1;
const ROWS: u64 = 30;
const SECOND: Duration = Duration::from_secs(1);

/// What the memory is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    Idle,
    Beginning,
    Serving,
    Committing,
    Abandoning,
}

/// What the test knows of the open round.
struct Known {
    terms: RoundLimits,
    /// Of users whose requests were taken: their halves, and what they asked for.
    sessions: HashMap<u32, (UserSession, Vec<u8>, [u32; SLOTS])>,
    uploads: HashMap<u32, Vec<u8>>,
    /// Users whose gradients the memory was given.
    added: HashSet<u32>,
    opened: Instant,
    begun: Option<Instant>,
    /// The operator has given it up.
    abandoned: bool,
}

impl Known {
    /// When the operator is given up.
    fn finish_until(&self) -> Option<Instant> {
        let times = self.terms.upload_max.zip(self.terms.finish_max);
        self.begun.zip(times).map(|(at, (upload, finish))| at + upload + finish)
    }
}

struct World {
    seed: u64,
    random: ChaCha8Rng,
    rounds: Rounds,
    pin: Pin,
    now: Instant,
    memory: Memory,
    committed: u64,
    round: u64,
    known: Option<Known>,
    /// How each round ended, as it was told first, or when what was unknown was settled.
    outcomes: HashMap<u64, Outcome>,
    /// Outcomes that were told and settled later.
    seen: HashSet<Outcome>,
    /// The round whose commit failed so that nobody knows, and what the memory will say.
    unsettled: Option<Settled>,
    reports: HashMap<u64, RoundReport>,
}

impl World {
    fn new(seed: u64) -> Self {
        let terms =
            Terms::of(&ControllerSpec::new("films", (ROWS, DIM), (USERS_MAX, SLOTS))).unwrap();
        let key = ControllerKey::from_seed(&[3; 32]);
        let pin = Pin::new(key.public(), &terms);
        Self {
            seed,
            random: ChaCha8Rng::seed_from_u64(seed),
            rounds: Rounds::new(terms, key, 0, None, &[]),
            pin,
            now: Instant::now(),
            memory: Memory::Idle,
            committed: 0,
            round: 0,
            known: None,
            outcomes: HashMap::new(),
            unsettled: None,
            seen: HashSet::new(),
            reports: HashMap::new(),
        }
    }

    #[track_caller]
    fn check(&self, holds: bool, what: &str) {
        assert!(holds, "seed {}, round {}: {what}", self.seed, self.round);
    }

    fn below(&mut self, bound: u32) -> u32 {
        self.random.random_range(0..bound)
    }

    fn known(&mut self) -> &mut Known {
        self.known.as_mut().expect("an open round")
    }

    /// Asks the machine what to do, and starts doing it.
    fn drive(&mut self) -> bool {
        let next = self.rounds.next(self.now);
        let memory = self.memory;
        match next {
            Next::Begin { name, users, ids } => {
                self.check(memory == Memory::Idle, "begun twice");
                let round = self.round;
                let requested = self.known().sessions.len();
                self.check(name == RoundName { number: round, requested }, "another name");
                let known = self.known();
                let mut expected = vec![DUMMY; known.terms.users * SLOTS];
                for (user, (_, _, own)) in &known.sessions {
                    expected[*user as usize * SLOTS..][..SLOTS].copy_from_slice(own);
                }
                let is_enough = known.sessions.len() >= known.terms.users_min;
                let places = known.terms.users;
                self.check(places == users && *ids == expected, "other ids than were taken");
                self.check(is_enough, "begun with too few");
                self.memory = Memory::Beginning;
                true
            }
            Next::Commit => {
                self.check(memory == Memory::Serving, "a commit of no round");
                self.memory = Memory::Committing;
                true
            }
            Next::Abandon => {
                self.check(memory == Memory::Serving, "gave up what the memory does not hold");
                let (now, deadline) = (self.now, self.known().finish_until());
                let wanted = std::mem::take(&mut self.known().abandoned);
                let is_late = deadline.is_some_and(|deadline| deadline <= now);
                self.check(wanted || is_late, "given up by nobody, and in time");
                self.memory = Memory::Abandoning;
                true
            }
            Next::Over { round, outcome } => {
                let is_first = self.outcomes.insert(round, outcome).is_none();
                self.check(is_first && round == self.round, "a second outcome");
                self.check(memory == Memory::Idle, "over, and the memory holds it still");
                let was_open = self.known.take().is_some();
                self.check(was_open, "over, and never open");
                true
            }
            Next::Wait { until } => {
                self.check(until.is_none_or(|at| at > self.now), "waits for what is over");
                if let Some(Known { terms, opened, begun: None, sessions, .. }) = &self.known
                    && memory == Memory::Idle
                {
                    let deadline = terms.request_max.map(|time| *opened + time);
                    self.check(until == deadline, "no word of the deadline for requests");
                    self.check(sessions.len() < terms.users, "full, and waits");
                }
                false
            }
        }
    }

    /// The memory comes to an end with what it was told to do.
    fn work(&mut self, can_fail: bool) {
        let fails = can_fail && self.below(6) == 0;
        let outcome = if fails { Err(MemoryFailed) } else { Ok(()) };
        let refuses = can_fail && self.below(6) == 0;
        let now = self.now;
        match self.memory {
            Memory::Beginning => {
                self.rounds.begun(outcome, None, now);
                self.memory = if fails { Memory::Idle } else { Memory::Serving };
                self.known().begun = Some(now);
            }
            Memory::Committing if refuses => {
                self.rounds.not_committed();
                self.memory = Memory::Serving;
            }
            Memory::Committing => {
                let is_known = !fails || self.below(2) == 0;
                let stands = !fails || !is_known && self.below(2) == 0;
                self.committed += u64::from(stands);
                let rounds = self.committed;
                let report = RoundReport { rounds, round: self.round, ..RoundReport::default() };
                if !is_known {
                    let ended = match stands {
                        true => crate::round::Ended::Committed(report.clone()),
                        false => crate::round::Ended::Failed,
                    };
                    self.unsettled = Some(Settled::new(self.round, ended));
                }
                self.rounds.committed(match (fails, is_known) {
                    (false, _) => Ok(report),
                    (true, true) => Err(NotCommitted::Failed),
                    (true, false) => Err(NotCommitted::Unsettled),
                });
                self.memory = Memory::Idle;
            }
            Memory::Abandoning => {
                self.rounds.abandoned(outcome);
                self.memory = Memory::Idle;
            }
            // Outcomes of work that nobody asked for change nothing.
            Memory::Idle | Memory::Serving => {
                let before = self.rounds.open_round();
                self.rounds.committed(Err(NotCommitted::Unsettled));
                self.rounds.begun(Err(MemoryFailed), None, now);
                self.rounds.abandoned(Ok(()));
                self.rounds.not_committed();
                self.check(before == self.rounds.open_round(), "moved by an outcome of nothing");
            }
        }
    }

    fn open(&mut self) {
        let users = 1 + self.below(USERS_MAX as u32) as usize;
        let time = |random: &mut ChaCha8Rng| {
            let seconds = random.random_range(0..12);
            (seconds < 8).then_some(SECOND * seconds)
        };
        let terms = RoundLimits {
            users,
            users_min: self.random.random_range(0..=users),
            request_max: time(&mut self.random),
            upload_max: time(&mut self.random),
            finish_max: time(&mut self.random),
        };
        let opened = self.rounds.open(&terms, self.round + 1, self.now);
        if self.rounds.open_round().is_some_and(|open| open.round == self.round) {
            self.check(matches!(opened, Err(Refused::RoundOpen { .. })), "two rounds are open");
            return;
        }
        if self.unsettled.is_some() {
            let (found, round) = (self.rounds.unsettled(), self.round);
            self.check(matches!(opened, Err(Refused::Unsettled { .. })), "opened over a doubt");
            self.check(found == Some(round), "another doubt");
            return;
        }
        // The end of the one before is to be told first; nobody drives between here.
        while self.known.is_some() {
            self.drive();
        }
        self.check(opened.is_ok(), "no round is open, and none opens");
        self.round += 1;
        self.known = Some(Known {
            terms,
            sessions: HashMap::new(),
            uploads: HashMap::new(),
            added: HashSet::new(),
            opened: self.now,
            begun: None,
            abandoned: false,
        });
    }

    fn request(&mut self) {
        let (user, round) = (self.below(USERS_MAX as u32 + 1), self.round);
        let taken = self.known.as_ref().and_then(|known| known.sessions.get(&user));
        if let Some((_, sealed, _)) = taken
            && self.random.random_range(0..3) > 0
        {
            // The reply was lost: the same again is taken, whatever the round is at.
            let again = self.rounds.request(round, user, sealed);
            let is_open = self.rounds.check_open(round).is_ok();
            self.check(again.is_ok() == is_open, "the same request is refused");
            return;
        }
        let (had_one, stage) = (taken.is_some(), self.rounds.open_round().map(|open| open.stage));
        let context = Context::new(self.rounds.terms(), round, user);
        let mut session = UserSession::new(&self.pin, context, None).unwrap();
        let ids = [self.below(ROWS as u32), DUMMY];
        let mut sealed = session.request(&ids[..1]).unwrap();
        let is_rubbish = self.below(4) == 0;
        if is_rubbish {
            sealed[40] ^= 1;
        }
        match self.rounds.request(round, user, &sealed) {
            Ok(()) => {
                self.check(!had_one && !is_rubbish, "took a second request, or rubbish");
                self.check(stage == Some(RoundStage::Requests), "took a late request");
                self.known().sessions.insert(user, (session, sealed, ids));
            }
            Err(Refused::Over { round, outcome }) => self.outcome(round, outcome),
            Err(_) => {}
        }
    }

    fn rows(&mut self) {
        let (user, round) = (self.below(USERS_MAX as u32 + 1), self.round);
        let asked = self.known.as_ref().is_some_and(|known| known.sessions.contains_key(&user));
        let promised = self.rounds.rows(round, user);
        let sealed = self.rounds.seal(round, user, &[0.5; SLOTS * DIM], &[true, false]);
        if let Err(Refused::Over { round, outcome }) = &promised {
            self.outcome(*round, *outcome);
        }
        let is_done = matches!(promised, Ok(Progress::Done(())));
        self.check(is_done == sealed.is_ok(), "promised and sealed are two things");
        if let Ok(sealed) = sealed {
            self.check(asked && self.memory == Memory::Serving, "rows for one who did not ask");
            let (session, ..) = &self.known().sessions[&user];
            assert_eq!(session.reply(&sealed).unwrap().rows, [0.5; SLOTS * DIM]);
        }
    }

    fn upload(&mut self) {
        let (user, round) = (self.below(USERS_MAX as u32), self.round);
        let repeats = self.below(3) > 0;
        let Some(known) = &mut self.known else { return };
        let Some((session, ..)) = known.sessions.get_mut(&user) else {
            let refused = self.rounds.upload(round, user, &[0; 40]);
            self.check(!matches!(refused, Ok(Progress::Done(_))), "an upload of nobody");
            return;
        };
        let sealed = match known.uploads.get(&user) {
            Some(sealed) if repeats => sealed.clone(),
            _ => session.upload(&[1.0], 2.0).unwrap(),
        };
        match self.rounds.upload(round, user, &sealed) {
            Ok(Progress::Done(Some(upload))) => {
                assert_eq!((upload.gradients[0], upload.weight), (1.0, 2.0));
                let known = self.known();
                known.uploads.insert(user, sealed);
                let is_first = known.added.insert(user);
                let can_add = self.memory == Memory::Serving;
                self.check(is_first && can_add, "added twice, or to no round");
            }
            Ok(Progress::Done(None)) => {
                let is_same = self.known().uploads.get(&user) == Some(&sealed);
                self.check(is_same, "another upload is taken for the first");
            }
            Err(Refused::Over { round, outcome }) => self.outcome(round, outcome),
            _ => {}
        }
    }

    /// The memory is opened again, and what was unknown shows.
    fn settle(&mut self) {
        while self.drive() {}
        let Some(settled) = self.unsettled.take() else { return };
        let round = settled.round;
        self.check(self.outcomes[&round] == Outcome::Unknown, "known before it was");
        // A round that the memory does not know did not happen.
        let is_told = settled.ended != crate::round::Ended::Failed || self.below(2) == 0;
        let told = if is_told { std::slice::from_ref(&settled) } else { &[] };
        let known = self.rounds.settle(self.committed, told);
        let outcome = match settled.ended {
            crate::round::Ended::Committed(_) => Outcome::Committed,
            _ => Outcome::Failed,
        };
        assert_eq!(known, [(round, outcome)]);
        assert!(self.rounds.settle(self.committed, told).is_empty(), "settled twice");
        self.outcomes.insert(round, outcome);
        let told = self.rounds.finish(round, true, self.now);
        self.check(told.is_ok() == (outcome == Outcome::Committed), "settled otherwise");
        self.seen.insert(Outcome::Unknown);
    }

    /// What a call is told of how a round ended is what everybody was told.
    fn outcome(&mut self, round: u64, outcome: Outcome) {
        // A call may hear of it before the driver does.
        if !self.outcomes.contains_key(&round) {
            while self.drive() {}
        }
        self.check(self.outcomes.get(&round) == Some(&outcome), "two outcomes of a round");
    }

    fn finish(&mut self, is_hurried: bool) {
        let round = self.round;
        match self.rounds.finish(round, is_hurried, self.now) {
            Ok(Progress::Done(report)) => {
                self.outcome(round, Outcome::Committed);
                self.check(
                    (report.round, report.rounds <= self.committed) == (round, true),
                    "whose",
                );
                self.check(report.uploaded <= report.requested, "more uploads than requests");
                let first = self.reports.entry(round).or_insert_with(|| report.clone());
                assert_eq!(*first, report, "seed {}: two reports", self.seed);
            }
            Ok(Progress::Due) => {
                let (now, seed) = (self.now, self.seed);
                let known = self.known();
                let until = known.begun.zip(known.terms.upload_max).map(|(at, time)| at + time);
                let is_ready = is_hurried
                    || known.added.len() == known.sessions.len()
                    || until.is_some_and(|until| until <= now);
                assert!(is_ready, "seed {seed}: commits before uploads are in");
            }
            Err(Refused::Over { round, outcome }) => self.outcome(round, outcome),
            Ok(Progress::Wait { .. }) | Err(_) => {}
        }
    }

    fn step(&mut self) {
        let round = self.round;
        match self.below(20) {
            0 => self.open(),
            1..5 => self.request(),
            5 => match self.rounds.close(round) {
                Err(Refused::Over { round, outcome }) => self.outcome(round, outcome),
                Ok(Progress::Due) => {
                    let requests = self.memory == Memory::Idle;
                    self.check(requests, "closes what has begun");
                }
                _ => {}
            },
            6..8 => self.rows(),
            8..11 => self.upload(),
            11 => {
                let is_hurried = self.below(3) == 0;
                self.finish(is_hurried);
            }
            12 if self.below(3) == 0 => match self.rounds.abandon(round) {
                Err(Refused::Over { round, outcome }) => {
                    self.outcome(round, outcome);
                    let is_told = matches!(outcome, Outcome::Committed | Outcome::Unknown);
                    self.check(is_told, "not given up again");
                }
                Ok(Progress::Due) => self.known().abandoned = true,
                Ok(Progress::Done(())) => {
                    while self.drive() {}
                    self.check(self.outcomes[&round] != Outcome::Committed, "given up, updated");
                }
                _ => {}
            },
            19 => self.settle(),
            13 => self.now += SECOND * self.random.random_range(0..4),
            14..17 => self.work(true),
            _ => {
                self.drive();
            }
        }
        // A number that was never given names no round.
        let unknown = self.rounds.finish(self.round + 7, true, self.now);
        self.check(matches!(unknown, Err(Refused::NoRound { .. })), "a round that never was");
    }

    /// From wherever it is, a round ends once its operator wants it to, and the memory works.
    fn end(&mut self) {
        let round = self.round;
        for _ in 0..20 {
            while self.drive() {}
            if self.known.is_none() {
                self.settle();
                return;
            }
            match self.memory {
                Memory::Idle => match self.rounds.close(round) {
                    Ok(_) => {}
                    Err(Refused::TooFewUsers { .. }) => {
                        let until = self.known().terms.request_max;
                        match until {
                            Some(time) => self.now = self.now.max(self.known().opened + time),
                            None => {
                                assert!(self.rounds.abandon(round).is_ok());
                                self.known().abandoned = true;
                            }
                        }
                    }
                    Err(other) => panic!("seed {}: {other}", self.seed),
                },
                Memory::Serving => self.finish(true),
                _ => self.work(false),
            }
        }
        self.check(false, "the round does not end");
    }
}

#[test]
fn whatever_happens_a_round_has_one_outcome_and_serves_who_asked() {
    let mut outcomes = HashSet::new();
    let mut uploads = 0;
    for seed in 0..400 {
        let mut world = World::new(seed);
        world.open();
        for _ in 0..120 {
            world.step();
            uploads += world.known.as_ref().map_or(0, |known| known.added.len());
        }
        world.end();
        world.check(world.outcomes.len() as u64 == world.round, "a round without an end");
        world.check(world.rounds.committed_count() == world.committed, "counts other rounds");
        outcomes.extend(world.outcomes.into_values());
        outcomes.extend(world.seen);
    }
    // The walks come by everything.
    assert_eq!(outcomes.len(), Outcome::ALL.len(), "{outcomes:?}");
    assert!(uploads > 1000, "{uploads}");
}

#[test]
fn terms_that_cannot_be_and_spent_budgets_open_nothing() {
    let mut world = World::new(0);
    let terms = |users, users_min| RoundLimits {
        users,
        users_min,
        request_max: None,
        upload_max: Some(Duration::MAX),
        finish_max: None,
    };
    let now = world.now;
    let mut open = |terms: &RoundLimits| world.rounds.open(terms, 9, now);
    assert!(matches!(open(&terms(5, 1)), Err(Refused::TooManyUsers { users: 5, users_max: 4 })));
    assert!(matches!(open(&terms(0, 0)), Err(Refused::Setting { name: "users", .. })));
    assert!(matches!(open(&terms(2, 3)), Err(Refused::Setting { name: "users_min", .. })));
    open(&terms(1, 0)).unwrap();
    assert!(matches!(open(&terms(1, 0)), Err(Refused::RoundOpen { round: 9 })));
    assert_eq!(world.rounds.close(9).unwrap(), Progress::Due);
    assert!(matches!(world.rounds.next(now), Next::Begin { users: 1, .. }));
    let spent = BudgetSpent { rounds: 1, message: "all of it".into() };
    world.rounds.begun(Ok(()), Some(spent.clone()), now);
    assert_eq!(world.rounds.finish(9, true, now).unwrap(), Progress::Due);
    assert!(matches!(world.rounds.next(now), Next::Commit));
    world.rounds.committed(Ok(RoundReport { rounds: 1, ..RoundReport::default() }));
    match world.rounds.open(&terms(1, 1), 10, now) {
        Err(Refused::BudgetSpent(found)) => assert_eq!(found, spent),
        other => panic!("{other:?}"),
    }
}

/// Where the operator has vanished, a round ends by itself: without an update, at a time that is known.
#[test]
fn a_round_that_nobody_finishes_ends_at_its_deadline() {
    let mut world = World::new(1);
    let terms = RoundLimits {
        users: 1,
        users_min: 0,
        request_max: Some(SECOND),
        upload_max: Some(SECOND * 10),
        finish_max: Some(SECOND * 5),
    };
    let start = world.now;
    world.rounds.open(&terms, 9, start).unwrap();
    assert!(matches!(world.rounds.next(start + SECOND), Next::Begin { .. }));
    world.rounds.begun(Ok(()), None, start + SECOND);
    let waits = |rounds: &mut Rounds, at, until| {
        assert!(
            matches!(rounds.next(start + at), Next::Wait { until: Some(u) } if u == start + until)
        );
    };
    waits(&mut world.rounds, SECOND, SECOND * 11);
    waits(&mut world.rounds, SECOND * 11, SECOND * 16);
    let late = start + SECOND * 16;
    assert!(matches!(world.rounds.next(late), Next::Abandon));
    // Too late now; the answer comes when the rows are back.
    let finish = world.rounds.finish(9, true, late).unwrap();
    assert!(matches!(finish, Progress::Wait { .. }));
    world.rounds.abandoned(Ok(()));
    let over = world.rounds.next(late);
    assert!(matches!(over, Next::Over { round: 9, outcome: Outcome::Expired }), "{over:?}");
    let finish = world.rounds.finish(9, true, late);
    assert!(matches!(finish, Err(Refused::Over { outcome: Outcome::Expired, .. })), "{finish:?}");
    assert_eq!(world.rounds.abandon(9).unwrap(), Progress::Done(()));
}

/// After a restart the operator's call is answered as it would have been before.
#[test]
fn what_the_journal_knows_is_answered() {
    let report = RoundReport { round: 5, rounds: 3, uploaded: 2, ..RoundReport::default() };
    let settled = [
        Settled::new(4, crate::round::Ended::Abandoned),
        Settled::new(5, crate::round::Ended::Committed(report.clone())),
        Settled::new(6, crate::round::Ended::Failed),
    ];
    let world = World::new(2);
    let (terms, key) = (world.rounds.terms().clone(), ControllerKey::from_seed(&[3; 32]));
    let mut rounds = Rounds::new(terms, key, 3, None, &settled);
    assert_eq!(rounds.finish(5, false, world.now).unwrap(), Progress::Done(report));
    assert!(matches!(rounds.abandon(5), Err(Refused::Over { outcome: Outcome::Committed, .. })));
    assert_eq!(rounds.abandon(4).unwrap(), Progress::Done(()));
    let failed = rounds.finish(6, true, world.now);
    assert!(matches!(failed, Err(Refused::Over { outcome: Outcome::Failed, .. })), "{failed:?}");
    assert!(matches!(rounds.next(world.now), Next::Wait { until: None }), "nothing is told anew");
}
