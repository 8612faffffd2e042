//! Predicts: the online phase, which uses a precompute up.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::Limits;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tonic::Streaming;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;

use super::super::exchange::{Broken, Exchanged, exchange};
use super::super::keep::{Half, lock};
use super::super::machines::{Error as MachineError, OnlineClient, RecordError};
use super::super::{FRAMES_AHEAD, PrecomputeId};
use super::making::is_lost;
use super::{Hybrid, HybridClient, Inner, PrecomputeProgress, PrecomputeStats, client, off_thread};
use crate::peer::direct::never;
use crate::peer::endpoint::Peer;
use crate::schemes::hybrid::HybridError;
use crate::wire::{PredictFrame, PredictOpen};
use crate::{Error, ReplyDefect};

/// What a network says of an input.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HybridPrediction {
    /// The network's numbers, with what is left to the client done.
    pub outputs: Vec<f32>,
    /// The same as they were decrypted: modulo 2^bits, in the last stage's fraction.
    pub raw: Vec<u64>,
    /// What it cost.
    pub stats: HybridStats,
}

/// What a prediction cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct HybridStats {
    /// Bytes of frames sent.
    pub sent_bytes: u64,
    /// Bytes of frames received.
    pub received_bytes: u64,
    /// Frames, both ways.
    pub frames: usize,
    /// The online phase, from the precompute's use to the answer.
    pub online: Duration,
    /// Precomputes that the server did not have any more.
    pub lost: usize,
    /// What making a precompute cost, where there was none: by then the offline phase ran.
    pub offline: Option<PrecomputeStats>,
}

/// A precompute that no other prediction of this client takes.
struct Chosen<'a> {
    inner: &'a Inner,
    id: PrecomputeId,
}

impl Drop for Chosen<'_> {
    fn drop(&mut self) {
        lock(&self.inner.chosen).remove(&self.id);
    }
}

/// A prediction that the server has taken its half for.
struct Opened {
    sender: mpsc::Sender<PredictFrame>,
    frames: Streaming<PredictFrame>,
}

impl HybridClient {
    /// The network's outputs for `input`: its numbers, flat, as the network takes them. Uses up a precompute;
    /// where there is none, makes one first, which `progress` is told of.
    ///
    /// # Errors
    /// [`Error::Hybrid`] for an input of another size or with numbers that the network cannot take, or a half
    /// that is damaged: it is dropped, and the next call takes another; [`Error::Refused`],
    /// [`Error::Unavailable`], [`Error::Timeout`], [`Error::Reply`]; what
    /// [`precompute`](Self::precompute) says.
    pub async fn predict(
        &self,
        input: &[f32],
        progress: Option<PrecomputeProgress>,
    ) -> Result<HybridPrediction, Error> {
        let encoded = Arc::new(self.inner.info.terms.encode(input).map_err(MachineError::from)?);
        let mut stats = HybridStats::default();
        loop {
            let chosen = match self.inner.choose() {
                Some(chosen) => chosen,
                None => {
                    let made = self.precompute(1, progress.clone()).await?;
                    stats.offline = Some(made);
                    match self.inner.choose() {
                        Some(chosen) => chosen,
                        // Another prediction of this client was faster.
                        None => continue,
                    }
                }
            };
            let id = chosen.id;
            let opened = match self.inner.open(id).await {
                Err(error) if error.refused().is_some_and(is_lost) => {
                    let inner = Arc::clone(&self.inner);
                    let discard = move || inner.keep.discard(&id).map_err(HybridError::of_keep);
                    off_thread(discard).await?;
                    stats.lost += 1;
                    if stats.offline.is_some() {
                        // It was made a moment ago.
                        return Err(error);
                    }
                    continue;
                }
                opened => opened?,
            };
            let began = Instant::now();
            let (raw, exchanged) = self.inner.run(id, opened, Arc::clone(&encoded)).await?;
            stats.online = began.elapsed();
            stats.sent_bytes = exchanged.sent_bytes;
            stats.received_bytes = exchanged.received_bytes;
            stats.frames = exchanged.frames;
            let outputs = self.inner.info.terms.decode(&raw);
            return Ok(HybridPrediction { outputs, raw, stats });
        }
    }
}

impl Inner {
    /// A precompute that is ready and that nobody has chosen.
    fn choose(&self) -> Option<Chosen<'_>> {
        let ready = self.ready();
        let mut chosen = lock(&self.chosen);
        let id = ready.into_iter().map(|head| head.id).find(|id| !chosen.contains(id))?;
        chosen.insert(id);
        Some(Chosen { inner: self, id })
    }

    /// Has the server take its half. This client's is still there, for a server that is busy.
    async fn open(&self, id: PrecomputeId) -> Result<Opened, Error> {
        let plan = Bytes::copy_from_slice(self.info.plan.as_bytes());
        let open = PredictOpen { plan, id: Bytes::copy_from_slice(&id) };
        let call = move |peer: Peer| {
            let open = Some(open.clone());
            async move {
                let (sender, receiver) = mpsc::channel(FRAMES_AHEAD);
                let first = PredictFrame { open, payload: Bytes::new() };
                // It has room for the first.
                drop(sender.send(first).await);
                let call = peer.call(client(&peer).predict(ReceiverStream::new(receiver))).await;
                Ok(Opened { sender, frames: call?.into_inner() })
            }
        };
        // A server that is busy is waited for, not one that is out of reach: whoever predicts is there.
        let limits = Limits::of(self.spec.call_max);
        Ok(self.peer.ask::<Hybrid, _, _>(limits, never, call).await?.reply)
    }

    /// Takes this client's half and runs the online phase to its end.
    async fn run(
        self: &Arc<Self>,
        id: PrecomputeId,
        opened: Opened,
        input: Arc<Vec<u64>>,
    ) -> Result<(Vec<u64>, Exchanged), Error> {
        let inner = Arc::clone(self);
        let runtime = Handle::current();
        // Whoever gives this call up ends the prediction.
        let (_alive, gone) = oneshot::channel::<()>();
        let done = off_thread(move || {
            let Half { head, records } = match inner.keep.take(&id).map_err(HybridError::of_keep)? {
                Some(half) => half,
                None => {
                    let missing = RecordError::Missing { record: 0 };
                    return Err(MachineError::from(missing).into());
                }
            };
            let garbler = super::Garbler::of_client(head.client_garbles).party();
            let outline = Arc::clone(&inner.outline);
            let mut machine = OnlineClient::new(outline, garbler, records, &input)?;
            let Opened { sender, mut frames } = opened;
            let pause_max = inner.spec.call_max;
            let exchanged = runtime.block_on(async {
                let whole =
                    exchange(&mut machine, &mut frames, &sender, |frame| frame, pause_max, |_| {});
                let broken = tokio::select! {
                    done = whole => match done {
                        Ok(exchanged) => return Ok(exchanged),
                        Err(broken) => broken,
                    },
                    _ = gone => Broken::Ended,
                };
                drop(sender);
                Err(inner.broken(broken, &mut frames).await)
            })?;
            let output = machine.output().map(<[u64]>::to_vec).unwrap_or_default();
            Ok((output, exchanged))
        });
        done.await
    }

    /// The error of a prediction that broke off.
    async fn broken(&self, broken: Broken, frames: &mut Streaming<PredictFrame>) -> Error {
        match broken {
            Broken::Machine(error) if matches!(*error, MachineError::Record(_)) => (*error).into(),
            Broken::Machine(error) => {
                self.peer.reply_error(ReplyDefect::Other { reason: error.to_string() })
            }
            Broken::Status(status) => self.peer.error(&status),
            Broken::Silent(after) => Error::Timeout { url: self.peer.url().to_owned(), after },
            Broken::Ended => {
                // A server that ends a prediction says why.
                let last = tokio::time::timeout(LAST_WORDS, frames.message()).await;
                match last {
                    Ok(Err(status)) => self.peer.error(&status),
                    _ => Error::Unavailable {
                        url: self.peer.url().to_owned(),
                        reason: "it ended the prediction early".to_owned(),
                    },
                }
            }
        }
    }
}

const LAST_WORDS: Duration = Duration::from_millis(500);
