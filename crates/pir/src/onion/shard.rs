//! A table split over shards along its columns (record-level parallelism; Kim et al., "IVE",
//! section V): each selects rows and plays its own columns, and one joins what they won.
//!
//! Queries are expanded once where one process has all shards, and by each shard where not: the
//! expansion follows from the query and the keys alone.

use std::ops::Range;
use std::path::Path;

use hushtable_table::{Table, Version};

use super::engine::{Engine, Expanded, OnionSpec, Stages, Won};
use super::geometry::{BLOCK_COLUMNS, Block};
use super::prepare::CopyRows;
use super::{Asked, Error, Geometry, OnionBackend, ParameterSet};
use crate::kernel::rowsel::GROUP_COLUMNS;

/// Queries, expanded.
pub struct Expansions(Vec<Expanded>);

/// One shard's winners for a batch of queries.
pub struct Partial {
    version: Version,
    columns: Range<u64>,
    /// For each query, each chunk's subtrees.
    won: Vec<Vec<Vec<Won>>>,
}

impl Partial {
    /// The columns that it covers.
    pub fn columns(&self) -> Range<u64> {
        self.columns.clone()
    }
}

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
        // Small tables are cut between groups of columns, large ones between blocks.
        let is_large = geometry.columns() >= u64::from(count) * BLOCK_COLUMNS as u64;
        let step = if is_large { BLOCK_COLUMNS } else { GROUP_COLUMNS };
        let columns = columns(&geometry, (index, count), step as u64)?;
        let blocks = geometry.blocks_of(columns.clone());
        Ok(Self::from_blocks(geometry, version, blocks, spec, copy)?.covering(columns))
    }

    /// Shard `index` of `count` of the file at `path`, of which only the shard's part is read.
    ///
    /// # Errors
    /// As [`Engine::open`]; [`Error::Shard`].
    pub fn open_shard(
        path: &Path,
        table: &Table,
        (index, count): (u32, u32),
        set: ParameterSet,
        spec: &OnionSpec,
    ) -> Result<Self, Error> {
        let whole = Self::open(path, table, set, &OnionSpec { load: false, ..spec.clone() })?;
        let columns = columns(whole.geometry(), (index, count), BLOCK_COLUMNS as u64)?;
        Ok(whole.covering(columns))
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
        Ok(Partial { version: self.version(), columns: self.columns(), won })
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
        for (expanded, out) in expansions.0.iter().zip(out.chunks_exact_mut(response_bytes)) {
            let mut won: Vec<Vec<Won>> = (0..chunks).map(|_| Vec::new()).collect();
            for part in parts.iter_mut().filter_map(Iterator::next) {
                won.iter_mut().zip(part).for_each(|(all, own)| all.extend(own));
            }
            self.install(|| self.respond(expanded, won, out));
        }
        Ok(())
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
}

/// The columns of shard `index`, cut at multiples of `step`; the last shards may be empty.
fn columns(
    geometry: &Geometry,
    (index, count): (u32, u32),
    step: u64,
) -> Result<Range<u64>, Error> {
    if index >= count {
        return Err(Error::Shard { index, count });
    }
    let steps = geometry.columns().div_ceil(step);
    let cut = |index: u32| {
        let steps = u128::from(steps) * u128::from(index) / u128::from(count);
        (steps as u64 * step).min(geometry.columns())
    };
    Ok(cut(index)..cut(index + 1))
}
