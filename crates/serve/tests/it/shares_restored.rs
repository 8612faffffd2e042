//! What two servers dealt, put back after it was used, at one of them and at both: no half is used twice.

use std::collections::BTreeSet;

use crate::common::{Running, wait_until_free};
use crate::hybrid_restored::{Back, bring};
use crate::shares::{Bundle, assert_near, client_spec};
use crate::shares_dealt::{READY, SIDES, ids, reaches, spec};
use hushtable_pir::dpf::Side;
use hushtable_serve::{SharesClient, SharesServer};
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_dealt_and_put_back_is_not_used_again() {
    for back in [Back::Copied, Back::RolledBack] {
        for put_back in [&SIDES[..], &SIDES[..1], &SIDES[1..]] {
            let what = format!("{back:?} {put_back:?}");
            let (bundle, place) = (Bundle::write(16), TempDir::new().unwrap());
            let place = place.path();
            let start = |room: u64| {
                let open = |side, peer: Option<&str>| {
                    let mut spec = spec(&bundle, place, side, peer);
                    spec.precomputes_bytes_max = room;
                    Running::start(SharesServer::open(spec).unwrap())
                };
                let right = open(Side::Right, None);
                [open(Side::Left, Some(&right.url())), right]
            };
            let kept = |side: Side| place.join(format!("{side} kept"));
            let stop = |servers: [Running; 2]| {
                for server in servers {
                    let addr = server.addr;
                    server.stop().unwrap();
                    wait_until_free(addr);
                }
            };
            let servers = start(1 << 30);
            reaches(servers[0].metrics_addr, READY, 60.0).await;
            tokio::task::block_in_place(|| stop(servers));
            let dealt = SIDES.map(|side| ids(place, side));
            put_back
                .iter()
                .for_each(|side| bring(&place.join(side.to_string()), &kept(*side), back));

            // Uses some, and takes more ahead. It makes no more.
            let servers = start(1);
            let client = SharesClient::connect(&client_spec(&servers)).await.unwrap();
            let (dense, indices, expected) = bundle.users(6);
            reaches(servers[0].metrics_addr, READY, 6.0).await;
            assert_near(&client.predict(6, &dense, &indices).await.unwrap().logits, &expected);
            drop(client);
            tokio::task::block_in_place(|| stop(servers));
            let unused = SIDES.map(|side| ids(place, side));
            put_back
                .iter()
                .for_each(|side| bring(&kept(*side), &place.join(side.to_string()), back));

            let servers = start(1);
            for (i, side) in SIDES.into_iter().enumerate() {
                let is_put_back = put_back.contains(&side);
                let gone: BTreeSet<_> = dealt[i].difference(&unused[i]).collect();
                assert!(gone.len() >= 6, "{what}");
                let refused = match back {
                    _ if !is_put_back => 0,
                    Back::Copied => dealt[i].len(),
                    Back::RolledBack => gone.len(),
                };
                let found = servers[i].metric("hushtable_precomputes_refused_total").await;
                assert_eq!(found, refused as f64, "{what} {side}");
                assert!(ids(place, side).iter().all(|id| !gone.contains(id)), "{what} {side}");
            }
            tokio::task::block_in_place(|| stop(servers));
        }
    }
}
