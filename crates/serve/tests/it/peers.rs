//! One peer that takes all it can: the others must still be answered. Peers are told apart by their
//! addresses, of which loopback has many.

use crate::common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{Certificates, PATIENCE, Pair, Running, in_time, metric_of, row, spec, table, until};
use h2::client::SendRequest;
use hushtable_pir::dpf::{self, Side};
use hushtable_pir::{PrgKind, TableShape};
use hushtable_serve::wire::AnswerRequest;
use hushtable_serve::{Error, LookupClient, Server, ServerSpec};
use prost::Message;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const ROWS: u64 = 1000;
const HOG: [u8; 4] = [127, 0, 0, 2];
const OTHER: [u8; 4] = [127, 0, 0, 3];

/// A TLS server with small limits, and its CA.
struct Target {
    server: Running,
    certificates: Certificates,
}

impl Target {
    fn start(change: impl FnOnce(ServerSpec) -> ServerSpec) -> Self {
        let certificates = Certificates::new();
        let spec = change(ServerSpec { tls: Some(certificates.tls()), ..spec(Side::Left) });
        let server = Running::start(Server::of_table(spec, table(ROWS, 4, 1)).unwrap());
        Self { server, certificates }
    }

    async fn tcp(&self, from: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.connect(to).await
    }

    /// A connection through TLS, from the loopback address `from`.
    async fn tls(&self, from: [u8; 4]) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&self.certificates.ca_pem()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let stream = self.tcp(from, self.server.addr).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    async fn http2(&self, from: [u8; 4]) -> Result<SendRequest<Bytes>, Box<dyn std::error::Error>> {
        let (client, connection) = h2::client::handshake(self.tls(from).await?).await?;
        tokio::spawn(async move {
            // The server may close it: that is what these tests look for elsewhere.
            let _ = connection.await;
        });
        Ok(client.ready().await?)
    }

    fn post(&self) -> http::Request<()> {
        post(&self.server.tls_url())
    }

    /// The gRPC status of a lookup by a peer at `from`, as the headers or the trailers have it.
    async fn lookup(&self, from: [u8; 4]) -> Result<String, Box<dyn std::error::Error>> {
        self.lookup_by(self.http2(from).await?).await
    }

    async fn lookup_by(
        &self,
        mut client: SendRequest<Bytes>,
    ) -> Result<String, Box<dyn std::error::Error>> {
        let (reply, mut body) = client.send_request(self.post(), false)?;
        // A request that is refused for its peer is answered before its body is read.
        let _ = body.send_data(message(Side::Left, 2), true);
        let (head, mut body) = reply.await?.into_parts();
        if let Some(status) = head.headers.get("grpc-status") {
            return Ok(status.to_str()?.to_owned());
        }
        while let Some(data) = body.data().await {
            body.flow_control().release_capacity(data?.len())?;
        }
        let trailers = body.trailers().await?.ok_or("no trailers")?;
        Ok(trailers["grpc-status"].to_str()?.to_owned())
    }

    async fn assert_answers(&self, from: [u8; 4]) {
        assert_eq!(in_time(self.lookup(from)).await.unwrap(), "0");
    }

    /// How often a peer ran into the limit of that reason.
    async fn limited(&self, reason: &str) -> f64 {
        let (_, text) = self.server.page("/metrics").await;
        let line = format!("hushtable_peers_limited_total{{reason=\"{reason}\"}} ");
        text.lines().find_map(|found| found.strip_prefix(&line)).map_or(0.0, |n| n.parse().unwrap())
    }
}

/// The head of a lookup.
pub(crate) fn post(url: &str) -> http::Request<()> {
    let url = format!("{url}/hushtable.v1.PrivateLookup/Answer");
    let post = http::Request::post(url).header("content-type", "application/grpc");
    post.header("te", "trailers").body(()).unwrap()
}

/// A lookup of `count` keys, as gRPC frames it.
pub(crate) fn message(side: Side, count: usize) -> Bytes {
    let table = table(ROWS, 4, 1);
    let shape = TableShape::new(ROWS, 16).unwrap();
    let client = dpf::Client::new(shape, table.version(), PrgKind::Aes128).unwrap();
    let (request, _) = client.query(&[5], count).unwrap();
    let request = AnswerRequest {
        table_version: Bytes::copy_from_slice(table.version().as_bytes()),
        keys: match side {
            Side::Left => request.left.into_iter().map(Bytes::from).collect(),
            Side::Right => request.right.into_iter().map(Bytes::from).collect(),
        },
    }
    .encode_to_vec();
    let mut message = vec![0];
    message.extend((request.len() as u32).to_be_bytes());
    message.extend(request);
    message.into()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Writes what `next` gives every `gap` until the server closes the connection, for `limit` at most:
/// whether it did.
async fn closed_after(
    stream: TlsStream<TcpStream>,
    gap: Duration,
    limit: Duration,
    mut next: impl FnMut() -> Vec<u8>,
) -> bool {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let read = async {
        let mut buffer = vec![0; 64 << 10];
        while matches!(reader.read(&mut buffer).await, Ok(bytes) if bytes > 0) {}
    };
    let write = async {
        loop {
            if writer.write_all(&next()).await.is_err() || writer.flush().await.is_err() {
                return;
            }
            sleep(gap).await;
        }
    };
    let closed = timeout(limit, async {
        tokio::select! { () = read => {}, () = write => {} }
    })
    .await;
    closed.is_ok()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_opens_all_connections_leaves_some_to_others() {
    let target = Target::start(|spec| ServerSpec { connections_max: 64, ..spec });
    let mut held = Vec::new();
    for _ in 0..100 {
        if let Ok(client) = target.http2(HOG).await {
            held.push(client);
        }
    }
    assert!(held.len() > 10, "{}", held.len());
    target.assert_answers(OTHER).await;
    assert!(target.limited("connections").await >= 36.0);
    // What it gives back it may take again.
    drop(held);
    target.server.comes_to("hushtable_connections", 0.0).await;
    target.assert_answers(HOG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_trickle_in_end_their_connection() {
    let target = Target::start(|spec| ServerSpec { headers_ms_max: 300, ..spec });
    let mut stream = target.tls(HOG).await.unwrap();
    stream.write_all(&[PREFACE, &frame(4, 0, 0, &[])].concat()).await.unwrap();
    // A header block that is begun, ":method: POST", and never ends.
    let mut first = Some([frame(4, 1, 0, &[]), frame(1, 0, 1, &[0x83])].concat());
    let next = || first.take().unwrap_or_default();
    let gap = Duration::from_millis(50);
    assert!(closed_after(stream, gap, PATIENCE, next).await, "it is still there");
    // The same with one frame whose bytes trickle in.
    let mut stream = target.tls(HOG).await.unwrap();
    stream
        .write_all(&[PREFACE, &frame(4, 0, 0, &[]), &frame(4, 1, 0, &[])].concat())
        .await
        .unwrap();
    let mut first = Some(frame(1, 4, 1, &[0; 4000])[..10].to_vec());
    let next = || first.take().unwrap_or_else(|| vec![0x83]);
    assert!(closed_after(stream, gap, PATIENCE, next).await, "it is still there");
    assert_eq!(target.limited("headers").await, 2.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_pings_ends_its_connection() {
    let target = Target::start(|spec| spec);
    let mut stream = target.tls(HOG).await.unwrap();
    stream
        .write_all(&[PREFACE, &frame(4, 0, 0, &[]), &frame(4, 1, 0, &[])].concat())
        .await
        .unwrap();
    // A hundred a second may come: ten seconds' worth at once, and again.
    let next = || frame(6, 0, 0, &[7; 8]).repeat(1000);
    let gap = Duration::from_millis(1);
    assert!(closed_after(stream, gap, PATIENCE, next).await, "it is still there");
    assert_eq!(target.limited("pings").await, 1.0);
    // Who pings as a client does is left alone.
    let mut stream = target.tls(HOG).await.unwrap();
    stream
        .write_all(&[PREFACE, &frame(4, 0, 0, &[]), &frame(4, 1, 0, &[])].concat())
        .await
        .unwrap();
    let next = || frame(6, 0, 0, &[7; 8]);
    let limit = Duration::from_secs(2);
    let closed = closed_after(stream, Duration::from_millis(100), limit, next).await;
    assert!(!closed, "20 pings in 2 s closed it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_requests_is_refused_and_others_are_answered() {
    let target = Target::start(|spec| ServerSpec { requests_per_s_per_peer_max: 20, ..spec });
    let mut answered = 0;
    let mut refused = 0;
    let mut others = 0;
    let started = Instant::now();
    while refused < 40 {
        assert!(started.elapsed() < PATIENCE, "{answered} were answered, {refused} refused");
        // Each on a connection of its own, which is there before: what a peer may ask does not come anew with one.
        let mut clients = Vec::new();
        for _ in 0..60 {
            clients.push(target.http2(HOG).await.unwrap());
        }
        for client in clients {
            match target.lookup_by(client).await.unwrap().as_str() {
                "0" => answered += 1,
                status => {
                    assert_eq!(status, (tonic::Code::ResourceExhausted as i32).to_string());
                    refused += 1;
                }
            }
            if refused % 10 == 1 {
                // Others, who have not asked before.
                others = others % 250 + 1;
                target.assert_answers([127, 0, 1, others]).await;
            }
        }
    }
    let most = 20.0 + 20.0 * started.elapsed().as_secs_f64();
    assert!(f64::from(answered) <= most, "{answered} were answered, where {most} may be");
    assert!(target.limited("requests").await >= 40.0);
    // A client that is told to wait does so, and is answered.
    sleep(Duration::from_secs(1)).await;
    target.assert_answers(HOG).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_one_peer_holds_back_leave_room_for_others() {
    let target = Target::start(|spec| ServerSpec {
        keys_per_request_max: Some(16),
        inflight_bytes_max: 64 << 10,
        ..spec
    });
    let whole = message(Side::Left, 16);
    let mut held = Vec::new();
    // Large parts first, then small ones, until there is room for none.
    for size in [whole.len() - 1, whole.len() / 2, 200, 60, 20, 6] {
        for _ in 0..8 {
            let mut client = target.http2(HOG).await.unwrap();
            for _ in 0..100 {
                let (reply, mut body) = client.send_request(target.post(), false).unwrap();
                body.send_data(whole.slice(..size), false).unwrap();
                held.push((reply, body));
            }
        }
    }
    sleep(Duration::from_millis(300)).await;
    target.assert_answers(OTHER).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_which_nothing_comes_is_refused() {
    let target = Target::start(|spec| ServerSpec { body_idle_ms_max: 300, ..spec });
    let mut client = target.http2(HOG).await.unwrap();
    let (reply, mut body) = client.send_request(target.post(), false).unwrap();
    body.send_data(message(Side::Left, 16).slice(..100), false).unwrap();
    let reply = in_time(reply).await.unwrap();
    assert_eq!(reply.headers()["grpc-status"], "4");
    assert_eq!(target.limited("body").await, 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_requests_is_closed() {
    let target = Target::start(|spec| ServerSpec { idle_ms_max: 400, ..spec });
    let _idle = target.http2(HOG).await.unwrap();
    until("it is closed", async || target.limited("idle").await == 1.0).await;
    target.server.comes_to("hushtable_connections", 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_whose_idle_connections_were_closed_asks_as_before() {
    let servers =
        Pair::start_with(|| table(ROWS, 4, 1), |spec| ServerSpec { idle_ms_max: 40, ..spec });
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    let table = table(ROWS, 4, 1);
    // Some pauses end just when the servers close.
    let mut pauses = (24_000..120_000).step_by(2400).map(Duration::from_micros).zip(0..);
    let mut next = pauses.next();
    let started = Instant::now();
    while let Some((pause, id)) = next {
        sleep(pause).await;
        let asked = Instant::now();
        match client.lookup(&[id], 2).await {
            Ok(found) => {
                assert_eq!(found.rows, row(&table, id));
                next = pauses.next();
            }
            // This machine stood still for so long that the connection which was made anew was closed too.
            Err(Error::Unavailable { .. }) if asked.elapsed() >= Duration::from_millis(40) => {
                assert!(started.elapsed() < PATIENCE, "it is never in time");
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    let (_, text) = servers.left.page("/metrics").await;
    let closed = text.lines().find(|line| line.contains("{reason=\"idle\"}")).unwrap();
    let closed: f64 = closed.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(closed > 5.0, "{closed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_holds_the_metrics_port_does_not_shut_it() {
    let target = Target::start(|spec| spec);
    let mut held = Vec::new();
    for i in 0..200 {
        let mut stream = target.tcp(HOG, target.server.metrics_addr).await.unwrap();
        // Half of them say nothing, the others begin a request.
        if i % 2 == 0 {
            // It may be closed by now.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n").await;
        }
        held.push(stream);
    }
    for from in [OTHER, HOG] {
        let mut stream = target.tcp(from, target.server.metrics_addr).await.unwrap();
        let request = b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let mut reply = String::new();
        let asked = async {
            stream.write_all(request).await?;
            stream.read_to_string(&mut reply).await
        };
        let outcome = in_time(asked).await;
        assert!(reply.starts_with("HTTP/1.1 200"), "{outcome:?} {reply:?}");
    }
    target.assert_answers(OTHER).await;
    let (_, text) = target.server.page("/metrics").await;
    assert!(metric_of(&text, "hushtable_connections") <= 1.0, "the two ports are counted apart");
}
