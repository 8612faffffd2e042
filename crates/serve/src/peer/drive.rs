//! Drives the machines of clients over gRPC: makes their calls, keeps their time. What is made again, and when, the
//! machines decide.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use hushtable_client::{
    self as client, Bell, CallError, CallFault, CallId, Machine, Place, Protocol, Step,
};
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::deadline::Deadline;
use super::endpoint::Peer;
use super::watch::Failures;
use crate::{Error, Refusal, ReplyDefect};

/// How a scheme's calls go over the wire.
pub(crate) trait Wire: 'static {
    /// The calls.
    type Protocol: Protocol;

    /// Makes a call.
    fn send(peer: &Peer, call: Call<Self>) -> Outgoing<Reply<Self>>;

    /// What a machine makes of a refusal that is the scheme's own.
    fn fault(refusal: &Refusal) -> CallFault;

    /// A machine's failure, with what is known of the servers.
    fn error(failure: <Self::Protocol as Protocol>::Failure, servers: &Servers) -> Error;
}

/// The call of a wire's protocol.
pub(crate) type Call<W> = <<W as Wire>::Protocol as Protocol>::Call;
/// The reply of a wire's protocol.
pub(crate) type Reply<W> = <<W as Wire>::Protocol as Protocol>::Reply;

/// What drives all machines of one client. Clones share their connections.
pub(crate) struct Driver<W> {
    servers: Arc<Servers>,
    changes: Arc<Notify>,
    epoch: Instant,
    wire: PhantomData<fn() -> W>,
}

/// The servers of each place; a call goes to one of them.
pub(crate) struct Servers {
    peers: Vec<(Place, Vec<Peer>)>,
    /// Which of them was asked last.
    asked: [AtomicUsize; Place::ALL.len()],
}

/// A call on its way, and what brings the next reply to it.
pub(crate) type Outgoing<R> = Pin<Box<dyn Future<Output = Arrived<R>> + Send>>;

/// What came of a call.
pub(crate) struct Arrived<R> {
    pub outcome: Result<R, Error>,
    /// What brings the next reply to the same call.
    pub more: Option<Outgoing<R>>,
}

impl<R> Arrived<R> {
    pub fn last(outcome: Result<R, Error>) -> Self {
        Self { outcome, more: None }
    }
}

/// A call with one reply.
pub(crate) fn outgoing<R>(
    call: impl Future<Output = Result<R, Error>> + Send + 'static,
) -> Outgoing<R> {
    Box::pin(async move { Arrived::last(call.await) })
}

/// A call that this scheme does not have.
pub(crate) fn unforeseen<R: Send + 'static>(peer: &Peer) -> Outgoing<R> {
    let error = peer.reply_error(ReplyDefect::OtherCall);
    outgoing(async move { Err(error) })
}

impl Servers {
    /// The server of a place that was asked last.
    pub fn peer(&self, place: Place) -> &Peer {
        self.at(place, self.asked[place as usize].load(Ordering::Relaxed))
    }

    /// The URL of the server of a place that was asked last.
    pub fn url(&self, place: Place) -> String {
        self.peer(place).url().to_owned()
    }

    /// The URLs of those that were asked last, one of each place.
    pub fn urls(&self) -> Vec<String> {
        self.peers.iter().map(|&(place, _)| self.url(place)).collect()
    }

    fn at(&self, place: Place, server: usize) -> &Peer {
        let found = self.peers.iter().find(|(at, _)| *at == place);
        let peers = &found.unwrap_or(&self.peers[0]).1;
        &peers[server % peers.len()]
    }
}

impl<W: Wire> Driver<W> {
    /// A driver of machines that ask `peers`: at least one, and at least one of each place.
    pub fn new(peers: impl Into<Vec<(Place, Vec<Peer>)>>) -> Self {
        let servers = Servers { peers: peers.into(), asked: Default::default() };
        let (servers, changes) = (Arc::new(servers), Arc::new(Notify::new()));
        Self { servers, changes, epoch: Instant::now(), wire: PhantomData }
    }

    /// What has all machines polled that wait for each other.
    pub fn bell(&self) -> Bell {
        let changes = Arc::clone(&self.changes);
        Bell::new(move || changes.notify_waiters())
    }

    /// A failure outside any operation, as [`run`](Self::run) says it.
    pub fn failure(&self, failure: <W::Protocol as Protocol>::Failure) -> Error {
        W::error(failure, &self.servers)
    }

    /// Runs a machine to its end.
    pub async fn run<M>(&self, machine: M) -> Result<M::Output, Error>
    where
        M: Machine<Error, Protocol = W::Protocol> + 'static,
        M::Output: Send + 'static,
    {
        Ok(self.run_timed(machine).await?.0)
    }

    /// As [`run`](Self::run); how long the machine computed comes with what it came to.
    pub async fn run_timed<M>(&self, machine: M) -> Result<(M::Output, Duration), Error>
    where
        M: Machine<Error, Protocol = W::Protocol> + 'static,
        M::Output: Send + 'static,
    {
        self.drive(machine, false).await
    }

    /// As [`run`](Self::run), all of it on one thread that may compute: for a machine that computes a little between
    /// many replies, where a hand-over each time would take longer. It ends with this future.
    pub async fn run_apart<M>(&self, machine: M) -> Result<M::Output, Error>
    where
        M: Machine<Error, Protocol = W::Protocol> + 'static,
        M::Output: Send + 'static,
    {
        let (driver, runtime) = (self.clone(), Handle::current());
        let held = Deadline::held();
        let (_alive, gone) = oneshot::channel::<()>();
        let done = off_thread(move || {
            runtime.block_on(async {
                tokio::select! {
                    done = Deadline::carry(held, driver.drive(machine, true)) => Some(done),
                    _ = gone => None,
                }
            })
        });
        match done.await {
            Some(done) => Ok(done?.0),
            None => unreachable!("this future holds what ends it"),
        }
    }

    /// `is_apart` says that this thread may compute.
    async fn drive<M>(&self, mut machine: M, is_apart: bool) -> Result<(M::Output, Duration), Error>
    where
        M: Machine<Error, Protocol = W::Protocol> + 'static,
        M::Output: Send + 'static,
    {
        let mut calls: Vec<(CallId, Outgoing<Reply<W>>)> = Vec::new();
        let mut computed = Duration::ZERO;
        let mut changed = pin!(self.changes.notified());
        let mut failures = Failures::default();
        if let Some(deadline) = Deadline::held() {
            machine.end_by(deadline.since(self.epoch));
        }
        loop {
            // From before the poll on, so that no change falls between it and the waiting.
            changed.as_mut().enable();
            let now = self.epoch.elapsed();
            let began = Instant::now();
            let step;
            if machine.computes() && !is_apart {
                (machine, step) = off_thread(move || {
                    let step = machine.poll(now);
                    (machine, step)
                })
                .await;
            } else {
                step = machine.poll(now);
            }
            computed += began.elapsed();
            match step {
                Step::Done(outcome) => {
                    return match outcome {
                        Ok(output) => Ok((output, computed)),
                        Err(client::Error::Call { error, .. }) => Err(error),
                        Err(client::Error::Failure(failure)) => Err(self.failure(failure)),
                    };
                }
                Step::Send { id, place, server, call } => {
                    self.servers.asked[place as usize].store(server, Ordering::Relaxed);
                    let peer = self.servers.at(place, server);
                    failures.ask(peer.url());
                    calls.push((id, W::send(peer, call)));
                }
                Step::Wait { until } => {
                    calls.retain(|&(id, _)| machine.awaits(id));
                    let until = self.epoch.checked_add(until);
                    let until = until.unwrap_or_else(|| Instant::now() + FAR);
                    tokio::select! {
                        biased;
                        (id, outcome) = next(&mut calls) => {
                            let outcome = outcome.map_err(|error| {
                                failures.note(&error);
                                call_error::<W>(error)
                            });
                            machine.received(id, self.epoch.elapsed(), outcome);
                        }
                        () = &mut changed => changed.set(self.changes.notified()),
                        () = sleep_until(until) => {}
                    }
                }
            }
        }
    }
}

/// The next reply to any of the calls.
async fn next<R>(calls: &mut Vec<(CallId, Outgoing<R>)>) -> (CallId, Result<R, Error>) {
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
fn call_error<W: Wire>(error: Error) -> CallError<Error> {
    let fault = match &error {
        Error::Refused { refusal, .. } => match refusal {
            &Refusal::Busy { retry_after, .. } => CallFault::Busy { retry_after },
            Refusal::Draining => CallFault::Draining,
            refusal => W::fault(refusal),
        },
        Error::Unavailable { .. } => CallFault::Unreachable,
        _ => CallFault::Other,
    };
    CallError { fault, error }
}

impl<W> Clone for Driver<W> {
    fn clone(&self) -> Self {
        let (servers, changes) = (Arc::clone(&self.servers), Arc::clone(&self.changes));
        Self { servers, changes, epoch: self.epoch, wire: PhantomData }
    }
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
