//! The settings of a server of this scheme.

use hushtable_pir::dpf::Side;

use super::ServerSpec;
use crate::settings::{
    BEST, KEEP_OLD_S, KEEP_OLD_S_MAX, Kind, PUSH_FOLDER, PUSH_TOKEN_FILE, SHARD, SHARDS_FILE, SIDE,
    Setting, TABLE, TABLES, TABLES_BYTES_MAX, THREADS, WATCH, WINDOW_US,
};

/// [`ServerSpec`]'s own, in the order of a help page.
pub(super) const SETTINGS: &[Setting] = &[
    TABLE,
    TABLES,
    TABLES_BYTES_MAX,
    SIDE,
    SHARD,
    SHARDS_FILE,
    Setting::new(
        "device",
        Kind::Text,
        "",
        "What answers: cpu, cuda, cuda:NUMBER, or auto, a GPU where there is one.",
    ),
    Setting::new(
        "nvrtc_folders",
        Kind::Paths,
        "",
        "Folders with NVRTC, which compiles a GPU's kernels, beside the usual places.",
    ),
    THREADS,
    WINDOW_US,
    Setting::new("batch_keys_max", Kind::Count, BEST, "Most keys in a pass."),
    Setting::new(
        "keys_per_request_max",
        Kind::Count,
        "1024, less for long rows",
        "Most keys in a request.",
    ),
    Setting::new("queue_keys_max", Kind::Count, "", "Most keys that wait; beyond, BUSY."),
    Setting::new("batch_bags_max", Kind::Count, BEST, "Most inferences in a pass."),
    Setting::new("queue_bags_max", Kind::Count, "", "Most inferences that wait; beyond, BUSY."),
    Setting::new(
        "bags_per_request_max",
        Kind::Count,
        "256, less for large ones",
        "Most inferences in a request by a layout.",
    ),
    Setting::new("prgs", Kind::Names, "", "Generators that keys may use."),
    WATCH,
    PUSH_FOLDER,
    PUSH_TOKEN_FILE,
    KEEP_OLD_S,
    KEEP_OLD_S_MAX,
];

/// A spec of which nothing is given.
pub(super) fn defaults() -> serde_json::Result<serde_json::Value> {
    serde_json::to_value(ServerSpec::new("", Side::Left))
}
