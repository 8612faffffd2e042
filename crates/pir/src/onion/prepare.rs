//! A table's rows as evaluations, in the order in which RowSel reads them.

mod ranges;

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use hushtable_rlwe::ring::{Coefficients, Poly};
use hushtable_table::prepared::{Prepared, PreparedSpec, PreparedWriter, Standing};
use hushtable_table::{BLOCK_ROWS, CheckedRows, Error as TableError, Table, Version};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::check::check_blocks;
use super::engine::{Engine, OnionSpec};
use super::geometry::Block;
use super::payload::{Payload, zeros};
use super::pool::Pool;
use super::{Error, Geometry, Mask, OnionBackend, ParameterSet};
use crate::TableShape;
use crate::kernel::rowsel::{GROUP_COLUMNS, LANES, Packing, SLACK_BYTES};

pub use ranges::{Cut, Preparation, prepare_range, prepare_ranges};

/// The outcome of a preparation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Summary {
    /// The prepared file's own version.
    pub version: Version,
    /// Bytes of its payload.
    pub payload_bytes: u64,
    /// Units of work that an earlier run had done.
    pub resumed_units: u32,
    /// All units of work.
    pub units: u32,
}

/// Called with the table's bytes that are prepared and all of them, from several threads; `false`
/// stops, and the next run goes on from there.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// Writes the rows from the given id on to the given bytes.
pub type CopyRows<'a> = &'a (dyn Fn(u64, &mut [u8]) -> Result<(), Error> + Sync);

/// Makes the prepared file of `table` at `path`, or goes on making it.
///
/// # Errors
/// [`Error::Prepared`], [`Error::Table`], [`Error::RowBytes`], [`Error::Stopped`].
pub fn prepare(
    table: &Table,
    path: &Path,
    set: ParameterSet,
    spec: &OnionSpec,
    progress: Progress<'_>,
) -> Result<Summary, Error> {
    let geometry = geometry(table, set)?;
    let writer = PreparedWriter::open(path, &file_spec(table, &geometry))?;
    let units: Vec<_> = (0..).zip(units(&geometry)).collect();
    let resumed_units = writer.done();
    let making =
        Making::new(&writer, &geometry, table.version(), geometry.shape().table_bytes(), progress);
    thread_pool(spec)?.install(|| {
        let missing = making.missing(&units)?;
        // All of it against its version first, and then each row where it is used.
        check_content(table)?;
        making.make(&missing, &table.checked_rows().map_err(Error::Table)?)
    })?;
    let prepared = writer.finish()?;
    Ok(Summary {
        version: prepared.version(),
        payload_bytes: prepared.payload().len() as u64,
        resumed_units,
        units: units.len() as u32,
    })
}

fn thread_pool(spec: &OnionSpec) -> Result<ThreadPool, Error> {
    let pool = ThreadPoolBuilder::new().num_threads(spec.threads).build();
    pool.map_err(|error| Error::Threads { message: error.to_string() })
}

/// What makes units of a prepared file and writes them, on the current pool's threads.
struct Making<'a> {
    writer: &'a PreparedWriter,
    geometry: &'a Geometry,
    mask: Mask,
    workspaces: Pool<Workspace>,
    progress: Progress<'a>,
    /// Bytes of the table that are prepared, of so many.
    done_bytes: AtomicU64,
    all_bytes: u64,
}

impl<'a> Making<'a> {
    fn new(
        writer: &'a PreparedWriter,
        geometry: &'a Geometry,
        version: Version,
        all_bytes: u64,
        progress: Progress<'a>,
    ) -> Self {
        let (mask, workspaces) = (Mask::new(version, geometry.set()), Pool::default());
        let done_bytes = AtomicU64::new(0);
        Self { writer, geometry, mask, workspaces, progress, done_bytes, all_bytes }
    }

    /// Those of the units that are not done, or were by an earlier run and are damaged since.
    fn missing(&self, units: &[(u32, Unit)]) -> Result<Vec<(u32, Unit)>, Error> {
        let is_missing = |&(index, unit): &(u32, Unit)| {
            let Some(hash) = self.writer.hash_of(index) else { return Ok(Some((index, unit))) };
            let mut workspace = self.workspaces.take(|| Workspace::new(self.geometry));
            workspace.resize(self.geometry, &unit);
            for (vector, bytes) in workspace.vectors_mut(&unit) {
                self.writer.read_at(unit.offset(vector), bytes)?;
            }
            match *blake3::hash(&workspace.out).as_bytes() == hash {
                true => self.report(&unit).map(|()| None),
                false => Ok(Some((index, unit))),
            }
        };
        units.par_iter().filter_map(|unit| is_missing(unit).transpose()).collect()
    }

    /// Makes the units, of which what is done stays done whatever happens.
    fn make(&self, units: &[(u32, Unit)], rows: &CheckedRows<'_>) -> Result<(), Error> {
        let outcome = units.par_iter().try_for_each_init(
            || self.workspaces.take(|| Workspace::new(self.geometry)),
            |workspace, (index, unit)| {
                unit.encode(self.geometry, &self.mask, workspace, &|first, out| {
                    rows.copy_rows(first, out).map_err(Error::Table)
                })?;
                for (vector, bytes) in workspace.vectors(unit) {
                    self.writer.write_at(unit.offset(vector), bytes)?;
                }
                self.writer.finish_block(*index, *blake3::hash(&workspace.out).as_bytes())?;
                self.report(unit)
            },
        );
        if outcome.is_err() {
            self.writer.sync()?;
        }
        outcome
    }

    fn report(&self, unit: &Unit) -> Result<(), Error> {
        let own = unit.table_bytes(self.geometry);
        let done = self.done_bytes.fetch_add(own, Ordering::Relaxed) + own;
        match (self.progress)(done, self.all_bytes) {
            true => Ok(()),
            false => Err(Error::Stopped),
        }
    }
}

impl Engine {
    /// Opens the file at `path`, which [`prepare`] made of this very table, and checks all of it.
    ///
    /// # Errors
    /// [`Error::Prepared`], which says what is wrong with the file: missing, of another version of
    /// the table, of other parameters, damaged.
    pub fn open(
        path: &Path,
        table: &Table,
        set: ParameterSet,
        spec: &OnionSpec,
    ) -> Result<Self, Error> {
        let geometry = geometry(table, set)?;
        let prepared = Prepared::open(path, &file_spec(table, &geometry))?;
        let hashes = prepared.block_hashes().to_vec();
        let payload = match spec.load {
            true => Payload::Memory(prepared.load()?),
            false => {
                prepared.advise_will_need();
                Payload::File(prepared)
            }
        };
        let blocks = geometry.blocks();
        let engine = Self::new(geometry, table.version(), payload, blocks, spec)?;
        // Where the bytes are answered from: what happened on their way is found too.
        let check = || check_blocks(path, engine.geometry(), engine.payload().bytes(), &hashes);
        engine.install(check)?;
        match engine.confirm()? {
            Standing::Kept | Standing::Restored => Ok(engine),
        }
    }

    /// Prepares `table` in memory.
    ///
    /// # Errors
    /// As [`prepare`], files apart.
    pub fn from_table(table: &Table, set: ParameterSet, spec: &OnionSpec) -> Result<Self, Error> {
        let geometry = geometry(table, set)?;
        check_content(table)?;
        let checked = table.checked_rows().map_err(Error::Table)?;
        Self::from_rows(geometry, table.version(), spec, &|first, rows| {
            checked.copy_rows(first, rows).map_err(Error::Table)
        })
    }

    /// Prepares in memory the table whose rows `copy(first, bytes)` writes.
    ///
    /// # Errors
    /// What `copy` fails with; [`Error::Threads`].
    pub fn from_rows(
        geometry: Geometry,
        version: Version,
        spec: &OnionSpec,
        copy: CopyRows<'_>,
    ) -> Result<Self, Error> {
        let blocks = geometry.blocks();
        Self::from_blocks(geometry, version, blocks, spec, copy)
    }

    /// Prepares some blocks of it.
    pub(crate) fn from_blocks(
        geometry: Geometry,
        version: Version,
        mut blocks: Vec<Block>,
        spec: &OnionSpec,
        copy: CopyRows<'_>,
    ) -> Result<Self, Error> {
        let mut end = 0;
        for block in &mut blocks {
            block.offset = end;
            end += block.bytes;
        }
        let mut payload = zeros(end + SLACK_BYTES)?;
        Encoder::new(&geometry, version).encode(&blocks, copy, &mut payload)?;
        Self::new(geometry, version, Payload::Made(payload), blocks, spec)
    }
}

/// What brings blocks into the form in which they are multiplied.
pub(super) struct Encoder<'a> {
    geometry: &'a Geometry,
    mask: Mask,
    workspaces: Pool<Workspace>,
}

impl<'a> Encoder<'a> {
    pub fn new(geometry: &'a Geometry, version: Version) -> Self {
        let mask = Mask::new(version, geometry.set());
        Self { geometry, mask, workspaces: Pool::default() }
    }

    /// Writes `blocks` of the table whose rows `copy(first, bytes)` writes to their offsets of
    /// `payload`, on the current pool's threads.
    pub fn encode(
        &self,
        blocks: &[Block],
        copy: CopyRows<'_>,
        payload: &mut [u8],
    ) -> Result<(), Error> {
        let units: Vec<Unit> = blocks.iter().flat_map(Unit::of).collect();
        for units in units.chunks(2 * rayon::current_num_threads()) {
            let encode = |unit: &Unit| {
                let mut workspace = self.workspaces.take(|| Workspace::new(self.geometry));
                unit.encode(self.geometry, &self.mask, &mut workspace, copy)?;
                Ok(workspace)
            };
            let done = units.par_iter().map(encode).collect::<Result<Vec<_>, Error>>()?;
            for (unit, workspace) in units.iter().zip(&done) {
                for (vector, bytes) in workspace.vectors(unit) {
                    let at = unit.offset(vector) as usize;
                    payload[at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
        }
        Ok(())
    }
}

/// Reads all rows and compares them with the table's version, on the current pool's threads.
pub(super) fn check_content(table: &Table) -> Result<(), Error> {
    let reading = table.reading().map_err(Error::Table)?;
    read_rows(table, 0..table.rows(), |first, out| reading.copy_rows(first, out))?;
    Ok(reading.finish()?)
}

/// Reads rows, from the first one of a block on, by `copy(first, bytes)`, on the current pool's threads.
fn read_rows(
    table: &Table,
    rows: Range<u64>,
    copy: impl Fn(u64, &mut [u8]) -> Result<(), TableError> + Sync,
) -> Result<(), Error> {
    let rows_at_once = (1 << 20) / table.row_bytes();
    let rows_at_once = rows_at_once.next_multiple_of(BLOCK_ROWS) as u64;
    let chunks = (rows.end - rows.start).div_ceil(rows_at_once);
    let read = |out: &mut Vec<u8>, chunk| {
        let first = rows.start + chunk * rows_at_once;
        let count = rows_at_once.min(rows.end - first) as usize;
        out.resize(count * table.row_bytes(), 0);
        copy(first, out)
    };
    Ok((0..chunks).into_par_iter().try_for_each_init(Vec::new, read)?)
}

pub(super) fn geometry(table: &Table, set: ParameterSet) -> Result<Geometry, Error> {
    let row_bytes = table.row_bytes();
    let shape = TableShape::new(table.rows(), row_bytes);
    Geometry::new(set, shape.map_err(|_| Error::RowBytes { row_bytes })?)
}

pub(super) fn file_spec(table: &Table, geometry: &Geometry) -> PreparedSpec {
    PreparedSpec {
        kind: format!("onion/{}", geometry.set().name()),
        format: FORMAT,
        table_version: table.version(),
        meta: geometry.to_bytes(),
        payload_bytes: geometry.prepared_bytes(),
        blocks: units(geometry).len() as u32,
    }
}

fn units(geometry: &Geometry) -> Vec<Unit> {
    geometry.blocks().iter().flat_map(Unit::of).collect()
}

/// A unit of work: one group of columns.
#[derive(Clone, Copy)]
struct Unit {
    block: Block,
    group: usize,
}

/// Room for one unit.
struct Workspace {
    rows: Vec<u8>,
    /// One plaintext, masked.
    plaintext: Vec<u8>,
    polys: Vec<Poly<Coefficients>>,
    /// Limb and vector, row, column: packed.
    out: Vec<u8>,
}

impl Workspace {
    fn new(geometry: &Geometry) -> Self {
        let ring = geometry.params().answer_ring();
        let polys = (0..TILE_ROWS * GROUP_COLUMNS).map(|_| ring.zero()).collect();
        let plaintext = vec![0; geometry.plaintext_bytes()];
        Self { rows: Vec::new(), plaintext, polys, out: Vec::new() }
    }

    /// Makes room for the unit's bytes, whatever is there.
    fn resize(&mut self, geometry: &Geometry, unit: &Unit) {
        let ring = geometry.params().answer_ring();
        let vectors = ring.limbs() * ring.degree() / LANES;
        self.out.resize(vectors * unit.block.group_bytes, 0);
    }

    /// The unit's bytes for each limb and vector, to be read.
    fn vectors_mut(&mut self, unit: &Unit) -> impl Iterator<Item = (usize, &mut [u8])> {
        self.out.chunks_exact_mut(unit.block.group_bytes).enumerate()
    }

    /// The unit's bytes for each limb and vector.
    fn vectors(&self, unit: &Unit) -> impl Iterator<Item = (usize, &[u8])> {
        self.out.chunks_exact(unit.block.group_bytes).enumerate()
    }
}

impl Unit {
    fn of(block: &Block) -> impl Iterator<Item = Self> + use<> {
        let block = *block;
        (0..block.groups).map(move |group| Self { block, group })
    }

    /// The columns that it holds; the last may not be there.
    fn columns(&self) -> Range<u64> {
        let first = self.block.first + (self.group * GROUP_COLUMNS) as u64;
        first..first + GROUP_COLUMNS as u64
    }

    /// Where in the payload its bytes for a limb's vector are.
    fn offset(&self, vector: usize) -> u64 {
        (self.block.offset + self.block.group_offset(vector, self.group)) as u64
    }

    /// Bytes of the table that this unit holds, for progress.
    fn table_bytes(&self, geometry: &Geometry) -> u64 {
        let ids = geometry.ids_of(self.columns());
        (ids.end - ids.start) * geometry.shape().row_bytes() as u64 / geometry.chunks() as u64
    }

    /// Reads the unit's rows by `copy(first, bytes)` and leaves its bytes in the workspace.
    fn encode(
        &self,
        geometry: &Geometry,
        mask: &Mask,
        workspace: &mut Workspace,
        copy: CopyRows<'_>,
    ) -> Result<(), Error> {
        let ring = geometry.params().answer_ring();
        let packing = Packing::of(ring.modulus(0));
        let vectors = ring.limbs() * ring.degree() / LANES;
        let vector_bytes = packing.vector_bytes();
        // Every byte is written below: what an earlier unit left need not be cleared.
        workspace.resize(geometry, self);
        let matrix_rows = geometry.rows();
        for first in (0..matrix_rows).step_by(TILE_ROWS) {
            let tile = TILE_ROWS.min(matrix_rows - first);
            for column in 0..GROUP_COLUMNS {
                let at = self.block.first + (self.group * GROUP_COLUMNS + column) as u64;
                let item = at * matrix_rows as u64 + first as u64;
                self.read(geometry, item, tile, &mut workspace.rows, copy)?;
                let item_bytes = workspace.rows.len() / tile;
                let items = workspace.rows.chunks_exact(item_bytes.max(1));
                for (row, (item, bytes)) in (item..).zip(items).enumerate() {
                    self.mask(geometry, mask, item, bytes, &mut workspace.plaintext);
                    let poly = &mut workspace.polys[row * GROUP_COLUMNS + column];
                    transform(geometry, &workspace.plaintext, poly);
                }
            }
            for vector in 0..vectors {
                let start = vector * self.block.group_bytes;
                let out = &mut workspace.out[start + first * GROUP_COLUMNS * vector_bytes..];
                let polys = &workspace.polys[..tile * GROUP_COLUMNS];
                for (out, poly) in out.chunks_exact_mut(vector_bytes).zip(polys) {
                    let lanes = &poly.values()[vector * LANES..(vector + 1) * LANES];
                    packing.pack(lanes.try_into().expect("eight lanes"), out);
                }
            }
        }
        Ok(())
    }

    /// The bytes of `count` items from `item` on, zeros past the table's end.
    fn read(
        &self,
        geometry: &Geometry,
        item: u64,
        count: usize,
        rows: &mut Vec<u8>,
        copy: CopyRows<'_>,
    ) -> Result<(), Error> {
        let (row_bytes, per_item) = (geometry.shape().row_bytes(), geometry.rows_per_item());
        let first = item * per_item as u64;
        let present = geometry.shape().rows().saturating_sub(first);
        let present = present.min((count * per_item) as u64) as usize;
        rows.clear();
        rows.resize(count * per_item * row_bytes, 0);
        if present > 0 {
            copy(first, &mut rows[..present * row_bytes])?;
        }
        Ok(())
    }

    /// The unit's chunk of an item, filled up with zeros, under its mask.
    fn mask(
        &self,
        geometry: &Geometry,
        mask: &Mask,
        item: u64,
        bytes: &[u8],
        plaintext: &mut [u8],
    ) {
        let chunk = bytes.chunks(plaintext.len()).nth(self.block.chunk).unwrap_or_default();
        plaintext[..chunk.len()].copy_from_slice(chunk);
        plaintext[chunk.len()..].fill(0);
        mask.apply(geometry.plaintext_number(item, self.block.chunk), plaintext);
    }
}

/// A plaintext as evaluations: little-endian numbers of `plain_bits` bits, centred.
fn transform(geometry: &Geometry, plaintext: &[u8], poly: &mut Poly<Coefficients>) {
    let params = geometry.params();
    let ring = params.answer_ring();
    let bits = params.plain_bits();
    for (limb, modulus) in ring.moduli().enumerate() {
        let values = poly.limb_mut(limb);
        let centre = |number: i64| {
            let centred = number - ((number >> (bits - 1)) << bits);
            match bits < modulus.bits() {
                true => modulus.from_signed(centred),
                false => modulus.from_signed_vartime(centred),
            }
        };
        let numbers = plaintext.chunks_exact(bits as usize / 8);
        for (value, number) in values.iter_mut().zip(numbers) {
            *value = centre(match *number {
                [a, b] => u16::from_le_bytes([a, b]).into(),
                [a, b, c, d] => u32::from_le_bytes([a, b, c, d]).into(),
                _ => little_endian(number),
            });
        }
        ring.kernel().forward(ring.table(limb), values);
    }
}

fn little_endian(bytes: &[u8]) -> i64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | i64::from(byte))
}

/// Rows whose transforms are kept until they are packed side by side.
const TILE_ROWS: usize = 8;
/// The payload's own format: 1 had no mask over plaintexts.
const FORMAT: u32 = 2;
