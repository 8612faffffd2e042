//! Reading a table's rows so that what is read is what its version says.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::bundle;
use crate::error::{Error, RowsError};
use crate::header::{DATA_OFFSET, encode_header};
use crate::mapping::Mapping;
use crate::shape::BLOCK_ROWS;
use crate::sums;
use crate::table::Table;
use crate::tree::Geometry;
use crate::version::{BlockHash, BlockHasher, Version, VersionHasher};

/// A reading of every row of a table, in any order and from any threads, that ends in a check of
/// what was read against the table's version.
///
/// Rows are hashed where they were copied to, so that nothing which happens to the file between the
/// check and the use goes unnoticed. What was read must not be used before
/// [`finish`](Self::finish) has found it right.
pub struct Reading<'a> {
    table: &'a Table,
    hasher: BlockHasher,
    blocks: Box<[OnceLock<BlockHash>]>,
    /// `rows.tree`, where it is of the rows that are read: not below a patch.
    tree: Option<(&'a Mapping, Geometry)>,
    has_other_leaves: AtomicBool,
}

impl Table {
    /// Begins a checked reading of all rows. Checks the files' headers and the row sums at once.
    ///
    /// ```
    /// use hushtable_table::{BLOCK_ROWS, DType, Table};
    ///
    /// let table = Table::from_weight("films", 1_000, 1, DType::F32, &[0.5; 1_000])?;
    /// let (mut front, mut back) = ([0; 4 * BLOCK_ROWS], [0; 4 * (1_000 - BLOCK_ROWS)]);
    /// let reading = table.reading()?;
    /// reading.copy_rows(BLOCK_ROWS as u64, &mut back)?;
    /// reading.copy_rows(0, &mut front)?;
    /// reading.finish()?; // both are now known to be right
    /// # Ok::<(), hushtable_table::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Rows`] for a header or sums that are not those that the manifest was written with.
    pub fn reading(&self) -> Result<Reading<'_>, Error> {
        self.check_frame()?;
        let blocks = (0..self.shape().blocks()).map(|_| OnceLock::new()).collect();
        let tree = self.tree_mapping().filter(|_| self.patch().is_none());
        Ok(Reading {
            table: self,
            hasher: BlockHasher::new(self.manifest().hashing()),
            blocks,
            tree: tree.map(|tree| (tree, Geometry::new(self.shape()))),
            has_other_leaves: AtomicBool::new(false),
        })
    }

    /// Rows by id, each checked against its sum, the sums having been checked against the manifest.
    ///
    /// That finds every accident, but not rows that were made to fit their sums: where that
    /// matters, finish a [`reading`](Self::reading) first.
    ///
    /// # Errors
    /// As [`reading`](Self::reading).
    pub fn checked_rows(&self) -> Result<CheckedRows<'_>, Error> {
        self.check_frame()?;
        Ok(self.summed_rows())
    }

    /// As [`checked_rows`](Self::checked_rows), with sums that nobody has checked, for rows that a
    /// [`reading_of`](Self::reading_of) them has: what happens to these afterwards is found, and a damaged sum is
    /// taken for a damaged row.
    pub fn summed_rows(&self) -> CheckedRows<'_> {
        CheckedRows { table: self, sums: self.mappings().map(|(_, sums)| sums) }
    }

    /// Checks all but the rows themselves.
    fn check_frame(&self) -> Result<(), Error> {
        let Some((rows, sums)) = self.mappings() else { return Ok(()) };
        if rows[..DATA_OFFSET] != encode_header(self.shape()) {
            return Err(self.rows_error(bundle::ROWS, RowsError::HeaderBytes));
        }
        let found = blake3::hash(sums);
        if sums.is_lost() {
            return Err(self.rows_error(bundle::SUMS, RowsError::Lost));
        }
        let expected = self.manifest().row_sums();
        match found == *expected {
            true => Ok(()),
            false => {
                let (expected, found) = (Version::from(*expected), (*found.as_bytes()).into());
                Err(self.rows_error(bundle::SUMS, RowsError::Sums { expected, found }))
            }
        }
    }
}

impl Reading<'_> {
    /// Copies whole blocks of [`BLOCK_ROWS`] rows, of which the table's last may be shorter, as
    /// [`Table::copy_rows`] does, and hashes them.
    ///
    /// # Errors
    /// [`Error::PartialBlock`] for rows that are no whole blocks, and as [`Table::copy_rows`].
    pub fn copy_rows(&self, first: u64, out: &mut [u8]) -> Result<(), Error> {
        let shape = self.table.shape();
        self.table.copy_rows(first, out)?;
        let count = (out.len() / shape.row_bytes()) as u64;
        let is_whole = |row: u64| row.is_multiple_of(BLOCK_ROWS as u64);
        if !is_whole(first) || !(is_whole(count) || first + count == shape.rows()) {
            return Err(Error::PartialBlock { first, count });
        }
        let first_block = first as usize / BLOCK_ROWS;
        let blocks = out.chunks(BLOCK_ROWS * shape.row_bytes());
        let mut leaves = Vec::new();
        for (block, served) in (first_block..).zip(blocks) {
            leaves.clear();
            let hash = self.hasher.hash(served, &mut leaves);
            if *self.blocks[block].get_or_init(|| hash) != hash {
                // It changed between two readings, so that one of them was wrong.
                let row = block as u64 * BLOCK_ROWS as u64;
                return Err(self.table.rows_error(bundle::ROWS, RowsError::Row { row }));
            }
            if let Some((tree, geometry)) = &self.tree
                && geometry.leaves_in(tree, block) != Some(&leaves)
            {
                self.has_other_leaves.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Whether all that was read is what the table's version says, and `rows.tree` is of that.
    ///
    /// # Errors
    /// [`Error::Rows`] if not, with the first damaged row where one can be named;
    /// [`Error::PartialBlock`] where a block was never read.
    pub fn finish(self) -> Result<(), Error> {
        let mut version = VersionHasher::new(self.table.shape(), self.table.manifest().hashing());
        for (block, hash) in self.blocks.iter().enumerate() {
            match hash.get() {
                Some(hash) => version.push(hash),
                None => {
                    let (first, count) = ((block * BLOCK_ROWS) as u64, BLOCK_ROWS as u64);
                    return Err(Error::PartialBlock { first, count });
                }
            }
        }
        let (levels, found) = version.finish_levels();
        let expected = self.table.version();
        if expected == found {
            let Some((tree, geometry)) = self.tree else { return Ok(()) };
            // By now it is known that what was read is right: these hashes are not.
            let is_other =
                self.has_other_leaves.into_inner() || !geometry.has_levels(tree, &levels);
            return match (tree.is_lost(), is_other) {
                (true, _) => Err(self.table.rows_error(bundle::TREE, RowsError::Lost)),
                (_, true) => Err(self.table.rows_error(bundle::TREE, RowsError::Tree)),
                _ => Ok(()),
            };
        }
        let row = self.table.first_damaged_row();
        Err(self.table.rows_error(bundle::ROWS, RowsError::Content { row, expected, found }))
    }
}

/// Rows of a table by id, each checked against its sum.
pub struct CheckedRows<'a> {
    table: &'a Table,
    /// `rows.sums`; a table that was made in memory has none and needs none.
    sums: Option<&'a Mapping>,
}

impl CheckedRows<'_> {
    /// Copies rows as [`Table::copy_rows`] does and checks each where it was copied to.
    ///
    /// # Errors
    /// [`Error::Rows`] names the first row that is damaged; else as [`Table::copy_rows`].
    pub fn copy_rows(&self, first: u64, out: &mut [u8]) -> Result<(), Error> {
        self.table.copy_rows(first, out)?;
        let Some(sums) = self.sums else { return Ok(()) };
        let row_bytes = self.table.row_bytes();
        let stored = sums[sums::MARK.len() + 4 * first as usize..].as_chunks::<4>().0;
        for (row, (served, stored)) in (first..).zip(out.chunks_exact(row_bytes).zip(stored)) {
            // A row of the patch was checked with it.
            if sums::sum(served) != *stored && !self.table.is_patched(row) {
                return Err(self.table.rows_error(bundle::ROWS, RowsError::Row { row }));
            }
        }
        match sums.is_lost() {
            false => Ok(()),
            true => Err(self.table.rows_error(bundle::SUMS, RowsError::Lost)),
        }
    }
}

impl Table {
    /// The first row that does not match its sum.
    fn first_damaged_row(&self) -> Option<u64> {
        let rows = self.summed_rows();
        let mut served = Vec::new();
        self.shape().chunks().find_map(|(first, count)| {
            served.resize(count * self.row_bytes(), 0);
            match rows.copy_rows(first, &mut served) {
                Err(Error::Rows { source: RowsError::Row { row }, .. }) => Some(row),
                _ => None,
            }
        })
    }
}
