//! Private lookup over gRPC: the servers, their clients, and the only sockets of hushtable.
//!
//! [`Server`] puts a table behind `proto/hushtable/v1/lookup.proto`: TLS, a batch scheduler
//! ([`schedule`]) in front of the kernel, metrics and health on a second port. [`LookupClient`]
//! fetches rows from a left and a right server that do not collude, all rows of an inference at once
//! ([`LookupClient::fetch_bag`]) where the table has a layout; [`BlockingClient`] does so
//! without an asynchronous runtime. [`load`] measures a server.
//!
//! [`OnionServer`], [`OnionClient`] and [`BlockingOnionClient`] do the same by `onion.proto` with one
//! server, which keeps its clients' evaluation keys ([`keys`]).
//!
//! [`TrainServer`], [`TrainClient`] and [`BlockingTrainClient`] train a table behind an oblivious
//! memory by `train.proto`.

#![forbid(unsafe_code)]

pub mod batch;
mod error;
mod host;
mod peer;
mod schemes;
pub mod wire;

/// Loads servers and measures what they answer.
pub mod load {
    pub use crate::peer::load::LoadReport;
    pub use crate::schemes::onion::load::OnionLoadSpec;
    pub use crate::schemes::pair::load::{BagLoadSpec, LoadSpec};
}

pub use error::{Error, ReplyDefect};
pub use host::certificate;
pub use host::network::{NetworkSpec, TlsSpec};
pub use host::{BoundServer, raise_file_limit};
pub use peer::blocking::{BlockingClient, BlockingOnionClient, BlockingTrainClient};
pub use peer::endpoint::{EndpointSpec, Identity};
pub use peer::refusal::{KeyDefect, Limit, Refusal};
pub use schemes::onion::keys;
pub use schemes::onion::{OnionClient, OnionClientSpec, OnionInfo, OnionServer, OnionServerSpec};
pub use schemes::pair::{
    Bag, ClientSpec, DeviceSpec, FeatureRows, LayoutInfo, Lookup, LookupClient, LookupStats,
    ModelClient, ModelFacts, ModelLookup, ModelPin, PairTerms, Server, ServerSpec, TableInfo,
};
pub use schemes::train::{
    Awaited, BudgetSpent, Committed, ControllerPlace, CounterSpec, EtcdPlace, MasterKey,
    MemoryError, OramMemory, Outcome, RoundMemory, RoundReport, RoundSpec, RoundStage, SecretFile,
    TrainClient, TrainClientSpec, TrainInfo, TrainRefusal, TrainServer, TrainServerSpec,
};
