//! What lookups fetch, by any scheme that has them.

pub use hushtable_pir::client::LookupStats;
use hushtable_pir::client::{RowFormat, Rows};

use crate::Error;

/// What a lookup fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lookup {
    /// `ids × row_bytes` bytes, in the ids' order.
    pub rows: Vec<u8>,
    /// What it cost.
    pub stats: LookupStats,
    format: RowFormat,
}

impl Lookup {
    /// The rows as `ids × dim` numbers.
    ///
    /// # Errors
    /// [`Error::Rows`] for bytes that are no numbers of the table's type.
    pub fn to_f32(&self) -> Result<Vec<f32>, Error> {
        self.format.decode(&self.rows).map_err(|source| Error::Rows { source })
    }
}

impl From<Rows> for Lookup {
    fn from(Rows { rows, stats, format, .. }: Rows) -> Self {
        Self { rows, stats, format }
    }
}
