//! Reading some of a table's rows so that what is read is what the table's version says.
//!
//! A shard has its own rows alone, and of `rows.tree` the hashes of all blocks and what is above
//! them: 32 bytes for 256 rows. Its own blocks are hashed as they are read, the others' hashes are
//! taken from the file, and all of them together must make the version.

use std::ops::Range;
use std::sync::OnceLock;

use crate::bundle;
use crate::error::{Error, RowsError};
use crate::header::{DATA_OFFSET, encode_header};
use crate::shape::BLOCK_ROWS;
use crate::table::Table;
use crate::tree::{Geometry, HASH_BYTES};
use crate::version::{BlockHash, BlockHasher, Version, VersionHasher};

/// A reading of a range of a table's rows, in any order and from any threads, that ends in a check
/// of what was read against the table's version.
///
/// Of a table with a [patch](mod@crate::patch), the rows below the patch are read, and checked against
/// the version that the patch is of.
pub struct RangeReading<'a> {
    table: &'a Table,
    rows: Range<u64>,
    hasher: BlockHasher,
    blocks: Box<[OnceLock<BlockHash>]>,
}

impl Table {
    /// Begins a checked reading of the rows of a range, which are whole blocks of [`BLOCK_ROWS`]
    /// rows, of which the table's last may be shorter.
    ///
    /// ```
    /// use hushtable_table::{BLOCK_ROWS, DType, Table};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("films");
    /// Table::from_weight("films", 1_000, 1, DType::F32, &[0.5; 1_000])?.save(&path)?;
    /// let table = Table::open(&path)?;
    /// let mut rows = [0; 4 * BLOCK_ROWS];
    /// let reading = table.reading_of(256..512)?;
    /// reading.copy_rows(256, &mut rows)?;
    /// reading.finish()?; // they are now known to be right
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::PartialBlock`] for a range that is no whole blocks, [`Error::RowRange`] for one that
    /// the table does not have, [`Error::Rows`] for a header that is not the manifest's or a table
    /// without a tree of hashes.
    pub fn reading_of(&self, rows: Range<u64>) -> Result<RangeReading<'_>, Error> {
        check_range(self, &rows)?;
        if let Some((file, _)) = self.mappings() {
            if file[..DATA_OFFSET] != encode_header(self.shape()) {
                return Err(self.rows_error(bundle::ROWS, RowsError::HeaderBytes));
            }
            if self.tree_mapping().is_none() {
                return Err(self.rows_error(bundle::TREE, RowsError::NoTree));
            }
        }
        let blocks = (rows.end - rows.start).div_ceil(BLOCK_ROWS as u64);
        let blocks = (0..blocks).map(|_| OnceLock::new()).collect();
        let hasher = BlockHasher::new(self.manifest().hashing());
        Ok(RangeReading { table: self, rows, hasher, blocks })
    }

    /// Copies one row below the table's patch, as served.
    ///
    /// # Errors
    /// As [`copy_rows`](Self::copy_rows).
    pub fn copy_row_below_patch(&self, row: u64, out: &mut [u8]) -> Result<(), Error> {
        self.copy_scattered_rows(row, out)
    }

    /// The version of the rows below the patch; without one, the table's.
    pub fn version_below_patch(&self) -> Version {
        self.patch().map_or(self.version(), |patch| patch.base())
    }
}

fn check_range(table: &Table, rows: &Range<u64>) -> Result<(), Error> {
    let count = rows.end.saturating_sub(rows.start);
    let (first, all) = (rows.start, table.rows());
    if count == 0 || rows.end > all {
        return Err(Error::RowRange { first, count, rows: all });
    }
    let is_whole = |row: u64| row.is_multiple_of(BLOCK_ROWS as u64);
    match is_whole(first) && (is_whole(rows.end) || rows.end == all) {
        true => Ok(()),
        false => Err(Error::PartialBlock { first, count }),
    }
}

impl RangeReading<'_> {
    /// Copies whole blocks of the range as served, below the table's patch, and hashes them.
    ///
    /// # Errors
    /// [`Error::PartialBlock`] for rows that are no whole blocks, [`Error::RowRange`] for rows outside
    /// the range, and as [`Table::copy_rows`].
    pub fn copy_rows(&self, first: u64, out: &mut [u8]) -> Result<(), Error> {
        let row_bytes = self.table.row_bytes();
        let count = (out.len() / row_bytes) as u64;
        let rows = first..first.saturating_add(count);
        check_range(self.table, &rows)?;
        if rows.start < self.rows.start || rows.end > self.rows.end {
            return Err(Error::RowRange { first, count, rows: self.rows.end });
        }
        self.table.copy_base_rows(first, out)?;
        let first_block = (first - self.rows.start) as usize / BLOCK_ROWS;
        let mut leaves = Vec::new();
        for (block, served) in (first_block..).zip(out.chunks(BLOCK_ROWS * row_bytes)) {
            leaves.clear();
            let hash = self.hasher.hash(served, &mut leaves);
            if *self.blocks[block].get_or_init(|| hash) != hash {
                let row = self.rows.start + (block * BLOCK_ROWS) as u64;
                return Err(self.table.rows_error(bundle::ROWS, RowsError::Row { row }));
            }
        }
        Ok(())
    }

    /// Whether all that was read is what the table's version says, and `rows.tree` over its leaves too.
    ///
    /// # Errors
    /// [`Error::Rows`] if not, with the first damaged block's first row where one can be named;
    /// [`Error::PartialBlock`] where a block was never read.
    pub fn finish(self) -> Result<(), Error> {
        let shape = self.table.shape();
        let first_block = (self.rows.start / BLOCK_ROWS as u64) as usize;
        let own = first_block..first_block + self.blocks.len();
        // A table in memory has no file of hashes, and all its rows: those that were not read are
        // hashed here.
        let stored = match self.table.tree_mapping() {
            Some(tree) => {
                let start = Geometry::new(shape).level_offset(0);
                tree[start..start + shape.blocks() * HASH_BYTES].to_vec()
            }
            None => self.hashes_in_memory()?,
        };
        if self.table.tree_mapping().is_some_and(|tree| tree.is_lost()) {
            return Err(self.table.rows_error(bundle::TREE, RowsError::Lost));
        }
        let mut version = VersionHasher::new(shape, self.table.manifest().hashing());
        let mut damaged = None;
        for (block, stored) in stored.as_chunks::<HASH_BYTES>().0.iter().enumerate() {
            if !own.contains(&block) {
                version.push(stored);
                continue;
            }
            let first = (block * BLOCK_ROWS) as u64;
            let Some(hash) = self.blocks[block - own.start].get() else {
                return Err(Error::PartialBlock { first, count: BLOCK_ROWS as u64 });
            };
            if hash != stored {
                damaged = damaged.or(Some(first));
            }
            version.push(hash);
        }
        let (levels, found) = version.finish_levels();
        let expected = self.table.version_below_patch();
        let tree = self.table.tree_mapping();
        match expected == found {
            // The leaves' hashes are not looked at: who has some of the rows need not have them.
            true if tree.is_some_and(|tree| !Geometry::new(shape).has_levels(tree, &levels)) => {
                Err(self.table.rows_error(bundle::TREE, RowsError::Tree))
            }
            true => Ok(()),
            false => {
                let content = RowsError::Content { row: damaged, expected, found };
                Err(self.table.rows_error(bundle::ROWS, content))
            }
        }
    }

    fn hashes_in_memory(&self) -> Result<Vec<u8>, Error> {
        let shape = self.table.shape();
        let mut hashes = Vec::with_capacity(shape.blocks() * HASH_BYTES);
        let (mut served, mut leaves) = (Vec::new(), Vec::new());
        for first in (0..shape.rows()).step_by(BLOCK_ROWS) {
            let count = (shape.rows() - first).min(BLOCK_ROWS as u64) as usize;
            served.resize(count * shape.row_bytes(), 0);
            self.table.copy_base_rows(first, &mut served)?;
            leaves.clear();
            hashes.extend_from_slice(&self.hasher.hash(&served, &mut leaves));
        }
        Ok(hashes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::dtype::DType;
    use crate::patch::patch;

    fn table(rows: u64, dtype: DType) -> Table {
        let values: Vec<f32> = (0..rows * 3).map(|i| (i % 1_009) as f32).collect();
        Table::from_weight("films", rows, 3, dtype, &values).unwrap()
    }

    fn read(table: &Table, rows: Range<u64>) -> Result<Vec<u8>, Error> {
        let reading = table.reading_of(rows.clone())?;
        let mut out = vec![0; (rows.end - rows.start) as usize * table.row_bytes()];
        for (number, piece) in out.chunks_mut(BLOCK_ROWS * table.row_bytes()).enumerate().rev() {
            reading.copy_rows(rows.start + (number * BLOCK_ROWS) as u64, piece)?;
        }
        reading.finish()?;
        Ok(out)
    }

    #[test]
    fn a_range_is_read_and_checked_alone() {
        let folder = tempfile::tempdir().unwrap();
        for dtype in [DType::F32, DType::Int8] {
            for rows in [1, 256, 1_000, 9_000] {
                let made = table(rows, dtype);
                let path = folder.path().join(format!("{rows}-{}", dtype.name()));
                made.save(&path).unwrap();
                let opened = Table::open(&path).unwrap();
                let mut whole = vec![0; rows as usize * made.row_bytes()];
                made.copy_rows(0, &mut whole).unwrap();
                for range in [0..rows.min(512), 0..rows, (rows - 1) / 256 * 256..rows] {
                    let bytes = range.start as usize * made.row_bytes()
                        ..range.end as usize * made.row_bytes();
                    for table in [&made, &opened] {
                        assert_eq!(read(table, range.clone()).unwrap(), whole[bytes.clone()]);
                    }
                }
            }
        }
    }

    #[test]
    fn rows_outside_the_range_may_be_absent_and_those_inside_may_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("films");
        table(2_048, DType::F32).save(&path).unwrap();
        let file = OpenOptions::new().write(true).open(path.join(bundle::ROWS)).unwrap();
        file.write_all_at(&[0; 12 * 1_024], DATA_OFFSET as u64 + 12 * 1_024).unwrap();
        let opened = Table::open(&path).unwrap();
        read(&opened, 0..1_024).unwrap();
        for range in [0..1_280, 1_024..2_048, 1_792..2_048] {
            let error = read(&opened, range).unwrap_err().to_string();
            assert!(error.contains("hash to version"), "{error}");
        }
        let error = read(&opened, 1_792..2_048).unwrap_err().to_string();
        assert!(error.contains("row 1792"), "{error}");
        // Another table's hashes are not this version's either.
        let tree = OpenOptions::new().write(true).open(path.join(bundle::TREE)).unwrap();
        let at = Geometry::new(opened.shape()).level_offset(0) as u64;
        tree.write_all_at(&[7; 32], at + 7 * 32).unwrap();
        assert!(read(&opened, 0..1_024).is_err());
    }

    #[test]
    fn a_flip_anywhere_over_the_blocks_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        table(10_000, DType::F32).save(&path).unwrap();
        let geometry = Geometry::new(Table::open(&path).unwrap().shape());
        assert_eq!(geometry.levels, [40, 3, 1]);
        let file = OpenOptions::new().read(true).write(true).open(path.join(bundle::TREE)).unwrap();
        let first = geometry.level_offset(0) as u64;
        for at in [first, first + 300, geometry.level_offset(1) as u64, geometry.file_bytes() - 1] {
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
            let found = read(&Table::open(&path).unwrap(), 0..1_024);
            assert!(found.is_err(), "byte {at}");
            file.write_all_at(&byte, at).unwrap();
        }
        read(&Table::open(&path).unwrap(), 0..1_024).unwrap();
    }

    #[test]
    fn ranges_are_whole_blocks_of_the_table() {
        let made = table(1_000, DType::F32);
        for range in [1..256, 0..255, 256..256, 0..1_001, 1_024..1_280] {
            assert!(made.reading_of(range.clone()).is_err(), "{range:?}");
        }
        let reading = made.reading_of(256..768).unwrap();
        assert!(reading.copy_rows(0, &mut [0; 256 * 12]).is_err());
        reading.copy_rows(256, &mut [0; 256 * 12]).unwrap();
        assert!(matches!(reading.finish(), Err(Error::PartialBlock { first: 512, .. })));
    }

    #[test]
    fn below_a_patch_the_version_before_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let (before, after) = (folder.path().join("before"), folder.path().join("after"));
        table(1_000, DType::F32).save(&before).unwrap();
        let (old, row) = (Table::open(&before).unwrap(), [9; 12]);
        patch(&before, &[300], &row, &after).unwrap();
        let new = Table::open(&after).unwrap();
        assert_ne!(new.version(), old.version());
        assert_eq!(new.version_below_patch(), old.version());
        assert_eq!(read(&new, 256..512).unwrap(), read(&old, 256..512).unwrap());
        let mut below = [0; 12];
        new.copy_row_below_patch(300, &mut below).unwrap();
        assert_ne!(below, row);
    }
}
