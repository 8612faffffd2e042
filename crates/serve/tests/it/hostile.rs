//! Clients that send what no client should, stay away, or leave: the others must not notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Certificates, Pair, Running, lay_out, layout_spec, raw, row, spec, table};
use bytes::Bytes;
use h2::client::SendRequest;
use hushtable_pir::PrgKind;
use hushtable_pir::dpf::{self, Key, Side};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, TableShape};
use hushtable_serve::wire::AnswerRequest;
use hushtable_serve::{
    ClientSpec, EndpointSpec, Error, LookupClient, Server, ServerSpec, raise_file_limit,
};
use hushtable_table::layout::{LayoutSpec, PartSpec};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;

const ROWS: u64 = 1000;

fn start(change: impl FnOnce(ServerSpec) -> ServerSpec) -> Running {
    Running::start(Server::of_table(change(spec(Side::Left)), table(ROWS, 4, 1)).unwrap())
}

fn request(count: usize) -> AnswerRequest {
    let table = table(ROWS, 4, 1);
    let shape = TableShape::new(ROWS, 16).unwrap();
    let client = dpf::Client::new(shape, table.version(), PrgKind::Aes128).unwrap();
    let (request, _) = client.query(&[5], count).unwrap();
    AnswerRequest {
        table_version: Bytes::copy_from_slice(table.version().as_bytes()),
        keys: request.left.into_iter().map(Bytes::from).collect(),
    }
}

/// The server still answers.
async fn assert_well(server: &Running) {
    let reply = raw(server).await.answer(request(2)).await.unwrap();
    assert_eq!(reply.get_ref().answers.len(), 32);
}

/// A bare HTTP/2 connection.
async fn http2(server: &Running, window_bytes: u32) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(server.addr).await.unwrap();
    let (client, connection) = h2::client::Builder::new()
        .initial_window_size(window_bytes)
        .handshake(stream)
        .await
        .unwrap();
    tokio::spawn(async move {
        // The server may close it: that is what these tests look for elsewhere.
        let _ = connection.await;
    });
    client.ready().await.unwrap()
}

fn post(server: &Running) -> http::Request<()> {
    post_to(server, "Answer")
}

fn post_to(server: &Running, method: &str) -> http::Request<()> {
    http::Request::post(format!("{}/hushtable.v1.PrivateLookup/{method}", server.url()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap()
}

/// A gRPC message's prefix: not compressed, and how long it is.
fn prefix(bytes: u32) -> Bytes {
    let mut prefix = vec![0];
    prefix.extend(bytes.to_be_bytes());
    prefix.into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_of_3_gb_is_refused_by_its_first_bytes() {
    let server = start(|spec| spec);
    for declared in [3_000_000_000, u32::MAX] {
        let mut client = http2(&server, 65535).await;
        let (reply, mut body) = client.send_request(post(&server), false).unwrap();
        body.send_data(prefix(declared), false).unwrap();
        let sender = tokio::spawn(async move {
            let chunk = Bytes::from(vec![0; 16 << 10]);
            let mut sent = 0u64;
            while sent < u64::from(declared) {
                body.reserve_capacity(chunk.len());
                match std::future::poll_fn(|cx| body.poll_capacity(cx)).await {
                    Some(Ok(_)) => {}
                    None | Some(Err(_)) => break,
                }
                let size = body.capacity().min(chunk.len());
                if body.send_data(chunk.slice(..size), false).is_err() {
                    break;
                }
                sent += size as u64;
            }
            sent
        });
        let reply = reply.await.unwrap();
        let status = &reply.headers()["grpc-status"];
        assert_eq!(Code::from_bytes(status.as_bytes()), Code::OutOfRange);
        let sent = tokio::time::timeout(Duration::from_secs(20), sender).await.unwrap().unwrap();
        assert!(sent < 4 << 20, "the server took {sent} bytes of a message it cannot want");
    }
    assert_eq!(server.metric("hushtable_inflight_bytes").await, 0.0);
    assert_well(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_trickles_in_ends_at_its_time() {
    let server = start(|spec| ServerSpec { request_ms_max: 300, ..spec });
    let mut client = http2(&server, 65535).await;
    let (reply, mut body) = client.send_request(post(&server), false).unwrap();
    body.send_data(prefix(1000), false).unwrap();
    let started = Instant::now();
    let reply = tokio::time::timeout(Duration::from_secs(20), reply).await.unwrap().unwrap();
    let status = &reply.headers()["grpc-status"];
    assert_eq!(Code::from_bytes(status.as_bytes()), Code::DeadlineExceeded);
    assert!(started.elapsed() >= Duration::from_millis(250));
    drop(body);
    assert_well(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_does_not_read_its_answers_is_closed() {
    let server = start(|spec| ServerSpec { request_ms_max: 200, ..spec });
    // A window of nothing: the server may send no byte of an answer.
    let mut client = http2(&server, 0).await;
    let (reply, mut body) = client.send_request(post(&server), false).unwrap();
    let message = prost::Message::encode_to_vec(&request(4));
    body.send_data(prefix(message.len() as u32), false).unwrap();
    body.send_data(message.into(), true).unwrap();
    let reply = reply.await.unwrap();
    assert_eq!(reply.status(), 200);
    let started = Instant::now();
    let mut answers = reply.into_body();
    let ended = tokio::time::timeout(Duration::from_secs(20), answers.data()).await.unwrap();
    assert!(matches!(ended, None | Some(Err(_))), "{ended:?}");
    assert!(started.elapsed() >= Duration::from_millis(300));
    while server.metric("hushtable_inflight_bytes").await > 0.0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_well(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layouts_that_nobody_reads_are_bounded_and_end() {
    const STREAMS: usize = 24;
    let rows = 40_000;
    let layout = LayoutSpec {
        hot: None,
        full: Some(PartSpec { rows, bins: 100, queries: 1, hashes: 1, companions: 16 }),
        ..layout_spec(rows, 1)
    };
    let table = lay_out(table(rows, 1, 1), layout);
    let limits =
        ServerSpec { inflight_bytes_max: 16 << 20, request_ms_max: 400, ..spec(Side::Left) };
    let server = Running::start(Server::of_table(limits, table).unwrap());
    // A window of nothing: no byte of a layout of 2.5 MB may be sent.
    let mut client = http2(&server, 0).await;
    let (mut streams, mut busy) = (Vec::new(), 0);
    for _ in 0..STREAMS {
        client = client.ready().await.unwrap();
        let (reply, mut body) = client.send_request(post_to(&server, "Layout"), false).unwrap();
        body.send_data(prefix(0), true).unwrap();
        let reply = reply.await.unwrap();
        match reply.headers().get("grpc-status") {
            Some(status) => {
                assert_eq!(Code::from_bytes(status.as_bytes()), Code::ResourceExhausted);
                busy += 1;
            }
            None => streams.push(reply.into_body()),
        }
    }
    assert!(busy > 0 && !streams.is_empty(), "{busy} of {STREAMS} layouts refused");
    assert!(server.metric("hushtable_inflight_bytes").await <= f64::from(16 << 20));
    // The connection is closed in the end, and all is given back.
    for mut stream in streams {
        let ended = tokio::time::timeout(Duration::from_secs(20), stream.data()).await.unwrap();
        assert!(matches!(ended, None | Some(Err(_))), "{ended:?}");
    }
    while server.metric("hushtable_inflight_bytes").await > 0.0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_opens_a_bounded_number_of_requests() {
    let server = start(|spec| ServerSpec { streams_per_connection_max: 3, ..spec });
    let mut client = http2(&server, 65535).await;
    let (reply, _) = client.send_request(post(&server), true).unwrap();
    // By its first reply the server's settings have come.
    let _ = reply.await.unwrap();
    assert_eq!(client.current_max_send_streams(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_do_no_harm() {
    let certificates = Certificates::new();
    let tls = certificates.tls();
    let servers = Pair::start_with(
        || table(ROWS, 4, 1),
        |spec| ServerSpec { tls: Some(tls.clone()), ..spec },
    );
    let plain = start(|spec| spec);
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    for addr in [servers.left.addr, plain.addr, plain.metrics_addr] {
        for i in 0..200 {
            let mut bytes = vec![0; 1 + i * 41 % 5000];
            rng.fill_bytes(&mut bytes);
            match i % 4 {
                // A TLS record header, an HTTP/2 preface, an HTTP/1 request before the noise.
                1 => bytes.splice(0..0, [22, 3, 1, 2, 0]).for_each(drop),
                2 => bytes.splice(0..0, *b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").for_each(drop),
                3 => bytes.splice(0..0, *b"GET / HTTP/1.1\r\n").for_each(drop),
                _ => {}
            }
            let mut stream = TcpStream::connect(addr).await.unwrap();
            // The server may have closed it by now.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            let mut rest = Vec::new();
            let read = stream.read_to_end(&mut rest);
            let _ = tokio::time::timeout(Duration::from_secs(20), read)
                .await
                .expect("the server neither answers nor closes");
        }
    }
    assert_well(&plain).await;
    let ca = Some(certificates.ca_pem());
    let client_spec = ClientSpec::new(
        EndpointSpec::new(servers.left.tls_url(), ca.clone()),
        EndpointSpec::new(servers.right.tls_url(), ca),
    );
    let client = LookupClient::connect(&client_spec).await.unwrap();
    let rows = client.lookup(&[3], 1).await.unwrap().rows;
    assert_eq!(rows, row(&table(ROWS, 4, 1), 3));
    assert!(servers.left.metric("hushtable_handshakes_failed_total").await >= 100.0);
}

/// Reads until the server closes; how long that took.
async fn closed_after(mut stream: TcpStream) -> Duration {
    let started = Instant::now();
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest);
    let _ = tokio::time::timeout(Duration::from_secs(20), read).await.expect("still open");
    started.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_say_nothing_are_closed() {
    let certificates = Certificates::new();
    let limits = |spec| ServerSpec { handshake_ms_max: 300, keep_alive_ms: 300, ..spec };
    let plain = start(limits);
    let tls = start(|spec| ServerSpec { tls: Some(certificates.tls()), ..limits(spec) });

    // No TLS hello; half of one; no preface; half of one; half of a frame.
    let silent = TcpStream::connect(tls.addr).await.unwrap();
    let mut half_hello = TcpStream::connect(tls.addr).await.unwrap();
    half_hello.write_all(&[22, 3, 1, 1, 0, 1, 0]).await.unwrap();
    let no_preface = TcpStream::connect(plain.addr).await.unwrap();
    let mut half_preface = TcpStream::connect(plain.addr).await.unwrap();
    half_preface.write_all(b"PRI * HT").await.unwrap();
    let mut half_frame = TcpStream::connect(plain.addr).await.unwrap();
    let empty_settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    half_frame.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
    half_frame.write_all(&empty_settings).await.unwrap();
    half_frame.write_all(&[0, 0, 100, 1, 4, 0, 0, 0, 1, 0x82]).await.unwrap();
    for (name, stream) in [
        ("silent", silent),
        ("half a hello", half_hello),
        ("no preface", no_preface),
        ("half a preface", half_preface),
        ("half a frame", half_frame),
    ] {
        let took = closed_after(stream).await;
        assert!(took < Duration::from_secs(5), "{name}: {took:?}");
    }
    while plain.metric("hushtable_connections").await > 0.0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_well(&plain).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_connections_do_not_disturb_the_served_ones() {
    const CONNECTIONS_MAX: usize = 500;
    // Both ends are in this process; what the system does not allow cannot be opened.
    let allowed = raise_file_limit().saturating_sub(CONNECTIONS_MAX as u64 + 500);
    let attempts = allowed.min(10_000) as usize;
    assert!(attempts > 2 * CONNECTIONS_MAX, "too few files may be open for this test");
    let server = start(|spec| ServerSpec {
        connections_max: CONNECTIONS_MAX,
        connections_per_peer_max: Some(CONNECTIONS_MAX),
        ..spec
    });
    let mut served = raw(&server).await;
    served.answer(request(1)).await.unwrap();

    let mut open = Vec::with_capacity(attempts);
    for i in 0..attempts {
        // A refused connection may be reset before this side knows that it was made.
        if let Ok(stream) = TcpStream::connect(server.addr).await {
            open.push(stream);
        }
        if i % 500 == 0 {
            served.answer(request(1)).await.unwrap();
        }
    }
    served.answer(request(1)).await.unwrap();
    let (_, text) = server.page("/metrics").await;
    let refused = crate::common::metric_of(&text, "hushtable_connections_refused_total") as usize;
    let connections = crate::common::metric_of(&text, "hushtable_connections") as usize;
    assert!(connections <= CONNECTIONS_MAX, "{connections}");
    assert!(refused >= attempts - CONNECTIONS_MAX, "{refused} of {attempts}");

    // Once they leave there is room again.
    drop(open);
    while server.metric("hushtable_connections").await > 1.0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_well(&server).await;
}

/// The real engine, slowed down or made to panic on demand.
struct Faulty {
    engine: CpuEngine,
    delay: Duration,
    /// Delays and panics begin once this is set: the self-check runs undisturbed.
    armed: Arc<AtomicBool>,
    panics: bool,
    flips: bool,
}

impl Backend for Faulty {
    fn shape(&self) -> TableShape {
        self.engine.shape()
    }

    fn answer(&self, keys: &[Key], answers: &mut [u8]) -> Result<(), hushtable_pir::Error> {
        if self.armed.load(Ordering::Relaxed) {
            std::thread::sleep(self.delay);
            assert!(!self.panics, "told to");
        }
        self.engine.answer(keys, answers)?;
        if self.flips {
            answers[0] ^= u8::from(keys[0].params().side == Side::Left);
        }
        Ok(())
    }

    fn batch_keys_best(&self) -> usize {
        self.engine.batch_keys_best()
    }

    fn description(&self) -> String {
        self.engine.description()
    }
}

fn faulty(delay: Duration, panics: bool, flips: bool) -> (Server, Arc<AtomicBool>) {
    let armed = Arc::new(AtomicBool::new(false));
    let server = Server::of_table(spec(Side::Left), table(ROWS, 4, 1)).unwrap();
    let shared = Arc::clone(&armed);
    let server = server.with_backend(move |table| {
        let spec = EngineSpec { threads: 1, ..EngineSpec::default() };
        let engine = CpuEngine::from_table(table, &spec)?;
        Ok(Arc::new(Faulty { engine, delay, armed: shared, panics, flips }))
    });
    (server, armed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_in_the_middle_of_a_pass_takes_nobody_along() {
    let (server, armed) = faulty(Duration::from_millis(300), false, false);
    let server = Running::start(server);
    let (mut stays, mut leaves) = (raw(&server).await, raw(&server).await);
    armed.store(true, Ordering::Relaxed);
    let leaving = tokio::spawn(async move { leaves.answer(request(5)).await });
    let staying = tokio::spawn(async move { stays.answer(request(3)).await });
    tokio::time::sleep(Duration::from_millis(150)).await;
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    let reply = staying.await.unwrap().unwrap();
    assert_eq!(reply.get_ref().answers.len(), 48);
    assert_well(&server).await;
    assert_eq!(server.metric("hushtable_queue_keys").await, 0.0);
    assert_eq!(server.metric("hushtable_inflight_bytes").await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_panics_costs_one_pass() {
    let (server, armed) = faulty(Duration::ZERO, true, false);
    let server = Running::start(server);
    assert_well(&server).await;
    armed.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        let status = raw(&server).await.answer(request(2)).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal);
        assert!(!status.message().contains("told to"), "the log is for causes: {status:?}");
    }
    armed.store(false, Ordering::Relaxed);
    assert_well(&server).await;
}

#[test]
fn a_backend_that_answers_wrong_never_serves() {
    let (server, _) = faulty(Duration::ZERO, false, true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result =
        runtime.block_on(async { server.bind().await.unwrap().run(std::future::pending()).await });
    assert!(matches!(result, Err(Error::SelfCheck { .. })), "{result:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_reads_nothing_does_not_hold_a_drain() {
    let server = Pair::start(1000, 4).left;
    let mut client = http2(&server, 0).await;
    let watch = http::Request::post(format!("{}/grpc.health.v1.Health/Watch", server.url()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(())
        .unwrap();
    let (reply, mut body) = client.send_request(watch, false).unwrap();
    body.send_data(prefix(0), true).unwrap();
    let reply = reply.await.unwrap();
    assert_eq!(reply.status(), 200);
    let started = std::time::Instant::now();
    tokio::task::spawn_blocking(|| server.stop()).await.unwrap().unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    drop(reply);
}
