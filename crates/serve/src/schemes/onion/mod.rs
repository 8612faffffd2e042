//! Lookups from one server: its half and its clients', by `onion.proto`.

mod answerer;
mod client;
mod engine;
mod front;
mod held;
mod info;
pub(crate) mod load;
mod loader;
mod metrics;
mod peer;
pub(crate) mod refusal;
mod role;
mod server;
mod service;
mod settings;
mod shard;
mod spec;

pub use client::{OnionClient, OnionClientSpec};
pub use hushtable_pir::client::OnionInfo;
pub use refusal::OnionRefusal;
pub use server::OnionServer;
pub use spec::OnionServerSpec;

use crate::host::scheme::{GrpcService, Method};
use crate::schemes::described::Described;

/// Bytes of keys in one message of an upload.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// The scheme, as it is listed.
pub(crate) const DESCRIBED: Described = Described {
    name: "onion",
    whose: "a single server",
    asked: "as a single server, for rows",
    service: SERVICE.name,
    is_alone: true,
    settings: settings::SETTINGS,
    defaults: settings::defaults,
    refusals: refusal::REFUSALS,
};

/// What a server of this scheme offers.
const SERVICE: GrpcService = GrpcService {
    name: "hushtable.v1.OnionLookup",
    methods: &[
        Method { name: "Answer", metric: "OnionAnswer" },
        Method { name: "AnswerModel", metric: "OnionAnswerModel" },
        Method { name: "Catalog", metric: "OnionCatalog" },
        Method { name: "Info", metric: "OnionInfo" },
        Method::named("PutKeys"),
    ],
};

#[cfg(test)]
mod tests {
    use super::SERVICE;

    #[test]
    fn the_descriptor_has_the_methods_of_the_contract() {
        SERVICE.check_against(include_str!("../../../../../proto/hushtable/v1/onion.proto"));
    }
}
