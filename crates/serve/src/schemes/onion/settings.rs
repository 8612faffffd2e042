//! The settings of a server of this scheme.

use super::OnionServerSpec;
use crate::settings::{
    BEST, KEEP_OLD_S, KEEP_OLD_S_MAX, KEYS_BYTES_PER_PEER_MAX, KEYS_FOLDER, KEYS_FOLDER_BYTES_MAX,
    KEYS_MEMORY_BYTES_MAX, Kind, PUSH_FOLDER, PUSH_TOKEN_FILE, QUEUE_QUERIES_MAX, SHARD,
    SHARDS_FILE, Setting, TABLE, TABLES, TABLES_BYTES_MAX, THREADS, WATCH, WINDOW_US,
};

/// [`OnionServerSpec`]'s own, in the order of a help page.
pub(super) const SETTINGS: &[Setting] = &[
    TABLE,
    TABLES,
    SHARD,
    Setting::new(
        "shards",
        Kind::Count,
        "what the model's map says",
        "How many shards there are, of which --shard is one.",
    ),
    SHARDS_FILE,
    TABLES_BYTES_MAX,
    Setting::new(
        "parameters",
        Kind::Choice(&["n4096_128", "ive_paper"]),
        "",
        "Parameter set. ive_paper has less than 128 bits by the 2024 guidelines.",
    ),
    Setting::new(
        "prepared",
        Kind::Path,
        "beside the bundle, BUNDLE.onion-PARAMETERS.prepared",
        "The prepared file, made at the start where it is missing or stale; none to prepare in \
         memory.",
    ),
    Setting::new(
        "mapped",
        Kind::Flag,
        "",
        "Answer from the prepared file itself, so that the system may drop what is not read, \
         instead of a copy in memory, which is faster.",
    ),
    THREADS,
    WINDOW_US,
    Setting::new("batch_queries_max", Kind::Count, BEST, "Most queries in a pass."),
    Setting::new(
        "queries_per_request_max",
        Kind::Count,
        "64, less for long rows",
        "Most queries in a request.",
    ),
    QUEUE_QUERIES_MAX,
    KEYS_FOLDER,
    KEYS_MEMORY_BYTES_MAX,
    KEYS_FOLDER_BYTES_MAX,
    KEYS_BYTES_PER_PEER_MAX,
    WATCH,
    PUSH_FOLDER,
    PUSH_TOKEN_FILE,
    KEEP_OLD_S,
    KEEP_OLD_S_MAX,
];

/// A spec of which nothing is given.
pub(super) fn defaults() -> serde_json::Result<serde_json::Value> {
    serde_json::to_value(OnionServerSpec::new(""))
}
