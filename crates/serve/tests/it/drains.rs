//! Servers that drain, or are killed, and come back one after the other, while many clients look rows up at two
//! servers a side: no answer is wrong and no request is lost.
//!
//! The suite has a few of both under 8 clients; `make test-nightly` ten of each under 64.

use crate::common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use common::{PATIENCE, Process, is_long_soak, record, row, spec, table, until};
use hushtable_pir::dpf::Side;
use hushtable_serve::{ClientSpec, EndpointSpec, LookupClient, ServerSpec};
use hushtable_table::Table;
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

const ROWS: u64 = 20_000;
const DIM: usize = 64;
const IDS: usize = 4;

/// One of the servers, at an address that it keeps.
struct Place {
    name: String,
    spec: ServerSpec,
    process: Process,
}

impl Place {
    fn start(folder: &Path, bundle: &Path, side: Side, number: usize) -> Self {
        let name = format!("{side}-{number}");
        let spec = ServerSpec { table: bundle.to_owned(), threads: 1, ..spec(side) };
        let process = Process::start(folder, &name, &spec, &[]);
        let spec = ServerSpec { addr: process.addr, ..spec };
        Self { name, spec, process }
    }

    /// Ends it by a signal, and starts it again. One that is killed is missed before it is there again.
    async fn restart(&mut self, folder: &Path, signal: Signal, counts: &Counts) {
        let moved = counts.moved.load(Ordering::Relaxed);
        self.process.signal(signal);
        let status = self.process.wait();
        assert_eq!(status.success(), signal == Signal::TERM, "{}: {status}", self.name);
        if signal == Signal::KILL {
            let is_missed = async || counts.moved.load(Ordering::Relaxed) > moved;
            until("a client has gone on to another server", is_missed).await;
        }
        self.process = Process::start(folder, &self.name, &self.spec, &[]);
        self.process.ready().await;
    }
}

fn side(servers: &[Place]) -> EndpointSpec {
    let mut urls = servers.iter().map(|server| server.process.url());
    let first = EndpointSpec::new(urls.next().unwrap(), None);
    EndpointSpec { others: urls.collect(), ..first }
}

#[derive(Default)]
struct Counts {
    right: AtomicU64,
    moved: AtomicU64,
    wrong: AtomicU64,
    lost: AtomicU64,
    slowest_ms: AtomicU64,
}

impl Counts {
    /// Waits for so many more answers.
    async fn answers(&self, more: u64) {
        let before = self.right.load(Ordering::Relaxed);
        let is_so = async || {
            assert_eq!(self.lost.load(Ordering::Relaxed), 0, "requests are lost");
            self.right.load(Ordering::Relaxed) >= before + more
        };
        until("answers come", is_so).await;
    }
}

/// Looks rows up until it is told to end.
async fn ask(spec: ClientSpec, table: &Table, number: u64, end: &AtomicBool, counts: &Counts) {
    let client = LookupClient::connect(&spec).await.unwrap();
    for turn in 0.. {
        if end.load(Ordering::Relaxed) {
            return;
        }
        let id = |slot: u64| (number * 7919 + turn * 131 + slot * 17) % ROWS;
        let ids: Vec<u64> = (0..IDS as u64).map(id).collect();
        let started = Instant::now();
        match client.lookup(&ids, IDS).await {
            Ok(found) => {
                let expected: Vec<u8> = ids.iter().flat_map(|&id| row(table, id)).collect();
                let count = if found.rows == expected { &counts.right } else { &counts.wrong };
                count.fetch_add(1, Ordering::Relaxed);
                counts.moved.fetch_add(u64::from(found.stats.retries > 0), Ordering::Relaxed);
            }
            Err(error) => {
                eprintln!("a request is lost: {error}");
                counts.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
        let took = started.elapsed().as_millis() as u64;
        counts.slowest_ms.fetch_max(took, Ordering::Relaxed);
    }
}

/// Ends every server in turn: so many times by SIGTERM, then so many by SIGKILL, under `clients` threads.
async fn roll(clients: u64, drains: usize, kills: usize) {
    let (folder, table) = (TempDir::new().unwrap(), Arc::new(table(ROWS, DIM, 1)));
    let bundle = folder.path().join("films");
    table.save(&bundle).unwrap();
    let start = |side| [0, 1].map(|number| Place::start(folder.path(), &bundle, side, number));
    let [mut left, mut right] = Side::BOTH.map(start);
    for server in left.iter().chain(&right) {
        server.process.ready().await;
    }
    let spec = ClientSpec { lookup_max: PATIENCE, ..ClientSpec::new(side(&left), side(&right)) };
    let (counts, end) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
    let started = Instant::now();
    let threads: Vec<_> = (0..clients)
        .map(|number| {
            let (spec, table) = (spec.clone(), Arc::clone(&table));
            let (end, counts) = (Arc::clone(&end), Arc::clone(&counts));
            std::thread::spawn(move || {
                let mut runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = runtime.enable_all().build().unwrap();
                runtime.block_on(ask(spec, &table, number, &end, &counts));
            })
        })
        .collect();
    let signals = std::iter::repeat_n(Signal::TERM, drains);
    for (turn, signal) in signals.chain(std::iter::repeat_n(Signal::KILL, kills)).enumerate() {
        // Lookups are under way, here and at the other side.
        counts.answers(2 * clients).await;
        let servers = if turn % 2 == 0 { &mut left } else { &mut right };
        servers[turn / 2 % 2].restart(folder.path(), signal, &counts).await;
    }
    counts.answers(2 * clients).await;
    end.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let Counts { right, moved, wrong, lost, slowest_ms } = &*counts;
    let figures = json!({
        "rows": ROWS, "dim": DIM, "ids_per_lookup": IDS, "urls_per_side": 2, "clients": clients,
        "drains": drains, "kills": kills, "seconds": started.elapsed().as_secs_f64(),
        "right": read(right), "moved": read(moved), "wrong": read(wrong), "lost": read(lost),
        "slowest_ms": read(slowest_ms),
    });
    println!("{figures}");
    record("drains", "drains", figures);
    assert_eq!((read(wrong), read(lost)), (0, 0), "wrong, lost");
    assert!(read(moved) > 0, "no lookup met a server that had gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_is_lost_while_servers_drain_and_die_one_by_one() {
    match is_long_soak() {
        true => roll(64, 10, 10).await,
        false => roll(8, 3, 3).await,
    }
}
