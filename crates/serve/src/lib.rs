//! Private lookup over gRPC: the servers, their clients, and the only sockets of hushtable.
//!
//! [`Server`] puts a table behind `proto/hushtable/v1/lookup.proto`: TLS, a batch scheduler
//! ([`batch::Scheduler`]) in front of the kernel, metrics and health on a second port. [`LookupClient`]
//! fetches rows from a left and a right server that do not collude, all rows of an inference at once
//! ([`LookupClient::fetch_bag`]) where the table has a layout. [`load`] measures a server.
//!
//! [`OnionServer`] and [`OnionClient`] do the same by `onion.proto` with one server, which keeps its clients' evaluation keys ([`keys`]).
//!
//! [`HybridServer`] computes a network on an input that it never sees, by `hybrid.proto`, for a
//! [`HybridClient`]: homomorphic encryption ahead of time, garbled circuits for activations.
//!
//! [`CkksServer`] computes a model on encrypted features, by `infer.proto`, for an [`CkksClient`].
//!
//! Two [`SharesServer`]s compute a model on shares of rows and features, by `shares.proto`, for a [`SharesClient`].
//!
//! [`TrainServer`] and [`TrainClient`] train a table behind an oblivious memory by `train.proto`.

#![forbid(unsafe_code)]
#![cfg_attr(
    not(all(
        feature = "ckks",
        feature = "hybrid",
        feature = "onion",
        feature = "pair",
        feature = "shares",
        feature = "train"
    )),
    allow(
        dead_code,
        unused_imports,
        reason = "what schemes share is there for those left out too"
    )
)]

pub mod batch;
mod endpoint;
mod error;
pub mod host;
#[cfg(any(feature = "ckks", feature = "onion"))]
pub mod keys;
mod labels;
mod peer;
pub mod refusal;
mod schemes;
pub mod settings;
#[cfg(any(feature = "onion", feature = "pair"))]
mod shards;
#[cfg_attr(not(feature = "otlp"), allow(dead_code, reason = "nothing is traced without"))]
mod trace;
mod vital;
pub mod wire;

/// Loads servers and measures what they answer.
pub mod load {
    pub use crate::peer::load::LoadReport;
    pub use crate::peer::open::{Arrivals, OpenReport};
    #[cfg(feature = "onion")]
    pub use crate::schemes::onion::load::OnionLoadSpec;
    #[cfg(feature = "pair")]
    pub use crate::schemes::pair::load::{
        BagLoadSpec, LoadSpec, ModelEngineReport, ModelEngineSpec, ModelLoadSpec, serve_stub_shards,
    };
}

pub use endpoint::{EndpointSpec, Identity};
pub use error::{Error, Own, ReplyDefect};
pub use host::certificate;
pub use host::network::{NetworkSpec, TlsSpec};
pub use host::push::push;
pub use host::{BoundServer, exit_with_parent, raise_file_limit};
#[cfg(any(feature = "ckks", feature = "onion"))]
pub use keys::refusal::KeysRefusal;
pub use peer::deadline::Deadline;
pub use peer::shaper::LinkSpec;
pub use peer::watch::{Met, watch_clients};
pub use refusal::{KeyDefect, Limit, Refusal};
pub use schemes::all::{SCHEMES, reasons, refusal_of};
#[cfg(feature = "ckks")]
pub use schemes::ckks::{
    CkksClient, CkksClientSpec, CkksInfo, CkksRefusal, CkksServer, CkksServerSpec, Prediction,
    PredictionStats, Progress,
};
pub use schemes::described::Described;
#[cfg(feature = "hybrid")]
pub use schemes::hybrid::{
    Garbler, HybridClient, HybridClientSpec, HybridError, HybridInfo, HybridNetwork,
    HybridPrediction, HybridRefusal, HybridServer, HybridServerSpec, HybridStats, Parallelism,
    PrecomputeCount, PrecomputeProgress, PrecomputeStats, PrecomputeStoreSpec, StepDefect,
};
#[cfg(any(feature = "onion", feature = "pair"))]
pub use schemes::lookup::{Lookup, LookupStats};
pub use schemes::offered::offered_scheme;
#[cfg(feature = "onion")]
pub use schemes::onion::{
    OnionClient, OnionClientSpec, OnionInfo, OnionRefusal, OnionServer, OnionServerSpec,
};
#[cfg(feature = "pair")]
pub use schemes::pair::{
    Bag, BagPart, ClientSpec, DeviceError, DeviceSpec, FeatureRows, FetchedBags, LayoutInfo,
    LookupClient, ModelClient, ModelFacts, ModelLookup, ModelPin, PairRefusal, PairTerms, Server,
    ServerSpec, TableInfo,
};
#[cfg(feature = "shares")]
pub use schemes::shares::{
    PeerError, SharesClient, SharesClientSpec, SharesInfo, SharesPrediction, SharesRefusal,
    SharesServer, SharesServerSpec, SharesStats, peer_name,
};
#[cfg(feature = "train")]
pub use schemes::train::{
    Approve, AuditSummary, Awaited, BackupMade, BudgetSpent, ChainEnd, CommitError,
    ControllerPlace, CounterSpec, Diagnosis, Ended, EtcdPlace, MasterKey, MemoryError, OramMemory,
    Outcome, Remedy, RoundMemory, RoundName, RoundReport, RoundSpec, RoundStage, SecretFile,
    Settled, TrainClient, TrainClientSpec, TrainError, TrainInfo, TrainRefusal, TrainServer,
    TrainServerSpec,
};
#[cfg(any(feature = "onion", feature = "pair"))]
pub use schemes::versions::ChangeSpec;
#[cfg(any(feature = "onion", feature = "pair"))]
pub use shards::{Owner, ShardError, front_name, shard_name};
pub use trace::{Fraction, NoCollector, NoFraction};
