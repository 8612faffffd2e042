//! The thread that computes: looks rows up for whoever has come, and takes and sends frames.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_infer::shares::Half;
use hushtable_infer::shares::exchange::{
    AskError, Exchange, ExchangeSpec, Failure, Name, Question,
};
use hushtable_infer::shares::joint::Precompute;
use hushtable_pir::dpf::Key;
use tokio::sync::{mpsc, oneshot, watch};

use super::crowd::Crowd;
use super::metrics::SharesMetrics;
use super::model::SharedModel;
use super::refill::Refill;
use super::refusal::{dry, of_failure, of_question};
use super::{FRAME_BYTES_MAX, SharesRefusal};
use crate::Refusal;
use crate::host::budget::Reservation;
use crate::host::quota::{Full, Holder};
use crate::vital::Vital;

/// What the thread is told.
pub(super) enum Event {
    Ask(Box<Asked>),
    /// A session with the other server, in place of the one before.
    Opens(Box<Opened>),
    Frame {
        session: u64,
        bytes: Bytes,
    },
    Closes {
        session: u64,
    },
    Stop,
}

/// A client's part of an inference, checked as far as it can be alone.
pub(super) struct Asked {
    pub name: Name,
    /// Whose it is.
    pub holder: Holder,
    pub keys: Vec<Vec<Key>>,
    pub common: Bytes,
    pub dealt: Bytes,
    /// What the servers dealt for it: left's, once it is taken.
    pub precompute: Option<Precompute>,
    pub arrived: Instant,
    /// What counts its bytes, for as long as it waits.
    pub _reservation: Option<Arc<Reservation>>,
    pub reply: oneshot::Sender<Result<Answered, Refusal>>,
}

/// This server's share of a logit.
pub(super) struct Answered {
    pub share: Vec<u8>,
    pub queued: Duration,
    pub answering: Duration,
}

pub(super) struct Opened {
    pub session: u64,
    pub exchange: Exchange<Bytes>,
    pub frames: mpsc::UnboundedSender<Vec<u8>>,
}

struct Awaiting {
    reply: oneshot::Sender<Result<Answered, Refusal>>,
    arrived: Instant,
    began: Instant,
}

/// What the thread has.
pub(super) struct Inferences {
    pub model: Arc<SharedModel>,
    pub metrics: SharesMetrics,
    /// Whether there is a session.
    pub is_met: watch::Sender<bool>,
    /// How many inferences are under way.
    pub inferences: Arc<AtomicUsize>,
    /// Where the servers deal.
    pub refill: Option<Arc<Refill>>,
    opened: Option<Opened>,
    crowd: Crowd,
    spec: ExchangeSpec,
    /// Left, where the servers deal: parts that were admitted, and that right is not known to have.
    unmet: HashMap<Name, Asked>,
    awaiting: HashMap<Name, Awaiting>,
    epoch: Instant,
}

impl Inferences {
    pub fn new(
        model: Arc<SharedModel>,
        metrics: SharesMetrics,
        is_met: watch::Sender<bool>,
        inferences: Arc<AtomicUsize>,
        (spec, batch_max): (ExchangeSpec, usize),
        refill: Option<Arc<Refill>>,
    ) -> Self {
        let (awaiting, unmet, epoch) = (HashMap::new(), HashMap::new(), Instant::now());
        let crowd = Crowd::new(spec.inferences_max, batch_max);
        Self {
            model,
            metrics,
            is_met,
            inferences,
            refill,
            opened: None,
            crowd,
            spec,
            unmet,
            awaiting,
            epoch,
        }
    }

    /// Works until it is stopped.
    pub fn run(mut self, events: &Receiver<Event>, vital: &Vital) {
        let mut ticked = Instant::now();
        loop {
            vital.turn();
            let patience = if self.crowd.is_waiting() { Duration::ZERO } else { TICK };
            let mut next = match events.recv_timeout(patience) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(Event::Stop),
            };
            // Whatever has come meanwhile goes into the same pass and the same frame.
            let mut taken = 0;
            while let Some(event) = next {
                match event {
                    Event::Ask(one) => self.crowd.push(one, Instant::now()),
                    Event::Opens(opened) => self.open(*opened),
                    Event::Frame { session, bytes } => self.take(session, &bytes),
                    Event::Closes { session } => self.close(session),
                    Event::Stop => return self.stop(),
                }
                taken += 1;
                next = match taken < EVENTS_MAX {
                    true => events.try_recv().ok(),
                    false => None,
                };
            }
            // Others wait for what is ready already.
            self.flush();
            let asked = self.crowd.next_pass(Instant::now());
            self.answer(asked);
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                let now = self.epoch.elapsed();
                if let Some(opened) = &mut self.opened {
                    opened.exchange.expire(now);
                }
                self.expire();
            }
            self.flush();
        }
    }

    fn open(&mut self, opened: Opened) {
        if let Some(before) = self.opened.take() {
            self.end(before);
        }
        self.opened = Some(opened);
        self.metrics.sessions.inc();
        self.is_met.send_replace(true);
    }

    fn take(&mut self, session: u64, frame: &[u8]) {
        let now = self.epoch.elapsed();
        let Some(opened) = self.opened.as_mut().filter(|it| it.session == session) else { return };
        self.metrics.received_bytes.inc_by(frame.len() as u64);
        self.metrics.received_frames.inc();
        if let Err(error) = opened.exchange.take(frame, now) {
            tracing::error!(%error, "the session with the other server is given up");
            self.close(session);
        }
    }

    fn close(&mut self, session: u64) {
        if let Some(opened) = self.opened.take_if(|it| it.session == session) {
            self.end(opened);
        }
    }

    /// What is under way fails. Its frames end with it, which the other server notices.
    fn end(&mut self, opened: Opened) {
        self.is_met.send_replace(false);
        // What was taken for those that right has not heard of is still with right.
        self.disagree();
        let outcomes = opened.exchange.close();
        self.tell(outcomes);
    }

    /// Gives up what right never said that it has.
    fn expire(&mut self) {
        let after = self.spec.silence_max;
        let late = self.unmet.iter().filter(|(_, one)| one.arrived.elapsed() >= after);
        let late: Vec<Name> = late.map(|(name, _)| *name).collect();
        for name in late {
            if let Some(opened) = &mut self.opened {
                opened.exchange.dismiss(&name);
            }
            self.tell(vec![(name, Err(Failure::Absent { after }))]);
        }
    }

    /// What both servers have now, of what waited for that.
    fn met(&mut self) -> Vec<Asked> {
        let Some(opened) = &mut self.opened else { return Vec::new() };
        let now = Instant::now();
        let mut ready = Vec::new();
        for name in opened.exchange.met() {
            self.crowd.met(&name, now);
            match self.unmet.remove(&name) {
                // A client that has gone needs no precompute.
                Some(one) if one.reply.is_closed() => {
                    opened.exchange.dismiss(&name);
                    self.crowd.leave(&name);
                }
                one => ready.extend(one),
            }
        }
        ready
    }

    fn stop(mut self) {
        if let Some(opened) = self.opened.take() {
            self.end(opened);
        }
    }

    fn answer(&mut self, asked: Vec<Asked>) {
        // A client that has gone needs no answer.
        let asked = asked.into_iter().filter(|it| !it.reply.is_closed());
        let asked: Vec<Asked> = asked.collect();
        if self.opened.is_none() {
            for Asked { reply, .. } in asked {
                drop(reply.send(Err(SharesRefusal::NoPeer.into())));
            }
            return;
        }
        let mut ready = self.met();
        ready.extend(self.admit(asked));
        let ready = self.without_displaced(ready);
        let mut asked = self.provide(ready);
        if asked.is_empty() {
            return;
        }
        let began = Instant::now();
        let mut keys: Vec<_> = asked.iter_mut().map(|it| std::mem::take(&mut it.keys)).collect();
        let rows = match self.model.look_up(&mut keys) {
            Ok(rows) => rows,
            Err(error) => {
                tracing::error!(%error, "rows cannot be looked up");
                for Asked { name, reply, .. } in asked {
                    if let Some(opened) = &mut self.opened {
                        opened.exchange.dismiss(&name);
                    }
                    self.crowd.leave(&name);
                    drop(reply.send(Err(Refusal::Backend)));
                }
                self.disagree();
                return;
            }
        };
        self.metrics.lookups(asked.len(), began.elapsed());
        let now = self.epoch.elapsed();
        for (one, rows) in asked.into_iter().zip(rows) {
            let Asked { name, common, dealt, precompute, arrived, reply, .. } = one;
            let question = Question { name, common, dealt, precompute, rows };
            let Some(opened) = &mut self.opened else { return };
            match opened.exchange.ask(question, now) {
                Ok(()) => {
                    self.awaiting.insert(name, Awaiting { reply, arrived, began });
                }
                Err(error) => {
                    self.crowd.leave(&name);
                    drop(reply.send(Err(of_question(error))));
                    self.disagree();
                }
            }
        }
    }

    /// Left, where the servers deal: what it took may never be used at right, and both are to agree anew on what they
    /// hold, or right would run out of room for what is of no use to anybody.
    fn disagree(&self) {
        if let (Some(refill), Half::Left) = (&self.refill, self.model.info.half) {
            refill.disagree();
        }
    }

    /// Keeps a place for each: before rows are looked up for it, or a precompute is taken, which is used then or lost.
    /// Who gets none is told; who gives one up is told soon. Left, where the servers deal, keeps those back that right is
    /// not known to have.
    fn admit(&mut self, asked: Vec<Asked>) -> Vec<Asked> {
        let waits = self.refill.is_some() && self.model.info.half == Half::Left;
        let mut admitted = Vec::with_capacity(asked.len());
        for one in asked {
            let place = self.place(&one);
            let Some(Opened { exchange, .. }) = &mut self.opened else { return admitted };
            match place.and_then(|()| exchange.admit(&one.name)) {
                Ok(()) if waits && !exchange.has_other(&one.name) => {
                    self.unmet.insert(one.name, one);
                }
                Ok(()) => admitted.push(one),
                Err(error) => {
                    // A name that is taken has the place of another part.
                    if !matches!(error, AskError::SameName) {
                        self.crowd.leave(&one.name);
                    }
                    // Right has a part of it too, which nobody will ask for. A name that is taken is another's.
                    if waits && matches!(error, AskError::Busy { .. }) {
                        exchange.decline(one.name);
                    }
                    drop(one.reply.send(Err(of_question(error))));
                }
            }
        }
        admitted
    }

    /// What was admitted may have given its place to what was admitted after it: nothing is taken for that.
    fn without_displaced(&self, ready: Vec<Asked>) -> Vec<Asked> {
        let Some(Opened { exchange, .. }) = &self.opened else { return Vec::new() };
        let (ready, displaced): (Vec<_>, Vec<_>) =
            ready.into_iter().partition(|one| exchange.has_own(&one.name));
        for one in displaced {
            self.metrics.failed.inc();
            drop(one.reply.send(Err(of_failure(&Failure::Displaced))));
        }
        ready
    }

    /// A place for one, of whoever has the most where there is none.
    fn place(&mut self, one: &Asked) -> Result<(), AskError> {
        let inferences_max = self.spec.inferences_max;
        let Some(Opened { exchange, .. }) = &mut self.opened else { return Ok(()) };
        if exchange.has_own(&one.name) {
            return Err(AskError::SameName);
        }
        match self.crowd.enter(one.name, one.holder, Instant::now()) {
            Ok(gone) => {
                self.metrics.displaced.inc_by(gone.len() as u64);
                gone.iter().for_each(|name| exchange.give_up(name));
                Ok(())
            }
            // What left has begun has its place already: left used a precompute for it.
            Err(Full) if exchange.is_begun(&one.name) => Ok(()),
            Err(Full) => Err(AskError::Busy { inferences_max }),
        }
    }

    /// Left, where the servers deal: takes a precompute for each. Who gets none is told, and right with it.
    fn provide(&mut self, asked: Vec<Asked>) -> Vec<Asked> {
        let (Some(refill), Half::Left) = (&self.refill, self.model.info.half) else { return asked };
        let Some(opened) = &mut self.opened else { return asked };
        let mut provided = Vec::with_capacity(asked.len());
        for mut one in asked {
            one.precompute = refill.take_next();
            if one.precompute.is_some() {
                provided.push(one);
            } else {
                self.metrics.dry.inc();
                opened.exchange.decline(one.name);
                self.crowd.leave(&one.name);
                drop(one.reply.send(Err(dry().into())));
            }
        }
        provided
    }

    /// Sends all that is ready, to the other server and to clients.
    fn flush(&mut self) {
        let Some(opened) = &mut self.opened else { return };
        while let Some(frame) = opened.exchange.send(FRAME_BYTES_MAX) {
            self.metrics.sent_bytes.inc_by(frame.len() as u64);
            self.metrics.sent_frames.inc();
            // Where nobody takes it any more, the session is about to be closed.
            drop(opened.frames.send(frame));
        }
        let outcomes = opened.exchange.outcomes();
        self.inferences.store(opened.exchange.inferences(), Ordering::Relaxed);
        self.tell(outcomes);
    }

    fn tell(&mut self, outcomes: Vec<(Name, Result<Vec<u8>, Failure>)>) {
        for (name, outcome) in outcomes {
            self.crowd.leave(&name);
            if let (Some(one), Err(failure)) = (self.unmet.remove(&name), &outcome) {
                self.metrics.failed.inc();
                drop(one.reply.send(Err(of_failure(failure))));
            }
            let Some(Awaiting { reply, arrived, began }) = self.awaiting.remove(&name) else {
                continue;
            };
            let outcome = match outcome {
                Ok(share) => {
                    self.metrics.answered.inc();
                    let (queued, answering) = (began - arrived, began.elapsed());
                    Ok(Answered { share, queued, answering })
                }
                Err(failure) => {
                    self.metrics.failed.inc();
                    Err(of_failure(&failure))
                }
            };
            drop(reply.send(outcome));
        }
        if self.awaiting.is_empty() {
            self.inferences.store(0, Ordering::Relaxed);
        }
    }
}

/// How late it may be noticed that the other server is silent.
const TICK: Duration = Duration::from_millis(100);
/// What is taken up at once, before what is ready is sent.
const EVENTS_MAX: usize = 1024;
