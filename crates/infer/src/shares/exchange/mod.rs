//! What left and right say to each other about the inferences of many clients, as a machine over frames.
//!
//! A session begins with a [`Hello`] each way, over a channel that nobody else reads or writes. From both nonces comes a
//! secret, and from that and an inference's number its shares of zero: left counts, so that no two inferences of a
//! session have the same, whatever clients do. A client sends both servers its part under one name that it
//! drew; who looks its rows up asks ([`Exchange::ask`]), then
//!
//! 1. left begins: number, name and its first message;
//! 2. right, which has left's message before it makes its own, answers with two: its first, and what follows from both;
//! 3. so does left, and so on: each frame but the first and the last has two messages of an inference, so that twelve
//!    messages each way take thirteen frames one after the other, and not twenty-four.
//!
//! Where the servers deal ([`joint`](super::joint)), right says first that it has its part ([`Exchange::met`]): left takes a
//! precompute for no inference of which only it has one. Left says at the beginning which precompute it has taken, and right
//! takes that ([`Supply`]); what left took for an inference that right never begins, right lets go of.
//!
//! Whatever is ready goes into one frame ([`Exchange::send`]): while one travels, others gather, so that many
//! inferences share each round trip. An inference that fails is over, here and there, and what was dealt for it is wiped: nothing is
//! ever sent again. Its client deals anew.
//!
//! (That right speaks second lets it choose its message by left's. Both follow the protocol; one that does not can
//! add what it likes to what is opened either way, for messages never cross at the same instant.)

mod frame;
mod hello;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hushtable_mpc::Secret;
use hushtable_mpc::compare::Half;
use zeroize::Zeroize;

pub use self::frame::FrameError;
use self::frame::{Entry, Kind};
pub use self::hello::{Hello, HelloError};
use super::joint::{Id, Precompute, PrecomputeError};
use super::{DealtBy, Error, Network, Progress, Server};

/// What a client calls an inference: random, so that no other client's is the same.
pub type Name = [u8; 16];

/// A client's part of one inference at one server, with the rows that it looked up there. Used once. What was dealt stays in
/// whatever bytes `B` it came in.
pub struct Question<B> {
    /// What the client calls it.
    pub name: Name,
    /// What it dealt to both servers; empty where the servers deal.
    pub common: B,
    /// What it dealt to this one; its share of the dense features where the servers deal.
    pub dealt: B,
    /// Left, where the servers deal: what it takes for this inference. Right takes what left names.
    pub precompute: Option<Precompute>,
    /// This server's XOR share of the rows, feature after feature.
    pub rows: Vec<u8>,
}

impl<B> Drop for Question<B> {
    fn drop(&mut self) {
        self.rows.zeroize();
    }
}

/// Where right takes the precomputes from that left names.
pub trait Supply: Send + Sync {
    /// Takes one, so that nothing takes it again; none where there is none, or none that can be used.
    fn take(&self, id: &Id) -> Option<Precompute>;
}

/// Why an inference has no answer. Its client deals anew, where it asks again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The other server never said that it has its part.
    #[error("the other server got no part of this inference within {} ms", after.as_millis())]
    Absent {
        /// How long it was waited for.
        after: Duration,
    },
    /// The other server began it, and fell silent.
    #[error("the other server said nothing of this inference for {} ms", after.as_millis())]
    Silent {
        /// How long.
        after: Duration,
    },
    /// Left had no precompute for it.
    #[error("the servers had dealt for no more inferences")]
    Dry,
    /// The session ended.
    #[error("the connection to the other server was lost")]
    Lost,
    /// It gave its place up.
    #[error("another client needed its place")]
    Displaced,
    /// The other server gave it up.
    #[error("the other server gave this inference up")]
    GivenUp,
    /// What the other server sent of it makes no sense.
    #[error("the other server's message: {0}")]
    Message(Error),
}

/// Why a question is not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// As many are under way as may be.
    #[error("{inferences_max} inferences are under way, which is all that may be: ask again later")]
    Busy {
        /// How many may be.
        inferences_max: usize,
    },
    /// One of that name is under way.
    #[error("an inference of this name is under way: each has a name of its own")]
    SameName,
    /// It is not of this model.
    #[error(transparent)]
    Question(#[from] Error),
}

/// How much is under way at once, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct ExchangeSpec {
    /// Most inferences under way, those included that wait for the other server's part.
    pub inferences_max: usize,
    /// How long the other server may be silent about one.
    pub silence_max: Duration,
}

impl Default for ExchangeSpec {
    fn default() -> Self {
        Self { inferences_max: 1024, silence_max: Duration::from_secs(5) }
    }
}

/// One server's end of a session. Times are since whatever moment its driver likes.
#[allow(missing_debug_implementations, reason = "it holds secrets")]
pub struct Exchange<B> {
    network: Arc<Network>,
    half: Half,
    dealt_by: DealtBy,
    supply: Option<Arc<dyn Supply>>,
    spec: ExchangeSpec,
    secret: Secret<[u8; 32]>,
    /// Begun by both.
    running: HashMap<u64, Running>,
    /// Those of left that right has not answered yet, and those of right that left has not begun.
    names: HashMap<Name, Waiting<B>>,
    /// Right: what left began before this server had its part.
    begun: HashMap<Name, Begun>,
    /// Right: what left declined before this server had its part, and when.
    declined: HashMap<Name, Duration>,
    /// Left, where the servers deal: what right has a part of, since when, and this server has not begun.
    has: HashMap<Name, Duration>,
    /// What both have a part of, as was learnt since the last time that it was asked.
    met: Vec<Name>,
    /// The last inference's number.
    last: u64,
    entries: Vec<Entry>,
    outcomes: Vec<(Name, Result<Vec<u8>, Failure>)>,
}

struct Running {
    name: Name,
    server: Server,
    heard: Duration,
    /// Whether the other server has said anything of it.
    is_answered: bool,
}

enum Waiting<B> {
    /// It was admitted, and is about to be asked.
    Admitted,
    /// Begun by both.
    Runs,
    Asked {
        question: Question<B>,
        since: Duration,
    },
}

struct Begun {
    number: u64,
    message: Vec<u8>,
    /// The precompute that left has taken for it.
    id: Option<Id>,
    since: Duration,
}

impl<B: AsRef<[u8]>> Exchange<B> {
    /// A session of two servers that have said hello. No two sessions may have the same hellos: each is made anew
    /// ([`Hello::new`]).
    ///
    /// # Errors
    /// [`HelloError`] where they are of one side or of different models.
    pub fn new(
        network: Arc<Network>,
        own: &Hello,
        other: &Hello,
        spec: ExchangeSpec,
    ) -> Result<Self, HelloError> {
        Ok(Self {
            network,
            half: own.half,
            dealt_by: own.dealt_by,
            supply: None,
            spec,
            secret: own.meet(other)?,
            running: HashMap::new(),
            names: HashMap::new(),
            begun: HashMap::new(),
            declined: HashMap::new(),
            has: HashMap::new(),
            met: Vec::new(),
            last: 0,
            entries: Vec::new(),
            outcomes: Vec::new(),
        })
    }

    /// Right, where the servers deal: takes precomputes from there.
    #[must_use]
    pub fn supplied(self, supply: Arc<dyn Supply>) -> Self {
        Self { supply: Some(supply), ..self }
    }

    /// Left, where the servers deal: it has no place or no precompute for an inference of this name, and tells right,
    /// which need not wait.
    pub fn decline(&mut self, name: Name) {
        self.dismiss(&name);
        self.push(0, Kind::Declined(name), Vec::new());
    }

    /// What was admitted is not asked after all.
    pub fn dismiss(&mut self, name: &Name) {
        if matches!(self.names.get(name), Some(Waiting::Admitted)) {
            self.names.remove(name);
        }
    }

    /// An inference under way gives its place up.
    pub fn give_up(&mut self, name: &Name) {
        let number =
            self.running.iter().find(|(_, it)| it.name == *name).map(|(number, _)| *number);
        if let Some(number) = number {
            self.push(number, Kind::GivenUp, Vec::new());
            self.end(number, Failure::Displaced);
        } else if self.names.contains_key(name) {
            self.let_go(*name, Failure::Displaced);
        }
    }

    /// Ends what was not begun. Left hears of it, where it waits to be told what right has.
    fn let_go(&mut self, name: Name, failure: Failure) {
        let held = self.names.remove(&name);
        let is_right = self.half == Half::Right && self.dealt_by == DealtBy::Servers;
        if is_right && matches!(held, Some(Waiting::Asked { .. })) {
            self.push(0, Kind::Lacks(name), Vec::new());
        }
        self.outcomes.push((name, Err(failure)));
    }

    /// The inferences of which both servers have their part, as this one has learnt since the last call.
    pub fn met(&mut self) -> Vec<Name> {
        std::mem::take(&mut self.met)
    }

    /// Whether the other server is known to have its part of what is to be asked: only then is a precompute taken for it.
    pub fn has_other(&self, name: &Name) -> bool {
        self.has.contains_key(name)
    }

    /// Whether one of that name is under way here.
    pub fn has_own(&self, name: &Name) -> bool {
        self.names.contains_key(name)
    }

    /// Right: whether left has begun it.
    pub fn is_begun(&self, name: &Name) -> bool {
        self.begun.contains_key(name)
    }

    /// How many inferences are under way here.
    pub fn inferences(&self) -> usize {
        self.names.len()
    }

    /// Keeps a place for an inference of this name, which is asked next or [dismissed](Self::dismiss): no other of its
    /// name is admitted meanwhile.
    ///
    /// # Errors
    /// [`AskError::SameName`], [`AskError::Busy`].
    pub fn admit(&mut self, name: &Name) -> Result<(), AskError> {
        let inferences_max = self.spec.inferences_max;
        if self.names.contains_key(name) {
            return Err(AskError::SameName);
        }
        // What left has begun has its place already: left used a precompute for it.
        if self.names.len() >= inferences_max && !self.begun.contains_key(name) {
            return Err(AskError::Busy { inferences_max });
        }
        self.names.insert(*name, Waiting::Admitted);
        Ok(())
    }

    /// Takes a client's part of an inference, admitted or not.
    ///
    /// # Errors
    /// [`AskError`]: the client is told, and nothing was sent.
    pub fn ask(&mut self, question: Question<B>, now: Duration) -> Result<(), AskError> {
        let name = question.name;
        self.dismiss(&name);
        self.admit(&name)?;
        let asked = self.begin_or_wait(question, now);
        if asked.is_err() {
            self.dismiss(&name);
        }
        asked
    }

    fn begin_or_wait(&mut self, question: Question<B>, now: Duration) -> Result<(), AskError> {
        // Before anything is sent, or waited for.
        let outline = self.network.outline();
        let (common, dealt) = (question.common.as_ref(), question.dealt.as_ref());
        match self.dealt_by {
            DealtBy::Client => outline.check_part(self.half, common, dealt)?,
            DealtBy::Servers => outline.check_shared(self.half, common, dealt)?,
        }
        outline.check_rows(&question.rows)?;
        match self.half {
            Half::Left => {
                self.last += 1;
                let (number, name) = (self.last, question.name);
                self.has.remove(&name);
                let (server, message) = self.start(&question, number)?;
                let id = question.precompute.as_ref().map(Precompute::id);
                let begin = id.map_or(Kind::Begin(name), |id| Kind::BeginWith(name, id));
                self.push(number, begin, message);
                self.run(number, name, server, now, false);
            }
            Half::Right => match self.begun.remove(&question.name) {
                Some(begun) => {
                    let number = begun.number;
                    if let Err(error) = self.answer(question, begun, now) {
                        self.push(number, Kind::GivenUp, Vec::new());
                        return Err(error.into());
                    }
                }
                None if self.declined.remove(&question.name).is_some() => {
                    self.names.remove(&question.name);
                    self.outcomes.push((question.name, Err(Failure::Dry)));
                }
                None => {
                    let name = question.name;
                    if self.dealt_by == DealtBy::Servers {
                        self.push(0, Kind::Has(name), Vec::new());
                    }
                    self.names.insert(name, Waiting::Asked { question, since: now });
                }
            },
        }
        Ok(())
    }

    /// Takes the other server's frame.
    ///
    /// # Errors
    /// [`FrameError`]: it is no frame, or not of this session, which is over then.
    pub fn take(&mut self, frame: &[u8], now: Duration) -> Result<(), FrameError> {
        for entry in frame::parse(frame) {
            let Entry { number, kind, message } = entry?;
            match (kind, self.half) {
                (Kind::Begin(_) | Kind::BeginWith(..) | Kind::Declined(_), Half::Left) => {
                    return Err(FrameError::Begins);
                }
                (Kind::Has(_) | Kind::Lacks(_), Half::Right) => return Err(FrameError::Has),
                (Kind::Lacks(name), Half::Left) => drop(self.has.remove(&name)),
                (Kind::Has(name), Half::Left) => {
                    // Right has no more at once than it may have under way.
                    if self.has.len() < 2 * self.spec.inferences_max {
                        self.has.insert(name, now);
                        self.met.push(name);
                    }
                }
                (Kind::Declined(name), Half::Right) => self.declined(name, now),
                (Kind::Begin(name) | Kind::BeginWith(name, _), Half::Right) => {
                    if number <= self.last {
                        let last = self.last;
                        return Err(FrameError::Number { last, found: number });
                    }
                    self.last = number;
                    let id = match kind {
                        Kind::BeginWith(_, id) => Some(id),
                        _ => None,
                    };
                    self.begin(name, Begun { number, message, id, since: now });
                }
                (Kind::Message, _) => self.step(number, &message, now),
                (Kind::GivenUp, _) => {
                    let begun = self.begun.extract_if(|_, begun| begun.number == number);
                    let begun: Vec<Begun> = begun.map(|(_, begun)| begun).collect();
                    begun.iter().for_each(|begun| self.waste(begun));
                    self.end(number, Failure::GivenUp);
                }
            }
        }
        Ok(())
    }

    /// All that is to be sent now, in one frame of at most about `bytes_max`; call again while there is one. The order of
    /// frames must be kept.
    pub fn send(&mut self, bytes_max: usize) -> Option<Vec<u8>> {
        if self.entries.is_empty() {
            return None;
        }
        let (mut bytes, mut count) = (0, 0);
        for entry in &self.entries {
            bytes += entry.bytes();
            if count > 0 && bytes > bytes_max {
                break;
            }
            count += 1;
        }
        Some(frame::encode(self.entries.drain(..count)))
    }

    /// What has ended since the last call: this server's share of the logit for the client, or why there is none.
    pub fn outcomes(&mut self) -> Vec<(Name, Result<Vec<u8>, Failure>)> {
        std::mem::take(&mut self.outcomes)
    }

    /// Gives up what the other server has been silent about for too long. To be called now and then.
    pub fn expire(&mut self, now: Duration) {
        let after = self.spec.silence_max;
        let is_late = |since: Duration| now.saturating_sub(since) >= after;
        let late: Vec<u64> = self
            .running
            .iter()
            .filter(|(_, running)| is_late(running.heard))
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            let is_answered = self.running.get(&number).is_some_and(|it| it.is_answered);
            self.push(number, Kind::GivenUp, Vec::new());
            self.end(
                number,
                if is_answered { Failure::Silent { after } } else { Failure::Absent { after } },
            );
        }
        let late: Vec<Name> = self
            .names
            .iter()
            .filter(|(_, it)| matches!(it, Waiting::Asked { since, .. } if is_late(*since)))
            .map(|(name, _)| *name)
            .collect();
        for name in late {
            self.let_go(name, Failure::Absent { after });
        }
        self.declined.retain(|_, since| !is_late(*since));
        self.has.retain(|_, since| !is_late(*since));
        let late: Vec<(Name, u64)> = self
            .begun
            .iter()
            .filter(|(_, begun)| is_late(begun.since))
            .map(|(name, begun)| (*name, begun.number))
            .collect();
        for (name, number) in late {
            if let Some(begun) = self.begun.remove(&name) {
                self.waste(&begun);
            }
            self.push(number, Kind::GivenUp, Vec::new());
        }
    }

    /// Ends the session: what is under way fails.
    pub fn close(mut self) -> Vec<(Name, Result<Vec<u8>, Failure>)> {
        self.begun.values().for_each(|begun| self.waste(begun));
        let names = self.names.drain();
        let lost = names.map(|(name, _)| (name, Err(Failure::Lost)));
        self.outcomes.extend(lost);
        self.outcomes
    }

    fn start(&self, question: &Question<B>, number: u64) -> Result<(Server, Vec<u8>), Error> {
        let seed = hello::zero_seed(&self.secret, number);
        let Question { common, dealt, rows, precompute, .. } = question;
        let (network, common, dealt) = (Arc::clone(&self.network), common.as_ref(), dealt.as_ref());
        let half = self.half;
        let started = match (self.dealt_by, precompute) {
            (DealtBy::Client, _) => {
                Server::start(network, half, common, dealt, rows, seed.expose())
            }
            (DealtBy::Servers, Some(precompute)) => {
                Server::start_precomputed(network, half, precompute, dealt, rows, seed.expose())
            }
            (DealtBy::Servers, None) => Err(PrecomputeError::Missing.into()),
        };
        match started? {
            (server, Progress::Send(message)) => Ok((server, message)),
            (_, Progress::Done(_)) => Err(Error::Finished),
        }
    }

    fn run(&mut self, number: u64, name: Name, server: Server, now: Duration, is_answered: bool) {
        self.names.insert(name, Waiting::Runs);
        self.running.insert(number, Running { name, server, heard: now, is_answered });
    }

    /// Right: left has begun an inference.
    fn begin(&mut self, name: Name, begun: Begun) {
        match self.names.remove(&name) {
            Some(Waiting::Asked { question, .. }) => {
                let (number, now) = (begun.number, begun.since);
                if let Err(error) = self.answer(question, begun, now) {
                    self.push(number, Kind::GivenUp, Vec::new());
                    self.outcomes.push((name, Err(Failure::Message(error))));
                }
            }
            // A running inference has this name: the client plays.
            Some(runs) => {
                self.names.insert(name, runs);
                self.waste(&begun);
                self.push(begun.number, Kind::GivenUp, Vec::new());
            }
            None if self.begun.len() >= self.spec.inferences_max => {
                self.waste(&begun);
                self.push(begun.number, Kind::GivenUp, Vec::new());
            }
            None => {
                if let Some(before) = self.begun.insert(name, begun) {
                    self.waste(&before);
                    self.push(before.number, Kind::GivenUp, Vec::new());
                }
            }
        }
    }

    /// Right: begins what left has begun.
    fn answer(
        &mut self,
        mut question: Question<B>,
        begun: Begun,
        now: Duration,
    ) -> Result<(), Error> {
        let Begun { number, message, id, .. } = begun;
        question.precompute = id.and_then(|id| self.supply.as_ref()?.take(&id));
        let (server, own) = self.start(&question, number)?;
        self.push(number, Kind::Message, own);
        self.met.push(question.name);
        self.run(number, question.name, server, now, true);
        self.step(number, &message, now);
        Ok(())
    }

    /// Right: left has no place or no precompute for it.
    fn declined(&mut self, name: Name, now: Duration) {
        match self.names.remove(&name) {
            Some(Waiting::Asked { .. }) => self.outcomes.push((name, Err(Failure::Dry))),
            Some(runs) => drop(self.names.insert(name, runs)),
            // Its part is on its way, or just being looked up.
            None if self.declined.len() < self.spec.inferences_max => {
                self.declined.insert(name, now);
            }
            None => {}
        }
    }

    /// Right: what left took for an inference that this server does not begin is of no use any more.
    fn waste(&self, begun: &Begun) {
        if let (Some(id), Some(supply)) = (&begun.id, &self.supply) {
            drop(supply.take(id));
        }
    }

    /// Goes on with an inference. One that is over here already is no error: frames cross.
    fn step(&mut self, number: u64, message: &[u8], now: Duration) {
        let Some(running) = self.running.get_mut(&number) else { return };
        running.heard = now;
        if !std::mem::replace(&mut running.is_answered, true) {
            self.met.push(running.name);
        }
        match running.server.step(message) {
            Ok(Progress::Send(message)) => self.push(number, Kind::Message, message),
            Ok(Progress::Done(share)) => self.finish(number, Ok(share)),
            Err(error) => {
                self.push(number, Kind::GivenUp, Vec::new());
                self.end(number, Failure::Message(error));
            }
        }
    }

    fn end(&mut self, number: u64, failure: Failure) {
        self.finish(number, Err(failure));
    }

    fn finish(&mut self, number: u64, outcome: Result<Vec<u8>, Failure>) {
        if let Some(Running { name, .. }) = self.running.remove(&number) {
            self.names.remove(&name);
            self.outcomes.push((name, outcome));
        }
    }

    fn push(&mut self, number: u64, kind: Kind, message: Vec<u8>) {
        self.entries.push(Entry { number, kind, message });
    }
}
