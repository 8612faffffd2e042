//! A table on shards of the server that is asked alone, behind a front: answers are those of one server, dead servers
//! cost nobody an answer, a client's keys reach each server once.

use crate::common;
use crate::shard_common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::{Process, Running, in_time, network, page, row, table, until};
use hushtable_pir::onion::{self, Geometry, ParameterSet};
use hushtable_serve::certificate::LocalCa;
use hushtable_serve::wire::onion_shard_client::OnionShardClient;
use hushtable_serve::wire::{HoldsRequest, KeyedQueries, KeysChunk, OnionPassRequest};
use hushtable_serve::{
    ChangeSpec, EndpointSpec, Error, NetworkSpec, OnionClient, OnionClientSpec, OnionServer,
    OnionServerSpec, Owner, Refusal, TlsSpec, refusal_of,
};
use hushtable_table::Table;
use hushtable_table::model::{self, Feature, Model, Pooling, ShardMapSpec, places};
use rustix::process::Signal;
use shard_common::{Load, front_client, shard_tls, write_certificate, write_shards};
use tempfile::TempDir;
use tonic::codegen::tokio_stream;

const ROWS: u64 = 4096;
const DIM: usize = 256;
const TAKEN: &str = "hushtable_reloads_total{outcome=\"taken\"}";

/// Addresses of its own and as little waiting as possible.
fn spec(table: &Path) -> OnionServerSpec {
    OnionServerSpec { network: network(), threads: 1, ..OnionServerSpec::new(table) }
}

/// One of the servers, at an address that it keeps.
struct Place {
    name: String,
    spec: OnionServerSpec,
    process: Process,
}

impl Place {
    fn start(home: &Path, name: &str, spec: OnionServerSpec) -> Self {
        let process = Process::start(home, name, &spec, &["onion"]);
        let network = NetworkSpec { addr: process.addr, ..spec.network };
        Self { name: name.into(), spec: OnionServerSpec { network, ..spec }, process }
    }

    fn kill(&mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait();
    }

    fn again(&mut self, home: &Path) {
        self.process = Process::start(home, &self.name, &self.spec, &["onion"]);
    }

    async fn metric(&self, name: &str) -> f64 {
        let text = page(self.process.metrics_addr, "/metrics").await.1;
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.map_or(0.0, |value| value.parse().unwrap())
    }

    async fn wait_for(&self, name: &str, value: f64) {
        let is_so = async || self.metric(name).await >= value;
        until(&format!("{}: {name} is {value}", self.name), is_so).await;
    }
}

/// A table's shards, their servers, and a front.
struct Deployment {
    home: TempDir,
    ca: LocalCa,
    table: Table,
    shards: Vec<Vec<Place>>,
    front: Place,
}

impl Deployment {
    /// `shards` shards of a table with `replicas` servers each.
    async fn start(shards: usize, replicas: usize) -> Self {
        let home = TempDir::new().unwrap();
        let folder = home.path();
        let (ca, path) = (LocalCa::new().unwrap(), folder.join("films"));
        std::fs::write(folder.join("ca.pem"), ca.cert_pem()).unwrap();
        let table = table(ROWS, DIM, 1);
        table.save(&path).unwrap();
        let tls = shard_tls(folder, &ca, Owner::Single);
        let place = |name: &str, change: &dyn Fn(OnionServerSpec) -> OnionServerSpec| {
            let watch = watched(folder, name);
            std::fs::create_dir_all(&watch).unwrap();
            let spec = OnionServerSpec {
                change: ChangeSpec { watch: Some(watch), keep_old_s: 1, ..ChangeSpec::default() },
                ..spec(&path)
            };
            Place::start(folder, name, change(spec))
        };
        let server = |shard: usize, replica: usize| {
            place(&format!("{shard}-{replica}"), &|spec| OnionServerSpec {
                shard: Some(shard),
                shards: Some(shards),
                network: NetworkSpec { tls: Some(tls.clone()), ..spec.network },
                ..spec
            })
        };
        let of_shard = |shard| (0..replicas).map(|replica| server(shard, replica)).collect();
        let places: Vec<Vec<Place>> = (0..shards).map(of_shard).collect();
        let file = folder.join("shards.toml");
        write_shards(&file, &front_client(folder, &ca, Owner::Single), &urls(&places), "");
        let pem = ca.issue_server(&["localhost", "127.0.0.1"]).unwrap();
        let tls = TlsSpec { client_ca: None, ..write_certificate(folder, "front", &pem) };
        let front = place("front", &|spec| OnionServerSpec {
            shards_file: Some(file.clone()),
            network: NetworkSpec { tls: Some(tls.clone()), ..spec.network },
            ..spec
        });
        front.process.ready().await;
        Self { ca, table, shards: places, front, home }
    }

    fn client_spec(&self) -> OnionClientSpec {
        let ca = self.ca.cert_pem().into_bytes();
        let url = format!("https://{}", self.front.process.addr);
        OnionClientSpec::new(EndpointSpec::new(url, Some(ca)))
    }

    async fn client(&self) -> OnionClient {
        OnionClient::connect(&self.client_spec()).await.unwrap()
    }

    async fn all_ready(&self) {
        for (shard, places) in self.shards.iter().enumerate() {
            let ready = format!("hushtable_front_shard_replicas_ready{{shard=\"{shard}\"}}");
            self.front.wait_for(&ready, places.len() as f64).await;
        }
    }
}

fn watched(home: &Path, name: &str) -> PathBuf {
    home.join(format!("watched-{name}"))
}

fn urls(shards: &[Vec<Place>]) -> Vec<Vec<String>> {
    let of_shard = |places: &Vec<Place>| {
        places.iter().map(|place| format!("https://{}", place.process.addr)).collect()
    };
    shards.iter().map(of_shard).collect()
}

fn rows(table: &Table, ids: &[u64]) -> Vec<u8> {
    ids.iter().flat_map(|&id| row(table, id)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_behind_a_front_answer_as_one_server_does() {
    let deployment = Deployment::start(2, 2).await;
    deployment.all_ready().await;
    let shape = hushtable_pir::TableShape::new(ROWS, DIM * 4).unwrap();
    let geometry = Geometry::new(ParameterSet::N4096128, shape).unwrap();
    let columns = [0, 1].map(|shard| geometry.shard_columns((shard, 2)).unwrap());
    assert!(columns.iter().all(|columns| columns.end - columns.start > 2), "{columns:?}");
    // Beside it, the same table at an ordinary server.
    let server = OnionServer::of_table(spec(Path::new("")), table(ROWS, DIM, 1)).unwrap();
    let whole = Running::start(server);
    let of_whole = OnionClientSpec::new(EndpointSpec::new(whole.url(), None));
    let whole_client = OnionClient::connect(&of_whole).await.unwrap();
    let client = deployment.client().await;
    assert_eq!(client.info().geometry, whole_client.info().geometry);
    for turn in 0..8 {
        let ids = [0, ROWS - 1, turn * 977 % ROWS, turn * 131 % ROWS];
        let found = client.lookup(&ids, 4).await.unwrap();
        assert_eq!(found.rows, rows(&deployment.table, &ids));
        assert_eq!(found.rows, whole_client.lookup(&ids, 4).await.unwrap().rows);
    }
    // Every shard was asked in every pass. A client's keys, and those of the front's own check, are once at most at
    // each server, however often it was asked.
    let others = [deployment.client().await, deployment.client().await];
    for other in &others {
        for turn in 0..6 {
            let found = other.lookup(&[turn * 600], 1).await.unwrap();
            assert_eq!(found.rows, rows(&deployment.table, &[turn * 600]));
        }
    }
    for (shard, places) in deployment.shards.iter().enumerate() {
        let ok =
            format!("hushtable_front_shard_requests_total{{shard=\"{shard}\",outcome=\"ok\"}}");
        assert!(deployment.front.metric(&ok).await >= 20.0, "shard {shard}");
        let mut asked = 0.0;
        for place in places {
            let uploaded = place.metric("hushtable_client_keys_uploaded_total").await;
            assert!((1.0..=4.0).contains(&uploaded), "{}: {uploaded} uploads", place.name);
            let passes = "hushtable_passes_total{table=\"films\"}";
            asked += place.metric(passes).await;
        }
        assert!(asked >= 20.0, "shard {shard} made {asked} passes");
    }
    whole.stop().unwrap();
}

/// Clients of whichever of `tables` is served.
async fn load(deployment: &Deployment, clients: u64, tables: Arc<Vec<Table>>) -> Load {
    let mut load = Load::new();
    for number in 0..clients {
        let client = Arc::new(deployment.client().await);
        let tables = Arc::clone(&tables);
        load.ask(number * 1000, move |turn| {
            let (client, tables) = (Arc::clone(&client), Arc::clone(&tables));
            async move {
                let ids = [turn * 977 % ROWS];
                let found = client.lookup(&ids, 1).await?;
                let of = tables.iter().find(|table| table.version() == found.stats.version);
                assert_eq!(found.rows, rows(of.expect("a version served"), &ids));
                Ok(())
            }
        });
    }
    load
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_costs_no_answer_and_comes_back_by_itself() {
    let mut deployment = Deployment::start(2, 2).await;
    deployment.all_ready().await;
    let tables = Arc::new(vec![table(ROWS, DIM, 1)]);
    let load = load(&deployment, 6, tables).await;
    load.wait(40).await;
    let home = deployment.home.path().to_owned();
    for (shard, replica) in [(0, 0), (1, 1)] {
        deployment.shards[shard][replica].kill();
        load.wait(40).await;
        // It has lost its clients' keys, and gets them again.
        deployment.shards[shard][replica].again(&home);
        deployment.all_ready().await;
        load.wait(40).await;
        let place = &deployment.shards[shard][replica];
        place.wait_for("hushtable_client_keys_uploaded_total", 6.0).await;
    }
    let right = load.end().await;
    println!("{right} answers under two kills, 0 wrong, 0 failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_nobody_has_is_refused_at_once_and_the_rest_goes_on() {
    let mut deployment = Deployment::start(2, 1).await;
    // It would go on asking for an hour.
    let hour = Duration::from_secs(3600);
    let spec = OnionClientSpec { lookup_max: hour, call_max: hour, ..deployment.client_spec() };
    let client = OnionClient::connect(&spec).await.unwrap();
    assert_eq!(client.lookup(&[5], 1).await.unwrap().rows, rows(&deployment.table, &[5]));
    deployment.shards[1][0].kill();
    for _ in 0..3 {
        let error = in_time(client.lookup(&[5], 1)).await.map(drop).unwrap_err();
        let Error::Refused { refusal: Refusal::ShardAbsent { shard: 1, retry_after }, .. } = error
        else {
            panic!("{error:?}");
        };
        assert!(!retry_after.is_zero());
    }
    assert_eq!(page(deployment.front.process.metrics_addr, "/livez").await.0, 200);
    assert!(deployment.front.metric("hushtable_front_refused_absent_total").await >= 3.0);
    let home = deployment.home.path().to_owned();
    deployment.shards[1][0].again(&home);
    until("it comes back", async || client.lookup(&[5], 1).await.is_ok()).await;
    assert_eq!(client.lookup(&[7], 1).await.unwrap().rows, rows(&deployment.table, &[7]));
}

/// Puts the next version where a server looks, whole.
fn arrive(watched: &Path, next: &Table) {
    let staging = watched.join(".next");
    next.save(&staging).unwrap();
    std::fs::rename(staging, watched.join("next")).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_changes_on_every_shard_before_clients_hear_of_it() {
    let deployment = Deployment::start(2, 1).await;
    let tables = Arc::new(vec![table(ROWS, DIM, 1), table(ROWS, DIM, 2)]);
    let load = load(&deployment, 2, Arc::clone(&tables)).await;
    load.wait(10).await;
    let home = deployment.home.path();
    // The front hears of it first, and waits.
    arrive(&watched(home, "front"), &tables[1]);
    arrive(&watched(home, "0-0"), &tables[1]);
    deployment.shards[0][0].wait_for(TAKEN, 1.0).await;
    load.wait(10).await;
    assert_eq!(deployment.front.metric(TAKEN).await, 0.0);
    arrive(&watched(home, "1-0"), &tables[1]);
    deployment.front.wait_for(TAKEN, 1.0).await;
    load.wait(10).await;
    let found = deployment.client().await.lookup(&[3], 1).await.unwrap();
    assert_eq!(found.stats.version, tables[1].version());
    assert_eq!(found.rows, rows(&tables[1], &[3]));
    let right = load.end().await;
    println!("{right} answers over a change of version, 0 wrong, 0 failed");
}

/// One table is so small that only one of three shards has a column of it; and one upload of keys serves both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_tables_lie_on_the_same_shards_however_small() {
    let home = TempDir::new().unwrap();
    let tables = [table(ROWS, DIM, 1), table(300, 4, 2)];
    let paths = ["films", "genres"].map(|name| home.path().join(name));
    tables.iter().zip(&paths).for_each(|(table, path)| table.save(path).unwrap());
    let spec = || OnionServerSpec { tables: vec![paths[1].clone()], ..spec(&paths[0]) };
    let shards = [0, 1, 2].map(|shard| {
        let spec = OnionServerSpec { shard: Some(shard), shards: Some(3), ..spec() };
        Running::start(OnionServer::open(spec).unwrap())
    });
    let file = home.path().join("shards.toml");
    let servers = shards.iter().map(|it| format!("[[shard]]\nreplicas = [\"{}\"]\n", it.url()));
    std::fs::write(&file, servers.collect::<String>()).unwrap();
    let front = OnionServerSpec { shards_file: Some(file), ..spec() };
    let front = Running::start(OnionServer::open(front).unwrap());
    for table in &tables {
        let endpoint = EndpointSpec::new(front.url(), None);
        let version = Some(table.version());
        let of_table = OnionClientSpec { version, ..OnionClientSpec::new(endpoint) };
        let client = OnionClient::connect(&of_table).await.unwrap();
        let ids = [0, table.rows() / 2, table.rows() - 1];
        assert_eq!(client.lookup(&ids, 4).await.unwrap().rows, rows(table, &ids));
    }
    let found = shards[2].page("/metrics").await.1;
    assert!(found.contains("hushtable_passes_total{table=\"films\"}"), "{found}");
}

fn reason(status: &tonic::Status) -> String {
    refusal_of(status).map_or_else(|| status.to_string(), |it| it.reason().into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bad_pass_is_refused_for_what_it_is() {
    let server = OnionServerSpec { shard: Some(1), shards: Some(2), ..spec(Path::new("")) };
    let server = Running::start(OnionServer::of_table(server, table(ROWS, DIM, 1)).unwrap());
    let endpoint = tonic::transport::Endpoint::from_shared(server.url()).unwrap();
    let mut shard = OnionShardClient::new(endpoint.connect().await.unwrap());
    let holds = shard.holds(HoldsRequest { in_use: vec![vec![1; 31].into()] }).await.unwrap();
    let holds = holds.into_inner();
    assert_eq!((holds.shard, holds.held.len(), holds.held[0].shards), (1, 1, 2));
    let shape = hushtable_pir::TableShape::new(ROWS, DIM * 4).unwrap();
    let geometry = Geometry::new(ParameterSet::N4096128, shape).unwrap();
    assert!(holds.request_bytes_max as usize > 16 * geometry.query_bytes());
    let version = table(ROWS, DIM, 1).version();
    let client = onion::Client::new(geometry.clone(), version).unwrap();
    let (queries, _) = client.query(&[ROWS - 1, 2], 2).unwrap();
    let good = OnionPassRequest {
        map_version: holds.held[0].map_version.clone(),
        shard: 1,
        clients: vec![KeyedQueries {
            key_id: client.key_id().as_bytes().to_vec().into(),
            queries: queries.concat().into(),
        }],
    };
    let of = |key_id: &[u8], queries: Vec<u8>| {
        let key_id = key_id.to_vec().into();
        vec![KeyedQueries { key_id, queries: queries.into() }]
    };
    let id = client.key_id();
    let id = id.as_bytes();
    let mut damaged = queries.concat();
    damaged[geometry.query_bytes()] ^= 1;
    for (request, expected) in [
        (OnionPassRequest { map_version: vec![3; 32].into(), ..good.clone() }, "UNKNOWN_MAP"),
        (OnionPassRequest { map_version: vec![3; 31].into(), ..good.clone() }, "BAD_VERSION"),
        (OnionPassRequest { shard: 0, ..good.clone() }, "WRONG_SHARD"),
        (OnionPassRequest { clients: vec![], ..good.clone() }, "BAD_PASS"),
        (OnionPassRequest { clients: of(id, vec![]), ..good.clone() }, "BAD_PASS"),
        (OnionPassRequest { clients: of(id, vec![0; 100]), ..good.clone() }, "BAD_PASS"),
        (OnionPassRequest { clients: of(&id[1..], damaged.clone()), ..good.clone() }, "BAD_KEY_ID"),
        (good.clone(), "UNKNOWN_KEYS"),
    ] {
        let status = shard.answer_pass(request).await.unwrap_err();
        assert_eq!(reason(&status), expected, "{status}");
    }
    let chunk = |bytes: &[u8]| tokio_stream::iter([KeysChunk { bytes: bytes.to_vec().into() }]);
    let status = shard.put_keys(chunk(&client.keys()[..100])).await.unwrap_err();
    assert_eq!(reason(&status), "BAD_KEYS", "{status}");
    let chunks: Vec<_> = client.keys().chunks(1 << 20).map(<[u8]>::to_vec).collect();
    let chunks = chunks.into_iter().map(|bytes| KeysChunk { bytes: bytes.into() });
    let put = shard.put_keys(tokio_stream::iter(chunks.collect::<Vec<_>>())).await.unwrap();
    assert_eq!(put.into_inner().key_id[..], id[..]);
    let bad = OnionPassRequest { clients: of(id, damaged), ..good.clone() };
    let status = shard.answer_pass(bad).await.unwrap_err();
    assert!(status.message().contains("query 1 "), "{status}");
    assert_eq!(reason(&status), "BAD_QUERY", "{status}");
    let reply = shard.answer_pass(good).await.unwrap().into_inner();
    let part = onion::Partial::parse(&geometry, 2, &reply.parts).unwrap();
    assert_eq!(
        (part.version(), part.columns()),
        (version, geometry.shard_columns((1, 2)).unwrap())
    );
    // A client takes it for no server of its own.
    let of_shard = OnionClientSpec::new(EndpointSpec::new(server.url(), None));
    let error = OnionClient::connect(&of_shard).await.map(drop).unwrap_err();
    assert!(matches!(error, Error::Unserved { .. }), "{error}");
}

/// What a server that does not start says.
fn refused(home: &Path, spec: &OnionServerSpec) -> String {
    let file = home.join("refused.json");
    let spec = OnionServerSpec { network: network(), ..spec.clone() };
    std::fs::write(&file, serde_json::to_vec(&spec).unwrap()).unwrap();
    let mut command = std::process::Command::new(common::program());
    let output = command.arg(file).arg("onion").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bad_role_is_named() {
    let deployment = Deployment::start(2, 1).await;
    let home = deployment.home.path();
    let of_table = || spec(&home.join("films"));
    let of = |shard, shards| OnionServerSpec { shard, shards, ..of_table() };
    for (shard, shards, words) in [
        (Some(0), None, "give both, --shard and --shards"),
        (None, Some(2), "give both, --shard and --shards"),
        (Some(2), Some(2), "there is no shard 2 of 2"),
    ] {
        let found = refused(home, &of(shard, shards));
        assert!(found.contains(words), "{found}");
    }
    let file = home.join("other.toml");
    let both = OnionServerSpec { shards_file: Some(file.clone()), ..of(Some(0), Some(2)) };
    let found = refused(home, &both);
    assert!(found.contains("a server is one shard (--shard) or a front"), "{found}");
    // What a machine does not hear of its shards in the shortest time it may hear in more.
    let say = |shards: &[Vec<String>], tls: &TlsSpec, words: &str| {
        let mut found = String::new();
        for start_s_max in [1, 5, 60] {
            write_shards(&file, tls, shards, &format!("start_s_max = {start_s_max}"));
            let front = OnionServerSpec { shards_file: Some(file.clone()), ..of_table() };
            found = refused(home, &front);
            if found.contains(words) {
                break;
            }
        }
        found
    };
    let of_front = front_client(home, &deployment.ca, Owner::Single);
    let mut places = urls(&deployment.shards);
    // One of the two alone is another split.
    let found = say(&places[..1], &of_front, "it holds other versions");
    assert!(found.contains("shard 0 (") && found.contains("it holds other versions"), "{found}");
    places.reverse();
    let found = say(&places, &of_front, "it is shard 1, not 0");
    assert!(found.contains("it is shard 1, not 0: put the servers in the order"), "{found}");
    places.reverse();
    // Fronts of sides, and clients, are no fronts of these shards.
    for pem in ["front.left.hushtable.internal", "someone"] {
        let tls = deployment.ca.issue_client(pem).unwrap();
        let words = "no server is ready for shard 0";
        let found = say(&places, &write_certificate(home, "client", &tls), words);
        assert!(found.contains(words), "{found}");
    }
    let client = deployment.client().await;
    assert_eq!(client.lookup(&[9], 1).await.unwrap().rows, rows(&deployment.table, &[9]));
}

/// A model of one table, and the map of its shards beside it.
fn model(folder: &Path, seed: u64, shards: usize) -> Model {
    let table = table(ROWS, DIM, seed);
    let feature = Feature { name: "films".into(), table: 0, pooling: Pooling::Sum, max_ids: 4 };
    let path = folder.join(format!("model-{seed}"));
    model::write(&path, "m", &[("films", &table)], &[feature], None).unwrap();
    let model = Model::open(&path).unwrap();
    let spec = ShardMapSpec { shards: Some(shards), ..ShardMapSpec::default() };
    let map = onion::plan_shards(&model, ParameterSet::N4096128, &spec).unwrap();
    map.write(&model).unwrap();
    model
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_models_map_says_how_many_shards_there_are_and_is_refused_beside_others() {
    let home = TempDir::new().unwrap();
    let (first, other) = (model(home.path(), 1, 2), model(home.path(), 2, 2));
    let of = |shard| OnionServerSpec { shard: Some(shard), ..spec(first.path()) };
    let shards = [0, 1].map(|shard| Running::start(OnionServer::open(of(shard)).unwrap()));
    let file = home.path().join("shards.toml");
    let name = |shards: &[&Running]| {
        let servers = shards.iter().map(|it| format!("[[shard]]\nreplicas = [\"{}\"]\n", it.url()));
        std::fs::write(&file, servers.collect::<String>()).unwrap();
    };
    name(&[&shards[0], &shards[1]]);
    let of_front = OnionServerSpec { shards_file: Some(file.clone()), ..spec(first.path()) };
    let front = Running::start(OnionServer::open(of_front.clone()).unwrap());
    let client = OnionClientSpec::new(EndpointSpec::new(front.url(), None));
    let client = OnionClient::connect(&client).await.unwrap();
    let ids = [0, ROWS / 2, ROWS - 1];
    let found = client.lookup(&ids, 4).await.unwrap();
    assert_eq!(found.rows, rows(&table(ROWS, DIM, 1), &ids));

    let say = |spec: &OnionServerSpec| refused(home.path(), spec);
    let found = say(&OnionServerSpec { shards: Some(3), ..of(0) });
    assert!(found.contains("the map is of 2 shard(s)") && found.contains("there are 3"), "{found}");
    let found = say(&of(2));
    assert!(found.contains("there is no shard 2 of 2"), "{found}");
    let found = say(&OnionServerSpec { parameters: "ive_paper".into(), ..of(0) });
    assert!(found.contains("--parameters n4096_128"), "{found}");
    name(&[&shards[0]]);
    let found = say(&of_front);
    assert!(found.contains("1 shards, and the model's map has 2"), "{found}");
    // A map that says other things of the same model, and one of another version.
    let place = first.path().join(places::SHARDS_ONION);
    let text = std::fs::read_to_string(&place).unwrap();
    std::fs::write(&place, text.replacen("\"end\": ", "\"end\": 1", 1)).unwrap();
    let found = say(&of(0));
    assert!(found.contains("checksum does not match"), "{found}");
    std::fs::copy(other.path().join(places::SHARDS_ONION), &place).unwrap();
    let found = say(&of(0));
    assert!(found.contains("the map is of version"), "{found}");
    std::fs::remove_file(&place).unwrap();
    let found = say(&of(0));
    assert!(found.contains("give both, --shard and --shards"), "{found}");
}
