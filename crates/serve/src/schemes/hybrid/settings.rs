//! The settings of a server of this scheme.

use super::HybridServerSpec;
use crate::settings::{Kind, MODEL, PLAN, Setting, THREADS};

/// [`HybridServerSpec`]'s own, in the order of a help page.
pub(super) const SETTINGS: &[Setting] = &[
    MODEL,
    PLAN,
    THREADS,
    Setting::new(
        "store",
        Kind::Path,
        "memory only",
        "Folder where precomputes outlive a restart, of this process alone.",
    ),
    Setting::new(
        "store_key",
        Kind::Path,
        "key, in the folder",
        "File of the key that --store is sealed with; made where there is none.",
    ),
    Setting::new(
        "store_ledger",
        Kind::Path,
        "where the machine keeps its state",
        "Folder, outside of --store, that says what of it may still be used.",
    ),
    Setting::new(
        "store_bytes_max",
        Kind::Bytes,
        "",
        "Most bytes of precomputes; beyond, BUSY until some are used.",
    ),
    Setting::new(
        "precomputes_max",
        Kind::Count,
        "",
        "Most precomputes that are being made at once; beyond, BUSY.",
    ),
    Setting::new(
        "precompute_idle_ms_max",
        Kind::Milliseconds,
        "",
        "How long a precompute that is being made may rest before it is dropped.",
    ),
    Setting::new(
        "precompute_hours_max",
        Kind::Count,
        "",
        "How many hours a precompute waits to be used before it is dropped.",
    ),
    Setting::new(
        "precomputes_per_client_per_day",
        Kind::Count,
        "",
        "Most precomputes that one client may begin in 24 hours, used or not; 0 for as many as it likes.",
    ),
    Setting::new("predictions_max", Kind::Count, "", "Most predictions at once; beyond, BUSY."),
    Setting::new("client_garbles", Kind::Flag, "", "Let clients garble the circuits."),
    Setting::new("server_garbles", Kind::Flag, "", "Garble circuits for clients."),
];

/// A spec of which nothing is given.
pub(super) fn defaults() -> serde_json::Result<serde_json::Value> {
    serde_json::to_value(HybridServerSpec::new(""))
}
