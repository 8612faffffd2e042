//! What a server says about its table, as a message.

use bytes::Bytes;
use hushtable_pir::client::{AnnouncedModel, AnnouncedTable};
use hushtable_pir::dpf::Side;

use crate::peer::values::{dtype_from_wire, dtype_to_wire, microseconds};
use crate::{ReplyDefect, TableInfo, wire};

impl From<&TableInfo> for wire::TableInfoReply {
    fn from(info: &TableInfo) -> Self {
        Self {
            name: info.name.clone(),
            version: info.version.as_bytes().to_vec().into(),
            versions: vec![info.version.as_bytes().to_vec().into()],
            state: None,
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
            bags_per_request_max: info
                .layout
                .map_or(0, |layout| layout.bags_per_request_max.try_into().unwrap_or(u32::MAX)),
        }
    }
}

impl TryFrom<wire::TableInfoReply> for AnnouncedTable {
    type Error = ReplyDefect;

    fn try_from(reply: wire::TableInfoReply) -> Result<Self, ReplyDefect> {
        let side = match wire::Side::try_from(reply.side) {
            Ok(wire::Side::Left) => Side::Left,
            Ok(wire::Side::Right) => Side::Right,
            Ok(wire::Side::Unspecified) | Err(_) => {
                return Err(ReplyDefect::Side { found: reply.side });
            }
        };
        Ok(Self {
            name: reply.name,
            version: reply.version,
            versions: reply.versions,
            rows: reply.rows,
            dim: reply.dim,
            dtype: dtype_from_wire(reply.dtype)?,
            row_bytes: reply.row_bytes,
            side,
            keys_per_request_max: reply.keys_per_request_max,
            request_bytes_max: reply.request_bytes_max,
            prgs: reply.prgs,
            groups: reply.groups,
            window_us: reply.window_us,
            software: reply.software,
            layout_version: reply.layout_version,
            layout_bytes: reply.layout_bytes,
            bags_window_us: reply.bags_window_us,
            bags_per_request_max: reply.bags_per_request_max,
            state: reply.state,
        })
    }
}

impl TryFrom<wire::TableInfoReply> for TableInfo {
    type Error = ReplyDefect;

    fn try_from(reply: wire::TableInfoReply) -> Result<Self, ReplyDefect> {
        Self::check(reply.try_into()?)
    }
}

impl From<wire::ModelInfo> for AnnouncedModel {
    fn from(info: wire::ModelInfo) -> Self {
        let wire::ModelInfo { name, versions, manifest, window_us, request_bytes_max } = info;
        Self { name, versions, manifest, window_us, request_bytes_max }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hushtable_pir::client::KEYS_PER_REQUEST_MAX;
    use hushtable_pir::dpf::Group;
    use hushtable_pir::{DType, PrgKind, TableShape};
    use hushtable_table::Version;

    use super::*;
    use crate::LayoutInfo;

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
                bags_per_request_max: 32,
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
    fn a_server_that_names_no_number_of_bags_takes_one() {
        let reply = wire::TableInfoReply { bags_per_request_max: 0, ..(&info()).into() };
        let found = TableInfo::try_from(reply).unwrap().layout.unwrap();
        assert_eq!(found.bags_per_request_max, 1);
    }

    #[test]
    fn each_field_that_cannot_be_is_named() {
        let reply = || wire::TableInfoReply::from(&info());
        let check = |reply: wire::TableInfoReply| TableInfo::try_from(reply).unwrap_err();
        let found = check(wire::TableInfoReply { dtype: 99, ..reply() });
        assert_eq!(found, ReplyDefect::DType { found: 99 });
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
}
