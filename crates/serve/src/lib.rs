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

mod admin;
mod admission;
mod announced;
mod bags;
mod blocking;
mod budget;
pub mod certificate;
mod client;
mod connection;
mod device;
mod door;
mod endpoint;
mod engine;
mod error;
mod gather;
mod info;
pub mod keys;
pub mod load;
pub mod observe;
mod onion;
mod refusal;
pub mod schedule;
mod server;
mod service;
mod spec;
mod tls;
mod train;
pub mod wire;

pub use announced::PairTerms;
pub use blocking::{BlockingClient, BlockingOnionClient, BlockingTrainClient};
pub use client::{Bag, ClientSpec, Lookup, LookupClient, LookupStats};
pub use device::DeviceSpec;
pub use endpoint::{EndpointSpec, Identity};
pub use error::{Error, ReplyDefect};
pub use info::{LayoutInfo, TableInfo};
pub use onion::{OnionClient, OnionClientSpec, OnionInfo, OnionServer, OnionServerSpec};
pub use refusal::{KeyDefect, Limit, Refusal};
pub use server::{BoundServer, Server, raise_file_limit};
pub use spec::{NetworkSpec, ServerSpec, TlsSpec};
pub use train::{
    Awaited, BudgetSpent, Committed, ControllerPlace, CounterSpec, EtcdPlace, MasterKey,
    MemoryError, OramMemory, Outcome, RoundMemory, RoundReport, RoundSpec, RoundStage, SecretFile,
    TrainClient, TrainClientSpec, TrainInfo, TrainRefusal, TrainServer, TrainServerSpec,
};
