//! Every scheme with a hostile peer, which floods it in the manner that hurts it most, and an honest one: half of the
//! honest one's calls take at most three times as long as alone, and none is refused for longer than a second.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_infer::dlrm;
use hushtable_pir::{PrgKind, dpf, onion};
use hushtable_serve::wire::encrypted_inference_client::EncryptedInferenceClient;
use hushtable_serve::wire::federated_training_client::FederatedTrainingClient;
use hushtable_serve::wire::hybrid_inference_client::HybridInferenceClient;
use hushtable_serve::wire::onion_lookup_client::OnionLookupClient;
use hushtable_serve::wire::private_lookup_client::PrivateLookupClient;
use hushtable_serve::wire::{
    AnswerRequest, HybridBeginRequest, KeysChunk, OnionAnswerRequest, PredictRequest, RowsRequest,
    TrainInfoRequest, UploadHead, UploadKeysRequest, UploadRequest, UserRequest,
};
use hushtable_serve::{
    CkksClient, CkksClientSpec, CkksServer, CkksServerSpec, EndpointSpec, HybridClient,
    HybridServerSpec, LookupClient, OnionClient, OnionClientSpec, OnionServer, OnionServerSpec,
    Refusal, RoundSpec, SCHEMES, SharesClient, refusal_of,
};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::codegen::tokio_stream::{self, wrappers::ReceiverStream};
use tonic::transport::Endpoint;

use crate::common::{Pair, Running, network, row, table, until};
use crate::neighbours::{connect, flood, half_sent, hog, pair, start, take_place};
use crate::shares::{Bundle, assert_near as assert_logits, client_spec, parts};
use crate::train_common::{self, DIM, SLOTS, SOON, USERS_MAX};
use crate::{hybrid_common, infer_common};

type Trial = Pin<Box<dyn Future<Output = Measured>>>;
type Start = fn() -> Trial;

/// What is tried of each scheme. A scheme that is not here fails a test.
const TRIALS: &[(&str, Start)] = &[
    ("pair", || Box::pin(lookups_by_two_servers())),
    ("onion", || Box::pin(lookups_by_one_server())),
    ("train", || Box::pin(rounds_of_training())),
    ("ckks", || Box::pin(predictions_under_encryption())),
    ("hybrid", || Box::pin(predictions_of_hybrid_inference())),
    ("shares", || Box::pin(predictions_on_shares())),
];

#[test]
fn every_scheme_is_tried_beside_a_hostile_peer() {
    let tried: BTreeSet<&str> = TRIALS.iter().map(|(name, _)| *name).collect();
    assert_eq!(tried, SCHEMES.iter().map(|scheme| scheme.name).collect());
    assert_eq!(tried.len(), TRIALS.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_peer_costs_an_honest_one_little_in_every_scheme() {
    let mut slow = Vec::new();
    for (name, trial) in TRIALS {
        // Other work on this machine makes one of them slow, and a hostile peer all.
        let mut measured = Vec::new();
        while measured.len() < TRIES && !measured.last().is_some_and(Measured::is_near) {
            measured.push(trial().await);
        }
        println!("{name}: {measured:?}");
        if !measured.last().is_some_and(Measured::is_near) {
            slow.push((name, measured));
        }
    }
    assert!(slow.is_empty(), "{slow:#?}");
}

/// What the honest peer's calls took.
#[derive(Debug)]
struct Measured {
    alone: Taken,
    beside: Taken,
}

#[derive(Debug)]
struct Taken {
    /// Half of the calls no longer.
    half: Duration,
    /// The longest, and one of a client that came first.
    worst: Duration,
}

impl Measured {
    /// A call takes what it is computed in and what it is refused for.
    fn is_near(&self) -> bool {
        let worst_max = 3 * self.alone.worst + REFUSED_MAX;
        is_near(self.alone.half, self.beside.half) && self.beside.worst <= worst_max
    }
}

/// What a neighbour may cost: half of the processors, and a turn that is under way. The flood is made by this process
/// too, which takes its processors from the servers.
fn is_near(alone: Duration, beside: Duration) -> bool {
    beside <= (3 * alone).max(alone + Duration::from_millis(50))
}

/// Times of what `ask` does, in order of length.
async fn times(ask: &mut impl AsyncFnMut(u64)) -> Vec<Duration> {
    let mut times = Vec::new();
    for number in 0..CALLS {
        let began = Instant::now();
        ask(number).await;
        times.push(began.elapsed());
    }
    times.sort();
    times
}

/// Measures what `ask` takes, alone and beside what `flood` starts.
async fn measure(
    mut ask: impl AsyncFnMut(u64),
    come: impl AsyncFn(),
    start_flood: impl AsyncFnOnce() -> Vec<JoinSet<()>>,
) -> Measured {
    let mut taken = async || {
        let began = Instant::now();
        come().await;
        let newcomer = began.elapsed();
        let mut times = times(&mut ask).await;
        let worst = times[times.len() - 1].max(newcomer);
        Taken { half: times.swap_remove(times.len() / 2), worst }
    };
    let alone = taken().await;
    let mut floods = start_flood().await;
    let beside = taken().await;
    for flood in &mut floods {
        assert!(flood.try_join_next().is_none(), "the flood goes on");
    }
    Measured { alone, beside }
}

const CALLS: u64 = 7;
const TRIES: usize = 3;
const REFUSED_MAX: Duration = Duration::from_secs(1);

/// Queries of as many keys as a request may have, from many connections at once.
async fn lookups_by_two_servers() -> Measured {
    let servers = Pair::start(ROWS, 16);
    let spec = servers.client_spec();
    let client = LookupClient::connect(&spec).await.unwrap();
    let films = table(ROWS, 16, 1);
    let ask = async |number| {
        let found = client.lookup(&[number], 8).await.unwrap();
        assert_eq!(found.rows, row(&films, number));
    };
    let come = async || {
        let found = LookupClient::connect(&spec).await.unwrap().lookup(&[7], 8).await.unwrap();
        assert_eq!(found.rows, row(&films, 7));
    };
    measure(ask, come, async || {
        let shape = client.info().shape;
        let own = dpf::Client::new(shape, films.version(), PrgKind::Aes128).unwrap();
        let (request, _) = own.query(&[5], 128).unwrap();
        let mut floods = Vec::new();
        for (server, keys) in [(&servers.left, request.left), (&servers.right, request.right)] {
            let request = AnswerRequest {
                table_version: Bytes::copy_from_slice(films.version().as_bytes()),
                keys: keys.into_iter().map(Bytes::from).collect(),
            };
            for _ in 0..8 {
                let raw = PrivateLookupClient::new(hog(server.url()).await);
                let request = request.clone();
                floods.push(flood(2, move |_| {
                    let (mut raw, request) = (raw.clone(), request.clone());
                    async move { answered_or_busy(raw.answer(request)).await }
                }));
            }
        }
        floods
    })
    .await
}

/// Nothing but a limit keeps a hostile peer from an answer. It asks again soon, and not at once: it has its processors
/// from the servers that it floods.
async fn answered_or_busy<T>(call: impl Future<Output = Result<T, tonic::Status>>) {
    if let Err(status) = call.await {
        let refusal = refusal_of(&status);
        assert!(matches!(refusal, Some(Refusal::Busy { .. })), "{refusal:?}: {status:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Keys uploaded again and again, each parsed anew, beside requests of as many queries as there may be.
async fn lookups_by_one_server() -> Measured {
    let films = table(5000, 16, 1);
    let spec = OnionServerSpec { network: network(), threads: 1, ..OnionServerSpec::new("") };
    let server = Running::start(OnionServer::of_table(spec, table(5000, 16, 1)).unwrap());
    let spec = OnionClientSpec::new(EndpointSpec::new(server.url(), None));
    let client = OnionClient::connect(&spec).await.unwrap();
    let ask = async |number| {
        let found = client.lookup(&[number], 2).await.unwrap();
        assert_eq!(found.rows, row(&films, number));
    };
    // One that has no keys there yet.
    let come = async || {
        let found = OnionClient::connect(&spec).await.unwrap().lookup(&[7], 2).await.unwrap();
        assert_eq!(found.rows, row(&films, 7));
    };
    measure(ask, come, async || {
        let geometry = OnionClient::connect(&spec).await.unwrap().info().geometry;
        let own = onion::Client::new(geometry, films.version()).unwrap();
        let upload = |bytes: &[u8]| {
            let chunk = |bytes| KeysChunk { bytes: Bytes::copy_from_slice(bytes) };
            bytes.chunks(1 << 20).map(chunk).collect::<Vec<_>>()
        };
        let raw = OnionLookupClient::new(hog(server.url()).await);
        let keys = upload(own.keys());
        raw.clone().put_keys(tokio_stream::iter(keys)).await.unwrap();
        let (queries, _) = own.query(&[5], 16).unwrap();
        let request = OnionAnswerRequest {
            table_version: Bytes::copy_from_slice(films.version().as_bytes()),
            key_id: Bytes::copy_from_slice(own.key_id().as_bytes()),
            queries: queries.into_iter().map(Bytes::from).collect(),
        };
        let asking = raw.clone();
        let asked = flood(16, move |_| {
            let (mut raw, request) = (asking.clone(), request.clone());
            async move { answered_or_busy(raw.answer(request)).await }
        });
        // Of the right length, and refused once they are parsed: none is held before.
        let mut noise = own.keys().to_vec();
        *noise.last_mut().unwrap() = 0xff;
        let noise = upload(&noise);
        let uploaded = flood(2, move |_| {
            let (mut raw, noise) = (raw.clone(), noise.clone());
            async move { drop(raw.put_keys(tokio_stream::iter(noise)).await) }
        });
        vec![asked, uploaded]
    })
    .await
}

/// Uploads of keys that never end, as many as there may be at once, beside queries without a pause.
async fn predictions_under_encryption() -> Measured {
    let folder = TempDir::new().unwrap();
    let model = infer_common::bundle(folder.path(), 1);
    let server = Running::start(
        CkksServer::open(CkksServerSpec { threads: 1, ..infer_common::spec(&model) }).unwrap(),
    );
    let spec = CkksClientSpec::new(EndpointSpec::new(server.url(), None));
    let (dense, indices) = infer_common::features(1, 5);
    let expected = infer_common::logits(&model, &dense, &indices);
    let predict = async |client: &CkksClient| {
        let found = client.predict(1, &dense, &indices).await.unwrap();
        assert!((found.logits[0] - expected[0]).abs() < 1.0 / 1024.0);
    };
    let client = CkksClient::connect(&spec, None).await.unwrap();
    let ask = async |_| predict(&client).await;
    // One that has no keys there yet.
    let come = async || predict(&CkksClient::connect(&spec, None).await.unwrap()).await;
    measure(ask, come, async || {
        let own = dlrm::Client::new(client.info().terms.clone()).unwrap();
        let plan = Bytes::copy_from_slice(client.info().plan.as_bytes());
        let key_id = Bytes::copy_from_slice(&own.key_id());
        let keys: Vec<u8> = own.keys().flatten().copied().collect();
        let raw = EncryptedInferenceClient::new(hog(server.url()).await);
        let bytes = keys.len() as u64;
        let head = move |plan: &Bytes, key_id: &Bytes| {
            Some(UploadHead { plan: plan.clone(), key_id: key_id.clone(), bytes })
        };
        let mut first = head(&plan, &key_id);
        let upload = keys.chunks(1 << 20).map(|bytes| {
            let bytes = Bytes::copy_from_slice(bytes);
            UploadKeysRequest { head: first.take(), bytes }
        });
        let upload: Vec<_> = upload.collect();
        raw.clone().upload_keys(tokio_stream::iter(upload)).await.unwrap();
        let query = own.query(&dense, &indices).unwrap().into();
        let request = PredictRequest { plan: plan.clone(), key_id, query };
        let asking = raw.clone();
        let asked = flood(8, move |_| {
            let (mut raw, request) = (asking.clone(), request.clone());
            async move { answered_or_busy(raw.predict(request)).await }
        });
        let endless = flood(4, move |number| {
            let key_id = Bytes::from([[7; 24].as_slice(), &number.to_le_bytes()].concat());
            let (mut raw, mut head) = (raw.clone(), head(&plan, &key_id));
            let (sender, chunks) = mpsc::channel(1);
            // A byte now and then, so that the body does not stop.
            let feed = async move {
                let mut chunk = || UploadKeysRequest {
                    head: head.take(),
                    bytes: Bytes::from_static(b"\0"),
                };
                while sender.send(chunk()).await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                std::future::pending().await
            };
            async move {
                tokio::select! {
                    () = answered_or_busy(raw.upload_keys(ReceiverStream::new(chunks))) => {}() = feed => {}
                }
            }
        });
        until("uploads are refused", async || {
            let (_, text) = server.page("/metrics").await;
            let line = r#"hushtable_requests_total{method="UploadKeys",code="RESOURCE_EXHAUSTED"}"#;
            text.contains(line)
        })
        .await;
        vec![asked, endless]
    })
    .await
}

/// Precomputes that are begun, and no more: each holds a place.
async fn predictions_of_hybrid_inference() -> Measured {
    let folder = TempDir::new().unwrap();
    let spec = hybrid_common::spec(hybrid_common::bundle(folder.path(), 1));
    let server = start(HybridServerSpec { precomputes_max: 4, ..spec });
    let client = connect(&server).await;
    let plan = Bytes::copy_from_slice(client.info().plan.as_bytes());
    let predict = async |client: &HybridClient, seed| {
        let found = client.predict(&hybrid_common::input(seed), None).await.unwrap();
        let expected = hybrid_common::outputs(1, &hybrid_common::input(seed));
        assert!((found.outputs[0] - expected[0]).abs() < 1.0 / 64.0);
    };
    let ask = async |seed| predict(&client, seed).await;
    let come = async || predict(&connect(&server).await, 7).await;
    measure(ask, come, async || {
        let raw = HybridInferenceClient::new(hog(server.url()).await);
        let begun = flood(4, move |number| {
            let mut raw = raw.clone();
            let id = Bytes::from([number.to_le_bytes(), [7; 8]].concat());
            let begin = HybridBeginRequest { plan: plan.clone(), id, client_garbles: false };
            async move { answered_or_busy(raw.begin(begin)).await }
        });
        until("all places are taken", async || {
            server.metric("hushtable_precomputes_open").await >= 4.0
        })
        .await;
        vec![begun]
    })
    .await
}

/// Parts of inferences that one of the servers never gets: each holds a place.
async fn predictions_on_shares() -> Measured {
    let bundle = Bundle::write(31);
    let servers = pair(|side, peer| bundle.spec(side, peer));
    let client = SharesClient::connect(&client_spec(&servers)).await.unwrap();
    let (dense, indices, expected) = bundle.users(1);
    let predict = async |client: &SharesClient| {
        let found = client.predict(1, &dense, &indices).await.unwrap();
        assert_logits(&found.logits, &expected);
        assert!(found.stats.retries <= 1, "{:?}", found.stats);
    };
    let spec = client_spec(&servers);
    let ask = async |_| predict(&client).await;
    let come = async || predict(&SharesClient::connect(&spec).await.unwrap()).await;
    let measured = measure(ask, come, async || {
        let floods = half_sent(&servers, parts(&client, &dense, &indices)).await;
        // Until they are under way.
        tokio::time::sleep(Duration::from_millis(200)).await;
        floods.into()
    })
    .await;
    let [left, right] = &servers;
    let name = "hushtable_displaced_total";
    assert!(left.metric(name).await + right.metric(name).await >= 2.0);
    measured
}

/// All places of each round, as soon as it is open, and requests that do not open beside.
async fn rounds_of_training() -> Measured {
    let (server, _seen) = train_common::start();
    let operator = Arc::new(train_common::connect(&server).await);
    let honest = FederatedTrainingClient::new(
        Endpoint::from_shared(server.url()).unwrap().connect().await.unwrap(),
    );
    // Of whichever round it gets into first.
    let train = async || {
        let (round, user, mut session) = loop {
            let round = operator.open_round(RoundSpec::new(USERS_MAX)).await.unwrap();
            let mut taken = None;
            for user in 0..USERS_MAX as u32 {
                if let Ok(session) = take_place(&honest, &operator, round, user).await {
                    taken = Some((round, user, session));
                    break;
                }
            }
            match taken {
                Some(taken) => break taken,
                None => drop(operator.finish(round, true, SOON).await.unwrap()),
            }
        };
        operator.close_requests(round).await.unwrap();
        let rows = RowsRequest { round, user, wait_ms: None };
        let rows = honest.clone().rows(rows).await.unwrap().into_inner();
        session.reply(&rows.sealed).unwrap();
        let sealed = session.upload(&[1.0; SLOTS * DIM], 1.0).unwrap().into();
        honest.clone().upload(UploadRequest { round, user, sealed }).await.unwrap();
        operator.finish(round, true, SOON).await.unwrap();
    };
    // Whoever takes part comes anew to each round.
    measure(
        async |_| train().await,
        &train,
        async || {
            let raw = FederatedTrainingClient::new(hog(server.url()).await);
            let (filling, client) = (raw.clone(), Arc::clone(&operator));
            let filled = flood(2, move |_| {
                let (mut raw, client) = (filling.clone(), Arc::clone(&client));
                async move {
                    let info = raw.info(TrainInfoRequest {}).await.unwrap().into_inner();
                    for user in 0..USERS_MAX as u32 {
                        // A round of which somebody else has a place, or that has begun, has none for it.
                        let _ = take_place(&raw, &client, info.round, user).await;
                    }
                }
            });
            let rubbish = flood(4, move |number| {
                let mut raw = raw.clone();
                async move {
                    let round = raw.info(TrainInfoRequest {}).await.unwrap().into_inner().round;
                    let (user, sealed) =
                        ((number >> 8) as u32 % USERS_MAX as u32, vec![7; 96].into());
                    let _ = raw.request(UserRequest { round, user, sealed }).await;
                }
            });
            vec![filled, rubbish]
        },
    )
    .await
}

const ROWS: u64 = 1 << 15;
