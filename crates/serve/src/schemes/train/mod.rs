//! Federated training: rounds of sealed requests and uploads around an oblivious memory, by
//! `train.proto`.

mod client;
mod controller;
mod counter;
mod enrolment;
mod etcd;
mod host;
mod info;
mod memory;
mod refusal;
mod server;
mod service;
mod spec;

pub use client::{TrainClient, TrainClientSpec};
pub use controller::{ControllerPlace, MasterKey, OramMemory};
pub use counter::CounterSpec;
pub use enrolment::SecretFile;
pub use etcd::EtcdPlace;
pub use hushtable_oram::round::RoundReport;
pub use hushtable_oram::rounds::{BudgetSpent, RoundStage};
pub use info::TrainInfo;
pub use memory::{MemoryError, RoundMemory};
pub use refusal::{Awaited, Outcome, TrainRefusal};
pub use server::TrainServer;
pub use spec::{RoundSpec, TrainServerSpec};
