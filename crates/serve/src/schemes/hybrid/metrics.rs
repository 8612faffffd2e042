//! What a server of hybrid inference counts. Nothing here says what was asked.

use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::precomputes::Precomputes;
use crate::labels::seconds;

/// What a server counts.
#[derive(Clone, Debug)]
pub(super) struct HybridMetrics {
    open: Gauge<u64, AtomicU64>,
    kept: Gauge<u64, AtomicU64>,
    kept_bytes: Gauge<u64, AtomicU64>,
    pub finished: Counter,
    pub used: Counter,
    pub displaced: Counter,
    refused: Counter,
    pub predicted: Counter,
    pub step_seconds: Histogram,
    pub prediction_seconds: Histogram,
}

impl HybridMetrics {
    pub fn new() -> Self {
        Self {
            open: Gauge::default(),
            kept: Gauge::default(),
            kept_bytes: Gauge::default(),
            finished: Counter::default(),
            used: Counter::default(),
            displaced: Counter::default(),
            refused: Counter::default(),
            predicted: Counter::default(),
            step_seconds: seconds(),
            prediction_seconds: seconds(),
        }
    }

    pub fn register(&self, r: &mut Registry) {
        r.register("precomputes_open", "Precomputes that are being made", self.open.clone());
        r.register("precomputes_kept", "Precomputes that can be used", self.kept.clone());
        r.register_with_unit(
            "precomputes",
            "Room that precomputes take",
            Unit::Bytes,
            self.kept_bytes.clone(),
        );
        r.register("precomputes_finished", "Precomputes that were made", self.finished.clone());
        r.register("precomputes_used", "Precomputes that were used", self.used.clone());
        r.register(
            "displaced",
            "Precomputes and predictions that lost their room to a client that had less",
            self.displaced.clone(),
        );
        r.register(
            "precomputes_refused",
            "Precomputes that may have been used before, and were dropped",
            self.refused.clone(),
        );
        r.register("predictions", "Predictions that came to their end", self.predicted.clone());
        r.register_with_unit(
            "step",
            "What a step of a precompute took to compute",
            Unit::Seconds,
            self.step_seconds.clone(),
        );
        r.register_with_unit(
            "prediction",
            "From a precompute's use to the last frame",
            Unit::Seconds,
            self.prediction_seconds.clone(),
        );
    }

    /// Says how many precomputes there are.
    pub fn describe(&self, precomputes: &Precomputes) {
        let count = precomputes.count();
        self.open.set(precomputes.open() as u64);
        self.kept.set(count.precomputes as u64);
        self.kept_bytes.set(count.bytes);
        self.refused.inner().store(precomputes.refused(), Ordering::Relaxed);
    }
}
