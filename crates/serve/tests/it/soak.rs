//! Servers that answer for long stay within their memory, as the system counts it.
//!
//! The suite runs each for some seconds; `make test-nightly` for 30,000 lookups of 3,000 clients.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use common::{Process, Resident, is_long_soak, lay_out, layout_spec, row, spec, table};
use hushtable_pir::TableShape;
use hushtable_pir::dpf::Side;
use hushtable_pir::onion::{Client, EvaluationKeys, Geometry, ParameterSet};
use hushtable_serve::{
    ClientSpec, EndpointSpec, LookupClient, NetworkSpec, OnionClient, OnionClientSpec,
    OnionServerSpec, ServerSpec,
};
use hushtable_table::Table;
use tempfile::TempDir;

/// Clients that ask at once.
const WORKERS: usize = 4;
const MIB: f64 = (1 << 20) as f64;

/// Runs `client(number)` for each of `clients` clients, a few at a time, and returns the most memory
/// that any of `servers` had after one.
async fn run<F>(clients: usize, servers: &[&Process], client: impl Fn(usize) -> F) -> u64
where
    F: Future<Output = ()>,
{
    let (next, most) = (AtomicUsize::new(0), AtomicU64::new(0));
    let work = async || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= clients {
                return;
            }
            client(number).await;
            for server in servers {
                most.fetch_max(server.resident_bytes(), Ordering::Relaxed);
            }
        }
    };
    let _: [(); WORKERS] = {
        let (a, b, c, d) = tokio::join!(work(), work(), work(), work());
        [a, b, c, d]
    };
    most.into_inner()
}

/// As [`run`], of `clients` in two halves after some that warm `servers` up: the first one's memory.
async fn run_halves<F>(
    [warm, clients]: [usize; 2],
    servers: &[&Process],
    client: impl Fn(usize) -> F,
) -> ([u64; 2], Resident)
where
    F: Future<Output = ()>,
{
    let resident = || servers[0].resident_bytes();
    let start = resident();
    let base = run(warm, servers, &client).await;
    let warmed = resident();
    let first = run(clients / 2, servers, |number| client(warm + number)).await;
    let half = resident();
    let begun = warm + clients / 2;
    let second = run(clients - clients / 2, servers, |number| client(begun + number)).await;
    ([base, first.max(second)], Resident { start, warm: warmed, half, end: resident() })
}

/// Holds the memory that was resident against what it may be, 10 % more.
#[track_caller]
fn check(what: &str, started: Instant, base: u64, budget: u64, most: u64) {
    let (base_mib, budget_mib) = (base as f64 / MIB, budget as f64 / MIB);
    let most_mib = most as f64 / MIB;
    let seconds = started.elapsed().as_secs();
    println!(
        "{what}: {base_mib:.1} MiB warm, {budget_mib:.1} MiB of budget, {most_mib:.1} MiB at most, \
         {seconds} s"
    );
    assert!(
        most_mib <= 1.1 * (base_mib + budget_mib),
        "{what}: {most_mib:.1} MiB are resident, of {base_mib:.1} when warm and a budget of \
         {budget_mib:.1}"
    );
}

/// A server asked alone, with room for the keys of `kept` clients: each of `clients` clients makes
/// keys of its own, connects, and looks up `lookups` rows, one after the other.
async fn soak_onion(clients: usize, lookups: usize, kept: usize) {
    let started = Instant::now();
    let table = Arc::new(table(4096, 256, 1));
    let folder = TempDir::new().unwrap();
    let bundle = folder.path().join("films");
    table.save(&bundle).unwrap();
    let shape = TableShape::new(table.rows(), table.row_bytes()).unwrap();
    let geometry = Geometry::new(ParameterSet::N4096128, shape).unwrap();
    let sample = Client::new(geometry.clone(), table.version()).unwrap();
    let keys = EvaluationKeys::parse(&geometry, sample.keys()).unwrap().memory_bytes();
    let spec = OnionServerSpec {
        network: NetworkSpec {
            addr: ([127, 0, 0, 1], 0).into(),
            metrics_addr: Some(([127, 0, 0, 1], 0).into()),
            ..NetworkSpec::default()
        },
        keys_memory_bytes_max: kept * keys,
        // All clients are this machine's, so one peer's.
        keys_bytes_per_peer_max: Some(kept * keys),
        threads: 2,
        ..OnionServerSpec::new(&bundle)
    };
    let server = Process::start(folder.path(), "onion", &spec, &["onion"]);
    server.ready().await;
    let ask = |client: Arc<OnionClient>, seed: usize, lookups: usize| {
        let table = Arc::clone(&table);
        async move {
            for lookup in 0..lookups {
                let id = (seed * 977 + lookup * 131) as u64 % table.rows();
                assert_eq!(client.lookup(&[id], 1).await.unwrap().rows, row(&table, id));
            }
        }
    };
    let connect = async || {
        let spec = OnionClientSpec::new(EndpointSpec::new(server.url(), None));
        Arc::new(OnionClient::connect(&spec).await.unwrap())
    };
    // What passes need beside tables and keys is there after a few.
    let first = connect().await;
    let base = run(WORKERS, &[&server], |number| ask(Arc::clone(&first), number, 20)).await;
    let ask_anew = async |number| ask(connect().await, number, lookups).await;
    let most = match is_long_soak() {
        true => {
            // As many as there is room for, before it is looked whether memory grows.
            let ([_, most], resident) = run_halves([kept, clients], &[&server], ask_anew).await;
            let seconds = started.elapsed().as_secs_f64();
            resident.check("onion", clients, clients * lookups, seconds);
            most
        }
        // Halves of a few clients would tell what the allocator is at, and no more.
        false => run(clients, &[&server], ask_anew).await,
    };
    let what = format!("onion, {clients} clients, {} lookups", clients * lookups);
    check(&what, started, base, (kept * keys) as u64, most);
}

/// A pair of servers: each client connects, looks up rows and fetches bags.
async fn soak_pair(clients: usize, lookups: usize) {
    let started = Instant::now();
    let laid_out = || lay_out(table(20_000, 64, 1), layout_spec(20_000, 1));
    let (folder, table) = (TempDir::new().unwrap(), laid_out());
    let bundle = folder.path().join("films");
    table.save(&bundle).unwrap();
    let [left, right] = Side::BOTH.map(|side| {
        let spec = ServerSpec { table: bundle.clone(), threads: 2, ..spec(side) };
        Process::start(folder.path(), &side.to_string(), &spec, &[])
    });
    left.ready().await;
    right.ready().await;
    let (table, servers) = (&table, [&left, &right]);
    let ask = async |seed: usize| {
        let [left, right] = servers.map(|server| EndpointSpec::new(server.url(), None));
        let client = LookupClient::connect(&ClientSpec::new(left, right)).await.unwrap();
        for lookup in 0..lookups {
            let id = (seed * 977 + lookup * 131) as u64 % table.rows();
            match lookup % 2 {
                0 => assert_eq!(client.lookup(&[id], 2).await.unwrap().rows, row(table, id)),
                _ => fetch_bag(&client, table, id).await,
            }
        }
    };
    let warm = (clients / 10).max(20);
    let ([base, most], resident) = run_halves([warm, clients], &servers, ask).await;
    resident.check("pair", clients, clients * lookups, started.elapsed().as_secs_f64());
    let what = format!("pair, {clients} clients, {} lookups and bags", clients * lookups);
    check(&what, started, base, 0, most);
}

async fn fetch_bag(client: &LookupClient, table: &Table, id: u64) {
    let ids = [id, (id + 1) % table.rows()];
    let bag = client.fetch_bag(&ids).await.unwrap();
    for ((&id, &kept), found) in ids.iter().zip(&bag.kept).zip(bag.rows.chunks(table.row_bytes())) {
        assert!(!kept || found == row(table, id), "row {id}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_onion_server_stays_within_its_budget() {
    match is_long_soak() {
        true => soak_onion(3000, 10, 300).await,
        false => soak_onion(80, 6, 60).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_of_servers_stays_as_large_as_it_is_when_warm() {
    soak_pair(if is_long_soak() { 3000 } else { 200 }, 10).await;
}
