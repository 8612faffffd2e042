//! Federated training: rounds of sealed requests and uploads around an oblivious memory, by
//! `train.proto`.

mod client;
mod controller;
mod counter;
mod etcd;
mod host;
mod info;
mod memory;
mod refusal;
mod server;
mod service;
mod spec;

pub use client::{TrainClient, TrainClientSpec};
pub use controller::{ControllerPlace, MasterKey, OramMemory, facts_of};
pub use counter::CounterSpec;
pub use etcd::EtcdPlace;
pub use info::{RoundReport, RoundStage, TrainFacts, TrainInfo};
pub use memory::{Committed, MemoryError, RoundMemory};
pub use refusal::{Awaited, MessageDefect, Outcome, TrainRefusal};
pub use server::TrainServer;
pub use spec::{RoundSpec, TrainServerSpec};
