//! The settings of a server of this scheme.

use super::CkksServerSpec;
use crate::settings::{
    KEYS_BYTES_PER_PEER_MAX, KEYS_FOLDER, KEYS_FOLDER_BYTES_MAX, KEYS_MEMORY_BYTES_MAX, MODEL,
    PLAN, QUEUE_QUERIES_MAX, Setting, THREADS,
};

/// [`CkksServerSpec`]'s own, in the order of a help page.
pub(super) const SETTINGS: &[Setting] = &[
    MODEL,
    PLAN,
    THREADS,
    QUEUE_QUERIES_MAX,
    KEYS_FOLDER,
    KEYS_MEMORY_BYTES_MAX,
    KEYS_FOLDER_BYTES_MAX,
    KEYS_BYTES_PER_PEER_MAX,
];

/// A spec of which nothing is given.
pub(super) fn defaults() -> serde_json::Result<serde_json::Value> {
    serde_json::to_value(CkksServerSpec::new(""))
}
