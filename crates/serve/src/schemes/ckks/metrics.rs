//! What a server of encrypted inference counts: passes over its model, and its clients' keys.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use hushtable_infer::dlrm::Masks;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::batch::{PassFamilies, PassMetrics, PassNames};
use crate::keys::KeyMetrics;
use crate::labels::TableLabel;

/// What a server counts. Its model takes the place of a table in the labels.
#[derive(Clone, Debug, Default)]
pub(super) struct CkksMetrics {
    passes: PassFamilies,
    check_seconds: Family<TableLabel, Gauge<f64, AtomicU64>>,
    key_bytes: Family<MasksLabel, Gauge>,
    /// Uploads that lost their place to a client that had fewer.
    pub displaced: Counter,
    /// Clients' keys.
    pub keys: KeyMetrics,
}

/// How keys are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MasksLabel {
    masks: &'static str,
}

impl CkksMetrics {
    pub fn register(&self, r: &mut Registry) {
        self.passes.register(r, PASSES);
        r.register_with_unit(
            "self_check",
            "What one encrypted query took at the start",
            Unit::Seconds,
            self.check_seconds.clone(),
        );
        r.register_with_unit(
            "client_keys_each",
            "What one client's keys take in memory, with their masks held or drawn at each use",
            Unit::Bytes,
            self.key_bytes.clone(),
        );
        r.register(
            "displaced",
            "Uploads that lost their place to a client that had fewer",
            self.displaced.clone(),
        );
        self.keys.register(r);
    }

    /// Passes over the model called `name`.
    pub fn passes(&self, name: &str) -> PassMetrics {
        self.passes.table(&TableLabel::new(name))
    }

    /// Says how long the self-check's query took.
    pub fn describe(&self, name: &str, pass: Duration) {
        self.check_seconds.get_or_create(&TableLabel::new(name)).set(pass.as_secs_f64());
    }

    /// Says how one client's keys are kept, and what memory they take.
    pub fn describe_keys(&self, masks: Masks, memory_bytes: usize) {
        let label = MasksLabel { masks: masks.name() };
        self.key_bytes.get_or_create(&label).set(memory_bytes as i64);
    }
}

const PASSES: PassNames =
    PassNames { queries: "queries", waited: "queue", answer: "answer", passes: "passes" };
