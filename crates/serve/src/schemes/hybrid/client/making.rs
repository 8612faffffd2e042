//! Makes precomputes: the steps of the offline phase.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::Called;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::super::machines::{Head, Next, OfflineClient, Parallel, Party, Records};
use super::super::{HybridRefusal, PrecomputeId};
use super::{Garbler, HybridClient, Inner, Parallelism, PrecomputeProgress, client, off_thread};
use crate::Error;
use crate::peer::random_u64;
use crate::schemes::hybrid::HybridError;
use crate::wire::{HybridBeginRequest, HybridFinishRequest, HybridStepRequest};

/// What precomputes cost to make.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PrecomputeStats {
    /// How many were made.
    pub precomputes: usize,
    /// Steps of all.
    pub steps: u64,
    /// Bytes of steps sent.
    pub sent_bytes: u64,
    /// Bytes of replies received.
    pub received_bytes: u64,
    /// From the call to its end.
    pub elapsed: Duration,
    /// How often a call was made again.
    pub retries: u64,
    /// Precomputes that the server lost while they were made, so that they were begun again.
    pub begun_again: u64,
}

/// What is counted while precomputes are made.
#[derive(Default)]
struct Counted {
    done: AtomicU64,
    steps: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
    retries: AtomicU64,
    begun_again: AtomicU64,
}

struct Told {
    counted: Counted,
    all: AtomicU64,
    progress: Option<PrecomputeProgress>,
}

impl Told {
    fn tell(&self) {
        if let Some(progress) = &self.progress {
            let done = self.counted.done.load(Ordering::Relaxed);
            progress(done, self.all.load(Ordering::Relaxed).max(done));
        }
    }
}

impl HybridClient {
    /// Makes `count` precomputes, and keeps this client's halves. A call that is lost is made again, and a
    /// precompute that the server lost is begun again.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Unavailable`], [`Error::Timeout`] for a server that does not go on;
    /// [`Error::Hybrid`] for replies that are none of the protocol's; [`Error::Precomputes`] where halves
    /// cannot be kept. Those that were made before stay.
    pub async fn precompute(
        &self,
        count: usize,
        progress: Option<PrecomputeProgress>,
    ) -> Result<PrecomputeStats, Error> {
        let started = Instant::now();
        let (counted, all) = (Counted::default(), AtomicU64::new(0));
        let told = Arc::new(Told { counted, all, progress });
        let spec = &self.inner.spec;
        let at_once = match spec.parallelism {
            Parallelism::Request => spec.steps_max,
            _ => 1,
        };
        let (mut making, mut begun) = (JoinSet::new(), 0);
        while begun < count || !making.is_empty() {
            while begun < count && making.len() < at_once {
                let (inner, told) = (Arc::clone(&self.inner), Arc::clone(&told));
                making.spawn(async move { inner.make(&told, count as u64).await });
                begun += 1;
            }
            match making.join_next().await {
                Some(Ok(made)) => drop(made?),
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None => {}
            }
        }
        let Counted { steps, sent_bytes, received_bytes, retries, begun_again, .. } = &told.counted;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Ok(PrecomputeStats {
            precomputes: count,
            steps: read(steps),
            sent_bytes: read(sent_bytes),
            received_bytes: read(received_bytes),
            elapsed: started.elapsed(),
            retries: read(retries),
            begun_again: read(begun_again),
        })
    }
}

impl Inner {
    /// Makes one; its id.
    async fn make(self: Arc<Self>, told: &Arc<Told>, count: u64) -> Result<PrecomputeId, Error> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let before = told.counted.done.load(Ordering::Relaxed);
            match Arc::clone(&self).try_make(told, count).await {
                Err(error) if attempts < ATTEMPTS_MAX && error.refused().is_some_and(is_lost) => {
                    // What others made meanwhile is counted again at its next step.
                    told.counted.done.store(before, Ordering::Relaxed);
                    told.counted.begun_again.fetch_add(1, Ordering::Relaxed);
                }
                made => return made,
            }
        }
    }

    async fn try_make(
        self: Arc<Self>,
        told: &Arc<Told>,
        count: u64,
    ) -> Result<PrecomputeId, Error> {
        let id = draw_id()?;
        let garbler = self.spec.garbler;
        let parallel = match self.spec.parallelism {
            Parallelism::Layer => Parallel::Layers,
            Parallelism::Sequential | Parallelism::Request => Parallel::Sequential,
        };
        let inner = Arc::clone(&self);
        let (half, machine) = off_thread(move || {
            let head = Head {
                id,
                plan: *inner.info.plan.as_bytes(),
                client_garbles: garbler == Garbler::Client,
                role: Party::Client.into(),
            };
            let outline = Arc::clone(&inner.outline);
            let sizes = outline.record_bytes(garbler.party(), Party::Client);
            let half = inner.keep.begin(head, &sizes).map_err(HybridError::of_keep)?;
            let records: Arc<dyn Records> = Arc::clone(&half) as _;
            let machine = OfflineClient::new(outline, garbler.party(), parallel, records)?;
            Ok((half, Arc::new(machine)))
        })
        .await?;
        told.all.store(count * u64::from(machine.steps()), Ordering::Relaxed);
        told.tell();
        self.begin(id, told).await?;
        let (mut steps, mut last) = (JoinSet::new(), Next::Wait);
        loop {
            while steps.len() < self.spec.steps_max {
                last = machine.next();
                let Next::Step(step) = last else { break };
                let (inner, machine, told) =
                    (Arc::clone(&self), Arc::clone(&machine), Arc::clone(told));
                steps.spawn(async move { inner.step(id, machine, step, &told).await });
            }
            match steps.join_next().await {
                Some(Ok(made)) => made?,
                Some(Err(error)) => std::panic::resume_unwind(error.into_panic()),
                None if matches!(last, Next::Done) => break,
                None => {
                    let reason = "the offline phase waits for nothing".to_owned();
                    return Err(Error::Client { reason });
                }
            }
        }
        self.finish(id, told).await?;
        off_thread(move || half.commit().map_err(HybridError::of_keep)).await?;
        Ok(id)
    }

    async fn begin(&self, id: PrecomputeId, told: &Told) -> Result<(), Error> {
        let message = HybridBeginRequest {
            plan: Bytes::copy_from_slice(self.info.plan.as_bytes()),
            id: Bytes::copy_from_slice(&id),
            client_garbles: self.spec.garbler == Garbler::Client,
        };
        let called = self.persistently(move |peer| {
            let message = message.clone();
            async move { peer.call(client(&peer).begin(message)).await }
        });
        let retries = called.await?.retries;
        told.counted.retries.fetch_add(u64::from(retries), Ordering::Relaxed);
        Ok(())
    }

    async fn finish(&self, id: PrecomputeId, told: &Told) -> Result<(), Error> {
        let message = HybridFinishRequest { id: Bytes::copy_from_slice(&id) };
        let called = self.persistently(move |peer| {
            let message = message.clone();
            async move { peer.call(client(&peer).finish(message)).await }
        });
        let retries = called.await?.retries;
        told.counted.retries.fetch_add(u64::from(retries), Ordering::Relaxed);
        Ok(())
    }

    /// Makes one step: computes its request, sends it until it is answered, takes the reply.
    async fn step(
        &self,
        id: PrecomputeId,
        machine: Arc<OfflineClient>,
        step: u32,
        told: &Told,
    ) -> Result<(), Error> {
        let asked = Arc::clone(&machine);
        let payload = Bytes::from(off_thread(move || Ok(asked.request(step)?)).await?);
        let id = Bytes::copy_from_slice(&id);
        let sent = payload.len() as u64;
        let message = HybridStepRequest { id, step, payload };
        let called = self.persistently(move |peer| {
            let message = message.clone();
            async move { Ok(peer.call(client(&peer).step(message)).await?.into_inner().payload) }
        });
        let Called { reply: payload, retries, .. } = called.await?;
        let received = payload.len() as u64;
        off_thread(move || Ok(machine.accept(step, &payload)?)).await?;
        let counted = &told.counted;
        counted.done.fetch_add(1, Ordering::Relaxed);
        counted.steps.fetch_add(1, Ordering::Relaxed);
        counted.sent_bytes.fetch_add(sent * u64::from(retries + 1), Ordering::Relaxed);
        counted.received_bytes.fetch_add(received, Ordering::Relaxed);
        counted.retries.fetch_add(u64::from(retries), Ordering::Relaxed);
        told.tell();
        Ok(())
    }
}

/// Whether the server does not have a precompute any more, so that another is made.
pub(super) fn is_lost(refusal: &HybridRefusal) -> bool {
    matches!(refusal, HybridRefusal::UnknownPrecompute | HybridRefusal::DamagedPrecompute)
}

fn draw_id() -> Result<PrecomputeId, Error> {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&random_u64()?.to_le_bytes());
    id[8..].copy_from_slice(&random_u64()?.to_le_bytes());
    Ok(id)
}

/// A server that loses a precompute this often loses the next one too.
const ATTEMPTS_MAX: usize = 5;
