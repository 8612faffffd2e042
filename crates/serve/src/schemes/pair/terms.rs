//! What two servers' announcements come to.

use hushtable_pir::PrgKind;
use hushtable_pir::batch::Geometry;
use hushtable_pir::dpf::{Domain, Group, KeyParams, Side};

use super::info::common_group;
use crate::peer::announced::{
    BAG_ANSWER_BYTES_MAX, KEY_OVERHEAD_BYTES, REQUEST_BYTES, REQUEST_BYTES_MAX, fit, within,
};
use crate::{Error, ReplyDefect, TableInfo};

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

/// Whether an inference by a layout fits a server's requests and this client's memory.
pub(crate) fn check_bags(geometry: &Geometry, info: &TableInfo) -> Result<(), ReplyDefect> {
    let request_bytes = geometry.request_bytes(info.side) as u64 + REQUEST_BYTES;
    within("request_bytes_max", info.request_bytes_max, request_bytes..=REQUEST_BYTES_MAX)?;
    let answer_bytes = geometry.answer_bytes() as u64;
    within("the layout's answer_bytes", answer_bytes, 1..=BAG_ANSWER_BYTES_MAX).map(|_| ())
}
