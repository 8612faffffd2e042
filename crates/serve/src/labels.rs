//! What several rooms count by.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};

/// Which of a server's tables is counted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
#[allow(clippy::exhaustive_structs, reason = "a label is its name")]
pub struct TableLabel {
    /// The table's name, as its manifest or its model's has it.
    pub table: String,
}

impl TableLabel {
    /// The label of the table of that name.
    pub fn new(table: impl Into<String>) -> Self {
        Self { table: table.into() }
    }
}

/// From what is over at once to what takes a minute.
pub(crate) fn seconds() -> Histogram {
    // 50 microseconds to 54 seconds.
    Histogram::new(exponential_buckets(50e-6, 2.0, 21))
}
