//! Rows with scales: `int8`, `int4`, `int2` and `fp8`.
//!
//! A row is its scales, one a group of values, and then its codes. A value is code × scale in f32.
//! Codes of less than a byte are packed from the low bits on and are two's complement, so there is
//! one level more below zero than above: a scale of `int4` and `int2` may be negative, which puts
//! that level on the side where the group needs it. Zero stays exactly zero.
//!
//! `int4` and `int2` rows of 256 values or more with one scale have it in their codes: bit i of the
//! bfloat16 is the parity of the low bits of the codes i, i + 16, i + 32 and so on. Where a parity is not
//! what it should be, the encoder moves the code that stands nearest to the next level.
//!
//! Scales of `int8` and `fp8` are the largest magnitude over the largest code. Those of `int4` and
//! `int2` are the ones of least squared error: of a few that clip more or less, the best, and from there
//! by least squares for as long as that helps. All of it is single operations of IEEE 754 in a fixed order:
//! every machine makes the same bytes.

use half::bf16;

use super::float8::{Float8, decode_e4m3, decode_e5m2};
use crate::dtype::{Code, DType};

/// At 1.5 × 2^23 one step of f32 is 1: a sum with it is rounded to nearest, ties to even, and its
/// low byte is the level in two's complement.
const ROUND: f32 = 12_582_912.0;

/// Magnitudes order as their bits do, and those of infinity and NaN come last: one integer
/// maximum, which vectorises, finds the largest and rules out both.
fn largest(values: &[f32]) -> f32 {
    f32::from_bits(values.iter().map(|value| value.to_bits() & 0x7fff_ffff).fold(0, u32::max))
}

/// Decodes whole rows of `dtype`, which has scales.
pub(super) fn decode(dtype: DType, dim: usize, bytes: &[u8], out: &mut [f32]) {
    let Some((code, group)) = dtype.coding() else { return };
    let length = group.len(dim);
    let rows = bytes.chunks_exact(dtype.row_bytes(dim)).zip(out.chunks_exact_mut(dim));
    for (served, values) in rows {
        let (scales, codes) = served.split_at(dtype.scales_bytes(dim));
        // A whole group's codes are whole bytes.
        let groups = values.chunks_mut(length).zip(codes.chunks(code.codes_bytes(length)));
        for (place, (values, codes)) in groups.enumerate() {
            decode_group(code, scale_of(code, place, scales, codes), codes, values);
        }
    }
}

/// The scale of a group, of a row's scales or, where there are none, of its codes.
fn scale_of(code: Code, place: usize, scales: &[u8], codes: &[u8]) -> f32 {
    let bytes = code.scale_bytes();
    match *scales.get(place * bytes..(place + 1) * bytes).unwrap_or_default() {
        [a, b] => bf16::from_le_bytes([a, b]).to_f32(),
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
        _ if code == Code::Int4 => bf16::from_bits(parities::<4>(codes)).to_f32(),
        _ => bf16::from_bits(parities::<2>(codes)).to_f32(),
    }
}

/// Bit i: the parity of the low bits of the codes i, i + 16 and so on.
fn parities<const BITS: usize>(codes: &[u8]) -> u16 {
    // Sixteen codes are 2 × BITS bytes.
    let mut folded = [0; 8];
    for codes in codes.chunks(2 * BITS) {
        folded.iter_mut().zip(codes).for_each(|(folded, codes)| *folded ^= codes);
    }
    let folded = u64::from_le_bytes(folded);
    (0..16).map(|i| (((folded >> (BITS * i)) & 1) as u16) << i).sum()
}

fn decode_group(code: Code, scale: f32, codes: &[u8], values: &mut [f32]) {
    match code {
        Code::Int8 => {
            for (value, code) in values.iter_mut().zip(codes) {
                *value = f32::from(code.cast_signed()) * scale;
            }
        }
        Code::E4m3 => {
            for (value, code) in values.iter_mut().zip(codes) {
                *value = decode_e4m3(*code) * scale;
            }
        }
        Code::E5m2 => {
            for (value, code) in values.iter_mut().zip(codes) {
                *value = decode_e5m2(*code) * scale;
            }
        }
        Code::Int4 => {
            for (values, code) in values.chunks_mut(2).zip(codes) {
                for (value, shift) in values.iter_mut().zip([4, 0]) {
                    *value = f32::from((code << shift).cast_signed() >> 4) * scale;
                }
            }
        }
        Code::Int2 => {
            for (values, code) in values.chunks_mut(4).zip(codes) {
                for (value, shift) in values.iter_mut().zip([6, 4, 2, 0]) {
                    *value = f32::from((code << shift).cast_signed() >> 6) * scale;
                }
            }
        }
    }
}

/// Encodes whole rows as `dtype`, which has scales; the error is the row and the column of a NaN or
/// infinity.
pub(super) fn encode(
    dtype: DType,
    dim: usize,
    values: &[f32],
    out: &mut [u8],
) -> Result<(), (usize, usize)> {
    let Some((code, group)) = dtype.coding() else { return Ok(()) };
    let length = group.len(dim);
    let mut scratch = Vec::new();
    let rows = values.chunks_exact(dim).zip(out.chunks_exact_mut(dtype.row_bytes(dim)));
    for (row, (values, served)) in rows.enumerate() {
        if !largest(values).is_finite() {
            let column = values.iter().position(|value| !value.is_finite());
            return Err((row, column.unwrap_or_default()));
        }
        let (scales, codes) = served.split_at_mut(dtype.scales_bytes(dim));
        let mut scales = scales.chunks_exact_mut(code.scale_bytes());
        let groups = values.chunks(length).zip(codes.chunks_mut(code.codes_bytes(length)));
        for (values, codes) in groups {
            let scale = scales.next();
            match code {
                Code::Int8 => encode_int8(values, scale, codes),
                Code::Int4 => encode_packed::<4>(values, scale, codes, &mut scratch),
                Code::Int2 => encode_packed::<2>(values, scale, codes, &mut scratch),
                Code::E4m3 => encode_float8(Float8::E4M3, values, scale, codes),
                Code::E5m2 => encode_float8(Float8::E5M2, values, scale, codes),
            }
        }
    }
    Ok(())
}

/// largest / top, and no value that is decoded with it is infinite.
fn scale_to(largest: f32, top: f32) -> f32 {
    let scale = largest / top;
    // Rounded up, the scale of a row that reaches f32::MAX would decode to infinity.
    if (scale * top).is_finite() { scale } else { scale.next_down() }
}

fn encode_int8(values: &[f32], head: Option<&mut [u8]>, codes: &mut [u8]) {
    let scale = scale_to(largest(values), 127.0);
    write(head, &scale.to_le_bytes());
    if scale == 0.0 {
        // All zeros, or magnitudes so small that their scale underflows.
        codes.fill(0);
        return;
    }
    for (code, value) in codes.iter_mut().zip(values) {
        // Near the smallest scales value / scale passes 127 by more than rounding.
        let level = (value / scale).clamp(-127.0, 127.0);
        *code = (level + ROUND).to_bits() as u8;
    }
}

fn encode_float8(kind: Float8, values: &[f32], head: Option<&mut [u8]>, codes: &mut [u8]) {
    let scale = scale_to(largest(values), kind.max);
    write(head, &scale.to_le_bytes());
    if scale == 0.0 {
        codes.fill(0);
        return;
    }
    for (code, value) in codes.iter_mut().zip(values) {
        *code = kind.encode(value / scale);
    }
}

/// Puts a scale at its place in a row, if it has one there.
fn write(head: Option<&mut [u8]>, scale: &[u8]) {
    if let Some(head) = head {
        head.copy_from_slice(scale);
    }
}

fn encode_packed<const BITS: usize>(
    values: &[f32],
    head: Option<&mut [u8]>,
    codes: &mut [u8],
    scratch: &mut Vec<f32>,
) {
    let scale = fit::<BITS>(values, scratch);
    codes.fill(0);
    if scale == 0.0 {
        return write(head, &[0; 2]);
    }
    let (low, high) = levels::<BITS>();
    // In steps; what is past the levels is as far as it is.
    scratch.clear();
    scratch.extend(values.iter().map(|value| value / scale));
    let code = |step: f32| (step.clamp(low, high) + ROUND).to_bits() as u8 & ((1 << BITS) - 1);
    for (code_byte, steps) in codes.iter_mut().zip(scratch.chunks(8 / BITS)) {
        *code_byte = steps.iter().rev().fold(0, |packed, step| (packed << BITS) | code(*step));
    }
    let bits = bf16::from_f32(scale).to_bits();
    if head.is_some() {
        return write(head, &bits.to_le_bytes());
    }
    let wrong = parities::<BITS>(codes) ^ bits;
    for class in (0..16).filter(|class| (wrong >> class) & 1 == 1) {
        // The first of those whose squared error grows least.
        let mut best = (f32::INFINITY, 0, 0.0);
        for (place, step) in scratch.iter().enumerate().skip(class).step_by(16) {
            let level = (step.clamp(low, high) + ROUND) - ROUND;
            let toward = if *step < level { level - 1.0 } else { level + 1.0 };
            let next = if (low..=high).contains(&toward) { toward } else { 2.0 * level - toward };
            let grown = (step - next) * (step - next) - (step - level) * (step - level);
            if grown < best.0 {
                best = (grown, place, next);
            }
        }
        let (_, place, level) = best;
        let (at, shift) = (place * BITS / 8, place * BITS % 8);
        codes[at] = (codes[at] & !(((1 << BITS) - 1) << shift)) | (code(level) << shift);
    }
}

/// The lowest and the highest level of codes of so many bits.
const fn levels<const BITS: usize>() -> (f32, f32) {
    let half = (1 << (BITS - 1)) as f32;
    (-half, half - 1.0)
}

/// How much of the largest magnitude the lowest level is tried at: from what clips most of a row with
/// outliers to what the other side of the levels reaches.
const REACHES: [f32; 12] = [0.36, 0.42, 0.48, 0.55, 0.62, 0.7, 0.78, 0.86, 0.93, 1.0, 1.07, 1.14];

/// How often a scale is fitted to its own codes, at most: it settles sooner.
const FITS_MAX: usize = 6;

/// Values that are summed side by side, so that sums vectorise in an order of their own.
const LANES: usize = 8;

/// The scale of least squared error that is found, a bfloat16; 0 for a group of zeros, and where every
/// scale underflows.
fn fit<const BITS: usize>(values: &[f32], scratch: &mut Vec<f32>) -> f32 {
    let largest = largest(values);
    if largest == 0.0 {
        return 0.0;
    }
    // By a power of two into 1 to 2, so that squares neither overflow nor vanish; f64 has subnormals of
    // f32 as normal numbers.
    let exponent = (f64::from(largest).to_bits() >> 52) as i32 - 1023;
    let unit = |exponent: i32| f64::from_bits(((1023 + i64::from(exponent)) as u64) << 52);
    scratch.clear();
    scratch.extend(values.iter().map(|value| (f64::from(*value) * unit(-exponent)) as f32));
    scratch.resize(values.len().next_multiple_of(LANES), 0.0);
    let (low, _) = levels::<BITS>();
    let reach = (f64::from(largest) * unit(-exponent)) as f32 / -low;
    let narrow = |scale: f32| bf16::from_f32(scale).to_f32();

    let mut best = (f32::INFINITY, 0.0);
    for scale in REACHES.iter().flat_map(|part| [-part * reach, part * reach]).map(narrow) {
        let found = error::<BITS>(scratch, scale);
        if found < best.0 {
            best = (found, scale);
        }
    }
    for _ in 0..FITS_MAX {
        let scale = narrow(fitted::<BITS>(scratch, best.1));
        let found = error::<BITS>(scratch, scale);
        // A scale of 0 or NaN has no error that is less.
        if found < best.0 && scale != 0.0 {
            best = (found, scale);
        } else {
            break;
        }
    }
    let scale = bf16::from_f64(f64::from(best.1) * unit(exponent)).to_f32();
    // None that decodes the lowest level to infinity: beside values near f32::MAX one might.
    let top = f32::from_bits((f32::MAX / -low).to_bits() & 0xffff_0000);
    scale.clamp(-top, top)
}

/// The level of a value, by the reciprocal of the scale.
#[inline(always)]
fn level<const BITS: usize>(value: f32, inverse: f32) -> f32 {
    let (low, high) = levels::<BITS>();
    // The comparisons are those that vectorise; no value is NaN.
    let scaled = value * inverse;
    let scaled = if scaled < low { low } else { scaled };
    let scaled = if scaled > high { high } else { scaled };
    (scaled + ROUND) - ROUND
}

/// Squared error of a group with a scale.
fn error<const BITS: usize>(values: &[f32], scale: f32) -> f32 {
    let inverse = 1.0 / scale;
    let mut sums = [0.0; LANES];
    for lanes in values.as_chunks::<LANES>().0 {
        for (sum, &value) in sums.iter_mut().zip(lanes) {
            let off = value - level::<BITS>(value, inverse) * scale;
            *sum += off * off;
        }
    }
    sums.iter().sum()
}

/// The scale of least squared error for the codes that another scale gives.
fn fitted<const BITS: usize>(values: &[f32], scale: f32) -> f32 {
    let inverse = 1.0 / scale;
    let (mut products, mut squares) = ([0.0; LANES], [0.0; LANES]);
    for lanes in values.as_chunks::<LANES>().0 {
        for ((product, square), &value) in products.iter_mut().zip(&mut squares).zip(lanes) {
            let level = level::<BITS>(value, inverse);
            *product += level * value;
            *square += level * level;
        }
    }
    products.iter().sum::<f32>() / squares.iter().sum::<f32>()
}

/// How many values of rows of `dtype`, which has scales, are NaN or infinite: all of a group whose scale is,
/// and those whose code is. No encoder makes such a scale or code; a file of `fp8` may hold the codes.
pub(super) fn count_nonfinite(dtype: DType, dim: usize, served: &[u8]) -> u64 {
    let Some((code, group)) = dtype.coding() else { return 0 };
    let length = group.len(dim);
    let mut count = 0;
    for row in served.chunks_exact(dtype.row_bytes(dim)) {
        let (scales, codes) = row.split_at(dtype.scales_bytes(dim));
        for (place, codes) in codes.chunks(code.codes_bytes(length)).enumerate() {
            let is_nonfinite: fn(u8) -> bool = match code {
                _ if !scale_of(code, place, scales, codes).is_finite() => {
                    count += length.min(dim - place * length);
                    continue;
                }
                Code::E4m3 => |code| code & 0x7f == 0x7f,
                Code::E5m2 => |code| code & 0x7c == 0x7c,
                Code::Int8 | Code::Int4 | Code::Int2 => continue,
            };
            count += codes.iter().filter(|code| is_nonfinite(**code)).count();
        }
    }
    count as u64
}
