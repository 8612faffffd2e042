//! Encrypted inference: a recommendation model computed on features that the server never sees, by
//! `infer.proto`.

mod answerer;
mod client;
mod engine;
mod info;
mod metrics;
mod peer;
mod refusal;
mod server;
mod service;
mod settings;
mod spec;

pub use client::{CkksClient, CkksClientSpec, Prediction, PredictionStats};
pub use hushtable_infer::dlrm::session::{Info as CkksInfo, Progress};
pub use refusal::CkksRefusal;
pub use server::CkksServer;
pub use spec::CkksServerSpec;

use crate::host::scheme::{GrpcService, Method};
use crate::schemes::described::Described;

/// Bytes of keys in one message of an upload.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// The scheme, as it is listed.
pub(crate) const DESCRIBED: Described = Described {
    name: "ckks",
    whose: "encrypted inference",
    asked: "as a single server, for predictions",
    service: SERVICE.name,
    is_alone: true,
    settings: settings::SETTINGS,
    defaults: settings::defaults,
    refusals: refusal::REFUSALS,
};

/// What a server of this scheme offers.
const SERVICE: GrpcService = GrpcService {
    name: "hushtable.v1.EncryptedInference",
    methods: &[
        Method::named("HaveKeys"),
        Method { name: "Info", metric: "InferInfo" },
        Method::named("Predict"),
        Method::named("UploadKeys"),
    ],
};

#[cfg(test)]
mod tests {
    use super::SERVICE;

    #[test]
    fn the_descriptor_has_the_methods_of_the_contract() {
        SERVICE.check_against(include_str!("../../../../../proto/hushtable/v1/infer.proto"));
    }
}
