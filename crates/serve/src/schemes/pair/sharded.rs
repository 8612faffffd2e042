//! A model whose tables lie on several servers of a side, and what goes wrong with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hushtable_pir::dpf::Side;
use hushtable_table::model::{Model, ShardMap};
use hushtable_table::{Table, Version};

use crate::Error;
use crate::schemes::bundles::is_model;

/// A model and the map of its shards.
pub(crate) struct Sharded {
    pub model: Model,
    pub map: Arc<ShardMap>,
    /// What the map hashes to: shards and fronts with the same hash mean the same by a shard's number.
    pub map_version: Version,
}

/// What is wrong with a shard or a front, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// A server that is to be both.
    #[error(
        "shard and shards_file are both set: a server is one shard (--shard) or a front of all of \
         them (--shards-file)"
    )]
    Both,
    /// A bundle that has no shards.
    #[error(
        "{}: a shard or a front serves one model's bundle and nothing beside it: make one with \
         `hushtable model build`, and its map with `hushtable shard plan`",
        path.display()
    )]
    NotAModel {
        /// The bundle.
        path: PathBuf,
    },
    /// Rows that were changed since the map was made.
    #[error(
        "{}: the map of shards was made with another patch of table {table:?}: make it again with \
         `hushtable shard plan`",
        path.display()
    )]
    Patch {
        /// The bundle.
        path: PathBuf,
        /// The table.
        table: String,
    },
    /// A file of shards that cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// A file of other shards than the map's.
    #[error(
        "{} names the servers of {found} shards, and the model's map has {expected}: give each \
         shard its [[shard]], in order",
        path.display()
    )]
    Count {
        /// The file.
        path: PathBuf,
        /// The map's shards.
        expected: usize,
        /// The file's.
        found: usize,
    },
    /// Shards without a server that holds the version.
    #[error(
        "no server is ready for {}: start them (`hushtable serve --shard`) with this version of \
         the model, or correct their addresses in shards.toml",
        shards.join("; ")
    )]
    Absent {
        /// Each with the reason.
        shards: Vec<String>,
    },
    /// Another side's shard.
    #[error(
        "{url} is a shard of the {found} server, and this is a front of the {expected} one: the two \
         sides' shards must never meet; correct shards.toml"
    )]
    Side {
        /// The server.
        url: String,
        /// The front's side.
        expected: Side,
        /// The shard's.
        found: Side,
    },
    /// A shard on other machines' reach that any client could ask.
    #[error(
        "a shard that other machines reach asks fronts for certificates: give the authority that \
         signs them (--tls-client-ca), or say `insecure` if something else keeps others out"
    )]
    NoClientCa,
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

/// The DNS name that a shard's certificate must have: of its side, so that no front takes the other's.
pub fn shard_name(side: Side) -> String {
    format!("shard.{side}.hushtable.internal")
}

/// The DNS name that a front's certificate must have, as a client of its shards.
pub fn front_name(side: Side) -> String {
    format!("front.{side}.hushtable.internal")
}
