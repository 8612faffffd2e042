//! Servers that change to other versions of what they hold while clients ask: nothing fails, nothing is wrong.

use crate::common;
use crate::model_common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{Certificates, PATIENCE, Process, metric_of, network, page, row, spec, table, until};
use hushtable_pir::dpf::Side;
use hushtable_serve::certificate::{CertificatePem, LocalCa};
use hushtable_serve::host::PushRefusal;
use hushtable_serve::{
    ChangeSpec, ClientSpec, EndpointSpec, Error, LookupClient, ModelClient, ModelPin, OnionClient,
    OnionClientSpec, OnionServerSpec, ServerSpec, push,
};
use hushtable_table::{Table, Version, patch};
use model_common::Bundle;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::task::JoinSet;

const ROWS: u64 = 500;
/// So many that a few hundred changed ones lie over them.
const LARGE_ROWS: u64 = 50_000;
const DIM: usize = 4;
const DAY_S: f64 = 24.0 * 3600.0;
const TAKEN: &str = "hushtable_reloads_total{outcome=\"taken\"}";
const REFUSED: &str = "hushtable_reloads_total{outcome=\"refused\"}";

/// Two servers over TLS, each of a bundle of its own.
struct Servers {
    folder: TempDir,
    certificates: Certificates,
    left: Process,
    right: Process,
}

impl Servers {
    fn start(first: &Table, change: impl Fn(ServerSpec) -> ServerSpec) -> Self {
        Self::start_with(|bundle| first.save(bundle).unwrap(), change)
    }

    /// Servers of what `write` puts at a path.
    fn start_with(write: impl Fn(&Path), change: impl Fn(ServerSpec) -> ServerSpec) -> Self {
        let (folder, certificates) = (TempDir::new().unwrap(), Certificates::new());
        let [left, right] = Side::BOTH.map(|side| {
            let bundle = folder.path().join(side.name());
            write(&bundle);
            let spec = ServerSpec {
                table: bundle,
                tls: Some(certificates.tls()),
                // Longer than all clients together ask for nothing.
                change: ChangeSpec { keep_old_s: 2, ..ChangeSpec::default() },
                ..spec(side)
            };
            Process::start(folder.path(), &side.to_string(), &change(spec), &[])
        });
        Self { folder, certificates, left, right }
    }

    fn server(&self, side: Side) -> &Process {
        match side {
            Side::Left => &self.left,
            Side::Right => &self.right,
        }
    }

    fn bundle(&self, side: Side) -> PathBuf {
        self.folder.path().join(side.name())
    }

    fn client_spec(&self) -> ClientSpec {
        let [left, right] = Side::BOTH.map(|side| self.server(side)).map(|server| {
            let url = format!("https://{}", server.addr);
            EndpointSpec::new(url, Some(self.certificates.ca_pem()))
        });
        ClientSpec::new(left, right)
    }

    async fn metric(&self, side: Side, name: &str) -> f64 {
        metric_of(&page(self.server(side).metrics_addr, "/metrics").await.1, name)
    }

    /// Waits until a metric has a value; all the while the server is ready.
    async fn wait(&self, side: Side, name: &str, value: f64) {
        let is_so = async || {
            assert_eq!(page(self.server(side).metrics_addr, "/readyz").await.0, 200);
            self.metric(side, name).await == value
        };
        until(&format!("{side}: {name} is {value}"), is_so).await;
    }

    /// Has one server take the next version, by SIGHUP.
    async fn change(&self, side: Side, next: &Table, taken: f64) {
        next.save(&self.bundle(side)).unwrap();
        self.reload(side, taken).await;
    }

    /// Has one server take what lies at its path now.
    async fn reload(&self, side: Side, taken: f64) {
        self.server(side).signal(Signal::HUP);
        self.wait(side, TAKEN, taken).await;
    }
}

/// What many clients fetched, by the version that each answer says.
#[derive(Default)]
struct Fetched {
    lookups: BTreeMap<String, usize>,
    failed: Vec<Error>,
}

/// How much clients have fetched while they go on: of each one, by the version.
#[derive(Clone)]
struct Progress(Arc<Mutex<Vec<BTreeMap<String, usize>>>>);

impl Progress {
    fn new(clients: u64) -> Self {
        Self(Arc::new(Mutex::new(vec![BTreeMap::new(); clients as usize])))
    }

    fn note(&self, client: u64, version: &str) {
        let mut clients = self.0.lock().unwrap();
        *clients[client as usize].entry(version.to_owned()).or_default() += 1;
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().iter().flat_map(BTreeMap::values).sum()
    }

    /// Waits for so many more answers.
    async fn wait(&self, more: usize) {
        let from = self.count();
        until(&format!("{more} more answers"), async || self.count() >= from + more).await;
    }

    /// Waits until each client has fetched so much of a version.
    async fn reach(&self, version: &str, each: usize) {
        let has_it = |client: &BTreeMap<String, usize>| client.get(version) >= Some(&each);
        let is_so = async || self.0.lock().unwrap().iter().all(has_it);
        until(&format!("all clients have {version}"), is_so).await;
    }
}

/// Looks rows up until told to stop; every row is that of the version that the answer says.
async fn load(
    spec: ClientSpec,
    tables: Arc<BTreeMap<String, Table>>,
    stop: Arc<AtomicBool>,
    progress: Progress,
    number: u64,
) -> Fetched {
    let mut fetched = Fetched::default();
    let mut client = LookupClient::connect(&spec).await.unwrap();
    let mut turn = number;
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        // Some clients come and go in the middle of the change.
        if number.is_multiple_of(4) && turn.is_multiple_of(8) {
            match LookupClient::connect(&spec).await {
                Ok(new) => client = new,
                Err(error) => fetched.failed.push(error),
            }
        }
        let ids = [turn * 31 % ROWS, turn * 17 % ROWS];
        match client.lookup(&ids, 4).await {
            Ok(found) => {
                let version = found.stats.version.to_string();
                let table = &tables[&version];
                let expected = ids.map(|id| row(table, id)).concat();
                assert_eq!(found.rows, expected, "rows of another version than {version}");
                progress.note(number, &version);
                *fetched.lookups.entry(version).or_default() += 1;
            }
            Err(error) => {
                fetched.failed.push(error);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    fetched
}

fn tables(count: u64) -> (Vec<Table>, Arc<BTreeMap<String, Table>>) {
    let make = |seed| table(ROWS, DIM, seed);
    let by_version = (1..=count).map(|seed| (make(seed).version().to_string(), make(seed)));
    ((1..=count).map(make).collect(), Arc::new(by_version.collect()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_change_under_load_fails_nothing_and_mixes_nothing() {
    let (versions, by_version) = tables(4);
    let servers = Servers::start(&versions[0], |spec| spec);
    for side in Side::BOTH {
        servers.server(side).ready().await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    let progress = Progress::new(12);
    for number in 0..12 {
        let (spec, tables) = (servers.client_spec(), Arc::clone(&by_version));
        clients.spawn(load(spec, tables, Arc::clone(&stop), progress.clone(), number));
    }
    progress.reach(&versions[0].version().to_string(), 10).await;
    for (i, next) in versions.iter().enumerate().skip(1) {
        // Left first, then right first.
        let order = if i % 2 == 1 { Side::BOTH } else { [Side::Right, Side::Left] };
        for side in order {
            servers.change(side, next, i as f64).await;
            progress.wait(300).await;
        }
        // Everybody sees it.
        progress.reach(&next.version().to_string(), 10).await;
        // Everybody has gone on, so the older one goes, and one version's memory is held.
        let one = (ROWS as usize * DIM * 4) as f64;
        for side in Side::BOTH {
            servers.wait(side, "hushtable_table_versions", 1.0).await;
            assert!(servers.metric(side, "hushtable_table_held_bytes").await < 2.0 * one);
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut all = BTreeMap::<String, usize>::new();
    while let Some(fetched) = clients.join_next().await {
        let Fetched { lookups, failed } = fetched.unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        // Each has seen the last version.
        assert!(lookups.contains_key(&versions[3].version().to_string()), "{lookups:?}");
        for (version, count) in lookups {
            *all.entry(version).or_default() += count;
        }
    }
    assert_eq!(all.len(), 4, "{all:?}");
    println!("lookups by version: {all:?}");
}

/// Looks whole inferences up until told to stop, with a table's bags and rows between; everything is of the version
/// that the answer says.
async fn model_load(
    spec: ClientSpec,
    versions: Arc<Vec<Bundle>>,
    stop: Arc<AtomicBool>,
    progress: Progress,
    number: u64,
) -> Result<BTreeMap<String, usize>, Error> {
    let client = ModelClient::connect(&spec, &ModelPin::default()).await?;
    let (users, items) = (client.table("user")?, client.table("cart")?);
    let (mut turn, mut found_of) = (number, BTreeMap::<String, usize>::new());
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        let (user, cart) = ([turn * 31 % 3000], [turn * 17 % 1000, turn * 7 % 1000]);
        let asked: [(&str, &[u64]); 2] = [("cart", &cart), ("user", &user)];
        let found = client.lookup(&asked).await?;
        let of_it = |bundle: &&Bundle| bundle.manifest.version() == found.version;
        versions.iter().find(of_it).unwrap().check(&asked, &found);
        *found_of.entry(found.version.to_string()).or_default() += 1;

        let table_of = |version: Version, table: usize| {
            let tables = versions.iter().map(|bundle| &bundle.tables[table]);
            tables.into_iter().find(|it| it.version() == version).unwrap()
        };
        let rows = users.lookup(&user, 1).await?;
        assert_eq!(rows.rows, row(table_of(rows.stats.version, 0), user[0]));
        let bag = items.fetch_bag(&cart).await?;
        let table = table_of(bag.stats.version, 1);
        for ((id, found), kept) in
            cart.into_iter().zip(bag.rows.chunks_exact(table.row_bytes())).zip(&bag.kept)
        {
            assert!(!kept || found == row(table, id), "a row of another version");
        }
        progress.note(number, &found.version.to_string());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(found_of)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_with_a_layout_changes_under_load() {
    let folder = TempDir::new().unwrap();
    // Other rows, other features in another order, and a layout of its own; then the first features again, so that
    // a client's plan of a request is made anew in both directions.
    let third = Bundle::write(folder.path(), "clicks", 30, &[("user", 0, 1), ("cart", 1, 32)]);
    let versions = vec![Bundle::first(folder.path()), Bundle::second(folder.path()), third];
    let versions = Arc::new(versions);
    let servers = Servers::start_with(|link| lead_to(link, &versions[0].path), |spec| spec);
    for side in Side::BOTH {
        servers.server(side).ready().await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    let progress = Progress::new(6);
    for number in 0..6 {
        let (spec, versions) = (servers.client_spec(), Arc::clone(&versions));
        clients.spawn(model_load(spec, versions, Arc::clone(&stop), progress.clone(), number));
    }
    progress.reach(&versions[0].manifest.version().to_string(), 5).await;
    for (i, next) in versions.iter().enumerate().skip(1) {
        let order = if i % 2 == 1 { Side::BOTH } else { [Side::Right, Side::Left] };
        for side in order {
            lead_to(&servers.bundle(side), &next.path);
            servers.reload(side, i as f64).await;
            progress.wait(100).await;
        }
        progress.reach(&next.manifest.version().to_string(), 5).await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(found) = clients.join_next().await {
        let found = found.unwrap().unwrap();
        assert!(found.contains_key(&versions[2].manifest.version().to_string()), "{found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_killed_in_the_middle_of_a_change_comes_back_with_either_version() {
    let (versions, by_version) = tables(2);
    let mut servers = Servers::start(&versions[0], |spec| spec);
    for side in Side::BOTH {
        servers.server(side).ready().await;
    }
    let addr = servers.right.addr;
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    let progress = Progress::new(6);
    for number in 0..6 {
        let (spec, tables) = (servers.client_spec(), Arc::clone(&by_version));
        clients.spawn(load(spec, tables, Arc::clone(&stop), progress.clone(), number));
    }
    // Clients come while there are two servers.
    progress.reach(&versions[0].version().to_string(), 1).await;
    servers.change(Side::Left, &versions[1], 1.0).await;
    // The other one dies while it takes the next version, and is started again at the same address.
    versions[1].save(&servers.bundle(Side::Right)).unwrap();
    servers.right.signal(Signal::HUP);
    servers.right.signal(Signal::KILL);
    servers.right.wait();
    let spec = ServerSpec {
        table: servers.bundle(Side::Right),
        tls: Some(servers.certificates.tls()),
        addr,
        ..spec(Side::Right)
    };
    servers.right = Process::start(servers.folder.path(), "again", &spec, &[]);
    servers.right.ready().await;
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    assert_eq!(client.info().version, versions[1].version());
    progress.reach(&versions[1].version().to_string(), 10).await;
    stop.store(true, Ordering::Relaxed);
    while let Some(fetched) = clients.join_next().await {
        let Fetched { lookups, failed } = fetched.unwrap();
        assert!(lookups.contains_key(&versions[1].version().to_string()), "{lookups:?}");
        let is_of_the_dead = |error: &Error| matches!(error, Error::Unavailable { .. });
        assert!(failed.iter().all(is_of_the_dead), "{failed:?}");
    }
}

/// Two patches of a table, one after the other: the bundle that was built whole, and those that come of it.
fn patched(folder: &Path) -> Vec<PathBuf> {
    let bundles = ["whole", "first", "second"].map(|name| folder.join(name));
    table(LARGE_ROWS, DIM, 1).save(&bundles[0]).unwrap();
    for turn in 1..bundles.len() {
        // Some rows change in both turns.
        let ids: Vec<u64> = (0..ROWS).step_by(4 + turn).collect();
        let rows: Vec<u8> = (0..ids.len() * DIM * 4).map(|i| (i * 7 + turn) as u8).collect();
        patch::patch(&bundles[turn - 1], &ids, &rows, &bundles[turn]).unwrap();
    }
    bundles.to_vec()
}

/// Has `link` lead to a bundle, in one step.
fn lead_to(link: &Path, bundle: &Path) {
    let new = link.with_extension("new");
    std::os::unix::fs::symlink(bundle, &new).unwrap();
    std::fs::rename(new, link).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_and_a_patched_server_never_mix() {
    let folder = TempDir::new().unwrap();
    let bundles = patched(folder.path());
    let versions: Vec<Version> =
        bundles.iter().map(|it| Table::open(it).unwrap().version()).collect();
    let by_version = bundles.iter().map(|it| {
        let table = Table::open(it).unwrap();
        (table.version().to_string(), table)
    });
    let by_version: Arc<BTreeMap<_, _>> = Arc::new(by_version.collect());
    let shape = hushtable_pir::TableShape::new(LARGE_ROWS, DIM * 4).unwrap();
    let whole = hushtable_pir::CpuEngine::stored_bytes(shape);
    // There is no room for two tables: a next version that was loaded whole would be refused.
    let servers = Servers::start_with(
        |link| lead_to(link, &bundles[0]),
        |spec| ServerSpec { tables_bytes_max: Some(whole * 3 / 2), ..spec },
    );
    for side in Side::BOTH {
        servers.server(side).ready().await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    let progress = Progress::new(8);
    for number in 0..8 {
        let (spec, tables) = (servers.client_spec(), Arc::clone(&by_version));
        clients.spawn(load(spec, tables, Arc::clone(&stop), progress.clone(), number));
    }
    progress.reach(&versions[0].to_string(), 1).await;
    let held = async |side| servers.metric(side, "hushtable_table_held_bytes").await as u64;
    for turn in 1..bundles.len() {
        let order = if turn % 2 == 1 { Side::BOTH } else { [Side::Right, Side::Left] };
        lead_to(&servers.bundle(order[0]), &bundles[turn]);
        servers.reload(order[0], turn as f64).await;
        // One server is patched and the other is not: new clients and old ones read what both have.
        progress.wait(200).await;
        assert_eq!(version_of(&servers.client_spec()).await, versions[turn - 1]);
        lead_to(&servers.bundle(order[1]), &bundles[turn]);
        servers.reload(order[1], turn as f64).await;
        assert_eq!(version_of(&servers.client_spec()).await, versions[turn]);
        progress.reach(&versions[turn].to_string(), 1).await;
        for side in Side::BOTH {
            // The rows below are counted for as long as they are held: with the version that they are of, and
            // without.
            servers.wait(side, "hushtable_table_versions", 1.0).await;
            let found = held(side).await;
            assert!(found > whole && found < whole * 11 / 10, "{found} bytes of {whole}");
        }
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(fetched) = clients.join_next().await {
        let Fetched { lookups, failed } = fetched.unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        assert!(lookups.contains_key(&versions[2].to_string()), "{lookups:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_that_is_not_what_it_says_is_refused() {
    let folder = TempDir::new().unwrap();
    let bundles = patched(folder.path());
    let servers = Servers::start_with(|link| lead_to(link, &bundles[0]), |spec| spec);
    for side in Side::BOTH {
        servers.server(side).ready().await;
    }
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    // The patch, and the hashes below that the next version is computed from.
    for (turn, name) in [(1.0, "rows.patch"), (2.0, "rows.tree")] {
        let file = bundles[1].join(name);
        let right = std::fs::read(&file).unwrap();
        let mut wrong = right.clone();
        wrong[64..].iter_mut().for_each(|byte| *byte ^= 1);
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, &wrong).unwrap();
        lead_to(&servers.bundle(Side::Left), &bundles[1]);
        servers.left.signal(Signal::HUP);
        servers.wait(Side::Left, REFUSED, turn).await;
        assert_eq!(version_of(&servers.client_spec()).await, client.info().version);
        std::fs::write(&file, &right).unwrap();
    }
    servers.reload(Side::Left, 1.0).await;
}

/// The version that a new client gets.
async fn version_of(spec: &ClientSpec) -> Version {
    LookupClient::connect(spec).await.unwrap().info().version
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_or_open_is_refused_and_the_last_goes_on() {
    let first = table(ROWS, DIM, 1);
    // Room for one and a half.
    let bytes_max = hushtable_pir::CpuEngine::stored_bytes(
        hushtable_pir::TableShape::new(ROWS, first.row_bytes()).unwrap(),
    ) * 3
        / 2;
    let servers =
        Servers::start(&first, |spec| ServerSpec { tables_bytes_max: Some(bytes_max), ..spec });
    for side in Side::BOTH {
        servers.server(side).ready().await;
    }
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    let next = table(ROWS, DIM, 2);
    next.save(&servers.bundle(Side::Left)).unwrap();
    servers.left.signal(Signal::HUP);
    servers.wait(Side::Left, REFUSED, 1.0).await;
    assert_eq!(client.lookup(&[7], 1).await.unwrap().rows, row(&first, 7));

    // A bundle that is cut short.
    let rows = servers.bundle(Side::Left).join("rows.safetensors");
    let file = std::fs::OpenOptions::new().write(true).open(&rows).unwrap();
    file.set_len(100).unwrap();
    servers.left.signal(Signal::HUP);
    servers.wait(Side::Left, REFUSED, 2.0).await;
    assert_eq!(client.lookup(&[8], 1).await.unwrap().rows, row(&first, 8));

    // The same again is nothing new.
    servers.right.signal(Signal::HUP);
    servers.wait(Side::Right, "hushtable_reloads_total{outcome=\"unchanged\"}", 1.0).await;
    assert_eq!(version_of(&servers.client_spec()).await, first.version());
}

/// Puts a bundle into a watched folder, whole.
fn arrive(watched: &Path, name: &str, next: &Table) {
    let staging = watched.join(format!(".{name}"));
    next.save(&staging).unwrap();
    std::fs::rename(staging, watched.join(name)).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_that_comes_into_a_watched_folder_is_served() {
    let (first, next) = (table(ROWS, DIM, 1), table(ROWS, DIM, 2));
    let watched = TempDir::new().unwrap();
    let servers = Servers::start(&first, |spec| {
        let watch = Some(watched.path().to_owned());
        ServerSpec { change: ChangeSpec { watch, ..spec.change.clone() }, ..spec }
    });
    for side in Side::BOTH {
        servers.server(side).ready().await;
    }
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    assert_eq!(client.info().version, first.version());
    arrive(watched.path(), "second", &next);
    for side in Side::BOTH {
        servers.wait(side, TAKEN, 1.0).await;
    }
    // An answer says that there is something newer; the lookup after it asks what.
    until("it asks for the new one", async || {
        let found = client.lookup(&[3], 1).await.unwrap();
        let expected = if found.stats.version == next.version() { &next } else { &first };
        assert_eq!(found.rows, row(expected, 3));
        client.info().version == next.version()
    })
    .await;
    assert_eq!(client.lookup(&[3], 1).await.unwrap().rows, row(&next, 3));

    // A table that is not served here is none for it.
    let other =
        Table::from_weight("books", 10, 1, hushtable_table::DType::F32, &[0.5; 10]).unwrap();
    arrive(watched.path(), "third", &other);
    servers.wait(Side::Left, REFUSED, 1.0).await;
    assert_eq!(version_of(&servers.client_spec()).await, next.version());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_connections_get_the_certificate_that_is_in_the_files_now() {
    let first = table(ROWS, DIM, 1);
    let servers = Servers::start(&first, |spec| spec);
    for side in Side::BOTH {
        servers.server(side).ready().await;
    }
    let before = LookupClient::connect(&servers.client_spec()).await.unwrap();
    let old_spec = servers.client_spec();

    // Nothing is told: the files are watched.
    let renewed = Certificates::new();
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(renewed.path(name), servers.certificates.path(name)).unwrap();
    }
    let name = "hushtable_reloads_total{outcome=\"certificate\"}";
    for side in Side::BOTH {
        servers.wait(side, name, 1.0).await;
    }
    let ca = renewed.ca_pem();
    let mut new_spec = servers.client_spec();
    for side in [&mut new_spec.left, &mut new_spec.right] {
        side.ca_pem = Some(ca.clone());
    }
    let after = LookupClient::connect(&new_spec).await.unwrap();
    assert_eq!(after.lookup(&[1], 1).await.unwrap().rows, row(&first, 1));
    assert!(LookupClient::connect(&old_spec).await.is_err(), "the old certificate is still shown");
    assert_eq!(before.lookup(&[2], 1).await.unwrap().rows, row(&first, 2), "it goes on");

    // Files that are no certificate change nothing.
    std::fs::write(servers.certificates.path("cert.pem"), "broken").unwrap();
    servers.left.signal(Signal::HUP);
    let name = "hushtable_reloads_total{outcome=\"certificate_refused\"}";
    servers.wait(Side::Left, name, 1.0).await;
    let again = LookupClient::connect(&new_spec).await.unwrap();
    assert_eq!(again.lookup(&[3], 1).await.unwrap().rows, row(&first, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_says_when_its_certificate_expires_and_takes_none_that_has() {
    let first = table(ROWS, DIM, 1);
    let servers = Servers::start(&first, |spec| spec);
    servers.left.ready().await;
    let name = "hushtable_tls_certificate_expiry_timestamp_seconds";
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let year = servers.metric(Side::Left, name).await - now;
    assert!((364.0 * DAY_S..=365.0 * DAY_S).contains(&year), "{year} s");

    let authority = LocalCa::new().unwrap();
    let renew = |pem: CertificatePem| {
        std::fs::write(servers.certificates.path("cert.pem"), pem.cert).unwrap();
        std::fs::write(servers.certificates.path("key.pem"), pem.key).unwrap();
        servers.left.signal(Signal::HUP);
    };
    let soon = authority.valid_for(Duration::from_secs(3600));
    renew(soon.issue_server(&["127.0.0.1"]).unwrap());
    servers.wait(Side::Left, "hushtable_reloads_total{outcome=\"certificate\"}", 1.0).await;
    let hour = servers.metric(Side::Left, name).await - now;
    assert!((3500.0..3700.0).contains(&hour), "{hour} s");

    let over = soon.valid_for(Duration::from_secs(0)).issue_server(&["127.0.0.1"]).unwrap();
    // Certificates have whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    renew(over);
    let refused = "hushtable_reloads_total{outcome=\"certificate_refused\"}";
    servers.wait(Side::Left, refused, 1.0).await;
    assert_eq!(servers.metric(Side::Left, name).await - now, hour, "the last one goes on");
}

/// What a process has of memory that it wrote to itself, wherever the machine keeps it: rows are mapped, which no
/// allocator counts.
fn written_bytes(server: &Process) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let kib = |name: &str| -> f64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    (kib("RssAnon:") + kib("VmSwap:")) * 1024.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_of_a_version_is_given_back() {
    // 64 MiB of rows.
    let make = |seed| table(1 << 18, 64, seed);
    let first = make(1);
    let stored = (first.rows() * first.row_bytes() as u64) as f64;
    let servers = Servers::start(&first, |spec| spec);
    for side in Side::BOTH {
        servers.server(side).ready().await;
    }
    let before = written_bytes(&servers.left);
    assert!(before > stored, "{before} bytes for {stored} of rows");
    servers.change(Side::Left, &make(2), 1.0).await;
    servers.wait(Side::Left, "hushtable_table_versions", 1.0).await;
    let is_so = async || written_bytes(&servers.left) < before + stored / 2.0;
    until("the memory is given back", is_so).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_pushes_the_next_version() {
    let (first, next) = (table(ROWS, DIM, 1), table(ROWS, DIM, 2));
    let pushes = Side::BOTH.map(|_| TempDir::new().unwrap());
    let token = "0123456789abcdef-token";
    let file = pushes[0].path().join(".token");
    std::fs::write(&file, token).unwrap();
    let servers = Servers::start(&first, |spec| {
        let push_folder = Some(pushes[usize::from(spec.side == Side::Right)].path().to_owned());
        let push_token_file = Some(file.clone());
        let change = ChangeSpec { push_folder, push_token_file, ..spec.change.clone() };
        ServerSpec { change, ..spec }
    });
    for side in Side::BOTH {
        servers.server(side).ready().await;
    }
    let bundle = servers.folder.path().join("next");
    next.save(&bundle).unwrap();
    let [left, right] = {
        let spec = servers.client_spec();
        [spec.left, spec.right]
    };
    let wait = PATIENCE;
    let names = |folder: &TempDir| -> Vec<String> {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != ".token").collect()
    };

    // Not without the token, and nothing is left of what is refused.
    let error = push(&left, "0123456789abcdef-other", &bundle, wait).await.unwrap_err();
    assert_eq!(error.refused(), Some(&PushRefusal::PushToken), "{error:?}");
    let damaged = servers.folder.path().join("damaged");
    next.save(&damaged).unwrap();
    let mut bytes = std::fs::read(damaged.join("rows.safetensors")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(damaged.join("rows.safetensors"), bytes).unwrap();
    let error = push(&left, token, &damaged, wait).await.unwrap_err();
    assert!(error.to_string().contains("row 499 is damaged"), "{error}");
    let other = servers.folder.path().join("other");
    Table::from_weight("books", 10, 1, hushtable_table::DType::F32, &[0.5; 10])
        .unwrap()
        .save(&other)
        .unwrap();
    let error = push(&left, token, &other, wait).await.unwrap_err();
    assert!(error.to_string().contains("serves no table called"), "{error}");
    assert!(names(&pushes[0]).is_empty(), "{:?}", names(&pushes[0]));
    assert_eq!(version_of(&servers.client_spec()).await, first.version());

    assert!(push(&left, token, &bundle, wait).await.unwrap());
    assert_eq!(version_of(&servers.client_spec()).await, first.version());
    assert!(push(&right, token, &bundle, wait).await.unwrap());
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    assert_eq!(client.info().version, next.version());
    assert_eq!(client.lookup(&[11], 1).await.unwrap().rows, row(&next, 11));
    assert_eq!(names(&pushes[1]).len(), 1);
    // The same again is nothing new.
    assert!(!push(&right, token, &bundle, wait).await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_server_changes_under_load() {
    let (versions, by_version) = tables(2);
    let folder = TempDir::new().unwrap();
    let bundle = folder.path().join("films");
    versions[0].save(&bundle).unwrap();
    let spec = OnionServerSpec {
        table: bundle.clone(),
        network: network(),
        threads: 1,
        change: ChangeSpec { keep_old_s: 2, ..ChangeSpec::default() },
        ..OnionServerSpec::new("")
    };
    let server = Process::start(folder.path(), "single", &spec, &["onion"]);
    server.ready().await;
    let client_spec = OnionClientSpec::new(EndpointSpec::new(server.url(), None));
    let client = OnionClient::connect(&client_spec).await.unwrap();
    assert_eq!(client.lookup(&[3], 1).await.unwrap().rows, row(&versions[0], 3));
    let progress = Progress::new(4);
    let mut clients = JoinSet::new();
    for number in 0..4 {
        let progress = progress.clone();
        let (spec, tables) = (client_spec.clone(), Arc::clone(&by_version));
        let last = versions[1].version();
        clients.spawn(async move {
            let client = OnionClient::connect(&spec).await.unwrap();
            while client.info().version != last {
                let found = client.lookup(&[number], 1).await.unwrap();
                let version = found.stats.version.to_string();
                assert_eq!(found.rows, row(&tables[&version], number));
                progress.note(number, &version);
            }
            client.lookup(&[number], 1).await.unwrap().rows
        });
    }
    progress.reach(&versions[0].version().to_string(), 1).await;
    versions[1].save(&bundle).unwrap();
    server.signal(Signal::HUP);
    while let Some(found) = clients.join_next().await {
        let found = found.unwrap();
        assert!((0..4).any(|id| found == row(&versions[1], id)));
    }
    while client.info().version != versions[1].version() {
        client.lookup(&[5], 1).await.unwrap();
    }
    assert_eq!(client.lookup(&[5], 1).await.unwrap().rows, row(&versions[1], 5));
    let held = async || {
        let text = page(server.metrics_addr, "/metrics").await.1;
        metric_of(&text, "hushtable_table_versions")
    };
    until("the old one is gone", async || held().await == 1.0).await;
}
