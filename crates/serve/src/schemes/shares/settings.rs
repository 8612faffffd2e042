//! The settings of a server of this scheme.

use hushtable_pir::dpf::Side;

use super::SharesServerSpec;
use crate::settings::{Kind, MODEL, PLAN, SIDE, Setting, THREADS};

/// [`SharesServerSpec`]'s own, in the order of a help page.
pub(super) const SETTINGS: &[Setting] = &[
    MODEL,
    SIDE,
    Setting::new(
        "peer",
        Kind::Text,
        "right has none",
        "Where right is, https://host:port: left calls it.",
    ),
    Setting::new(
        "peer_ca",
        Kind::Path,
        "whoever connects from this machine",
        "The authority of the other server's certificate, a PEM file.",
    ),
    Setting::new(
        "peer_cert",
        Kind::Path,
        "that of tls.cert",
        "The certificate that left shows to right, a PEM file.",
    ),
    Setting::new("peer_key", Kind::Path, "that of tls.key", "Its key, a PEM file."),
    PLAN,
    THREADS,
    Setting::new(
        "batch_inferences_max",
        Kind::Count,
        "",
        "Most inferences whose rows are looked up in one pass.",
    ),
    Setting::new("inferences_max", Kind::Count, "", "Most inferences at once; beyond, BUSY."),
    Setting::new(
        "silence_ms_max",
        Kind::Milliseconds,
        "",
        "How long the other server may be silent about an inference.",
    ),
    Setting::new(
        "dealer",
        Kind::Choice(&["client", "servers"]),
        "",
        "Who deals what an inference takes: the client, or both servers beforehand. Both must have the same.",
    ),
    Setting::new(
        "precomputes",
        Kind::Path,
        "none, where clients deal",
        "Folder for what the servers dealt, of this process alone.",
    ),
    Setting::new(
        "precomputes_key",
        Kind::Path,
        "key, in the folder",
        "File of the key that --precomputes is sealed with; made where there is none.",
    ),
    Setting::new(
        "precomputes_ledger",
        Kind::Path,
        "where the machine keeps its state",
        "Folder, outside of --precomputes, that says what of it may still be used.",
    ),
    Setting::new("precomputes_bytes_max", Kind::Bytes, "", "Most bytes of what the servers dealt."),
    Setting::new(
        "refill_percent",
        Kind::Count,
        "",
        "Hundredths of one core that dealing may take, 1 to 100.",
    ),
    Setting::new("refill_batch", Kind::Count, "", "Inferences that are dealt for at once."),
];

/// A spec of which nothing is given.
pub(super) fn defaults() -> serde_json::Result<serde_json::Value> {
    serde_json::to_value(SharesServerSpec::new("", Side::Left))
}
