//! A table split over shards along its columns (record-level parallelism; Kim et al., "IVE",
//! section V): each selects rows and plays its own columns, and one joins what they won.
//!
//! Queries are expanded once where one process has all shards, and by each shard where not: the
//! expansion follows from the query and the keys alone.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use hushtable_table::model::whole_blocks;
use hushtable_table::prepared::{Prepared, Standing};
use hushtable_table::{BLOCK_ROWS, Error as TableError, RangeReading, RowsError, Table, Version};
use rayon::prelude::*;

use super::check::check_columns;
use super::engine::{Engine, Expanded, OnionSpec, Stages, Won};
use super::geometry::{BLOCK_COLUMNS, Block};
use super::keys::depth_in_words;
use super::payload::{Payload, zeros};
use super::prepare::{CopyRows, Encoder, check_content, file_spec, geometry};
use super::{Asked, Error, Geometry, OnionBackend, ParameterSet, Partial};
use crate::kernel::rowsel::{GROUP_COLUMNS, SLACK_BYTES};

/// Queries, expanded.
pub struct Expansions(Vec<Expanded>);

/// A shard as a server's half: it answers with its part of each answer, as [`Partial`] has it.
pub struct Shard(Engine);

impl Engine {
    /// Shard `index` of `count`, in memory, of the table whose rows `copy(first, bytes)` writes.
    ///
    /// # Errors
    /// As [`Engine::from_rows`]; [`Error::Shard`].
    pub fn shard_from_rows(
        geometry: Geometry,
        version: Version,
        (index, count): (u32, u32),
        spec: &OnionSpec,
        copy: CopyRows<'_>,
    ) -> Result<Self, Error> {
        let columns = geometry.shard_columns((index, count))?;
        let blocks = geometry.blocks_of(columns.clone());
        Ok(Self::from_blocks(geometry, version, blocks, spec, copy)?.covering(columns))
    }

    /// Shard `index` of `count`, made in memory of the rows that are its own. No others are read, and a copy of the
    /// table need not have them; a table without a tree of hashes is read whole, as nothing less of it can be checked.
    ///
    /// # Errors
    /// As [`Engine::from_table`]; [`Error::Shard`].
    pub fn shard_from_table(
        table: &Table,
        of: (u32, u32),
        set: ParameterSet,
        spec: &OnionSpec,
    ) -> Result<Self, Error> {
        let geometry = geometry(table, set)?;
        let columns = geometry.shard_columns(of)?;
        if columns.is_empty() {
            let blocks = Vec::new();
            let payload = Payload::Made(zeros(SLACK_BYTES)?);
            let engine = Self::new(geometry, table.version(), payload, blocks, spec)?;
            return Ok(engine.covering(columns));
        }
        let rows = whole_blocks(geometry.ids_of(columns.clone()), table.rows());
        let no_tree = |error: &TableError| {
            matches!(error, TableError::Rows { source: RowsError::NoTree, .. })
        };
        match table.reading_of(rows) {
            Ok(reading) => Self::shard_from_reading(table, reading, geometry, columns, spec),
            Err(error) if no_tree(&error) => {
                check_content(table)?;
                let checked = table.checked_rows().map_err(Error::Table)?;
                Self::shard_from_rows(geometry, table.version(), of, spec, &|first, rows| {
                    checked.copy_rows(first, rows).map_err(Error::Table)
                })
            }
            Err(error) => Err(Error::Table(error)),
        }
    }

    /// Some columns, made in memory of the rows of a reading, which has all of theirs: a block's rows at a time, so
    /// that little is there twice, and that what is encoded is what was hashed.
    fn shard_from_reading(
        table: &Table,
        reading: RangeReading<'_>,
        geometry: Geometry,
        columns: Range<u64>,
        spec: &OnionSpec,
    ) -> Result<Self, Error> {
        if !spec.is_patch_checked {
            table.check_patch().map_err(Error::Table)?;
        }
        let mut blocks = geometry.blocks_of(columns.clone());
        let mut end = 0;
        for block in &mut blocks {
            block.offset = end;
            end += block.bytes;
        }
        let mut payload = zeros(end + SLACK_BYTES)?;
        let encoder = Encoder::new(&geometry, table.version());
        let row_bytes = table.row_bytes();
        let mut encode = || {
            let mut rows = Vec::new();
            for first in columns.clone().step_by(BLOCK_COLUMNS) {
                let end = (first + BLOCK_COLUMNS as u64).min(columns.end);
                let ids = whole_blocks(geometry.ids_of(first..end), table.rows());
                rows.resize((ids.end - ids.start) as usize * row_bytes, 0);
                let stretch = BLOCK_ROWS * row_bytes;
                rows.par_chunks_mut(stretch).enumerate().try_for_each(|(block, rows)| {
                    reading.copy_rows(ids.start + (block * BLOCK_ROWS) as u64, rows)
                })?;
                if let Some(patch) = table.patch() {
                    let place = patch.ids().partition_point(|&id| id < ids.start);
                    for (id, row) in patch.iter().skip(place).take_while(|(id, _)| *id < ids.end) {
                        let at = (id - ids.start) as usize * row_bytes;
                        rows[at..at + row_bytes].copy_from_slice(row);
                    }
                }
                let own: Vec<_> = blocks.iter().filter(|it| it.first == first).copied().collect();
                encoder.encode(
                    &own,
                    &|first, out| {
                        let at = (first - ids.start) as usize * row_bytes;
                        out.copy_from_slice(&rows[at..at + out.len()]);
                        Ok(())
                    },
                    &mut payload,
                )?;
            }
            Ok::<_, Error>(())
        };
        match &spec.shared {
            Some(threads) => threads.run(encode)?,
            None => encode()?,
        }
        reading.finish().map_err(Error::Table)?;
        let engine = Self::new(geometry, table.version(), Payload::Made(payload), blocks, spec)?;
        Ok(engine.covering(columns))
    }

    /// Shard `index` of `count` of the file at `path`, from which its part is answered, or of which its part is copied
    /// to memory where `spec.load` says so. Only that part is read and checked: a copy of the file may have holes
    /// elsewhere. A table so small that its shards end within the file's blocks is made in memory.
    ///
    /// # Errors
    /// As [`Engine::open`]; [`Error::Shard`].
    pub fn open_shard(
        path: &Path,
        table: &Table,
        of: (u32, u32),
        set: ParameterSet,
        spec: &OnionSpec,
    ) -> Result<Self, Error> {
        let geometry = geometry(table, set)?;
        if !geometry.is_large(of.1) {
            return Self::shard_from_table(table, of, set, spec);
        }
        let columns = geometry.shard_columns(of)?;
        let prepared = Prepared::open(path, &file_spec(table, &geometry))?;
        let hashes = prepared.block_hashes().to_vec();
        let (blocks, payload) = (geometry.blocks(), Payload::File(prepared));
        let shard = Self::new(geometry, table.version(), payload, blocks, spec)?.covering(columns);
        let (geometry, columns) = (shard.geometry(), shard.columns());
        let check = || check_columns(path, geometry, &columns, shard.payload().bytes(), &hashes);
        shard.install(check)?;
        match shard.confirm()? {
            Standing::Kept | Standing::Restored => {}
        }
        if spec.load { shard.in_memory() } else { Ok(shard) }
    }

    /// The same engine with a copy of what it answers from in memory.
    fn in_memory(mut self) -> Result<Self, Error> {
        let bytes = self.blocks.iter().map(|block| block.bytes).sum::<usize>();
        let mut copy = zeros(bytes + SLACK_BYTES)?;
        let mut end = 0;
        for block in &mut self.blocks {
            let from = block.offset..block.offset + block.bytes;
            copy[end..end + block.bytes].copy_from_slice(&self.payload.bytes()[from]);
            block.offset = end;
            end += block.bytes;
        }
        // What was copied was still what was checked.
        let _: Standing = self.confirm()?;
        self.payload = Payload::Made(copy);
        Ok(self)
    }

    /// What joins shards' answers and has no row of the table itself: a front's.
    ///
    /// # Errors
    /// [`Error::Threads`], [`Error::Memory`].
    pub fn without_rows(
        geometry: Geometry,
        version: Version,
        spec: &OnionSpec,
    ) -> Result<Self, Error> {
        let payload = Payload::Made(zeros(SLACK_BYTES)?);
        Ok(Self::new(geometry, version, payload, Vec::new(), spec)?.covering(0..0))
    }

    /// Expands queries for any shard of the table.
    pub fn expansions(&self, queries: &[Asked]) -> Expansions {
        Expansions(self.install(|| self.expand(queries)))
    }

    /// This shard's part of the answers.
    ///
    /// # Errors
    /// [`Error::Prepared`] where the file that is answered from was written to or cut short.
    pub fn partial(&self, expansions: &Expansions) -> Result<Partial, Error> {
        let won = self
            .confirmed(|| Ok(self.install(|| self.play(&expansions.0, &mut Stages::default()))))?;
        let (geometry, version) = (self.geometry().clone(), self.version());
        Ok(Partial { geometry, version, columns: self.columns(), won })
    }

    /// Joins all shards' parts, in any order, and writes the responses.
    ///
    /// # Errors
    /// [`Error::ShardVersion`], [`Error::ShardColumns`] where they do not cover the table once,
    /// [`Error::ResponseBytes`] for a buffer of another size.
    pub fn combine(
        &self,
        expansions: &Expansions,
        mut partials: Vec<Partial>,
        out: &mut [u8],
    ) -> Result<(), Error> {
        let response_bytes = self.geometry().response_bytes();
        let expected = expansions.0.len() * response_bytes;
        if out.len() != expected {
            return Err(Error::ResponseBytes { expected, found: out.len() });
        }
        partials.retain(|partial| !partial.columns.is_empty());
        partials.sort_by_key(|partial| partial.columns.start);
        let all = self.geometry().columns();
        let mut next = 0;
        for partial in &partials {
            if partial.version != self.version() {
                let expected = self.version();
                return Err(Error::ShardVersion { expected, found: partial.version });
            }
            if partial.geometry != *self.geometry() {
                let words = |geometry: &Geometry| {
                    let depth = depth_in_words(geometry.set().id(), geometry.levels() as u8);
                    format!("{depth}, {} rows", geometry.shape().rows())
                };
                let (expected, found) = (words(self.geometry()), words(&partial.geometry));
                return Err(Error::PartialParameters { expected, found });
            }
            if partial.columns.start != next || partial.won.len() != expansions.0.len() {
                let found = Some(partial.columns.clone());
                return Err(Error::ShardColumns { expected: next..all, found });
            }
            next = partial.columns.end;
        }
        if next != all {
            return Err(Error::ShardColumns { expected: next..all, found: None });
        }
        let chunks = self.geometry().chunks();
        let mut parts: Vec<_> =
            partials.into_iter().map(|partial| partial.won.into_iter()).collect();
        let won: Vec<Vec<Vec<Won>>> = (0..expansions.0.len())
            .map(|_| {
                let mut won: Vec<Vec<Won>> = (0..chunks).map(|_| Vec::new()).collect();
                for part in parts.iter_mut().filter_map(Iterator::next) {
                    won.iter_mut().zip(part).for_each(|(all, own)| all.extend(own));
                }
                won
            })
            .collect();
        self.install(|| {
            out.par_chunks_exact_mut(response_bytes)
                .zip(&expansions.0)
                .zip(won)
                .for_each(|((out, expanded), won)| self.respond(expanded, won, out));
        });
        Ok(())
    }
}

impl Shard {
    /// A shard's engine as what a scheduler runs.
    pub fn new(engine: Engine) -> Self {
        Self(engine)
    }

    /// The columns that it answers for.
    pub fn columns(&self) -> Range<u64> {
        self.0.columns()
    }

    /// Ids of the rows that lie in them.
    pub fn ids(&self) -> Range<u64> {
        self.0.geometry().ids_of(self.0.columns())
    }

    /// How long one pass over its columns takes: [`Engine::scan`].
    pub fn scan(&self) -> Duration {
        self.0.scan()
    }

    /// Whole responses, as if all rows of other shards were zeros: what a shard is checked with.
    ///
    /// # Errors
    /// As [`Engine::partial`] and [`Engine::combine`].
    pub fn answer_alone(&self, queries: &[Asked], responses: &mut [u8]) -> Result<(), Error> {
        let (geometry, version) = (self.0.geometry(), self.version());
        let expansions = self.0.expansions(queries);
        let own = self.0.partial(&expansions)?;
        let Range { start, end } = own.columns();
        let zeros = |columns| Partial::zeros(geometry, version, columns, queries.len());
        let parts = vec![zeros(0..start), own, zeros(end..geometry.columns())];
        self.0.combine(&expansions, parts, responses)
    }
}

impl OnionBackend for Shard {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn version(&self) -> Version {
        self.0.version()
    }

    fn answer_bytes(&self) -> usize {
        self.0.geometry().partial_bytes(&self.0.columns())
    }

    fn answer(&self, queries: &[Asked], parts: &mut [u8]) -> Result<(), Error> {
        let (expected, found) = (queries.len() * self.answer_bytes(), parts.len());
        if expected != found {
            return Err(Error::ResponseBytes { expected, found });
        }
        let partial = self.0.partial(&self.0.expansions(queries))?;
        parts.copy_from_slice(&partial.to_bytes());
        self.0.take_back(partial.won);
        Ok(())
    }

    fn check(&self) -> Result<(), Error> {
        self.0.check()
    }

    fn batch_queries_best(&self) -> usize {
        self.0.batch_queries_best()
    }

    fn description(&self) -> String {
        let Range { start, end } = self.0.columns();
        let all = self.0.geometry().columns();
        format!("{}, columns {start} to {end} of {all}", self.0.description())
    }
}

impl Geometry {
    /// The blocks of some columns, as a shard in memory keeps them.
    pub(crate) fn blocks_of(&self, columns: Range<u64>) -> Vec<Block> {
        let mut blocks = Vec::new();
        for chunk in 0..self.chunks() {
            for first in columns.clone().step_by(BLOCK_COLUMNS) {
                let count = (columns.end - first).min(BLOCK_COLUMNS as u64) as usize;
                blocks.push(self.block(chunk, first, count));
            }
        }
        blocks
    }

    /// Whether shards of a table are cut between blocks; those of small tables are between groups of columns, as one
    /// shard with a block more than another would have to be waited for too long.
    pub(super) fn is_large(&self, count: u32) -> bool {
        self.columns() >= u64::from(count) * (SHARD_BLOCKS_LEAST * BLOCK_COLUMNS) as u64
    }

    /// Bytes of some columns in the form in which queries multiply them.
    pub fn prepared_bytes_of(&self, columns: Range<u64>) -> u64 {
        self.blocks_of(columns).iter().map(|block| block.bytes as u64).sum()
    }

    /// The columns of shard `index` of `count`; the last shards of a very small table have none.
    ///
    /// # Errors
    /// [`Error::Shard`].
    pub fn shard_columns(&self, (index, count): (u32, u32)) -> Result<Range<u64>, Error> {
        if index >= count {
            return Err(Error::Shard { index, count });
        }
        let step = if self.is_large(count) { BLOCK_COLUMNS } else { GROUP_COLUMNS } as u64;
        let steps = self.columns().div_ceil(step);
        let cut = |index: u32| {
            let steps = u128::from(steps) * u128::from(index) / u128::from(count);
            (steps as u64 * step).min(self.columns())
        };
        Ok(cut(index)..cut(index + 1))
    }

    /// Ids of the rows that lie in some columns.
    pub(crate) fn ids_of(&self, columns: Range<u64>) -> Range<u64> {
        let of_column = (self.rows() * self.rows_per_item()) as u64;
        let all = self.shape().rows();
        (columns.start * of_column).min(all)..(columns.end * of_column).min(all)
    }
}

/// Blocks of a shard, on average, from which on it is cut between them.
const SHARD_BLOCKS_LEAST: usize = 2;
