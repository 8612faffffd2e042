//! Servers as processes of their own: killed, terminated, started badly.

mod common;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use common::{page, row, spec, table};
use hushtable_pir::dpf::Side;
use hushtable_serve::{ClientSpec, EndpointSpec, Error, LookupClient, Refusal, ServerSpec};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// `examples/serve_bundle.rs`, which cargo builds beside the tests.
fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.ancestors().nth(2).unwrap();
    let program = folder.join("examples/serve_bundle");
    assert!(program.exists(), "{} is missing: cargo build --examples", program.display());
    program
}

struct Process {
    child: Child,
    addr: SocketAddr,
    metrics_addr: SocketAddr,
}

impl Process {
    fn start(folder: &Path, spec: &ServerSpec) -> Self {
        let file = folder.join(format!("{}.json", spec.side));
        std::fs::write(&file, serde_json::to_vec(spec).unwrap()).unwrap();
        let mut child = Command::new(program())
            .arg(file)
            .stdout(Stdio::piped())
            .env("RUST_LOG", "warn")
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let addrs: serde_json::Value = serde_json::from_str(&line).unwrap();
        let addr = |name: &str| addrs[name].as_str().unwrap().parse().unwrap();
        Self { child, addr: addr("addr"), metrics_addr: addr("metrics_addr") }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end, but not for ever.
    fn wait(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(started.elapsed() < Duration::from_secs(30), "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A bundle in a folder, and its two servers with a waiting window.
fn start(window: Duration) -> (TempDir, Process, Process) {
    let folder = TempDir::new().unwrap();
    let bundle = folder.path().join("films");
    table(1000, 4, 1).save(&bundle).unwrap();
    let [left, right] = Side::BOTH.map(|side| {
        let window_us = Some(window.as_micros() as u64);
        let spec = ServerSpec { table: bundle.clone(), window_us, ..spec(side) };
        Process::start(folder.path(), &spec)
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
