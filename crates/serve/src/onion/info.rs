//! What a server says about its table and the scheme, checked.

use std::time::Duration;

use hushtable_pir::TableShape;
use hushtable_pir::onion::Geometry;
use hushtable_table::{DType, Version};

use crate::client::RowFormat;
use crate::info::{cut, dtype_to_wire, microseconds, shape_from_wire, version_from_wire};
use crate::{ReplyDefect, wire};

/// What a server that is asked alone holds, and what it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnionInfo {
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
    /// Parameters, how rows lie in plaintexts, and with it the sizes of keys, queries, responses.
    pub geometry: Geometry,
    /// Queries that one request may hold.
    pub queries_per_request_max: usize,
    /// Bytes that one request may have.
    pub request_bytes_max: u64,
    /// How long a request may wait for others to share its pass.
    pub window: Duration,
    /// The server's software.
    pub software: String,
}

impl OnionInfo {
    pub(super) fn format(&self) -> RowFormat {
        let &Self { dtype, dim, shape, .. } = self;
        RowFormat { dtype, dim, row_bytes: shape.row_bytes() }
    }
}

impl From<&OnionInfo> for wire::OnionInfoReply {
    fn from(info: &OnionInfo) -> Self {
        Self {
            name: info.name.clone(),
            version: info.version.as_bytes().to_vec().into(),
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
        }
    }
}

impl TryFrom<wire::OnionInfoReply> for OnionInfo {
    type Error = ReplyDefect;

    fn try_from(reply: wire::OnionInfoReply) -> Result<Self, ReplyDefect> {
        let (shape, dtype) = shape_from_wire(reply.rows, reply.row_bytes, reply.dim, reply.dtype)?;
        let refuse = |reason| Err(ReplyDefect::Geometry { reason });
        let geometry = match Geometry::from_bytes(&reply.geometry) {
            Ok(geometry) => geometry,
            Err(error) => return refuse(error.to_string()),
        };
        if geometry.shape() != shape {
            return refuse("it is of a table of another shape".into());
        }
        if geometry.set().name() != reply.parameters {
            let (own, announced) = (geometry.set().name(), cut(&reply.parameters));
            return refuse(format!("it is for parameters {own}, announced are {announced:?}"));
        }
        for (what, expected, found) in [
            ("bytes of keys", geometry.key_bytes(), reply.key_bytes),
            ("bytes of a query", geometry.query_bytes(), reply.query_bytes),
            ("bytes of a response", geometry.response_bytes(), reply.response_bytes),
        ] {
            let expected = expected as u64;
            if expected != found {
                return Err(ReplyDefect::Size { what, expected, found });
            }
        }
        if reply.queries_per_request_max == 0 {
            return Err(ReplyDefect::KeyLimit { keys_max: 0 });
        }
        Ok(Self {
            name: cut(&reply.name),
            version: version_from_wire(&reply.version)?,
            shape,
            dim: reply.dim as usize,
            dtype,
            geometry,
            queries_per_request_max: reply.queries_per_request_max as usize,
            request_bytes_max: reply.request_bytes_max,
            window: Duration::from_micros(reply.window_us),
            software: cut(&reply.software),
        })
    }
}

#[cfg(test)]
mod tests {
    use hushtable_pir::onion::ParameterSet;

    use super::*;

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
            assert_eq!(OnionInfo::try_from(wire::OnionInfoReply::from(&info)), Ok(info));
        }
    }

    #[test]
    fn each_field_that_cannot_be_is_named() {
        let info = info(ParameterSet::N4096128);
        let reply = || wire::OnionInfoReply::from(&info);
        let check = |reply: wire::OnionInfoReply| OnionInfo::try_from(reply).unwrap_err();
        for geometry in [vec![], vec![0xff; 16], vec![0; 1 << 20]] {
            let found = check(wire::OnionInfoReply { geometry: geometry.into(), ..reply() });
            assert!(matches!(found, ReplyDefect::Geometry { .. }), "{found:?}");
        }
        let found = check(wire::OnionInfoReply { rows: 99_999, ..reply() });
        assert!(matches!(found, ReplyDefect::Geometry { .. }), "{found:?}");
        let found = check(wire::OnionInfoReply { parameters: "ive_paper".into(), ..reply() });
        assert!(matches!(found, ReplyDefect::Geometry { .. }), "{found:?}");
        let found = check(wire::OnionInfoReply { dim: 63, ..reply() });
        assert!(matches!(found, ReplyDefect::RowBytes { found: 68, .. }), "{found:?}");
        let found = check(wire::OnionInfoReply { dtype: 9, ..reply() });
        assert_eq!(found, ReplyDefect::DType { found: 9 });
        let found = check(wire::OnionInfoReply { version: vec![0; 31].into(), ..reply() });
        assert_eq!(found, ReplyDefect::VersionBytes { found: 31 });
        let found = check(wire::OnionInfoReply { queries_per_request_max: 0, ..reply() });
        assert_eq!(found, ReplyDefect::KeyLimit { keys_max: 0 });
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
