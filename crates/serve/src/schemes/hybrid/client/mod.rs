//! Has a network computed on an input that the server never sees.

mod making;
mod predicting;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hushtable_client::{CallFault, Called, Limits, pause};
use hushtable_infer::Platform;
use hushtable_table::Version;
use tonic::transport::Channel;

use super::info::TERMS_BYTES_MAX;
use super::keep::{Keep, PrecomputeCount};
use super::machines::{Head, Outline, Party};
use super::spec::{MESSAGE_BYTES_MAX, PrecomputeStoreSpec};
use super::{Garbler, HybridInfo, PrecomputeId};
use crate::peer::direct::{Again, Faults, never};
use crate::peer::endpoint::{Peer, REPLY_OVERHEAD_BYTES};
use crate::peer::shaper::LinkSpec;
use crate::schemes::hybrid::HybridError;
use crate::schemes::hybrid::refusal::REFUSALS;
use crate::wire::HybridInfoRequest;
use crate::wire::hybrid_inference_client::HybridInferenceClient;
use crate::{EndpointSpec, Error, Refusal};

pub use making::PrecomputeStats;
pub use predicting::{HybridPrediction, HybridStats};

/// How precomputes are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parallelism {
    /// One after the other, all layers of one at once.
    #[default]
    Layer,
    /// One after the other, each step by step.
    Sequential,
    /// Several at once, each step by step.
    Request,
}

impl Parallelism {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Layer, Self::Sequential, Self::Request];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Layer => "layer",
            Self::Sequential => "sequential",
            Self::Request => "request",
        }
    }
}

/// How a client reaches its server, and how it makes and keeps precomputes.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct HybridClientSpec {
    /// The server.
    pub server: EndpointSpec,
    /// The only version of the model to ask; `None` for whatever the server has.
    pub version: Option<Version>,
    /// Reach other machines over plain HTTP: for when something else encrypts the way.
    pub insecure: bool,
    /// How long a connection may take.
    pub connect_max: Duration,
    /// How long one call may take, and how long the server may be silent in a prediction.
    pub call_max: Duration,
    /// How long a call is made again where the server is out of reach or busy, while precomputes are made.
    pub retry_max: Duration,
    /// Who garbles.
    pub garbler: Garbler,
    /// How precomputes are made.
    pub parallelism: Parallelism,
    /// Steps that are under way at once, or, by [`Parallelism::Request`], precomputes.
    pub steps_max: usize,
    /// How fast the link is made to be.
    pub link: LinkSpec,
    /// Where this client's halves are kept; none for memory.
    pub store: Option<PrecomputeStoreSpec>,
    /// Most bytes of this client's halves.
    pub store_bytes_max: u64,
}

impl HybridClientSpec {
    /// The defaults: any version, 5 s to connect, 60 s a call and as long for another try, the server garbles,
    /// eight steps of all layers at once, as fast as the link goes, halves in memory of at most 64 GiB.
    pub fn new(server: EndpointSpec) -> Self {
        Self {
            server,
            version: None,
            insecure: false,
            connect_max: Duration::from_secs(5),
            call_max: Duration::from_secs(60),
            retry_max: Duration::from_secs(60),
            garbler: Garbler::Server,
            parallelism: Parallelism::Layer,
            steps_max: 8,
            link: LinkSpec::default(),
            store: None,
            store_bytes_max: 64 << 30,
        }
    }
}

/// Told the steps that were made, and all of them.
pub type PrecomputeProgress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// A client of one network at one server, with its halves of precomputes.
pub struct HybridClient {
    inner: Arc<Inner>,
}

struct Inner {
    peer: Peer,
    spec: HybridClientSpec,
    info: HybridInfo,
    outline: Arc<Outline>,
    keep: Keep,
    /// Precomputes that a prediction is about to use.
    chosen: Mutex<HashSet<PrecomputeId>>,
}

impl HybridClient {
    /// Connects, asks what the server computes, checks it, and opens what is kept of precomputes.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`],
    /// [`Error::Setting`] for what is wrong with `spec`; [`Error::Unavailable`] or [`Error::Timeout`] for a
    /// server out of reach; [`Error::Unserved`] if the server speaks another scheme; [`Error::Reply`] if it
    /// announces what cannot be, [`Error::GarblerRefused`] for one that does not let the chosen side garble,
    /// [`Error::PrecomputeBytes`] for a network whose precompute is larger than `spec` allows,
    /// [`Error::VersionMismatch`] for another version than it names; [`Error::Precomputes`] for a folder that
    /// cannot be used.
    pub async fn connect(spec: &HybridClientSpec) -> Result<Self, Error> {
        crate::host::network::within("steps_max", spec.steps_max, 1..=1024)?;
        let peer = Peer::over(&spec.server, spec.insecure, spec.connect_max, spec.link, REFUSALS)?;
        let info = fetch_info(&peer, spec.call_max).await?;
        let url = || peer.url().to_owned();
        if let Some(expected) = spec.version.filter(|&expected| expected != info.version) {
            let (urls, found) = (vec![url()], Some(info.version));
            return Err(Error::VersionMismatch { urls, expected, found });
        }
        let is_allowed = match spec.garbler {
            Garbler::Client => info.client_garbles,
            _ => info.server_garbles,
        };
        if !is_allowed {
            return Err(HybridError::GarblerRefused { url: url(), garbler: spec.garbler }.into());
        }
        let program = info.terms.program().clone();
        let outline = off_thread(move || Ok(Outline::new(program, Platform::detect())?)).await?;
        let bytes = outline.record_bytes(spec.garbler.party(), Party::Client).iter().sum();
        let bytes_max = spec.store_bytes_max;
        if bytes > bytes_max {
            return Err(HybridError::PrecomputeBytes { url: url(), bytes, bytes_max }.into());
        }
        let store = spec.store.clone();
        let keep =
            off_thread(move || Keep::open(store.as_ref(), bytes_max).map_err(HybridError::of_keep));
        let keep = keep.await?;
        let (outline, spec, chosen) = (Arc::new(outline), spec.clone(), Mutex::default());
        Ok(Self { inner: Arc::new(Inner { peer, spec, info, outline, keep, chosen }) })
    }

    /// What the server computes, as it announced it and it was checked.
    pub fn info(&self) -> &HybridInfo {
        &self.inner.info
    }

    /// What follows from it: circuits, packing, sizes.
    pub fn outline(&self) -> &Arc<Outline> {
        &self.inner.outline
    }

    /// Bytes that one precompute takes at this client.
    pub fn precompute_bytes(&self) -> u64 {
        let garbler = self.inner.spec.garbler.party();
        self.inner.outline.record_bytes(garbler, Party::Client).iter().sum()
    }

    /// The ids of those that can be used, the oldest first.
    #[doc(hidden)]
    pub fn precompute_ids(&self) -> Vec<[u8; 16]> {
        self.inner.ready().iter().map(|head| head.id).collect()
    }

    /// What is kept of this plan and garbler, and the bytes of all.
    pub fn precomputes(&self) -> PrecomputeCount {
        let bytes = self.inner.keep.count().bytes;
        PrecomputeCount { precomputes: self.inner.ready().len(), bytes }
    }
}

impl Inner {
    /// Those that can be used with this server.
    fn ready(&self) -> Vec<Head> {
        let plan = *self.info.plan.as_bytes();
        let client_garbles = self.spec.garbler == Garbler::Client;
        let heads = self.keep.list().into_iter().map(|kept| kept.head);
        let fits = |head: &Head| {
            head.plan == plan
                && head.client_garbles == client_garbles
                && head.role == Party::Client.into()
        };
        heads.filter(fits).collect()
    }

    /// Makes a call again while the server is busy or out of reach, for as long as the spec allows.
    async fn persistently<
        R: Send + 'static,
        F: Future<Output = Result<R, Error>> + Send + 'static,
    >(
        &self,
        call: impl Fn(Peer) -> F + Send + Sync + 'static,
    ) -> Result<Called<R>, Error> {
        let HybridClientSpec { call_max, retry_max, .. } = self.spec;
        let limits =
            Limits { call: call_max, whole: retry_max, may_overrun: true, busy: retry_max };
        self.peer.ask::<Hybrid, R, F>(limits, away, call).await
    }
}

/// What machines make of this scheme's refusals.
pub(super) enum Hybrid {}

impl Faults for Hybrid {
    fn fault(_: &Refusal) -> CallFault {
        CallFault::Other
    }
}

/// Makes a call again whose server is out of reach, about to be, or silent.
fn away(again: Again<'_>, times: u32, random: u64) -> Option<Duration> {
    match again {
        Again::Fault(CallFault::Draining | CallFault::Unreachable) | Again::Late => {
            Some(pause(RECONNECT, times, random))
        }
        Again::Fault(_) => None,
    }
}

fn client(peer: &Peer) -> HybridInferenceClient<Channel> {
    HybridInferenceClient::new(peer.channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

async fn fetch_info(peer: &Peer, limit: Duration) -> Result<HybridInfo, Error> {
    let info = peer.ask::<Hybrid, _, _>(Limits::of(limit), never, |peer| async move {
        let mut client = HybridInferenceClient::new(peer.channel.clone())
            .max_decoding_message_size(TERMS_BYTES_MAX + REPLY_OVERHEAD_BYTES);
        let reply = peer.call(client.info(HybridInfoRequest {})).await?;
        HybridInfo::check(reply.into_inner()).map_err(|defect| peer.reply_error(defect))
    });
    Ok(info.await?.reply)
}

/// Runs what computes for milliseconds, or reads files, off the threads of connections.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// How soon a server that is out of reach is tried again.
const RECONNECT: Duration = Duration::from_millis(200);
