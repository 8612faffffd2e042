//! What messages of several services hold, read and checked.

use std::time::Duration;

pub(crate) use hushtable_pir::client::version as version_from_wire;
use hushtable_table::{DType, Group};

use crate::{ReplyDefect, wire};

/// Microseconds, as messages have them.
pub(crate) fn microseconds(duration: Duration) -> u64 {
    duration.as_micros().try_into().unwrap_or(u64::MAX)
}

/// Every type and its number in messages.
const DTYPES: [(DType, wire::DType); 20] = [
    (DType::F32, wire::DType::DtypeF32),
    (DType::F16, wire::DType::DtypeF16),
    (DType::Bf16, wire::DType::DtypeBf16),
    (DType::Int8, wire::DType::DtypeInt8),
    (DType::Int4(Group::Row), wire::DType::DtypeInt4),
    (DType::Int4(Group::Of32), wire::DType::DtypeInt4G32),
    (DType::Int4(Group::Of64), wire::DType::DtypeInt4G64),
    (DType::Int4(Group::Of128), wire::DType::DtypeInt4G128),
    (DType::Int2(Group::Row), wire::DType::DtypeInt2),
    (DType::Int2(Group::Of32), wire::DType::DtypeInt2G32),
    (DType::Int2(Group::Of64), wire::DType::DtypeInt2G64),
    (DType::Int2(Group::Of128), wire::DType::DtypeInt2G128),
    (DType::Fp8E4m3(Group::Row), wire::DType::DtypeFp8E4m3),
    (DType::Fp8E4m3(Group::Of32), wire::DType::DtypeFp8E4m3G32),
    (DType::Fp8E4m3(Group::Of64), wire::DType::DtypeFp8E4m3G64),
    (DType::Fp8E4m3(Group::Of128), wire::DType::DtypeFp8E4m3G128),
    (DType::Fp8E5m2(Group::Row), wire::DType::DtypeFp8E5m2),
    (DType::Fp8E5m2(Group::Of32), wire::DType::DtypeFp8E5m2G32),
    (DType::Fp8E5m2(Group::Of64), wire::DType::DtypeFp8E5m2G64),
    (DType::Fp8E5m2(Group::Of128), wire::DType::DtypeFp8E5m2G128),
];

pub(crate) fn dtype_to_wire(dtype: DType) -> wire::DType {
    let found = DTYPES.iter().find(|(known, _)| *known == dtype);
    found.map_or(wire::DType::DtypeUnspecified, |(_, wire)| *wire)
}

pub(crate) fn dtype_from_wire(found: i32) -> Result<DType, ReplyDefect> {
    let known = DTYPES.iter().find(|(_, wire)| i32::from(*wire) == found);
    known.map(|(dtype, _)| *dtype).ok_or(ReplyDefect::DType { found })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dtype_has_a_number_and_no_two_the_same() {
        for dtype in DType::ALL {
            assert_eq!(dtype_from_wire(dtype_to_wire(dtype).into()), Ok(dtype));
        }
        for found in [0, 21, -1] {
            assert_eq!(dtype_from_wire(found), Err(ReplyDefect::DType { found }));
        }
    }
}
