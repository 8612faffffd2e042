//! A model on encrypted features, from one real server.

use crate::common;
use crate::infer_common;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use common::{Certificates, Process, Running, in_time, until};
use hushtable_infer::dlrm::{self, Masks};
use hushtable_serve::wire::encrypted_inference_client::EncryptedInferenceClient;
use hushtable_serve::wire::{PredictRequest, UploadHead, UploadKeysRequest};
use hushtable_serve::{
    CkksClient, CkksClientSpec, CkksRefusal, CkksServer, CkksServerSpec, EndpointSpec, Error,
    KeyDefect, KeysRefusal, NetworkSpec, Refusal, refusal_of,
};
use hushtable_table::Version;
use hushtable_table::model::Model;
use infer_common::{DENSE, bundle, features, logits, spec};
use rustix::process::Signal;
use tempfile::TempDir;
use tonic::codegen::tokio_stream::{self, StreamExt as _};
use tonic::transport::{Channel, Endpoint};

fn start(spec: CkksServerSpec) -> Running {
    Running::start(CkksServer::open(spec).unwrap())
}

fn client_spec(url: String) -> CkksClientSpec {
    CkksClientSpec::new(EndpointSpec::new(url, None))
}

async fn connect(url: String) -> CkksClient {
    CkksClient::connect(&client_spec(url), None).await.unwrap()
}

fn check(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1.0 / 1024.0, "{found} for {expected}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn predictions_are_those_of_the_clear_model_through_tls() {
    let folder = TempDir::new().unwrap();
    let model = bundle(folder.path(), 1);
    let certificates = Certificates::new();
    let network = NetworkSpec { tls: Some(certificates.tls()), ..spec("").network };
    let server = start(CkksServerSpec { network, ..spec(&model) });
    let endpoint = EndpointSpec::new(server.tls_url(), Some(certificates.ca_pem()));
    let told = Arc::new(Mutex::new(Vec::new()));
    let progress = {
        let told = Arc::clone(&told);
        Arc::new(move |done, all| told.lock().unwrap().push((done, all)))
    };
    let spec = CkksClientSpec::new(endpoint);
    let client = CkksClient::connect(&spec, Some(progress)).await.unwrap();
    let info = client.info();
    let (key_bytes, query_bytes) = (info.key_bytes() as u64, info.query_bytes() as u64);
    assert_eq!((info.name.as_str(), info.terms.dense()), ("clicks", DENSE));

    // More users than a query carries.
    let users = info.terms.users() + 1;
    let (dense, indices) = features(users, 2);
    let found = client.predict(users, &dense, &indices).await.unwrap();
    check(&found.logits, &logits(&model, &dense, &indices));
    assert_eq!(found.stats.queries, 2);
    assert_eq!(found.stats.sent_bytes, key_bytes + 2 * query_bytes);
    assert_eq!(found.stats.received_bytes, 2 * info.answer_bytes() as u64);
    assert!(found.stats.answer > Duration::ZERO);
    let told = std::mem::take(&mut *told.lock().unwrap());
    assert_eq!((told[0], told[told.len() - 1]), ((0, key_bytes), (key_bytes, key_bytes)));
    assert!(told.is_sorted());

    // The keys are there now, and a query of one user has the bytes of any other.
    let one = client.predict(1, &dense[..DENSE], &indices[..2]).await.unwrap();
    check(&one.logits, &found.logits[..1]);
    assert_eq!(one.stats.sent_bytes, query_bytes);
    assert_eq!(client.upload().await.unwrap(), 0);
    let text = server.page("/metrics").await.1;
    for (name, value) in [
        ("hushtable_client_keys_uploaded_total", 1.0),
        ("hushtable_client_keys_memory", 1.0),
        ("hushtable_answered_queries_total", 3.0),
        (r#"hushtable_requests_total{method="UploadKeys",code="OK"}"#, 1.0),
        (r#"hushtable_requests_total{method="Predict",code="OK"}"#, 3.0),
    ] {
        assert_eq!(common::metric_of(&text, name), value, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn features_that_no_model_takes_are_refused_before_anything_is_sent() {
    let folder = TempDir::new().unwrap();
    let server = start(spec(bundle(folder.path(), 1)));
    let client = connect(server.url()).await;
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
        let dense = [0.0, 0.0, bad, 0.0, 0.0];
        let error = client.predict(1, &dense, &[0, 0]).await.unwrap_err();
        let is_named = matches!(error.of(), Some(dlrm::Error::Feature { user: 0, index: 2, .. }));
        assert!(is_named, "{error:?}");
    }
    let error = client.predict(1, &[0.0; DENSE], &[0, 7]).await.unwrap_err();
    let Some(dlrm::Error::Index { index: 7, rows: 7, feature, .. }) = error.of() else {
        panic!("{error:?}")
    };
    assert_eq!(feature, "shape");
    for (users, dense, indices) in [(1, 4, 2), (1, 5, 1), (2, 5, 2), (1, 5, 3)] {
        let error = client.predict(users, &vec![0.0; dense], &vec![0; indices]).await.unwrap_err();
        assert!(matches!(error.of(), Some(dlrm::Error::Count { .. })), "{error:?}");
    }
    assert!(client.predict(0, &[], &[]).await.unwrap().logits.is_empty());
    let text = server.page("/metrics").await.1;
    assert!(!text.contains(r#"method="UploadKeys""#) && !text.contains(r#"method="Predict""#));
}

/// A client of the bare wire contract.
async fn raw(url: String) -> EncryptedInferenceClient<Channel> {
    EncryptedInferenceClient::new(Endpoint::from_shared(url).unwrap().connect().await.unwrap())
}

/// What a bare client of the honest kind sends: plan, key id, keys and a query.
struct Sent {
    plan: Bytes,
    key_id: Bytes,
    keys: Vec<u8>,
    query: Bytes,
}

fn sent(client: &CkksClient) -> Sent {
    let info = client.info();
    let own = dlrm::Client::new(info.terms.clone()).unwrap();
    let (dense, indices) = features(1, 5);
    Sent {
        plan: Bytes::copy_from_slice(info.plan.as_bytes()),
        key_id: Bytes::copy_from_slice(&own.key_id()),
        keys: own.keys().flatten().copied().collect(),
        query: own.query(&dense, &indices).unwrap().into(),
    }
}

impl Sent {
    fn upload(&self, keys: &[u8]) -> Vec<UploadKeysRequest> {
        let (plan, key_id) = (self.plan.clone(), self.key_id.clone());
        let mut head = Some(UploadHead { plan, key_id, bytes: self.keys.len() as u64 });
        let message = |bytes| {
            let bytes = Bytes::copy_from_slice(bytes);
            UploadKeysRequest { head: head.take(), bytes }
        };
        keys.chunks(1 << 20).map(message).collect()
    }

    fn predict(&self, query: &[u8]) -> PredictRequest {
        let (plan, key_id) = (self.plan.clone(), self.key_id.clone());
        PredictRequest { plan, key_id, query: Bytes::copy_from_slice(query) }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_keys_and_queries_is_said() {
    let folder = TempDir::new().unwrap();
    let server = start(spec(bundle(folder.path(), 1)));
    let client = connect(server.url()).await;
    let (sent, mut raw) = (sent(&client), raw(server.url()).await);
    let refusal = |status: tonic::Status| refusal_of(&status).unwrap();

    // Keys that are cut short, too long, other bytes than announced, or none.
    let mut flipped = sent.keys.clone();
    flipped[sent.keys.len() / 2] ^= 1;
    let long = [&sent.keys[..], &[0]].concat();
    for (keys, expected) in [
        (&sent.keys[..sent.keys.len() - 1], KeyDefect::Length),
        (&long[..], KeyDefect::Length),
        (&flipped[..], KeyDefect::Other),
    ] {
        let stream = tokio_stream::iter(sent.upload(keys));
        let found = refusal(raw.upload_keys(stream).await.unwrap_err());
        let is_it =
            matches!(found.of(), Some(KeysRefusal::BadKeys { defect, .. }) if *defect == expected);
        assert!(is_it, "{found:?}");
    }
    let noise = vec![0xff; sent.keys.len()];
    let key_id = Bytes::copy_from_slice(blake3::hash(&noise).as_bytes());
    let forged = Sent { key_id, plan: sent.plan.clone(), keys: noise, query: sent.query.clone() };
    let stream = tokio_stream::iter(forged.upload(&forged.keys));
    let found = refusal(raw.upload_keys(stream).await.unwrap_err());
    assert!(matches!(found.of(), Some(KeysRefusal::BadKeys { .. })), "{found:?}");
    let headless = UploadKeysRequest { head: None, bytes: Bytes::from_static(b"keys") };
    let found = refusal(raw.upload_keys(tokio_stream::iter([headless])).await.unwrap_err());
    assert!(
        matches!(found.of(), Some(KeysRefusal::BadKeys { defect: KeyDefect::Format, .. })),
        "{found:?}"
    );

    // Keys for another plan, or of another size than the plan's, however large: said on the head alone, and no byte of
    // them is waited for.
    let announced = |plan: &Bytes, bytes: u64| {
        let head = UploadHead { plan: plan.clone(), key_id: sent.key_id.clone(), bytes };
        let first = UploadKeysRequest { head: Some(head), bytes: Bytes::new() };
        tokio_stream::iter([first]).chain(tokio_stream::pending())
    };
    let own = sent.keys.len() as u64;
    for bytes in [0, own - 1, own + 1, 1 << 40, u64::MAX] {
        let found = refusal(raw.upload_keys(announced(&sent.plan, bytes)).await.unwrap_err());
        assert!(
            matches!(found.of(), Some(KeysRefusal::BadKeys { defect: KeyDefect::Length, .. })),
            "{bytes}: {found:?}"
        );
    }
    let other = Bytes::copy_from_slice(&[7; 32]);
    for bytes in [own, u64::MAX] {
        let found = refusal(raw.upload_keys(announced(&other, bytes)).await.unwrap_err());
        assert!(matches!(found.of(), Some(CkksRefusal::PlanSkew { .. })), "{bytes}: {found:?}");
    }

    // Queries under keys that are not there, then queries that are none.
    let found = refusal(raw.predict(sent.predict(&sent.query)).await.unwrap_err());
    assert!(matches!(found.of(), Some(KeysRefusal::UnknownKeys { .. })), "{found:?}");
    let stream = tokio_stream::iter(sent.upload(&sent.keys));
    let kept = raw.upload_keys(stream).await.unwrap().into_inner();
    assert_eq!((&kept.key_id, kept.held()), (&sent.key_id, false));
    let bad = |found: Refusal, expected: &[KeyDefect]| match found.of() {
        Some(CkksRefusal::BadFeatures { defect, .. }) => {
            assert!(expected.contains(defect), "{defect}");
        }
        other => panic!("{other:?}"),
    };
    let short = &sent.query[..sent.query.len() - 1];
    bad(refusal(raw.predict(sent.predict(short)).await.unwrap_err()), &[KeyDefect::Length]);
    // Every byte of the first ciphertext's head, and one of its numbers.
    for at in 32..48 {
        let mut query = sent.query.to_vec();
        query[at] ^= 0x55;
        match raw.predict(sent.predict(&query)).await {
            // A seed's bytes may be any: the answer is to a query that nobody made.
            Ok(answer) => {
                assert_eq!(answer.into_inner().answer.len(), client.info().answer_bytes())
            }
            Err(status) => bad(
                refusal(status),
                &[KeyDefect::Level, KeyDefect::Residue, KeyDefect::Parameters, KeyDefect::Other],
            ),
        }
    }
    let found = refusal(
        raw.predict(PredictRequest { key_id: Bytes::new(), ..sent.predict(&sent.query) })
            .await
            .unwrap_err(),
    );
    assert!(matches!(found.of(), Some(KeysRefusal::BadKeyId { bytes: 0 })), "{found:?}");

    // And after all that the honest query is answered.
    let answer = raw.predict(sent.predict(&sent.query)).await.unwrap().into_inner();
    assert_eq!((answer.answer.len(), answer.plan), (client.info().answer_bytes(), sent.plan));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_another_plan_are_told_apart() {
    let folder = TempDir::new().unwrap();
    let server = start(spec(bundle(folder.path(), 1)));
    let addr = server.addr;
    let client = connect(server.url()).await;
    let version = client.info().version;
    let (dense, indices) = features(1, 2);
    client.predict(1, &dense, &indices).await.unwrap();
    server.stop().unwrap();

    // Another model at the same address, of the same plan: weights are not the client's affair.
    let other = TempDir::new().unwrap();
    let model = bundle(other.path(), 2);
    let of_model = |model: &Path| {
        let network = NetworkSpec { addr, ..spec("").network };
        start(CkksServerSpec { network, ..spec(model) })
    };
    let server = of_model(&model);
    let spec = client_spec(server.url());
    let pinned = CkksClientSpec { version: Some(version), ..spec };
    let error = CkksClient::connect(&pinned, None).await.err().unwrap();
    let Error::VersionMismatch { expected, found, .. } = &error else { panic!("{error:?}") };
    assert!(*expected == version && found.is_some_and(|found| found != version));
    server.stop().unwrap();

    // A plan for more users is another.
    let bundle = Model::open(&model).unwrap();
    let users = 2 * client.info().terms.users();
    let wider = infer_common::planned_for(&model, users);
    bundle.write_plan("wide", "ckks", &wider.to_json()).unwrap();
    let error = CkksServer::open(infer_common::spec(&model)).err().unwrap();
    assert!(matches!(&error, Error::SeveralPlans { plans, .. } if plans.len() == 2), "{error:?}");
    let network = NetworkSpec { addr, ..infer_common::spec("").network };
    let plan = Some("wide".to_owned());
    let server = start(CkksServerSpec { network, plan, ..infer_common::spec(&model) });
    let error = client.predict(1, &dense, &indices).await.unwrap_err();
    let Some(CkksRefusal::PlanSkew { expected, found }) = error.refused() else {
        panic!("{error:?}")
    };
    assert_eq!((*expected, *found), (Version::from(wider.hash()), client.info().plan));
    drop(server);

    // A plan beside another version of its model does not start.
    std::fs::copy(
        bundle.plan_path("wide", "ckks"),
        folder.path().join("clicks/plans/wide.ckks.json"),
    )
    .unwrap();
    let stale = CkksServerSpec {
        plan: Some("wide".into()),
        ..infer_common::spec(folder.path().join("clicks"))
    };
    let text = CkksServer::open(stale).err().unwrap().to_string();
    assert!(text.contains("compile it again"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_went_are_uploaded_again() {
    let folder = TempDir::new().unwrap();
    let model = bundle(folder.path(), 1);
    let first = start(spec(&model));
    let client = connect(first.url()).await;
    let key_bytes = client.info().key_bytes() as u64;
    let (dense, indices) = features(1, 2);
    client.predict(1, &dense, &indices).await.unwrap();
    let memory = first.metric("hushtable_client_keys_memory_bytes").await as usize;
    let addr = first.addr;
    first.stop().unwrap();

    // Without a folder a restart forgets keys; with room for one set, clients take turns.
    let network = NetworkSpec { addr, ..spec("").network };
    let tight = CkksServerSpec { network, keys_memory_bytes_max: memory, ..spec(&model) };
    let server = start(tight);
    let again = client.predict(1, &dense, &indices).await.unwrap();
    check(&again.logits, &logits(&model, &dense, &indices));
    assert!(again.stats.sent_bytes > key_bytes, "{:?}", again.stats);
    let other = connect(server.url()).await;
    other.predict(1, &dense, &indices).await.unwrap();
    assert_eq!(server.metric("hushtable_client_keys_evicted_total").await, 1.0);
    let back = client.predict(1, &dense, &indices).await.unwrap();
    assert!(back.stats.sent_bytes > key_bytes);
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_kept_without_their_masks_where_one_client_s_would_not_fit() {
    let folder = TempDir::new().unwrap();
    let model = bundle(folder.path(), 1);
    let terms = CkksServer::open(spec(&model)).unwrap().info().terms.clone();
    let [held, drawn] = Masks::ALL.map(|masks| terms.key_memory_bytes(masks).unwrap());
    assert!(10 * drawn < 6 * held, "{drawn} of {held}");
    let (dense, indices) = features(1, 2);
    let expected = logits(&model, &dense, &indices);
    let of_memory = |bytes| CkksServerSpec { keys_memory_bytes_max: bytes, ..spec(&model) };
    // A peer's share bounds one client's keys as well as the whole does.
    let of_peer = CkksServerSpec { keys_bytes_per_peer_max: Some(held - 1), ..spec(&model) };
    let without = ("drawn", drawn);
    for (spec, (masks, each)) in [
        (of_memory(held), ("held", held)),
        (of_memory(held - 1), without),
        (of_memory(drawn), without),
        (of_peer, without),
    ] {
        let server = start(spec);
        let client = connect(server.url()).await;
        check(&client.predict(1, &dense, &indices).await.unwrap().logits, &expected);
        let text = server.page("/metrics").await.1;
        let name = format!(r#"hushtable_client_keys_each_bytes{{masks="{masks}"}}"#);
        assert_eq!(common::metric_of(&text, &name), each as f64);
        assert_eq!(common::metric_of(&text, "hushtable_client_keys_memory_bytes"), each as f64);
        server.stop().unwrap();
    }
    let least = drawn.max(terms.key_bytes().unwrap());
    let of_peer = CkksServerSpec { keys_bytes_per_peer_max: Some(least - 1), ..spec(&model) };
    for (spec, setting, least) in [
        (of_memory(drawn - 1), "keys_memory_bytes_max", drawn),
        (of_peer, "keys_bytes_per_peer_max", least),
    ] {
        let refused = CkksServer::open(spec).err().unwrap();
        let Error::Setting { name, value, min, .. } = refused else { panic!("{refused}") };
        assert_eq!((name, value, min), (setting, least as u64 - 1, least as u64));
    }
}

/// The limit is raised to what one upload takes: large keys met it, and were told for ever that the server is busy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_go_up_where_one_upload_is_all_that_may_be_held() {
    let folder = TempDir::new().unwrap();
    let model = bundle(folder.path(), 1);
    let network = NetworkSpec { inflight_bytes_max: 1 << 10, ..spec("").network };
    let server = start(CkksServerSpec { network, ..spec(&model) });
    let mut client_spec = client_spec(server.url());
    client_spec.upload_max = Duration::from_secs(2);
    let client = CkksClient::connect(&client_spec, None).await.unwrap();
    let (dense, indices) = features(1, 2);
    let found = client.predict(1, &dense, &indices).await.unwrap();
    check(&found.logits, &logits(&model, &dense, &indices));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_middle_of_an_upload_loses_nothing() {
    let folder = TempDir::new().unwrap();
    let model = bundle(folder.path(), 1);
    let keys_folder = folder.path().join("keys");
    let spec = CkksServerSpec { keys_folder: Some(keys_folder.clone()), ..spec(&model) };
    let mut process = Process::start(folder.path(), "infer", &spec, &["infer"]);
    let url = process.url();
    let client = connect(url.clone()).await;
    let (sent, mut raw) = (sent(&client), raw(url).await);

    // Half of the keys, then nothing, then the server is gone.
    let messages = sent.upload(&sent.keys);
    let half = messages[..messages.len().div_ceil(2)].to_vec();
    let (sender, receiver) = tokio::sync::mpsc::channel(messages.len());
    for message in half {
        sender.send(message).await.unwrap();
    }
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let upload = tokio::spawn(async move { raw.upload_keys(stream).await });
    let arrived = async || {
        let text = common::page(process.metrics_addr, "/metrics").await.1;
        common::metric_of(&text, "hushtable_inflight_bytes") > 0.0
    };
    until("a part has arrived", arrived).await;
    process.signal(Signal::KILL);
    assert!(!process.wait().success());
    drop(sender);
    assert!(upload.await.unwrap().is_err());

    // A new one at the same address has no half of anything, and takes them from the beginning.
    let network = NetworkSpec { addr: process.addr, ..spec.network.clone() };
    let restarted = CkksServerSpec { network, ..spec };
    let mut process = Process::start(folder.path(), "infer", &restarted, &["infer"]);
    assert_eq!(std::fs::read_dir(&keys_folder).unwrap().count(), 0);
    let (dense, indices) = features(1, 2);
    let found = client.predict(1, &dense, &indices).await.unwrap();
    check(&found.logits, &logits(&model, &dense, &indices));

    // Killed once more, it still has them: the next prediction sends a query and no keys.
    process.signal(Signal::KILL);
    assert!(!process.wait().success());
    let process = Process::start(folder.path(), "infer", &restarted, &["infer"]);
    let found = client.predict(1, &dense, &indices).await.unwrap();
    assert_eq!(found.stats.sent_bytes, client.info().query_bytes() as u64);
    drop(process);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn predictions_at_once_upload_once() {
    let folder = TempDir::new().unwrap();
    let model = bundle(folder.path(), 1);
    let server = start(spec(&model));
    let client = Arc::new(connect(server.url()).await);
    let sent_bytes = Arc::new(AtomicU64::new(0));
    let predictions: Vec<_> = (0..6)
        .map(|seed| {
            let (client, sent_bytes) = (Arc::clone(&client), Arc::clone(&sent_bytes));
            tokio::spawn(async move {
                let (dense, indices) = features(1, seed);
                let found = client.predict(1, &dense, &indices).await.unwrap();
                sent_bytes.fetch_add(found.stats.sent_bytes, Ordering::Relaxed);
                (found.logits, dense, indices)
            })
        })
        .collect();
    for prediction in predictions {
        let (found, dense, indices) = prediction.await.unwrap();
        check(&found, &logits(&model, &dense, &indices));
    }
    let info = client.info();
    let expected = info.key_bytes() as u64 + 6 * info.query_bytes() as u64;
    assert_eq!(sent_bytes.load(Ordering::Relaxed), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_drains_answers_what_it_has_and_takes_no_more() {
    let folder = TempDir::new().unwrap();
    let mut server = start(spec(bundle(folder.path(), 1)));
    let client = connect(server.url()).await;
    let (dense, indices) = features(1, 2);
    client.predict(1, &dense, &indices).await.unwrap();
    server.signal();
    server.stop().unwrap();
    let error = client.predict(1, &dense, &indices).await.unwrap_err();
    let gone = matches!(
        &error,
        Error::Unavailable { .. } | Error::Refused { refusal: Refusal::Draining, .. }
    );
    assert!(gone, "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_server_gets_the_keys_and_the_query() {
    let folder = TempDir::new().unwrap();
    let model = bundle(folder.path(), 1);
    let [one, two] = [start(spec(&model)), start(spec(&model))];
    let endpoint = EndpointSpec { others: vec![two.url()], ..EndpointSpec::new(one.url(), None) };
    let client = CkksClient::connect(&CkksClientSpec::new(endpoint.clone()), None).await.unwrap();
    let (dense, indices) = features(1, 2);
    let expected = logits(&model, &dense, &indices);
    check(&client.predict(1, &dense, &indices).await.unwrap().logits, &expected);
    one.stop().unwrap();
    let found = client.predict(1, &dense, &indices).await.unwrap();
    check(&found.logits, &expected);
    let info = client.info();
    let (keys, query) = (info.key_bytes() as u64, info.query_bytes() as u64);
    assert_eq!((found.stats.sent_bytes, found.stats.retries), (keys + query, 1));
    // A client that comes now finds the second at once.
    let late = CkksClient::connect(&CkksClientSpec::new(endpoint), None).await.unwrap();
    check(&late.predict(1, &dense, &indices).await.unwrap().logits, &expected);
    two.stop().unwrap();
    let error = in_time(client.predict(1, &dense, &indices)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_another_plan_gets_nothing() {
    let folders = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let models = [bundle(folders[0].path(), 1), bundle(folders[1].path(), 2)];
    let [one, two] = models.each_ref().map(|model| start(spec(model)));
    let endpoint = EndpointSpec { others: vec![two.url()], ..EndpointSpec::new(one.url(), None) };
    let client = CkksClient::connect(&CkksClientSpec::new(endpoint), None).await.unwrap();
    one.stop().unwrap();
    let (dense, indices) = features(1, 2);
    let error = client.predict(1, &dense, &indices).await.unwrap_err();
    let is_told = matches!(error, Error::VersionMismatch { .. } | Error::Unavailable { .. });
    assert!(is_told, "{error:?}");
    assert_eq!(two.metric("hushtable_client_keys_uploaded_total").await, 0.0);
}
