//! How a precompute is used up: both sides take their halves, and frames go to and fro.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{
    Ask, CallFault, Limits, Place, Round, RoundOf, Script, Tally, Timed, Verdict,
};
use hushtable_mpc::Party;

use super::super::error::Error;
use super::super::online::OnlineClient;
use super::call::{Call, Failure, Inference, Reply, Stream};
use super::halves::{Chosen, ChosenIds, Halves, TakenHalf};
use super::scheme::{Server, Session};
use crate::records::RecordError;
use crate::store::Head;

/// What comes of a prediction.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "there is a precompute, or there is none")]
pub enum Predicted {
    /// There is no precompute to use: one must be made first.
    Dry {
        /// Precomputes that the server did not have any more.
        lost: usize,
    },
    /// An answer.
    Answer(Answer),
}

/// What a network says of an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Answer {
    /// The network's numbers, modulo 2^bits in the last stage's fraction.
    pub raw: Vec<u64>,
    /// Bytes of frames sent.
    pub sent_bytes: u64,
    /// Bytes of frames received.
    pub received_bytes: u64,
    /// Frames, both ways.
    pub frames: usize,
    /// From the precompute's use to the answer.
    pub online: Duration,
    /// Precomputes that the server did not have any more.
    pub lost: usize,
}

impl Timed for Predicted {
    fn took(&mut self, elapsed: Duration, _: u32) {
        if let Self::Answer(answer) = self {
            // Until now it said when the server had taken its half.
            answer.online = elapsed.saturating_sub(answer.online);
        }
    }
}

/// How far a prediction has come, however often it is made anew.
#[derive(Default)]
struct Reached {
    /// Whether this client's half was taken: what follows is not made again.
    has_taken: AtomicBool,
    lost: AtomicUsize,
}

pub(super) struct PredictAsk {
    pub halves: Arc<dyn Halves>,
    pub chosen: ChosenIds,
    /// The input's numbers, as they are shared.
    pub input: Arc<Vec<u64>>,
    /// Whether the precompute was made a moment ago: a server that has lost it loses the next one too.
    pub is_fresh: bool,
    reached: Arc<Reached>,
    limits: Limits,
}

impl PredictAsk {
    pub fn new(
        call_max: Duration,
        halves: Arc<dyn Halves>,
        chosen: ChosenIds,
        input: Arc<Vec<u64>>,
        is_fresh: bool,
    ) -> Self {
        // A server that is busy is waited for, not one that is out of reach: whoever predicts is there. Frames have
        // time of their own, and what is computed between them is not the server's.
        let limits = Limits { may_overrun: true, ..Limits::of(call_max) };
        Self { halves, chosen, input, is_fresh, reached: Arc::default(), limits }
    }
}

impl Ask<Server> for PredictAsk {
    type Output = Predicted;
    type Script = PredictScript;

    fn script(&self, session: &Arc<Session>, _: u64) -> Result<PredictScript, Failure> {
        Ok(PredictScript {
            session: Arc::clone(session),
            halves: Arc::clone(&self.halves),
            chosen: Arc::clone(&self.chosen),
            input: Arc::clone(&self.input),
            is_fresh: self.is_fresh,
            reached: Arc::clone(&self.reached),
            passed: Vec::new(),
            state: State::Choosing,
        })
    }

    fn limits(&self) -> Option<Limits> {
        Some(self.limits)
    }

    fn is_repeatable(&self) -> bool {
        !self.reached.has_taken.load(Ordering::Relaxed)
    }

    // Halves are looked for in a folder.
    fn computes(&self, _: &Session) -> bool {
        true
    }
}

pub(super) struct PredictScript {
    session: Arc<Session>,
    halves: Arc<dyn Halves>,
    chosen: ChosenIds,
    input: Arc<Vec<u64>>,
    is_fresh: bool,
    reached: Arc<Reached>,
    /// Halves of this client that could not be taken.
    passed: Vec<[u8; 16]>,
    state: State,
}

enum State {
    /// To choose a half.
    Choosing,
    /// The server was asked to take its own.
    Opening(Chosen),
    /// Frames go to and fro.
    Running(Box<Running>),
    Over,
}

struct Running {
    stream: Stream,
    machine: OnlineClient,
    answer: Answer,
    chosen: Chosen,
}

impl PredictScript {
    /// Halves that can be used with this server, the oldest first.
    fn choose(&self) -> Option<Chosen> {
        let ready = self.halves.list();
        let is_usable = |head: &Head| self.session.fits(head) && !self.passed.contains(&head.id);
        Chosen::first(ready.into_iter().filter(is_usable), &self.chosen)
    }

    /// A half of this client's own that is lost or damaged is gone, and of no use: the next one is tried.
    fn pass_over(&mut self, id: [u8; 16], failure: Failure) -> Result<(), Failure> {
        let is_own = match &failure {
            // A medium that gives none loses nothing by it; another half would only be used up at the server.
            Failure::Halves(error) => error.is::<RecordError>(),
            Failure::Protocol(error) => matches!(**error, Error::Record(_)),
            _ => false,
        };
        if !is_own || self.is_fresh {
            return Err(failure);
        }
        self.passed.push(id);
        self.reached.lost.fetch_add(1, Ordering::Relaxed);
        // Nothing was used yet of the next.
        self.reached.has_taken.store(false, Ordering::Relaxed);
        self.state = State::Choosing;
        Ok(())
    }

    /// The server has taken its half: takes this client's.
    fn take(&self, chosen: Chosen, stream: Stream, began: Duration) -> Result<Running, Failure> {
        self.reached.has_taken.store(true, Ordering::Relaxed);
        let taken = self.halves.take(&chosen.id).map_err(Failure::Halves)?;
        let missing = || Error::from(RecordError::Missing { record: 0 });
        let TakenHalf { head, records } = taken.ok_or_else(missing)?;
        let garbler = if head.client_garbles { Party::Client } else { Party::Server };
        let outline = Arc::clone(&self.session.outline);
        let machine = OnlineClient::new(outline, garbler, records, &self.input)?;
        let lost = self.reached.lost.load(Ordering::Relaxed);
        let answer = Answer { online: began, lost, ..Answer::default() };
        Ok(Running { stream, machine, answer, chosen })
    }
}

impl Running {
    /// Takes the server's next frame.
    fn took(&mut self, frame: &[u8]) -> Result<(), Failure> {
        self.answer.received_bytes += frame.len() as u64;
        self.answer.frames += 1;
        self.machine.push(frame).map_err(|error| match error {
            // This client's own half is damaged, not what came.
            Error::Record(_) => Failure::from(error),
            error => Failure::Frame(Box::new(error)),
        })
    }

    /// What is asked next: frames that are ready are sent, and the server's next one is waited for.
    fn next(&mut self) -> Round<Call, Predicted> {
        if let Some(output) = self.machine.output() {
            self.answer.raw = output.to_vec();
            return Round::Done(Predicted::Answer(std::mem::take(&mut self.answer)));
        }
        let frames = std::iter::from_fn(|| self.machine.pull());
        let frames: Vec<Bytes> = frames.map(Bytes::from).collect();
        self.answer.sent_bytes += frames.iter().map(|frame| frame.len() as u64).sum::<u64>();
        self.answer.frames += frames.len();
        let stream = self.stream.clone();
        Round::Ask(vec![(Place::Single, Call::Exchange { stream, frames })])
    }
}

impl Script for PredictScript {
    type Protocol = Inference;
    type Output = Predicted;

    fn next(&mut self, replies: Vec<Reply>, tally: Tally) -> RoundOf<Inference, Predicted> {
        let reply = replies.into_iter().next();
        let mut running = match std::mem::replace(&mut self.state, State::Over) {
            State::Choosing => {
                let Some(chosen) = self.choose() else {
                    let lost = self.reached.lost.load(Ordering::Relaxed);
                    return Ok(Round::Done(Predicted::Dry { lost }));
                };
                let call = Call::Open { plan: self.session.announced.plan, id: chosen.id };
                self.state = State::Opening(chosen);
                return Ok(Round::Ask(vec![(Place::Single, call)]));
            }
            State::Opening(chosen) => match reply {
                Some(Reply::Opened(stream)) => {
                    let id = chosen.id;
                    match self.take(chosen, stream, tally.elapsed) {
                        Ok(running) => Box::new(running),
                        Err(failure) => {
                            self.pass_over(id, failure)?;
                            return self.next(Vec::new(), tally);
                        }
                    }
                }
                _ => return Err(Failure::OtherCall),
            },
            State::Running(mut running) => {
                let Some(Reply::Frame(frame)) = reply else { return Err(Failure::OtherCall) };
                if let Err(failure) = running.took(&frame) {
                    self.pass_over(running.chosen.id, failure)?;
                    return self.next(Vec::new(), tally);
                }
                running
            }
            State::Over => return Err(Failure::OtherCall),
        };
        let round = running.next();
        self.state = State::Running(running);
        Ok(round)
    }

    /// A half whose other half the server does not have any more is of no use: the next one is tried.
    fn failed(&mut self, fault: &CallFault) -> Result<Verdict, Failure> {
        let State::Opening(chosen) = &self.state else { return Ok(Verdict::End) };
        if *fault != CallFault::Gone {
            return Ok(Verdict::End);
        }
        self.halves.discard(&chosen.id).map_err(Failure::Halves)?;
        self.reached.lost.fetch_add(1, Ordering::Relaxed);
        if self.is_fresh {
            return Ok(Verdict::End);
        }
        self.state = State::Choosing;
        Ok(Verdict::GoOn)
    }

    // Reads a folder, or evaluates circuits.
    fn computes(&self) -> bool {
        !matches!(self.state, State::Over)
    }
}
