//! Has a network computed on an input that the server never sees.

mod halves;
mod making;
mod peer;
mod predicting;

use std::sync::Arc;
use std::time::Duration;

use hushtable_client::Place;
use hushtable_infer::hybrid::session::{Predictor, SessionSpec};
use hushtable_table::Version;

use super::keep::{Keep, PrecomputeCount};
use super::machines::Outline;
use super::refusal::REFUSALS;
use super::spec::PrecomputeStoreSpec;
use super::{Garbler, HybridError, HybridInfo};
use crate::peer::drive::Driver;
use crate::peer::endpoint::Peer;
use crate::peer::random_u64;
use crate::peer::shaper::LinkSpec;
use crate::{EndpointSpec, Error};

pub use hushtable_infer::hybrid::session::Progress as PrecomputeProgress;
pub use making::PrecomputeStats;
pub use predicting::{HybridPrediction, HybridStats};

use halves::KeptHalves;
use peer::HybridWire;

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

/// A client of one network at one server, with its halves of precomputes.
pub struct HybridClient {
    driver: Driver<HybridWire>,
    predictor: Predictor,
    halves: Arc<KeptHalves>,
    parallelism: Parallelism,
    steps_max: usize,
}

impl HybridClient {
    /// Connects, asks what the server computes, checks it, and opens what is kept of precomputes.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`],
    /// [`Error::Setting`] for what is wrong with `spec`; [`Error::Unavailable`] or [`Error::Timeout`] for a
    /// server out of reach; [`Error::Unserved`] if the server speaks another scheme; [`Error::Reply`] if it
    /// announces what cannot be; [`HybridError::GarblerRefused`] where the server forbids the chosen side to garble;
    /// [`HybridError::PrecomputeBytes`] for a network whose precompute is larger than `spec` allows,
    /// [`Error::VersionMismatch`] for another version than it names; [`HybridError::Precomputes`] for a folder that
    /// cannot be used.
    pub async fn connect(spec: &HybridClientSpec) -> Result<Self, Error> {
        crate::host::network::within("steps_max", spec.steps_max, 1..=1024)?;
        let peer = Peer::over(&spec.server, spec.insecure, spec.connect_max, spec.link, REFUSALS)?;
        let &HybridClientSpec { version, call_max, retry_max, garbler, .. } = spec;
        let (garbler, half_bytes_max) = (garbler.party(), spec.store_bytes_max);
        let session = SessionSpec { version, garbler, call_max, retry_max, half_bytes_max };
        let driver = Driver::new([(Place::Single, vec![peer])]);
        let predictor = driver.run(Predictor::open(session, random_u64()?, driver.bell())).await?;
        let store = spec.store.clone();
        let keep = off_thread(move || Keep::open(store.as_ref(), half_bytes_max)).await;
        let halves = Arc::new(KeptHalves(keep.map_err(HybridError::of_keep)?));
        let &HybridClientSpec { parallelism, steps_max, .. } = spec;
        Ok(Self { driver, predictor, halves, parallelism, steps_max })
    }

    /// What the server computes, as it announced it and it was checked.
    pub fn info(&self) -> &HybridInfo {
        self.predictor.announced()
    }

    /// What follows from it: circuits, packing, sizes.
    pub fn outline(&self) -> &Arc<Outline> {
        self.predictor.outline()
    }

    /// Bytes that one precompute takes at this client.
    pub fn precompute_bytes(&self) -> u64 {
        self.predictor.half_bytes()
    }

    /// The ids of those that can be used, the oldest first.
    #[doc(hidden)]
    pub fn precompute_ids(&self) -> Vec<[u8; 16]> {
        let kept = self.halves.0.list().into_iter().map(|kept| kept.head);
        kept.filter(|head| self.predictor.fits(head)).map(|head| head.id).collect()
    }

    /// What is kept of this plan and garbler, and the bytes of all.
    pub fn precomputes(&self) -> PrecomputeCount {
        let bytes = self.halves.0.count().bytes;
        PrecomputeCount { precomputes: self.precompute_ids().len(), bytes }
    }

    /// How many halves of its folder were dropped since it was opened, for they may have been used before.
    pub fn precomputes_refused(&self) -> u64 {
        self.halves.0.refused()
    }
}

/// Runs what reads files off the threads of connections.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}
