//! How a server runs: [`ServerSpec`] as read from a file or a command line, checked into `Settings`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hushtable_pir::batch::Geometry;
use hushtable_pir::dpf::{Domain, Group, KeyParams, Side};
use hushtable_pir::{Backend, CpuEngine, Patched, PrgKind, TableShape};
use hushtable_table::Table;
use serde::{Deserialize, Serialize};

use super::bags;
use super::held::Held;
use crate::host::address;
use crate::host::network::{
    Network, check_window, default_addr, default_body_idle_ms_max, default_connections_max,
    default_drain_ms_max, default_handshake_ms_max, default_headers_ms_max, default_idle_ms_max,
    default_inflight_bytes_max, default_io_threads, default_keep_alive_ms, default_metrics_addr,
    default_otlp_sample, default_otlp_service, default_pings_per_s_max, default_request_ms_max,
    default_requests_per_s_per_peer_max, default_streams_per_connection_max, within,
};
use crate::schemes::bundles::{Bundles, HeldModel, HeldTable};
use crate::schemes::versions::ChangeSpec;
use crate::{DeviceSpec, Error, Fraction, NetworkSpec, TlsSpec};
use hushtable_pir::client::{
    BAGS_PER_REQUEST_MAX, KEY_OVERHEAD_BYTES, KEYS_PER_REQUEST_MAX, REQUEST_BYTES,
};

/// How a server runs. Every field but `table` and `side` has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct ServerSpec {
    /// A table bundle's or a model bundle's folder.
    pub table: PathBuf,
    /// More bundles, of tables or of models, to be served beside `table` at the same address. What
    /// several of them hold is loaded once.
    #[serde(default)]
    pub tables: Vec<PathBuf>,
    /// Most bytes that all tables, their layouts' bins included, may take in memory; none for no
    /// limit. Tables that take more are refused at the start, before any is loaded.
    #[serde(default)]
    pub tables_bytes_max: Option<u64>,
    /// Which of the two servers this is.
    #[serde(with = "crate::schemes::side_name")]
    pub side: Side,
    /// Which shard of the model this is a server of, by its map; none for all of it. It answers the
    /// fronts of its side alone.
    #[serde(default)]
    pub shard: Option<usize>,
    /// Where the servers of the model's shards are, for a front: it holds no rows, and asks them.
    #[serde(default)]
    pub shards_file: Option<PathBuf>,
    /// Where lookups are answered; port 0 for any. Default 127.0.0.1:4000.
    #[serde(default = "default_addr", deserialize_with = "address::one")]
    pub addr: SocketAddr,
    /// The port, instead of that of `addr`.
    #[serde(default)]
    pub port: Option<u16>,
    /// Where `/metrics`, `/livez` and `/readyz` are answered, in plain HTTP; none to leave them out.
    /// Default 127.0.0.1:4001.
    #[serde(default = "default_metrics_addr", deserialize_with = "address::or_none")]
    pub metrics_addr: Option<SocketAddr>,
    /// Certificate and key. Without, only this machine can connect.
    #[serde(default)]
    pub tls: Option<TlsSpec>,
    /// Serve other machines without TLS: for when something else encrypts the way.
    #[serde(default)]
    pub insecure: bool,
    /// What answers keys: processors or a GPU. Whole inferences are answered by processors.
    #[serde(default)]
    pub device: DeviceSpec,
    /// Folders with NVRTC, which compiles a GPU's kernels, for when the system has none.
    #[serde(default)]
    pub nvrtc_folders: Vec<PathBuf>,
    /// Threads that share a pass over the tables on processors; 0 (the default) for one a core.
    #[serde(default)]
    pub threads: usize,
    /// Threads for connections: 1 to 64. One (the default) carries about 25,000 requests a second.
    #[serde(default = "default_io_threads")]
    pub io_threads: usize,
    /// How long a request may wait for others to share its pass, in microseconds, at most one
    /// minute. The default is the time of one pass, measured at the start, so that latency at most
    /// doubles; a client that is alone then waits for nobody, unless the window is set.
    #[serde(default)]
    pub window_us: Option<u64>,
    /// Most keys in one pass; the default is what the backend answers best.
    #[serde(default)]
    pub batch_keys_max: Option<usize>,
    /// Most keys in one request. The default is 1,024, less where answers would pass 8 MiB.
    #[serde(default)]
    pub keys_per_request_max: Option<usize>,
    /// Most keys that wait; beyond, requests are refused with a hint when to retry.
    #[serde(default = "default_queue_keys_max")]
    pub queue_keys_max: usize,
    /// Most inferences in one pass over a layout's bins or a model's tables; the default is what the
    /// backend answers best.
    #[serde(default)]
    pub batch_bags_max: Option<usize>,
    /// Most inferences that wait; beyond, they are refused with a hint when to retry.
    #[serde(default = "default_queue_bags_max")]
    pub queue_bags_max: usize,
    /// Most inferences in one request by a layout. The default is 256, less where they and their answers
    /// would pass 8 MiB.
    #[serde(default)]
    pub bags_per_request_max: Option<usize>,
    /// Most bytes of requests and answers in memory. One connection may hold a quarter of it.
    #[serde(default = "default_inflight_bytes_max")]
    pub inflight_bytes_max: usize,
    /// Most connections; more are closed as they come.
    #[serde(default = "default_connections_max")]
    pub connections_max: usize,
    /// Most connections of one peer: an IPv4 address, or an IPv6 network of 64 bits. The default is a
    /// quarter of `connections_max`, but 16 where that is less.
    #[serde(default)]
    pub connections_per_peer_max: Option<usize>,
    /// Most bytes of one peer's requests and answers in memory. The default is half of
    /// `inflight_bytes_max`.
    #[serde(default)]
    pub inflight_bytes_per_peer_max: Option<usize>,
    /// Most requests a second of one peer, and most at once after a pause; beyond, they are refused with
    /// a hint when to retry.
    #[serde(default = "default_requests_per_s_per_peer_max")]
    pub requests_per_s_per_peer_max: u32,
    /// Most requests that one connection may have open.
    #[serde(default = "default_streams_per_connection_max")]
    pub streams_per_connection_max: u32,
    /// How long TLS and HTTP/2 may take to shake hands, in milliseconds.
    #[serde(default = "default_handshake_ms_max")]
    pub handshake_ms_max: u64,
    /// How often a quiet connection is pinged, and how long its answer may take, in milliseconds.
    #[serde(default = "default_keep_alive_ms")]
    pub keep_alive_ms: u64,
    /// How long a connection may have no request before it is closed, in milliseconds.
    #[serde(default = "default_idle_ms_max")]
    pub idle_ms_max: u64,
    /// How long a request's headers may take, in milliseconds.
    #[serde(default = "default_headers_ms_max")]
    pub headers_ms_max: u64,
    /// How long a request's body may bring nothing, in milliseconds.
    #[serde(default = "default_body_idle_ms_max")]
    pub body_idle_ms_max: u64,
    /// Most frames a second of those that cost a client nothing: PING, SETTINGS, PRIORITY, empty DATA.
    #[serde(default = "default_pings_per_s_max")]
    pub pings_per_s_max: u32,
    /// How long a request may take, from its first byte to its answer, in milliseconds.
    #[serde(default = "default_request_ms_max")]
    pub request_ms_max: u64,
    /// How long requests may take to finish after a signal to stop, in milliseconds.
    #[serde(default = "default_drain_ms_max")]
    pub drain_ms_max: u64,
    /// The URL of a collector of traces (OTLP over HTTP): none leave the server without.
    #[serde(default)]
    pub otlp_endpoint: Option<String>,
    /// What traces call this server.
    #[serde(default = "default_otlp_service")]
    pub otlp_service: String,
    /// The part of all requests that is traced.
    #[serde(default = "default_otlp_sample")]
    pub otlp_sample: Fraction,
    /// Generators that keys may use, by name. The default leaves out those that cost the server
    /// several times the work.
    #[serde(default = "default_prgs")]
    pub prgs: Vec<String>,
    /// How it changes to next versions of what it holds.
    #[serde(flatten)]
    pub change: ChangeSpec,
}

impl ServerSpec {
    /// The defaults for a table and a side.
    pub fn new(table: impl Into<PathBuf>, side: Side) -> Self {
        Self {
            table: table.into(),
            tables: Vec::new(),
            tables_bytes_max: None,
            side,
            shard: None,
            shards_file: None,
            addr: default_addr(),
            port: None,
            metrics_addr: default_metrics_addr(),
            tls: None,
            insecure: false,
            device: DeviceSpec::default(),
            nvrtc_folders: Vec::new(),
            threads: 0,
            io_threads: default_io_threads(),
            window_us: None,
            batch_keys_max: None,
            keys_per_request_max: None,
            queue_keys_max: default_queue_keys_max(),
            batch_bags_max: None,
            queue_bags_max: default_queue_bags_max(),
            bags_per_request_max: None,
            inflight_bytes_max: default_inflight_bytes_max(),
            connections_max: default_connections_max(),
            connections_per_peer_max: None,
            inflight_bytes_per_peer_max: None,
            requests_per_s_per_peer_max: default_requests_per_s_per_peer_max(),
            streams_per_connection_max: default_streams_per_connection_max(),
            handshake_ms_max: default_handshake_ms_max(),
            keep_alive_ms: default_keep_alive_ms(),
            idle_ms_max: default_idle_ms_max(),
            headers_ms_max: default_headers_ms_max(),
            body_idle_ms_max: default_body_idle_ms_max(),
            pings_per_s_max: default_pings_per_s_max(),
            request_ms_max: default_request_ms_max(),
            drain_ms_max: default_drain_ms_max(),
            otlp_endpoint: None,
            otlp_service: default_otlp_service(),
            otlp_sample: default_otlp_sample(),
            prgs: default_prgs(),
            change: ChangeSpec::default(),
        }
    }

    /// Checks the numbers that need no table to be checked.
    pub(super) fn check_counts(&self) -> Result<(), Error> {
        within("threads", self.threads, 0..=4096)?;
        within("batch_keys_max", self.batch_keys_max.unwrap_or(1), 1..=KEYS_MAX)?;
        within("queue_keys_max", self.queue_keys_max, 1..=KEYS_MAX)?;
        within("batch_bags_max", self.batch_bags_max.unwrap_or(1), 1..=BAGS_MAX)?;
        within("queue_bags_max", self.queue_bags_max, 1..=BAGS_MAX)?;
        check_window(self.window_us)?;
        self.change.check().map(drop)
    }

    pub(super) fn network(&self) -> NetworkSpec {
        NetworkSpec {
            addr: self.addr,
            port: self.port,
            metrics_addr: self.metrics_addr,
            tls: self.tls.clone(),
            insecure: self.insecure,
            io_threads: self.io_threads,
            inflight_bytes_max: self.inflight_bytes_max,
            connections_max: self.connections_max,
            connections_per_peer_max: self.connections_per_peer_max,
            inflight_bytes_per_peer_max: self.inflight_bytes_per_peer_max,
            requests_per_s_per_peer_max: self.requests_per_s_per_peer_max,
            streams_per_connection_max: self.streams_per_connection_max,
            handshake_ms_max: self.handshake_ms_max,
            keep_alive_ms: self.keep_alive_ms,
            idle_ms_max: self.idle_ms_max,
            headers_ms_max: self.headers_ms_max,
            body_idle_ms_max: self.body_idle_ms_max,
            pings_per_s_max: self.pings_per_s_max,
            request_ms_max: self.request_ms_max,
            drain_ms_max: self.drain_ms_max,
            otlp_endpoint: self.otlp_endpoint.clone(),
            otlp_service: self.otlp_service.clone(),
            otlp_sample: self.otlp_sample,
        }
    }
}

/// A checked [`ServerSpec`], with what follows from it and the tables' shapes.
pub(crate) struct Settings {
    pub spec: ServerSpec,
    pub prgs: Vec<PrgKind>,
    /// By the tables that are held.
    pub tables: Vec<TableLimits>,
    /// Bytes that one request to a model may have, by the models that are held.
    pub model_request_bytes_max: Vec<usize>,
    /// Bytes that any request may have.
    pub request_bytes_max: usize,
}

/// What one request to a table may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableLimits {
    pub keys_per_request_max: usize,
    /// 1 without a layout.
    pub bags_per_request_max: usize,
    pub request_bytes_max: usize,
}

impl Settings {
    /// Checks `spec` for a server of what `bundles` hold.
    pub fn check(spec: ServerSpec, bundles: &Bundles) -> Result<(Self, Network), Error> {
        spec.check_counts()?;
        // A front holds no rows.
        if spec.shards_file.is_none() {
            bundles.check_budget(spec.tables_bytes_max, |index| stored_bytes(bundles, index))?;
        }

        let prgs = parse_prgs(&spec.prgs)?;
        // Bytes of the largest request, with what it holds until it is answered.
        let mut whole = 0;
        let mut tables = Vec::with_capacity(bundles.tables.len());
        for held in &bundles.tables {
            let (limits, held) = TableLimits::check(&spec, &held.table)?;
            whole = whole.max(held);
            tables.push(limits);
        }
        let mut model_request_bytes_max = Vec::with_capacity(bundles.models.len());
        for model in &bundles.models {
            let (request, held) = model_bytes(&spec, model, bundles)?;
            whole = whole.max(request + held);
            model_request_bytes_max.push(request);
        }
        let of_tables = tables.iter().map(|limits| limits.request_bytes_max);
        let request_bytes_max =
            of_tables.chain(model_request_bytes_max.iter().copied()).max().unwrap_or(0);
        let network = Network::check(spec.network(), whole)?;
        Ok((Self { prgs, tables, model_request_bytes_max, request_bytes_max, spec }, network))
    }
}

impl TableLimits {
    /// The limits of a table, and the bytes of its largest request with what it holds.
    fn check(spec: &ServerSpec, table: &Table) -> Result<(Self, usize), Error> {
        let row_bytes = table.row_bytes();
        let keys_per_request_max = match spec.keys_per_request_max {
            Some(keys) => keys,
            None => (ANSWER_BYTES_TYPICAL_MAX / row_bytes)
                .clamp(1, KEYS_PER_REQUEST_DEFAULT.min(spec.queue_keys_max)),
        };
        within("keys_per_request_max", keys_per_request_max, 1..=spec.queue_keys_max)?;
        let key_bytes = key_bytes_max(spec.side, table)? + KEY_OVERHEAD_BYTES as usize;
        let around = REQUEST_BYTES as usize;
        let mut request_bytes_max = keys_per_request_max * key_bytes + around;
        let mut whole = request_bytes_max + keys_per_request_max * row_bytes;
        let mut bags_per_request_max = 1;
        if let Some(layout) = table.layout() {
            let geometry = Geometry::new(layout);
            let bag_bytes = geometry.request_bytes(spec.side);
            let held_bytes = bags::held_bytes(&geometry);
            bags_per_request_max = bags_per_request(spec, bag_bytes + held_bytes)?;
            let bags_bytes = bags_per_request_max * bag_bytes + around;
            request_bytes_max = request_bytes_max.max(bags_bytes);
            let held = bags_bytes + bags_per_request_max * held_bytes;
            whole = whole.max(held).max(bags::STREAM_BYTES);
        }
        Ok((Self { keys_per_request_max, bags_per_request_max, request_bytes_max }, whole))
    }
}

/// Inferences that one request may hold, where each takes so many bytes with its answer.
fn bags_per_request(spec: &ServerSpec, bytes: usize) -> Result<usize, Error> {
    // A connection may hold a quarter of all: two such requests.
    let typical = BAGS_BYTES_TYPICAL_MAX.min(spec.inflight_bytes_max / 8);
    let default = (typical / bytes).clamp(1, BAGS_PER_REQUEST_DEFAULT.min(spec.queue_bags_max));
    let bags = spec.bags_per_request_max.unwrap_or(default);
    let most = spec.queue_bags_max.min(BAGS_PER_REQUEST_MAX as usize);
    within("bags_per_request_max", bags, 1..=most)?;
    Ok(bags)
}

/// Bytes in memory of a table and its layout's bins, each where no table before has taken them.
fn stored_bytes(bundles: &Bundles, index: usize) -> Result<u64, Error> {
    let table = &bundles.tables[index].table;
    let mut bytes = 0;
    if bundles.is_first_of_version(index) {
        bytes += CpuEngine::stored_bytes(TableShape::new(table.rows(), table.row_bytes())?);
    }
    if let Some(layout) = table.layout()
        && bundles.is_first_of_layout(index)
    {
        bytes += Geometry::new(layout).costs(layout).stored_bytes;
    }
    Ok(bytes)
}

/// Bytes in memory of what bundles hold and a server does not.
pub(super) fn needed_bytes(bundles: &Bundles, held: &Held) -> Result<u64, Error> {
    let mut bytes = 0u64;
    for (index, HeldTable { table, .. }) in bundles.tables.iter().enumerate() {
        if bundles.is_first_of_version(index) && !held.holds(table.version()) {
            let shape = TableShape::new(table.rows(), table.row_bytes())?;
            let stored = match base_of(table, held) {
                Some(base) => Patched::bytes(base.changed, table.row_bytes()),
                None => CpuEngine::stored_bytes(shape),
            };
            bytes = bytes.saturating_add(stored);
        }
        if let Some(layout) = table.layout()
            && bundles.is_first_of_layout(index)
            && !held.holds(layout.version())
        {
            let costs = Geometry::new(layout).costs(layout);
            bytes = bytes.saturating_add(costs.stored_bytes);
        }
    }
    Ok(bytes)
}

/// What is held of a table without its patch.
pub(super) struct Base {
    pub backend: Arc<dyn Backend>,
    /// What a pass takes it.
    pub scan: Duration,
    /// Rows that the patch changes.
    pub changed: u64,
}

/// What is held of `table` without its patch, where so few rows are changed that they may lie over it.
pub(super) fn base_of(table: &Table, held: &Held) -> Option<Base> {
    let patch = table.patch()?;
    let changed = patch.ids().len() as u64;
    if !Patched::is_worth(table.rows(), changed) {
        return None;
    }
    let (backend, scan) = held.find_whole(patch.base())?;
    Some(Base { backend, scan, changed })
}

/// The longest key of a table. Which groups are taken is the backend's to say, once it is loaded.
pub(super) fn key_bytes_max(side: Side, table: &Table) -> Result<usize, Error> {
    let mut key_bytes = 0;
    for group in Group::ALL {
        let domain = Domain::new(table.rows(), group)?;
        let params = KeyParams { side, domain, prg: PrgKind::Aes128 };
        key_bytes = key_bytes.max(params.key_bytes());
    }
    Ok(key_bytes)
}

/// Bytes of one inference's request, and what it holds besides until it is answered.
fn model_bytes(
    spec: &ServerSpec,
    model: &HeldModel,
    bundles: &Bundles,
) -> Result<(usize, usize), Error> {
    let (mut request, mut held) = (REQUEST_BYTES as usize, 0);
    for feature in model.manifest.features() {
        let table = &bundles.tables[model.tables[feature.table]].table;
        request += PART_OVERHEAD_BYTES;
        match table.layout() {
            Some(layout) => {
                let geometry = Geometry::new(layout);
                request += geometry.request_bytes(spec.side);
                held += bags::held_bytes(&geometry);
            }
            None => {
                request += feature.max_ids * key_bytes_max(spec.side, table)?;
                held += feature.max_ids * table.row_bytes();
            }
        }
    }
    Ok((request, held))
}

/// What a pass holds, where nobody says how much.
pub(super) fn max_batch(batch_max: Option<usize>) -> usize {
    batch_max.unwrap_or(BATCH_TYPICAL)
}

fn parse_prgs(names: &[String]) -> Result<Vec<PrgKind>, Error> {
    if names.is_empty() {
        return Err(Error::PrgName { name: String::new() });
    }
    let mut prgs = Vec::new();
    for name in names {
        let prg: PrgKind = name.parse().map_err(|_| Error::PrgName { name: name.clone() })?;
        if !prgs.contains(&prg) {
            prgs.push(prg);
        }
    }
    Ok(prgs)
}

fn default_queue_keys_max() -> usize {
    1 << 14
}

fn default_queue_bags_max() -> usize {
    1 << 10
}

fn default_prgs() -> Vec<String> {
    [PrgKind::Aes128, PrgKind::ChaCha20, PrgKind::ChaCha12].map(|prg| prg.name().into()).to_vec()
}

/// What a part of a message has around its bytes: a tag and a length.
const PART_OVERHEAD_BYTES: usize = 8;
const BATCH_TYPICAL: usize = 256;
const KEYS_MAX: usize = KEYS_PER_REQUEST_MAX as usize;
const BAGS_MAX: usize = 1 << 16;
const KEYS_PER_REQUEST_DEFAULT: usize = 1024;
const BAGS_PER_REQUEST_DEFAULT: usize = 256;
const BAGS_BYTES_TYPICAL_MAX: usize = 8 << 20;
const ANSWER_BYTES_TYPICAL_MAX: usize = 8 << 20;
