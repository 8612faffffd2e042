//! A platform that has no engine for GPUs.

use std::path::PathBuf;

use super::Report;

/// Why there is none.
pub(crate) const REASON: &str =
    "hushtable has an engine for GPUs on Linux, x86-64 and aarch64, alone";

pub(crate) fn report(_: Vec<PathBuf>) -> Report {
    Report { reason: Some(REASON.into()), ..Report::default() }
}
