//! How many rows, and how long each is.

use crate::Error;

/// Rows and row bytes of a table that can be served: always within the limits below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableShape {
    rows: u64,
    row_bytes: u32,
}

impl TableShape {
    /// Most rows that a key can address.
    pub const ROWS_MAX: u64 = 1 << 32;
    /// Longest row, in bytes.
    pub const ROW_BYTES_MAX: usize = 64 << 10;

    /// Checks `rows` (1 to 2^32) and `row_bytes` (1 to 65,536).
    ///
    /// # Errors
    /// [`Error::Rows`] or [`Error::RowBytes`] outside those.
    pub fn new(rows: u64, row_bytes: usize) -> Result<Self, Error> {
        if !(1..=Self::ROWS_MAX).contains(&rows) {
            return Err(Error::Rows { rows });
        }
        if !(1..=Self::ROW_BYTES_MAX).contains(&row_bytes) {
            return Err(Error::RowBytes { row_bytes });
        }
        Ok(Self { rows, row_bytes: row_bytes as u32 })
    }

    /// Rows in the table.
    pub fn rows(self) -> u64 {
        self.rows
    }

    /// Bytes of one row.
    pub fn row_bytes(self) -> usize {
        self.row_bytes as usize
    }

    /// Bytes of all rows.
    pub fn table_bytes(self) -> u64 {
        self.rows * u64::from(self.row_bytes)
    }
}
