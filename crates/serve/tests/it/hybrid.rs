//! A network on an input that its server never sees: real servers, real clients, and what breaks.

use crate::common;
use crate::hybrid_common;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use common::{Certificates, PATIENCE, Process, Running, in_time, reserve, until};
use hushtable_serve::wire::hybrid_inference_client::HybridInferenceClient;
use hushtable_serve::wire::{
    HybridBeginRequest, HybridFinishRequest, HybridStepRequest, PredictFrame, PredictOpen,
};
use hushtable_serve::{
    EndpointSpec, Error, Garbler, HybridClient, HybridClientSpec, HybridError, HybridRefusal,
    HybridServer, HybridServerSpec, Limit, LinkSpec, NetworkSpec, Parallelism, PrecomputeStoreSpec,
    Refusal, StepDefect, refusal_of,
};
use hybrid_common::{bundle, input, outputs, spec};
use rustix::process::Signal;
use tempfile::TempDir;
use tonic::codegen::tokio_stream;
use tonic::transport::{Channel, Endpoint};

const BOTH: [Garbler; 2] = [Garbler::Client, Garbler::Server];

fn start(spec: HybridServerSpec) -> Running {
    Running::start(HybridServer::open(spec).unwrap())
}

fn client_spec(url: String, garbler: Garbler) -> HybridClientSpec {
    HybridClientSpec { garbler, ..HybridClientSpec::new(EndpointSpec::new(url, None)) }
}

async fn connect(url: String, garbler: Garbler) -> HybridClient {
    HybridClient::connect(&client_spec(url, garbler)).await.unwrap()
}

#[track_caller]
pub fn check(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1.0 / 64.0, "{found} for {expected}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn predictions_are_those_of_the_floats_through_tls_whoever_garbles() {
    let folder = TempDir::new().unwrap();
    let certificates = Certificates::new();
    let network = NetworkSpec { tls: Some(certificates.tls()), ..spec("").network };
    let server = start(HybridServerSpec { network, ..spec(bundle(folder.path(), 1)) });
    for garbler in BOTH {
        let endpoint = EndpointSpec::new(server.tls_url(), Some(certificates.ca_pem()));
        let spec = HybridClientSpec { garbler, ..HybridClientSpec::new(endpoint) };
        let client = HybridClient::connect(&spec).await.unwrap();
        assert_eq!(client.info().name, "shapes");
        let told = Arc::new(Mutex::new(Vec::new()));
        let progress = {
            let told = Arc::clone(&told);
            Arc::new(move |done, all| told.lock().unwrap().push((done, all)))
        };
        let made = client.precompute(2, Some(progress)).await.unwrap();
        assert_eq!((made.precomputes, made.retries, made.begun_again), (2, 0, 0));
        let told = std::mem::take(&mut *told.lock().unwrap());
        assert_eq!((told[0].0, told[told.len() - 1]), (0, (made.steps, made.steps)));
        assert_eq!(client.precomputes().precomputes, 2);
        assert_eq!(server.metric("hushtable_precomputes_kept").await, 2.0);

        for seed in 0..3 {
            let x = input(seed);
            let found = client.predict(&x, None).await.unwrap();
            check(&found.outputs, &outputs(1, &x));
            // The third one has none left: it is made then.
            assert_eq!(found.stats.offline.is_some(), seed == 2, "{:?}", found.stats);
            assert!(found.stats.sent_bytes > 0 && found.stats.received_bytes > 0);
        }
        assert_eq!(client.precomputes().precomputes, 0);
        assert_eq!(server.metric("hushtable_precomputes_kept").await, 0.0);
        // The last one's room is given back when its prediction has ended.
        server.comes_to("hushtable_precomputes_bytes", 0.0).await;
    }
    assert_eq!(server.metric("hushtable_predictions_total").await, 6.0);
    let text = server.page("/metrics").await.1;
    assert!(text.contains(r#"hushtable_requests_total{method="HybridStep",code="OK"}"#), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_precomputes_are_made_they_have_the_same_steps() {
    let folder = TempDir::new().unwrap();
    let server = start(spec(bundle(folder.path(), 1)));
    let mut found = Vec::new();
    for parallelism in Parallelism::ALL {
        let spec = client_spec(server.url(), Garbler::Server);
        let client =
            HybridClient::connect(&HybridClientSpec { parallelism, steps_max: 3, ..spec }).await;
        let client = client.unwrap();
        let made = client.precompute(3, None).await.unwrap();
        found.push((made.steps, made.sent_bytes, made.received_bytes));
        let x = input(7);
        check(&client.predict(&x, None).await.unwrap().outputs, &outputs(1, &x));
    }
    assert_eq!(found[0], found[1]);
    assert_eq!(found[0], found[2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_has_the_speed_that_it_is_given() {
    let folder = TempDir::new().unwrap();
    let server = start(spec(bundle(folder.path(), 1)));
    let fast = connect(server.url(), Garbler::Server).await.precompute(1, None).await.unwrap();
    let bits = 8 * fast.received_bytes;
    let link = LinkSpec { up_bits_per_s: None, down_bits_per_s: Some(bits) };
    let spec = HybridClientSpec { link, ..client_spec(server.url(), Garbler::Server) };
    let slow = HybridClient::connect(&spec).await.unwrap().precompute(1, None).await.unwrap();
    let seconds = slow.elapsed.as_secs_f64();
    assert!(seconds > 0.9, "{seconds} s for what takes one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inputs_that_the_network_cannot_take_use_nothing_up() {
    let folder = TempDir::new().unwrap();
    let server = start(spec(bundle(folder.path(), 1)));
    let client = connect(server.url(), Garbler::Server).await;
    client.precompute(1, None).await.unwrap();
    let x = input(1);
    let (mut nan, mut large) = (x.clone(), x.clone());
    (nan[3], large[4]) = (f32::NAN, 1e9);
    for bad in [&x[1..], &nan, &large, &[]] {
        let error = client.predict(bad, None).await.unwrap_err();
        assert!(matches!(error, Error::Own(_)), "{error:?}");
    }
    assert_eq!(client.precomputes().precomputes, 1);
    check(&client.predict(&x, None).await.unwrap().outputs, &outputs(1, &x));
}

/// A client of the bare wire contract.
async fn raw(url: String) -> HybridInferenceClient<Channel> {
    HybridInferenceClient::new(Endpoint::from_shared(url).unwrap().connect().await.unwrap())
}

#[track_caller]
fn refusal(status: &tonic::Status) -> Refusal {
    refusal_of(status).unwrap_or_else(|| panic!("{status:?}"))
}

#[track_caller]
fn defect(status: &tonic::Status) -> StepDefect {
    match refusal(status).of() {
        Some(HybridRefusal::BadStep { defect, .. }) => *defect,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_calls_is_said_and_the_server_goes_on() {
    let folder = TempDir::new().unwrap();
    let server = start(HybridServerSpec {
        precomputes_max: 2,
        client_garbles: false,
        ..spec(bundle(folder.path(), 1))
    });
    let client = connect(server.url(), Garbler::Server).await;
    let plan = Bytes::copy_from_slice(client.info().plan.as_bytes());
    let mut raw = raw(server.url()).await;
    let id = |byte: u8| Bytes::from(vec![byte; 16]);
    let begin = |plan: &Bytes, id: Bytes, client_garbles| HybridBeginRequest {
        plan: plan.clone(),
        id,
        client_garbles,
    };

    let found = refusal(&raw.begin(begin(&id(1), id(1), false)).await.unwrap_err());
    assert_eq!(found, Refusal::BadVersion { bytes: 16 });
    let other = Bytes::from(vec![9; 32]);
    let found = refusal(&raw.begin(begin(&other, id(1), false)).await.unwrap_err());
    assert!(matches!(found.of(), Some(HybridRefusal::OtherPlan { .. })), "{found:?}");
    let found = refusal(&raw.begin(begin(&plan, plan.clone(), false)).await.unwrap_err());
    assert_eq!(found, HybridRefusal::BadPrecomputeId { bytes: 32 }.into());
    let found = refusal(&raw.begin(begin(&plan, id(1), true)).await.unwrap_err());
    let garbler = Garbler::Client;
    assert_eq!(found, HybridRefusal::OtherGarbler { garbler }.into());
    let spec = client_spec(server.url(), Garbler::Client);
    let error = HybridClient::connect(&spec).await.err().unwrap();
    assert!(matches!(error.of(), Some(HybridError::GarblerRefused { .. })), "{error:?}");

    // Open, and open again.
    let reply = raw.begin(begin(&plan, id(1), false)).await.unwrap().into_inner();
    assert_eq!(reply.resumed, Some(false));
    let reply = raw.begin(begin(&plan, id(1), false)).await.unwrap().into_inner();
    assert_eq!(reply.resumed, Some(true));
    raw.begin(begin(&plan, id(2), false)).await.unwrap();
    let found = refusal(&raw.begin(begin(&plan, id(3), false)).await.unwrap_err());
    assert!(matches!(found, Refusal::Busy { limit: Limit::Precomputes, .. }), "{found:?}");

    // Steps that there are not, out of order, of other lengths.
    let step = |id: Bytes, step, payload: &[u8]| HybridStepRequest {
        id,
        step,
        payload: Bytes::copy_from_slice(payload),
    };
    let unknown = Refusal::from(HybridRefusal::UnknownPrecompute);
    let found = refusal(&raw.step(step(id(8), 0, &[])).await.unwrap_err());
    assert_eq!(found, unknown);
    let found = defect(&raw.step(step(id(1), u32::MAX, &[])).await.unwrap_err());
    assert_eq!(found, StepDefect::Order);
    let found = defect(&raw.step(step(id(1), 1, &[])).await.unwrap_err());
    assert_eq!(found, StepDefect::Order);
    let found = defect(&raw.step(step(id(1), 0, &[1, 2, 3])).await.unwrap_err());
    assert_eq!(found, StepDefect::Length);
    let found = defect(&raw.step(step(id(1), 0, &[4])).await.unwrap_err());
    assert_eq!(found, StepDefect::Changed, "what was sent once is not sent otherwise");
    let long = raw.step(step(id(2), 0, &vec![0; (4 << 20) + 2000])).await.unwrap_err();
    assert_eq!(long.code(), tonic::Code::OutOfRange, "{long:?}");
    let finish = |id| HybridFinishRequest { id };
    let found = defect(&raw.finish(finish(id(1))).await.unwrap_err());
    assert_eq!(found, StepDefect::Order);
    let found = refusal(&raw.finish(finish(id(8))).await.unwrap_err());
    assert_eq!(found, unknown);

    // Predictions that open nothing, and frames that are none.
    let open = |id| Some(PredictOpen { plan: plan.clone(), id });
    let frame =
        |open, payload: &[u8]| PredictFrame { open, payload: Bytes::copy_from_slice(payload) };
    for (first, expected) in [
        (frame(None, b"?"), None),
        (frame(open(id(1)), b"early"), None),
        (frame(open(id(1)), b""), Some(unknown.clone())),
        (frame(open(id(8)), b""), Some(unknown.clone())),
    ] {
        let status = raw.predict(tokio_stream::iter([first])).await.unwrap_err();
        match expected {
            Some(expected) => assert_eq!(refusal(&status), expected),
            None => assert_eq!(defect(&status), StepDefect::Order),
        }
    }
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_precompute_is_used_once_whatever_comes_of_it() {
    let folder = TempDir::new().unwrap();
    let server = start(spec(bundle(folder.path(), 1)));
    let store = TempDir::new().unwrap();
    let own = kept_in(&store.path().join("own"));
    let spec =
        HybridClientSpec { store: Some(own.clone()), ..client_spec(server.url(), Garbler::Server) };
    let client = HybridClient::connect(&spec).await.unwrap();
    client.precompute(2, None).await.unwrap();
    let ids = client.precompute_ids();
    let plan = Bytes::copy_from_slice(client.info().plan.as_bytes());
    let mut raw = raw(server.url()).await;
    let open = |id: [u8; 16]| PredictFrame {
        open: Some(PredictOpen { plan: plan.clone(), id: Bytes::copy_from_slice(&id) }),
        payload: Bytes::new(),
    };
    // Frames of other lengths break it off; it is used up all the same.
    let bad = PredictFrame { open: None, payload: Bytes::from_static(b"short") };
    let frames = raw.predict(tokio_stream::iter([open(ids[0]), bad])).await.unwrap();
    let status = frames.into_inner().message().await.unwrap_err();
    assert_eq!(defect(&status), StepDefect::Length);
    let status = raw.predict(tokio_stream::iter([open(ids[0])])).await.unwrap_err();
    assert_eq!(refusal(&status), HybridRefusal::UnknownPrecompute.into());
    // The client passes that one over.
    let x = input(3);
    let found = client.predict(&x, None).await.unwrap();
    check(&found.outputs, &outputs(1, &x));
    assert!(found.stats.offline.is_none() && found.stats.lost <= 1, "{:?}", found.stats);
    let found = client.predict(&x, None).await.unwrap();
    check(&found.outputs, &outputs(1, &x));
    assert!(found.stats.offline.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn precomputes_that_nobody_goes_on_with_are_dropped() {
    let folder = TempDir::new().unwrap();
    let model = bundle(folder.path(), 1);
    let [patient, server] = [3_600_000, 50].map(|precompute_idle_ms_max| {
        start(HybridServerSpec { precompute_idle_ms_max, ..spec(&model) })
    });
    let client = connect(server.url(), Garbler::Server).await;
    let plan = Bytes::copy_from_slice(client.info().plan.as_bytes());
    let id = Bytes::from(vec![1; 16]);
    let begin = HybridBeginRequest { plan, id, client_garbles: false };
    for server in [&patient, &server] {
        let reply = raw(server.url()).await.begin(begin.clone()).await.unwrap().into_inner();
        assert_eq!(reply.resumed, Some(false));
    }
    assert_eq!(patient.metric("hushtable_precomputes_open").await, 1.0);
    server.comes_to("hushtable_precomputes_open", 0.0).await;
    server.comes_to("hushtable_precomputes_bytes", 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_keeps_no_more_than_it_may() {
    let folder = TempDir::new().unwrap();
    let model = bundle(folder.path(), 1);
    let server = start(HybridServerSpec { store_bytes_max: 10, ..spec(&model) });
    let client = connect(server.url(), Garbler::Server).await;
    let error = client.precompute(1, None).await.unwrap_err();
    let Some(refusal) = error.refused::<HybridRefusal>() else { panic!("{error:?}") };
    let HybridRefusal::PrecomputeBudget { bytes, bytes_max: 10 } = *refusal else {
        panic!("{refusal:?}")
    };
    drop(server);
    let server = start(HybridServerSpec { store_bytes_max: bytes, ..spec(&model) });
    let spec = client_spec(server.url(), Garbler::Server);
    let spec = HybridClientSpec { retry_max: Duration::from_millis(500), ..spec };
    let client = HybridClient::connect(&spec).await.unwrap();
    client.precompute(1, None).await.unwrap();
    let error = client.precompute(1, None).await.unwrap_err();
    let is_busy = matches!(
        &error,
        Error::Refused { refusal: Refusal::Busy { limit: Limit::Precomputes, .. }, .. }
    );
    assert!(is_busy, "{error:?}");
    let x = input(1);
    check(&client.predict(&x, None).await.unwrap().outputs, &outputs(1, &x));
    // Its room is given back when the prediction has ended there.
    server.comes_to("hushtable_precomputes_bytes", 0.0).await;
    client.precompute(1, None).await.unwrap();

    // A client that keeps less refuses the network before anything is sent.
    let spec = HybridClientSpec { store_bytes_max: 1000, ..spec };
    let error = HybridClient::connect(&spec).await.err().unwrap();
    assert!(
        matches!(error.of(), Some(HybridError::PrecomputeBytes { bytes_max: 1000, .. })),
        "{error:?}"
    );
}

/// A client's folder, whose ledger is beside it.
fn kept_in(folder: &Path) -> PrecomputeStoreSpec {
    let ledger = Some(folder.with_extension("ledgers"));
    PrecomputeStoreSpec { folder: folder.to_owned(), key: None, ledger }
}

/// A client whose halves are in `folder`, in this process.
pub async fn with_store(url: String, folder: &Path, garbler: Garbler) -> HybridClient {
    let store = Some(kept_in(folder));
    let spec = HybridClientSpec { store, ..client_spec(url, garbler) };
    HybridClient::connect(&spec).await.unwrap()
}

/// A server of its own process at `addr`, with a store in `folder`.
fn process(folder: &Path, addr: SocketAddr) -> Process {
    let mut spec = HybridServerSpec {
        store: Some(folder.join("server")),
        store_ledger: Some(folder.join("ledgers")),
        ..spec(folder.join("shapes"))
    };
    spec.network.addr = addr;
    Process::start(folder, "hybrid", &spec, &["hybrid"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn precomputes_outlive_both_processes_and_a_server_that_is_killed() {
    let folder = TempDir::new().unwrap();
    bundle(folder.path(), 1);
    let mut server = process(folder.path(), reserve());
    server.ready().await;
    let (url, addr, own) = (server.url(), server.addr, folder.path().join("client"));
    let x = input(5);
    for garbler in BOTH {
        let client = with_store(url.clone(), &own, garbler).await;
        client.precompute(3, None).await.unwrap();
        // A folder is one process's, and one client's.
        let store = Some(kept_in(&own));
        let spec = HybridClientSpec { store, ..client_spec(url.clone(), garbler) };
        let error = HybridClient::connect(&spec).await.err().unwrap();
        assert!(
            matches!(error.of(), Some(HybridError::Precomputes { reason }) if reason.contains("in use"))
        );
        drop(client);

        server.signal(Signal::KILL);
        server.wait();
        server = process(folder.path(), addr);
        server.ready().await;
        let client = with_store(url.clone(), &own, garbler).await;
        assert_eq!(client.precomputes().precomputes, 3);
        for left in [2, 1] {
            let found = client.predict(&x, None).await.unwrap();
            check(&found.outputs, &outputs(1, &x));
            assert!(found.stats.offline.is_none());
            assert_eq!(client.precomputes().precomputes, left);
        }
        // The server's half goes, whatever the client has.
        let plan = Bytes::copy_from_slice(client.info().plan.as_bytes());
        let id = Bytes::copy_from_slice(&client.precompute_ids()[0]);
        let open = PredictFrame { open: Some(PredictOpen { plan, id }), payload: Bytes::new() };
        drop(raw(url.clone()).await.predict(tokio_stream::iter([open])).await.unwrap());
        let found = client.predict(&x, None).await.unwrap();
        check(&found.outputs, &outputs(1, &x));
        assert_eq!(found.stats.lost, 1);
        assert!(found.stats.offline.is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_while_precomputes_are_made_is_gone_on_with() {
    let folder = TempDir::new().unwrap();
    bundle(folder.path(), 1);
    let server = process(folder.path(), reserve());
    server.ready().await;
    let addr = server.addr;
    let spec = client_spec(server.url(), Garbler::Server);
    let spec = HybridClientSpec { retry_max: PATIENCE, ..spec };
    let client = Arc::new(HybridClient::connect(&spec).await.unwrap());
    // It is killed in the middle: the client goes on when it is gone.
    let (kill, killed) = tokio::sync::oneshot::channel();
    let (kill, server) = (Mutex::new(Some(kill)), Mutex::new(server));
    let progress = Arc::new(move |done, all| {
        let Some(kill) = kill.lock().unwrap().take_if(|_| done >= 5) else { return };
        assert!(done < all, "it is over after {done} steps");
        let mut server = server.lock().unwrap();
        server.signal(Signal::KILL);
        server.wait();
        kill.send(()).unwrap();
    });
    let making = {
        let client = Arc::clone(&client);
        tokio::spawn(async move { client.precompute(2, Some(progress)).await })
    };
    in_time(killed).await.unwrap();
    let server = process(folder.path(), addr);
    server.ready().await;
    let made = making.await.unwrap().unwrap();
    assert!(made.begun_again > 0, "{made:?}");
    let x = input(6);
    check(&client.predict(&x, None).await.unwrap().outputs, &outputs(1, &x));
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_a_prediction_is_an_error_and_the_precompute_is_gone() {
    // So slow a link that the server is killed in the middle; a slower one where that took long.
    for down_bits_per_s in [800_000, 100_000, 10_000] {
        let folder = TempDir::new().unwrap();
        bundle(folder.path(), 1);
        let mut server = process(folder.path(), reserve());
        server.ready().await;
        let (url, addr, own) = (server.url(), server.addr, folder.path().join("client"));
        let fast = with_store(url.clone(), &own, Garbler::Server).await;
        fast.precompute(2, None).await.unwrap();
        drop(fast);
        let link = LinkSpec { up_bits_per_s: None, down_bits_per_s: Some(down_bits_per_s) };
        let store = Some(kept_in(&own));
        let spec = HybridClientSpec { link, store, ..client_spec(url.clone(), Garbler::Server) };
        let slow = Arc::new(HybridClient::connect(&spec).await.unwrap());
        let predicting = {
            let slow = Arc::clone(&slow);
            tokio::spawn(async move { slow.predict(&input(1), None).await })
        };
        until("the precompute is taken", async || slow.precomputes().precomputes == 1).await;
        server.signal(Signal::KILL);
        // Else it was over when the test came to kill the server.
        let Err(error) = predicting.await.unwrap() else { continue };
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        server.wait();
        drop(slow);
        let server = process(folder.path(), addr);
        server.ready().await;
        let client = with_store(url, &own, Garbler::Server).await;
        assert_eq!(client.precomputes().precomputes, 1);
        let x = input(2);
        let found = client.predict(&x, None).await.unwrap();
        check(&found.outputs, &outputs(1, &x));
        assert!(found.stats.offline.is_none());
        return;
    }
    panic!("the prediction is always over when the server is killed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn halves_that_are_damaged_are_dropped_and_never_used() {
    let folder = TempDir::new().unwrap();
    let server = start(spec(bundle(folder.path(), 1)));
    let own = folder.path().join("client");
    let client = with_store(server.url(), &own, Garbler::Server).await;
    client.precompute(2, None).await.unwrap();
    let first = client.precompute_ids()[0];
    drop(client);
    let name: String = first.iter().map(|byte| format!("{byte:02x}")).collect();
    let data = own.join(format!("{name}.data"));
    let bytes = std::fs::read(&data).unwrap();
    std::fs::write(&data, &bytes[..bytes.len() / 2]).unwrap();
    let client = with_store(server.url(), &own, Garbler::Server).await;
    let x = input(2);
    // Either it is found at once, and the next one used, or the call says so and the next one is right.
    let found = match client.predict(&x, None).await {
        Ok(found) => found,
        Err(error) => {
            assert!(matches!(error, Error::Own(_)), "{error:?}");
            client.predict(&x, None).await.unwrap()
        }
    };
    check(&found.outputs, &outputs(1, &x));
    assert!(!client.precompute_ids().contains(&first));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_vanishes_frees_its_place() {
    let folder = TempDir::new().unwrap();
    let server = start(HybridServerSpec { predictions_max: 1, ..spec(bundle(folder.path(), 1)) });
    let client = connect(server.url(), Garbler::Server).await;
    client.precompute(3, None).await.unwrap();
    let plan = Bytes::copy_from_slice(client.info().plan.as_bytes());
    let open = |id: [u8; 16]| PredictFrame {
        open: Some(PredictOpen { plan: plan.clone(), id: Bytes::copy_from_slice(&id) }),
        payload: Bytes::new(),
    };
    let ids = client.precompute_ids();
    // It opens, and says nothing more.
    let mut silent = raw(server.url()).await;
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    sender.send(open(ids[0])).await.unwrap();
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let held = silent.predict(stream).await.unwrap();
    let mut other = raw(server.url()).await;
    let status = other.predict(tokio_stream::iter([open(ids[1])])).await.unwrap_err();
    let is_busy = matches!(refusal(&status), Refusal::Busy { limit: Limit::Predictions, .. });
    assert!(is_busy, "{status:?}");
    drop((sender, held, silent));
    // The one that was busy was not used up.
    let x = input(1);
    for _ in 0..2 {
        let found = client.predict(&x, None).await.unwrap();
        check(&found.outputs, &outputs(1, &x));
        assert!(found.stats.offline.is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_model_is_another_plan() {
    let (folder, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let own = folder.path().join("client");
    let server = start(spec(bundle(folder.path(), 1)));
    let client = with_store(server.url(), &own, Garbler::Server).await;
    client.precompute(1, None).await.unwrap();
    let (addr, plan) = (server.addr, client.info().plan);
    drop(server);
    let mut changed = spec(bundle(other.path(), 2));
    changed.network.addr = addr;
    let server = start(changed);
    // Connected before: the server says no. Connected after: what was made for the other is not used.
    let error = client.predict(&input(1), None).await.unwrap_err();
    let Some(refusal) = error.refused::<HybridRefusal>() else { panic!("{error:?}") };
    assert!(matches!(refusal, HybridRefusal::OtherPlan { .. }), "{refusal:?}");
    drop(client);
    let client = with_store(server.url(), &own, Garbler::Server).await;
    assert_ne!(client.info().plan, plan);
    assert_eq!(client.precomputes().precomputes, 0);
    let x = input(1);
    check(&client.predict(&x, None).await.unwrap().outputs, &outputs(2, &x));
    let version = Some(hushtable_table::Version::from([1; 32]));
    let pinned = HybridClientSpec { version, ..client_spec(server.url(), Garbler::Server) };
    let error = HybridClient::connect(&pinned).await.err().unwrap();
    assert!(matches!(error, Error::VersionMismatch { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_length_that_promises_gigabytes_is_refused_before_they_come() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let folder = TempDir::new().unwrap();
    let server = start(spec(bundle(folder.path(), 1)));
    let tcp = tokio::net::TcpStream::connect(server.addr).await.unwrap();
    let (mut h2, connection) = h2::client::handshake(tcp).await.unwrap();
    tokio::spawn(connection);
    for method in ["Step", "Predict"] {
        let request = http::Request::post(format!(
            "http://{}/hushtable.v1.HybridInference/{method}",
            server.addr
        ));
        let request = request
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())
            .unwrap();
        let (reply, mut body) = h2.send_request(request, false).unwrap();
        // No compression, then a length of 4 GiB less one byte.
        body.send_data(Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff, 1, 2]), false).unwrap();
        let reply = reply.await.unwrap();
        let status = reply.headers().get("grpc-status").expect("refused at once");
        assert_eq!(status, "11", "OUT_OF_RANGE");
    }
    // What is no HTTP/2 at all does no harm either.
    let mut tcp = tokio::net::TcpStream::connect(server.addr).await.unwrap();
    tcp.write_all(&[0xff; 64]).await.unwrap();
    let mut rest = Vec::new();
    let _ = in_time(tcp.read_to_end(&mut rest)).await;
    let client = connect(server.url(), Garbler::Client).await;
    let x = input(4);
    check(&client.predict(&x, None).await.unwrap().outputs, &outputs(1, &x));
}
