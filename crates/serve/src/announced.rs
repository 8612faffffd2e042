//! What a client holds a server's announcement against before it sends anything.
//!
//! A server is not believed: what it announces is recomputed, compared with what the caller
//! accepts or with the other server's word, or held to a limit. `SECURITY.md` lists every field; a
//! test (`tests/announced.rs`) holds that list complete and goes over all of them with hostile
//! values.

use std::ops::RangeInclusive;
use std::time::Duration;

use hushtable_pir::PrgKind;
use hushtable_pir::batch::Geometry;
use hushtable_pir::dpf::{Domain, Group, KeyParams, Side};

use crate::info::{common_group, microseconds};
use crate::{Error, ReplyDefect, TableInfo};

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

/// A text that can be shown to people: not long, and without what commands a terminal.
pub(crate) fn text(field: &'static str, found: String) -> Result<String, ReplyDefect> {
    match found.len() <= TEXT_BYTES_MAX && !found.chars().any(char::is_control) {
        true => Ok(found),
        false => Err(ReplyDefect::Text { field, bytes: found.len() }),
    }
}

/// What two servers' announcements come to, once they fit each other and what the caller accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PairTerms {
    /// The output group of keys.
    pub group: Group,
    /// Keys that one request may hold, at both servers.
    pub keys_per_request_max: usize,
}

impl PairTerms {
    /// Holds the announcements of the servers at two URLs, left first, against each other and
    /// against the generator that the caller has chosen.
    ///
    /// # Errors
    /// [`Error::SidesSwapped`], [`Error::SameSide`], [`Error::TablesDiffer`],
    /// [`Error::AnnouncementsDiffer`], [`Error::Prg`]; [`Error::Reply`] for a server that takes no
    /// request with a single key.
    pub fn check(
        urls: [&str; 2],
        [left, right]: [&TableInfo; 2],
        prg: PrgKind,
    ) -> Result<Self, Error> {
        use Side::{Left, Right};
        let [left_url, right_url] = urls.map(str::to_owned);
        match (left.side, right.side) {
            (Left, Right) => {}
            (Right, Left) => return Err(Error::SidesSwapped { left: left_url, right: right_url }),
            (side, _) => return Err(Error::SameSide { left: left_url, right: right_url, side }),
        }
        if left.version != right.version {
            return Err(Error::TablesDiffer {
                left: left_url,
                left_version: left.version,
                right: right_url,
                right_version: right.version,
            });
        }
        // What equal versions make equal, where neither server lies.
        let layout_bytes = |info: &TableInfo| info.layout.map_or(0, |layout| layout.bytes);
        let has_one_layout =
            left.layout.map(|layout| layout.version) == right.layout.map(|layout| layout.version);
        for (field, differ) in [
            ("rows", left.shape.rows() != right.shape.rows()),
            ("row_bytes", left.shape.row_bytes() != right.shape.row_bytes()),
            ("dim", left.dim != right.dim),
            ("dtype", left.dtype != right.dtype),
            ("layout_bytes", has_one_layout && layout_bytes(left) != layout_bytes(right)),
        ] {
            if differ {
                let (left, right) = (left_url, right_url);
                return Err(Error::AnnouncementsDiffer { left, right, field });
            }
        }
        let group = common_group(&left.groups, &right.groups);
        let domain = Domain::new(left.shape.rows(), group)?;
        let mut keys_per_request_max = usize::MAX;
        for (url, info) in urls.into_iter().zip([left, right]) {
            if !info.prgs.contains(&prg) {
                let (url, accepted) = (url.into(), info.prgs.clone());
                return Err(Error::Prg { url, prg, accepted });
            }
            let key_bytes = KeyParams { side: info.side, domain, prg }.key_bytes() as u64;
            let keys = fit(info.request_bytes_max, key_bytes + KEY_OVERHEAD_BYTES, REQUEST_BYTES)
                .map_err(|defect| Error::Reply { url: url.into(), defect })?;
            keys_per_request_max = keys_per_request_max.min(keys).min(info.keys_per_request_max);
        }
        Ok(Self { group, keys_per_request_max })
    }
}

/// How many messages of `bytes` a request has room for, one at least.
pub(crate) fn fit(request_bytes_max: u64, bytes: u64, overhead: u64) -> Result<usize, ReplyDefect> {
    let (found, min) = (request_bytes_max, bytes + overhead);
    within("request_bytes_max", found, min..=REQUEST_BYTES_MAX)?;
    Ok(usize::try_from((found - overhead) / bytes).unwrap_or(usize::MAX))
}

/// Whether an inference by a layout fits a server's requests and this client's memory.
pub(crate) fn check_bags(geometry: &Geometry, info: &TableInfo) -> Result<(), ReplyDefect> {
    let request_bytes = geometry.request_bytes(info.side) as u64 + REQUEST_BYTES;
    within("request_bytes_max", info.request_bytes_max, request_bytes..=REQUEST_BYTES_MAX)?;
    let answer_bytes = geometry.answer_bytes() as u64;
    within("the layout's answer_bytes", answer_bytes, 1..=BAG_ANSWER_BYTES_MAX).map(|_| ())
}

/// No server is set to wait longer.
pub(crate) const WINDOW_MAX: Duration = Duration::from_secs(60);
/// Names of tables have up to 128 bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 128;
/// What no server holds at once.
const REQUEST_BYTES_MAX: u64 = 1 << 40;
/// What a request has around its keys: the version, and tags.
pub(crate) const REQUEST_BYTES: u64 = 64;
/// What a key has around it in a request: a tag, and a length of at most three bytes.
pub(crate) const KEY_OVERHEAD_BYTES: u64 = 4;
/// The most that one server's answer to an inference may take: what a server's requests may hold
/// together by default.
const BAG_ANSWER_BYTES_MAX: u64 = 256 << 20;
/// The most keys that a server can be told to take in one request.
pub(crate) const KEYS_PER_REQUEST_MAX: u32 = 1 << 20;
/// The most queries.
pub(crate) const QUERIES_PER_REQUEST_MAX: u32 = 1 << 16;
