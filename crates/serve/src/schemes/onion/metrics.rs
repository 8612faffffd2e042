//! What a server that is asked alone counts: passes over its tables, and its clients' keys.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::batch::{PassFamilies, PassMetrics, PassNames};
use crate::host::metrics::TableSizes;
use crate::keys::KeyMetrics;
use crate::labels::TableLabel;

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

    /// Says how many versions of the table called `name` are held, and what they take.
    pub fn hold(&self, name: &str, versions: u64, bytes: u64) {
        self.sizes.hold(&TableLabel::new(name), versions, bytes);
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
