//! What a server says about its table and the scheme, checked.

use std::time::Duration;

use hushtable_pir::TableShape;
use hushtable_pir::onion::{Geometry, ParameterSet};
use hushtable_table::{DType, Version};

use crate::peer::announced::{QUERIES_PER_REQUEST_MAX, count_within, fit, text, window};
use crate::peer::values::{cut, dtype_to_wire, microseconds, shape_from_wire, version_from_wire};
use crate::schemes::pair::client::RowFormat;
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
        }
    }
}

impl OnionInfo {
    /// Holds a server's announcement against what the caller accepts and what the client itself
    /// makes of the table's shape.
    ///
    /// # Errors
    /// [`ReplyDefect::ParameterSet`] for a set that is not `accepted`, others for values that
    /// cannot be or do not follow from the others.
    pub fn check(
        reply: wire::OnionInfoReply,
        accepted: &[ParameterSet],
    ) -> Result<Self, ReplyDefect> {
        let Some(&set) = accepted.iter().find(|set| set.name() == reply.parameters) else {
            let (announced, accepted) = (cut(&reply.parameters), accepted.to_vec());
            return Err(ReplyDefect::ParameterSet { announced, accepted });
        };
        let (shape, dtype) = shape_from_wire(reply.rows, reply.row_bytes, reply.dim, reply.dtype)?;
        let geometry = Geometry::new(set, shape)
            .map_err(|error| ReplyDefect::Geometry { reason: error.to_string() })?;
        let expected = geometry.to_bytes();
        if reply.geometry != expected {
            let found = reply.geometry[..reply.geometry.len().min(expected.len())].to_vec();
            return Err(ReplyDefect::GeometryBytes { expected, found });
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
        let queries_max = reply.queries_per_request_max;
        let queries_max =
            count_within("queries_per_request_max", queries_max, QUERIES_PER_REQUEST_MAX)?;
        let query_bytes = geometry.query_bytes() as u64 + QUERY_OVERHEAD_BYTES;
        let room = fit(reply.request_bytes_max, query_bytes, REQUEST_BYTES)?;
        Ok(Self {
            name: text("name", reply.name)?,
            version: version_from_wire(&reply.version)?,
            shape,
            dim: reply.dim as usize,
            dtype,
            geometry,
            queries_per_request_max: queries_max.min(room),
            request_bytes_max: reply.request_bytes_max,
            window: window("window_us", reply.window_us)?,
            software: text("software", reply.software)?,
        })
    }
}

/// What a request has around its queries: version, key id, and tags.
pub(super) const REQUEST_BYTES: u64 = 128;
/// What a query has around it in a request: a tag, and a length of at most four bytes.
pub(super) const QUERY_OVERHEAD_BYTES: u64 = 5;

#[cfg(test)]
mod tests {
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
            assert_eq!(OnionInfo::check(wire::OnionInfoReply::from(&info), &[set]), Ok(info));
        }
    }

    #[test]
    fn each_field_that_cannot_be_is_named() {
        let info = info(ParameterSet::N4096128);
        let reply = || wire::OnionInfoReply::from(&info);
        let accepted = [ParameterSet::N4096128];
        let check = |reply: wire::OnionInfoReply| OnionInfo::check(reply, &accepted).unwrap_err();
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
        let found = check(wire::OnionInfoReply { dtype: 9, ..reply() });
        assert_eq!(found, ReplyDefect::DType { found: 9 });
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
