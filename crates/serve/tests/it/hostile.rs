//! Clients that send what no client should, stay away, or leave: the others must not notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::{
    Certificates, Pair, Running, gated, in_time, lay_out, layout_spec, raw, row, spec, table, until,
};
use bytes::Bytes;
use h2::client::SendRequest;
use hushtable_pir::PrgKind;
use hushtable_pir::dpf::{self, Key, Side};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, TableShape};
use hushtable_serve::wire::AnswerRequest;
use hushtable_serve::wire::private_lookup_client::PrivateLookupClient;
use hushtable_serve::{
    ClientSpec, EndpointSpec, Error, LookupClient, Server, ServerSpec, raise_file_limit,
};
use hushtable_table::layout::{LayoutSpec, PartSpec};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

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
        let sent = in_time(sender).await.unwrap();
        assert!(sent < 4 << 20, "the server took {sent} bytes of a message it cannot want");
    }
    server.comes_to("hushtable_inflight_bytes", 0.0).await;
    assert_well(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_trickles_in_ends_at_its_time() {
    let server = start(|spec| ServerSpec { request_ms_max: 300, ..spec });
    let mut client = http2(&server, 65535).await;
    let started = Instant::now();
    let (reply, mut body) = client.send_request(post(&server), false).unwrap();
    body.send_data(prefix(1000), false).unwrap();
    let reply = in_time(reply).await.unwrap();
    let status = &reply.headers()["grpc-status"];
    assert_eq!(Code::from_bytes(status.as_bytes()), Code::DeadlineExceeded);
    assert!(started.elapsed() >= Duration::from_millis(300));
    drop(body);
    assert_well(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_does_not_read_its_answers_is_closed() {
    // A machine that does not get to answer in the shortest time has more.
    for request_ms_max in [200, 3000, 60_000] {
        let server = start(|spec| ServerSpec { request_ms_max, ..spec });
        // A window of nothing: the server may send no byte of an answer.
        let mut client = http2(&server, 0).await;
        let started = Instant::now();
        let (reply, mut body) = client.send_request(post(&server), false).unwrap();
        let message = prost::Message::encode_to_vec(&request(4));
        body.send_data(prefix(message.len() as u32), false).unwrap();
        body.send_data(message.into(), true).unwrap();
        let reply = in_time(reply).await.unwrap();
        assert_eq!(reply.status(), 200);
        if reply.headers().contains_key("grpc-status") {
            continue;
        }
        let mut answers = reply.into_body();
        let ended = in_time(answers.data()).await;
        assert!(matches!(ended, None | Some(Err(_))), "{ended:?}");
        assert!(started.elapsed() >= Duration::from_millis(request_ms_max));
        server.comes_to("hushtable_inflight_bytes", 0.0).await;
        return assert_well(&server).await;
    }
    panic!("no answer in a minute");
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
        ServerSpec { inflight_bytes_max: 16 << 20, request_ms_max: 3_600_000, ..spec(Side::Left) };
    let impatient = ServerSpec { request_ms_max: 400, ..spec(Side::Left) };
    let [server, impatient] = [ServerSpec { drain_ms_max: 0, ..limits }, impatient]
        .map(|spec| Running::start(Server::of_table(spec, table.clone()).unwrap()));
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
    // Where there is less time, the connection is closed in the end, and all is given back.
    let mut client = http2(&impatient, 0).await;
    let mut replies = Vec::new();
    for _ in 0..4 {
        let (reply, mut body) = client.send_request(post_to(&impatient, "Layout"), false).unwrap();
        body.send_data(prefix(0), true).unwrap();
        replies.push(reply);
    }
    for reply in replies {
        // The first ones may have had their time before the last are answered.
        let Ok(reply) = in_time(reply).await else { continue };
        let ended = in_time(reply.into_body().data()).await;
        assert!(matches!(ended, None | Some(Err(_))), "{ended:?}");
    }
    impatient.comes_to("hushtable_inflight_bytes", 0.0).await;
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
            // The server answers or closes.
            let _ = in_time(stream.read_to_end(&mut rest)).await;
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
    let failed = async || servers.left.metric("hushtable_handshakes_failed_total").await >= 100.0;
    until("handshakes have failed", failed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_say_nothing_are_closed() {
    let certificates = Certificates::new();
    // What else could close them takes longer than the test waits.
    let limits = |spec| ServerSpec {
        handshake_ms_max: 300,
        keep_alive_ms: 300,
        headers_ms_max: 600_000,
        body_idle_ms_max: 600_000,
        request_ms_max: 3_600_000,
        ..spec
    };
    let plain = start(limits);
    let tls = start(|spec| ServerSpec { tls: Some(certificates.tls()), ..limits(spec) });

    // No TLS hello; half of one; no preface; half of one; half of a frame.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let empty_settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let half_frame = [0, 0, 100, 1, 4, 0, 0, 0, 1, 0x82];
    let half_frame = [&preface[..], &empty_settings, &half_frame].concat();
    let mut streams = Vec::new();
    for (server, bytes) in [
        (&tls, &[][..]),
        (&tls, &[22, 3, 1, 1, 0, 1, 0]),
        (&plain, &[]),
        (&plain, b"PRI * HT"),
        (&plain, &half_frame),
    ] {
        let mut stream = TcpStream::connect(server.addr).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        streams.push(stream);
    }
    for mut stream in streams {
        let mut rest = Vec::new();
        let _ = in_time(stream.read_to_end(&mut rest)).await;
    }
    plain.comes_to("hushtable_connections", 0.0).await;
    // Who speaks in time is served; on a busy machine that may take more than one try.
    let endpoint = Endpoint::from_shared(plain.url()).unwrap();
    let is_well = async || {
        let Ok(channel) = endpoint.connect().await else { return false };
        PrivateLookupClient::new(channel).answer(request(2)).await.is_ok()
    };
    until("it answers", is_well).await;
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
        // Nor does one that says nothing make room for another.
        handshake_ms_max: 600_000,
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
    let are_refused = async || {
        let (_, text) = server.page("/metrics").await;
        let connections = crate::common::metric_of(&text, "hushtable_connections") as usize;
        assert!(connections <= CONNECTIONS_MAX, "{connections}");
        let refused = crate::common::metric_of(&text, "hushtable_connections_refused_total");
        refused as usize >= attempts - CONNECTIONS_MAX
    };
    until("all but those are refused", are_refused).await;

    // Once they leave there is room again.
    drop(open);
    let have_left = async || server.metric("hushtable_connections").await <= 1.0;
    until("they have left", have_left).await;
    assert_well(&server).await;
}

/// The real engine, made to panic on demand, or to flip a bit of left's answers.
struct Faulty {
    engine: CpuEngine,
    /// Panics begin once this is set: the self-check runs undisturbed.
    armed: Arc<AtomicBool>,
    panics: bool,
    flips: bool,
}

impl Backend for Faulty {
    fn shape(&self) -> TableShape {
        self.engine.shape()
    }

    fn answer(&self, keys: &[Key], answers: &mut [u8]) -> Result<(), hushtable_pir::Error> {
        assert!(!self.panics || !self.armed.load(Ordering::Relaxed), "told to");
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

fn faulty(panics: bool, flips: bool) -> (Server, Arc<AtomicBool>) {
    let armed = Arc::new(AtomicBool::new(false));
    let server = Server::of_table(spec(Side::Left), table(ROWS, 4, 1)).unwrap();
    let shared = Arc::clone(&armed);
    let server = server.with_backend(move |table| {
        let spec = EngineSpec { threads: 1, ..EngineSpec::default() };
        let engine = CpuEngine::from_table(table, &spec)?;
        Ok(Arc::new(Faulty { engine, armed: shared, panics, flips }))
    });
    (server, armed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_in_the_middle_of_a_pass_takes_nobody_along() {
    let (server, gate) = gated(spec(Side::Left), table(ROWS, 4, 1));
    let server = Running::start(server);
    let held = gate.hold();
    let is_passing = async || gate.waiting() == 1;
    let ask = |mut client: PrivateLookupClient<Channel>, keys: usize| {
        tokio::spawn(async move { client.answer(request(keys)).await })
    };
    // Both are in the pass after this one's.
    let first = ask(raw(&server).await, 1);
    until("a pass is under way", is_passing).await;
    let (leaving, staying) = (ask(raw(&server).await, 5), ask(raw(&server).await, 3));
    server.comes_to("hushtable_queue_keys", 8.0).await;
    held.let_one_on();
    first.await.unwrap().unwrap();
    server.comes_to("hushtable_queue_keys", 0.0).await;
    until("the next pass is under way", is_passing).await;
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    server.comes_to("hushtable_connections", 1.0).await;
    drop(held);
    let reply = staying.await.unwrap().unwrap();
    assert_eq!(reply.get_ref().answers.len(), 48);
    assert_well(&server).await;
    server.comes_to("hushtable_queue_keys", 0.0).await;
    server.comes_to("hushtable_inflight_bytes", 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backend_that_panics_costs_one_pass() {
    let (server, armed) = faulty(true, false);
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
    let (server, _) = faulty(false, true);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result =
        runtime.block_on(async { server.bind().await.unwrap().run(std::future::pending()).await });
    assert!(matches!(result, Err(Error::SelfCheck { .. })), "{result:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_reads_nothing_does_not_hold_a_drain() {
    let server = start(|spec| ServerSpec { drain_ms_max: 3_600_000, ..spec });
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
    in_time(tokio::task::spawn_blocking(|| server.stop())).await.unwrap().unwrap();
    drop(reply);
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Whether a server goes on with a connection on which so many calls were begun and given up before it saw them.
async fn goes_on_after_resets(server: &Running, calls: u32) -> bool {
    const HEADERS: u8 = 1;
    const RESET: u8 = 3;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const GO_AWAY: u8 = 7;
    const ACK: u8 = 1;
    // POST, http, and literals of a path and an authority, in HPACK.
    let path = b"/hushtable.v1.PrivateLookup/Answer";
    let head = [&[0x83, 0x86, 0x04, path.len() as u8][..], path, &[0x01, 1, b'x']].concat();
    let mut sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    sent.extend(frame(SETTINGS, 0, 0, &[]));
    for number in 0..calls {
        let stream = 2 * number + 1;
        sent.extend(frame(HEADERS, 4, stream, &head));
        sent.extend(frame(RESET, 0, stream, &8u32.to_be_bytes()));
    }
    sent.extend(frame(PING, 0, 0, &[7; 8]));
    let mut stream = TcpStream::connect(server.addr).await.unwrap();
    // A server that ends the connection reads no more of it.
    let _ = stream.write_all(&sent).await;
    let mut header = [0; 9];
    while stream.read_exact(&mut header).await.is_ok() {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; length as usize];
        if stream.read_exact(&mut payload).await.is_err() {
            return false;
        }
        match (header[3], header[4]) {
            (PING, ACK) if payload == [7; 8] => return true,
            (GO_AWAY, _) => return false,
            _ => {}
        }
    }
    false
}

/// A client of two servers gives up its calls to one where the other fails, all at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_calls_may_be_given_up_at_once_as_may_be_made() {
    let server = start(|spec| spec);
    assert!(goes_on_after_resets(&server, 128).await, "a client that does nothing wrong");
    assert!(!goes_on_after_resets(&server, 10_000).await, "a flood");
    server.stop().unwrap();
}
