//! Both sides of a sharded model as processes: shards, their replicas, a front a side; over TLS, each with the
//! certificate of its role.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hushtable_pir::dpf::Side;
use hushtable_serve::certificate::{CertificatePem, LocalCa};
use hushtable_serve::{ChangeSpec, ClientSpec, EndpointSpec, Error, Owner, ServerSpec, TlsSpec};
use hushtable_table::model::{Model, ShardMap, ShardMapSpec};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::common::{Process, page, spec, until};

/// Writes a map of so many shards into a model's bundle.
pub fn plan(model: &Path, shards: usize) -> ShardMap {
    let model = Model::open(model).unwrap();
    let spec = ShardMapSpec { shards: Some(shards), ..ShardMapSpec::default() };
    let map = ShardMap::plan(&model, &spec).unwrap();
    map.write(&model).unwrap();
    map
}

/// One of the servers, at an address that it keeps.
pub struct Place {
    pub name: String,
    pub spec: ServerSpec,
    pub process: Process,
}

impl Place {
    pub fn start(folder: &Path, name: &str, spec: ServerSpec) -> Self {
        let process = Process::start(folder, name, &spec, &[]);
        let spec = ServerSpec { addr: process.addr, ..spec };
        Self { name: name.into(), spec, process }
    }

    /// Ends it by a signal.
    pub fn end(&mut self, signal: Signal) {
        self.process.signal(signal);
        self.process.wait();
    }

    /// Starts it again where it was.
    pub fn again(&mut self, folder: &Path) {
        self.process = Process::start(folder, &self.name, &self.spec, &[]);
    }
}

/// One side.
pub struct SidePlaces {
    pub side: Side,
    /// Of each shard, its servers.
    pub shards: Vec<Vec<Place>>,
    pub front: Place,
}

/// Both sides.
pub struct Deployment {
    pub folder: TempDir,
    pub ca: LocalCa,
    pub sides: Vec<SidePlaces>,
}

pub fn write_certificate(folder: &Path, name: &str, pem: &CertificatePem) -> TlsSpec {
    let (cert, key) =
        (folder.join(format!("{name}.cert.pem")), folder.join(format!("{name}.key.pem")));
    std::fs::write(&cert, &pem.cert).unwrap();
    std::fs::write(&key, &pem.key).unwrap();
    TlsSpec { cert, key, client_ca: Some(folder.join("ca.pem")), client_name: None, peer_ca: None }
}

/// What a shard's server shows: a name of its side.
pub fn shard_tls(folder: &Path, ca: &LocalCa, owner: impl Into<Owner>) -> TlsSpec {
    let owner = owner.into();
    let role = format!("shard.{owner}.hushtable.internal");
    let pem = ca.issue_server(&["localhost", "127.0.0.1", &role]).unwrap();
    write_certificate(folder, &format!("shard-{owner}"), &pem)
}

/// What a front shows its shards.
pub fn front_client(folder: &Path, ca: &LocalCa, owner: impl Into<Owner>) -> TlsSpec {
    let owner = owner.into();
    let pem = ca.issue_client(&format!("front.{owner}.hushtable.internal")).unwrap();
    write_certificate(folder, &format!("front-client-{owner}"), &pem)
}

/// `shards.toml` of a front.
pub fn write_shards(path: &Path, front: &TlsSpec, shards: &[Vec<String>], head: &str) {
    let mut text = format!(
        "ca = \"{}\"\ncert = \"{}\"\nkey = \"{}\"\n{head}\n",
        front.client_ca.as_ref().unwrap().display(),
        front.cert.display(),
        front.key.display()
    );
    for replicas in shards {
        text += &format!("[[shard]]\nreplicas = {replicas:?}\n");
    }
    // In one step, as it is read while it is replaced.
    let staging = path.with_extension("next");
    std::fs::write(&staging, text).unwrap();
    std::fs::rename(staging, path).unwrap();
}

impl Deployment {
    /// Starts `shards` shards of the model at `model` with `replicas` servers each, on both sides, and their fronts.
    /// Each watches `folder/watched-NAME` for its next versions.
    pub fn start(
        model: &Path,
        replicas: usize,
        head: &str,
        change: impl Fn(ServerSpec) -> ServerSpec,
    ) -> Self {
        let folder = TempDir::new().unwrap();
        let ca = LocalCa::new().unwrap();
        std::fs::write(folder.path().join("ca.pem"), ca.cert_pem()).unwrap();
        let shards = ShardMap::read(&Model::open(model).unwrap()).unwrap().shards().len();
        let sides = Side::BOTH.map(|side| {
            let tls = shard_tls(folder.path(), &ca, side);
            let start = |shard: usize, replica: usize| {
                let name = format!("{side}-{shard}-{replica}");
                let spec = ServerSpec {
                    shard: Some(shard),
                    tls: Some(tls.clone()),
                    ..place_spec(folder.path(), model, &name, side)
                };
                Place::start(folder.path(), &name, change(spec))
            };
            let shards: Vec<Vec<Place>> = (0..shards)
                .map(|shard| (0..replicas).map(|replica| start(shard, replica)).collect())
                .collect();
            let urls: Vec<Vec<String>> = shards.iter().map(|places| urls(places)).collect();
            let file = folder.path().join(format!("shards-{side}.toml"));
            write_shards(&file, &front_client(folder.path(), &ca, side), &urls, head);
            let pem = ca.issue_server(&["localhost", "127.0.0.1"]).unwrap();
            let tls = write_certificate(folder.path(), &format!("front-{side}"), &pem);
            let name = format!("{side}-front");
            let spec = ServerSpec {
                shards_file: Some(file),
                tls: Some(TlsSpec { client_ca: None, ..tls }),
                ..place_spec(folder.path(), model, &name, side)
            };
            let front = Place::start(folder.path(), &name, change(spec));
            SidePlaces { side, shards, front }
        });
        Self { folder, ca, sides: sides.into() }
    }

    pub async fn ready(&self) {
        for side in &self.sides {
            side.front.process.ready().await;
        }
    }

    pub fn client_spec(&self) -> ClientSpec {
        let ca = self.ca.cert_pem().into_bytes();
        let endpoint = |side: &SidePlaces| {
            EndpointSpec::new(format!("https://{}", side.front.process.addr), Some(ca.clone()))
        };
        ClientSpec::new(endpoint(&self.sides[0]), endpoint(&self.sides[1]))
    }

    /// Where a server finds its next versions.
    pub fn watched(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("watched-{name}"))
    }

    /// Names of all servers of a side that hold rows.
    pub fn names(&self) -> Vec<String> {
        let places = self.sides.iter().flat_map(|side| side.shards.iter().flatten());
        places.map(|place| place.name.clone()).collect()
    }
}

fn place_spec(folder: &Path, model: &Path, name: &str, side: Side) -> ServerSpec {
    let watch = folder.join(format!("watched-{name}"));
    std::fs::create_dir_all(&watch).unwrap();
    ServerSpec {
        table: model.to_owned(),
        // No client is so slow that a version goes which it may yet ask for.
        change: ChangeSpec { watch: Some(watch), keep_old_s: 300, ..ChangeSpec::default() },
        ..spec(side)
    }
}

pub fn urls(places: &[Place]) -> Vec<String> {
    places.iter().map(|place| format!("https://{}", place.process.addr)).collect()
}

/// The value of a metric that has just these labels, or none; 0 where it is not there yet.
pub async fn metric(place: &Place, name: &str) -> f64 {
    let text = page(place.process.metrics_addr, "/metrics").await.1;
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    found.map_or(0.0, |value| value.parse().unwrap())
}

/// Waits until a metric has at least some value.
pub async fn wait_for(place: &Place, name: &str, value: f64) {
    let what = format!("{}: {name} is {value}", place.name);
    until(&what, async || metric(place, name).await >= value).await;
}

/// Clients that look rows up until they are told to end: how many answers came, and what failed.
pub struct Load {
    end: Arc<AtomicBool>,
    right: Arc<AtomicUsize>,
    tasks: JoinSet<Vec<Error>>,
}

impl Load {
    pub fn new() -> Self {
        Self { end: Arc::default(), right: Arc::default(), tasks: JoinSet::new() }
    }

    /// Has one more client ask turn after turn, from `first` on; what comes back is known to be right.
    pub fn ask<F, R>(&mut self, first: u64, ask: F)
    where
        F: Fn(u64) -> R + Send + 'static,
        R: Future<Output = Result<(), Error>> + Send,
    {
        let (end, right) = (Arc::clone(&self.end), Arc::clone(&self.right));
        self.tasks.spawn(async move {
            let (mut failed, mut turn) = (Vec::new(), first);
            while !end.load(Ordering::Relaxed) {
                turn += 1;
                match ask(turn).await {
                    Ok(()) => drop(right.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => failed.push(error),
                }
            }
            failed
        });
    }

    /// Waits for so many more answers.
    pub async fn wait(&self, more: usize) {
        let from = self.right.load(Ordering::Relaxed);
        let is_so = async || self.right.load(Ordering::Relaxed) >= from + more;
        until(&format!("{more} more answers"), is_so).await;
    }

    /// Ends it, with none failed; how many answers there were.
    pub async fn end(mut self) -> usize {
        self.end.store(true, Ordering::Relaxed);
        while let Some(failed) = self.tasks.join_next().await {
            let failed = failed.unwrap();
            assert!(failed.is_empty(), "{} failed, the first: {:?}", failed.len(), failed[0]);
        }
        self.right.load(Ordering::Relaxed)
    }
}
