//! One client that takes all it can, and one that asks for little: the second is answered as if it were alone, or nearly.
//! Clients are told apart by their certificates, or by their addresses, of which loopback has many.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_infer::shares::DealtBy;
use hushtable_oram::wire::{DUMMY, UserSession};
use hushtable_pir::dpf::Side;
use hushtable_serve::wire::federated_training_client::FederatedTrainingClient;
use hushtable_serve::wire::hybrid_inference_client::HybridInferenceClient;
use hushtable_serve::wire::shared_inference_client::SharedInferenceClient;
use hushtable_serve::wire::{
    HybridBeginRequest, PredictFrame, PredictOpen, RowsRequest, UserRequest,
};
use hushtable_serve::{
    EndpointSpec, Error, Garbler, HybridClient, HybridClientSpec, HybridRefusal, HybridServer,
    HybridServerSpec, Identity, Limit, PrecomputeStoreSpec, Refusal, RoundSpec, SharesClient,
    SharesClientSpec, SharesServer, SharesServerSpec, TlsSpec, TrainClient, TrainRefusal,
    refusal_of,
};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tonic::codegen::tokio_stream;
use tonic::transport::{Channel, Endpoint};

use crate::common::{Certificates, Running, in_time, until};
use crate::hybrid_common::{bundle, input, spec};
use crate::shares::{Bundle, assert_near as assert_logits, client_spec};
use crate::shares_dealt::{READY, USED, shared_parts};
use crate::train_common::{self, SOON, USERS_MAX};

/// Where the client comes from that takes all it can.
const HOG: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A connection from there.
pub(crate) async fn hog(url: String) -> Channel {
    let endpoint = Endpoint::from_shared(url).unwrap().local_address(Some(HOG.into()));
    endpoint.connect().await.unwrap()
}

/// What takes all it can until it is dropped: so many at once of what `ask` does.
pub(crate) fn flood<F>(count: usize, ask: impl Fn(u64) -> F + Clone + Send + 'static) -> JoinSet<()>
where
    F: Future<Output = ()> + Send,
{
    let mut tasks = JoinSet::new();
    for task in 0..count as u64 {
        let ask = ask.clone();
        tasks.spawn(async move {
            for number in 0.. {
                ask(number << 8 | task).await;
            }
        });
    }
    tasks
}

pub(crate) fn start(spec: HybridServerSpec) -> Running {
    Running::start(HybridServer::open(spec).unwrap())
}

/// Refused for no longer than a second.
fn patient(endpoint: EndpointSpec) -> HybridClientSpec {
    let spec = HybridClientSpec::new(endpoint);
    HybridClientSpec { retry_max: Duration::from_secs(1), garbler: Garbler::Server, ..spec }
}

pub(crate) async fn connect(server: &Running) -> HybridClient {
    let endpoint = EndpointSpec::new(server.url(), None);
    HybridClient::connect(&patient(endpoint)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_predictions_keep_nobody_out() {
    let folder = TempDir::new().unwrap();
    let server = start(HybridServerSpec { predictions_max: 2, ..spec(bundle(folder.path(), 1)) });
    let kept = TempDir::new().unwrap();
    let [folder, ledger] = ["own", "ledgers"].map(|name| kept.path().join(name));
    let store = Some(PrecomputeStoreSpec { folder, key: None, ledger: Some(ledger) });
    let endpoint = EndpointSpec::new(server.url(), None);
    let maker = HybridClient::connect(&HybridClientSpec { store, ..patient(endpoint) }).await;
    let maker = maker.unwrap();
    maker.precompute(3, None).await.unwrap();
    let plan = Bytes::copy_from_slice(maker.info().plan.as_bytes());
    let raw = HybridInferenceClient::new(hog(server.url()).await);
    let open = |id: [u8; 16]| {
        let id = Bytes::copy_from_slice(&id);
        let open = Some(PredictOpen { plan: plan.clone(), id });
        let frame = PredictFrame { open, payload: Bytes::new() };
        let mut raw = raw.clone();
        let (sender, frames) = tokio::sync::mpsc::channel(1);
        async move {
            sender.send(frame).await.unwrap();
            let frames = tokio_stream::wrappers::ReceiverStream::new(frames);
            raw.predict(frames).await.map(|reply| (reply.into_inner(), sender))
        }
    };
    let ids = maker.precompute_ids();
    let mut silent = Vec::new();
    for id in &ids[..2] {
        silent.push(open(*id).await.unwrap());
    }
    // One that has nothing to use gets nobody's place, and one that has all places no more.
    let is_busy = |status: &tonic::Status| {
        matches!(refusal_of(status), Some(Refusal::Busy { limit: Limit::Predictions, .. }))
    };
    assert!(!is_busy(&open([9; 16]).await.err().unwrap()));
    assert!(is_busy(&open(ids[2]).await.err().unwrap()));
    let client = connect(&server).await;
    for seed in 0..3 {
        in_time(client.predict(&input(seed), None)).await.unwrap();
    }
    // The one that began first has given its place up, and hears why.
    let status = in_time(silent[0].0.message()).await.unwrap_err();
    assert!(is_busy(&status), "{status:?}");
    assert!(tokio::time::timeout(Duration::from_millis(50), silent[1].0.message()).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_keeps_all_the_room_gives_some_to_who_asks() {
    let folder = TempDir::new().unwrap();
    let model = bundle(folder.path(), 1);
    let certificates = Certificates::new();
    let client_ca = Some(certificates.path("ca.pem"));
    let tls = Some(TlsSpec { client_ca, ..certificates.tls() });
    let of = |store_bytes_max| {
        let mut spec = HybridServerSpec { store_bytes_max, ..spec(&model) };
        spec.network.tls = tls.clone();
        start(spec)
    };
    let client = |server: &Running, name| {
        let pem = certificates.ca.issue_client(name).unwrap();
        let identity = Identity { cert_pem: pem.cert.into(), key_pem: pem.key.into() };
        let mut endpoint = EndpointSpec::new(server.tls_url(), Some(certificates.ca_pem()));
        endpoint.identity = Some(identity);
        async move { HybridClient::connect(&patient(endpoint)).await.unwrap() }
    };
    let server = of(1 << 30);
    client(&server, "hog").await.precompute(1, None).await.unwrap();
    let each = server.metric("hushtable_precomputes_bytes").await as u64;
    drop(server);

    let server = of(4 * each);
    let hog = client(&server, "hog").await;
    hog.precompute(4, None).await.unwrap();
    let error = hog.precompute(1, None).await.unwrap_err();
    let is_full = |error: &Error| {
        matches!(
            error,
            Error::Refused { refusal: Refusal::Busy { limit: Limit::Precomputes, .. }, .. }
        )
    };
    assert!(is_full(&error), "{error:?}");
    let honest = client(&server, "honest").await;
    honest.precompute(2, None).await.unwrap();
    // They have two each: nobody gives any more.
    let error = honest.precompute(1, None).await.unwrap_err();
    assert!(is_full(&error), "{error:?}");
    let found = honest.predict(&input(1), None).await.unwrap();
    assert_eq!(found.stats.lost, 0);
    // What the hog has given is found lost, and what it has kept is used.
    let found = hog.predict(&input(2), None).await.unwrap();
    assert_eq!((found.stats.lost, found.stats.offline), (2, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn precomputes_that_are_begun_count_against_what_a_client_may_begin() {
    let folder = TempDir::new().unwrap();
    let model = bundle(folder.path(), 1);
    let server = start(HybridServerSpec { precomputes_per_client_per_day: 3, ..spec(model) });
    let client = connect(&server).await;
    let plan = Bytes::copy_from_slice(client.info().plan.as_bytes());
    let mut raw =
        HybridInferenceClient::new(Endpoint::from_shared(server.url()).unwrap().connect_lazy());
    let mut begin = async |number: u8| {
        let id = Bytes::from(vec![number; 16]);
        raw.begin(HybridBeginRequest { plan: plan.clone(), id, client_garbles: false }).await
    };
    for number in [1, 2, 2, 1] {
        begin(number).await.unwrap();
    }
    client.predict(&input(1), None).await.unwrap();
    let status = begin(4).await.unwrap_err();
    let refused = refusal_of(&status);
    let expected = HybridRefusal::PrecomputeAllowance { per_day: 3 };
    assert_eq!(refused, Some(expected.into()), "{status:?}");
    // What is refused for want of room counts for nothing.
    let spec = HybridServerSpec {
        precomputes_max: 2,
        precomputes_per_client_per_day: 3,
        ..spec(folder.path().join("shapes"))
    };
    let full = start(spec);
    let begin_at_full = async |number: u8| {
        let mut raw = HybridInferenceClient::new(hog(full.url()).await);
        let (plan, id) = (plan.clone(), Bytes::from(vec![number; 16]));
        raw.begin(HybridBeginRequest { plan, id, client_garbles: false }).await
    };
    for number in [1, 2] {
        begin_at_full(number).await.unwrap();
    }
    for number in 3..8 {
        let refused = refusal_of(&begin_at_full(number).await.unwrap_err());
        assert!(matches!(refused, Some(Refusal::Busy { .. })), "{refused:?}");
    }
    // Another client has its own.
    let mut raw = HybridInferenceClient::new(hog(server.url()).await);
    let (plan, id) = (plan.clone(), Bytes::from(vec![9; 16]));
    raw.begin(HybridBeginRequest { plan, id, client_garbles: false }).await.unwrap();
}

/// Left and right of a bundle, with few places.
pub(crate) fn pair(of: impl Fn(Side, Option<&str>) -> SharesServerSpec) -> [Running; 2] {
    let start = |spec| {
        let spec = SharesServerSpec { inferences_max: 8, ..spec };
        Running::start(SharesServer::open(spec).unwrap())
    };
    let right = start(of(Side::Right, None));
    [start(of(Side::Left, Some(&right.url()))), right]
}

/// Floods each of the servers with parts that the other one never gets.
pub(crate) async fn half_sent(
    servers: &[Running; 2],
    parts: [hushtable_serve::wire::SharesPredictRequest; 2],
) -> [JoinSet<()>; 2] {
    let mut floods = Vec::new();
    for (side, (server, part)) in servers.iter().zip(parts).enumerate() {
        let raw = SharedInferenceClient::new(hog(server.url()).await);
        floods.push(flood(12, move |number| {
            let (mut raw, mut part) = (raw.clone(), part.clone());
            part.name = [number.to_le_bytes(), [side as u8 + 1; 8]].concat().into();
            async move { assert!(raw.predict(part).await.is_err()) }
        }));
    }
    floods.try_into().expect("both")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inferences_that_are_half_sent_use_no_precompute_up() {
    let (bundle, place) = (Bundle::write(32), TempDir::new().unwrap());
    let of =
        |side, peer: Option<&str>| crate::shares_dealt::spec(&bundle, place.path(), side, peer);
    let servers = pair(of);
    let told = SharesClientSpec { dealer: Some(DealtBy::Servers), ..client_spec(&servers) };
    let client = SharesClient::connect(&told).await.unwrap();
    let (dense, indices, expected) = bundle.users(1);
    let left = &servers[0];
    until("there are some", async || left.metric(READY).await >= 8.0).await;
    let predict = async || {
        for _ in 0..5 {
            let found = client.predict(1, &dense, &indices).await.unwrap();
            assert_logits(&found.logits, &expected);
        }
    };
    predict().await;
    assert_eq!(left.metric(USED).await, 5.0);
    let floods = half_sent(&servers, shared_parts(&client, &dense, &indices)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(left.metric(USED).await, 5.0);
    predict().await;
    assert_eq!(left.metric(USED).await, 10.0);
    assert!(floods.iter().all(|flood| flood.len() == 12), "the floods go on");
}

/// Takes a place of a round for whoever is at the other end of `raw`.
pub(crate) async fn take_place(
    raw: &FederatedTrainingClient<Channel>,
    client: &TrainClient,
    round: u64,
    user: u32,
) -> Result<UserSession, Option<TrainRefusal>> {
    let mut session = client.session(round, user, None).unwrap();
    let sealed = session.request(&[7]).unwrap().into();
    let asked = raw.clone().request(UserRequest { round, user, sealed }).await;
    let refused = |status| refusal_of(&status).and_then(|refusal| refusal.of().cloned());
    asked.map(|_| session).map_err(refused)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_that_one_peer_fills_has_a_place_for_another_from_the_next_one_on() {
    let (server, seen) = train_common::start();
    let operator = train_common::connect(&server).await;
    let [hog, honest] = [HOG, Ipv4Addr::LOCALHOST].map(|from| {
        let endpoint =
            Endpoint::from_shared(server.url()).unwrap().local_address(Some(from.into()));
        FederatedTrainingClient::new(endpoint.connect_lazy())
    });
    let take = async |raw: &_, client: &_, round, user| {
        take_place(raw, client, round, user).await.map(drop)
    };
    let places = 0..USERS_MAX as u32;
    let taken = |user| Err(Some(TrainRefusal::AlreadyDone { what: "request".into(), user }));
    let fill = async |round| {
        for user in places.clone() {
            assert_eq!(take(&hog, &operator, round, user).await, Ok(()));
        }
    };
    let begun = async |rounds| {
        until("the round has begun", async || seen.lock().unwrap().begun.len() == rounds).await;
    };

    // While nobody else asks, a peer may have all places, and the round waits for nobody.
    let round = operator.open_round(RoundSpec::new(USERS_MAX)).await.unwrap();
    fill(round).await;
    begun(1).await;
    let late = take(&honest, &operator, round, 0).await;
    assert!(late.is_err(), "{late:?}");
    operator.finish(round, true, SOON).await.unwrap();

    // Whoever was left out is waited for, and takes a place from whoever has the most.
    let round = operator.open_round(RoundSpec::new(USERS_MAX)).await.unwrap();
    fill(round).await;
    let (began, mut session) = (Instant::now(), operator.session(round, 3, None).unwrap());
    let sealed: Bytes = session.request(&[9]).unwrap().into();
    let asked = UserRequest { round, user: 3, sealed };
    honest.clone().request(asked.clone()).await.unwrap();
    // The same once more, as after a lost reply; and once the round has begun.
    honest.clone().request(asked.clone()).await.unwrap();
    begun(2).await;
    assert!(began.elapsed() < Duration::from_secs(3), "nobody is waited for any more");
    honest.clone().request(asked).await.unwrap();
    assert_eq!(take(&hog, &operator, round, 3).await, taken(3));
    let rows = RowsRequest { round, user: 3, wait_ms: None };
    let rows = honest.clone().rows(rows).await.unwrap().into_inner();
    assert_eq!(session.reply(&rows.sealed).unwrap().rows[..3], [27.0, 28.0, 29.0]);
    train_common::learn(&operator, &mut session, 1.0, 1.0).await;
    let report = operator.finish(round, true, SOON).await.unwrap();
    assert_eq!((report.requested, report.uploaded), (USERS_MAX, 1));
    let slots = train_common::SLOTS;
    assert_eq!(seen.lock().unwrap().begun[1][3 * slots..][..2], [9, DUMMY]);

    // Of places that are not all taken, too.
    let round = operator.open_round(RoundSpec::new(USERS_MAX)).await.unwrap();
    for user in 0..3 {
        assert_eq!(take(&hog, &operator, round, user).await, Ok(()));
    }
    assert_eq!(take(&honest, &operator, round, 0).await, Ok(()));
    // They have two and one now: nobody gives any more.
    assert_eq!(take(&honest, &operator, round, 1).await, taken(1));
    assert_eq!(take(&hog, &operator, round, 0).await, taken(0));
    operator.abandon(round).await.unwrap();
    server.stop().unwrap();
}
