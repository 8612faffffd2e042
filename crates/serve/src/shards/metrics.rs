//! What a front counts. No label comes from a query: every pass goes to every shard.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::labels::seconds;

/// What a front counts of its shards.
#[derive(Clone, Debug)]
pub(crate) struct FrontMetrics {
    requests: Family<OutcomeLabels, Counter>,
    pub hedges: Counter,
    seconds: Family<ShardLabel, Histogram>,
    replicas: Family<ShardLabel, Gauge<u64, AtomicU64>>,
    ready: Family<ShardLabel, Gauge<u64, AtomicU64>>,
    pub absent: Counter,
    pub own: Histogram,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ShardLabel {
    shard: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    shard: u64,
    outcome: &'static str,
}

/// What came of asking one server for a shard's part of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartOutcome {
    /// It answered, and nobody else was asked, or it was the first.
    Ok,
    /// It did not.
    Failed,
    /// It answered first, and was asked because another was late.
    HedgeWon,
    /// It was given up, since another answered first.
    HedgeLost,
    /// It answers by another map or version, for another shard or side.
    Skew,
}

impl PartOutcome {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::HedgeWon => "hedge_won",
            Self::HedgeLost => "hedge_lost",
            Self::Skew => "skew",
        }
    }
}

impl Default for FrontMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            hedges: Counter::default(),
            seconds: Family::new_with_constructor(seconds),
            replicas: Family::default(),
            ready: Family::default(),
            absent: Counter::default(),
            own: seconds(),
        }
    }
}

impl FrontMetrics {
    pub fn register(&self, r: &mut Registry) {
        let r = r.sub_registry_with_prefix("front");
        r.register(
            "shard_requests",
            "Parts of passes that servers of shards were asked for, by what came of it",
            self.requests.clone(),
        );
        r.register(
            "hedges",
            "Parts of passes that a second server was asked for since the first was late",
            self.hedges.clone(),
        );
        r.register_with_unit(
            "shard",
            "What a shard's part of a pass took, as the front sees it",
            Unit::Seconds,
            self.seconds.clone(),
        );
        r.register("shard_replicas", "Servers of the shard", self.replicas.clone());
        r.register(
            "shard_replicas_ready",
            "Servers of the shard that hold the newest version that is served",
            self.ready.clone(),
        );
        r.register(
            "refused_absent",
            "Passes that failed since no server of a shard answered",
            self.absent.clone(),
        );
        r.register_with_unit(
            "own",
            "Of a pass, what no shard's own time is",
            Unit::Seconds,
            self.own.clone(),
        );
    }

    pub(super) fn asked(&self, shard: usize, outcome: PartOutcome) {
        let labels = OutcomeLabels { shard: shard as u64, outcome: outcome.name() };
        self.requests.get_or_create(&labels).inc();
    }

    pub fn took(&self, shard: usize, seconds: f64) {
        self.seconds.get_or_create(&ShardLabel { shard: shard as u64 }).observe(seconds);
    }

    pub fn replicas(&self, shard: usize, all: usize, ready: usize) {
        let label = ShardLabel { shard: shard as u64 };
        self.replicas.get_or_create(&label).set(all as u64);
        self.ready.get_or_create(&label).set(ready as u64);
    }
}
