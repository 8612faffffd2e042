//! Real servers on loopback, for every test of this crate.
#![allow(dead_code, reason = "each test binary uses its own part")]

mod gate;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use hushtable_pir::dpf::Side;
use hushtable_serve::certificate::LocalCa;
use hushtable_serve::wire::private_lookup_client::PrivateLookupClient;
use hushtable_serve::{
    BoundServer, CkksServer, ClientSpec, EndpointSpec, Error, HybridServer, NetworkSpec,
    OnionServer, Server, ServerSpec, SharesServer, TlsSpec, TrainServer,
};
use hushtable_table::layout::{DropRule, Layout, LayoutMap, LayoutSpec, PartSpec};
use hushtable_table::{DType, Table};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tonic::transport::Channel;

pub use gate::{Gate, Held, gated, gated_onion};

/// How long a test waits for what is to come: no bound on anything but the wait for what never comes.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until it is so; not for ever.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let started = Instant::now();
    while !is_so().await {
        assert!(started.elapsed() < PATIENCE, "it does not come to this: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The same, by a thread.
#[track_caller]
pub fn block_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "it does not come to this: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What comes of `future`, which ends; not for ever.
pub async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it does not end")
}

/// An address that is this process's until it ends, for a server that may come, go and come again: where no server
/// listens, connections are refused.
pub fn reserve() -> SocketAddr {
    static RESERVED: Mutex<Vec<tokio::net::TcpSocket>> = Mutex::new(Vec::new());
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    // Whoever asks for a free port does not get one that is bound; whoever asks for this one does, as this socket does
    // not listen, if both allow it.
    socket.set_reuseaddr(true).unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let addr = socket.local_addr().unwrap();
    RESERVED.lock().unwrap().push(socket);
    addr
}

/// Addresses of its own, and otherwise as usual.
pub fn network() -> NetworkSpec {
    NetworkSpec { addr: reserve(), metrics_addr: Some(reserve()), ..NetworkSpec::default() }
}

/// A table of pseudorandom numbers; `seed` decides its content, so its version.
pub fn table(rows: u64, dim: usize, seed: u64) -> Table {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let values: Vec<f32> = (0..rows as usize * dim).map(|_| rng.random_range(-1.0..1.0)).collect();
    Table::from_weight("films", rows, dim, DType::F32, &values).unwrap()
}

/// The bytes of row `id`.
pub fn row(table: &Table, id: u64) -> Vec<u8> {
    let mut bytes = vec![0; table.row_bytes()];
    table.copy_rows(id, &mut bytes).unwrap();
    bytes
}

/// A spec with addresses of its own and as little waiting as possible.
pub fn spec(side: Side) -> ServerSpec {
    ServerSpec {
        addr: reserve(),
        metrics_addr: Some(reserve()),
        threads: 1,
        ..ServerSpec::new("", side)
    }
}

/// A CA and a server certificate of it, in files.
pub struct Certificates {
    pub folder: TempDir,
    pub ca: LocalCa,
}

impl Certificates {
    pub fn new() -> Self {
        let ca = LocalCa::new().unwrap();
        let folder = TempDir::new().unwrap();
        let pem = ca.issue_server(&["localhost", "127.0.0.1"]).unwrap();
        std::fs::write(folder.path().join("cert.pem"), pem.cert).unwrap();
        std::fs::write(folder.path().join("key.pem"), pem.key).unwrap();
        std::fs::write(folder.path().join("ca.pem"), ca.cert_pem()).unwrap();
        Self { folder, ca }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn tls(&self) -> TlsSpec {
        TlsSpec {
            cert: self.path("cert.pem"),
            key: self.path("key.pem"),
            client_ca: None,
            client_name: None,
            peer_ca: None,
        }
    }

    pub fn ca_pem(&self) -> Vec<u8> {
        self.ca.cert_pem().into_bytes()
    }
}

/// A server on a thread and a runtime of its own, as in a process.
pub struct Running {
    pub addr: SocketAddr,
    pub metrics_addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

/// A server of any kind.
pub trait Startable: Send + 'static {
    fn bind(self) -> impl Future<Output = Result<BoundServer, Error>>;
}

impl Startable for Server {
    fn bind(self) -> impl Future<Output = Result<BoundServer, Error>> {
        self.bind()
    }
}

impl Startable for OnionServer {
    fn bind(self) -> impl Future<Output = Result<BoundServer, Error>> {
        self.bind()
    }
}

impl Startable for CkksServer {
    fn bind(self) -> impl Future<Output = Result<BoundServer, Error>> {
        self.bind()
    }
}

impl Startable for HybridServer {
    fn bind(self) -> impl Future<Output = Result<BoundServer, Error>> {
        self.bind()
    }
}

impl Startable for SharesServer {
    fn bind(self) -> impl Future<Output = Result<BoundServer, Error>> {
        self.bind()
    }
}

impl Startable for TrainServer {
    fn bind(self) -> impl Future<Output = Result<BoundServer, Error>> {
        self.bind()
    }
}

/// Waits until an address that a server had can be taken again: connections of tests beside this one may have its
/// port for a while.
pub fn wait_until_free(addr: SocketAddr) {
    for _ in 0..200 {
        if std::net::TcpListener::bind(addr).is_ok() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("{addr} stays taken");
}

/// Lets no other test's server have this address by chance, whose clients would be answered by it; who asks for the very
/// address gets it.
fn keep_free(addr: SocketAddr) {
    static KEPT: Mutex<Vec<tokio::net::TcpSocket>> = Mutex::new(Vec::new());
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    // It is taken already where a test was quicker to start the next server there.
    if socket.bind(addr).is_ok() {
        KEPT.lock().unwrap().push(socket);
    }
}

impl Running {
    /// Starts `server` and waits until it answers.
    pub fn start(server: impl Startable) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (bound, addrs) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = server.bind().await?;
                let addrs = (server.addr, server.metrics_addr.unwrap());
                let ready = server.ready();
                tokio::spawn(async move {
                    ready.await;
                    bound.send(addrs).unwrap();
                });
                server
                    .run(async {
                        let _ = stopped.await;
                    })
                    .await
            })
        });
        match addrs.recv_timeout(PATIENCE) {
            Ok((addr, metrics_addr)) => {
                Self { addr, metrics_addr, stop: Some(stop), thread: Some(thread) }
            }
            Err(_) => panic!("the server did not start: {:?}", thread.join()),
        }
    }

    /// Tells the server to stop, without waiting for it.
    pub fn signal(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    /// Stops the server and waits for its end. Nobody answers at its address then.
    pub fn stop(mut self) -> Result<(), Error> {
        self.signal();
        let ended = self.thread.take().unwrap().join().unwrap();
        for addr in [self.addr, self.metrics_addr] {
            wait_until_free(addr);
        }
        keep_free(self.addr);
        ended
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn tls_url(&self) -> String {
        format!("https://{}", self.addr)
    }

    /// A page of the second port: status and body.
    pub async fn page(&self, path: &str) -> (u16, String) {
        page(self.metrics_addr, path).await
    }

    /// As [`metric_of`].
    pub async fn metric(&self, name: &str) -> f64 {
        metric_of(&self.page("/metrics").await.1, name)
    }

    /// Waits until [`metric`](Self::metric) is this.
    pub async fn comes_to(&self, name: &str, value: f64) {
        let started = Instant::now();
        loop {
            let found = self.metric(name).await;
            if found == value {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{name} stays {found}, and is not {value}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until requests of a method have been refused for want of room.
    pub async fn refuses_busy(&self, method: &str) {
        let refused = format!("{{method=\"{method}\",code=\"RESOURCE_EXHAUSTED\"}}");
        let is_so = async || self.page("/metrics").await.1.contains(&refused);
        until("a request is refused", is_so).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The value of a metric without labels, with exactly the labels written, or of the only table's.
pub fn metric_of(text: &str, name: &str) -> f64 {
    let mut values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let labelled = rest.strip_prefix("{table=\"").and_then(|rest| rest.split_once("\"} "));
        labelled.map(|(_, value)| value).or_else(|| rest.strip_prefix(' '))
    });
    let value = values.next().unwrap_or_else(|| panic!("no {name} in:\n{text}"));
    assert_eq!(values.next(), None, "{name} is of several tables:\n{text}");
    value.parse().unwrap()
}

pub async fn page(addr: SocketAddr, path: &str) -> (u16, String) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A left and a right server of one table, without TLS.
pub struct Pair {
    pub left: Running,
    pub right: Running,
}

impl Pair {
    pub fn start(rows: u64, dim: usize) -> Self {
        Self::start_with(|| table(rows, dim, 1), |spec| spec)
    }

    pub fn start_with(
        table: impl Fn() -> Table,
        change: impl Fn(ServerSpec) -> ServerSpec,
    ) -> Self {
        let [left, right] = Side::BOTH
            .map(|side| Running::start(Server::of_table(change(spec(side)), table()).unwrap()));
        Self { left, right }
    }

    pub fn client_spec(&self) -> ClientSpec {
        ClientSpec::new(
            EndpointSpec::new(self.left.url(), None),
            EndpointSpec::new(self.right.url(), None),
        )
    }
}

/// The same of servers whose passes wait at gates.
pub struct GatedPair {
    pub pair: Pair,
    gates: [Arc<Gate>; 2],
}

impl GatedPair {
    pub fn start_with(
        table: impl Fn() -> Table,
        change: impl Fn(ServerSpec) -> ServerSpec,
    ) -> Self {
        let [left, right] = Side::BOTH.map(|side| {
            let (server, gate) = gated(change(spec(side)), table());
            (Running::start(server), gate)
        });
        let pair = Pair { left: left.0, right: right.0 };
        Self { pair, gates: [left.1, right.1] }
    }

    /// As [`Gate::hold`], of both.
    pub fn hold(&self) -> [Held; 2] {
        self.gates.each_ref().map(Gate::hold)
    }

    /// As [`Gate::waiting`], of each.
    pub fn waiting(&self) -> [usize; 2] {
        self.gates.each_ref().map(|gate| gate.waiting())
    }
}

/// A client of the bare wire contract.
pub async fn raw(server: &Running) -> PrivateLookupClient<Channel> {
    let endpoint = tonic::transport::Endpoint::from_shared(server.url()).unwrap();
    PrivateLookupClient::new(endpoint.connect().await.unwrap())
}

/// A layout of a table with 1,000 rows or more: a hot part and a full one, the hot one with
/// companions. `seed` decides its permutations, so its version.
pub fn layout_spec(rows: u64, seed: u8) -> LayoutSpec {
    let part = |rows, bins, queries, hashes, companions| {
        Some(PartSpec { rows, bins, queries, hashes, companions })
    };
    LayoutSpec {
        hot: part(40, 4, 2, 1, 1),
        full: part(rows, 16, 1, 1, 0),
        ids_max: 64,
        drop: DropRule::MostFrequent,
        seed: [seed; 32],
    }
}

/// `table` with the layout that `spec` describes: the first rows are hot, each one's companion is
/// the next.
pub fn lay_out(table: Table, spec: LayoutSpec) -> Table {
    let rows = table.rows();
    let hot = spec.hot.map_or(0, |part| part.rows);
    let companions = |part: Option<PartSpec>| -> Vec<u32> {
        let (rows_of_part, count) = part.map_or((0, 0), |part| (part.rows, part.companions.into()));
        let next = |id| (1..=count).map(move |step: u64| ((id + step) % rows) as u32);
        (0..rows_of_part).flat_map(next).collect()
    };
    let map = LayoutMap {
        hot_ids: (0..hot as u32).collect(),
        hot_companions: companions(spec.hot),
        full_companions: companions(spec.full),
    };
    let layout = Layout::new(spec, map, table.shape(), table.version()).unwrap();
    table.with_layout(Arc::new(layout)).unwrap()
}

/// Whether servers are to be soaked for long: `make test-nightly`.
pub fn is_long_soak() -> bool {
    std::env::var_os("HUSHTABLE_SOAK_LONG").is_some()
}

/// Puts figures into `FILE.json` of the folder `HUSHTABLE_SOAK_OUT`, where that is set, beside those of before,
/// with the machine that they are of.
pub fn record(file: &str, name: &str, figures: serde_json::Value) {
    let Some(folder) = std::env::var_os("HUSHTABLE_SOAK_OUT") else { return };
    let path = Path::new(&folder).join(format!("{file}.json"));
    let mut all: serde_json::Value = std::fs::read(&path)
        .map_or_else(|_| serde_json::json!({}), |bytes| serde_json::from_slice(&bytes).unwrap());
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
    all["machine"] = serde_json::json!({
        "processors": processors, "isa": hushtable_pir::Platform::detect().name(),
        "build": if cfg!(debug_assertions) { "test" } else { "release" },
    });
    all[name] = figures;
    let mut bytes = serde_json::to_vec_pretty(&all).unwrap();
    bytes.push(b'\n');
    std::fs::write(path, bytes).unwrap();
}

/// What a server has allocated, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Allocated {
    pub now: u64,
    /// The most since it was started.
    pub most: u64,
}

/// What a server has allocated in bytes while nobody is connected, in the course of a soak.
#[derive(Clone, Copy, Debug)]
pub struct Resting {
    /// When it was ready.
    pub start: u64,
    /// After the first clients.
    pub warm: u64,
    /// After half of the clients that followed.
    pub half: u64,
    /// After all.
    pub end: u64,
}

impl Resting {
    /// Notes it, and holds the second half of the clients to have left nothing: at most 128 KiB, or in the long form
    /// 3 MiB and 3 % of what there was. What 20 or 1,500 clients leave of some kilobytes each is more.
    #[track_caller]
    pub fn check(self, kind: &str, clients: usize, lookups: usize, seconds: f64) {
        let Self { start, warm, half, end } = self;
        let mib = |bytes: u64| (bytes as f64 / f64::from(1 << 20) * 100.0).round() / 100.0;
        let figures = serde_json::json!({
            "clients": clients, "lookups": lookups, "seconds": seconds.round(),
            "start_mib": mib(start), "warm_mib": mib(warm), "half_mib": mib(half), "end_mib": mib(end),
            "bytes_per_client_of_the_second_half":
                (end as f64 - half as f64) / (clients as f64 / 2.0),
        });
        println!("{kind}: {figures}");
        record("memory", kind, figures);
        assert!(!self.grows(), "{kind}: it grows with its clients, of {half} to {end} bytes");
    }

    /// The same at its end: what nobody holds any more may be let go of late.
    pub async fn ended(mut self, server: &Process) -> Self {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            self.end = server.resting_bytes().await;
            if !self.grows() {
                break;
            }
        }
        self
    }

    /// Whether the second half of the clients left more than that.
    pub fn grows(self) -> bool {
        let slack_bytes = if is_long_soak() { (3 << 20) + self.half * 3 / 100 } else { 128 << 10 };
        self.end > self.half + slack_bytes
    }
}

/// `examples/serve_bundle.rs`, which cargo builds beside the tests.
pub fn program() -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.ancestors().nth(2).unwrap();
    let program = folder.join("examples/serve_bundle");
    assert!(program.exists(), "{} is missing: cargo build --examples", program.display());
    program
}

/// A server as a process of its own.
pub struct Process {
    child: Child,
    /// What asks it for its counts, and what it says.
    counts: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
    pub addr: SocketAddr,
    pub metrics_addr: SocketAddr,
}

impl Process {
    /// Starts the program by a spec, which is written to `folder` under `name`, and what else it is
    /// told.
    pub fn start(folder: &Path, name: &str, spec: &impl serde::Serialize, args: &[&str]) -> Self {
        Self::start_by(&mut Command::new(program()), folder, name, spec, args)
    }

    /// The same by a command that ends in the program.
    pub fn start_by(
        command: &mut Command,
        folder: &Path,
        name: &str,
        spec: &impl serde::Serialize,
        args: &[&str],
    ) -> Self {
        let file = folder.join(format!("{name}.json"));
        std::fs::write(&file, serde_json::to_vec(spec).unwrap()).unwrap();
        let mut child = command
            .arg(file)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .env("RUST_LOG", "warn")
            .env("HUSHTABLE_COUNT_BYTES", "")
            .spawn()
            .unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let addrs = read_json(&mut stdout);
        let addr = |name: &str| addrs[name].as_str().unwrap().parse().unwrap();
        let (addr, metrics_addr) = (addr("addr"), addr("metrics_addr"));
        Self { child, counts: Mutex::new((stdin, stdout)), addr, metrics_addr }
    }

    /// What it has allocated, as its allocator counts.
    pub fn allocated(&self) -> Allocated {
        let (ask, said) = &mut *self.counts.lock().unwrap();
        writeln!(ask).unwrap();
        let counts = read_json(said);
        let [now, most] = ["now", "most"].map(|name| counts[name].as_u64().unwrap());
        Allocated { now, most }
    }

    /// What it has allocated once nobody is connected, what closed connections held is given back, and nothing more
    /// comes or goes.
    pub async fn resting_bytes(&self) -> u64 {
        let (mut last, mut alike) = (0, 0);
        let is_so = async || {
            let text = page(self.metrics_addr, "/metrics").await.1;
            let now = self.allocated().now;
            // Pages of metrics come and go themselves.
            let is_alike = metric_of(&text, "hushtable_connections") == 0.0
                && now.abs_diff(last) < ALIKE_BYTES;
            alike = if is_alike { alike + 1 } else { 0 };
            last = now;
            alike >= 5
        };
        until("it rests", is_so).await;
        last
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Has its files grow no further than `bytes`; None for no bound.
    pub fn limit_files(&self, bytes: Option<u64>) {
        let limit = Rlimit { current: bytes, maximum: None };
        prlimit(Some(Pid::from_child(&self.child)), Resource::Fsize, limit).unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end, but not for ever.
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        block_until("the process has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Waits until it answers, but not for ever.
    pub async fn ready(&self) {
        let is_so = async || page(self.metrics_addr, "/readyz").await.0 == 200;
        until("the server is ready", is_so).await;
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Bytes of its memory that are resident: VmRSS.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
    }
}

/// How far the bytes of a server that rests go up and down.
const ALIKE_BYTES: u64 = 64 << 10;

fn read_json(from: &mut BufReader<ChildStdout>) -> serde_json::Value {
    let mut line = String::new();
    from.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
