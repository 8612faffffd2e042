//! What a client holds a server's announcement against before it sends anything.
//!
//! A server is not believed: what it announces is recomputed, compared with what the caller
//! accepts or with the other server's word, or held to a limit. `docs/security/clients.md` lists every field; a
//! test (`tests/it/announced.rs` of the servers' crate) holds that list complete and goes over all of
//! them with hostile values.

use std::ops::RangeInclusive;
use std::time::Duration;

use hushtable_table::{DType, Version};

use super::ReplyDefect;
use crate::TableShape;

/// A number within its limits.
pub(super) fn within(
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
pub(super) fn count_within(
    field: &'static str,
    found: u32,
    max: u32,
) -> Result<usize, ReplyDefect> {
    within(field, found.into(), 1..=max.into()).map(|count| count as usize)
}

/// How long a request may wait for others: what a server can be told to, at most.
pub(super) fn window(field: &'static str, found: u64) -> Result<Duration, ReplyDefect> {
    within(field, found, 0..=WINDOW_US_MAX).map(Duration::from_micros)
}

/// How many messages of `bytes` a request has room for, one at least.
pub(super) fn fit(request_bytes_max: u64, bytes: u64, overhead: u64) -> Result<usize, ReplyDefect> {
    let (found, min) = (request_bytes_max, bytes + overhead);
    within("request_bytes_max", found, min..=REQUEST_BYTES_MAX)?;
    Ok(usize::try_from((found - overhead) / bytes).unwrap_or(usize::MAX))
}

/// A text that can be shown to people: not long, and without what commands a terminal.
pub(super) fn text(field: &'static str, found: String) -> Result<String, ReplyDefect> {
    match found.len() <= TEXT_BYTES_MAX && !found.chars().any(char::is_control) {
        true => Ok(found),
        false => Err(ReplyDefect::Text { field, bytes: found.len() }),
    }
}

/// What is kept of a text that another machine sent.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(TEXT_BYTES_MAX).collect()
}

/// What is kept of an error about what another machine sent, without what commands a terminal.
pub(super) fn cut_long(error: impl std::fmt::Display) -> String {
    error.to_string().chars().filter(|char| !char.is_control()).take(512).collect()
}

/// A version as messages have it.
///
/// # Errors
/// [`ReplyDefect::VersionBytes`].
pub fn version(bytes: &[u8]) -> Result<Version, ReplyDefect> {
    <[u8; 32]>::try_from(bytes)
        .map(Version::from)
        .map_err(|_| ReplyDefect::VersionBytes { found: bytes.len() })
}

/// All versions of one thing that a server holds: the first is the current one. An older server
/// lists none, and has the current one alone.
pub(super) fn versions<B: AsRef<[u8]>>(
    current: Version,
    listed: &[B],
) -> Result<Vec<Version>, ReplyDefect> {
    within("versions", listed.len() as u64, 0..=VERSIONS_MAX)?;
    let versions = listed.iter().map(|bytes| version(bytes.as_ref()));
    let versions = versions.collect::<Result<Vec<_>, _>>()?;
    match versions.first() {
        None => Ok(vec![current]),
        Some(&first) if first != current => Err(ReplyDefect::Versions { current, first }),
        Some(_) => Ok(versions),
    }
}

/// The newest version that both servers list; where they disagree on which is newer, the left one is believed.
pub(super) fn newest_of_both(left: &[Version], right: &[Version]) -> Option<Version> {
    left.iter().copied().find(|version| right.contains(version))
}

/// A table's shape, which must fit its number type.
pub(super) fn shape(
    rows: u64,
    row_bytes: u32,
    dim: u32,
    dtype: DType,
) -> Result<TableShape, ReplyDefect> {
    let shape = TableShape::new(rows, row_bytes as usize).map_err(ReplyDefect::Shape)?;
    let expected = bytes_of_row(dtype, dim);
    if expected != Some(shape.row_bytes()) {
        let expected = expected.unwrap_or(usize::MAX);
        return Err(ReplyDefect::RowBytes { dim, dtype, expected, found: row_bytes });
    }
    Ok(shape)
}

/// Bytes of a row, or `None` for a dim that no row has.
fn bytes_of_row(dtype: DType, dim: u32) -> Option<usize> {
    let dim = usize::try_from(dim).ok().filter(|dim| (1..=TableShape::ROW_BYTES_MAX).contains(dim));
    dim.map(|dim| dtype.row_bytes(dim))
}

/// Names of tables have up to 128 bytes.
pub(super) const TEXT_BYTES_MAX: usize = 128;
/// What no server holds at once.
pub(super) const REQUEST_BYTES_MAX: u64 = 1 << 40;
/// What a request has around its keys: the version, and tags.
pub const REQUEST_BYTES: u64 = 64;
/// What a key has around it in a request: a tag, and a length of at most three bytes.
pub const KEY_OVERHEAD_BYTES: u64 = 4;
/// The most that one server's answer to an inference may take: what a server's requests may hold
/// together by default.
pub(super) const BAG_ANSWER_BYTES_MAX: u64 = 256 << 20;
/// The most keys that a server can be told to take in one request.
pub const KEYS_PER_REQUEST_MAX: u32 = 1 << 20;
/// The most inferences by a layout that a server can be told to take in one request.
pub const BAGS_PER_REQUEST_MAX: u32 = 1 << 12;
/// The most queries.
pub const QUERIES_PER_REQUEST_MAX: u32 = 1 << 16;
/// A minute: the longest window that a server can be told.
const WINDOW_US_MAX: u64 = 60_000_000;
/// Versions of one table or model that a server may list.
pub(super) const VERSIONS_MAX: u64 = 64;
