//! Servers as processes of their own: killed, terminated, started badly.

use crate::common;
use crate::peers;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::{Process, in_time, metric_of, page, program, row, spec, table, until};
use hushtable_pir::dpf::Side;
use hushtable_serve::{ClientSpec, EndpointSpec, Error, LookupClient, Refusal, ServerSpec};
use rustix::process::Signal;
use tempfile::TempDir;

/// One of a pair of servers.
fn process(folder: &Path, spec: &ServerSpec) -> Process {
    Process::start(folder, &spec.side.to_string(), spec, &[])
}

/// A bundle in a folder, and its two servers, whose passes wait for eight keys: what has fewer is in the middle of its
/// request for as long as a test wants.
fn start() -> (TempDir, Process, Process) {
    start_with(Duration::from_secs(60))
}

/// The same, but for as long as the window is.
fn start_with(window: Duration) -> (TempDir, Process, Process) {
    let folder = TempDir::new().unwrap();
    let bundle = folder.path().join("films");
    table(1000, 4, 1).save(&bundle).unwrap();
    let [left, right] = Side::BOTH.map(|side| {
        let spec = ServerSpec {
            table: bundle.clone(),
            window_us: Some(window.as_micros() as u64),
            batch_keys_max: Some(8),
            keys_per_request_max: Some(8),
            body_idle_ms_max: 600_000,
            request_ms_max: 3_600_000,
            drain_ms_max: 3_600_000,
            ..spec(side)
        };
        process(folder.path(), &spec)
    });
    (folder, left, right)
}

fn client_spec(left: &Process, right: &Process) -> ClientSpec {
    ClientSpec::new(EndpointSpec::new(left.url(), None), EndpointSpec::new(right.url(), None))
}

async fn metric(server: &Process, name: &str) -> f64 {
    metric_of(&page(server.metrics_addr, "/metrics").await.1, name)
}

async fn wait_for_keys(server: &Process, keys: f64) {
    let is_so = async || metric(server, "hushtable_queue_keys").await >= keys;
    until("keys wait", is_so).await;
}

/// A request that lacks its last byte: its server does not end before it does.
struct Begun {
    _reply: h2::client::ResponseFuture,
    _body: h2::SendStream<Bytes>,
}

impl Begun {
    async fn new(server: &Process, side: Side) -> Self {
        let stream = tokio::net::TcpStream::connect(server.addr).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let mut message = peers::message(side, 4);
        message.truncate(message.len() - 1);
        let (reply, mut body) = client.send_request(peers::post(&server.url()), false).unwrap();
        body.send_data(message, false).unwrap();
        let is_so = async || metric(server, "hushtable_inflight_bytes").await > 0.0;
        until("the request has begun", is_so).await;
        Self { _reply: reply, _body: body }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_middle_of_a_request_is_an_error_at_once() {
    let (_folder, left, mut right) = start();
    let client = LookupClient::connect(&client_spec(&left, &right)).await.unwrap();
    let url = right.url();
    let lookup = tokio::spawn(async move { (client.lookup(&[1], 4).await, client) });
    wait_for_keys(&right, 4.0).await;
    right.signal(Signal::KILL);
    let (result, client) = in_time(lookup).await.unwrap();
    let error = result.unwrap_err();
    // Not when the left server's window is over, and not when the client's patience is.
    assert_eq!(metric(&left, "hushtable_answered_keys_total").await, 0.0);
    assert!(matches!(&error, Error::Unavailable { url: u, .. } if *u == url), "{error:?}");
    assert!(!right.wait().success());

    // The next lookup says so too, and the left server drops what nobody waits for.
    let error = client.lookup(&[1], 4).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { .. }), "{error:?}");
    let is_so = async || metric(&left, "hushtable_inflight_bytes").await == 0.0;
    until("nothing is in flight", is_so).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_lets_open_requests_finish_and_refuses_new_ones() {
    let (_folder, mut left, mut right) = start_with(Duration::from_millis(1500));
    let begun = [Begun::new(&left, Side::Left).await, Begun::new(&right, Side::Right).await];
    let client = LookupClient::connect(&client_spec(&left, &right)).await.unwrap();
    assert_eq!(page(left.metrics_addr, "/readyz").await.0, 200);
    let client = Arc::new(client);
    let mut lookup;
    // Until the window is over. Where this machine takes longer to see that it waits, there is another.
    loop {
        let asked = Arc::clone(&client);
        lookup = tokio::spawn(async move { asked.lookup(&[1, 999], 4).await });
        let waits = async |server| metric(server, "hushtable_queue_keys").await >= 4.0;
        until("keys wait", async || {
            lookup.is_finished() || waits(&left).await && waits(&right).await
        })
        .await;
        if !lookup.is_finished() {
            break;
        }
    }
    left.signal(Signal::TERM);
    right.signal(Signal::INT);

    // While it drains: not ready, alive, and no new connections.
    let ready = async || page(left.metrics_addr, "/readyz").await.0;
    until("it is not ready", async || ready().await == 503).await;
    assert_eq!(page(left.metrics_addr, "/livez").await.0, 200);
    let error = LookupClient::connect(&client_spec(&left, &right)).await.err().unwrap();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");

    let found = in_time(lookup).await.unwrap();
    drop(begun);
    let table = table(1000, 4, 1);
    assert_eq!(found.unwrap().rows, [row(&table, 1), row(&table, 999)].concat());
    assert_eq!(left.wait().code(), Some(0));
    assert_eq!(right.wait().code(), Some(0));
    let error = client.lookup(&[1], 1).await.unwrap_err();
    let gone = matches!(
        &error,
        Error::Unavailable { .. } | Error::Refused { refusal: Refusal::Draining, .. }
    );
    assert!(gone, "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sighup_in_the_middle_of_a_request_ends_nothing() {
    let (_folder, mut left, mut right) = start();
    let client = LookupClient::connect(&client_spec(&left, &right)).await.unwrap();
    let lookup = tokio::spawn(async move { client.lookup(&[1, 999], 4).await });
    wait_for_keys(&left, 4.0).await;
    wait_for_keys(&right, 4.0).await;
    left.signal(Signal::HUP);
    right.signal(Signal::HUP);
    // They see that nothing is new, and serve.
    for server in [&left, &right] {
        let unchanged = "hushtable_reloads_total{outcome=\"unchanged\"}";
        until("nothing is new", async || metric(server, unchanged).await >= 1.0).await;
        assert_eq!(page(server.metrics_addr, "/readyz").await.0, 200);
    }
    let table = table(1000, 4, 1);
    // With another's keys there is a pass.
    let other = LookupClient::connect(&client_spec(&left, &right)).await.unwrap();
    assert_eq!(other.lookup(&[5], 4).await.unwrap().rows, row(&table, 5));
    let rows = in_time(lookup).await.unwrap().unwrap().rows;
    assert_eq!(rows, [row(&table, 1), row(&table, 999)].concat());
    for server in [&mut left, &mut right] {
        server.signal(Signal::TERM);
        assert_eq!(server.wait().code(), Some(0));
    }
}

#[test]
fn a_server_that_cannot_start_says_why() {
    let folder = TempDir::new().unwrap();
    let bundle = folder.path().join("films");
    table(10, 4, 1).save(&bundle).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let good = ServerSpec { table: bundle, ..spec(Side::Left) };
    for (spec, expected) in [
        (ServerSpec { addr: taken.local_addr().unwrap(), ..good.clone() }, "listen on 127.0.0.1"),
        (ServerSpec { table: "/nowhere".into(), ..good.clone() }, "/nowhere"),
        (ServerSpec { addr: "0.0.0.0:0".parse().unwrap(), ..good }, "reachable from other"),
    ] {
        let file = folder.path().join("spec.json");
        std::fs::write(&file, serde_json::to_vec(&spec).unwrap()).unwrap();
        let output = Command::new(program()).arg(file).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let words = String::from_utf8(output.stderr).unwrap();
        assert!(words.contains(expected), "{words}");
    }
}
