//! What two servers' announcements come to.

use hushtable_prg::PrgKind;

use super::announced::{BAG_ANSWER_BYTES_MAX, KEY_OVERHEAD_BYTES, REQUEST_BYTES, fit, within};
use super::{Failure, Place, ReplyDefect, TableInfo};
use crate::batch::Geometry;
use crate::dpf::{Domain, Group, KeyParams, Side};

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
    /// Holds the announcements of two servers, that of the one addressed as left first, against each
    /// other and against the generator that the caller has chosen.
    ///
    /// # Errors
    /// [`Failure::SidesSwapped`], [`Failure::SameSide`], [`Failure::TablesDiffer`],
    /// [`Failure::AnnouncementsDiffer`], [`Failure::Prg`]; [`Failure::Reply`] for a server that
    /// takes no request with a single key.
    pub fn check([left, right]: [&TableInfo; 2], prg: PrgKind) -> Result<Self, Failure> {
        check_sides(left.side, right.side)?;
        if left.version != right.version {
            return Err(Failure::TablesDiffer { versions: [left.version, right.version] });
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
                return Err(Failure::AnnouncementsDiffer { field });
            }
        }
        let group = common_group(&left.groups, &right.groups);
        let domain = Domain::new(left.shape.rows(), group)?;
        let mut keys_per_request_max = usize::MAX;
        for (place, info) in Place::PAIR.into_iter().zip([left, right]) {
            if !info.prgs.contains(&prg) {
                return Err(Failure::Prg { place, prg, accepted: info.prgs.clone() });
            }
            let key_bytes = KeyParams { side: info.side, domain, prg }.key_bytes() as u64;
            let keys = fit(info.request_bytes_max, key_bytes + KEY_OVERHEAD_BYTES, REQUEST_BYTES)
                .map_err(|defect| Failure::Reply { place, defect })?;
            keys_per_request_max = keys_per_request_max.min(keys).min(info.keys_per_request_max);
        }
        Ok(Self { group, keys_per_request_max })
    }
}

/// Whether the server addressed as left is left, and the other one right.
pub(super) fn check_sides(left: Side, right: Side) -> Result<(), Failure> {
    match (left, right) {
        (Side::Left, Side::Right) => Ok(()),
        (Side::Right, Side::Left) => Err(Failure::SidesSwapped),
        (side, _) => Err(Failure::SameSide { side }),
    }
}

/// How many inferences by a layout fit one of a server's requests and this client's memory, one at least.
pub(super) fn check_bags(geometry: &Geometry, info: &TableInfo) -> Result<usize, ReplyDefect> {
    let request_bytes = geometry.request_bytes(info.side) as u64;
    let fits = fit(info.request_bytes_max, request_bytes, REQUEST_BYTES)?;
    let answer_bytes = geometry.answer_bytes() as u64;
    within("the layout's answer_bytes", answer_bytes, 1..=BAG_ANSWER_BYTES_MAX)?;
    let in_memory = (BAG_ANSWER_BYTES_MAX / answer_bytes) as usize;
    let taken = info.layout.map_or(1, |layout| layout.bags_per_request_max);
    Ok(fits.min(in_memory).min(taken))
}

/// The group that two servers together answer fastest: the least sum of their ranks, bits before
/// others of the same sum.
pub fn common_group(left: &[Group], right: &[Group]) -> Group {
    let rank = |groups: &[Group], group| groups.iter().position(|&other| other == group);
    Group::ALL
        .into_iter()
        .filter_map(|group| Some((rank(left, group)? + rank(right, group)?, group)))
        .min_by_key(|&(ranks, _)| ranks)
        .map_or(Group::Bits, |(_, group)| group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_choose_the_group() {
        use Group::{Bits, Z8, Z32};
        for (left, right, expected) in [
            (&[Bits][..], &[Bits][..], Bits),
            (&[Z8, Bits], &[Z8, Bits], Z8),
            (&[Z8, Bits], &[Bits], Bits),
            (&[Z8, Bits], &[Bits, Z8], Bits),
            (&[Z8, Z32, Bits], &[Z32, Z8, Bits], Z8),
            (&[Z32, Bits], &[Z8, Bits], Bits),
        ] {
            assert_eq!(common_group(left, right), expected, "{left:?} {right:?}");
            assert_eq!(common_group(right, left), expected, "{right:?} {left:?}");
        }
    }
}
