//! Federated training: rounds of sealed requests and uploads around an oblivious memory, by
//! `train.proto`.

mod audit;
mod backup;
mod client;
mod controller;
mod counter;
mod enrolment;
mod error;
mod etcd;
mod host;
mod info;
mod memory;
mod metrics;
mod recovery;
mod refusal;
mod seats;
mod server;
mod service;
mod settings;
mod spec;

pub use audit::{AuditSummary, ChainEnd};
pub use client::{BackupMade, TrainClient, TrainClientSpec};
pub use controller::{ControllerPlace, MasterKey, OramMemory};
pub use counter::CounterSpec;
pub use enrolment::SecretFile;
pub use error::TrainError;
pub use etcd::EtcdPlace;
pub use hushtable_oram::round::{Ended, RoundName, RoundReport, Settled};
pub use hushtable_oram::rounds::{BudgetSpent, RoundStage};
pub use info::TrainInfo;
pub use memory::{CommitError, MemoryError, RoundMemory};
pub use recovery::{Approve, Diagnosis, Remedy};
pub use refusal::{Awaited, Outcome, TrainRefusal};
pub use server::TrainServer;
pub use spec::{RoundSpec, TrainServerSpec};

use crate::host::scheme::{GrpcService, Method};
use crate::schemes::described::Described;

/// The scheme, as it is listed.
pub(crate) const DESCRIBED: Described = Described {
    name: "train",
    whose: "training",
    asked: "as a training server",
    service: SERVICE.name,
    is_alone: false,
    settings: settings::SETTINGS,
    defaults: settings::defaults,
    refusals: refusal::REFUSALS,
};

/// What a server of this scheme offers.
const SERVICE: GrpcService = GrpcService {
    name: "hushtable.v1.FederatedTraining",
    methods: &[
        Method::named("Abandon"),
        Method::named("Backup"),
        Method::named("CloseRequests"),
        Method::named("Finish"),
        Method { name: "Info", metric: "TrainInfo" },
        Method::named("OpenRound"),
        Method::named("Request"),
        Method::named("Rows"),
        Method::named("Upload"),
    ],
};

#[cfg(test)]
mod tests {
    use super::SERVICE;

    #[test]
    fn the_descriptor_has_the_methods_of_the_contract() {
        SERVICE.check_against(include_str!("../../../../../proto/hushtable/v1/train.proto"));
    }
}
