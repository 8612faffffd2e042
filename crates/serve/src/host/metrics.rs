//! What every server counts: Prometheus metrics of requests and connections, and of the tables that
//! it holds. What a scheme counts besides, it registers itself.
//!
//! No label and no value comes from a query: methods and codes are from closed lists, tables are the
//! server's own.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::host::budget::Budget;
use crate::labels::{TableLabel, seconds};
use crate::refusal::code_name;

/// What a server counts, whatever its scheme.
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<MethodLabel, Histogram>,
    pub connections: Gauge,
    pub connections_refused: Counter,
    pub handshakes_failed: Counter,
    limited: Family<LimitedLabel, Counter>,
    reloads: Family<OutcomeLabel, Counter>,
    inflight_bytes: Gauge,
    budget: Arc<Budget>,
}

/// The sizes of a server's tables.
#[derive(Clone, Debug, Default)]
pub struct TableSizes {
    rows: Family<TableLabel, Gauge<u64, AtomicU64>>,
    bytes: Family<TableLabel, Gauge<u64, AtomicU64>>,
    versions: Family<TableLabel, Gauge<u64, AtomicU64>>,
    held_bytes: Family<TableLabel, Gauge<u64, AtomicU64>>,
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
struct LimitedLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// What a peer did too much of. The list is closed: a label comes from nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limited {
    /// A body of which nothing came.
    Body,
    /// Connections.
    Connections,
    /// Headers that took too long.
    Headers,
    /// A connection without requests.
    Idle,
    /// Frames that cost it nothing.
    Pings,
    /// Connections to the second port.
    Probes,
    /// Requests.
    Requests,
    /// Answers that it does not read.
    Unread,
}

impl Limited {
    const ALL: [Self; 8] = [
        Self::Body,
        Self::Connections,
        Self::Headers,
        Self::Idle,
        Self::Pings,
        Self::Probes,
        Self::Requests,
        Self::Unread,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::Connections => "connections",
            Self::Headers => "headers",
            Self::Idle => "idle",
            Self::Pings => "pings",
            Self::Probes => "probes",
            Self::Requests => "requests",
            Self::Unread => "unread",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
    side: &'static str,
}

impl TableSizes {
    /// Registers them.
    pub fn register(&self, r: &mut Registry) {
        r.register("table_rows", "Rows of the table", self.rows.clone());
        r.register_with_unit("table", "Bytes of the table's rows", Unit::Bytes, self.bytes.clone());
        let versions = self.versions.clone();
        r.register("table_versions", "Versions of the table that are held", versions);
        r.register_with_unit(
            "table_held",
            "What all versions of the table that are held take in memory, their layouts included",
            Unit::Bytes,
            self.held_bytes.clone(),
        );
    }

    /// Says how many versions of the table of `label` are held, and what they take.
    pub fn hold(&self, label: &TableLabel, versions: u64, bytes: u64) {
        // Who sees the versions sees what they take.
        self.held_bytes.get_or_create(label).set(bytes);
        self.versions.get_or_create(label).set(versions);
    }

    /// Says how large the table of `label` is.
    pub fn set(&self, label: &TableLabel, rows: u64, bytes: u64) {
        self.rows.get_or_create(label).set(rows);
        self.bytes.get_or_create(label).set(bytes);
    }
}

impl Metrics {
    /// Those of a server that calls its part `side`; `register` adds its scheme's.
    pub fn new(
        side: &'static str,
        budget: Arc<Budget>,
        register: impl FnOnce(&mut Registry),
    ) -> Arc<Self> {
        let mut metrics = Self {
            registry: Registry::with_prefix("hushtable"),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(seconds),
            connections: Gauge::default(),
            connections_refused: Counter::default(),
            handshakes_failed: Counter::default(),
            limited: Family::default(),
            reloads: Family::default(),
            inflight_bytes: Gauge::default(),
            budget,
        };
        let r = &mut metrics.registry;
        let build = Info::new(BuildLabels { version: env!("CARGO_PKG_VERSION"), side });
        r.register("build", "Version and side of this server", build);
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
        r.register(
            "peers_limited",
            "Connections closed and requests refused for what one peer did, by reason",
            metrics.limited.clone(),
        );
        for limited in Limited::ALL {
            drop(metrics.limited.get_or_create(&LimitedLabel { reason: limited.name() }));
        }
        r.register(
            "reloads",
            "Next versions and certificates that were asked for, by what came of it",
            metrics.reloads.clone(),
        );
        for outcome in ["taken", "unchanged", "refused", "certificate", "certificate_refused"] {
            drop(metrics.reloads.get_or_create(&OutcomeLabel { outcome }));
        }
        r.register_with_unit(
            "inflight",
            "Requests and answers in memory",
            Unit::Bytes,
            metrics.inflight_bytes.clone(),
        );
        register(r);
        Arc::new(metrics)
    }

    /// Counts a request that was answered, or given up by its client (`CANCELLED`).
    pub fn record(&self, method: &'static str, code: tonic::Code, took: Duration) {
        self.requests.get_or_create(&RequestLabels { method, code: code_name(code) }).inc();
        self.request_seconds.get_or_create(&MethodLabel { method }).observe(took.as_secs_f64());
    }

    /// Counts what a peer was kept from.
    pub fn limit(&self, limited: Limited) {
        self.limited.get_or_create(&LimitedLabel { reason: limited.name() }).inc();
    }

    /// Counts what came of a next version or certificate.
    pub fn reload(&self, outcome: &'static str) {
        self.reloads.get_or_create(&OutcomeLabel { outcome }).inc();
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
