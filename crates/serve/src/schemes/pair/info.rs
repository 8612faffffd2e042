//! What a server says about its table, checked.

use std::time::Duration;

use bytes::Bytes;
use hushtable_pir::PrgKind;
use hushtable_pir::TableShape;
use hushtable_pir::dpf::{Group, Side};
use hushtable_table::{DType, Version};

use crate::peer::announced::{KEYS_PER_REQUEST_MAX, count_within, text, window, within};
use crate::peer::values::{dtype_to_wire, microseconds, shape_from_wire, version_from_wire};
use crate::{ReplyDefect, wire};

/// What a server holds and what it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableInfo {
    /// The table's name.
    pub name: String,
    /// The version of its content.
    pub version: Version,
    /// Rows and row bytes.
    pub shape: TableShape,
    /// Numbers in a row.
    pub dim: usize,
    /// Their type.
    pub dtype: DType,
    /// Which server this is.
    pub side: Side,
    /// Keys that one request may hold.
    pub keys_per_request_max: usize,
    /// Bytes that one request may have.
    pub request_bytes_max: u64,
    /// Generators that keys may use.
    pub prgs: Vec<PrgKind>,
    /// Output groups that keys may use, what the server answers fastest first;
    /// [`Group::Bits`] is always among them.
    pub groups: Vec<Group>,
    /// How long a request may wait for others to share its pass.
    pub window: Duration,
    /// The server's software.
    pub software: String,
    /// The table's layout, if it has one.
    pub layout: Option<LayoutInfo>,
}

/// What a server says about its table's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayoutInfo {
    /// What it hashes to.
    pub version: Version,
    /// Bytes of it on the wire.
    pub bytes: u64,
    /// How long an inference may wait for others to share its pass.
    pub window: Duration,
}

impl From<&TableInfo> for wire::TableInfoReply {
    fn from(info: &TableInfo) -> Self {
        Self {
            name: info.name.clone(),
            version: info.version.as_bytes().to_vec().into(),
            versions: vec![info.version.as_bytes().to_vec().into()],
            rows: info.shape.rows(),
            dim: info.dim as u32,
            dtype: dtype_to_wire(info.dtype).into(),
            row_bytes: info.shape.row_bytes() as u32,
            side: match info.side {
                Side::Left => wire::Side::Left,
                Side::Right => wire::Side::Right,
            }
            .into(),
            keys_per_request_max: info.keys_per_request_max.try_into().unwrap_or(u32::MAX),
            request_bytes_max: info.request_bytes_max,
            prgs: info.prgs.iter().map(|prg| prg.id().into()).collect(),
            groups: info.groups.iter().map(|group| group.id().into()).collect(),
            window_us: microseconds(info.window),
            software: info.software.clone(),
            layout_version: match &info.layout {
                Some(layout) => layout.version.as_bytes().to_vec().into(),
                None => Bytes::new(),
            },
            layout_bytes: info.layout.map_or(0, |layout| layout.bytes),
            bags_window_us: info.layout.map_or(0, |layout| microseconds(layout.window)),
        }
    }
}

impl TryFrom<wire::TableInfoReply> for TableInfo {
    type Error = ReplyDefect;

    fn try_from(reply: wire::TableInfoReply) -> Result<Self, ReplyDefect> {
        let (shape, dtype) = shape_from_wire(reply.rows, reply.row_bytes, reply.dim, reply.dtype)?;
        let side = match wire::Side::try_from(reply.side) {
            Ok(wire::Side::Left) => Side::Left,
            Ok(wire::Side::Right) => Side::Right,
            Ok(wire::Side::Unspecified) | Err(_) => {
                return Err(ReplyDefect::Side { found: reply.side });
            }
        };
        let keys_max = reply.keys_per_request_max;
        let layout = match reply.layout_version.is_empty() {
            true => {
                within("layout_bytes", reply.layout_bytes, 0..=0)?;
                within("bags_window_us", reply.bags_window_us, 0..=0)?;
                None
            }
            false => Some(LayoutInfo {
                version: version_from_wire(&reply.layout_version)?,
                bytes: within("layout_bytes", reply.layout_bytes, 1..=LAYOUT_BYTES_MAX)?,
                window: window("bags_window_us", reply.bags_window_us)?,
            }),
        };
        // A newer server may take generators that this version does not know: those are of no use.
        let prgs = reply.prgs.iter().filter_map(|&id| PrgKind::from_id(id.try_into().ok()?).ok());
        Ok(Self {
            version: version_from_wire(&reply.version)?,
            shape,
            dim: reply.dim as usize,
            dtype,
            side,
            keys_per_request_max: count_within(
                "keys_per_request_max",
                keys_max,
                KEYS_PER_REQUEST_MAX,
            )?,
            request_bytes_max: reply.request_bytes_max,
            prgs: prgs.take(PrgKind::ALL.len()).collect(),
            groups: groups_from_wire(&reply.groups)?,
            window: window("window_us", reply.window_us)?,
            name: text("name", reply.name)?,
            software: text("software", reply.software)?,
            layout,
        })
    }
}

/// The groups that this version knows, each once. Every server takes bits.
fn groups_from_wire(ids: &[u32]) -> Result<Vec<Group>, ReplyDefect> {
    let known = ids.iter().filter_map(|&id| Group::from_id(id.try_into().ok()?).ok());
    let mut groups = Vec::new();
    for group in known {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    match groups.contains(&Group::Bits) {
        true => Ok(groups),
        false => Err(ReplyDefect::Groups),
    }
}

/// The group that two servers together answer fastest: the least sum of their ranks, bits before
/// others of the same sum.
pub(crate) fn common_group(left: &[Group], right: &[Group]) -> Group {
    let rank = |groups: &[Group], group| groups.iter().position(|&other| other == group);
    Group::ALL
        .into_iter()
        .filter_map(|group| Some((rank(left, group)? + rank(right, group)?, group)))
        .min_by_key(|&(ranks, _)| ranks)
        .map_or(Group::Bits, |(_, group)| group)
}

/// More than the ids of all companions of 2^32 rows take.
const LAYOUT_BYTES_MAX: u64 = 1 << 41;

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> TableInfo {
        TableInfo {
            name: "films".into(),
            version: Version::from([7; 32]),
            shape: TableShape::new(1 << 32, 20).unwrap(),
            dim: 16,
            dtype: DType::Int8,
            side: Side::Right,
            keys_per_request_max: 1024,
            request_bytes_max: 1 << 20,
            prgs: vec![PrgKind::Aes128, PrgKind::ChaCha20],
            groups: vec![Group::Z8, Group::Bits],
            window: Duration::from_micros(6100),
            software: "hushtable/0.1.0".into(),
            layout: Some(LayoutInfo {
                version: Version::from([8; 32]),
                bytes: 12_345,
                window: Duration::from_micros(250),
            }),
        }
    }

    #[test]
    fn info_survives_the_wire() {
        for layout in [info().layout, None] {
            let info = TableInfo { layout, ..info() };
            assert_eq!(TableInfo::try_from(wire::TableInfoReply::from(&info)), Ok(info));
        }
    }

    #[test]
    fn each_field_that_cannot_be_is_named() {
        let reply = || wire::TableInfoReply::from(&info());
        let check = |reply: wire::TableInfoReply| TableInfo::try_from(reply).unwrap_err();
        let found = check(wire::TableInfoReply { dtype: 9, ..reply() });
        assert_eq!(found, ReplyDefect::DType { found: 9 });
        let found = check(wire::TableInfoReply { side: 0, ..reply() });
        assert_eq!(found, ReplyDefect::Side { found: 0 });
        let found = check(wire::TableInfoReply { version: vec![0; 31].into(), ..reply() });
        assert_eq!(found, ReplyDefect::VersionBytes { found: 31 });
        let found = check(wire::TableInfoReply { layout_version: vec![0; 33].into(), ..reply() });
        assert_eq!(found, ReplyDefect::VersionBytes { found: 33 });
        let found = check(wire::TableInfoReply { keys_per_request_max: 0, ..reply() });
        let (field, max) = ("keys_per_request_max", KEYS_PER_REQUEST_MAX.into());
        assert_eq!(found, ReplyDefect::Range { field, found: 0, min: 1, max });
        let found = check(wire::TableInfoReply { rows: 1 << 40, ..reply() });
        let expected = hushtable_pir::Error::Rows { rows: 1 << 40 };
        assert_eq!(found, ReplyDefect::Shape(expected));
        for dim in [0, 15, u32::MAX] {
            let found = check(wire::TableInfoReply { dim, ..reply() });
            assert!(matches!(found, ReplyDefect::RowBytes { found: 20, .. }), "{found:?}");
        }
    }

    #[test]
    fn generators_that_are_unknown_are_passed_over() {
        let mut reply = wire::TableInfoReply::from(&info());
        reply.prgs = vec![1, 2, 77, u32::MAX];
        let info = TableInfo::try_from(reply).unwrap();
        assert_eq!(info.prgs, [PrgKind::Aes128, PrgKind::ChaCha20]);
    }

    #[test]
    fn every_server_takes_bits() {
        for ids in [&[][..], &[1], &[9, u32::MAX, 256]] {
            assert_eq!(groups_from_wire(ids), Err(ReplyDefect::Groups), "{ids:?}");
        }
        let groups = groups_from_wire(&[9, 1, 1, u32::MAX, 256, 0]);
        assert_eq!(groups, Ok(vec![Group::Z8, Group::Bits]));
        assert_eq!(groups_from_wire(&[0; 100_000]), Ok(vec![Group::Bits]));
    }

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
