//! What a server of a pair counts, for each of its tables.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::batch::{PassFamilies, PassMetrics, PassNames};
use crate::host::metrics::TableSizes;
use crate::labels::TableLabel;

/// What a server counts, for all of its tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct PairMetrics {
    sizes: TableSizes,
    engine: Family<EngineLabels, Gauge>,
    passes: PassFamilies,
    scan_seconds: Family<TableLabel, Gauge<f64, AtomicU64>>,
    bag_passes: PassFamilies,
    model_passes: PassFamilies,
    layout_keys: Family<TableLabel, Gauge<u64, AtomicU64>>,
    layout_bytes: Family<TableLabel, Gauge<u64, AtomicU64>>,
    bag_scan_seconds: Family<TableLabel, Gauge<f64, AtomicU64>>,
}

/// What it counts for one table.
#[derive(Clone, Debug)]
pub(crate) struct PairTableMetrics {
    of: PairMetrics,
    label: TableLabel,
    /// Passes over the table.
    pub passes: PassMetrics,
    /// Passes over its layout's bins.
    pub bag_passes: PassMetrics,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EngineLabels {
    table: String,
    description: String,
}

impl PairMetrics {
    pub fn register(&self, r: &mut Registry) {
        self.sizes.register(r);
        r.register("engine_info", "What answers keys", self.engine.clone());
        self.passes.register(r, PASSES);
        r.register_with_unit(
            "scan",
            "What a pass for one key took at the start",
            Unit::Seconds,
            self.scan_seconds.clone(),
        );
        self.bag_passes.register(r, BAG_PASSES);
        self.model_passes.register(r, MODEL_PASSES);
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

    /// What is counted for the table called `name`.
    pub fn table(&self, name: &str) -> PairTableMetrics {
        let label = TableLabel::new(name);
        let metrics = PairTableMetrics {
            of: self.clone(),
            passes: self.passes.table(&label),
            bag_passes: self.bag_passes.table(&label),
            label,
        };
        metrics.describe_layout(0, 0, Duration::ZERO);
        metrics
    }
}

impl PairMetrics {
    /// Says how many versions of the table called `name` are held, and what they take.
    pub fn hold(&self, name: &str, versions: u64, bytes: u64) {
        self.sizes.hold(&TableLabel::new(name), versions, bytes);
    }

    /// What is counted for the model called `name`, over all of its tables; it stands where others
    /// have a table's name.
    pub fn model(&self, name: &str) -> PassMetrics {
        self.model_passes.table(&TableLabel::new(name))
    }
}

impl PairTableMetrics {
    /// Says what answers keys.
    pub fn describe_engine(&self, description: String) {
        let table = self.label.table.clone();
        self.of.engine.get_or_create(&EngineLabels { table, description }).set(1);
    }

    pub fn describe_table(&self, rows: u64, bytes: u64, scan: Duration) {
        self.of.sizes.set(&self.label, rows, bytes);
        self.of.scan_seconds.get_or_create(&self.label).set(scan.as_secs_f64());
    }

    pub fn describe_layout(&self, keys: u64, stored_bytes: u64, scan: Duration) {
        self.of.layout_keys.get_or_create(&self.label).set(keys);
        self.of.layout_bytes.get_or_create(&self.label).set(stored_bytes);
        self.of.bag_scan_seconds.get_or_create(&self.label).set(scan.as_secs_f64());
    }
}

const PASSES: PassNames =
    PassNames { queries: "keys", waited: "queue", answer: "answer", passes: "passes" };
const BAG_PASSES: PassNames = PassNames {
    queries: "bags",
    waited: "queue_bags",
    answer: "answer_bags",
    passes: "bag_passes",
};
const MODEL_PASSES: PassNames = PassNames {
    queries: "inferences",
    waited: "queue_inferences",
    answer: "answer_inferences",
    passes: "model_passes",
};
