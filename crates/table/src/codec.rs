//! Values to rows as served, and back.
//!
//! Rows as served are row-major and little-endian. An `int8` row is its f32 scale and then one
//! signed byte a value; value = byte × scale, with scale = largest magnitude of the row / 127
//! (symmetric, so that 0 stays exactly 0).

use half::{bf16, f16};

use crate::dtype::DType;
use crate::error::{CodecError, Error};
use crate::shape::Shape;

/// Decodes rows as served into float32 values, row-major.
///
/// `out` holds `dim` values a row; `bytes` holds the same rows as served. f32, f16 and bf16
/// decode exactly.
///
/// # Errors
/// [`Error::Shape`] for a `dim` outside the limits, [`Error::Codec`] when `bytes` is no whole
/// number of rows or `out` has no room for exactly those rows.
pub fn decode_rows(dtype: DType, dim: usize, bytes: &[u8], out: &mut [f32]) -> Result<(), Error> {
    let row_bytes = Shape::new(1, dim, dtype)?.row_bytes();
    if !bytes.len().is_multiple_of(row_bytes) {
        return Err(CodecError::PartialRow { byte_count: bytes.len(), row_bytes }.into());
    }
    let expected = bytes.len() / row_bytes * dim;
    if out.len() != expected {
        return Err(CodecError::ValueCount { expected, found: out.len() }.into());
    }
    match dtype {
        DType::F32 => {
            for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
        DType::F16 => {
            for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                *value = f16::from_le_bytes(*bytes).to_f32();
            }
        }
        DType::Bf16 => {
            for (value, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
                *value = bf16::from_le_bytes(*bytes).to_f32();
            }
        }
        DType::Int8 => {
            let rows = bytes.chunks_exact(row_bytes).zip(out.chunks_exact_mut(dim));
            for (served, values) in rows {
                let (scale, codes) = served.split_at(4);
                let scale = f32::from_le_bytes([scale[0], scale[1], scale[2], scale[3]]);
                for (value, code) in values.iter_mut().zip(codes) {
                    *value = f32::from(code.cast_signed()) * scale;
                }
            }
        }
    }
    Ok(())
}

/// Encodes float32 values, row-major, as rows to serve.
///
/// `out` has `dtype.row_bytes(dim)` bytes a row. Rounding is to nearest, ties to even; for
/// `int8`, each value is off by at most half its row's scale. f32, f16 and bf16 keep NaN and
/// infinity.
///
/// # Errors
/// [`Error::Shape`] for a `dim` outside the limits, [`Error::Codec`] when the lengths do not
/// match, when a finite value is past what `dtype` holds (it would turn into infinity), or when a
/// NaN or infinity is to become `int8`, which has no place for it. Rows count from 0 at the start
/// of `values`.
pub fn encode_rows(dtype: DType, dim: usize, values: &[f32], out: &mut [u8]) -> Result<(), Error> {
    let row_bytes = Shape::new(1, dim, dtype)?.row_bytes();
    if !values.len().is_multiple_of(dim) {
        return Err(CodecError::PartialValues { value_count: values.len(), dim }.into());
    }
    let expected = values.len() / dim * row_bytes;
    if out.len() != expected {
        return Err(CodecError::ByteCount { expected, found: out.len() }.into());
    }
    encode_rows_from(0, dtype, dim, values, out).map_err(Error::from)
}

/// [`encode_rows`] over buffers of matching lengths; errors count rows from `first`.
pub(crate) fn encode_rows_from(
    first: u64,
    dtype: DType,
    dim: usize,
    values: &[f32],
    out: &mut [u8],
) -> Result<(), CodecError> {
    let overflow = |index: usize| CodecError::Overflow {
        row: first + (index / dim) as u64,
        column: index % dim,
        value: f64::from(values[index]),
        dtype: dtype.name(),
    };
    match dtype {
        DType::F32 => {
            for (value, bytes) in values.iter().zip(out.as_chunks_mut().0) {
                *bytes = value.to_le_bytes();
            }
        }
        DType::F16 => {
            for (i, (value, bytes)) in values.iter().zip(out.as_chunks_mut().0).enumerate() {
                let narrow = f16::from_f32(*value);
                if narrow.is_infinite() && value.is_finite() {
                    return Err(overflow(i));
                }
                *bytes = narrow.to_le_bytes();
            }
        }
        DType::Bf16 => {
            for (i, (value, bytes)) in values.iter().zip(out.as_chunks_mut().0).enumerate() {
                let narrow = bf16::from_f32(*value);
                if narrow.is_infinite() && value.is_finite() {
                    return Err(overflow(i));
                }
                *bytes = narrow.to_le_bytes();
            }
        }
        DType::Int8 => {
            let rows =
                values.chunks_exact(dim).zip(out.chunks_exact_mut(DType::Int8.row_bytes(dim)));
            for (i, (row, served)) in rows.enumerate() {
                encode_int8_row(row, served)
                    .map_err(|column| CodecError::NonFinite { row: first + i as u64, column })?;
            }
        }
    }
    Ok(())
}

/// Quantises one row; the error is the column of a NaN or infinity.
fn encode_int8_row(row: &[f32], served: &mut [u8]) -> Result<(), usize> {
    // Magnitudes order as their bits do, and those of infinity and NaN come last: one integer
    // maximum, which vectorises, finds the largest and rules out both.
    let magnitude = |value: &f32| value.to_bits() & 0x7fff_ffff;
    let largest = f32::from_bits(row.iter().map(magnitude).fold(0, u32::max));
    if !largest.is_finite() {
        return Err(row.iter().position(|value| !value.is_finite()).unwrap_or_default());
    }
    let mut scale = largest / 127.0;
    // Rounded up, the scale of a row that reaches f32::MAX would decode to infinity.
    if !(scale * 127.0).is_finite() {
        scale = scale.next_down();
    }
    let (head, codes) = served.split_at_mut(4);
    head.copy_from_slice(&scale.to_le_bytes());
    if scale == 0.0 {
        // All zeros, or magnitudes so small that their scale underflows.
        codes.fill(0);
        return Ok(());
    }
    for (code, value) in codes.iter_mut().zip(row) {
        // Near the smallest scales value / scale passes 127 by more than rounding.
        let level = (value / scale).clamp(-127.0, 127.0);
        // At 1.5 × 2^23 one step of f32 is 1: the sum rounds to nearest, ties to even, and its
        // low byte is the level in two's complement.
        *code = (level + 12_582_912.0).to_bits() as u8;
    }
    Ok(())
}

/// How many values of rows as served are NaN or infinite.
///
/// For `int8` that is every value of a row whose scale is; an encoder makes no such row.
pub(crate) fn count_nonfinite(dtype: DType, dim: usize, served: &[u8]) -> u64 {
    /// Counts elements whose exponent bits are all ones.
    fn halves(served: &[u8], exponent: u16) -> u64 {
        let bits = served.as_chunks().0.iter().map(|bytes| u16::from_le_bytes(*bytes));
        bits.map(|bits| u64::from(bits & exponent == exponent)).sum()
    }
    match dtype {
        DType::F32 => {
            let bits = served.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
            bits.map(|bits| u64::from(bits & 0x7f80_0000 == 0x7f80_0000)).sum()
        }
        DType::F16 => halves(served, 0x7c00),
        DType::Bf16 => halves(served, 0x7f80),
        DType::Int8 => {
            let rows = served.chunks_exact(dtype.row_bytes(dim));
            let damaged = rows
                .filter(|row| !f32::from_le_bytes([row[0], row[1], row[2], row[3]]).is_finite());
            damaged.count() as u64 * dim as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round_trip(dtype: DType, dim: usize, values: &[f32]) -> Result<Vec<f32>, Error> {
        let mut served = vec![0; values.len() / dim * dtype.row_bytes(dim)];
        encode_rows(dtype, dim, values, &mut served)?;
        let mut back = vec![f32::NAN; values.len()];
        decode_rows(dtype, dim, &served, &mut back)?;
        Ok(back)
    }

    fn finite(limit: f32) -> impl Strategy<Value = f32> {
        prop_oneof![
            -limit..limit,
            Just(0.0),
            Just(-0.0),
            (-1.0_f32..1.0).prop_map(|x| x * 1e-6),
            (-1.0_f32..1.0).prop_map(|x| x * f32::MIN_POSITIVE),
        ]
    }

    proptest! {
        #[test]
        fn f32_round_trips_bit_for_bit(dim in 1_usize..40, bits in prop::collection::vec(any::<u32>(), 40)) {
            let values: Vec<f32> = bits[..dim].iter().map(|b| f32::from_bits(*b)).collect();
            let mut served = vec![0; 4 * dim];
            encode_rows(DType::F32, dim, &values, &mut served).unwrap();
            let mut back = vec![0.0; dim];
            decode_rows(DType::F32, dim, &served, &mut back).unwrap();
            for (left, right) in values.iter().zip(&back) {
                prop_assert_eq!(left.to_bits(), right.to_bits());
            }
        }

        #[test]
        fn f16_is_off_by_half_a_step_at_most(values in prop::collection::vec(finite(65_000.0), 1..50)) {
            for (value, back) in values.iter().zip(round_trip(DType::F16, 1, &values).unwrap()) {
                let bound = (value.abs() * 2.0_f32.powi(-11)).max(2.0_f32.powi(-25));
                prop_assert!((value - back).abs() <= bound, "{value} came back as {back}");
            }
        }

        #[test]
        fn bf16_is_off_by_half_a_step_at_most(values in prop::collection::vec(finite(1e38), 1..50)) {
            for (value, back) in values.iter().zip(round_trip(DType::Bf16, 1, &values).unwrap()) {
                let bound = (f64::from(value.abs()) * 2.0_f64.powi(-8)).max(2.0_f64.powi(-134));
                prop_assert!(f64::from((value - back).abs()) <= bound, "{value} came back as {back}");
            }
        }

        #[test]
        fn int8_is_off_by_half_the_scale_at_most(
            dim in 1_usize..20,
            pool in prop::collection::vec(finite(f32::MAX), 60),
        ) {
            let values = &pool[..60 / dim * dim];
            let back = round_trip(DType::Int8, dim, values).unwrap();
            for (row, back) in values.chunks(dim).zip(back.chunks(dim)) {
                let largest = row.iter().fold(0.0_f64, |m, v| m.max(f64::from(v.abs())));
                // Half a step, plus 127 times what rounding the scale itself can cost.
                let bound = largest / 254.0 * (1.0 + 1e-4) + 127.0 * 2.0_f64.powi(-149);
                for (value, back) in row.iter().zip(back) {
                    let error = (f64::from(*value) - f64::from(*back)).abs();
                    prop_assert!(error <= bound, "{value} came back as {back}, bound {bound}");
                }
            }
        }
    }

    #[test]
    fn int8_rounds_to_nearest_with_ties_to_even() {
        // With 127 in the row the scale is 1, so that levels are the values rounded.
        let mut row: Vec<f32> = (-508_i16..=508).map(|quarter| f32::from(quarter) / 4.0).collect();
        row.push(126.500_01);
        let back = round_trip(DType::Int8, row.len(), &row).unwrap();
        for (value, back) in row.iter().zip(back) {
            assert_eq!(back, value.round_ties_even(), "{value}");
        }
    }

    #[test]
    fn int8_reaches_both_ends_of_f32() {
        let values = [f32::MAX, -f32::MAX, 0.0, f32::MAX / 2.0];
        let back = round_trip(DType::Int8, 4, &values).unwrap();
        assert!(back.iter().all(|value| value.is_finite()));
        assert!((back[0] / f32::MAX - 1.0).abs() < 1e-5);
        assert_eq!(back[2], 0.0);
        assert_eq!(round_trip(DType::Int8, 2, &[0.0, -0.0]).unwrap(), [0.0, 0.0]);
        assert_eq!(round_trip(DType::Int8, 1, &[1e-45]).unwrap(), [0.0]);
    }

    #[test]
    fn a_value_that_would_become_infinite_is_refused() {
        let error = round_trip(DType::F16, 2, &[1.0, 2.0, 3.0, 70_000.0]).unwrap_err();
        assert!(matches!(
            error,
            Error::Codec(CodecError::Overflow { row: 1, column: 1, value: 70_000.0, dtype: "f16" })
        ));
        assert!(round_trip(DType::Bf16, 1, &[f32::MAX]).is_err());
        assert_eq!(round_trip(DType::F16, 1, &[f32::INFINITY]).unwrap(), [f32::INFINITY]);
        assert!(round_trip(DType::Bf16, 1, &[f32::NAN]).unwrap()[0].is_nan());
    }

    #[test]
    fn int8_has_no_place_for_nan() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let error = round_trip(DType::Int8, 3, &[0.0, 1.0, 2.0, 3.0, bad, 5.0]).unwrap_err();
            assert!(matches!(error, Error::Codec(CodecError::NonFinite { row: 1, column: 1 })));
        }
    }

    #[test]
    fn lengths_that_do_not_match_are_refused() {
        let mut out = [0.0; 4];
        let decode = |dim, bytes: &[u8], out: &mut [f32]| decode_rows(DType::F16, dim, bytes, out);
        assert!(matches!(
            decode(2, &[0; 7], &mut out),
            Err(Error::Codec(CodecError::PartialRow { byte_count: 7, row_bytes: 4 }))
        ));
        assert!(matches!(
            decode(2, &[0; 12], &mut out),
            Err(Error::Codec(CodecError::ValueCount { expected: 6, found: 4 }))
        ));
        assert!(matches!(decode(0, &[], &mut []), Err(Error::Shape(_))));
        assert!(matches!(decode(usize::MAX, &[], &mut []), Err(Error::Shape(_))));
        assert!(matches!(
            encode_rows(DType::F16, 3, &[0.0; 4], &mut [0; 8]),
            Err(Error::Codec(CodecError::PartialValues { value_count: 4, dim: 3 }))
        ));
        assert!(matches!(
            encode_rows(DType::F16, 2, &[0.0; 4], &mut [0; 7]),
            Err(Error::Codec(CodecError::ByteCount { expected: 8, found: 7 }))
        ));
    }

    #[test]
    fn nonfinite_values_are_counted() {
        let values = [0.0, f32::NAN, f32::INFINITY, 1.0, f32::NEG_INFINITY, 65_504.0];
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let mut served = vec![0; dtype.row_bytes(6)];
            encode_rows(dtype, 6, &values, &mut served).unwrap();
            assert_eq!(count_nonfinite(dtype, 6, &served), 3, "{dtype}");
        }
    }
}
