//! A model whose tables lie on several servers of a side.

use std::path::Path;
use std::sync::Arc;

use hushtable_table::model::{Model, ShardMap};
use hushtable_table::{Table, Version};

use crate::Error;
use crate::schemes::bundles::is_model;
use crate::shards::ShardError;

/// A model and the map of its shards.
pub(crate) struct Sharded {
    pub model: Model,
    pub map: Arc<ShardMap>,
    /// What the map hashes to: shards and fronts with the same hash mean the same by a shard's number.
    pub map_version: Version,
}

impl Sharded {
    /// Opens the model at `path` and its map. No row is read.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if !is_model(path) {
            return Err(ShardError::NotAModel { path: path.to_owned() }.into());
        }
        let broken = |source| Error::Model { path: path.to_owned(), source: Box::new(source) };
        let model = Model::open(path).map_err(broken)?;
        if model.manifest().tables().is_empty() {
            return Err(Error::NoTables { path: path.to_owned() });
        }
        let map = ShardMap::read(&model).map_err(broken)?;
        let map_version = map.version();
        Ok(Self { model, map: Arc::new(map), map_version })
    }

    /// The table of this index, which is as it was when the map was made.
    pub fn table(&self, index: usize) -> Result<Table, Error> {
        let path = self.model.path();
        let table = self
            .model
            .table(index)
            .map_err(|source| Error::Model { path: path.to_owned(), source: Box::new(source) })?;
        let of_map = &self.map.tables()[index];
        let patch = table.manifest().patch().map(|hash| Version::from(*hash));
        match of_map.patch == patch {
            true => Ok(table),
            false => {
                let (path, table) = (path.to_owned(), of_map.name.clone());
                Err(ShardError::Patch { path, table }.into())
            }
        }
    }

    /// What a shard has to be for this map to have it.
    pub fn check_number(&self, number: usize) -> Result<(), Error> {
        let path = self.model.path().to_owned();
        self.map.shard(number).map(drop).map_err(|source| {
            let source = hushtable_table::Error::ShardMap { path: path.clone(), source };
            Error::Model { path, source: Box::new(source) }
        })
    }
}
