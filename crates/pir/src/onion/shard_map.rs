//! The map of shards that hold columns: how many there are, and which bytes of a model each needs.

use std::ops::Range;

use hushtable_table::Table;
use hushtable_table::model::{
    FilePiece, MapError, MapScheme, Model, SHARD_COUNT_MAX, Shard, ShardMap, ShardMapSpec,
    ShardPart, ShardedTable, places,
};
use hushtable_table::prepared::{Prepared, PreparedError};
use hushtable_table::{Error as TableError, Version};

use super::check::check_columns;
use super::engine::BATCH_QUERIES;
use super::geometry::BLOCK_COLUMNS;
use super::prepare::{file_spec, geometry};
use super::{Error, Geometry, ParameterSet};
use crate::kernel::rowsel::{GROUP_COLUMNS, LANES, Packing};

/// What a server has whatever it serves: program, connections.
const BESIDES_BYTES: u64 = 256 << 20;
/// Clients' keys, as many as servers keep in memory by default.
const KEYS_BYTES: u64 = 1 << 30;

/// Cuts the columns of the tables of `model` into shards, each table into as many: which of its files a shard takes its
/// part of is looked up too, so that tables are prepared first, if at all.
///
/// The memory of a server has, besides the versions that it holds of its columns, the program, a GiB of clients'
/// keys, a pass's queries as they are expanded and the rows that are prepared at a time.
///
/// # Errors
/// [`Error::Table`] for a spec that nothing fits, and for tables that do not open; [`Error::Prepared`] for a prepared
/// file that is damaged, or of another version or parameters.
pub fn plan_shards(
    model: &Model,
    set: ParameterSet,
    spec: &ShardMapSpec,
) -> Result<ShardMap, Error> {
    let path = model.path().join(places::SHARDS_ONION);
    let wrong = |source| Error::Table(TableError::ShardMap { path: path.clone(), source });
    let manifest = model.manifest();
    let mut tables = Vec::with_capacity(manifest.tables().len());
    let mut geometries = Vec::with_capacity(manifest.tables().len());
    for index in 0..manifest.tables().len() {
        let table = model.table(index)?;
        // A range could not be checked alone.
        drop(table.reading_of(0..table.rows())?);
        if table.patch().is_some() {
            table.check_patch()?;
        }
        let geometry = geometry(&table, set)?;
        let path = model.prepared_path(index);
        let prepared = match Prepared::open(path, &file_spec(&table, &geometry)) {
            Ok(prepared) => Some(prepared.version()),
            Err(PreparedError::Missing { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        tables.push(ShardedTable {
            name: manifest.tables()[index].name.clone(),
            version: table.version(),
            patch: table.manifest().patch().map(|hash| Version::from(*hash)),
            rows: table.rows(),
            row_bytes: table.row_bytes(),
            prepared,
        });
        geometries.push(geometry);
    }
    let count = count(&geometries, spec).map_err(wrong)?;
    for (table, geometry) in tables.iter_mut().zip(&geometries) {
        // Of a file that is not cut between its blocks no shard has a part.
        table.prepared = table.prepared.filter(|_| geometry.is_large(count));
    }
    let shards = (0..count).map(|number| shard_of(&geometries, (number, count)));
    let shards = shards.collect::<Result<Vec<_>, Error>>()?;
    ShardMap::of_columns(manifest, set.name(), tables, shards, spec.replicas).map_err(wrong)
}

/// How many shards there are to be.
fn count(geometries: &[Geometry], spec: &ShardMapSpec) -> Result<u32, MapError> {
    let groups = |geometry: &Geometry| geometry.columns().div_ceil(GROUP_COLUMNS as u64);
    // Of the table with the most columns each shard has some.
    let most = geometries.iter().map(groups).max().unwrap_or(0).min(SHARD_COUNT_MAX as u64);
    let in_range = |found: usize| match (1..=most).contains(&(found as u64)) {
        true => Ok(found as u32),
        false => {
            let (what, most) = ("the number of shards", most as usize);
            Err(MapError::Count { what, least: 1, most, found })
        }
    };
    let Some(memory_bytes) = spec.memory_bytes else { return in_range(spec.shards.unwrap_or(1)) };
    let (versions, besides_bytes) = (spec.versions.max(1), besides_bytes(geometries));
    let fits = memory_bytes.saturating_sub(besides_bytes) / versions;
    if fits == 0 {
        return Err(MapError::Besides { memory_bytes, besides_bytes });
    }
    let bytes: u64 = geometries.iter().map(Geometry::prepared_bytes).sum();
    let refuse = || MapError::Memory { memory_bytes, versions, bytes };
    let largest = |count: u32| {
        let shards = (0..count).map(|number| bytes_of(geometries, (number, count)));
        shards.max().unwrap_or(0)
    };
    if let Some(shards) = spec.shards {
        let count = in_range(shards)?;
        return if largest(count) > fits { Err(refuse()) } else { Ok(count) };
    }
    let least = bytes.div_ceil(fits).max(1);
    // Columns are cut at whole blocks or groups, so that the largest may be a little over.
    (least..=most)
        .map(|count| count as u32)
        .find(|&count| largest(count) <= fits)
        .ok_or_else(refuse)
}

/// Bytes in memory of what one of the shards has of all tables.
fn bytes_of(geometries: &[Geometry], of: (u32, u32)) -> u64 {
    let of_table = |geometry: &Geometry| {
        geometry.shard_columns(of).map_or(0, |columns| geometry.prepared_bytes_of(columns))
    };
    geometries.iter().map(of_table).sum()
}

/// Bytes of a shard's server besides its columns.
fn besides_bytes(geometries: &[Geometry]) -> u64 {
    let expanded = |geometry: &Geometry| {
        let ring = geometry.params().answer_ring();
        let words = Packing::of(ring.modulus(0)).query_words();
        ring.limbs() * ring.degree() / LANES * geometry.rows() * words * 8
    };
    let rows = |geometry: &Geometry| {
        let items = BLOCK_COLUMNS * geometry.rows();
        items * geometry.rows_per_item() * geometry.shape().row_bytes()
    };
    let pass = geometries.iter().map(expanded).max().unwrap_or(0) * BATCH_QUERIES;
    let rows = geometries.iter().map(rows).max().unwrap_or(0);
    BESIDES_BYTES + KEYS_BYTES + (pass + rows) as u64
}

/// What one of the shards holds.
fn shard_of(geometries: &[Geometry], of: (u32, u32)) -> Result<Shard, Error> {
    let mut parts = Vec::new();
    for (table, geometry) in geometries.iter().enumerate() {
        let Range { start: first, end } = geometry.ids_of(geometry.shard_columns(of)?);
        if first < end {
            parts.push(ShardPart { table, first, end });
        }
    }
    Ok(Shard { bytes: bytes_of(geometries, of), parts })
}

/// Checks that a map has just the rows that the columns of `set`'s geometries make, of which a later hushtable might
/// choose others.
///
/// # Errors
/// [`MapError::Scheme`], [`MapError::Parameters`], [`MapError::Columns`].
pub fn check_map(map: &ShardMap, model: &Model, set: ParameterSet) -> Result<(), Error> {
    let path = model.path().join(places::SHARDS_ONION);
    let wrong = |source| Error::Table(TableError::ShardMap { path: path.clone(), source });
    map.check_scheme(MapScheme::Onion).map_err(wrong)?;
    let parameters = map.parameters().unwrap_or_default();
    if parameters != set.name() {
        let (expected, found) = (parameters.to_owned(), set.name().to_owned());
        return Err(wrong(MapError::Parameters { expected, found }));
    }
    let count = map.shards().len() as u32;
    for index in 0..map.tables().len() {
        let geometry = geometry(&model.table(index)?, set)?;
        for number in 0..count {
            let (shard, table) = (number as usize, map.tables()[index].name.clone());
            let expected = geometry.ids_of(geometry.shard_columns((number, count))?);
            let found = map.rows_of(shard, index).unwrap_or(expected.start..expected.start);
            if found != expected {
                return Err(wrong(MapError::Columns { shard, table, expected, found }));
            }
        }
    }
    Ok(())
}

/// The parameter set that a map's columns follow from.
fn set_of(map: &ShardMap, model: &Model) -> Result<ParameterSet, Error> {
    let name = map.parameters().unwrap_or_default();
    #[cfg(feature = "test-sets")]
    if name == ParameterSet::N256Test.name() {
        return Ok(ParameterSet::N256Test);
    }
    ParameterSet::from_name(name).ok_or_else(|| {
        let path = model.path().join(places::SHARDS_ONION);
        let (expected, found) = (name.to_owned(), ParameterSet::N4096128.name().to_owned());
        Error::Table(TableError::ShardMap {
            path,
            source: MapError::Parameters { expected, found },
        })
    })
}

/// The bytes of a model's files that shard `shard` needs, or with none, a front, which has no rows: as
/// [`ShardMap::pieces`], and of prepared files the blocks of the shard's columns, with the hashes that they are checked
/// by. The model may be a copy that has [`ShardMap::heads`] alone.
///
/// # Errors
/// As [`ShardMap::pieces`] and [`check_map`].
pub fn shard_pieces(
    map: &ShardMap,
    model: &Model,
    shard: Option<usize>,
) -> Result<Vec<FilePiece>, Error> {
    let set = set_of(map, model)?;
    check_map(map, model, set)?;
    let mut pieces = map.pieces(model, shard)?;
    for (index, known) in map.tables().iter().enumerate() {
        let (Some(_), Some(shard)) = (known.prepared, shard) else { continue };
        let table = model.table(index)?;
        let geometry = geometry(&table, set)?;
        let spec = file_spec(&table, &geometry);
        let (start, file_bytes) = spec.extents().map_err(PreparedError::Spec)?;
        let columns = geometry.shard_columns((shard as u32, map.shards().len() as u32))?;
        let mut push = |first: u64, bytes: u64| {
            let path = places::prepared(&known.name);
            pieces.push(FilePiece { path, file_bytes, first, bytes });
        };
        push(0, start);
        for block in geometry.blocks().iter().filter(|block| columns.contains(&block.first)) {
            push(start + block.offset as u64, block.bytes as u64);
        }
        let end = start + spec.payload_bytes;
        push(end, file_bytes - end);
    }
    Ok(pieces)
}

/// Reads what shard `shard` has of `model`, or with none, a front, and checks it: rows and the small files against the
/// model's version, its part of prepared files against the versions that the map has of them. `progress` is
/// called with the bytes of rows done and the bytes there are.
///
/// # Errors
/// As [`ShardMap::verify`] and [`check_map`]; [`Error::Prepared`], [`MapError::Prepared`] for a prepared file.
pub fn verify_shard(
    map: &ShardMap,
    model: &Model,
    shard: Option<usize>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let set = set_of(map, model)?;
    check_map(map, model, set)?;
    map.verify(model, shard, progress)?;
    for (index, known) in map.tables().iter().enumerate() {
        if let (Some(version), Some(shard)) = (known.prepared, shard) {
            let of = (shard as u32, map.shards().len() as u32);
            verify_prepared(model, index, (&known.name, version), set, of)?;
        }
    }
    Ok(())
}

/// Reads a shard's part of a prepared file.
fn verify_prepared(
    model: &Model,
    index: usize,
    (name, expected): (&str, Version),
    set: ParameterSet,
    of: (u32, u32),
) -> Result<(), Error> {
    let table: Table = model.table(index)?;
    let (geometry, path) = (geometry(&table, set)?, model.prepared_path(index));
    let prepared = Prepared::open(&path, &file_spec(&table, &geometry))?;
    let found = prepared.version();
    if found != expected {
        let (path, table) = (model.path().join(places::SHARDS_ONION), name.to_owned());
        let source = MapError::Prepared { table, expected, found };
        return Err(Error::Table(TableError::ShardMap { path, source }));
    }
    let columns = geometry.shard_columns(of)?;
    let hashes = prepared.block_hashes();
    Ok(check_columns(&path, &geometry, &columns, prepared.payload(), hashes)?)
}
