//! The settings of a server of this scheme.

use super::TrainServerSpec;
use crate::settings::{Kind, Setting};

/// [`TrainServerSpec`]'s own, in the order of a help page.
pub(super) const SETTINGS: &[Setting] = &[
    Setting::new(
        "operator_token_file",
        Kind::Path,
        "whoever connects may",
        "File with the token that opening and ending rounds takes.",
    ),
    Setting::new(
        "allow_unenrolled",
        Kind::Flag,
        "",
        "Serve other machines though everyone who connects may take part.",
    ),
    Setting::new(
        "allow_open_operator",
        Kind::Flag,
        "",
        "Serve other machines though everyone who connects may open and end rounds.",
    ),
    Setting::new(
        "backup_dir",
        Kind::Path,
        "writes none",
        "Folder that backups go to, when `hushtable train backup --url` asks for one.",
    ),
    Setting::new(
        "rows_cache_bytes_max",
        Kind::Bytes,
        "",
        "Sealed rows kept until the round ends, to be given again where a reply was lost.",
    ),
    Setting::new(
        "audit_log",
        Kind::Path,
        "none",
        "File to which rounds and refusals are written, in lines that are chained by a key.",
    ),
    Setting::new(
        "request_ms",
        Kind::Milliseconds,
        "",
        "How long requests are taken, where the operator does not say.",
    ),
    Setting::new(
        "upload_ms",
        Kind::Milliseconds,
        "",
        "How long uploads are waited for, where the operator does not say.",
    ),
    Setting::new(
        "finish_ms",
        Kind::Milliseconds,
        "",
        "How long, from then on, the operator is waited for: then a round ends without an update.",
    ),
];

/// A spec of which nothing is given.
pub(super) fn defaults() -> serde_json::Result<serde_json::Value> {
    serde_json::to_value(TrainServerSpec::default())
}
