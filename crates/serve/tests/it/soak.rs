//! Servers that answer for long stay within their memory, as their allocator counts it.
//!
//! The suite runs each for some seconds; `make test-nightly` for 30,000 lookups of 3,000 clients.

use crate::common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use common::{Process, Resting, is_long_soak, lay_out, layout_spec, network, row, spec, table};
use hushtable_pir::TableShape;
use hushtable_pir::dpf::Side;
use hushtable_pir::onion::{Client, EvaluationKeys, Geometry, ParameterSet};
use hushtable_serve::{
    ClientSpec, EndpointSpec, LookupClient, OnionClient, OnionClientSpec, OnionServerSpec,
    ServerSpec,
};
use hushtable_table::Table;
use tempfile::TempDir;

/// Clients that ask at once.
const WORKERS: usize = 4;
/// What a server may get to keep that no client left: caches, and what the clock brings.
const REST_SLACK_BYTES: u64 = 1 << 20;

/// Runs `client(number)` for each of `clients` clients, a few at a time.
async fn run<F>(clients: usize, client: impl Fn(usize) -> F)
where
    F: Future<Output = ()>,
{
    let next = AtomicUsize::new(0);
    let work = async || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= clients {
                return;
            }
            client(number).await;
        }
    };
    tokio::join!(work(), work(), work(), work());
}

/// As [`run`], of `clients` in two halves after some that warm `server` up: the server's memory.
async fn run_halves<F>(
    [warm, clients]: [usize; 2],
    server: &Process,
    client: impl Fn(usize) -> F,
) -> Resting
where
    F: Future<Output = ()>,
{
    let start = server.resting_bytes().await;
    run(warm, &client).await;
    let warmed = server.resting_bytes().await;
    let half_clients = clients / 2;
    run(half_clients, |number| client(warm + number)).await;
    let half = server.resting_bytes().await;
    run(clients - half_clients, |number| client(warm + half_clients + number)).await;
    Resting { start, warm: warmed, half, end: 0 }.ended(server).await
}

/// What a server had allocated before clients came.
struct Base {
    started: Instant,
    /// At rest.
    rest: u64,
    /// At most, until one client alone had all that a client does.
    most: u64,
}

impl Base {
    async fn of(server: &Process, client: impl Future<Output = ()>) -> Self {
        let (started, rest) = (Instant::now(), server.resting_bytes().await);
        client.await;
        Self { started, rest, most: server.allocated().most }
    }

    /// Holds a server at rest to no more than that and `budget`, and the most that it ever had to what
    /// the clients that ask at once need beside.
    #[track_caller]
    fn check(&self, what: &str, server: &Process, resting: Resting, budget: u64) {
        let most = server.allocated().most;
        let at_rest = self.rest + budget + REST_SLACK_BYTES;
        let at_work = at_rest + WORKERS as u64 * (self.most - self.rest);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "{what}: {:.1} MiB at first, {:.1} of budget, {:.1} at rest of {:.1}, {:.1} at most of {:.1}, {} s",
            mib(self.rest),
            mib(budget),
            mib(resting.end),
            mib(at_rest),
            mib(most),
            mib(at_work),
            self.started.elapsed().as_secs()
        );
        for bytes in [resting.warm, resting.half, resting.end] {
            assert!(bytes <= at_rest, "{what}: {bytes} bytes are held at rest, of {at_rest}");
        }
        assert!(most <= at_work, "{what}: {most} bytes were allocated, of {at_work}");
    }
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
        network: network(),
        keys_memory_bytes_max: kept * keys,
        // All clients are this machine's, so one peer's.
        keys_bytes_per_peer_max: Some(kept * keys),
        // How many ciphertexts several threads need at once, and keep for the next pass, is a matter of their turns:
        // the most may come late, and is no client's.
        threads: 1,
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
    let ask_anew = async |number| ask(connect().await, number, lookups).await;
    // What passes of as many queries as come at once need beside tables and keys is kept from the first.
    let first = connect().await;
    for _ in 0..3 {
        first.lookup(&[1, 2, 3, 4], WORKERS).await.unwrap();
    }
    drop(first);
    let base = Base::of(&server, ask_anew(0)).await;
    // As many as there is room for, before it is looked whether memory grows.
    let resting = run_halves([kept, clients], &server, ask_anew).await;
    let seconds = started.elapsed().as_secs_f64();
    resting.check("onion", clients, clients * lookups, seconds);
    let what = format!("onion, {clients} clients, {} lookups", clients * lookups);
    base.check(&what, &server, resting, (kept * keys) as u64);
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
    let bases = [Base::of(&left, ask(0)).await, Base::of(&right, ask(0)).await];
    let resting = run_halves([warm, clients], &left, ask).await;
    resting.check("pair", clients, clients * lookups, started.elapsed().as_secs_f64());
    let what = format!("pair, {clients} clients, {} lookups and bags", clients * lookups);
    bases[0].check(&what, &left, resting, 0);
    let end = right.resting_bytes().await;
    bases[1].check(&what, &right, Resting { end, ..resting }, 0);
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
        false => soak_onion(40, 4, 16).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_of_servers_stays_as_large_as_it_is_when_warm() {
    soak_pair(if is_long_soak() { 3000 } else { 200 }, 10).await;
}

/// A bound that nothing breaks holds nothing: here are eight kilobytes that each of 20 clients leaves.
#[test]
fn what_clients_leave_is_seen() {
    let resting = |left: u64| {
        let half = 40 << 20;
        Resting { start: half, warm: half, half, end: half + 20 * left }
    };
    assert!(is_long_soak() || resting(8 << 10).grows());
    assert!(!resting(250).grows());
}
