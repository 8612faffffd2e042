//! Hybrid private inference: a network whose weights only the server knows, on an input that only the client
//! knows, by `hybrid.proto`.

mod client;
mod error;
mod exchange;
mod info;
mod keep;
mod machines;
mod metrics;
mod model;
mod places;
mod precomputes;
mod refusal;
mod server;
mod service;
mod settings;
mod spec;

pub use client::{
    HybridClient, HybridClientSpec, HybridPrediction, HybridStats, Parallelism, PrecomputeProgress,
    PrecomputeStats,
};
pub use error::HybridError;
pub use info::HybridInfo;
pub use keep::PrecomputeCount;
pub use model::HybridNetwork;
pub use refusal::{Garbler, HybridRefusal, StepDefect};
pub use server::HybridServer;
pub use spec::{HybridServerSpec, PrecomputeStoreSpec};

use crate::host::scheme::{GrpcService, Method};
use crate::schemes::described::Described;

/// The scheme, as it is listed.
pub(crate) const DESCRIBED: Described = Described {
    name: "hybrid",
    whose: "hybrid inference",
    asked: "as a single server, for predictions",
    service: SERVICE.name,
    is_alone: true,
    settings: settings::SETTINGS,
    defaults: settings::defaults,
    refusals: refusal::REFUSALS,
};

/// What a server of this scheme offers.
const SERVICE: GrpcService = GrpcService {
    name: "hushtable.v1.HybridInference",
    methods: &[
        Method { name: "Begin", metric: "HybridBegin" },
        Method { name: "Finish", metric: "HybridFinish" },
        Method { name: "Info", metric: "HybridInfo" },
        Method { name: "Predict", metric: "HybridPredict" },
        Method { name: "Step", metric: "HybridStep" },
    ],
};

/// The most bytes of one step's or frame's payload that is read at all: a chunk of any plan has less.
const PAYLOAD_BYTES_MAX: usize = 4 << 20;
/// About what a chunk of a plan has: what a reply is counted as before it is made.
const CHUNK_BYTES: usize = (1 << 20) + (64 << 10);
/// What a message has around its payload.
const OVERHEAD_BYTES: usize = 1024;
/// Frames that are ready before they can be sent.
const FRAMES_AHEAD: usize = 4;

/// What a precompute is known by: drawn by the client.
type PrecomputeId = [u8; 16];

#[cfg(test)]
mod tests {
    use super::SERVICE;

    #[test]
    fn the_descriptor_has_the_methods_of_the_contract() {
        SERVICE.check_against(include_str!("../../../../../proto/hushtable/v1/hybrid.proto"));
    }
}
