//! A model on shards, behind fronts: answers are those of one server, dead servers cost nobody an answer, versions
//! change on all shards before a client hears of it.

use crate::common;
use crate::model_common;
use crate::shard_common;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{PATIENCE, Process, page, reserve, row, spec, until};
use hushtable_pir::dpf::Side;
use hushtable_serve::{
    ClientSpec, Error, LookupClient, ModelClient, ModelPin, Refusal, Server, ServerSpec, TlsSpec,
};
use hushtable_table::model::Model;
use hushtable_table::{Table, Version, patch};
use model_common::Bundle;
use rustix::process::Signal;
use shard_common::{
    Deployment, Load, Place, front_client, metric, plan, shard_tls, urls, wait_for, write_shards,
};
use tempfile::TempDir;

const TAKEN: &str = "hushtable_reloads_total{outcome=\"taken\"}";

fn unchanged(spec: ServerSpec) -> ServerSpec {
    spec
}

async fn connect(spec: &ClientSpec) -> ModelClient {
    ModelClient::connect(spec, &ModelPin::default()).await.unwrap()
}

/// Rows of both tables, a bag among them, of every part of the tables.
async fn check(client: &ModelClient, bundles: &[&Bundle], turn: u64) -> Version {
    let users = [turn * 977 % 3000];
    let cart = [turn * 31 % 1000, turn * 57 % 1000, turn * 91 % 1000];
    let friends = [turn * 701 % 3000, turn * 1409 % 3000];
    let asked: [(&str, &[u64]); 3] = [("user", &users), ("cart", &cart), ("friend", &friends)];
    let found = client.lookup(&asked).await.unwrap();
    let bundle = bundles.iter().find(|it| it.manifest.version() == found.version);
    bundle.expect("a version that was served").check(&asked, &found);
    found.version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_behind_a_front_answer_as_one_server_does() {
    let folder = TempDir::new().unwrap();
    let bundle = Bundle::first(folder.path());
    let map = plan(&bundle.path, 3);
    let deployment = Deployment::start(&bundle.path, 1, "", unchanged);
    deployment.ready().await;
    let client = connect(&deployment.client_spec()).await;
    for turn in 0..40 {
        check(&client, &[&bundle], turn).await;
    }
    // The tables alone, by rows and by the layout's bins.
    for table in &bundle.tables {
        let spec = ClientSpec { version: Some(table.version()), ..deployment.client_spec() };
        let client = LookupClient::connect(&spec).await.unwrap();
        for id in [0, 511, 512, table.rows() / 2, table.rows() - 1] {
            let id = id.min(table.rows() - 1);
            assert_eq!(client.lookup(&[id], 3).await.unwrap().rows, row(table, id), "row {id}");
            if table.layout().is_some() {
                let bag = client.fetch_bag(&[id]).await.unwrap();
                assert!(!bag.kept[0] || bag.rows == row(table, id), "row {id} of a bag");
            }
        }
    }
    // Each shard has a part alone, and was asked in every pass.
    let front = &deployment.sides[0].front;
    for shard in 0..map.shards().len() {
        let ok =
            format!("hushtable_front_shard_requests_total{{shard=\"{shard}\",outcome=\"ok\"}}");
        assert!(metric(front, &ok).await >= 40.0, "shard {shard}");
    }
    // What no front asks for is not there.
    let text = page(deployment.sides[0].shards[0][0].process.metrics_addr, "/metrics").await.1;
    assert!(text.contains("hushtable_passes_total"), "{text}");
}

/// Clients of whichever of `bundles` is served.
async fn load(spec: &ClientSpec, clients: u64, bundles: &'static [Bundle]) -> Load {
    let mut load = Load::new();
    for number in 0..clients {
        let client = Arc::new(connect(spec).await);
        load.ask(number * 1000, move |turn| {
            let client = Arc::clone(&client);
            async move {
                let ids = [turn * 977 % 3000];
                let asked: [(&str, &[u64]); 1] = [("user", &ids)];
                let found = client.lookup(&asked).await?;
                let of = bundles.iter().find(|it| it.manifest.version() == found.version);
                of.expect("a version that was served").check(&asked, &found);
                Ok(())
            }
        });
    }
    load
}

fn leaked(bundles: Vec<Bundle>) -> &'static [Bundle] {
    Box::leak(bundles.into_boxed_slice())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_costs_no_answer_and_comes_back_by_itself() {
    let folder = TempDir::new().unwrap();
    let bundles = leaked(vec![Bundle::first(folder.path())]);
    plan(&bundles[0].path, 2);
    let mut deployment = Deployment::start(&bundles[0].path, 2, "", unchanged);
    deployment.ready().await;
    for side in &deployment.sides {
        for shard in 0..2 {
            let ready = format!("hushtable_front_shard_replicas_ready{{shard=\"{shard}\"}}");
            wait_for(&side.front, &ready, 2.0).await;
        }
    }
    let load = load(&deployment.client_spec(), 64, bundles).await;
    load.wait(200).await;
    let folder = deployment.folder.path().to_owned();
    for (side, shard, replica) in [(0, 0, 0), (1, 1, 1)] {
        let place = &mut deployment.sides[side].shards[shard][replica];
        place.end(Signal::KILL);
        load.wait(200).await;
        place.again(&folder);
        let ready = format!("hushtable_front_shard_replicas_ready{{shard=\"{shard}\"}}");
        wait_for(&deployment.sides[side].front, &ready, 2.0).await;
        load.wait(100).await;
    }
    // One that hangs keeps its connection: it is left out too, before a lookup's time is over, and 2,000 lookups have
    // their answers beside it.
    let front = &deployment.sides[0].front;
    let hung = &deployment.sides[0].shards[1][0].process;
    hung.signal(Signal::STOP);
    load.wait(2000).await;
    let ready = "hushtable_front_shard_replicas_ready{shard=\"1\"}";
    until("it is left out", async || metric(front, ready).await == 1.0).await;
    load.wait(100).await;
    hung.signal(Signal::CONT);
    let right = load.end().await;
    println!("{right} answers under kills, 0 wrong, 0 failed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_nobody_has_is_refused_at_once_and_the_rest_goes_on() {
    let folder = TempDir::new().unwrap();
    let bundle = Bundle::first(folder.path());
    plan(&bundle.path, 2);
    // All that could be waited for takes an hour.
    let mut deployment = Deployment::start(&bundle.path, 1, "pass_ms_max = 3600000", unchanged);
    deployment.ready().await;
    let hour = Duration::from_secs(3600);
    let spec = ClientSpec { call_max: hour, lookup_max: hour, ..deployment.client_spec() };
    let client = connect(&spec).await;
    check(&client, &[&bundle], 1).await;
    deployment.sides[0].shards[1][0].end(Signal::KILL);
    for _ in 0..3 {
        let started = Instant::now();
        let error = client.lookup(&[("user", &[5])]).await.unwrap_err();
        assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
        let Error::Refused { refusal: Refusal::ShardAbsent { shard: 1, retry_after }, .. } = error
        else {
            panic!("{error:?}");
        };
        assert!(!retry_after.is_zero());
    }
    assert_eq!(page(deployment.sides[0].front.process.metrics_addr, "/livez").await.0, 200);
    assert!(
        metric(&deployment.sides[0].front, "hushtable_front_refused_absent_total").await >= 3.0
    );
    let home = deployment.folder.path().to_owned();
    deployment.sides[0].shards[1][0].again(&home);
    deployment.sides[0].shards[1][0].process.ready().await;
    until("it comes back", async || client.lookup(&[("user", &[5])]).await.is_ok()).await;
    check(&client, &[&bundle], 2).await;
}

/// Puts the next version where a server looks, whole.
fn arrive(watched: &Path, name: &str, model: &Path) {
    let staging = watched.join(format!(".{name}"));
    copy(model, &staging);
    std::fs::rename(staging, watched.join(name)).unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// The first model with some users' rows changed by a patch.
fn patched(folder: &Path, first: &Bundle) -> Bundle {
    let ids: Vec<u64> = (0..3000).step_by(97).collect();
    let rows: Vec<u8> = (0..ids.len() * 32).map(|at| (at * 7) as u8 & 0x3f).collect();
    let users = folder.join("users-patched");
    patch::patch(&Model::open(&first.path).unwrap().table_path(0), &ids, &rows, &users).unwrap();
    let table = Table::open(&users).unwrap();
    let path = folder.join("patched");
    let model = Model::open(&first.path).unwrap();
    let manifest = model.replace_table("users", &table, &path).unwrap();
    let tables = (0..2).map(|index| Model::open(&path).unwrap().table(index).unwrap());
    Bundle { tables: tables.collect(), path, manifest }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_changes_on_every_shard_before_clients_hear_of_it() {
    let folder = TempDir::new().unwrap();
    let first = Bundle::first(folder.path());
    let next = patched(folder.path(), &first);
    let third = Bundle::write(
        folder.path(),
        "clicks",
        30,
        &[("user", 0, 1), ("cart", 1, 32), ("friend", 0, 3)],
    );
    let bundles = leaked(vec![first, next, third]);
    bundles.iter().for_each(|bundle| drop(plan(&bundle.path, 4)));
    // Long enough for all of them to come.
    let deployment = Deployment::start(&bundles[0].path, 2, "change_s_max = 3600", unchanged);
    deployment.ready().await;
    let load = load(&deployment.client_spec(), 8, bundles).await;
    load.wait(100).await;
    for (number, next) in [(1usize, &bundles[1]), (2, &bundles[2])] {
        let name = format!("version-{number}");
        let taken = number as f64;
        // Fronts hear of it first, and wait.
        for side in ["left-front", "right-front"] {
            arrive(&deployment.watched(side), &name, &next.path);
        }
        let mut servers = deployment.names();
        let last = servers.pop().unwrap();
        for server in servers {
            arrive(&deployment.watched(&server), &name, &next.path);
            load.wait(20).await;
        }
        // One replica of the right side's last shard is missing: left has announced it, right waits a little.
        wait_for(&deployment.sides[0].front, TAKEN, taken).await;
        assert_eq!(metric(&deployment.sides[1].front, TAKEN).await, taken - 1.0);
        load.wait(20).await;
        arrive(&deployment.watched(&last), &name, &next.path);
        wait_for(&deployment.sides[1].front, TAKEN, taken).await;
        load.wait(50).await;
        let client = connect(&deployment.client_spec()).await;
        assert_eq!(check(&client, &[next], 3).await, next.manifest.version());
    }
    let right = load.end().await;
    println!("{right} answers over two changes of 4 shards x 2 servers, 0 wrong, 0 failed");
}

/// What a server that does not start says.
fn refused(folder: &Path, spec: &ServerSpec) -> String {
    refused_as("refused", folder, spec)
}

/// The same beside others, each of another name.
fn refused_as(name: &str, folder: &Path, spec: &ServerSpec) -> String {
    let file = folder.join(format!("{name}.json"));
    std::fs::write(&file, serde_json::to_vec(spec).unwrap()).unwrap();
    let output = std::process::Command::new(common::program()).arg(file).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_bad_map_and_role_is_named() {
    let folder = TempDir::new().unwrap();
    let bundle = Bundle::first(folder.path());
    let model = || ServerSpec { table: bundle.path.clone(), ..spec(Side::Left) };
    let shard = |number| ServerSpec { shard: Some(number), ..model() };
    let home = folder.path();
    assert!(refused(home, &shard(0)).contains("hushtable shard plan MODEL"));
    plan(&bundle.path, 2);
    assert!(refused(home, &shard(2)).contains("there is no shard 2: the map has 2"));
    let other = Bundle::second(folder.path());
    std::fs::copy(bundle.path.join("shards.json"), other.path.join("shards.json")).unwrap();
    let of_other = ServerSpec { table: other.path.clone(), ..shard(0) };
    let words = refused(home, &of_other);
    assert!(
        words.contains(&format!("the map is of version {}", bundle.manifest.version())),
        "{words}"
    );
    // A map with a hole, and one that was edited.
    let path = bundle.path.join("shards.json");
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, good.replacen("\"replicas\": 2", "\"replicas\": 3", 1)).unwrap();
    assert!(refused(home, &shard(0)).contains("checksum"));
    std::fs::write(&path, good).unwrap();
    // What is no model, and what is to be two things.
    let table = folder.path().join("films");
    common::table(1000, 4, 1).save(&table).unwrap();
    assert!(refused(home, &ServerSpec { table, ..shard(0) }).contains("one model's bundle"));
    let file = folder.path().join("shards.toml");
    let both = ServerSpec { shards_file: Some(file.clone()), ..shard(0) };
    assert!(refused(home, &both).contains("a server is one shard (--shard) or a front"));
    let front = ServerSpec { shards_file: Some(file.clone()), ..model() };
    assert!(refused(home, &front).contains("shards.toml"));
    std::fs::write(&file, "[[shard]]\nreplicas = [\"http://127.0.0.1:1\"]\n").unwrap();
    assert!(
        refused(home, &front).contains("names the servers of 1 shards, and the model's map has 2")
    );
    // Nobody is there.
    let servers = "[[shard]]\nreplicas = [\"http://127.0.0.1:1\"]\n[[shard]]\nreplicas = [\"http://127.0.0.1:2\"]\n";
    std::fs::write(&file, format!("start_s_max = 1\n{servers}")).unwrap();
    let words = refused(home, &front);
    for part in
        ["no server is ready for shard 0 (http://127.0.0.1:1", "shard 1 (http://127.0.0.1:2"]
    {
        assert!(words.contains(part), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_other_sides_shards_and_other_roles_are_refused() {
    let folder = TempDir::new().unwrap();
    let bundle = Bundle::first(folder.path());
    plan(&bundle.path, 2);
    let deployment = Deployment::start(&bundle.path, 1, "", unchanged);
    deployment.ready().await;
    let (home, ca) = (deployment.folder.path(), &deployment.ca);
    let of_right: Vec<Vec<String>> =
        deployment.sides[1].shards.iter().map(|places| urls(places)).collect();
    let of_left: Vec<Vec<String>> =
        deployment.sides[0].shards.iter().map(|places| urls(places)).collect();
    let front = |file: &Path| ServerSpec {
        table: bundle.path.clone(),
        shards_file: Some(file.to_owned()),
        ..spec(Side::Left)
    };
    let left = front_client(home, ca, Side::Left);
    // Each waits for its shards for as long: all do at once, long enough for each to have been asked.
    let start_max = "start_s_max = 8";
    let say = |name: &str, shards: &[Vec<String>], tls: &TlsSpec| {
        let file = home.join(format!("{name}.toml"));
        write_shards(&file, tls, shards, start_max);
        refused_as(name, home, &front(&file))
    };
    let say = &say;
    let certificate = ca.issue_client("someone").unwrap();
    // A front of the other side, a client of no role, and a shard's own certificate.
    let others = [
        ("other", front_client(home, ca, Side::Right)),
        ("client", shard_common::write_certificate(home, "client", &certificate)),
        ("shard", shard_tls(home, ca, Side::Left)),
    ];
    let swapped = [of_left[1].clone(), of_left[0].clone()];
    std::thread::scope(|scope| {
        // Left's front at right's shards: their certificates are for another side.
        let elsewhere = scope.spawn(|| say("elsewhere", &of_right, &left));
        // Shards in another order.
        let swapped = scope.spawn(|| say("swapped", &swapped, &left));
        let others = others.each_ref().map(|(name, tls)| scope.spawn(|| say(name, &of_left, tls)));
        let words = elsewhere.join().unwrap();
        assert!(words.contains("shard.left.hushtable.internal"), "{words}");
        let words = swapped.join().unwrap();
        assert!(words.contains("it is shard 1, not 0: put the servers in the order"), "{words}");
        for words in others {
            let words = words.join().unwrap();
            assert!(words.contains("no server is ready for shard 0"), "{words}");
            assert!(words.contains("https://"), "{words}");
        }
    });
    // Without TLS, a shard says itself of which side it is.
    let plain = ServerSpec { table: bundle.path.clone(), shard: Some(0), ..spec(Side::Right) };
    let plain = Process::start(home, "plain", &plain, &[]);
    plain.ready().await;
    let text = format!(
        "start_s_max = 60\n[[shard]]\nreplicas = [\"http://{}\"]\n[[shard]]\nreplicas = [\"http://127.0.0.1:1\"]\n",
        plain.addr
    );
    let file = home.join("plain.toml");
    std::fs::write(&file, text).unwrap();
    let front = front(&file);
    let words = refused(home, &front);
    assert!(words.contains("the two sides' shards must never meet"), "{words}");
    // All the while what runs goes on.
    let client = connect(&deployment.client_spec()).await;
    check(&client, &[&bundle], 9).await;
    // A client that takes a shard for a server is told what it is.
    let error = Server::open(ServerSpec {
        tls: None,
        insecure: false,
        addr: "0.0.0.0:0".parse().unwrap(),
        ..front
    })
    .err()
    .map(|error| error.to_string());
    assert!(error.is_some_and(|words| words.contains("reachable from other machines")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_front_goes_by_a_new_file_without_a_restart() {
    let folder = TempDir::new().unwrap();
    let bundle = Bundle::first(folder.path());
    plan(&bundle.path, 2);
    let deployment = Deployment::start(&bundle.path, 1, "", unchanged);
    deployment.ready().await;
    let side = &deployment.sides[0];
    let home = deployment.folder.path();
    // One more server of shard 1, at an address that the front did not know.
    let more = Place::start(
        home,
        "left-1-1",
        ServerSpec {
            addr: reserve(),
            metrics_addr: Some(reserve()),
            ..side.shards[1][0].spec.clone()
        },
    );
    more.process.ready().await;
    let mut shards: Vec<Vec<String>> = side.shards.iter().map(|places| urls(places)).collect();
    shards[1].push(format!("https://{}", more.process.addr));
    let front = front_client(home, &deployment.ca, Side::Left);
    write_shards(&home.join("shards-left.toml"), &front, &shards, "");
    wait_for(&side.front, "hushtable_front_shard_replicas_ready{shard=\"1\"}", 2.0).await;
    // A file that makes no sense changes nothing.
    std::fs::write(home.join("shards-left.toml"), "[[shard]\n").unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let client = connect(&deployment.client_spec()).await;
    for turn in 0..20 {
        check(&client, &[&bundle], turn).await;
    }
    assert!(metric(&more, "hushtable_model_passes_total").await == 0.0);
    let passes = page(more.process.metrics_addr, "/metrics").await.1;
    let asked = passes.lines().filter(|line| line.starts_with("hushtable_passes_total"));
    let asked: f64 = asked.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    assert!(asked > 0.0, "the new server shares the work");
}
