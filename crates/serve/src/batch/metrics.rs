//! What schedulers count, for each table that they answer from.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::labels::{TableLabel, seconds};

/// What the scheduler of one table counts.
#[derive(Clone, Debug)]
pub struct PassMetrics {
    /// Of which table; None where it is counted alone.
    pub(crate) table: Option<Arc<str>>,
    /// What is asked, as metrics call it.
    pub(crate) asked: &'static str,
    pub(crate) queued: Gauge,
    pub(crate) waited: Histogram,
    queries: Histogram,
    seconds: Histogram,
    answered: Counter,
    passes: Counter,
}

/// What the schedulers of all tables count.
#[derive(Clone, Debug)]
pub struct PassFamilies {
    asked: Arc<OnceLock<&'static str>>,
    queued: Family<TableLabel, Gauge>,
    waited: Family<TableLabel, Histogram>,
    queries: Family<TableLabel, Histogram>,
    seconds: Family<TableLabel, Histogram>,
    answered: Family<TableLabel, Counter>,
    passes: Family<TableLabel, Counter>,
}

/// What a scheme calls the metrics of one kind of its passes.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "names are written field by field")]
pub struct PassNames {
    /// What is asked: `keys` makes `queue_keys`, `batch_keys` and `answered_keys`.
    pub queries: &'static str,
    /// How long a request waits, without its unit.
    pub waited: &'static str,
    /// How long a pass takes, without its unit.
    pub answer: &'static str,
    /// How many passes there were.
    pub passes: &'static str,
}

impl Default for PassMetrics {
    fn default() -> Self {
        Self {
            table: None,
            asked: ASKED,
            queued: Gauge::default(),
            waited: seconds(),
            queries: sizes(),
            seconds: seconds(),
            answered: Counter::default(),
            passes: Counter::default(),
        }
    }
}

impl PassMetrics {
    pub(crate) fn record(&self, queries: usize, took: Duration) {
        self.queries.observe(queries as f64);
        self.seconds.observe(took.as_secs_f64());
        self.answered.inc_by(queries as u64);
        self.passes.inc();
    }

    /// Passes that have run.
    pub fn passes(&self) -> u64 {
        self.passes.get()
    }

    /// Queries that passes have answered.
    pub fn answered(&self) -> u64 {
        self.answered.get()
    }
}

impl Default for PassFamilies {
    fn default() -> Self {
        Self {
            asked: Arc::default(),
            queued: Family::default(),
            waited: Family::new_with_constructor(seconds),
            queries: Family::new_with_constructor(sizes),
            seconds: Family::new_with_constructor(seconds),
            answered: Family::default(),
            passes: Family::default(),
        }
    }
}

impl PassFamilies {
    /// Registers them under these names.
    pub fn register(&self, r: &mut Registry, names: PassNames) {
        let PassNames { queries, waited, answer, passes } = names;
        // Registered once, so named once.
        let _ = self.asked.set(queries);
        r.register(
            format!("queue_{queries}"),
            "What is asked and waits for a pass",
            self.queued.clone(),
        );
        r.register_with_unit(
            waited,
            "From a request's arrival to the start of its last pass",
            Unit::Seconds,
            self.waited.clone(),
        );
        r.register(
            format!("batch_{queries}"),
            "What is asked and shared a pass",
            self.queries.clone(),
        );
        r.register_with_unit(answer, "What a pass took", Unit::Seconds, self.seconds.clone());
        r.register(
            format!("answered_{queries}"),
            "What is asked and was answered by passes",
            self.answered.clone(),
        );
        r.register(passes, "Passes", self.passes.clone());
    }

    /// What the scheduler of the table of `label` counts.
    pub fn table(&self, label: &TableLabel) -> PassMetrics {
        PassMetrics {
            table: Some(label.table.as_str().into()),
            asked: self.asked.get().copied().unwrap_or(ASKED),
            queued: self.queued.get_or_create_owned(label),
            waited: self.waited.get_or_create_owned(label),
            queries: self.queries.get_or_create_owned(label),
            seconds: self.seconds.get_or_create_owned(label),
            answered: self.answered.get_or_create_owned(label),
            passes: self.passes.get_or_create_owned(label),
        }
    }
}

/// What is asked where nobody gave it a name.
const ASKED: &str = "queries";

/// From one query to what no pass holds.
fn sizes() -> Histogram {
    Histogram::new(exponential_buckets(1.0, 2.0, 12))
}
