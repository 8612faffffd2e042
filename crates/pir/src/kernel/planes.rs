//! The table as the kernels read it.

use memmap2::MmapMut;
use rayon::prelude::*;

use super::{BLOCK_ROWS, TILE_UNITS_MAX, UNIT_BYTES, UNIT_ROW_BYTES, transpose8};
use crate::{Error, TableShape};

/// A table, bit-transposed in groups of eight rows.
///
/// Order, outermost first: block (512 rows, or the rows of a small bin), strip (up to 32 row bytes), group (8 rows), row byte,
/// bit position; bit r of a stored byte belongs to row r of its group. Rows are padded to a
/// multiple of 8 bytes and the table to a multiple of a block, with zeros, so a key's leaves past
/// the last row add nothing.
pub(crate) struct Planes {
    shape: TableShape,
    block_rows: usize,
    bytes: MmapMut,
}

/// One strip of a block: a tile's place in the block and its width.
#[derive(Clone, Copy)]
pub(crate) struct Strip {
    /// First unit of the row.
    pub unit: usize,
    /// Units, 1 to 4.
    pub units: usize,
}

impl Planes {
    /// Transposes a table whose rows `copy(first, bytes)` writes, on the current rayon pool, into
    /// blocks of `block_rows` (a multiple of 16, at most 512).
    pub(crate) fn new(
        shape: TableShape,
        block_rows: usize,
        copy: impl Fn(u64, &mut [u8]) -> Result<(), Error> + Sync,
    ) -> Result<Self, Error> {
        assert!(block_rows.is_multiple_of(16) && (16..=BLOCK_ROWS).contains(&block_rows));
        let block_bytes = block_bytes(shape, block_rows);
        let bytes = Self::stored_bytes(shape, block_rows);
        let memory = Error::Memory { bytes };
        let mut map = usize::try_from(bytes)
            .ok()
            .and_then(|bytes| MmapMut::map_anon(bytes).ok())
            .ok_or(memory)?;
        // Fewer page walks on a scan; a kernel without huge pages serves small ones.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        map.par_chunks_mut(block_bytes).enumerate().try_for_each_init(
            || vec![0; block_rows * shape.row_bytes()],
            |rows, (block, planes)| {
                let first = (block * block_rows) as u64;
                let count = (shape.rows() - first).min(block_rows as u64) as usize;
                let (present, absent) = rows.split_at_mut(count * shape.row_bytes());
                copy(first, present)?;
                absent.fill(0);
                transpose_block(rows, shape.row_bytes(), planes);
                Ok(())
            },
        )?;
        Ok(Self { shape, block_rows, bytes: map })
    }

    /// Bytes that a table of `shape` takes in blocks of `block_rows`.
    pub(crate) fn stored_bytes(shape: TableShape, block_rows: usize) -> u64 {
        shape.rows().div_ceil(block_rows as u64) * block_bytes(shape, block_rows) as u64
    }

    pub(crate) fn shape(&self) -> TableShape {
        self.shape
    }

    pub(crate) fn resident_bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn block_count(&self) -> usize {
        self.shape.rows().div_ceil(self.block_rows as u64) as usize
    }

    /// Units of a row: `ceil(row_bytes / 8)`.
    pub(crate) fn row_units(&self) -> usize {
        self.shape.row_bytes().div_ceil(UNIT_ROW_BYTES)
    }

    /// The strips of every block, in stored order.
    pub(crate) fn strips(&self) -> impl Iterator<Item = Strip> + use<> {
        strips(self.row_units())
    }

    /// The tile of `block` and `strip`.
    pub(crate) fn tile(&self, block: usize, strip: Strip) -> &[u8] {
        let start = self.tile_start(block, strip);
        &self.bytes[start..start + self.tile_bytes(strip)]
    }

    /// Up to `len` stored bytes after the tile of `block` and `strip`: what a scan reads next.
    pub(crate) fn after(&self, block: usize, strip: Strip, len: usize) -> &[u8] {
        let start = self.tile_start(block, strip) + self.tile_bytes(strip);
        &self.bytes[start..self.bytes.len().min(start + len)]
    }

    fn tile_start(&self, block: usize, strip: Strip) -> usize {
        (block * self.row_units() + strip.unit) * UNIT_BYTES * self.block_rows / 8
    }

    fn tile_bytes(&self, strip: Strip) -> usize {
        strip.units * UNIT_BYTES * self.block_rows / 8
    }
}

fn block_bytes(shape: TableShape, block_rows: usize) -> usize {
    shape.row_bytes().div_ceil(UNIT_ROW_BYTES) * UNIT_BYTES * block_rows / 8
}

pub(crate) fn strips(row_units: usize) -> impl Iterator<Item = Strip> {
    (0..row_units)
        .step_by(TILE_UNITS_MAX)
        .map(move |unit| Strip { unit, units: TILE_UNITS_MAX.min(row_units - unit) })
}

fn transpose_block(rows: &[u8], row_bytes: usize, planes: &mut [u8]) {
    let row_units = row_bytes.div_ceil(UNIT_ROW_BYTES);
    let groups = rows.len() / row_bytes / 8;
    let mut rest = planes;
    for strip in strips(row_units) {
        let group_bytes = strip.units * UNIT_BYTES;
        let (tile, after) = rest.split_at_mut(group_bytes * groups);
        rest = after;
        for (group, planes) in tile.chunks_exact_mut(group_bytes).enumerate() {
            let rows = &rows[8 * group * row_bytes..][..8 * row_bytes];
            for (column, planes) in planes.chunks_exact_mut(8).enumerate() {
                let column = strip.unit * UNIT_ROW_BYTES + column;
                if column >= row_bytes {
                    break;
                }
                let mut bytes = [0; 8];
                for (row, byte) in bytes.iter_mut().enumerate() {
                    *byte = rows[row * row_bytes + column];
                }
                let transposed = transpose8(u64::from_le_bytes(bytes));
                planes.copy_from_slice(&transposed.to_le_bytes());
            }
        }
    }
}
