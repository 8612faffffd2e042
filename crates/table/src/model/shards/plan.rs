//! Cutting a model's tables into shards of equal size.

use super::{MapError, SHARD_ALIGN_ROWS, SHARD_COUNT_MAX, Shard, ShardMap, ShardPart};
use super::{ShardedTable, count};
use crate::error::Error;
use crate::model::{Model, places};
use crate::version::Version;

/// How a model is cut into shards.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct ShardMapSpec {
    /// How many shards; none for as many as `memory_bytes` takes.
    pub shards: Option<usize>,
    /// Bytes of memory of the server of a shard; none for no bound.
    pub memory_bytes: Option<u64>,
    /// Versions that a server holds at once while it changes to the next one.
    pub versions: u64,
    /// Servers of each shard.
    pub replicas: usize,
}

impl Default for ShardMapSpec {
    fn default() -> Self {
        Self { shards: None, memory_bytes: None, versions: 2, replicas: 2 }
    }
}

/// What a server has besides its rows: program, connections, a pass's answers.
const BESIDES_BYTES: u64 = 256 << 20;
/// Ranges begin at multiples of a power of two of rows, of which a shard has at least so many.
const UNITS_A_SHARD: u64 = 64;
/// Longer units spare nothing more: an engine expands no larger subtree at once.
const UNIT_ROWS_MAX: u64 = 65_536;

impl ShardMap {
    /// Cuts the tables of `model` into shards, which have bytes in equal parts: the tables lie one
    /// after the other, the largest first, and are cut where a shard is full.
    ///
    /// Each table is opened, and a table with changed rows checked, so that a shard need not do it.
    ///
    /// # Errors
    /// [`Error::ShardMap`] for a spec that nothing fits; the errors of tables that do not open.
    pub fn plan(model: &Model, spec: &ShardMapSpec) -> Result<Self, Error> {
        let path = model.path().join(places::SHARDS);
        let wrong = |source| Error::ShardMap { path: path.clone(), source };
        let mut tables = Vec::with_capacity(model.manifest().tables().len());
        for index in 0..model.manifest().tables().len() {
            let table = model.table(index)?;
            // A range could not be checked alone.
            drop(table.reading_of(0..table.rows())?);
            if table.patch().is_some() {
                table.check_patch()?;
            }
            tables.push(ShardedTable {
                name: model.manifest().tables()[index].name.clone(),
                version: table.version(),
                patch: table.manifest().patch().map(|hash| Version::from(*hash)),
                rows: table.rows(),
                row_bytes: table.row_bytes(),
                prepared: None,
            });
        }
        let shards = cut(&tables, spec).map_err(wrong)?;
        Self::new(model.manifest(), None, tables, shards, spec.replicas).map_err(wrong)
    }
}

/// Bytes of a row in memory: an engine pads it.
fn stored_row_bytes(table: &ShardedTable) -> u64 {
    table.row_bytes.next_multiple_of(8) as u64
}

/// The same of rows, of which a last piece that is not whole is padded too.
fn stored_bytes(table: &ShardedTable, rows: u64) -> u64 {
    rows.next_multiple_of(SHARD_ALIGN_ROWS) * stored_row_bytes(table)
}

/// What each shard gets.
fn cut(tables: &[ShardedTable], spec: &ShardMapSpec) -> Result<Vec<Shard>, MapError> {
    let bytes: u64 = tables.iter().map(|table| stored_bytes(table, table.rows)).sum();
    let versions = spec.versions.max(1);
    let fits = |memory: u64| memory.saturating_sub(BESIDES_BYTES) / versions;
    let wanted = match (spec.shards, spec.memory_bytes) {
        (Some(shards), _) => shards,
        (None, None) => 1,
        (None, Some(memory_bytes)) => {
            let shards = bytes.div_ceil(fits(memory_bytes).max(1));
            if shards > SHARD_COUNT_MAX as u64 {
                return Err(MapError::Memory { memory_bytes, versions, bytes });
            }
            shards as usize
        }
    };
    count("the number of shards", wanted, SHARD_COUNT_MAX)?;
    let pieces: u64 = tables.iter().map(|table| table.rows.div_ceil(SHARD_ALIGN_ROWS)).sum();
    count("the number of shards", wanted, usize::try_from(pieces).unwrap_or(usize::MAX))?;
    let mut wanted = wanted;
    loop {
        let shards = cut_into(tables, bytes, wanted);
        let largest = shards.iter().map(|shard| shard.bytes).max().unwrap_or(0);
        match spec.memory_bytes {
            // Ranges are cut at whole units, so that the largest may be a little over.
            Some(memory_bytes) if largest > fits(memory_bytes) => {
                if spec.shards.is_some() || wanted >= SHARD_COUNT_MAX.min(pieces as usize) {
                    return Err(MapError::Memory { memory_bytes, versions, bytes });
                }
                wanted += 1;
            }
            _ => return Ok(shards),
        }
    }
}

fn cut_into(tables: &[ShardedTable], bytes: u64, wanted: usize) -> Vec<Shard> {
    let mut order: Vec<usize> = (0..tables.len()).collect();
    order.sort_by_key(|&table| std::cmp::Reverse(stored_bytes(&tables[table], tables[table].rows)));
    let mut shards = vec![Shard { bytes: 0, parts: Vec::new() }; wanted];
    // Bytes before the current table.
    let mut before = 0u64;
    for index in order {
        let table = &tables[index];
        let all = stored_bytes(table, table.rows);
        let share = (bytes / wanted as u64 / stored_row_bytes(table)).max(1);
        let unit = (share / UNITS_A_SHARD).clamp(SHARD_ALIGN_ROWS, UNIT_ROWS_MAX);
        let unit = 1 << unit.ilog2();
        // Where shard `number` begins, in rows of this table.
        let begin = |number: usize| {
            let at = (u128::from(bytes) * number as u128 / wanted as u128) as u64;
            let rows = at.saturating_sub(before) / stored_row_bytes(table);
            match at >= before + all {
                true => table.rows,
                // To the nearest unit: a sliver of a table is no part of its own.
                false => ((rows + unit / 2) / unit * unit).min(table.rows),
            }
        };
        for (number, shard) in shards.iter_mut().enumerate() {
            let (first, end) = (begin(number), begin(number + 1));
            let end = if number + 1 == wanted { table.rows } else { end };
            if first < end {
                shard.bytes += stored_bytes(table, end - first);
                shard.parts.push(ShardPart { table: index, first, end });
            }
        }
        before += all;
    }
    fill_empty(tables, &mut shards);
    shards.iter_mut().for_each(|shard| shard.parts.sort_by_key(|part| part.table));
    shards
}

/// Gives a shard that rounding left without rows half of the largest part.
fn fill_empty(tables: &[ShardedTable], shards: &mut [Shard]) {
    while let Some(empty) = shards.iter().position(|shard| shard.parts.is_empty()) {
        let parts = shards.iter().enumerate().flat_map(|(number, shard)| {
            shard.parts.iter().enumerate().map(move |(place, part)| (number, place, part))
        });
        let largest = parts
            .max_by_key(|(_, _, part)| stored_bytes(&tables[part.table], part.end - part.first));
        let Some((number, place, part)) = largest else { return };
        let half = part.first + (part.end - part.first) / 2;
        let middle = half.next_multiple_of(SHARD_ALIGN_ROWS);
        let (table, end) = (part.table, part.end);
        if middle >= end {
            return;
        }
        let moved = stored_bytes(&tables[table], end - middle);
        shards[number].parts[place].end = middle;
        shards[number].bytes -= moved;
        shards[empty].parts.push(ShardPart { table, first: middle, end });
        shards[empty].bytes += moved;
    }
}
