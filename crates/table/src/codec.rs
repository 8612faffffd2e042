//! Values to rows as served, and back.
//!
//! Rows as served are row-major and little-endian. Those with scales are in [`scaled`].

mod float8;
mod scaled;

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
        _ => scaled::decode(dtype, dim, bytes, out),
    }
    Ok(())
}

/// Encodes float32 values, row-major, as rows to serve.
///
/// `out` has `dtype.row_bytes(dim)` bytes a row. Rounding is to nearest, ties to even; for
/// `int8`, each value is off by at most half its row's scale, and for `int4` and `int2` the scale is
/// chosen for the least squared error of its values. f32, f16 and bf16 keep NaN and infinity.
///
/// # Errors
/// [`Error::Shape`] for a `dim` outside the limits, [`Error::Codec`] when the lengths do not
/// match, when a finite value is past what `dtype` holds (it would turn into infinity), or when a
/// NaN or infinity is to become codes with a scale, which have no place for it. Rows count from 0 at the start
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
        _ => {
            scaled::encode(dtype, dim, values, out).map_err(|(row, column)| {
                CodecError::NonFinite { row: first + row as u64, column, dtype: dtype.name() }
            })?;
        }
    }
    Ok(())
}

/// How many values of rows as served are NaN or infinite.
///
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
        _ => scaled::count_nonfinite(dtype, dim, served),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::dtype::Group;

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
            assert!(matches!(error, Error::Codec(CodecError::NonFinite { row: 1, column: 1, .. })));
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

    /// What a row decodes to, by the page of the format, with nothing of the codec's but its bytes.
    fn by_the_page(dtype: DType, dim: usize, row: &[u8]) -> Vec<f32> {
        let name = dtype.name();
        let (kind, group) = name.split_once('/').unwrap_or((name, "0"));
        let group = match group.parse().unwrap() {
            0 => dim,
            length => length,
        };
        let (bits, scale_bytes) = match kind {
            "int4" => (4, 2),
            "int2" => (2, 2),
            _ => (8, 4),
        };
        let is_carried = bits < 8 && name == kind && dim >= 256;
        let head = if is_carried { 0 } else { dim.div_ceil(group) * scale_bytes };
        assert_eq!(row.len(), head + (dim * bits).div_ceil(8));
        let code_at = |place: usize| {
            let bit = |i: usize| row[head + (place * bits + i) / 8] >> ((place * bits + i) % 8) & 1;
            (0..bits).map(|i| u32::from(bit(i)) << i).sum::<u32>()
        };
        let carried = || {
            let ones = |i: usize| (i..dim).step_by(16).filter(|place| code_at(*place) & 1 == 1);
            (0..16).map(|i| (ones(i).count() as u32 & 1) << (16 + i)).sum()
        };
        let number = |place: usize| {
            let code = code_at(place) as i32;
            let small = |mantissa: i32, bias: i32| {
                let (sign, rest) = (code >> 7, code & 127);
                let (exponent, steps) = (rest >> mantissa, rest & ((1 << mantissa) - 1));
                let magnitude = match exponent {
                    0 => f64::from(steps) * 2.0_f64.powi(1 - bias - mantissa),
                    _ => {
                        f64::from(steps + (1 << mantissa))
                            * 2.0_f64.powi(exponent - bias - mantissa)
                    }
                };
                if sign == 1 { -magnitude } else { magnitude }
            };
            match kind {
                "fp8_e4m3" => small(3, 7) as f32,
                "fp8_e5m2" => small(2, 15) as f32,
                _ if code >> (bits - 1) == 1 => (code - (1 << bits)) as f32,
                _ => code as f32,
            }
        };
        let scale = |place: usize| {
            let at = place / group * scale_bytes;
            f32::from_bits(match scale_bytes {
                _ if is_carried => carried(),
                2 => u32::from(row[at]) << 16 | u32::from(row[at + 1]) << 24,
                _ => u32::from_le_bytes(row[at..at + 4].try_into().unwrap()),
            })
        };
        (0..dim).map(|place| number(place) * scale(place)).collect()
    }

    fn scaled() -> impl Iterator<Item = DType> {
        DType::ALL.into_iter().filter(|dtype| dtype.coding().is_some())
    }

    /// Numbers that look drawn, some of them far from the rest, without a generator.
    fn drawn(count: usize) -> Vec<f32> {
        let drawn = |i: usize| (i * i * 7919 + i * 104_729) % 100_003;
        (0..count).map(|i| (drawn(i) as f32 / 50_001.5 - 1.0).powi(3) * 0.3).collect()
    }

    #[test]
    fn rows_with_scales_are_what_the_page_says() {
        for dtype in scaled() {
            for dim in [1, 2, 3, 5, 31, 32, 33, 64, 65, 129, 255, 256, 257, 300, 512] {
                let values = drawn(7 * dim);
                let mut served = vec![0; 7 * dtype.row_bytes(dim)];
                encode_rows(dtype, dim, &values, &mut served).unwrap();
                let mut back = vec![f32::NAN; 7 * dim];
                decode_rows(dtype, dim, &served, &mut back).unwrap();
                for (row, back) in served.chunks(dtype.row_bytes(dim)).zip(back.chunks(dim)) {
                    assert_eq!(by_the_page(dtype, dim, row), back, "{dtype} of {dim}");
                }
            }
        }
    }

    /// Squared error of rows over the squares of their values.
    fn loss(dtype: DType, dim: usize, values: &[f32]) -> f64 {
        let back = round_trip(dtype, dim, values).unwrap();
        let off = values.iter().zip(&back).map(|(v, b)| (f64::from(*v) - f64::from(*b)).powi(2));
        off.sum::<f64>() / values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>()
    }

    #[test]
    fn errors_are_what_least_squares_leave() {
        // Normal numbers, by the sum of twelve drawn ones: no generator, no seed.
        let (rows, dim) = (64, 512);
        let mut state = 1_u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 24) as f32
        };
        let values: Vec<f32> =
            (0..rows * dim).map(|_| (0..12).map(|_| next()).sum::<f32>() - 6.0).collect();
        let bounds = [
            // Uniform quantisers of normal numbers leave 0.01154 of 16 levels and 0.1188 of 4
            // (Max, 1960); ours have zero among their levels and carry their scale.
            ("int4", 0.0125),
            ("int4/32", 0.0078),
            ("int4/128", 0.0105),
            ("int2", 0.155),
            ("int2/32", 0.118),
            ("fp8_e4m3", 0.0008),
            ("fp8_e5m2", 0.0031),
            ("int8", 0.00006),
        ];
        for (name, bound) in bounds {
            let found = loss(name.parse().unwrap(), dim, &values);
            assert!((0.6 * bound..bound).contains(&found), "{name}: {found}");
        }
    }

    proptest! {
        #[test]
        fn any_finite_row_has_codes(
            dim in 1_usize..300,
            pool in prop::collection::vec(finite(f32::MAX), 300),
            exponent in -149_i32..128,
        ) {
            let scaled_down = pool.iter().map(|value| value / f32::MAX * 2.0_f32.powi(exponent));
            for values in [pool[..dim].to_vec(), scaled_down.take(dim).collect()] {
                let largest = values.iter().fold(0.0_f64, |m, v| m.max(f64::from(v.abs())));
                for dtype in scaled() {
                    let back = round_trip(dtype, dim, &values).unwrap();
                    for (value, back) in values.iter().zip(&back) {
                        let error = (f64::from(*value) - f64::from(*back)).abs();
                        // No code is further off than a row's largest value, nor one of zero beyond that.
                        prop_assert!(error <= 1.01 * largest + 1e-38, "{dtype}: {value} became {back}");
                    }
                }
            }
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        for dtype in scaled() {
            for dim in [1, 40, 256] {
                let mut served = vec![7; dtype.row_bytes(dim)];
                encode_rows(dtype, dim, &vec![-0.0; dim], &mut served).unwrap();
                assert!(served.iter().all(|byte| *byte == 0), "{dtype} of {dim}");
                let mut back = vec![1.0; dim];
                decode_rows(dtype, dim, &served, &mut back).unwrap();
                assert!(back.iter().all(|value| value.to_bits() == 0));
            }
            // Beside other values, too, where scales have their own place.
            if !dtype.carries_scale(256) {
                let mut row = drawn(256);
                row.iter_mut().step_by(3).for_each(|value| *value = 0.0);
                let back = round_trip(dtype, 256, &row).unwrap();
                assert!(back.iter().step_by(3).all(|value| *value == 0.0), "{dtype}");
            }
        }
    }

    #[test]
    fn what_is_on_a_grid_stays_there() {
        // Codes of another quantiser, of int4 with one scale for all: its codes are found again.
        for scale in [0.1, -0.037, 3.0e-20, 2.0e30] {
            for dim in [16, 64, 255] {
                let codes = (0..dim).map(|i| ((i * i + 3 * i) % 16) as f32 - 8.0);
                let values: Vec<f32> = codes.map(|code| code * scale).collect();
                let back = round_trip(DType::Int4(Group::Row), dim, &values).unwrap();
                for (value, back) in values.iter().zip(back) {
                    // As far as a bfloat16 is from the scale.
                    assert!((value - back).abs() <= value.abs() / 256.0, "{value} became {back}");
                }
            }
        }
    }

    #[test]
    fn codes_that_are_no_numbers_are_counted() {
        let of = |dtype: DType, dim, served: &[u8]| count_nonfinite(dtype, dim, served);
        let scale = 1.0_f32.to_le_bytes();
        let e4m3 = [&scale[..], &[0x7f, 0xff, 0x7e, 0]].concat();
        assert_eq!(of(DType::Fp8E4m3(Group::Row), 4, &e4m3), 2);
        let e5m2 = [&scale[..], &[0x7b, 0xfc, 0x7f, 0]].concat();
        assert_eq!(of(DType::Fp8E5m2(Group::Row), 4, &e5m2), 2);
        // The second group's scale is infinite, and has one value.
        let groups = [&[0x80, 0x3f, 0x80, 0x7f][..], &[0; 17]].concat();
        assert_eq!(of(DType::Int4(Group::Of32), 33, &groups), 1);
    }
}
