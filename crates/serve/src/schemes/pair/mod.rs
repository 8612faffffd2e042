//! Lookups from two servers that do not collude: their half and their clients', by `lookup.proto`.

mod answerer;
mod bags;
pub(crate) mod client;
mod device;
mod engine;
mod front;
mod held;
mod inferences;
mod info;
pub(crate) mod load;
mod loader;
mod metrics;
mod model;
mod peer;
mod question;
pub(crate) mod refusal;
mod rows;
mod server;
mod service;
mod settings;
mod shard;
mod sharded;
mod spec;

pub use client::{Bag, ClientSpec, FetchedBags, LookupClient};
pub use device::{DeviceError, DeviceSpec};
pub use hushtable_pir::client::{
    BagPart, FeatureRows, LayoutInfo, ModelFacts, PairTerms, TableInfo,
};
pub use model::{ModelClient, ModelLookup, ModelPin};
pub use refusal::PairRefusal;
pub use server::Server;
pub use spec::ServerSpec;

use crate::host::scheme::{GrpcService, Method};
use crate::schemes::described::Described;

/// The scheme, as it is listed.
pub(crate) const DESCRIBED: Described = Described {
    name: "pair",
    whose: "one of a pair of servers",
    asked: "as left or right of two servers, for rows",
    service: SERVICE.name,
    is_alone: false,
    settings: settings::SETTINGS,
    defaults: settings::defaults,
    refusals: refusal::REFUSALS,
};

/// What a server of this scheme offers.
const SERVICE: GrpcService = GrpcService {
    name: "hushtable.v1.PrivateLookup",
    methods: &[
        Method::named("Answer"),
        Method::named("AnswerBags"),
        Method::named("AnswerModel"),
        Method::named("Catalog"),
        Method::named("Layout"),
        Method::named("TableInfo"),
    ],
};

#[cfg(test)]
mod tests {
    use super::SERVICE;

    #[test]
    fn the_descriptor_has_the_methods_of_the_contract() {
        SERVICE.check_against(include_str!("../../../../../proto/hushtable/v1/lookup.proto"));
    }
}
