//! What a store of clients' keys counts.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

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

impl KeyMetrics {
    /// Registers them.
    pub(crate) fn register(&self, r: &mut Registry) {
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
