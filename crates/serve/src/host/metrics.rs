//! What a server counts: Prometheus metrics, all made here and counted at three places (the door,
//! the accept loop, the scheduler).
//!
//! No label and no value comes from a query: methods and codes are from closed lists.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use hushtable_pir::dpf::Side;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::host::budget::Budget;

/// What the scheduler counts.
#[derive(Clone, Debug)]
pub struct PassMetrics {
    pub(crate) queued: Gauge,
    pub(crate) waited: Histogram,
    keys: Histogram,
    seconds: Histogram,
    keys_answered: Counter,
    passes: Counter,
}

impl Default for PassMetrics {
    fn default() -> Self {
        Self {
            queued: Gauge::default(),
            waited: seconds(),
            keys: Histogram::new(exponential_buckets(1.0, 2.0, 12)),
            seconds: seconds(),
            keys_answered: Counter::default(),
            passes: Counter::default(),
        }
    }
}

impl PassMetrics {
    pub(crate) fn record(&self, keys: usize, took: Duration) {
        self.keys.observe(keys as f64);
        self.seconds.observe(took.as_secs_f64());
        self.keys_answered.inc_by(keys as u64);
        self.passes.inc();
    }

    /// Passes that have run.
    pub fn passes(&self) -> u64 {
        self.passes.get()
    }

    /// Queries that passes have answered.
    pub fn keys_answered(&self) -> u64 {
        self.keys_answered.get()
    }
}

/// What a store of clients' keys counts.
#[derive(Clone, Debug, Default)]
pub struct KeyMetrics {
    pub(crate) in_memory: Gauge,
    pub(crate) on_disk: Gauge,
    pub(crate) memory_bytes: Gauge,
    pub(crate) disk_bytes: Gauge,
    pub(crate) uploaded: Counter,
    pub(crate) evicted: Counter,
    pub(crate) loaded: Counter,
    pub(crate) damaged: Counter,
}

/// What a training server counts.
#[derive(Clone, Debug)]
pub struct TrainMetrics {
    pub(crate) rounds_opened: Counter,
    pub(crate) rounds_committed: Counter,
    pub(crate) rounds_abandoned: Counter,
    pub(crate) messages_refused: Counter,
    pub(crate) begin_seconds: Histogram,
    pub(crate) commit_seconds: Histogram,
    pub(crate) read_bytes: Counter,
    pub(crate) written_bytes: Counter,
}

impl Default for TrainMetrics {
    fn default() -> Self {
        // 10 ms to 1.5 hours.
        let seconds = || Histogram::new(exponential_buckets(0.01, 2.0, 20));
        Self {
            rounds_opened: Counter::default(),
            rounds_committed: Counter::default(),
            rounds_abandoned: Counter::default(),
            messages_refused: Counter::default(),
            begin_seconds: seconds(),
            commit_seconds: seconds(),
            read_bytes: Counter::default(),
            written_bytes: Counter::default(),
        }
    }
}

/// What a server does, which decides what it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// As one of two servers.
    Pair(Side),
    /// Alone.
    Onion,
    /// Not at all: it trains.
    Train,
}

/// What a server counts.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<MethodLabel, Histogram>,
    pub connections: Gauge,
    pub connections_refused: Counter,
    pub handshakes_failed: Counter,
    inflight_bytes: Gauge,
    budget: Arc<Budget>,
    pub passes: PassMetrics,
    /// Passes over a layout's bins.
    pub bag_passes: PassMetrics,
    /// Clients' keys; counted by a server alone.
    pub keys: KeyMetrics,
    /// Rounds; counted by a training server.
    pub train: TrainMetrics,
    engine: Family<EngineLabels, Gauge>,
    table_rows: Gauge<u64, AtomicU64>,
    table_bytes: Gauge<u64, AtomicU64>,
    scan_seconds: Gauge<f64, AtomicU64>,
    layout_keys: Gauge<u64, AtomicU64>,
    layout_bytes: Gauge<u64, AtomicU64>,
    bag_scan_seconds: Gauge<f64, AtomicU64>,
}

/// The methods that are told apart; a path that is none of them counts as other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Method {
    Abandon,
    Answer,
    AnswerBags,
    CloseRequests,
    Finish,
    Health,
    Layout,
    OnionAnswer,
    OnionInfo,
    OpenRound,
    Other,
    PutKeys,
    Request,
    Rows,
    TableInfo,
    TrainInfo,
    Upload,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabel {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
    side: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EngineLabels {
    description: String,
}

impl Method {
    pub fn of_path(path: &str) -> Self {
        match path {
            "/hushtable.v1.PrivateLookup/Answer" => Self::Answer,
            "/hushtable.v1.PrivateLookup/AnswerBags" => Self::AnswerBags,
            "/hushtable.v1.PrivateLookup/Layout" => Self::Layout,
            "/hushtable.v1.PrivateLookup/TableInfo" => Self::TableInfo,
            "/hushtable.v1.OnionLookup/Answer" => Self::OnionAnswer,
            "/hushtable.v1.OnionLookup/Info" => Self::OnionInfo,
            "/hushtable.v1.OnionLookup/PutKeys" => Self::PutKeys,
            "/hushtable.v1.FederatedTraining/Abandon" => Self::Abandon,
            "/hushtable.v1.FederatedTraining/CloseRequests" => Self::CloseRequests,
            "/hushtable.v1.FederatedTraining/Finish" => Self::Finish,
            "/hushtable.v1.FederatedTraining/Info" => Self::TrainInfo,
            "/hushtable.v1.FederatedTraining/OpenRound" => Self::OpenRound,
            "/hushtable.v1.FederatedTraining/Request" => Self::Request,
            "/hushtable.v1.FederatedTraining/Rows" => Self::Rows,
            "/hushtable.v1.FederatedTraining/Upload" => Self::Upload,
            "/grpc.health.v1.Health/Check" | "/grpc.health.v1.Health/Watch" => Self::Health,
            _ => Self::Other,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Abandon => "Abandon",
            Self::Answer => "Answer",
            Self::AnswerBags => "AnswerBags",
            Self::CloseRequests => "CloseRequests",
            Self::Finish => "Finish",
            Self::Health => "Health",
            Self::Layout => "Layout",
            Self::OnionAnswer => "OnionAnswer",
            Self::OnionInfo => "OnionInfo",
            Self::OpenRound => "OpenRound",
            Self::Other => "other",
            Self::PutKeys => "PutKeys",
            Self::Request => "Request",
            Self::Rows => "Rows",
            Self::TableInfo => "TableInfo",
            Self::TrainInfo => "TrainInfo",
            Self::Upload => "Upload",
        }
    }
}

impl Metrics {
    pub fn new(scheme: Scheme, budget: Arc<Budget>) -> Arc<Self> {
        let mut registry = Registry::with_prefix("hushtable");
        let metrics = Self {
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(seconds),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            handshakes_failed: Counter::default(),
            inflight_bytes: Gauge::default(),
            budget,
            passes: PassMetrics::default(),
            bag_passes: PassMetrics::default(),
            keys: KeyMetrics::default(),
            train: TrainMetrics::default(),
            engine: Family::default(),
            table_rows: Gauge::default(),
            table_bytes: Gauge::default(),
            scan_seconds: Gauge::default(),
            layout_keys: Gauge::default(),
            layout_bytes: Gauge::default(),
            bag_scan_seconds: Gauge::default(),
            registry: Registry::default(),
        };
        let side = match scheme {
            Scheme::Pair(side) => side.name(),
            Scheme::Onion => "single",
            Scheme::Train => "controller",
        };
        let build = Info::new(BuildLabels { version: env!("CARGO_PKG_VERSION"), side });
        registry.register("build", "Version and side of this server", build);
        let r = &mut registry;
        r.register("requests", "Requests, by method and gRPC code", metrics.requests.clone());
        r.register_with_unit(
            "request",
            "From a request's headers to its answer's, by method",
            Unit::Seconds,
            metrics.request_seconds.clone(),
        );
        r.register("connections", "Open connections", metrics.connections.clone());
        r.register(
            "connections_refused",
            "Connections closed because there were too many",
            metrics.connections_refused.clone(),
        );
        r.register(
            "handshakes_failed",
            "Connections that did not get through TLS",
            metrics.handshakes_failed.clone(),
        );
        r.register_with_unit(
            "inflight",
            "Requests and answers in memory",
            Unit::Bytes,
            metrics.inflight_bytes.clone(),
        );
        r.register("table_rows", "Rows of the table", metrics.table_rows.clone());
        r.register_with_unit(
            "table",
            "Bytes of the table's rows",
            Unit::Bytes,
            metrics.table_bytes.clone(),
        );
        match scheme {
            Scheme::Pair(_) => {
                r.register("engine_info", "What answers keys", metrics.engine.clone());
                metrics.register_passes(r, "keys");
                metrics.register_bags(r);
            }
            Scheme::Onion => {
                metrics.register_passes(r, "queries");
                metrics.register_held_keys(r);
            }
            Scheme::Train => metrics.register_rounds(r),
        }
        Arc::new(Self { registry, ..metrics })
    }

    /// What comes of queries, which are called `queries` here.
    fn register_passes(&self, r: &mut Registry, queries: &str) {
        let passes = &self.passes;
        let named = |name: &str| format!("{name}{queries}");
        r.register(named("queue_"), "Queries that wait for a pass", passes.queued.clone());
        r.register_with_unit(
            "queue",
            "From a request's arrival to the start of its last pass",
            Unit::Seconds,
            passes.waited.clone(),
        );
        r.register(named("batch_"), "Queries that shared a pass", passes.keys.clone());
        r.register_with_unit(
            "answer",
            "What a pass over the table took",
            Unit::Seconds,
            passes.seconds.clone(),
        );
        let answered = passes.keys_answered.clone();
        r.register(named("answered_"), "Queries that passes have answered", answered);
        r.register("passes", "Passes over the table", passes.passes.clone());
        r.register_with_unit(
            "scan",
            "What a pass for one query took at the start",
            Unit::Seconds,
            self.scan_seconds.clone(),
        );
    }

    fn register_rounds(&self, r: &mut Registry) {
        let train = &self.train;
        r.register("rounds_opened", "Rounds opened", train.rounds_opened.clone());
        r.register("rounds_committed", "Rounds committed", train.rounds_committed.clone());
        let abandoned = train.rounds_abandoned.clone();
        r.register("rounds_abandoned", "Rounds that ended without an update", abandoned);
        let refused = train.messages_refused.clone();
        r.register("messages_refused", "Users' messages that were refused", refused);
        r.register_with_unit(
            "round_begin",
            "From closed requests to rows ready",
            Unit::Seconds,
            train.begin_seconds.clone(),
        );
        r.register_with_unit(
            "round_commit",
            "What a commit took",
            Unit::Seconds,
            train.commit_seconds.clone(),
        );
        r.register_with_unit(
            "memory_read",
            "Read from the main memory's file by committed rounds",
            Unit::Bytes,
            train.read_bytes.clone(),
        );
        r.register_with_unit(
            "memory_written",
            "Written to the main memory's file by committed rounds",
            Unit::Bytes,
            train.written_bytes.clone(),
        );
    }

    fn register_held_keys(&self, r: &mut Registry) {
        let keys = &self.keys;
        let in_memory = keys.in_memory.clone();
        r.register("client_keys_memory", "Clients whose keys are in memory", in_memory);
        r.register(
            "client_keys_disk",
            "Clients whose keys are in the folder",
            keys.on_disk.clone(),
        );
        r.register_with_unit(
            "client_keys_memory",
            "Clients' keys in memory",
            Unit::Bytes,
            keys.memory_bytes.clone(),
        );
        r.register_with_unit(
            "client_keys_disk",
            "Clients' keys in the folder",
            Unit::Bytes,
            keys.disk_bytes.clone(),
        );
        r.register("client_keys_uploaded", "Uploads of keys not held", keys.uploaded.clone());
        r.register("client_keys_evicted", "Keys dropped to make room", keys.evicted.clone());
        r.register("client_keys_loaded", "Keys read back from the folder", keys.loaded.clone());
        r.register("client_keys_damaged", "Damaged or missing files", keys.damaged.clone());
    }

    fn register_bags(&self, r: &mut Registry) {
        let passes = &self.bag_passes;
        r.register("queue_bags", "Inferences that wait for a pass", passes.queued.clone());
        r.register_with_unit(
            "queue_bags",
            "From an inference's arrival to the start of its pass",
            Unit::Seconds,
            passes.waited.clone(),
        );
        r.register("batch_bags", "Inferences that shared a pass", passes.keys.clone());
        r.register_with_unit(
            "answer_bags",
            "What a pass over the layout's bins took",
            Unit::Seconds,
            passes.seconds.clone(),
        );
        let answered = passes.keys_answered.clone();
        r.register("answered_bags", "Inferences that passes have answered", answered);
        r.register("bag_passes", "Passes over the layout's bins", passes.passes.clone());
        let keys = self.layout_keys.clone();
        r.register("layout_keys", "Keys of an inference; 0 without a layout", keys);
        r.register_with_unit(
            "layout",
            "Bytes of the entries in the layout's bins",
            Unit::Bytes,
            self.layout_bytes.clone(),
        );
        r.register_with_unit(
            "scan_bags",
            "What a pass for one inference took at the start",
            Unit::Seconds,
            self.bag_scan_seconds.clone(),
        );
    }

    /// Counts a request that was answered, or given up by its client (`CANCELLED`).
    pub fn record(&self, method: Method, code: tonic::Code, took: Duration) {
        let method = method.name();
        self.requests.get_or_create(&RequestLabels { method, code: code_name(code) }).inc();
        self.request_seconds.get_or_create(&MethodLabel { method }).observe(took.as_secs_f64());
    }

    pub fn describe_engine(&self, description: String) {
        self.engine.get_or_create(&EngineLabels { description }).set(1);
    }

    pub fn describe_table(&self, rows: u64, bytes: u64, scan: Duration) {
        self.table_rows.set(rows);
        self.table_bytes.set(bytes);
        self.scan_seconds.set(scan.as_secs_f64());
    }

    pub fn describe_trained(&self, rows: u64, bytes: u64) {
        self.table_rows.set(rows);
        self.table_bytes.set(bytes);
    }

    pub fn describe_layout(&self, keys: u64, stored_bytes: u64, scan: Duration) {
        self.layout_keys.set(keys);
        self.layout_bytes.set(stored_bytes);
        self.bag_scan_seconds.set(scan.as_secs_f64());
    }

    /// The Prometheus (OpenMetrics 1.0) text of all metrics.
    pub fn render(&self) -> String {
        self.inflight_bytes.set(self.budget.bytes() as i64);
        let mut out = String::new();
        // Writing to a string fails only where a metric's own encoding does: then what came so far
        // lacks its end mark, which a scraper reports.
        if let Err(error) = text::encode(&mut out, &self.registry) {
            tracing::error!(%error, "a metric could not be encoded");
        }
        out
    }
}

fn seconds() -> Histogram {
    // 50 microseconds to 54 seconds.
    Histogram::new(exponential_buckets(50e-6, 2.0, 21))
}

pub(crate) fn code_name(code: tonic::Code) -> &'static str {
    use tonic::Code;
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
