//! Servers as processes of their own: killed, terminated, started badly.

use crate::common;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Process, page, program, row, spec, table};
use hushtable_pir::dpf::Side;
use hushtable_serve::{ClientSpec, EndpointSpec, Error, LookupClient, Refusal, ServerSpec};
use rustix::process::Signal;
use tempfile::TempDir;

/// One of a pair of servers.
fn process(folder: &Path, spec: &ServerSpec) -> Process {
    Process::start(folder, &spec.side.to_string(), spec, &[])
}

/// A bundle in a folder, and its two servers with a waiting window.
fn start(window: Duration) -> (TempDir, Process, Process) {
    let folder = TempDir::new().unwrap();
    let bundle = folder.path().join("films");
    table(1000, 4, 1).save(&bundle).unwrap();
    let [left, right] = Side::BOTH.map(|side| {
        let window_us = Some(window.as_micros() as u64);
        let spec = ServerSpec { table: bundle.clone(), window_us, ..spec(side) };
        process(folder.path(), &spec)
    });
    (folder, left, right)
}

fn client_spec(left: &Process, right: &Process) -> ClientSpec {
    ClientSpec::new(EndpointSpec::new(left.url(), None), EndpointSpec::new(right.url(), None))
}

async fn wait_for_keys(server: &Process, keys: f64) {
    let text = async || page(server.metrics_addr, "/metrics").await.1;
    while common::metric_of(&text().await, "hushtable_queue_keys") < keys {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_middle_of_a_request_is_an_error_at_once() {
    let (_folder, left, mut right) = start(Duration::from_secs(60));
    let client = LookupClient::connect(&client_spec(&left, &right)).await.unwrap();
    let url = right.url();
    let lookup = tokio::spawn(async move { (client.lookup(&[1], 4).await, client) });
    wait_for_keys(&right, 4.0).await;
    right.signal(Signal::KILL);
    let killed = Instant::now();
    let (result, client) = lookup.await.unwrap();
    let error = result.unwrap_err();
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    assert!(matches!(&error, Error::Unavailable { url: u, .. } if *u == url), "{error:?}");
    assert!(!right.wait().success());

    // The next lookup says so too, and the left server drops what nobody waits for.
    let error = client.lookup(&[1], 4).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { .. }), "{error:?}");
    let started = Instant::now();
    loop {
        let text = page(left.metrics_addr, "/metrics").await.1;
        if common::metric_of(&text, "hushtable_inflight_bytes") == 0.0 {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_lets_open_requests_finish_and_refuses_new_ones() {
    let (_folder, mut left, mut right) = start(Duration::from_millis(1500));
    let client = LookupClient::connect(&client_spec(&left, &right)).await.unwrap();
    assert_eq!(page(left.metrics_addr, "/readyz").await.0, 200);
    let lookup = tokio::spawn(async move { (client.lookup(&[1, 999], 4).await, client) });
    wait_for_keys(&left, 4.0).await;
    wait_for_keys(&right, 4.0).await;
    left.signal(Signal::TERM);
    right.signal(Signal::INT);

    // While it drains: not ready, alive, and no new connections.
    let ready = async || page(left.metrics_addr, "/readyz").await.0;
    while ready().await == 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(ready().await, 503);
    assert_eq!(page(left.metrics_addr, "/livez").await.0, 200);
    let error = LookupClient::connect(&client_spec(&left, &right)).await.err().unwrap();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");

    let (result, client) = lookup.await.unwrap();
    let table = table(1000, 4, 1);
    assert_eq!(result.unwrap().rows, [row(&table, 1), row(&table, 999)].concat());
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
    let (_folder, mut left, mut right) = start(Duration::from_millis(1500));
    let client = LookupClient::connect(&client_spec(&left, &right)).await.unwrap();
    let lookup = tokio::spawn(async move { client.lookup(&[1, 999], 4).await });
    wait_for_keys(&left, 4.0).await;
    wait_for_keys(&right, 4.0).await;
    left.signal(Signal::HUP);
    right.signal(Signal::HUP);
    let table = table(1000, 4, 1);
    let rows = lookup.await.unwrap().unwrap().rows;
    assert_eq!(rows, [row(&table, 1), row(&table, 999)].concat());
    // They see that nothing is new, and serve.
    for server in [&left, &right] {
        let unchanged = "hushtable_reloads_total{outcome=\"unchanged\"}";
        while common::metric_of(&page(server.metrics_addr, "/metrics").await.1, unchanged) < 1.0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(page(server.metrics_addr, "/readyz").await.0, 200);
    }
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
