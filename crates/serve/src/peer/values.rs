//! What messages of several services hold, read and checked.

use std::time::Duration;

use hushtable_pir::TableShape;
use hushtable_table::{DType, Version};

use super::announced::TEXT_BYTES_MAX;
use crate::{ReplyDefect, wire};

pub(crate) fn version_from_wire(bytes: &[u8]) -> Result<Version, ReplyDefect> {
    <[u8; 32]>::try_from(bytes)
        .map(Version::from)
        .map_err(|_| ReplyDefect::VersionBytes { found: bytes.len() })
}

/// A table's shape and number type, which must fit each other.
pub(crate) fn shape_from_wire(
    rows: u64,
    row_bytes: u32,
    dim: u32,
    dtype: i32,
) -> Result<(TableShape, DType), ReplyDefect> {
    let shape = TableShape::new(rows, row_bytes as usize).map_err(ReplyDefect::Shape)?;
    let dtype = dtype_from_wire(dtype)?;
    let expected = bytes_of_row(dtype, dim);
    if expected != Some(shape.row_bytes()) {
        let expected = expected.unwrap_or(usize::MAX);
        return Err(ReplyDefect::RowBytes { dim, dtype, expected, found: row_bytes });
    }
    Ok((shape, dtype))
}

/// What is kept of a text that another machine sent.
pub(crate) fn cut(text: &str) -> String {
    text.chars().take(TEXT_BYTES_MAX).collect()
}

/// Microseconds, as messages have them.
pub(crate) fn microseconds(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}

pub(crate) fn dtype_to_wire(dtype: DType) -> wire::DType {
    match dtype {
        DType::F32 => wire::DType::DtypeF32,
        DType::F16 => wire::DType::DtypeF16,
        DType::Bf16 => wire::DType::DtypeBf16,
        DType::Int8 => wire::DType::DtypeInt8,
    }
}

fn dtype_from_wire(found: i32) -> Result<DType, ReplyDefect> {
    Ok(match wire::DType::try_from(found) {
        Ok(wire::DType::DtypeF32) => DType::F32,
        Ok(wire::DType::DtypeF16) => DType::F16,
        Ok(wire::DType::DtypeBf16) => DType::Bf16,
        Ok(wire::DType::DtypeInt8) => DType::Int8,
        Ok(wire::DType::DtypeUnspecified) | Err(_) => return Err(ReplyDefect::DType { found }),
    })
}

/// Bytes of a row, or `None` for a dim that no row has.
fn bytes_of_row(dtype: DType, dim: u32) -> Option<usize> {
    let dim = usize::try_from(dim).ok().filter(|dim| (1..=TableShape::ROW_BYTES_MAX).contains(dim));
    dim.map(|dim| dtype.row_bytes(dim))
}
