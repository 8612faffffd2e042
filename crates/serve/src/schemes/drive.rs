//! Drives the machines of clients over gRPC: makes their calls, keeps their time. The schemes of
//! `pir` share it.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use hushtable_pir::client::{
    self, Answers, Bell, Call, CallError, CallFault, CallId, Failure, Machine, Place, Reply, Step,
};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::peer::endpoint::Peer;
use crate::peer::values::version_from_wire;
use crate::{Error, Refusal, ReplyDefect};

/// What drives all machines of one client. Clones share their connections.
#[derive(Clone)]
pub(crate) struct Driver {
    /// The servers of each place; a call goes to one of them.
    peers: Arc<[(Place, Vec<Peer>)]>,
    /// Which of them was asked last.
    asked: Arc<[AtomicUsize; Place::ALL.len()]>,
    send: fn(&Peer, Call) -> Outgoing,
    /// What bounds a lookup, and where it is set.
    setting: &'static str,
    changes: Arc<Notify>,
    epoch: Instant,
}

/// A call on its way.
pub(crate) type Outgoing = Pin<Box<dyn Future<Output = Arrived> + Send>>;

/// What came of a call.
pub(crate) struct Arrived {
    pub outcome: Result<Reply, Error>,
    /// What brings the next reply to the same call.
    pub more: Option<Outgoing>,
}

impl Arrived {
    pub fn last(outcome: Result<Reply, Error>) -> Self {
        Self { outcome, more: None }
    }
}

/// A call with one reply.
pub(crate) fn outgoing(
    call: impl Future<Output = Result<Reply, Error>> + Send + 'static,
) -> Outgoing {
    Box::pin(async move { Arrived::last(call.await) })
}

/// A call that this scheme does not have.
pub(crate) fn unforeseen(peer: &Peer) -> Outgoing {
    let error = peer.reply_error(ReplyDefect::OtherCall);
    outgoing(async move { Err(error) })
}

impl Peer {
    /// A server's answers, its times in microseconds and its state, as a machine takes them.
    pub fn answers(
        &self,
        version: &[u8],
        answers: Bytes,
        [queue, answer, state]: [Option<u64>; 3],
    ) -> Result<Reply, Error> {
        let version = version_from_wire(version).map_err(|defect| self.reply_error(defect))?;
        let [queue, answer] =
            [queue, answer].map(|us| Duration::from_micros(us.unwrap_or_default()));
        Ok(Reply::Answers(Answers { version, answers, queue, answer, state }))
    }
}

impl Driver {
    /// A driver of a scheme that makes calls by `send`; `setting` says what bounds its lookups.
    pub fn new(
        peers: impl Into<Arc<[(Place, Vec<Peer>)]>>,
        send: fn(&Peer, Call) -> Outgoing,
        setting: &'static str,
    ) -> Self {
        let (changes, asked) = (Arc::new(Notify::new()), Arc::default());
        Self { peers: peers.into(), asked, send, setting, changes, epoch: Instant::now() }
    }

    /// What has all machines polled that wait for each other.
    pub fn bell(&self) -> Bell {
        let changes = Arc::clone(&self.changes);
        Bell::new(move || changes.notify_waiters())
    }

    /// Runs a machine to its end.
    pub async fn run<M>(&self, mut machine: M) -> Result<M::Output, Error>
    where
        M: Machine<Error> + 'static,
        M::Output: Send + 'static,
    {
        let mut calls: Vec<(CallId, Outgoing)> = Vec::new();
        let mut changed = pin!(self.changes.notified());
        loop {
            // From before the poll on, so that no change falls between it and the waiting.
            changed.as_mut().enable();
            let now = self.epoch.elapsed();
            let step;
            if machine.computes() {
                (machine, step) = off_thread(move || {
                    let step = machine.poll(now);
                    (machine, step)
                })
                .await;
            } else {
                step = machine.poll(now);
            }
            match step {
                Step::Done(outcome) => return outcome.map_err(|error| self.error(error)),
                Step::Send { id, place, server, call } => {
                    self.asked[place as usize].store(server, Ordering::Relaxed);
                    calls.push((id, (self.send)(self.at(place, server), call)));
                }
                Step::Wait { until } => {
                    let until = self.epoch.checked_add(until);
                    let until = until.unwrap_or_else(|| Instant::now() + FAR);
                    tokio::select! {
                        biased;
                        (id, outcome) = next(&mut calls) => {
                            let outcome = outcome.map_err(call_error);
                            machine.received(id, self.epoch.elapsed(), outcome);
                        }
                        () = &mut changed => changed.set(self.changes.notified()),
                        () = sleep_until(until) => {}
                    }
                }
            }
        }
    }

    /// The server of a place that was asked last.
    fn peer(&self, place: Place) -> &Peer {
        self.at(place, self.asked[place as usize].load(Ordering::Relaxed))
    }

    fn at(&self, place: Place, server: usize) -> &Peer {
        let found = self.peers.iter().find(|(at, _)| *at == place);
        let peers = &found.unwrap_or(&self.peers[0]).1;
        &peers[server % peers.len()]
    }

    fn url(&self, place: Place) -> String {
        self.peer(place).url().to_owned()
    }

    fn error(&self, error: client::Error<Error>) -> Error {
        match error {
            client::Error::Call { error, .. } => error,
            client::Error::Failure(failure) => self.failure(failure),
            other => Error::Client { reason: other.to_string() },
        }
    }

    /// A machine's refusal, with the servers' addresses.
    pub fn failure(&self, failure: Failure) -> Error {
        let [left, right] = Place::PAIR.map(|place| self.url(place));
        match failure {
            Failure::Timeout { place, after } => Error::Timeout { url: self.url(place), after },
            Failure::Reply { place, defect } => self.peer(place).reply_error(defect),
            Failure::SidesSwapped => Error::SidesSwapped { left, right },
            Failure::SameSide { side } => Error::SameSide { left, right, side },
            Failure::TablesDiffer { versions: [left_version, right_version] } => {
                Error::TablesDiffer { left, left_version, right, right_version }
            }
            Failure::AnnouncementsDiffer { field } => {
                Error::AnnouncementsDiffer { left, right, field }
            }
            Failure::LayoutsDiffer { versions } => Error::LayoutsDiffer { left, right, versions },
            Failure::NoLayout => Error::NoLayout { left, right },
            Failure::LayoutBytes { place, bytes, bytes_max } => {
                Error::LayoutBytes { url: self.url(place), bytes, bytes_max }
            }
            Failure::Prg { place, prg, accepted } => {
                Error::Prg { url: self.url(place), prg, accepted }
            }
            Failure::MaxIds { max_ids, keys_max } => {
                Error::MaxIds { max_ids, keys_max, setting: self.setting }
            }
            Failure::VersionMismatch { expected, found } => {
                let urls = self.peers.iter().map(|&(place, _)| self.url(place)).collect();
                Error::VersionMismatch { urls, expected, found }
            }
            Failure::ModelUnserved { place, model, models } => {
                Error::ModelUnserved { url: self.url(place), model, models }
            }
            Failure::ModelsDiffer { model, versions } => {
                Error::ModelsDiffer { left, right, model, versions: Box::new(versions) }
            }
            Failure::Model(error) => Error::Manifest(error),
            Failure::FeatureTwice { feature } => Error::FeatureTwice { feature },
            Failure::FeatureIds { feature, ids, max_ids } => {
                Error::FeatureIds { feature, ids, max_ids }
            }
            Failure::FeatureIdRange { feature, id, rows } => {
                Error::FeatureIdRange { feature, id, rows }
            }
            Failure::Pir(error) => Error::Pir(error),
            Failure::Onion(error) => Error::Onion(error),
            Failure::Bag(error) => Error::Bag(error),
            other => Error::Client { reason: other.to_string() },
        }
    }
}

/// The next reply to any of the calls.
async fn next(calls: &mut Vec<(CallId, Outgoing)>) -> (CallId, Result<Reply, Error>) {
    poll_fn(|cx| {
        for i in 0..calls.len() {
            let (id, call) = &mut calls[i];
            let id = *id;
            if let Poll::Ready(Arrived { outcome, more }) = call.as_mut().poll(cx) {
                match more {
                    Some(more) => *call = more,
                    None => drop(calls.swap_remove(i)),
                }
                return Poll::Ready((id, outcome));
            }
        }
        Poll::Pending
    })
    .await
}

/// What a machine goes by in an error.
fn call_error(error: Error) -> CallError<Error> {
    let fault = match &error {
        Error::Refused { refusal, .. } => match refusal {
            &Refusal::Busy { retry_after, .. } => CallFault::Busy { retry_after },
            Refusal::Draining => CallFault::Draining,
            &Refusal::VersionSkew { expected, .. } => CallFault::Changed { found: Some(expected) },
            Refusal::UnknownModel { .. } | Refusal::UnknownTable { .. } => {
                CallFault::Changed { found: None }
            }
            #[cfg(feature = "onion")]
            Refusal::BadKeys { .. } | Refusal::BadQuery { .. } => {
                CallFault::Changed { found: None }
            }
            #[cfg(feature = "onion")]
            Refusal::UnknownKeys { .. } => CallFault::UnknownKeys,
            #[cfg(feature = "pair")]
            Refusal::LayoutSkew { .. }
            | Refusal::NoLayout
            | Refusal::TooManyBags { .. }
            | Refusal::WrongDomain { .. } => CallFault::Changed { found: None },
            _ => CallFault::Other,
        },
        Error::Unavailable { .. } => CallFault::Unreachable,
        _ => CallFault::Other,
    };
    CallError { fault, error }
}

/// Runs what computes for milliseconds off the threads of connections.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// For machines that wait for nothing but a reply.
const FAR: Duration = Duration::from_secs(3600);
