//! The rows of a part's bins, in the order in which a backend stores them.

use hushtable_table::layout::{Layout, Part};

use super::PartGeometry;
use crate::Error;

/// No row is stored here.
const EMPTY: u32 = u32::MAX;

/// Which of a part's rows is stored where: bin after bin, [`PartGeometry::bin_rows`] each.
pub struct PartRows<'a> {
    layout: &'a Layout,
    part: &'a Part,
    entry_bytes: usize,
    stored: Vec<u32>,
}

impl<'a> PartRows<'a> {
    /// The rows of `part` of `layout`, whose sizes are `shape`.
    pub fn new(layout: &'a Layout, part: &'a Part, shape: &PartGeometry) -> Self {
        let mut stored = vec![EMPTY; shape.bins * shape.bin_rows()];
        for index in 0..part.spec().rows {
            for place in part.places(index) {
                stored[place.bin as usize * shape.bin_rows() + place.offset as usize] =
                    index as u32;
            }
        }
        Self { layout, part, entry_bytes: shape.entry_bytes, stored }
    }

    /// Stored rows, those that hold none included.
    pub fn count(&self) -> usize {
        self.stored.len()
    }

    /// Fills `to` with the stored rows from `first` on, of [`PartGeometry::entry_bytes`] each: a row
    /// of the table and its companions, which `copy(id, row)` writes, or zeros where nothing is stored.
    ///
    /// # Errors
    /// Those of `copy`.
    pub fn copy(
        &self,
        first: u64,
        to: &mut [u8],
        copy: impl Fn(u64, &mut [u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let entries = to.chunks_exact_mut(self.entry_bytes);
        for (entry, &index) in entries.zip(&self.stored[first as usize..]) {
            if index == EMPTY {
                entry.fill(0);
                continue;
            }
            let ids = self.layout.entry_ids(self.part, index.into());
            for (row, id) in entry.chunks_exact_mut(self.layout.row_bytes()).zip(ids) {
                copy(id, row)?;
            }
        }
        Ok(())
    }
}
