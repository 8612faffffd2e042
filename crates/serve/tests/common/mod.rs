//! Real servers on loopback, for every test of this crate.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use hushtable_pir::dpf::Side;
use hushtable_serve::certificate::LocalCa;
use hushtable_serve::wire::private_lookup_client::PrivateLookupClient;
use hushtable_serve::{
    BoundServer, ClientSpec, EndpointSpec, Error, OnionServer, Server, ServerSpec, TlsSpec,
    TrainServer,
};
use hushtable_table::layout::{DropRule, Layout, LayoutMap, LayoutSpec, PartSpec};
use hushtable_table::{DType, Table};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tonic::transport::Channel;

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

/// A spec with free ports and as little waiting as possible.
pub fn spec(side: Side) -> ServerSpec {
    ServerSpec {
        addr: ([127, 0, 0, 1], 0).into(),
        metrics_addr: Some(([127, 0, 0, 1], 0).into()),
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
        TlsSpec { cert: self.path("cert.pem"), key: self.path("key.pem"), client_ca: None }
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

impl Startable for TrainServer {
    fn bind(self) -> impl Future<Output = Result<BoundServer, Error>> {
        self.bind()
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
        match addrs.recv_timeout(Duration::from_secs(60)) {
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

    /// Stops the server and waits for its end.
    pub fn stop(mut self) -> Result<(), Error> {
        self.signal();
        self.thread.take().unwrap().join().unwrap()
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

    /// The value of a metric without labels, or with exactly the labels written.
    pub async fn metric(&self, name: &str) -> f64 {
        metric_of(&self.page("/metrics").await.1, name)
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

pub fn metric_of(text: &str, name: &str) -> f64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {name} in:\n{text}")).parse().unwrap()
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
