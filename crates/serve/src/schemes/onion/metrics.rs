//! What a server that is asked alone counts: passes over its tables, and its clients' keys.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::batch::{PassFamilies, PassMetrics, PassNames};
use crate::host::metrics::{TableLabel, TableSizes};

/// What a store of clients' keys counts. One store serves all tables.
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

/// What a server counts, for all of its tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct OnionMetrics {
    sizes: TableSizes,
    passes: PassFamilies,
    scan_seconds: Family<TableLabel, Gauge<f64, AtomicU64>>,
    /// Clients' keys.
    pub keys: KeyMetrics,
}

/// What it counts for one table.
#[derive(Clone, Debug)]
pub(crate) struct OnionTableMetrics {
    of: OnionMetrics,
    label: TableLabel,
    /// Passes over the table.
    pub passes: PassMetrics,
}

impl KeyMetrics {
    fn register(&self, r: &mut Registry) {
        let in_memory = self.in_memory.clone();
        r.register("client_keys_memory", "Clients whose keys are in memory", in_memory);
        let on_disk = self.on_disk.clone();
        r.register("client_keys_disk", "Clients whose keys are in the folder", on_disk);
        r.register_with_unit(
            "client_keys_memory",
            "Clients' keys in memory",
            Unit::Bytes,
            self.memory_bytes.clone(),
        );
        r.register_with_unit(
            "client_keys_disk",
            "Clients' keys in the folder",
            Unit::Bytes,
            self.disk_bytes.clone(),
        );
        r.register("client_keys_uploaded", "Uploads of keys not held", self.uploaded.clone());
        r.register("client_keys_evicted", "Keys dropped to make room", self.evicted.clone());
        r.register("client_keys_loaded", "Keys read back from the folder", self.loaded.clone());
        r.register("client_keys_damaged", "Damaged or missing files", self.damaged.clone());
    }
}

impl OnionMetrics {
    pub fn register(&self, r: &mut Registry) {
        self.sizes.register(r);
        self.passes.register(r, PASSES);
        r.register_with_unit(
            "scan",
            "What a pass for one query took at the start",
            Unit::Seconds,
            self.scan_seconds.clone(),
        );
        self.keys.register(r);
    }

    /// What is counted for the table called `name`.
    pub fn table(&self, name: &str) -> OnionTableMetrics {
        let label = TableLabel::new(name);
        let passes = self.passes.table(&label);
        OnionTableMetrics { of: self.clone(), passes, label }
    }
}

impl OnionTableMetrics {
    pub fn describe_table(&self, rows: u64, bytes: u64, scan: Duration) {
        self.of.sizes.set(&self.label, rows, bytes);
        self.of.scan_seconds.get_or_create(&self.label).set(scan.as_secs_f64());
    }
}

const PASSES: PassNames =
    PassNames { queries: "queries", waited: "queue", answer: "answer", passes: "passes" };
