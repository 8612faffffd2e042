//! `rows.sums`: one CRC-32 a row, so that damage is pinned to a row.
//!
//! A CRC finds every single flipped bit, and every run of up to 32 damaged bits, for certain, and
//! costs 4 bytes and a few nanoseconds a row. What makes the *content* trustworthy is the BLAKE3
//! in the manifest; the sums only say where to look once that does not match.

use crate::error::RowsError;
use crate::shape::Shape;

/// The file's first bytes; the sums follow, little-endian, in row order.
pub(crate) const MARK: [u8; 16] = *b"hushtable-sums1\n";

/// Bytes of the whole file.
pub(crate) fn file_bytes(shape: Shape) -> u64 {
    MARK.len() as u64 + 4 * shape.rows()
}

/// Appends the sums of whole rows as served.
pub(crate) fn append_sums(shape: Shape, served: &[u8], out: &mut Vec<u8>) {
    for row in served.chunks_exact(shape.row_bytes()) {
        out.extend_from_slice(&sum(row));
    }
}

/// The sum of one row as served.
pub(crate) fn sum(row: &[u8]) -> [u8; 4] {
    crc32fast::hash(row).to_le_bytes()
}

/// Checks the mark and the size of the file.
pub(crate) fn check_sums(shape: Shape, head: &[u8], found: u64) -> Result<(), RowsError> {
    let expected = file_bytes(shape);
    if found != expected {
        return Err(RowsError::FileSize { expected, found });
    }
    if head != MARK {
        return Err(RowsError::SumsMark);
    }
    Ok(())
}
