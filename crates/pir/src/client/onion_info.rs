//! What a server that is asked alone says about its table and the scheme, checked.

use std::time::Duration;

use bytes::Bytes;
use hushtable_table::{DType, Version};

use super::announced::{
    QUERIES_PER_REQUEST_MAX, count_within, cut, fit, shape, text, version, versions, window,
};
use super::{ReplyDefect, RowFormat};
use crate::TableShape;
use crate::onion::{Geometry, ParameterSet};

/// What a server that is asked alone holds, and what it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "servers say it field by field")]
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

/// A single server's announcement as it came, unchecked: the fields of `OnionInfoReply` in
/// `proto/hushtable/v1/onion.proto`.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
#[allow(missing_docs, reason = "the proto says what each is")]
pub struct AnnouncedOnion {
    pub name: String,
    pub version: Bytes,
    pub versions: Vec<Bytes>,
    pub rows: u64,
    pub dim: u32,
    pub dtype: DType,
    pub row_bytes: u32,
    pub geometry: Bytes,
    pub parameters: String,
    pub key_bytes: u64,
    pub query_bytes: u64,
    pub response_bytes: u64,
    pub queries_per_request_max: u32,
    pub request_bytes_max: u64,
    pub window_us: u64,
    pub software: String,
    pub state: Option<u64>,
}

impl OnionInfo {
    /// Holds a server's announcement against what the caller accepts and what the client itself
    /// makes of the table's shape.
    ///
    /// # Errors
    /// [`ReplyDefect::ParameterSet`] for a set that is not `accepted`, others for values that
    /// cannot be or do not follow from the others.
    pub fn check(
        announced: AnnouncedOnion,
        accepted: &[ParameterSet],
    ) -> Result<Self, ReplyDefect> {
        let Some(&set) = accepted.iter().find(|set| set.name() == announced.parameters) else {
            let (announced, accepted) = (cut(&announced.parameters), accepted.to_vec());
            return Err(ReplyDefect::ParameterSet { announced, accepted });
        };
        let AnnouncedOnion { rows, row_bytes, dim, dtype, .. } = announced;
        let shape = shape(rows, row_bytes, dim, dtype)?;
        let geometry = Geometry::new(set, shape)
            .map_err(|error| ReplyDefect::Geometry { reason: error.to_string() })?;
        let expected = geometry.to_bytes();
        if announced.geometry != expected {
            let found = announced.geometry[..announced.geometry.len().min(expected.len())].to_vec();
            return Err(ReplyDefect::GeometryBytes { expected, found });
        }
        for (what, expected, found) in [
            ("bytes of keys", geometry.key_bytes(), announced.key_bytes),
            ("bytes of a query", geometry.query_bytes(), announced.query_bytes),
            ("bytes of a response", geometry.response_bytes(), announced.response_bytes),
        ] {
            let expected = expected as u64;
            if expected != found {
                return Err(ReplyDefect::Size { what, expected, found });
            }
        }
        let current = version(&announced.version)?;
        versions(current, &announced.versions)?;
        let queries_max = announced.queries_per_request_max;
        let queries_max =
            count_within("queries_per_request_max", queries_max, QUERIES_PER_REQUEST_MAX)?;
        let query_bytes = geometry.query_bytes() as u64 + QUERY_OVERHEAD_BYTES;
        let room = fit(announced.request_bytes_max, query_bytes, ONION_REQUEST_BYTES)?;
        Ok(Self {
            name: text("name", announced.name)?,
            version: current,
            shape,
            dim: dim as usize,
            dtype,
            geometry,
            queries_per_request_max: queries_max.min(room),
            request_bytes_max: announced.request_bytes_max,
            window: window("window_us", announced.window_us)?,
            software: text("software", announced.software)?,
        })
    }

    /// How a row's bytes make numbers.
    pub fn format(&self) -> RowFormat {
        let &Self { dtype, dim, shape, .. } = self;
        RowFormat { dtype, dim, row_bytes: shape.row_bytes() }
    }
}

/// What a request has around its queries: version, key id, and tags.
pub const ONION_REQUEST_BYTES: u64 = 128;
/// What a query has around it in a request: a tag, and a length of at most four bytes.
pub const QUERY_OVERHEAD_BYTES: u64 = 5;
