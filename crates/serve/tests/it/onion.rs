//! Lookups from one real server, by homomorphic encryption.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use crate::common::{
    Certificates, Pair, Running, gated_onion, metric_of, network, row, table, until,
};
use hushtable_pir::onion::{self, Geometry, OnionBackend, ParameterSet};
use hushtable_serve::load::OnionLoadSpec;
use hushtable_serve::{
    ClientSpec, EndpointSpec, Error, Lookup, LookupClient, NetworkSpec, OnionClient,
    OnionClientSpec, OnionServer, OnionServerSpec, Refusal,
};
use hushtable_table::prepared::{PreparedBytes, PreparedError, PreparedSpec, PreparedWriter};
use hushtable_table::{Table, Version};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// Addresses of its own and as little waiting as possible.
fn spec() -> OnionServerSpec {
    OnionServerSpec { network: network(), threads: 1, ..OnionServerSpec::new("") }
}

fn start(spec: OnionServerSpec, table: Table) -> Running {
    Running::start(OnionServer::of_table(spec, table).unwrap())
}

/// Stops a server and starts one with another spec or table at the same address.
fn restart(server: Running, spec: OnionServerSpec, table: Table) -> Running {
    let addr = server.addr;
    server.stop().unwrap();
    let network = NetworkSpec { addr, ..spec.network };
    start(OnionServerSpec { network, ..spec }, table)
}

fn client_spec(server: &Running) -> OnionClientSpec {
    OnionClientSpec::new(EndpointSpec::new(server.url(), None))
}

async fn connect(server: &Running) -> OnionClient {
    OnionClient::connect(&client_spec(server)).await.unwrap()
}

/// The bytes that a client's keys and one query have.
fn sizes(client: &OnionClient) -> (u64, u64) {
    let geometry = client.info().geometry;
    (geometry.key_bytes() as u64, geometry.query_bytes() as u64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_come_back_as_they_are_through_tls() {
    for set in ParameterSet::ALL {
        let certificates = Certificates::new();
        let network = NetworkSpec { tls: Some(certificates.tls()), ..spec().network };
        let table = || table(5000, 16, 1);
        let server =
            start(OnionServerSpec { network, parameters: set.name().into(), ..spec() }, table());
        let table = table();
        let endpoint = EndpointSpec::new(server.tls_url(), Some(certificates.ca_pem()));
        let accept =
            OnionClientSpec { parameter_sets: vec![set], ..OnionClientSpec::new(endpoint) };
        let client = OnionClient::connect(&accept).await.unwrap();
        let info = client.info();
        assert_eq!((info.shape.rows(), info.dim, info.version), (5000, 16, table.version()));
        assert_eq!(info.geometry.set(), set);
        let (key_bytes, query_bytes) = sizes(&client);

        let ids = [4999, 0, 7, 7, 512];
        let lookup = client.lookup(&ids, 8).await.unwrap();
        let expected: Vec<u8> = ids.iter().flat_map(|&id| row(&table, id)).collect();
        assert_eq!(lookup.rows, expected);
        assert_eq!(lookup.stats.sent_bytes, key_bytes + 8 * query_bytes);
        assert_eq!(lookup.stats.received_bytes, 8 * info.geometry.response_bytes() as u64);
        assert!(lookup.stats.answer > Duration::ZERO && lookup.stats.retries == 0);

        // The keys are there now; the number of ids does not show.
        let fewer = client.lookup(&ids[..1], 8).await.unwrap();
        assert_eq!(fewer.stats.sent_bytes, 8 * query_bytes);
        assert_eq!(fewer.stats.received_bytes, lookup.stats.received_bytes);
        assert!(client.lookup(&[], 3).await.unwrap().rows.is_empty());
        let numbers = client.lookup_f32(&[7], 1).await.unwrap();
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(bytes, row(&table, 7));

        // Another CA is told from the right one.
        let stranger = EndpointSpec::new(server.tls_url(), Some(Certificates::new().ca_pem()));
        let error = OnionClient::connect(&OnionClientSpec::new(stranger)).await.err().unwrap();
        assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_s_certificate_that_is_an_authority_s_says_so() {
    let certificates = Certificates::new();
    let mut params =
        rcgen::CertificateParams::new(["localhost".into(), "127.0.0.1".into()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    std::fs::write(certificates.path("cert.pem"), &pem).unwrap();
    std::fs::write(certificates.path("key.pem"), key.serialize_pem()).unwrap();
    let network = NetworkSpec { tls: Some(certificates.tls()), ..spec().network };
    let server = start(OnionServerSpec { network, ..spec() }, table(100, 4, 1));
    let endpoint = EndpointSpec::new(server.tls_url(), Some(pem.into_bytes()));
    let error = OnionClient::connect(&OnionClientSpec::new(endpoint)).await.err().unwrap();
    assert!(error.to_string().contains("an authority's own"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_at_once_upload_once_and_share_passes() {
    let all_in_one = OnionServerSpec { batch_queries_max: Some(16), ..spec() };
    let (server, gate) = gated_onion(all_in_one, table(3000, 4, 1));
    let server = Running::start(server);
    let table = table(3000, 4, 1);
    let client = Arc::new(connect(&server).await);
    let ask = |i: u64| {
        let client = Arc::clone(&client);
        tokio::spawn(async move { client.lookup(&[i * 187], 1).await.unwrap() })
    };
    let sent_bytes_of = async |lookups: Vec<JoinHandle<Lookup>>| {
        let mut sent_bytes = 0;
        for (i, lookup) in (0..).zip(lookups) {
            let lookup = lookup.await.unwrap();
            assert_eq!(lookup.rows, row(&table, i * 187));
            sent_bytes += lookup.stats.sent_bytes;
        }
        sent_bytes
    };
    let (key_bytes, query_bytes) = sizes(&client);
    let first = (0..16).map(ask).collect();
    assert_eq!(sent_bytes_of(first).await, key_bytes + 16 * query_bytes);

    // Those that come while a pass is under way share the next.
    let passes = server.metric("hushtable_passes_total").await;
    let held = gate.hold();
    let mut lookups = vec![ask(0)];
    until("a pass is under way", async || gate.waiting() == 1).await;
    lookups.extend((1..16).map(ask));
    server.comes_to("hushtable_queue_queries", 15.0).await;
    drop(held);
    assert_eq!(sent_bytes_of(lookups).await, 16 * query_bytes);
    let text = server.page("/metrics").await.1;
    for (name, value) in [
        ("hushtable_client_keys_uploaded_total", 1.0),
        ("hushtable_client_keys_memory", 1.0),
        ("hushtable_answered_queries_total", 32.0),
        (r#"hushtable_requests_total{method="PutKeys",code="OK"}"#, 1.0),
        (r#"hushtable_requests_total{method="OnionAnswer",code="OK"}"#, 32.0),
        (r#"hushtable_table_rows{table="films"}"#, 3000.0),
        ("hushtable_passes_total", passes + 2.0),
    ] {
        assert_eq!(metric_of(&text, name), value, "{name}");
    }
    assert!(metric_of(&text, "hushtable_client_keys_memory_bytes") > key_bytes as f64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_survive_a_restart_where_there_is_a_folder() {
    let folder = TempDir::new().unwrap();
    let keep = || OnionServerSpec { keys_folder: Some(folder.path().join("keys")), ..spec() };
    let table = || table(1000, 4, 1);
    let server = start(keep(), table());
    let client = connect(&server).await;
    let (key_bytes, query_bytes) = sizes(&client);
    client.lookup(&[1], 1).await.unwrap();

    let server = restart(server, keep(), table());
    assert_eq!(server.metric("hushtable_client_keys_disk").await, 1.0);
    let lookup = client.lookup(&[999], 1).await.unwrap();
    assert_eq!(lookup.rows, row(&table(), 999));
    assert_eq!(lookup.stats.sent_bytes, query_bytes, "the keys are not uploaded again");
    assert_eq!(server.metric("hushtable_client_keys_loaded_total").await, 1.0);

    // Damaged on disk: the client is asked for them again, and notices nothing else.
    let file = std::fs::read_dir(folder.path().join("keys")).unwrap().next().unwrap().unwrap();
    let mut bytes = std::fs::read(file.path()).unwrap();
    bytes[100] ^= 1;
    let addr = server.addr;
    server.stop().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let network = NetworkSpec { addr, ..spec().network };
    let server = start(OnionServerSpec { network, ..keep() }, table());
    let lookup = client.lookup(&[5], 1).await.unwrap();
    assert_eq!(lookup.rows, row(&table(), 5));
    assert_eq!(lookup.stats.sent_bytes, key_bytes + 2 * query_bytes);
    assert_eq!(server.metric("hushtable_client_keys_damaged_total").await, 1.0);

    // Without a folder, a restart costs an upload.
    let server = restart(server, spec(), table());
    let lookup = client.lookup(&[6], 1).await.unwrap();
    assert_eq!(lookup.rows, row(&table(), 6));
    assert_eq!(lookup.stats.sent_bytes, key_bytes + 2 * query_bytes);
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_over_the_budget_evict_those_used_longest_ago() {
    let table = || table(1000, 4, 1);
    let probe = start(spec(), table());
    let client = connect(&probe).await;
    client.lookup(&[0], 1).await.unwrap();
    let memory_bytes = probe.metric("hushtable_client_keys_memory_bytes").await as usize;
    assert!((2..=4).contains(&(memory_bytes / sizes(&client).0 as usize)), "{memory_bytes}");

    // All clients here are one peer: all of it is theirs.
    let keys_memory_bytes_max = 2 * memory_bytes;
    let keys_bytes_per_peer_max = Some(keys_memory_bytes_max);
    let tight = OnionServerSpec { keys_memory_bytes_max, keys_bytes_per_peer_max, ..spec() };
    let server = start(tight, table());
    let clients = [connect(&server).await, connect(&server).await, connect(&server).await];
    let (key_bytes, query_bytes) = sizes(&client);
    let check = async |client: usize, id: u64, expected: u64| {
        let lookup = clients[client].lookup(&[id], 1).await.unwrap();
        assert_eq!(lookup.rows, row(&table(), id));
        assert_eq!(lookup.stats.sent_bytes, expected, "client {client}");
    };
    check(0, 1, key_bytes + query_bytes).await;
    check(1, 2, key_bytes + query_bytes).await;
    check(0, 3, query_bytes).await;
    check(2, 4, key_bytes + query_bytes).await;
    assert_eq!(server.metric("hushtable_client_keys_evicted_total").await, 1.0);
    check(0, 5, query_bytes).await;
    check(1, 6, key_bytes + 2 * query_bytes).await;
    check(2, 7, key_bytes + 2 * query_bytes).await;
    assert_eq!(server.metric("hushtable_client_keys_memory").await, 2.0);
    assert_eq!(server.metric("hushtable_client_keys_evicted_total").await, 3.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_version_or_other_parameters_are_followed_once() {
    let folder = TempDir::new().unwrap();
    let keep = || OnionServerSpec { keys_folder: Some(folder.path().into()), ..spec() };
    let server = start(keep(), table(100, 4, 1));
    let both = ParameterSet::ALL.to_vec();
    let accept_both = OnionClientSpec { parameter_sets: both, ..client_spec(&server) };
    let client = OnionClient::connect(&accept_both).await.unwrap();
    let strict = connect(&server).await;
    assert_eq!(strict.lookup(&[1], 1).await.unwrap().rows, row(&table(100, 4, 1), 1));
    assert_eq!(client.lookup(&[1], 1).await.unwrap().rows, row(&table(100, 4, 1), 1));

    let new = || table(300, 4, 2);
    let server = restart(server, keep(), new());
    assert_eq!(client.lookup(&[1], 1).await.unwrap().rows, row(&new(), 1));
    assert_eq!(client.info().version, new().version());
    assert_eq!(client.lookup(&[299], 1).await.unwrap().rows, row(&new(), 299));

    // The same table by other parameters: the keys that were kept do not fit, and that is said.
    let other = OnionServerSpec { parameters: "ive_paper".into(), ..keep() };
    let server = restart(server, other, new());
    assert_eq!(client.lookup(&[2], 1).await.unwrap().rows, row(&new(), 2));
    assert_eq!(client.info().geometry.set(), ParameterSet::IvePaper);
    // Who has not accepted them is not taken along.
    let uploaded = "hushtable_client_keys_uploaded_total";
    let before = server.metric(uploaded).await;
    let error = strict.lookup(&[2], 1).await.unwrap_err();
    assert!(matches!(error, Error::ParametersRefused { .. }), "{error:?}");
    assert_eq!(server.metric(uploaded).await, before);
    let back = restart(server, spec(), new());
    assert_eq!(client.lookup(&[3], 1).await.unwrap().rows, row(&new(), 3));
    drop(back);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lookup_that_cannot_be_is_refused_before_it_is_sent() {
    let server = start(spec(), table(100, 4, 1));
    let client = connect(&server).await;
    let queries_max = client.info().queries_per_request_max;
    let error = client.lookup(&[100], 1).await.unwrap_err();
    let range = matches!(error.of(), Some(onion::Error::IdRange { id: 100, rows: 100 }));
    assert!(range, "{error:?}");
    let error = client.lookup(&[1, 2], 1).await.unwrap_err();
    let many = matches!(error.of(), Some(onion::Error::TooManyIds { ids: 2, max_ids: 1 }));
    assert!(many, "{error:?}");
    for max_ids in [0, queries_max + 1] {
        let error = client.lookup(&[], max_ids).await.unwrap_err();
        assert!(matches!(error, Error::MaxIds { .. }), "{error:?}");
    }
    let text = server.page("/metrics").await.1;
    assert_eq!(metric_of(&text, "hushtable_answered_queries_total"), 0.0);
    assert_eq!(metric_of(&text, "hushtable_client_keys_uploaded_total"), 0.0);
    let most = client.lookup(&[5], queries_max).await.unwrap();
    assert_eq!(most.rows, row(&table(100, 4, 1), 5));
}

#[test]
fn a_client_is_shared_by_threads_that_wait() {
    let server = start(spec(), table(1000, 4, 1));
    let table = table(1000, 4, 1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(OnionClient::connect(&client_spec(&server))).unwrap();
    assert_eq!(client.info().shape.rows(), 1000);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (client, table, runtime) = (&client, &table, &runtime);
            scope.spawn(move || {
                for i in 0..5 {
                    let id = (thread * 131 + i * 17) % 1000;
                    let rows = runtime.block_on(client.lookup(&[id], 2)).unwrap().rows;
                    assert_eq!(rows, row(table, id));
                }
            });
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_is_asked_again_until_it_has_room() {
    let limits = OnionServerSpec {
        batch_queries_max: Some(2),
        queue_queries_max: 2,
        queries_per_request_max: Some(2),
        ..spec()
    };
    let (server, gate) = gated_onion(limits, table(100, 4, 1));
    let server = Running::start(server);
    let client = Arc::new(connect(&server).await);
    let held = gate.hold();
    let lookups: Vec<_> = (0..8u64)
        .map(|id| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.lookup(&[id], 2).await.unwrap() })
        })
        .collect();
    // One is in a pass, one waits: there is no room for more.
    server.refuses_busy("OnionAnswer").await;
    drop(held);
    let mut retries = 0;
    for (id, lookup) in (0..).zip(lookups) {
        let lookup = lookup.await.unwrap();
        assert_eq!(lookup.rows, row(&table(100, 4, 1), id));
        retries += lookup.stats.retries;
    }
    assert!(retries > 0, "eight lookups of two queries fit a queue of two?");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_and_servers_of_different_schemes_say_so() {
    let alone = start(spec(), table(100, 4, 1));
    let pair = Pair::start(100, 4);
    let error = OnionClient::connect(&client_spec(&pair.left)).await.err().unwrap();
    let Error::Unserved { url, message } = &error else { panic!("{error:?}") };
    assert_eq!(*url, pair.left.url());
    assert!(message.contains("PrivateLookup"), "{message}");

    let endpoint = |server: &Running| EndpointSpec::new(server.url(), None);
    let spec = ClientSpec::new(endpoint(&alone), endpoint(&pair.right));
    let error = LookupClient::connect(&spec).await.err().unwrap();
    let Error::Unserved { url, message } = &error else { panic!("{error:?}") };
    assert_eq!(*url, alone.url());
    assert!(message.contains("OnionLookup"), "{message}");

    let mut health = tonic_health::pb::health_client::HealthClient::new(
        tonic::transport::Endpoint::from_shared(alone.url()).unwrap().connect().await.unwrap(),
    );
    for service in ["", "hushtable.v1.OnionLookup"] {
        let request = tonic_health::pb::HealthCheckRequest { service: service.into() };
        assert_eq!(health.check(request).await.unwrap().get_ref().status, 1);
    }
}

/// Starts a server over a prepared file; returns how many bytes of the table were prepared for it.
fn start_prepared(path: &Path, table: Table) -> (Running, u64) {
    let spec = OnionServerSpec { prepared: Some(path.into()), ..spec() };
    let prepared = Arc::new(AtomicU64::new(0));
    let most = Arc::clone(&prepared);
    let server = OnionServer::of_table(spec, table).unwrap().with_progress(move |done, all| {
        assert!(done <= all);
        most.fetch_max(done, Ordering::Relaxed);
    });
    let server = Running::start(server);
    (server, prepared.load(Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_prepared_file_is_made_once_for_each_version() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("films.prepared");
    let first = || table(1000, 4, 1);
    let (server, bytes) = start_prepared(&path, first());
    assert_eq!(bytes, 16_000);
    assert_eq!(connect(&server).await.lookup(&[9], 1).await.unwrap().rows, row(&first(), 9));
    server.stop().unwrap();

    let (server, bytes) = start_prepared(&path, first());
    assert_eq!(bytes, 0, "what is there is used");
    assert_eq!(connect(&server).await.lookup(&[9], 1).await.unwrap().rows, row(&first(), 9));
    server.stop().unwrap();

    // Another version, and a damaged file.
    let (server, bytes) = start_prepared(&path, table(1000, 4, 2));
    assert_eq!(bytes, 16_000);
    server.stop().unwrap();
    let mut damaged = std::fs::read(&path).unwrap();
    damaged.truncate(damaged.len() / 2);
    std::fs::write(&path, damaged).unwrap();
    let (server, bytes) = start_prepared(&path, table(1000, 4, 2));
    assert_eq!(bytes, 16_000);
    let rows = connect(&server).await.lookup(&[9], 1).await.unwrap().rows;
    assert_eq!(rows, row(&table(1000, 4, 2), 9));
}

/// Files of format 1 hold plaintexts without a mask: a client would take off one that is not there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_file_without_masks_is_refused_and_made_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("films.prepared");
    let first = || table(1000, 4, 1);
    start_prepared(&path, first()).0.stop().unwrap();
    let made = std::fs::read(&path).unwrap();
    let spec = PreparedBytes::parse(&made).unwrap().spec().clone();
    let earlier = PreparedSpec { format: 1, ..spec.clone() };
    std::fs::remove_file(&path).unwrap();
    let writer = PreparedWriter::open(&path, &earlier).unwrap();
    for block in 0..earlier.blocks {
        writer.finish_block(block, [0; 32]).unwrap();
    }
    writer.finish().unwrap();

    let spec = onion::OnionSpec::new();
    let opened = onion::Engine::open(&path, &first(), ParameterSet::N4096128, &spec);
    let Err(onion::Error::Prepared(error)) = opened else { panic!("it opens") };
    assert!(matches!(error, PreparedError::Format { expected: 2, found: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("prepare the table again"), "{error}");
    let (server, bytes) = start_prepared(&path, first());
    assert_eq!(bytes, 16_000, "it is made again");
    assert_eq!(connect(&server).await.lookup(&[9], 1).await.unwrap().rows, row(&first(), 9));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_while_preparing_stops_it_and_the_next_start_goes_on() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("films.prepared");
    // Of several units of work, so that there is something to stop between.
    let table = || table(1 << 18, 16, 1);
    let all = table().rows() * 64;
    let spec = OnionServerSpec { prepared: Some(path.clone()), ..spec() };
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (stop, done) = (std::sync::Mutex::new(Some(stop)), Arc::new(AtomicU64::new(0)));
    let (seen, (released, release)) = (Arc::clone(&done), mpsc::channel::<()>());
    let release = std::sync::Mutex::new(release);
    let server = OnionServer::of_table(spec, table()).unwrap().with_progress(move |done, _| {
        seen.fetch_max(done, Ordering::Relaxed);
        if let Some(stop) = stop.lock().unwrap().take() {
            stop.send(()).unwrap();
            // The first unit ends once the server has been told to stop.
            let _ = release.lock().unwrap().recv();
        }
    });
    let bound = server.bind().await.unwrap();
    bound
        .run(async {
            stopped.await.unwrap();
        })
        .await
        .unwrap();
    drop(released);
    let before = done.load(Ordering::Relaxed);
    assert!(before < all, "{before} of {all}");
    // The writer is let go soon after: until then, a server that starts is told to wait.
    let (url, stop, running) = loop {
        let spec = OnionServerSpec { prepared: Some(path.clone()), ..self::spec() };
        let bound = OnionServer::of_table(spec, table()).unwrap().bind().await.unwrap();
        let (url, ready) = (format!("http://{}", bound.addr), bound.ready());
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let mut running = tokio::spawn(bound.run(async {
            let _ = stopped.await;
        }));
        tokio::select! {
            () = ready => break (url, stop, running),
            ended = &mut running => {
                let error = ended.unwrap().unwrap_err();
                let Some(onion::Error::Prepared(reason)) = error.of() else {
                    panic!("{error:?}")
                };
                assert!(matches!(reason, PreparedError::Locked { .. }), "{reason:?}");
            }
        }
    };
    let spec = OnionClientSpec::new(EndpointSpec::new(url, None));
    let client = OnionClient::connect(&spec).await.unwrap();
    assert_eq!(client.lookup(&[77_777], 1).await.unwrap().rows, row(&table(), 77_777));
    stop.send(()).unwrap();
    running.await.unwrap().unwrap();
}

/// Answers as another backend does, but says that it has another version, or changes a byte.
struct Liar {
    truth: onion::Engine,
    version: Version,
    flipped: bool,
}

impl OnionBackend for Liar {
    fn geometry(&self) -> &Geometry {
        self.truth.geometry()
    }

    fn version(&self) -> Version {
        self.version
    }

    fn answer(&self, queries: &[onion::Asked], responses: &mut [u8]) -> Result<(), onion::Error> {
        self.truth.answer(queries, responses)?;
        if self.flipped {
            responses.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
        }
        Ok(())
    }

    fn batch_queries_best(&self) -> usize {
        4
    }

    fn description(&self) -> String {
        "a liar".into()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_is_checked_before_it_serves() {
    let table = || table(500, 4, 1);
    let run = async |set: ParameterSet, version: Version, flipped: bool| {
        let make = move |table: &Table| {
            let spec = onion::OnionSpec { threads: 1, ..onion::OnionSpec::new() };
            let truth = onion::Engine::from_table(table, set, &spec)?;
            Ok(Arc::new(Liar { truth, version, flipped }) as Arc<dyn OnionBackend>)
        };
        let server = OnionServer::of_table(spec(), table()).unwrap().with_backend(make);
        let bound = server.bind().await.unwrap();
        let ready = bound.ready();
        bound.run(ready).await
    };
    let (set, version) = (ParameterSet::N4096128, table().version());
    run(set, version, false).await.unwrap();
    let error = run(set, version, true).await.unwrap_err();
    assert!(matches!(error, Error::SelfCheck { .. }), "{error:?}");
    let other = Version::from([3; 32]);
    let error = run(set, other, false).await.unwrap_err();
    assert!(matches!(error, Error::BackendTable { found, .. } if found == other), "{error:?}");
    let error = run(ParameterSet::IvePaper, version, false).await.unwrap_err();
    assert!(matches!(error, Error::BackendTable { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_answers_what_waits_and_refuses_the_rest() {
    let patient = NetworkSpec { drain_ms_max: 3_600_000, ..spec().network };
    let (server, gate) =
        gated_onion(OnionServerSpec { network: patient, ..spec() }, table(100, 4, 1));
    let mut server = Running::start(server);
    let client = Arc::new(connect(&server).await);
    let held = gate.hold();
    let ask = |id: u64| {
        let client = Arc::clone(&client);
        tokio::spawn(async move { client.lookup(&[id], 1).await })
    };
    // One in a pass, and one that waits for the next.
    let answering = ask(7);
    until("a pass is under way", async || gate.waiting() == 1).await;
    let waiting = ask(2);
    server.comes_to("hushtable_queue_queries", 1.0).await;
    server.signal();
    until("it drains", async || server.page("/readyz").await.0 != 200).await;
    drop(held);
    for (asked, id) in [(answering, 7), (waiting, 2)] {
        assert_eq!(asked.await.unwrap().unwrap().rows, row(&table(100, 4, 1), id));
    }
    let error = client.lookup(&[3], 1).await.unwrap_err();
    let gone = matches!(
        error,
        Error::Unavailable { .. } | Error::Refused { refusal: Refusal::Draining, .. }
    );
    assert!(gone, "{error:?}");
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_counts_what_is_answered_and_what_is_refused() {
    let limits =
        OnionServerSpec { queue_queries_max: 2, queries_per_request_max: Some(1), ..spec() };
    let server = start(limits, table(1000, 4, 1));
    let load = OnionLoadSpec {
        clients: 4,
        warmup: Duration::from_millis(50),
        duration: Duration::from_millis(500),
        ..OnionLoadSpec::new(EndpointSpec::new(server.url(), None))
    };
    let mut runs = 0.0;
    until("requests are answered", async || {
        let report = load.run().await.unwrap();
        assert_eq!(report.errors, 0, "{report:?}");
        assert!(report.p50_ms <= report.max_ms, "{report:?}");
        runs += 1.0;
        report.requests > 0
    })
    .await;
    assert_eq!(server.metric("hushtable_client_keys_uploaded_total").await, 5.0 * runs);
    let error = OnionLoadSpec { queries_per_request: 2, ..load }.run().await.unwrap_err();
    assert!(matches!(error, Error::MaxIds { max_ids: 2, keys_max: 1, .. }), "{error:?}");
    // The hint names this server's own setting, not a pair's.
    let text = error.to_string();
    assert!(text.contains("queries_per_request_max at the server"), "{text}");
    assert!(!text.contains("both") && !text.contains("keys_per_request"), "{text}");
}
