//! What a server is to its clients' tables: all of them, one shard of each, or a front of all shards.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use hushtable_pir::onion::{self, Geometry, ParameterSet};
use hushtable_table::model::{MapError, MapScheme, Model, SHARD_COUNT_MAX, ShardMap, places};
use hushtable_table::{Error as TableError, Version};

use super::OnionServerSpec;
use crate::Error;
use crate::schemes::bundles::Bundles;
use crate::shards::{Fleet, Owner, ShardError, front_name};

/// Which shard of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ShardOf {
    pub number: u32,
    pub count: u32,
}

/// What a server is.
#[derive(Clone)]
pub(super) enum Role {
    /// It holds its tables whole.
    Whole,
    /// It holds some columns of each.
    Shard(ShardOf),
    /// It holds none, and asks shards.
    Front(Arc<Fleet>),
}

impl ShardOf {
    /// Which shard a server is to be, where it is to be one.
    pub fn check(spec: &OnionServerSpec) -> Result<Option<Self>, Error> {
        let (number, count) = match (spec.shard, spec.shards, &spec.shards_file) {
            (None, None, _) => return Ok(None),
            (Some(_), _, Some(_)) => return Err(ShardError::Both.into()),
            (Some(number), Some(count), None) => (number, count),
            _ => return Err(ShardError::CountMissing.into()),
        };
        if number >= count || count > SHARD_COUNT_MAX {
            let count_max = SHARD_COUNT_MAX;
            return Err(ShardError::Number { number, count, count_max }.into());
        }
        // Both are below the most that there may be.
        Ok(Some(Self { number: number as u32, count: count as u32 }))
    }

    /// The columns of a table that the shard has.
    pub fn columns(self, geometry: &Geometry) -> Range<u64> {
        // Its number was checked.
        geometry.shard_columns((self.number, self.count)).unwrap_or_default()
    }
}

impl Role {
    pub fn shard(&self) -> Option<ShardOf> {
        match self {
            Self::Shard(shard) => Some(*shard),
            Self::Whole | Self::Front(_) => None,
        }
    }

    /// How many shards the tables lie on.
    pub fn count(&self) -> u32 {
        match self {
            Self::Whole => 1,
            Self::Shard(shard) => shard.count,
            Self::Front(fleet) => fleet.shards() as u32,
        }
    }
}

/// Takes from the maps in models' bundles how many shards there are, where `spec` is of one and does not say it; and
/// refuses maps of other numbers, parameters or columns. A bundle without a map has as many as `spec` says.
///
/// # Errors
/// [`Error::Model`] with what is wrong with a map; [`ShardError::Patch`].
pub(super) fn take_count(spec: &mut OnionServerSpec, bundles: &Bundles) -> Result<(), Error> {
    if spec.shard.is_none() {
        return Ok(());
    }
    for (path, map) in maps(spec, bundles)? {
        let expected = map.shards().len();
        let found = *spec.shards.get_or_insert(expected);
        if found != expected {
            return Err(wrong_map(path, MapError::Shards { expected, found }));
        }
    }
    Ok(())
}

/// Refuses a front whose file names servers of another number of shards than a model's map has.
pub(super) fn check_front(
    spec: &OnionServerSpec,
    bundles: &Bundles,
    found: usize,
) -> Result<(), Error> {
    let Some(file) = &spec.shards_file else { return Ok(()) };
    for (_, map) in maps(spec, bundles)? {
        let expected = map.shards().len();
        if found != expected {
            return Err(ShardError::Count { path: file.clone(), expected, found }.into());
        }
    }
    Ok(())
}

/// By the tables that are held, whether a map was made with the table's very patch: a shard's rows alone do not show
/// that it makes the table's version.
pub(super) fn mapped(spec: &OnionServerSpec, bundles: &Bundles) -> Result<Vec<bool>, Error> {
    let mut mapped = vec![false; bundles.tables.len()];
    let maps = maps(spec, bundles)?;
    for model in &bundles.models {
        if maps.iter().any(|(path, _)| *path == model.path) {
            model.tables.iter().for_each(|&place| mapped[place] = true);
        }
    }
    Ok(mapped)
}

/// The maps of the models that have one, with the models' bundles.
fn maps<'a>(
    spec: &OnionServerSpec,
    bundles: &'a Bundles,
) -> Result<Vec<(&'a Path, ShardMap)>, Error> {
    let mut maps = Vec::new();
    for held in &bundles.models {
        let path = held.path.as_path();
        let broken = |source| Error::Model { path: path.to_owned(), source: Box::new(source) };
        let model = Model::open(path).map_err(broken)?;
        let map = match ShardMap::read_of(&model, MapScheme::Onion) {
            Ok(map) => map,
            Err(TableError::ShardMap { source: MapError::Missing { .. }, .. }) => continue,
            Err(error) => return Err(broken(error)),
        };
        let name = &spec.parameters;
        let set = ParameterSet::from_name(name)
            .ok_or_else(|| Error::ParameterSet { name: name.clone() })?;
        match onion::check_map(&map, &model, set) {
            Err(onion::Error::Table(error)) => return Err(broken(error)),
            checked => checked?,
        }
        for (table, &place) in map.tables().iter().zip(&held.tables) {
            let patch = bundles.tables[place].table.manifest().patch();
            if table.patch != patch.map(|hash| Version::from(*hash)) {
                let (path, table) = (path.to_owned(), table.name.clone());
                return Err(ShardError::Patch { path, table }.into());
            }
        }
        maps.push((path, map));
    }
    Ok(maps)
}

fn wrong_map(bundle: &Path, source: MapError) -> Error {
    let path = bundle.join(places::SHARDS_ONION);
    let source = Box::new(TableError::ShardMap { path, source });
    Error::Model { path: bundle.to_owned(), source }
}

/// Bytes in memory of a table, for what `spec` says that a server is.
pub(super) fn stored_bytes(spec: &OnionServerSpec, geometry: &Geometry) -> Result<u64, Error> {
    Ok(match (ShardOf::check(spec)?, &spec.shards_file) {
        (Some(shard), _) => geometry.prepared_bytes_of(shard.columns(geometry)),
        (None, Some(_)) => 0,
        (None, None) => geometry.prepared_bytes(),
    })
}

/// Lets nobody but fronts ask a shard that other machines reach.
pub(super) fn guard(spec: &mut OnionServerSpec) -> Result<(), Error> {
    let network = &mut spec.network;
    let is_exposed = !network.addr.ip().is_loopback() && !network.insecure;
    match &mut network.tls {
        Some(tls) if tls.client_ca.is_some() => tls.client_name = Some(front_name(Owner::Single)),
        Some(_) if is_exposed => return Err(ShardError::NoClientCa.into()),
        _ => {}
    }
    Ok(())
}

/// What a table and a number of shards are known by: no part of another split, or of another version, is joined.
pub(super) fn map_of(version: Version, geometry: &Geometry, count: u32) -> Version {
    let mut hasher = blake3::Hasher::new();
    hasher.update(b"hushtable onion shards 1");
    hasher.update(version.as_bytes());
    hasher.update(&geometry.to_bytes());
    hasher.update(&count.to_le_bytes());
    Version::from(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use hushtable_pir::TableShape;
    use hushtable_pir::onion::ParameterSet;

    use super::*;

    #[test]
    fn a_shard_is_one_of_those_that_there_are() {
        let check = |shard, shards| {
            let spec = OnionServerSpec { shard, shards, ..OnionServerSpec::new("") };
            ShardOf::check(&spec)
        };
        assert!(check(None, None).unwrap().is_none());
        assert_eq!(check(Some(2), Some(3)).unwrap(), Some(ShardOf { number: 2, count: 3 }));
        for (shard, shards) in [(Some(0), None), (None, Some(2))] {
            let error = check(shard, shards).unwrap_err();
            assert!(matches!(error.of(), Some(ShardError::CountMissing)), "{error}");
        }
        for (shard, shards) in [(3, 3), (0, 0), (0, SHARD_COUNT_MAX + 1)] {
            let error = check(Some(shard), Some(shards)).unwrap_err();
            assert!(matches!(error.of(), Some(ShardError::Number { .. })), "{error}");
        }
        let both = OnionServerSpec {
            shard: Some(0),
            shards: Some(1),
            shards_file: Some("shards.toml".into()),
            ..OnionServerSpec::new("")
        };
        let error = ShardOf::check(&both).unwrap_err();
        assert!(matches!(error.of(), Some(ShardError::Both)), "{error}");
    }

    #[test]
    fn a_map_is_of_one_version_geometry_and_number_of_shards() {
        let geometry = |set, rows| Geometry::new(set, TableShape::new(rows, 64).unwrap()).unwrap();
        let sets = ParameterSet::ALL;
        let maps = [
            map_of([1; 32].into(), &geometry(sets[0], 1000), 2),
            map_of([2; 32].into(), &geometry(sets[0], 1000), 2),
            map_of([1; 32].into(), &geometry(sets[0], 2000), 2),
            map_of([1; 32].into(), &geometry(sets[1], 1000), 2),
            map_of([1; 32].into(), &geometry(sets[0], 1000), 3),
        ];
        for (place, map) in maps.iter().enumerate() {
            assert!(maps[..place].iter().all(|other| other != map));
        }
    }
}
