//! A table's rows, dim and dtype, checked against the limits.

use crate::dtype::DType;

/// The most rows that a table has: what a 32-bit row index reaches.
pub const ROWS_MAX: u64 = 1 << 32;

/// The most bytes that a served row has.
pub const ROW_BYTES_MAX: usize = 65_536;

/// How many rows are hashed together into a table's version: few enough that what an engine stores in
/// one piece is whole blocks.
pub const BLOCK_ROWS: usize = 256;

// Byte offsets into a table reach 2^48 and are handled as usize throughout. Where there are no
// files no table is served, and clients count what servers hold in u64.
const _: () =
    assert!(usize::BITS >= 64 || cfg!(not(unix)), "hushtable-table needs a 64-bit target");

/// A table's rows, dim and dtype: within the limits, so that no size of it overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    rows: u64,
    dim: usize,
    dtype: DType,
}

impl Shape {
    /// Checks `rows` (1 to [`ROWS_MAX`]), `dim` (at least 1) and the row they make (at most
    /// [`ROW_BYTES_MAX`] bytes).
    ///
    /// # Errors
    /// [`ShapeError`] names the limit that is passed.
    pub fn new(rows: u64, dim: usize, dtype: DType) -> Result<Self, ShapeError> {
        if rows == 0 || rows > ROWS_MAX {
            return Err(ShapeError::Rows { rows });
        }
        if dim == 0 {
            return Err(ShapeError::Dim);
        }
        let row_bytes = dtype.row_bytes(dim);
        if row_bytes > ROW_BYTES_MAX {
            return Err(ShapeError::RowBytes { dim, dtype, row_bytes });
        }
        Ok(Self { rows, dim, dtype })
    }

    /// How many rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Values a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// How a value is stored.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes of one served row, 1 to [`ROW_BYTES_MAX`].
    pub fn row_bytes(&self) -> usize {
        self.dtype.row_bytes(self.dim)
    }

    /// Bytes of all rows as served, at most 2^48.
    pub fn content_bytes(&self) -> u64 {
        self.rows * self.row_bytes() as u64
    }

    /// How many blocks of [`BLOCK_ROWS`] rows; the last may be shorter.
    pub(crate) fn blocks(&self) -> usize {
        self.rows.div_ceil(BLOCK_ROWS as u64) as usize
    }

    /// How many rows to handle at a time so that a chunk stays in the second-level cache.
    pub(crate) fn rows_per_chunk(&self) -> usize {
        const CHUNK_BYTES: usize = 1 << 20;
        CHUNK_BYTES / self.row_bytes()
    }

    /// The table's rows in order, cut into `(first, count)` chunks.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (u64, usize)> + use<> {
        let (rows, step) = (self.rows, self.rows_per_chunk());
        (0..rows).step_by(step).map(move |first| (first, (rows - first).min(step as u64) as usize))
    }
}

/// A table shape outside the limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// `dim` is 0.
    #[error("a row has at least one value; dim is 0")]
    Dim,
    /// A served row is larger than [`ROW_BYTES_MAX`].
    #[error(
        "a row of {dim} {dtype} values is {row_bytes} bytes, over the limit of {ROW_BYTES_MAX}; \
         use a narrower dtype or split the columns over several tables"
    )]
    RowBytes {
        /// Values a row.
        dim: usize,
        /// How each would be stored.
        dtype: DType,
        /// What that comes to.
        row_bytes: usize,
    },
    /// No rows, or more than [`ROWS_MAX`].
    #[error("a table has 1 to {ROWS_MAX} rows, not {rows}; split a larger one")]
    Rows {
        /// How many were asked for.
        rows: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_at_their_edges() {
        assert!(Shape::new(1, 1, DType::Int8).is_ok());
        assert!(Shape::new(ROWS_MAX, 16_384, DType::F32).is_ok());
        assert_eq!(Shape::new(0, 1, DType::F32), Err(ShapeError::Rows { rows: 0 }));
        assert_eq!(
            Shape::new(ROWS_MAX + 1, 1, DType::F32),
            Err(ShapeError::Rows { rows: ROWS_MAX + 1 })
        );
        assert_eq!(Shape::new(1, 0, DType::Int8), Err(ShapeError::Dim));
        let over = |dim, dtype, row_bytes| {
            assert_eq!(
                Shape::new(1, dim, dtype),
                Err(ShapeError::RowBytes { dim, dtype, row_bytes })
            );
        };
        over(16_385, DType::F32, 65_540);
        over(32_769, DType::Bf16, 65_538);
        over(65_533, DType::Int8, 65_537);
        over(usize::MAX, DType::F32, usize::MAX);
        over(usize::MAX, DType::Int8, usize::MAX);
        assert!(Shape::new(1, 65_532, DType::Int8).is_ok());
    }

    #[test]
    fn chunks_cover_every_row_once() {
        for (rows, dim) in [(1, 1), (1_000_003, 1), (37, 16_384), (16, 16_384)] {
            let shape = Shape::new(rows, dim, DType::F32).unwrap();
            let mut next = 0;
            for (first, count) in shape.chunks() {
                assert_eq!(first, next);
                assert!(count > 0);
                next += count as u64;
            }
            assert_eq!(next, rows);
        }
    }
}
