//! What a client holds a server's announcement against before it sends anything.
//!
//! A server is not believed: what it announces is recomputed, compared with what the caller
//! accepts or with the other server's word, or held to a limit. `SECURITY.md` lists every field; a
//! test (`tests/announced.rs`) holds that list complete and goes over all of them with hostile
//! values.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::values::microseconds;
use crate::ReplyDefect;
use crate::batch::WINDOW_MAX;

/// A number within its limits.
pub(crate) fn within(
    field: &'static str,
    found: u64,
    range: RangeInclusive<u64>,
) -> Result<u64, ReplyDefect> {
    match range.contains(&found) {
        true => Ok(found),
        false => Err(ReplyDefect::Range { field, found, min: *range.start(), max: *range.end() }),
    }
}

/// A count within its limits.
pub(crate) fn count_within(
    field: &'static str,
    found: u32,
    max: u32,
) -> Result<usize, ReplyDefect> {
    within(field, found.into(), 1..=max.into()).map(|count| count as usize)
}

/// How long a request may wait for others: what a server can be told to, at most.
pub(crate) fn window(field: &'static str, found: u64) -> Result<Duration, ReplyDefect> {
    within(field, found, 0..=microseconds(WINDOW_MAX)).map(Duration::from_micros)
}

/// How many messages of `bytes` a request has room for, one at least.
pub(crate) fn fit(request_bytes_max: u64, bytes: u64, overhead: u64) -> Result<usize, ReplyDefect> {
    let (found, min) = (request_bytes_max, bytes + overhead);
    within("request_bytes_max", found, min..=REQUEST_BYTES_MAX)?;
    Ok(usize::try_from((found - overhead) / bytes).unwrap_or(usize::MAX))
}

/// A text that can be shown to people: not long, and without what commands a terminal.
pub(crate) fn text(field: &'static str, found: String) -> Result<String, ReplyDefect> {
    match found.len() <= TEXT_BYTES_MAX && !found.chars().any(char::is_control) {
        true => Ok(found),
        false => Err(ReplyDefect::Text { field, bytes: found.len() }),
    }
}

/// Names of tables have up to 128 bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 128;
/// What no server holds at once.
pub(crate) const REQUEST_BYTES_MAX: u64 = 1 << 40;
/// What a request has around its keys: the version, and tags.
pub(crate) const REQUEST_BYTES: u64 = 64;
/// What a key has around it in a request: a tag, and a length of at most three bytes.
pub(crate) const KEY_OVERHEAD_BYTES: u64 = 4;
/// The most that one server's answer to an inference may take: what a server's requests may hold
/// together by default.
pub(crate) const BAG_ANSWER_BYTES_MAX: u64 = 256 << 20;
/// The most keys that a server can be told to take in one request.
pub(crate) const KEYS_PER_REQUEST_MAX: u32 = 1 << 20;
/// The most queries.
pub(crate) const QUERIES_PER_REQUEST_MAX: u32 = 1 << 16;
