//! Training servers without sockets: real rounds around a memory that hides nothing, servers that restart, and
//! another controller under the same address.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_client::simulation::Answered;
use hushtable_client::{CallError, CallFault};
use hushtable_oram::round::{Ended, RoundReport, Settled};
use hushtable_oram::session::{Announced, BackupMade, Call, Reply, Training};
use hushtable_oram::wire::{ControllerKey, Pin, Terms, random_round};
use hushtable_oram::{ControllerSpec, Next, Outcome, Progress, Refused, RoundLimits, Rounds};

pub const SLOTS: usize = 4;
pub const USERS: u32 = 3;

/// The server of one controller, from one restart to the next.
pub struct Host {
    rounds: Rounds,
    terms: Terms,
    key: ControllerKey,
    epoch: Instant,
    /// Of the round that has begun, what its users asked for.
    ids: Vec<u32>,
    /// How earlier rounds have ended.
    settled: Vec<Settled>,
    committed: u64,
    /// What was added to each row, in rounds that were committed, and in the open one.
    pub trained: BTreeMap<u32, f32>,
    added: BTreeMap<u32, f32>,
    /// Calls that came, by name.
    pub came: BTreeMap<&'static str, usize>,
}

impl Host {
    pub fn new(name: &str) -> Self {
        let spec = ControllerSpec::new(name, (100, 2), (USERS as usize, SLOTS));
        let (terms, key) = (Terms::of(&spec).unwrap(), ControllerKey::generate().unwrap());
        let rounds = Rounds::new(terms.clone(), key.clone(), 0, None, &[]);
        Self {
            rounds,
            terms,
            key,
            epoch: Instant::now(),
            ids: Vec::new(),
            settled: Vec::new(),
            committed: 0,
            trained: BTreeMap::new(),
            added: BTreeMap::new(),
            came: BTreeMap::new(),
        }
    }

    pub fn pin(&self) -> Pin {
        Pin::new(self.key.public(), &self.terms)
    }

    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// It was killed and comes back: a round that had begun has failed, one that had not never was.
    pub fn restart(&mut self) {
        if let Some(open) = self.rounds.open_round() {
            self.settled.push(Settled::new(open.round, Ended::Failed));
        }
        let (terms, key) = (self.terms.clone(), self.key.clone());
        self.rounds = Rounds::new(terms, key, self.committed, None, &self.settled);
        self.added.clear();
    }

    /// What it replies at a time: a call that waits for others is not held but put off.
    pub fn reply(&mut self, now: Duration, call: Call) -> Answered<Training> {
        let now = self.epoch + now;
        *self.came.entry(name(&call)).or_default() += 1;
        let reply = match call {
            Call::Info => Ok(Reply::Info(Box::new(self.announced()))),
            Call::OpenRound { limits, token } => {
                assert_eq!(token.expect("the operator's").expose(), "secret");
                self.open(&limits, now).map(Reply::Opened)
            }
            Call::CloseRequests { round, .. } => {
                self.again(now, |rounds| rounds.close(round)).map(Reply::Closed)
            }
            Call::Finish { round, now: is_hurried, .. } => {
                let report = self.again(now, |rounds| rounds.finish(round, is_hurried, now));
                report.map(|report| Reply::Finished(Box::new(report)))
            }
            Call::Abandon { round, .. } => {
                self.again(now, |rounds| rounds.abandon(round)).map(|()| Reply::Done)
            }
            Call::Backup { .. } => {
                Ok(Reply::Backup(BackupMade { rounds: 1, rounds_begun: 2, bytes: 3 }))
            }
            Call::Request { round, user, sealed } => {
                let taken = self.rounds.request(round, user, &sealed).map_err(refused);
                self.settle(now);
                taken.map(|()| Reply::Done)
            }
            Call::Rows { round, user, reply_bytes, .. } => {
                self.rows(round, user, now).map(|sealed| {
                    assert_eq!(sealed.len(), reply_bytes);
                    Reply::Rows(sealed)
                })
            }
            Call::Upload { round, user, sealed } => self.upload(round, user, &sealed),
            other => panic!("{other:?}"),
        };
        self.settle(now);
        reply
    }

    fn announced(&self) -> Announced {
        let open = self.rounds.open_round();
        Announced {
            terms: self.terms.clone(),
            public_key: self.key.public(),
            rounds: self.committed,
            open: open.map(|open| (open.round, open.stage)),
            users: open.map_or([0; 3], |open| [open.users, open.requested, open.uploaded]),
            software: "test".to_owned(),
        }
    }

    fn open(&mut self, limits: &RoundLimits, now: Instant) -> Result<u64, CallError<&'static str>> {
        let round = random_round().unwrap();
        self.rounds.open(limits, round, now).map_err(refused)?;
        Ok(round)
    }

    fn rows(
        &mut self,
        round: u64,
        user: u32,
        now: Instant,
    ) -> Result<Bytes, CallError<&'static str>> {
        self.again(now, |rounds| rounds.rows(round, user))?;
        let ids = &self.ids[user as usize * SLOTS..][..SLOTS];
        let rows: Vec<f32> = ids.iter().flat_map(|&id| row(id)).collect();
        let found: Vec<bool> = ids.iter().map(|&id| id < 100).collect();
        self.rounds.seal(round, user, &rows, &found).map(Bytes::from).map_err(refused)
    }

    fn upload(&mut self, round: u64, user: u32, sealed: &[u8]) -> Answered<Training> {
        match self.rounds.upload(round, user, sealed).map_err(refused)? {
            Progress::Done(Some(upload)) => {
                let ids = &self.ids[user as usize * SLOTS..][..SLOTS];
                for (&id, gradient) in ids.iter().zip(upload.gradients.chunks(2)) {
                    *self.added.entry(id).or_default() += gradient[0];
                }
                Ok(Reply::Done)
            }
            Progress::Done(None) => Ok(Reply::Done),
            _ => Err(pending()),
        }
    }

    /// Makes a call until nothing is due any more.
    fn again<T>(
        &mut self,
        now: Instant,
        call: impl Fn(&mut Rounds) -> Result<Progress<T>, Refused>,
    ) -> Result<T, CallError<&'static str>> {
        loop {
            match call(&mut self.rounds).map_err(refused)? {
                Progress::Done(done) => return Ok(done),
                Progress::Due => self.settle(now),
                _ => return Err(pending()),
            }
        }
    }

    /// Does what is due.
    fn settle(&mut self, now: Instant) {
        loop {
            match self.rounds.next(now) {
                Next::Begin { ids, .. } => {
                    self.ids = ids.to_vec();
                    self.rounds.begun(Ok(()), None, now);
                }
                Next::Commit => {
                    self.committed += 1;
                    let report = RoundReport { rounds: self.committed, ..RoundReport::default() };
                    self.rounds.committed(Ok(report.clone()));
                    for (id, gradient) in std::mem::take(&mut self.added) {
                        *self.trained.entry(id).or_default() += gradient;
                    }
                }
                Next::Abandon => {
                    self.added.clear();
                    self.rounds.abandoned(Ok(()));
                }
                Next::Over { round, outcome } => {
                    let report =
                        RoundReport { round, rounds: self.committed, ..RoundReport::default() };
                    self.settled.push(Settled::new(
                        round,
                        match outcome {
                            Outcome::Committed => Ended::Committed(report),
                            Outcome::Abandoned => Ended::Abandoned,
                            _ => Ended::Failed,
                        },
                    ));
                }
                _ => return,
            }
        }
    }
}

/// A row before it was ever trained.
pub fn row(id: u32) -> [f32; 2] {
    [id as f32, 0.5]
}

pub fn name(call: &Call) -> &'static str {
    match call {
        Call::Info => "Info",
        Call::OpenRound { .. } => "OpenRound",
        Call::CloseRequests { .. } => "CloseRequests",
        Call::Finish { .. } => "Finish",
        Call::Abandon { .. } => "Abandon",
        Call::Backup { .. } => "Backup",
        Call::Request { .. } => "Request",
        Call::Rows { .. } => "Rows",
        Call::Upload { .. } => "Upload",
        other => panic!("{other:?}"),
    }
}

fn pending() -> CallError<&'static str> {
    let fault = CallFault::Pending { retry_after: Duration::from_millis(200) };
    CallError { fault, error: "pending" }
}

fn refused(refused: Refused) -> CallError<&'static str> {
    let error = match refused {
        Refused::NoRound { .. } => "no round",
        Refused::RoundOpen { .. } => "round open",
        Refused::Over { .. } => "round over",
        Refused::NotBegun { .. } => "not begun",
        Refused::TooFewUsers { .. } => "too few users",
        Refused::Message { .. } => "bad message",
        other => panic!("{other}"),
    };
    CallError { fault: CallFault::Other, error }
}
