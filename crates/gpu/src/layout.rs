//! The table as kernels read it: fragment order.
//!
//! One stored form serves every output group: the table's own bytes, padded with zeros, in the order
//! in which a warp's lanes need them for `multiply_tile` (`kernels/platform.cuh`), so that shares
//! come from the generator's registers and table words from one 8-byte load, with no shuffle between.
//! `kernels/layout.cuh` says what is where.

use std::num::NonZero;
use std::sync::Mutex;
use std::thread;

use hushtable_pir::TableShape;

use crate::Error;

/// Rows of a leaf of the table, equal to the rows of a leaf of bytes.
pub(crate) const LEAF_ROWS: u64 = 64;
const TILE_COLUMNS: usize = 8;
const TILE_BYTES: usize = 256;
/// Eight rows of a column, one after the other.
const OCTET_ROWS: usize = 8;
/// Most levels that a lane walks by itself: more would leave few blocks and large stacks.
const HEIGHT_MAX: u32 = 6;
/// Fewest superblocks of a table that is large enough: padding is then an eighth at most.
const BLOCKS_LEAST: u64 = 8;

/// Writes the rows from one on that fill the bytes.
pub(crate) type CopyRows<'a> = dyn Fn(u64, &mut [u8]) -> Result<(), Error> + Sync + 'a;

/// Where every byte of a table of some shape is.
///
/// A superblock is 4 S table leaves of 64 rows, S = 2^height, and stored in one piece: strips of up to
/// 32 tiles of 8 columns, each of S steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    shape: TableShape,
    height: u32,
    blocks: u32,
    strips: u32,
    tiles: u32,
}

impl Layout {
    /// The layout of tables of `shape` in strips of at most `tiles_max` tiles.
    pub(crate) fn new(shape: TableShape, tiles_max: u32) -> Self {
        let leaves = shape.rows().div_ceil(LEAF_ROWS);
        let fair = leaves / (4 * BLOCKS_LEAST);
        let height = fair.checked_ilog2().unwrap_or(0).min(HEIGHT_MAX);
        let tiles = shape.row_bytes().div_ceil(TILE_COLUMNS) as u32;
        let strips = tiles.div_ceil(tiles_max);
        let blocks = leaves.div_ceil(4 << height) as u32;
        Self { shape, height, blocks, strips, tiles: tiles.div_ceil(strips) }
    }

    pub(crate) fn shape(&self) -> TableShape {
        self.shape
    }

    /// log2 of a superblock's steps.
    pub(crate) fn height(&self) -> u32 {
        self.height
    }

    /// Superblocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Strips of a row.
    pub(crate) fn strips(&self) -> u32 {
        self.strips
    }

    /// Tiles of a strip.
    pub(crate) fn tiles(&self) -> u32 {
        self.tiles
    }

    /// Byte columns of a row, padding included.
    pub(crate) fn columns(&self) -> usize {
        (self.strips * self.tiles) as usize * TILE_COLUMNS
    }

    /// Rows of a superblock.
    pub(crate) fn block_rows(&self) -> u64 {
        (4 * LEAF_ROWS) << self.height
    }

    /// Bytes of a step of a strip.
    pub(crate) fn step_bytes(&self) -> usize {
        self.tiles as usize * TILE_BYTES * OCTET_ROWS
    }

    /// Bytes of a superblock.
    pub(crate) fn block_bytes(&self) -> usize {
        (self.strips as usize * self.step_bytes()) << self.height
    }

    /// Bytes of all superblocks.
    pub(crate) fn table_bytes(&self) -> u64 {
        u64::from(self.blocks) * self.block_bytes() as u64
    }

    /// First row and number of rows of superblock `block`.
    fn rows_of(&self, block: u32) -> (u64, usize) {
        let first = u64::from(block) * self.block_rows();
        (first, (self.shape.rows() - first).min(self.block_rows()) as usize)
    }

    /// Where in a superblock the octet of rows is that begins with row `row`, in column 0.
    fn octet_at(&self, row: usize) -> (usize, usize) {
        let (leaf, octet) = (row / LEAF_ROWS as usize, row % LEAF_ROWS as usize / OCTET_ROWS);
        let (t, s) = (leaf >> self.height, leaf & ((1 << self.height) - 1));
        (s, octet * self.tiles as usize * TILE_BYTES + t * OCTET_ROWS)
    }

    /// Where an octet that begins at `at` of step `s` has its column `column`.
    fn column_at(&self, (s, at): (usize, usize), column: usize) -> usize {
        let (tile, lane) = (column / TILE_COLUMNS, column % TILE_COLUMNS);
        let (strip, tile) = (tile / self.tiles as usize, tile % self.tiles as usize);
        let step = (strip << self.height) + s;
        step * self.step_bytes() + at + tile * TILE_BYTES + lane * 4 * OCTET_ROWS
    }

    /// Packs a superblock's rows, which may be fewer than it has room for, into zeros.
    fn pack_block(&self, rows: &[u8], to: &mut [u8]) {
        let row_bytes = self.shape.row_bytes();
        for (octet, rows) in rows.chunks(OCTET_ROWS * row_bytes).enumerate() {
            let place = self.octet_at(octet * OCTET_ROWS);
            for column in 0..row_bytes {
                let at = self.column_at(place, column);
                let to = &mut to[at..at + OCTET_ROWS];
                for (to, byte) in to.iter_mut().zip(rows[column..].iter().step_by(row_bytes)) {
                    *to = *byte;
                }
            }
        }
    }

    /// Packs superblocks from `first` on, as many as `to` has room for, on all cores.
    /// `copy(row, bytes)` writes the rows from `row` on that fill `bytes`.
    pub(crate) fn pack(&self, first: u32, to: &mut [u8], copy: &CopyRows<'_>) -> Result<(), Error> {
        let blocks = Mutex::new(to.chunks_exact_mut(self.block_bytes()).zip(first..));
        let failed = Mutex::new(Ok(()));
        let work = || {
            let mut rows = Vec::new();
            // One that panics while it holds the lock ends the scope by its panic anyway.
            while let Some((to, block)) = blocks.lock().ok().and_then(|mut blocks| blocks.next()) {
                let (first, count) = self.rows_of(block);
                rows.resize(count * self.shape.row_bytes(), 0);
                if let Err(error) = copy(first, &mut rows) {
                    if let Ok(mut failed) = failed.lock() {
                        *failed = Err(error);
                    }
                    return;
                }
                to.fill(0);
                self.pack_block(&rows, to);
            }
        };
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 1..cores {
                scope.spawn(work);
            }
            work();
        });
        failed.into_inner().unwrap_or(Ok(()))
    }

    /// The bytes of row `row` in packed superblocks.
    #[cfg(test)]
    fn unpack_row(&self, packed: &[u8], row: u64) -> Vec<u8> {
        let (block, row) = ((row / self.block_rows()) as usize, (row % self.block_rows()) as usize);
        let place = self.octet_at(row / OCTET_ROWS * OCTET_ROWS);
        let block = &packed[block * self.block_bytes()..][..self.block_bytes()];
        let columns = 0..self.shape.row_bytes();
        columns.map(|column| block[self.column_at(place, column) + row % OCTET_ROWS]).collect()
    }
}

/// Fewest superblocks of a part: 512 rows at least.
pub(crate) fn least_part_blocks(layout: &Layout) -> u32 {
    if layout.block_rows() < 512 { 2 } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha12Rng;

    fn packed(rows: u64, row_bytes: usize, tiles_max: u32) -> (Layout, Vec<u8>, Vec<u8>) {
        let shape = TableShape::new(rows, row_bytes).expect("a shape");
        let layout = Layout::new(shape, tiles_max);
        let mut bytes = vec![0; rows as usize * row_bytes];
        ChaCha12Rng::seed_from_u64(rows).fill(&mut bytes[..]);
        let mut to = vec![0xaa; layout.table_bytes() as usize];
        let copy = |first: u64, to: &mut [u8]| {
            to.copy_from_slice(&bytes[first as usize * row_bytes..][..to.len()]);
            Ok(())
        };
        layout.pack(0, &mut to, &copy).expect("packed");
        (layout, bytes, to)
    }

    #[test]
    fn rows_come_back_and_the_rest_is_zero() {
        for (rows, row_bytes, tiles_max) in [
            (1, 1, 32),
            (65, 3, 32),
            (257, 8, 32),
            (1000, 100, 5),
            (4097, 600, 32),
            (70_000, 9, 32),
        ] {
            let (layout, bytes, packed) = packed(rows, row_bytes, tiles_max);
            for row in 0..rows {
                let expected = &bytes[row as usize * row_bytes..][..row_bytes];
                assert_eq!(layout.unpack_row(&packed, row), expected, "{rows} {row_bytes} {row}");
            }
            let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
            assert_eq!(sum(&packed), sum(&bytes), "{rows} {row_bytes}");
        }
    }

    #[test]
    fn a_byte_is_where_the_kernels_look_for_it() {
        let (layout, bytes, packed) = packed(70_000, 300, 32);
        assert_eq!((layout.height(), layout.strips(), layout.tiles()), (5, 2, 19));
        let (height, tiles) = (layout.height() as usize, layout.tiles() as usize);
        for (row, column) in [(0, 0), (77, 8), (69_999, 299), (12_345, 155), (40_000, 17)] {
            // As the head of layout.cuh has it.
            let (leaf, w, b) = (row / 64, row % 64 / 4, row % 4);
            let (j, half) = (w / 2, w % 2);
            let (block, l) = (leaf >> height >> 2, leaf & ((4 << height) - 1));
            let (t, s) = (l >> height, l & ((1 << height) - 1));
            let (strip, tile, n) = (column / 8 / tiles, column / 8 % tiles, column % 8);
            let step = ((block * layout.strips() as usize + strip) << height) + s;
            let at = ((step * 8 + j) * tiles + tile) * 256 + (4 * n + t) * 8 + half * 4 + b;
            assert_eq!(packed[at], bytes[row * 300 + column], "{row} {column}");
        }
    }

    #[test]
    fn large_tables_have_large_superblocks_and_little_padding() {
        let layout =
            |rows, row_bytes| Layout::new(TableShape::new(rows, row_bytes).expect("ok"), 32);
        let large = layout(1 << 20, 256);
        assert_eq!((large.height(), large.blocks(), large.tiles()), (6, 64, 32));
        assert_eq!((large.step_bytes(), large.table_bytes()), (64 << 10, 256 << 20));
        assert_eq!(layout(1 << 14, 64).blocks(), 8);
        assert_eq!(layout(5, 1).table_bytes(), 2048);
        for rows in [3000, 20_000, 100_000, 1_000_001] {
            let layout = layout(rows, 8);
            assert!(layout.table_bytes() * 8 <= rows * 8 * 9 + 8 * 8 * 256, "{rows}");
        }
    }

    #[test]
    fn an_error_of_the_rows_is_the_packs() {
        let layout = Layout::new(TableShape::new(1000, 4).expect("a shape"), 32);
        let mut to = vec![0; layout.table_bytes() as usize];
        let fail = |_: u64, _: &mut [u8]| Err(Error::Geometry { reason: "no".to_owned() });
        assert!(layout.pack(0, &mut to, &fail).is_err());
    }
}
