//! What messages of several services hold, read and checked.

use std::time::Duration;

pub(crate) use hushtable_pir::client::version as version_from_wire;
use hushtable_table::DType;

use crate::{ReplyDefect, wire};

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

pub(crate) fn dtype_from_wire(found: i32) -> Result<DType, ReplyDefect> {
    Ok(match wire::DType::try_from(found) {
        Ok(wire::DType::DtypeF32) => DType::F32,
        Ok(wire::DType::DtypeF16) => DType::F16,
        Ok(wire::DType::DtypeBf16) => DType::Bf16,
        Ok(wire::DType::DtypeInt8) => DType::Int8,
        Ok(wire::DType::DtypeUnspecified) | Err(_) => return Err(ReplyDefect::DType { found }),
    })
}

/// A text of another machine that can be shown to people: not long, and without what commands a terminal.
pub(crate) fn text(field: &'static str, found: String) -> Result<String, ReplyDefect> {
    match found.len() <= TEXT_BYTES_MAX && !found.chars().any(char::is_control) {
        true => Ok(found),
        false => Err(ReplyDefect::Text { field, bytes: found.len() }),
    }
}

/// Terms of a plan that are too long to be read.
pub(crate) fn terms_too_long(found: u64, bytes_max: usize) -> ReplyDefect {
    ReplyDefect::Range { field: "terms", found, min: 1, max: bytes_max as u64 }
}

/// What is kept of an error about what another machine sent.
pub(crate) fn defect(error: &dyn std::fmt::Display) -> ReplyDefect {
    let text = error.to_string();
    let reason = text.chars().filter(|char| !char.is_control()).take(REASON_CHARS_MAX).collect();
    ReplyDefect::Other { reason }
}

const TEXT_BYTES_MAX: usize = 128;
const REASON_CHARS_MAX: usize = 512;
