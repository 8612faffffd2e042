//! Changed rows of a table, in time proportional to the change.
//!
//! A patch names the version that it changes, the rows that it changes and the version that comes
//! of it. [`patch`](patch()) makes the bundle of that version: the files of the bundle before it, by links,
//! and the patch beside them as `rows.patch`. A patch of a patched bundle is the changes of both over the
//! bundle that was built whole, so that no chain of files grows; past [`rows_max`] rows, the table
//! is to be written whole again ([`Table::save`](crate::Table::save)).
//!
//! The next version is computed through the tree of hashes of `rows.tree`, and everything that is
//! read for it is checked up to the version before: a damaged row, hash or patch is an error.

mod apply;
mod proof;

use std::ops::Range;
use std::path::PathBuf;

use crate::dtype::DType;
use crate::error::Error;
use crate::shape::{Shape, ShapeError};
use crate::table::Table;
use crate::version::Version;

pub use apply::{follow, patch, patch_from, patch_with};

/// The first bytes of a patch.
const MARK: [u8; 16] = *b"hushtable-patch1";
const HEAD_BYTES: usize = 16 + 2 * 32 + 4 * 8;
const SUM_BYTES: usize = 32;

/// The most bytes that a patch's file has.
pub(crate) const FILE_BYTES_MAX: u64 = 1 << 32;

/// The most rows that a patch holds: a sixteenth of the table's, or 1,024 of a small one.
pub fn rows_max(rows: u64) -> u64 {
    (rows / 16).max(1_024)
}

/// Rows of one version of a table that another version has otherwise. Always checked: ids ascend, and lie in the table.
#[derive(Clone, PartialEq, Eq)]
pub struct Patch {
    shape: Shape,
    base: Version,
    next: Version,
    ids: Vec<u64>,
    rows: Vec<u8>,
}

impl Patch {
    /// The patch that gives rows of `table` new bytes, as served: `rows[i * row_bytes..]` is row `ids[i]`.
    /// The ids may come in any order.
    ///
    /// It holds what `table`'s own patch holds besides, and is one of the bundle below that.
    ///
    /// # Errors
    /// [`Error::Patch`] for ids that are not in the table or come twice, for another number of bytes, and for
    /// too many rows; [`Error::Rows`] for a table that is damaged.
    pub fn new(table: &Table, ids: &[u64], rows: &[u8]) -> Result<Self, Error> {
        Ok(Self::with_rows_below(table, ids, rows)?.0)
    }

    /// As [`new`](Self::new), with the rows that the patch changes as they are below it.
    fn with_rows_below(table: &Table, ids: &[u64], rows: &[u8]) -> Result<(Self, Vec<u8>), Error> {
        let shape = table.shape();
        let broken = |source| Error::Patch { path: path_of(table), source };
        let row_bytes = shape.row_bytes();
        if Some(rows.len()) != ids.len().checked_mul(row_bytes) {
            let (ids, bytes) = (ids.len(), rows.len());
            return Err(broken(PatchError::RowBytes { ids, row_bytes, bytes }));
        }
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_unstable_by_key(|&place| ids[place]);
        let sorted: Vec<u64> = order.iter().map(|&place| ids[place]).collect();
        check_ids(shape, &sorted).map_err(broken)?;

        // Both lists ascend; of a row in both, the newer bytes stay.
        let (mut all_ids, mut all_rows) = (Vec::new(), Vec::new());
        let mut older = table.patch().into_iter().flat_map(|patch| patch.iter()).peekable();
        for (&place, &id) in order.iter().zip(&sorted) {
            while let Some((old, row)) = older.next_if(|&(old, _)| old <= id) {
                if old < id {
                    all_ids.push(old);
                    all_rows.extend_from_slice(row);
                }
            }
            all_ids.push(id);
            all_rows.extend_from_slice(&rows[place * row_bytes..][..row_bytes]);
        }
        for (id, row) in older {
            all_ids.push(id);
            all_rows.extend_from_slice(row);
        }
        let max = rows_max(shape.rows());
        if all_ids.len() as u64 > max {
            return Err(broken(PatchError::TooMany { found: all_ids.len() as u64, max }));
        }
        let base = table.patch().map_or(table.version(), |patch| patch.base());
        let mut patch = Self { shape, base, next: base, ids: all_ids, rows: all_rows };
        let (next, below) = proof::next_version(table, &patch)?;
        patch.next = next;
        Ok((patch, below))
    }

    /// Reads a patch from the bytes of its file.
    ///
    /// # Errors
    /// [`PatchError`] for anything but a whole patch.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PatchError> {
        if bytes.len() < HEAD_BYTES + SUM_BYTES || bytes[..16] != MARK {
            return Err(PatchError::Mark);
        }
        let (body, sum) = bytes.split_at(bytes.len() - SUM_BYTES);
        if file_sum(body).as_bytes() != sum {
            return Err(PatchError::Checksum);
        }
        let hash = |at: usize| <[u8; 32]>::try_from(&body[at..at + 32]).unwrap_or_default();
        let number =
            |at: usize| u64::from_le_bytes(body[at..at + 8].try_into().unwrap_or_default());
        let (rows, dim, dtype, count) = (number(80), number(88), number(96), number(104));
        let dtype = usize::try_from(dtype).ok().and_then(|dtype| DTYPES.get(dtype));
        let dtype = *dtype.ok_or(PatchError::DType)?;
        let shape = Shape::new(rows, usize::try_from(dim).unwrap_or(usize::MAX), dtype)?;
        let max = rows_max(rows);
        if count > max {
            return Err(PatchError::TooMany { found: count, max });
        }
        let count = count as usize;
        let expected = HEAD_BYTES + count * (8 + shape.row_bytes());
        if body.len() != expected {
            return Err(PatchError::Length { expected, found: body.len() });
        }
        let (ids, rows) = body[HEAD_BYTES..].split_at(8 * count);
        let ids: Vec<u64> =
            ids.as_chunks::<8>().0.iter().map(|id| u64::from_le_bytes(*id)).collect();
        check_ids(shape, &ids)?;
        if ids.windows(2).any(|pair| pair[0] > pair[1]) {
            return Err(PatchError::Order);
        }
        let (base, next) = (Version::from(hash(16)), Version::from(hash(48)));
        Ok(Self { shape, base, next, ids, rows: rows.to_vec() })
    }

    /// The bytes of the patch's file: a mark, the two versions, the shape, ids, rows, and a BLAKE3 of them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes =
            Vec::with_capacity(HEAD_BYTES + 8 * self.ids.len() + self.rows.len() + SUM_BYTES);
        bytes.extend_from_slice(&MARK);
        bytes.extend_from_slice(self.base.as_bytes());
        bytes.extend_from_slice(self.next.as_bytes());
        let dtype =
            DTYPES.iter().position(|&dtype| dtype == self.shape.dtype()).unwrap_or_default();
        let numbers =
            [self.shape.rows(), self.shape.dim() as u64, dtype as u64, self.ids.len() as u64];
        for number in numbers.iter().chain(&self.ids) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.rows);
        let sum = file_sum(&bytes);
        bytes.extend_from_slice(sum.as_bytes());
        bytes
    }

    /// Rows, dim and dtype of the table.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The version that it changes: of a bundle that was built whole.
    pub fn base(&self) -> Version {
        self.base
    }

    /// The version that comes of it.
    pub fn next(&self) -> Version {
        self.next
    }

    /// The rows that it changes, ascending.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// The rows that it changes and their new bytes as served, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> + '_ {
        self.ids.iter().copied().zip(self.rows.chunks_exact(self.shape.row_bytes()))
    }

    /// Which of the changed rows are in a range, by their places among all of them.
    pub(crate) fn places_in(&self, range: Range<u64>) -> Range<usize> {
        let from = self.ids.partition_point(|&id| id < range.start);
        let count = self.ids[from..].iter().take_while(|&&id| id < range.end).count();
        from..from + count
    }

    /// The new bytes of a changed row, by its place.
    pub(crate) fn row(&self, place: usize) -> &[u8] {
        let row_bytes = self.shape.row_bytes();
        &self.rows[place * row_bytes..][..row_bytes]
    }

    /// Puts the changed rows in the place of those in `out`, which starts with row `first`.
    pub(crate) fn lay_over(&self, first: u64, out: &mut [u8]) {
        let row_bytes = self.shape.row_bytes();
        for place in self.places_in(first..first + (out.len() / row_bytes) as u64) {
            let at = (self.ids[place] - first) as usize * row_bytes;
            out[at..at + row_bytes].copy_from_slice(self.row(place));
        }
    }
}

impl std::fmt::Debug for Patch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the rows.
        f.debug_struct("Patch")
            .field("base", &self.base)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

/// The number of a dtype is its place: new ones come after.
const DTYPES: [DType; 20] = {
    let mut dtypes = DType::ALL;
    dtypes[0] = DType::F32;
    dtypes[1] = DType::F16;
    dtypes[2] = DType::Bf16;
    dtypes
};

fn file_sum(body: &[u8]) -> blake3::Hash {
    blake3::Hasher::new_derive_key("hushtable table patch v1").update(body).finalize()
}

/// Checks sorted ids.
fn check_ids(shape: Shape, ids: &[u64]) -> Result<(), PatchError> {
    if ids.is_empty() {
        return Err(PatchError::Empty);
    }
    if let Some(&id) = ids.iter().find(|&&id| id >= shape.rows()) {
        return Err(PatchError::Id { id, rows: shape.rows() });
    }
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(PatchError::Twice { id: pair[0] }),
        None => Ok(()),
    }
}

fn path_of(table: &Table) -> PathBuf {
    table.path().map_or_else(|| table.name().into(), Into::into)
}

impl Table {
    /// Checks that the rows of the table's patch make its version of the version below, by hashing what they
    /// change: enough where the rows below are known to be right. Returns the changed rows as they are below, in the
    /// order of the patch's; none without a patch.
    ///
    /// # Errors
    /// [`Error::Patch`] where they make another, [`Error::Rows`] for a table that is damaged.
    pub fn check_patch(&self) -> Result<Vec<u8>, Error> {
        let Some(patch) = self.patch() else { return Ok(Vec::new()) };
        match proof::next_version(self, patch)? {
            (found, below) if found == self.version() => Ok(below),
            (found, _) => {
                let source = PatchError::Next { expected: self.version(), found };
                Err(Error::Patch { path: path_of(self), source })
            }
        }
    }

    /// Copies one row as it is below the table's patch.
    ///
    /// # Errors
    /// As [`copy_rows`](Self::copy_rows).
    pub fn copy_base_row(&self, id: u64, out: &mut [u8]) -> Result<(), Error> {
        self.copy_scattered_rows(id, out)
    }

    /// The version of the rows below the table's patch; its own where it has none.
    pub fn base_version(&self) -> Version {
        self.patch().map_or(self.version(), |patch| patch.base())
    }
}

/// Why a patch is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// It was made for another version.
    #[error(
        "the patch changes version {expected}, and this bundle is version {found}; patch the bundle \
         that it was made for"
    )]
    Base {
        /// The version that it changes.
        expected: Version,
        /// The bundle's.
        found: Version,
    },
    /// The bytes are not those that were written.
    #[error("the patch is damaged; fetch it again, or make it again")]
    Checksum,
    /// A dtype that there is not.
    #[error("the patch names no known dtype; fetch it again, or make it again")]
    DType,
    /// No rows.
    #[error("the patch changes no row; name at least one")]
    Empty,
    /// An id past the last row.
    #[error("row {id} is not in the table, which has {rows} rows; ids are 0 to {}", rows - 1)]
    Id {
        /// The id.
        id: u64,
        /// Rows of the table.
        rows: u64,
    },
    /// The bundle has no tree of hashes, or was made in memory.
    #[error(
        "this table has no tree of hashes on disk, which a patch needs; open it and save it once as a \
         bundle (`Table.open(bundle).save(other)`), and patch that"
    )]
    NoTree,
    /// Too few or too many bytes for the rows that it names.
    #[error("the patch has {found} bytes where its head needs {expected}; fetch it again")]
    Length {
        /// Bytes that its head makes.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// Not a patch.
    #[error(
        "the file does not start with the mark of a patch, or is cut short; give the rows.patch of a patched bundle"
    )]
    Mark,
    /// The rows make another version than it says.
    #[error(
        "the changed rows make version {found}, where the patch says {expected}; it is not served: fetch it again"
    )]
    Next {
        /// The version that it says.
        expected: Version,
        /// What the rows make.
        found: Version,
    },
    /// The ids do not ascend.
    #[error("the patch's ids do not ascend; make it again")]
    Order,
    /// Bytes that are no rows of the table.
    #[error(
        "{ids} rows of {row_bytes} bytes are needed, got {bytes} bytes; give one row of the table's dim for each id"
    )]
    RowBytes {
        /// How many ids.
        ids: usize,
        /// Bytes of a row.
        row_bytes: usize,
        /// Bytes given.
        bytes: usize,
    },
    /// A shape outside the limits.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Two tables of which neither can be a next version of the other.
    #[error(
        "the earlier bundle has {} rows of {} {}, and the next one {} rows of {} {}; a patch changes rows, not their \
         number, dim or dtype", expected.rows(), expected.dim(), expected.dtype(), found.rows(), found.dim(), found.dtype()
    )]
    Shapes {
        /// The earlier one's.
        expected: Shape,
        /// The next one's.
        found: Shape,
    },
    /// More rows than a patch holds.
    #[error(
        "{found} rows differ from the bundle that was built whole, and a patch holds at most {max}; open the \
         table and save it whole (`Table.open(bundle).save(other)`), and patch that"
    )]
    TooMany {
        /// Rows that differ.
        found: u64,
        /// The most.
        max: u64,
    },
    /// A file that is too large to be a patch.
    #[error(
        "the file has {bytes} bytes, and a patch at most {FILE_BYTES_MAX}; give the rows.patch of a patched bundle"
    )]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// An id twice.
    #[error("row {id} is named twice; name each row once")]
    Twice {
        /// The id.
        id: u64,
    },
}
