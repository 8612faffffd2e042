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
mod right;
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
    use std::path::Path;
    use std::time::Duration;

    use hushtable_infer::shares::DealtBy;
    use hushtable_infer::shares::bench::described;
    use hushtable_infer::shares::price::Model;
    use hushtable_pir::dpf::Side;
    use tokio::sync::watch;

    use super::refill::{DEAL, FETCH};
    use super::service::DRIVER;
    use super::{SERVICE, SharesServer, SharesServerSpec};
    use crate::vital::planted;
    use crate::{Error, NetworkSpec};

    #[test]
    fn the_descriptor_has_the_methods_of_the_contract() {
        SERVICE.check_against(include_str!("../../../../../proto/hushtable/v1/shares.proto"));
    }

    /// Servers that deal, left and right, with what they need on the disk.
    fn servers(place: &Path) -> [SharesServerSpec; 2] {
        let model = place.join("clicks");
        let spec = described(5, &[4], &[4, 1], &[("user", 60, 1)]);
        Model::synthetic(spec, 8, 8, 1).unwrap().write(&model, "clicks").unwrap();
        let any = ([127, 0, 0, 1], 0).into();
        let network = NetworkSpec { addr: any, metrics_addr: None, ..NetworkSpec::default() };
        [Side::Left, Side::Right].map(|side| SharesServerSpec {
            dealer: DealtBy::Servers,
            precomputes: Some(place.join(side.to_string())),
            precomputes_ledger: Some(place.join("ledgers")),
            network: network.clone(),
            threads: 1,
            ..SharesServerSpec::new(&model, side)
        })
    }

    /// What becomes of two servers that have met, until `over`.
    async fn run(over: impl Future<Output = ()>) -> Result<(), Error> {
        let place = tempfile::tempdir().unwrap();
        let [left, right] = servers(place.path());
        let right = SharesServer::open(right).unwrap().bind().await.unwrap();
        let peer = Some(format!("http://{}", right.addr));
        let left = SharesServer::open(SharesServerSpec { peer, ..left }).unwrap();
        let left = left.bind().await.unwrap();
        // Both servers end in order: the threads of a server that was only dropped would write to the folder while the
        // test deletes it.
        let (end, ended) = watch::channel(false);
        let stopped = || {
            let mut ended = ended.clone();
            async move { drop(ended.wait_for(|is_over| *is_over).await) }
        };
        let over = async {
            tokio::select! {
                () = over => {}
                () = stopped() => {}
            }
        };
        let told = |found: Result<(), Error>| {
            end.send_replace(true);
            found
        };
        let left = async { told(left.run(over).await) };
        let right = async { told(right.run(stopped()).await) };
        let (left, right) = tokio::join!(left, right);
        left.and(right)
    }

    /// That a server ends with this thread: either's, they are in one process here.
    async fn assert_ends(name: &'static str) {
        planted::panic_in(name);
        let error = run(std::future::pending()).await.unwrap_err();
        assert!(matches!(error, Error::Panicked { thread } if thread == name), "{error}");
    }

    #[tokio::test]
    async fn a_server_whose_driver_panics_ends() {
        assert_ends(DRIVER).await;
    }

    #[tokio::test]
    async fn a_server_that_can_take_no_precomputes_ahead_any_more_ends() {
        assert_ends(FETCH).await;
    }

    #[tokio::test]
    async fn a_session_of_dealing_that_panics_is_followed_by_another() {
        run(async {
            for _ in 0..2 {
                planted::panic_in(DEAL);
                while planted::is_due() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        })
        .await
        .unwrap();
    }
}
