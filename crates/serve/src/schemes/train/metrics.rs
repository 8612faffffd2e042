//! What a training server counts: rounds, and what they cost.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::host::metrics::TableSizes;
use crate::labels::TableLabel;

/// What a training server counts.
#[derive(Clone, Debug)]
pub(crate) struct TrainMetrics {
    sizes: TableSizes,
    pub rounds_opened: Counter,
    pub rounds_committed: Counter,
    pub rounds_abandoned: Counter,
    messages_refused: Family<RefusedLabels, Counter>,
    pub begin_seconds: Histogram,
    pub commit_seconds: Histogram,
    pub read_bytes: Counter,
    pub written_bytes: Counter,
}

/// Both are from closed lists.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabels {
    what: &'static str,
    reason: &'static str,
}

impl Default for TrainMetrics {
    fn default() -> Self {
        // 10 ms to 1.5 hours.
        let seconds = || Histogram::new(exponential_buckets(0.01, 2.0, 20));
        Self {
            sizes: TableSizes::default(),
            rounds_opened: Counter::default(),
            rounds_committed: Counter::default(),
            rounds_abandoned: Counter::default(),
            messages_refused: Family::default(),
            begin_seconds: seconds(),
            commit_seconds: seconds(),
            read_bytes: Counter::default(),
            written_bytes: Counter::default(),
        }
    }
}

impl TrainMetrics {
    pub fn register(&self, r: &mut Registry) {
        self.sizes.register(r);
        r.register("rounds_opened", "Rounds opened", self.rounds_opened.clone());
        r.register("rounds_committed", "Rounds committed", self.rounds_committed.clone());
        let abandoned = self.rounds_abandoned.clone();
        r.register("rounds_abandoned", "Rounds that ended without an update", abandoned);
        let refused = self.messages_refused.clone();
        r.register("messages_refused", "Users' messages that were refused", refused);
        r.register_with_unit(
            "round_begin",
            "From closed requests to rows ready",
            Unit::Seconds,
            self.begin_seconds.clone(),
        );
        r.register_with_unit(
            "round_commit",
            "What a commit took",
            Unit::Seconds,
            self.commit_seconds.clone(),
        );
        r.register_with_unit(
            "memory_read",
            "Read from the main memory's file by committed rounds",
            Unit::Bytes,
            self.read_bytes.clone(),
        );
        r.register_with_unit(
            "memory_written",
            "Written to the main memory's file by committed rounds",
            Unit::Bytes,
            self.written_bytes.clone(),
        );
    }

    /// A message, `what`, is refused.
    pub fn refuse(&self, what: &'static str, reason: &'static str) {
        self.messages_refused.get_or_create(&RefusedLabels { what, reason }).inc();
    }

    /// Says how large the trained table is.
    pub fn describe_table(&self, name: &str, rows: u64, bytes: u64) {
        self.sizes.set(&TableLabel::new(name), rows, bytes);
    }
}
