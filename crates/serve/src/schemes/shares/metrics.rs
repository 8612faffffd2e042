//! What a server of predictions on shares counts. No label and no value comes from a query.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

#[derive(Clone, Debug)]
pub(super) struct SharesMetrics {
    pub answered: Counter,
    pub failed: Counter,
    pub displaced: Counter,
    pub sessions: Counter,
    pub sent_bytes: Counter,
    pub received_bytes: Counter,
    pub sent_frames: Counter,
    pub received_frames: Counter,
    /// Where the servers deal: those that both have, and their bytes.
    pub precomputes_ready: Gauge<u64, AtomicU64>,
    pub precomputes_bytes: Gauge<u64, AtomicU64>,
    pub precomputes_made: Counter,
    pub precomputes_used: Counter,
    pub precomputes_refused: Counter,
    pub dry: Counter,
    pub refill_seconds: Counter<f64, AtomicU64>,
    lookup_seconds: Histogram,
    lookup_inferences: Histogram,
}

impl Default for SharesMetrics {
    fn default() -> Self {
        Self {
            answered: Counter::default(),
            failed: Counter::default(),
            displaced: Counter::default(),
            sessions: Counter::default(),
            sent_bytes: Counter::default(),
            received_bytes: Counter::default(),
            sent_frames: Counter::default(),
            received_frames: Counter::default(),
            precomputes_ready: Gauge::default(),
            precomputes_bytes: Gauge::default(),
            precomputes_made: Counter::default(),
            precomputes_used: Counter::default(),
            precomputes_refused: Counter::default(),
            dry: Counter::default(),
            refill_seconds: Counter::default(),
            lookup_seconds: Histogram::new(exponential_buckets(1e-4, 2.0, 16)),
            lookup_inferences: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
        }
    }
}

impl SharesMetrics {
    pub fn register(&self, r: &mut Registry) {
        r.register("inferences", "Inferences that were answered", self.answered.clone());
        r.register(
            "displaced",
            "Inferences that lost their place to a client that had fewer",
            self.displaced.clone(),
        );
        r.register(
            "inferences_failed",
            "Inferences that the servers began and did not end",
            self.failed.clone(),
        );
        r.register("sessions", "Sessions with the other server", self.sessions.clone());
        let bytes = [
            ("peer_sent", "Sent to the other server", &self.sent_bytes),
            ("peer_received", "Received from the other server", &self.received_bytes),
        ];
        for (name, help, counter) in bytes {
            r.register_with_unit(name, help, Unit::Bytes, counter.clone());
        }
        r.register("peer_frames_sent", "Frames to the other server", self.sent_frames.clone());
        r.register(
            "peer_frames_received",
            "Frames of the other server",
            self.received_frames.clone(),
        );
        r.register(
            "precomputes_ready",
            "Inferences that both servers have dealt for and not begun",
            self.precomputes_ready.clone(),
        );
        r.register_with_unit(
            "precomputes",
            "Room that those take",
            Unit::Bytes,
            self.precomputes_bytes.clone(),
        );
        r.register(
            "precomputes_made",
            "Inferences that the servers dealt for",
            self.precomputes_made.clone(),
        );
        r.register(
            "precomputes_used",
            "Of those, what was taken out",
            self.precomputes_used.clone(),
        );
        r.register(
            "precomputes_refused",
            "Of what was dealt, what may have been used before and was dropped",
            self.precomputes_refused.clone(),
        );
        r.register("inferences_dry", "Refused, for nothing was dealt for them", self.dry.clone());
        r.register_with_unit(
            "refill",
            "Work of dealing",
            Unit::Seconds,
            self.refill_seconds.clone(),
        );
        r.register_with_unit(
            "lookup",
            "What a pass over the tables takes",
            Unit::Seconds,
            self.lookup_seconds.clone(),
        );
        r.register(
            "lookup_inferences",
            "Inferences that share a pass",
            self.lookup_inferences.clone(),
        );
    }

    /// Counts a pass for so many inferences.
    pub fn lookups(&self, inferences: usize, took: Duration) {
        self.lookup_seconds.observe(took.as_secs_f64());
        self.lookup_inferences.observe(inferences as f64);
    }
}
