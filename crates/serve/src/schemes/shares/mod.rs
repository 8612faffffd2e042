//! Predictions on shares: left and right compute a recommendation model on rows and features that neither sees, by
//! `shares.proto`. The protocol is [`hushtable_infer::shares`]; here are its sockets.

mod client;
mod crowd;
mod driver;
mod info;
mod link;
mod metrics;
mod model;
mod peer;
mod refill;
mod refusal;
mod server;
mod service;
mod settings;
mod spec;

pub use client::{SharesClient, SharesClientSpec, SharesPrediction, SharesStats};
pub use hushtable_infer::shares::session::Info as SharesInfo;
pub use refusal::SharesRefusal;
pub use server::SharesServer;
pub use spec::{PeerError, SharesServerSpec, peer_name};

use crate::host::scheme::{GrpcService, Method};
use crate::schemes::described::Described;

/// About how long a frame between the servers may be.
const FRAME_BYTES_MAX: usize = 1 << 20;

/// The scheme, as it is listed.
pub(crate) const DESCRIBED: Described = Described {
    name: "shares",
    whose: "predictions on shares",
    asked: "as left or right of two servers, for predictions",
    service: SERVICE.name,
    is_alone: false,
    settings: settings::SETTINGS,
    defaults: settings::defaults,
    refusals: refusal::REFUSALS,
};

/// What a server of this scheme offers.
const SERVICE: GrpcService = GrpcService {
    name: "hushtable.v1.SharedInference",
    methods: &[
        Method::named("Deal"),
        Method::named("Exchange"),
        Method { name: "Info", metric: "SharesInfo" },
        Method { name: "Predict", metric: "SharesPredict" },
    ],
};

#[cfg(test)]
mod tests {
    use super::SERVICE;

    #[test]
    fn the_descriptor_has_the_methods_of_the_contract() {
        SERVICE.check_against(include_str!("../../../../../proto/hushtable/v1/shares.proto"));
    }
}
