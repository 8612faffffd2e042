//! How rows lie in plaintexts, and plaintexts in rows and columns.

use std::sync::Arc;

use hushtable_rlwe::bfv::noise::{Noise, Prediction};
use hushtable_rlwe::bfv::{Parameters, SwitchKey, response};
use hushtable_rlwe::pack::poly_bytes;

use super::{Error, ParameterSet};
use crate::TableShape;
use crate::divisor::Divisor;
use crate::kernel::rowsel::{GROUP_COLUMNS, LANES, Packing, ROWS_MAX, SLACK_BYTES};

/// Where each row of a table lies: public, and the same for client and server.
///
/// A plaintext holds N coefficients of `plain_bits` bits. Short rows share one (an *item* is what a
/// plaintext holds); a row longer than a plaintext takes several, its *chunks*, which are answered
/// side by side. Item i is in matrix row i mod D0 and column i / D0; the column's bits choose it in
/// the tournament.
#[derive(Clone, Debug)]
pub struct Geometry {
    set: ParameterSet,
    params: Arc<Parameters>,
    shape: TableShape,
    levels: u32,
    games: u32,
}

/// Columns that are answered together, and whose tournament follows at once.
pub(crate) const BLOCK_COLUMNS: usize = 64;

/// A row's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Matrix row: which of the D0 first-dimension leaves.
    pub row: usize,
    /// Column.
    pub column: u64,
    /// Item: column · D0 + matrix row.
    pub item: u64,
    /// Which of the item's rows.
    pub within: usize,
}

impl PartialEq for Geometry {
    fn eq(&self, other: &Self) -> bool {
        self.to_bytes() == other.to_bytes()
    }
}

impl Eq for Geometry {}

impl Geometry {
    /// Bytes of a geometry on the wire.
    pub const BYTES_MAX: usize = 256;
    /// Longest row.
    pub const ROW_BYTES_MAX: usize = 32 << 10;
    /// log2 of the chance of a wrong row that is allowed to a response.
    pub const FAILURE_LOG2_MAX: f64 = -40.0;

    /// The geometry that answers a table of `shape` fastest with `set`.
    ///
    /// # Errors
    /// [`Error::RowBytes`] for rows above 32 KiB, [`Error::Rows`] where no geometry of this set holds
    /// so many.
    pub fn new(set: ParameterSet, shape: TableShape) -> Result<Self, Error> {
        let params = set.parameters();
        // A split costs about two games of the tournament; more levels save games.
        let cost = |geometry: &Self| {
            2 * (1u64 << geometry.levels) + geometry.columns() * geometry.chunks() as u64
        };
        let levels = 1..=params.degree().trailing_zeros();
        levels
            .filter_map(|levels| Self::with_levels(set, shape, levels).ok())
            .min_by_key(cost)
            .map_or_else(|| Err(Self::refuse(shape)), Ok)
    }

    /// The geometry with 2^`levels` leaves: the selectors take what they need of them, and the rest
    /// is D0.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::Rows`] where so few leaves do not do.
    pub fn with_levels(set: ParameterSet, shape: TableShape, levels: u32) -> Result<Self, Error> {
        let params = set.parameters();
        if shape.row_bytes() > Self::ROW_BYTES_MAX || levels > params.degree().trailing_zeros() {
            return Err(Self::refuse(shape));
        }
        let with = |games| Self { set, params: Arc::clone(&params), shape, levels, games };
        (0..32)
            .map(with)
            .find(|geometry| {
                let rows = geometry.leaves() as i64 - geometry.selector_leaves() as i64;
                (1..=ROWS_MAX as i64).contains(&rows)
                    && geometry.columns() <= 1 << geometry.games
                    && geometry.prediction().failure_log2() <= Self::FAILURE_LOG2_MAX
            })
            .ok_or_else(|| Self::refuse(shape))
    }

    fn refuse(shape: TableShape) -> Error {
        match shape.row_bytes() > Self::ROW_BYTES_MAX {
            true => Error::RowBytes { row_bytes: shape.row_bytes() },
            false => Error::Rows { rows: shape.rows() },
        }
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// [`Error::Geometry`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let refuse = |defect| Err(Error::Geometry { defect });
        let Ok(bytes) = <[u8; 16]>::try_from(bytes) else {
            return refuse("it must have 16 bytes");
        };
        let [format, set, levels, games, row_bytes @ .., _, _, _, _, _, _, _, _] = bytes;
        if format != FORMAT {
            return refuse("its format is another than this version's");
        }
        let Some(set) = ParameterSet::from_id(set) else {
            return refuse("its parameter set is unknown");
        };
        let rows = u64::from_le_bytes(bytes[8..].try_into().expect("eight bytes"));
        let row_bytes = u32::from_le_bytes(row_bytes) as usize;
        let Ok(shape) = TableShape::new(rows, row_bytes) else {
            return refuse("its shape is out of range");
        };
        match Self::with_levels(set, shape, levels.into()) {
            Ok(geometry) if geometry.games == u32::from(games) => Ok(geometry),
            _ => refuse("its levels do not hold the table"),
        }
    }

    /// The geometry as 16 bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT, self.set.id(), self.levels as u8, self.games as u8];
        bytes.extend((self.shape.row_bytes() as u32).to_le_bytes());
        bytes.extend(self.shape.rows().to_le_bytes());
        bytes
    }

    /// The parameter set.
    pub fn set(&self) -> ParameterSet {
        self.set
    }

    /// Its parameters.
    pub fn params(&self) -> &Arc<Parameters> {
        &self.params
    }

    /// The table's shape.
    pub fn shape(&self) -> TableShape {
        self.shape
    }

    /// Levels of the expansion.
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// Leaves of the expansion: D0 rows, then each selector's digits.
    pub fn leaves(&self) -> usize {
        1 << self.levels
    }

    /// d: rounds of the tournament, each with a selector of its own.
    pub fn games(&self) -> u32 {
        self.games
    }

    /// Leaves that the selectors take.
    pub(crate) fn selector_leaves(&self) -> usize {
        self.games as usize * self.params.selector().digits()
    }

    /// D0: rows of the matrix.
    pub fn rows(&self) -> usize {
        self.leaves() - self.selector_leaves()
    }

    /// Bytes of a plaintext.
    pub fn plaintext_bytes(&self) -> usize {
        self.params.degree() * self.params.plain_bits() as usize / 8
    }

    /// Table rows that share a plaintext.
    pub fn rows_per_item(&self) -> usize {
        (self.plaintext_bytes() / self.shape.row_bytes()).max(1)
    }

    /// Plaintexts of a row: 1 unless rows are longer than a plaintext.
    pub fn chunks(&self) -> usize {
        self.shape.row_bytes().div_ceil(self.plaintext_bytes())
    }

    /// Items: plaintexts, or groups of a row's plaintexts.
    pub fn items(&self) -> u64 {
        self.shape.rows().div_ceil(self.rows_per_item() as u64)
    }

    /// Columns of the matrix (D / D0), each chunk's.
    pub fn columns(&self) -> u64 {
        self.items().div_ceil(self.rows().max(1) as u64)
    }

    /// The number of an item's chunk among all plaintexts, which its [mask](super::Mask) goes by.
    pub(crate) fn plaintext_number(&self, item: u64, chunk: usize) -> u64 {
        item * self.chunks() as u64 + chunk as u64
    }

    /// Where a row lies; in constant time, as the id is the client's secret.
    pub(crate) fn place(&self, id: u64) -> Place {
        let (item, within) = Divisor::new(self.rows_per_item() as u64).divide(id);
        let (column, row) = Divisor::new(self.rows() as u64).divide(item);
        Place { row: row as usize, column, item, within: within as usize }
    }

    /// Bytes of a client's keys.
    pub fn key_bytes(&self) -> usize {
        HEADER_BYTES + (self.levels as usize + 1) * SwitchKey::bytes(&self.params)
    }

    /// Bytes of a query.
    pub fn query_bytes(&self) -> usize {
        HEADER_BYTES + poly_bytes(self.params.answer_ring())
    }

    /// Bytes of a response.
    pub fn response_bytes(&self) -> usize {
        self.chunks() * response::response_bytes(&self.params)
    }

    /// The noise of a response, and the chance that it decodes wrongly.
    pub fn prediction(&self) -> Prediction {
        Noise::new(&self.params).response(self.rows(), self.levels, self.games)
    }

    /// The prepared table's layout.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = self.blocks_of(0..self.columns());
        let mut end = 0;
        for block in &mut blocks {
            block.offset = end;
            end += block.bytes;
        }
        blocks
    }

    /// A block of `columns` columns from `first` on, at the start of its payload.
    pub(crate) fn block(&self, chunk: usize, first: u64, columns: usize) -> Block {
        let ring = self.params.answer_ring();
        let packing = Packing::of(ring.modulus(0));
        let groups = columns.div_ceil(GROUP_COLUMNS);
        let group_bytes = self.rows() * GROUP_COLUMNS * packing.vector_bytes();
        let bytes = ring.limbs() * self.params.degree() / LANES * groups * group_bytes;
        Block { chunk, first, columns, groups, group_bytes, offset: 0, bytes }
    }

    /// Bytes of the prepared table, with room for kernels to read past its end.
    pub fn prepared_bytes(&self) -> u64 {
        let end = self.blocks().last().map_or(0, |block| block.offset + block.bytes);
        (end + SLACK_BYTES) as u64
    }
}

/// Up to 64 columns of one chunk in the prepared table: limb, vector, group, row, column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub chunk: usize,
    /// The first column.
    pub first: u64,
    /// Columns that hold something.
    pub columns: usize,
    /// Groups of four columns.
    pub groups: usize,
    /// Bytes of a group for one vector.
    pub group_bytes: usize,
    /// Where the block starts.
    pub offset: usize,
    /// Bytes of the block.
    pub bytes: usize,
}

impl Block {
    /// Where a limb's vector of a group starts, from the block's start.
    pub(crate) fn group_offset(&self, vector: usize, group: usize) -> usize {
        (vector * self.groups + group) * self.group_bytes
    }
}

const FORMAT: u8 = 1;
/// Format, parameter set, levels, a zero, and a seed.
pub(crate) const HEADER_BYTES: usize = 4 + 32;
