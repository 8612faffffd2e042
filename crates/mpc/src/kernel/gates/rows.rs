//! Projection rows: 16 numbers of a fixed number of bytes.
//!
//! All lowest bytes do not come first, nor all of a lane's: the numbers are cut into pieces of 4, 2 and
//! 1 bytes, lowest first, as their size asks for, and each piece stands with its like, so that a vector
//! register is written at once. Eight bytes are one piece.

use crate::LANES;

/// Writes the lowest `row_bytes` bytes of each number.
#[inline(always)]
pub(super) fn write(numbers: &[u64; LANES], row_bytes: usize, out: &mut [u8]) {
    let mut out = out;
    let mut shift = 0;
    if row_bytes == 8 {
        return put::<8>(numbers, 0, out);
    }
    if row_bytes & 4 != 0 {
        put::<4>(numbers, shift, out);
        out = &mut out[4 * LANES..];
        shift += 32;
    }
    if row_bytes & 2 != 0 {
        put::<2>(numbers, shift, out);
        out = &mut out[2 * LANES..];
        shift += 16;
    }
    if row_bytes & 1 != 0 {
        put::<1>(numbers, shift, out);
    }
}

/// The numbers that [`write()`] wrote.
#[inline(always)]
pub(super) fn read(row: &[u8], row_bytes: usize) -> [u64; LANES] {
    let mut numbers = [0; LANES];
    let mut row = row;
    let mut shift = 0;
    if row_bytes == 8 {
        take::<8>(&mut numbers, 0, row);
        return numbers;
    }
    if row_bytes & 4 != 0 {
        take::<4>(&mut numbers, shift, row);
        row = &row[4 * LANES..];
        shift += 32;
    }
    if row_bytes & 2 != 0 {
        take::<2>(&mut numbers, shift, row);
        row = &row[2 * LANES..];
        shift += 16;
    }
    if row_bytes & 1 != 0 {
        take::<1>(&mut numbers, shift, row);
    }
    numbers
}

#[inline(always)]
fn put<const BYTES: usize>(numbers: &[u64; LANES], shift: u32, out: &mut [u8]) {
    let (pieces, _) = out[..BYTES * LANES].as_chunks_mut::<BYTES>();
    for (piece, number) in pieces.iter_mut().zip(numbers) {
        let bytes = (number >> shift).to_le_bytes();
        piece.copy_from_slice(&bytes[..BYTES]);
    }
}

#[inline(always)]
fn take<const BYTES: usize>(numbers: &mut [u64; LANES], shift: u32, row: &[u8]) {
    let (pieces, _) = row[..BYTES * LANES].as_chunks::<BYTES>();
    for (number, piece) in numbers.iter_mut().zip(pieces) {
        let mut bytes = [0; 8];
        bytes[..BYTES].copy_from_slice(piece);
        *number |= u64::from_le_bytes(bytes) << shift;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_were_written() {
        let numbers: [u64; LANES] =
            std::array::from_fn(|lane| 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(lane as u64 + 1));
        for row_bytes in 1..=8 {
            let mut row = vec![0; row_bytes * LANES];
            write(&numbers, row_bytes, &mut row);
            let mask = u64::MAX >> (64 - 8 * row_bytes);
            assert_eq!(read(&row, row_bytes), numbers.map(|number| number & mask), "{row_bytes}");
        }
    }
}
