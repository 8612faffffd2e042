//! Predictions on shares where the servers deal: no client does, nothing is used twice, whoever is killed.

use std::path::Path;
use std::time::Duration;

use crate::common::{Process, Running, in_time, metric_of, page, until, wait_until_free};
use crate::shares::{Bundle, assert_near, client_spec, raw, reason};
use bytes::Bytes;
use hushtable_infer::shares::DealtBy;
use hushtable_infer::shares::client::share;
use hushtable_infer::shares::joint::Precompute;
use hushtable_pir::dpf::Side;
use hushtable_serve::wire::SharesPredictRequest;
use hushtable_serve::{
    EndpointSpec, Error, PeerError, SharesClient, SharesClientSpec, SharesRefusal, SharesServer,
    SharesServerSpec,
};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tonic::Code;
use tonic_types::StatusExt;

pub const SIDES: [Side; 2] = [Side::Left, Side::Right];

pub(crate) fn spec(
    bundle: &Bundle,
    place: &Path,
    side: Side,
    peer: Option<&str>,
) -> SharesServerSpec {
    SharesServerSpec {
        dealer: DealtBy::Servers,
        precomputes: Some(place.join(side.to_string())),
        precomputes_ledger: Some(place.join("ledgers")),
        refill_percent: 100,
        ..bundle.spec(side, peer)
    }
}

fn start(bundle: &Bundle, place: &Path) -> [Running; 2] {
    let open = |spec| Running::start(SharesServer::open(spec).unwrap());
    let right = open(spec(bundle, place, Side::Right, None));
    let left = open(spec(bundle, place, Side::Left, Some(&right.url())));
    [left, right]
}

/// Waits until the metric of that name is at least `least`, but not for ever.
pub async fn reaches(addr: std::net::SocketAddr, name: &str, least: f64) {
    let is_so = async || metric_of(&page(addr, "/metrics").await.1, name) >= least;
    until(&format!("{name} reaches {least}"), is_so).await;
}

pub(crate) const READY: &str = "hushtable_precomputes_ready";
pub(crate) const USED: &str = "hushtable_precomputes_used_total";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_deal_take_shares_of_features_alone() {
    let (bundle, place) = (Bundle::write(11), TempDir::new().unwrap());
    let servers = start(&bundle, place.path());
    let told = SharesClientSpec { dealer: Some(DealtBy::Servers), ..client_spec(&servers) };
    let client = SharesClient::connect(&told).await.unwrap();
    assert_eq!(client.info().dealer, DealtBy::Servers);
    let (dense, indices, expected) = bundle.users(20);
    let found = client.predict(20, &dense, &indices).await.unwrap();
    assert_near(&found.logits, &expected);
    let each = 32 + 4 * client.info().outline.dense as u64;
    assert_eq!(client.info().up_bytes() as u64, each);
    let asked = 20 + u64::from(found.stats.retries);
    assert_eq!(found.stats.dealt_bytes, asked * each);
    for server in &servers {
        assert_eq!(server.metric("hushtable_inferences_total").await, 20.0);
        assert!(server.metric(USED).await >= 20.0);
    }
    // A client that would deal, or would have it so, is told apart from one that would not.
    let told = SharesClientSpec { dealer: Some(DealtBy::Client), ..client_spec(&servers) };
    let error = SharesClient::connect(&told).await.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("dealt by the two servers"), "{error}");
    let mut request = crate::shares::part(&client, &dense[..5], &indices[..8]);
    let status = raw(&servers[0]).await.predict(request.clone()).await.unwrap_err();
    assert_eq!(reason(&status), (Code::InvalidArgument, "BAD_PART".to_owned()));
    assert!(status.message().contains("where the servers deal"), "{status}");
    request.common = Bytes::new();
    request.dealt.truncate(31);
    let status = raw(&servers[0]).await.predict(request).await.unwrap_err();
    assert_eq!(reason(&status).1, "BAD_PART", "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_dry_say_when_to_ask_again_and_clients_do() {
    let (bundle, place) = (Bundle::write(12), TempDir::new().unwrap());
    let outline = bundle.model.network.outline();
    // Room for three at left, and for two at right.
    let room = |count: u64| count * (Precompute::bytes_of(outline) as u64 + 400);
    let mut right = spec(&bundle, place.path(), Side::Right, None);
    right.precomputes_bytes_max = room(2);
    let right = Running::start(SharesServer::open(right).unwrap());
    let mut left = spec(&bundle, place.path(), Side::Left, Some(&right.url()));
    left.precomputes_bytes_max = room(3);
    let servers = [Running::start(SharesServer::open(left).unwrap()), right];
    let client = SharesClient::connect(&client_spec(&servers)).await.unwrap();
    let mut retries = 0;
    // More than there are, those in memory with them: once the servers have had time for these, ever more.
    for users in [12, 48, 96, 192] {
        let (dense, indices, expected) = bundle.users(users);
        let found = client.predict(users as usize, &dense, &indices).await.unwrap();
        assert_near(&found.logits, &expected);
        retries = found.stats.retries;
        if retries > 0 {
            break;
        }
    }
    let (dense, indices, _) = bundle.users(1);
    assert!(retries > 0, "there were two at most, and those in memory");
    assert!(servers[0].metric("hushtable_inferences_dry_total").await > 0.0);
    for (server, most) in servers.iter().zip([3, 2]) {
        assert!(server.metric("hushtable_precomputes_bytes").await <= room(most) as f64);
        // Some thirty are in memory, ahead of their use.
        assert!(server.metric(READY).await <= 2.0 + 32.0);
    }
    // More at once than there are, those in memory with them.
    reaches(servers[0].metrics_addr, READY, 2.0).await;
    let raw = [raw(&servers[0]).await, raw(&servers[1]).await];
    let parts = shared_parts(&client, &dense[..5], &indices[..8]);
    let mut asked = JoinSet::new();
    let dry = in_time(async {
        for name in 0_u64.. {
            for (part, raw) in parts.iter().zip(&raw) {
                let name = [name.to_le_bytes(); 2].concat().into();
                let request = SharesPredictRequest { name, ..part.clone() };
                let mut raw = raw.clone();
                asked.spawn(async move { raw.predict(request).await });
            }
            let done = match asked.len() < 300 {
                true => asked.try_join_next(),
                false => asked.join_next().await,
            };
            if let Some(Ok(Err(status))) = done
                && reason(&status).1 == "NO_PRECOMPUTE"
            {
                return status;
            }
        }
        unreachable!("names do not end");
    })
    .await;
    drop(asked);
    assert_eq!(dry.code(), Code::ResourceExhausted);
    let details = dry.get_error_details();
    assert!(details.retry_info().unwrap().retry_delay.unwrap() > Duration::ZERO);
}

/// Left's and right's part of an inference where the servers deal.
pub(crate) fn shared_parts(
    client: &SharesClient,
    dense: &[f64],
    indices: &[u64],
) -> [SharesPredictRequest; 2] {
    let shared = share(&client.info().outline, dense).unwrap();
    let [left, right] = crate::shares::parts(client, dense, indices);
    [(left, &shared.left), (right, &shared.right)].map(|(part, dealt)| SharesPredictRequest {
        common: Bytes::new(),
        dealt: dealt.clone().into(),
        ..part
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_and_one_dealer_are_asked_for() {
    let (bundle, place) = (Bundle::write(13), TempDir::new().unwrap());
    let open = |spec| SharesServer::open(spec).map(|_| ()).unwrap_err();
    let good = spec(&bundle, place.path(), Side::Right, None);
    let error = open(SharesServerSpec { precomputes: None, ..good.clone() });
    assert!(matches!(error.of(), Some(PeerError::NoFolder)), "{error}");
    for bad in [0, 101] {
        let error = open(SharesServerSpec { refill_percent: bad, ..good.clone() });
        assert!(matches!(error, Error::Setting { .. }), "{error}");
    }
    // Left lets clients deal, right does not.
    let right = Running::start(SharesServer::open(good).unwrap());
    let left = bundle.spec(Side::Left, Some(&right.url()));
    let left = Running::start(SharesServer::open(left).unwrap());
    let servers = [left, right];
    let error = SharesClient::connect(&client_spec(&servers)).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Reply { .. }), "{error}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(servers[1].metric("hushtable_sessions_total").await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_dealt_outlives_a_restart_of_either_server() {
    let (bundle, place) = (Bundle::write(14), TempDir::new().unwrap());
    let [left, right] = start(&bundle, place.path());
    let servers = [left, right];
    let client = SharesClient::connect(&client_spec(&servers)).await.unwrap();
    let (dense, indices, expected) = bundle.users(6);
    reaches(servers[0].metrics_addr, READY, 80.0).await;
    assert_near(&client.predict(6, &dense, &indices).await.unwrap().logits, &expected);
    let mut servers = servers.map(Some);
    for restarted in [1, 0] {
        let old = servers[restarted].take().unwrap();
        let peer = servers[1].as_ref().filter(|_| restarted == 0).map(Running::url);
        // What restarts makes no more: what it answers with was dealt before.
        let mut spec = spec(&bundle, place.path(), SIDES[restarted], peer.as_deref());
        spec.network.addr = old.addr;
        spec.precomputes_bytes_max = 1;
        let again = move || {
            let addr = old.addr;
            old.stop().unwrap();
            wait_until_free(addr);
            Running::start(SharesServer::open(spec).unwrap())
        };
        let new = tokio::task::spawn_blocking(again).await.unwrap();
        let found = client.predict(6, &dense, &indices).await.unwrap();
        assert_near(&found.logits, &expected);
        assert_eq!(new.metric("hushtable_precomputes_made_total").await, 0.0);
        assert!(new.metric(USED).await >= 6.0);
        servers[restarted] = Some(new);
    }
}

/// Ids of what a server has in its folder.
pub fn ids(place: &Path, side: Side) -> std::collections::BTreeSet<String> {
    let entries = std::fs::read_dir(place.join(side.to_string())).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_suffix(".key").map(str::to_owned)).collect()
}

/// Processes, of which one is killed in the middle of inferences again and again: clients get their logits, and what was
/// there before a kill and is gone after it never comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_servers_go_on_and_use_nothing_twice() {
    let (bundle, place) = (Bundle::write(15), TempDir::new().unwrap());
    let args = ["shares"];
    let mut right = spec(&bundle, place.path(), Side::Right, None);
    let mut process = [None, None];
    process[1] = Some(Process::start(place.path(), "right", &right, &args));
    right.network.addr = process[1].as_ref().unwrap().addr;
    right.network.metrics_addr = Some(process[1].as_ref().unwrap().metrics_addr);
    let url = process[1].as_ref().unwrap().url();
    let mut left = spec(&bundle, place.path(), Side::Left, Some(&url));
    process[0] = Some(Process::start(place.path(), "left", &left, &args));
    left.network.addr = process[0].as_ref().unwrap().addr;
    left.network.metrics_addr = Some(process[0].as_ref().unwrap().metrics_addr);
    let specs = [left, right];
    let metrics = specs.each_ref().map(|spec| spec.network.metrics_addr.unwrap());
    reaches(metrics[0], READY, 60.0).await;
    let endpoint =
        |spec: &SharesServerSpec| EndpointSpec::new(format!("http://{}", spec.network.addr), None);
    let client = SharesClientSpec::new(endpoint(&specs[0]), endpoint(&specs[1]));
    let client = SharesClient::connect(&client).await.unwrap();
    let (dense, indices, expected) = bundle.users(24);
    let mut gone: [std::collections::BTreeSet<String>; 2] = Default::default();
    for round in 0..4 {
        let side = round % 2;
        let before = SIDES.map(|side| ids(place.path(), side));
        let predicting = client.predict(24, &dense, &indices);
        let killing = async {
            tokio::time::sleep(Duration::from_millis(15 * (1 + round as u64))).await;
            let mut killed = process[side].take().unwrap();
            killed.signal(Signal::KILL);
            killed.wait();
            let held = ids(place.path(), SIDES[side]);
            wait_until_free(specs[side].network.addr);
            let name = SIDES[side].to_string();
            process[side] = Some(Process::start(place.path(), &name, &specs[side], &args));
            held
        };
        let (found, held) = tokio::join!(predicting, killing);
        assert_near(&found.unwrap().logits, &expected);
        gone[side].extend(before[side].difference(&held).cloned());
        reaches(metrics[0], READY, 10.0).await;
        for (side, gone) in SIDES.into_iter().zip(&gone) {
            let there = ids(place.path(), side);
            assert!(there.is_disjoint(gone), "{side}: one that was taken is there again");
        }
    }
    // Both have come to the same, more than what is in memory.
    reaches(metrics[0], READY, 60.0).await;
    let [l, r] = SIDES.map(|side| ids(place.path(), side));
    assert!(l.intersection(&r).count() > 0);
    let refused = |error: &Error| matches!(error.refused(), Some(SharesRefusal::Dry { .. }));
    let found = client.predict(1, &dense[..5], &indices[..8]).await;
    assert!(found.as_ref().is_ok() || found.as_ref().is_err_and(refused), "{found:?}");
}
