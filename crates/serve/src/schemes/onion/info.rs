//! What a server says about its table and the scheme, as a message.

use hushtable_pir::client::AnnouncedOnion;

use crate::peer::values::{dtype_from_wire, dtype_to_wire, microseconds};
use crate::{OnionInfo, ReplyDefect, wire};

impl From<&OnionInfo> for wire::OnionInfoReply {
    fn from(info: &OnionInfo) -> Self {
        Self {
            name: info.name.clone(),
            version: info.version.as_bytes().to_vec().into(),
            versions: vec![info.version.as_bytes().to_vec().into()],
            rows: info.shape.rows(),
            dim: info.dim as u32,
            dtype: dtype_to_wire(info.dtype).into(),
            row_bytes: info.shape.row_bytes() as u32,
            geometry: info.geometry.to_bytes().into(),
            parameters: info.geometry.set().name().into(),
            key_bytes: info.geometry.key_bytes() as u64,
            query_bytes: info.geometry.query_bytes() as u64,
            response_bytes: info.geometry.response_bytes() as u64,
            queries_per_request_max: info.queries_per_request_max.try_into().unwrap_or(u32::MAX),
            request_bytes_max: info.request_bytes_max,
            window_us: microseconds(info.window),
            software: info.software.clone(),
            state: None,
        }
    }
}

impl TryFrom<wire::OnionInfoReply> for AnnouncedOnion {
    type Error = ReplyDefect;

    fn try_from(reply: wire::OnionInfoReply) -> Result<Self, ReplyDefect> {
        Ok(Self {
            name: reply.name,
            version: reply.version,
            versions: reply.versions,
            rows: reply.rows,
            dim: reply.dim,
            dtype: dtype_from_wire(reply.dtype)?,
            row_bytes: reply.row_bytes,
            geometry: reply.geometry,
            parameters: reply.parameters,
            key_bytes: reply.key_bytes,
            query_bytes: reply.query_bytes,
            response_bytes: reply.response_bytes,
            queries_per_request_max: reply.queries_per_request_max,
            request_bytes_max: reply.request_bytes_max,
            window_us: reply.window_us,
            software: reply.software,
            state: reply.state,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hushtable_pir::client::QUERIES_PER_REQUEST_MAX;
    use hushtable_pir::onion::{Geometry, ParameterSet};
    use hushtable_pir::{DType, TableShape};
    use hushtable_table::Version;

    use super::*;

    fn check(
        reply: wire::OnionInfoReply,
        accepted: &[ParameterSet],
    ) -> Result<OnionInfo, ReplyDefect> {
        OnionInfo::check(reply.try_into()?, accepted)
    }

    fn info(set: ParameterSet) -> OnionInfo {
        let shape = TableShape::new(100_000, 68).unwrap();
        OnionInfo {
            name: "films".into(),
            version: Version::from([7; 32]),
            shape,
            dim: 64,
            dtype: DType::Int8,
            geometry: Geometry::new(set, shape).unwrap(),
            queries_per_request_max: 64,
            request_bytes_max: 1 << 22,
            window: Duration::from_micros(61_000),
            software: "hushtable/0.1.0".into(),
        }
    }

    #[test]
    fn info_survives_the_wire() {
        for set in ParameterSet::ALL {
            let info = info(set);
            assert_eq!(check(wire::OnionInfoReply::from(&info), &[set]), Ok(info));
        }
    }

    #[test]
    fn each_field_that_cannot_be_is_named() {
        let info = info(ParameterSet::N4096128);
        let reply = || wire::OnionInfoReply::from(&info);
        let accepted = [ParameterSet::N4096128];
        let check = |reply: wire::OnionInfoReply| check(reply, &accepted).unwrap_err();
        for geometry in [vec![], vec![0xff; 16], vec![0; 1 << 20]] {
            let found = check(wire::OnionInfoReply { geometry: geometry.into(), ..reply() });
            assert!(matches!(found, ReplyDefect::GeometryBytes { .. }), "{found:?}");
        }
        let found = check(wire::OnionInfoReply { rows: 99_999, ..reply() });
        assert!(matches!(found, ReplyDefect::GeometryBytes { .. }), "{found:?}");
        let found = check(wire::OnionInfoReply { parameters: "ive_paper".into(), ..reply() });
        assert!(matches!(found, ReplyDefect::ParameterSet { .. }), "{found:?}");
        let found = check(wire::OnionInfoReply { dim: 63, ..reply() });
        assert!(matches!(found, ReplyDefect::RowBytes { found: 68, .. }), "{found:?}");
        let found = check(wire::OnionInfoReply { dtype: 99, ..reply() });
        assert_eq!(found, ReplyDefect::DType { found: 99 });
        let found = check(wire::OnionInfoReply { version: vec![0; 31].into(), ..reply() });
        assert_eq!(found, ReplyDefect::VersionBytes { found: 31 });
        let found = check(wire::OnionInfoReply { queries_per_request_max: 0, ..reply() });
        let (field, max) = ("queries_per_request_max", QUERIES_PER_REQUEST_MAX.into());
        assert_eq!(found, ReplyDefect::Range { field, found: 0, min: 1, max });
        for (reply, expected) in [
            (wire::OnionInfoReply { key_bytes: 1, ..reply() }, info.geometry.key_bytes()),
            (wire::OnionInfoReply { query_bytes: 1, ..reply() }, info.geometry.query_bytes()),
            (wire::OnionInfoReply { response_bytes: 1, ..reply() }, info.geometry.response_bytes()),
        ] {
            let found = check(reply);
            let fits = matches!(found, ReplyDefect::Size { expected: e, found: 1, .. } if e == expected as u64);
            assert!(fits, "{found:?}");
        }
    }
}
