//! Private lookup over gRPC: the servers, their clients, and the only sockets of hushtable.
//!
//! [`Server`] puts a table behind `proto/hushtable/v1/lookup.proto`: TLS, a batch scheduler
//! ([`schedule`]) in front of the kernel, metrics and health on a second port. [`LookupClient`]
//! fetches rows from a left and a right server that do not collude, all rows of an inference at once
//! ([`LookupClient::fetch_bag`]) where the table has a layout. [`load`] measures a server.
//!
//! [`OnionServer`] and [`OnionClient`] do the same by `onion.proto` with one server, which keeps its clients' evaluation keys ([`keys`]).
//!
//! [`TrainServer`] and [`TrainClient`] train a table behind an oblivious memory by `train.proto`.

#![forbid(unsafe_code)]

pub mod batch;
mod error;
mod host;
mod peer;
mod schemes;
pub mod settings;
pub mod wire;

/// Loads servers and measures what they answer.
pub mod load {
    pub use crate::peer::load::LoadReport;
    pub use crate::schemes::onion::load::OnionLoadSpec;
    pub use crate::schemes::pair::load::{BagLoadSpec, LoadSpec};
}

/// Why servers refuse requests: the table of reasons, and what carries them over the wire.
pub mod refusal {
    pub use crate::peer::refusal::{Code, Fact, FactKind, Facts, Reason, Status};
}

pub use error::{Error, ReplyDefect};
pub use host::certificate;
pub use host::network::{NetworkSpec, TlsSpec};
pub use host::{BoundServer, raise_file_limit};
pub use peer::endpoint::{EndpointSpec, Identity};
pub use schemes::onion::keys;
pub use schemes::onion::{OnionClient, OnionClientSpec, OnionInfo, OnionServer, OnionServerSpec};
pub use schemes::pair::{
    Bag, ClientSpec, DeviceSpec, FeatureRows, LayoutInfo, Lookup, LookupClient, LookupStats,
    ModelClient, ModelFacts, ModelLookup, ModelPin, PairTerms, Server, ServerSpec, TableInfo,
};
pub use schemes::refusal::{KeyDefect, Limit, Refusal};
pub use schemes::train::{
    Awaited, BudgetSpent, ControllerPlace, CounterSpec, EtcdPlace, MasterKey, MemoryError,
    OramMemory, Outcome, RoundMemory, RoundReport, RoundSpec, RoundStage, SecretFile, TrainClient,
    TrainClientSpec, TrainInfo, TrainRefusal, TrainServer, TrainServerSpec,
};
