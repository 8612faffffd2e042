//! What a server of encrypted inference counts: passes over its model, and its clients' keys.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

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
    /// Uploads that lost their place to a client that had fewer.
    pub displaced: Counter,
    /// Clients' keys.
    pub keys: KeyMetrics,
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
}

const PASSES: PassNames =
    PassNames { queries: "queries", waited: "queue", answer: "answer", passes: "passes" };
