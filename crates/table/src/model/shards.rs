//! The map of a model's shards: which rows of which table each of several servers holds.
//!
//! A shard has one or more *parts*, each a range of one table's rows; all parts together are every
//! row of every table once. Ranges begin at multiples of [`SHARD_ALIGN_ROWS`] rows, and of more where
//! tables are large, so that a key is expanded below a few nodes of its tree, of which no other shard
//! expands any. The map is derived from the model: it can be made again, and is no part of the
//! model's version. It says which version it is of, and is refused beside another.

mod files;
mod plan;
mod verify;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::ops::Range;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Model, ModelManifest, places};
use crate::error::Error;
use crate::staging::sync_folder;
use crate::version::Version;

pub use files::{FileHead, FilePiece};
pub use plan::ShardMapSpec;

/// Every range of a shard begins at a multiple of so many rows: what an engine stores in one piece.
pub const SHARD_ALIGN_ROWS: u64 = 512;
/// The most shards of a map.
pub const SHARD_COUNT_MAX: usize = 4_096;
/// The most replicas that a map asks for.
pub const REPLICA_COUNT_MAX: usize = 64;

const FORMAT: &str = "hushtable-shards";
const FORMAT_VERSION: u64 = 1;
const JSON_BYTES_MAX: u64 = 64 << 20;

/// A range of one table's rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "as the file has it")]
pub struct ShardPart {
    /// The table's index in the model's manifest.
    pub table: usize,
    /// The first row.
    pub first: u64,
    /// The row after the last.
    pub end: u64,
}

impl ShardPart {
    /// Its rows.
    pub fn rows(&self) -> Range<u64> {
        self.first..self.end
    }
}

/// What one shard holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "as the file has it")]
pub struct Shard {
    /// Bytes of its rows in memory.
    pub bytes: u64,
    /// Its ranges, one a table at most, by the tables' indices.
    pub parts: Vec<ShardPart>,
}

/// A table as a map has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "as the file has it")]
pub struct ShardedTable {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// BLAKE3 of its patch's file, where some of its rows were changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<Version>,
    /// Its rows.
    pub rows: u64,
    /// Bytes of one, as served.
    pub row_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    format_version: u64,
    model: Version,
    name: String,
    replicas: usize,
    tables: Vec<ShardedTable>,
    shards: Vec<Shard>,
    /// BLAKE3 of the document with an empty checksum.
    checksum: String,
}

/// The map of a model's shards, whose parts are every row of every table once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardMap {
    document: Document,
}

/// What is wrong with a map of shards, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// There is none.
    #[error("the model has no map of shards: make one with `hushtable shard plan MODEL`")]
    Missing,
    /// No JSON, or not of the entries that a map has.
    #[error("the map of shards is malformed ({reason}): make it again with `hushtable shard plan`")]
    Malformed {
        /// What the parser said.
        reason: String,
    },
    /// It was edited or damaged.
    #[error(
        "the map's checksum does not match its entries: it was edited or damaged; make it again with \
         `hushtable shard plan`"
    )]
    Checksum,
    /// Written by a later hushtable.
    #[error(
        "the map's format version is {found}, the newest known is {FORMAT_VERSION}; update hushtable"
    )]
    FutureVersion {
        /// What it says.
        found: u64,
    },
    /// A map of another version of the model.
    #[error(
        "the map is of version {found} of the model, this is version {expected}: make it again with \
         `hushtable shard plan`"
    )]
    Model {
        /// The model's.
        expected: Version,
        /// The map's.
        found: Version,
    },
    /// Rows of a table that two shards have, or that none has.
    #[error(
        "{}: rows {first} to {end} of table {table:?} are {}; make the map again with `hushtable shard plan`",
        match shard { Some(shard) => format!("shard {shard}"), None => "the map".into() },
        match shard { Some(_) => "on another shard too", None => "on no shard" }
    )]
    Rows {
        /// The second shard that has them; None where none has.
        shard: Option<usize>,
        /// The table.
        table: String,
        /// The first such row.
        first: u64,
        /// The row after the last.
        end: u64,
    },
    /// A part that is no range of a table.
    #[error(
        "shard {shard}: rows {first} to {end} of table number {table} are no range of a table of the \
         model that begins at a multiple of {SHARD_ALIGN_ROWS}; make the map again with `hushtable \
         shard plan`"
    )]
    Part {
        /// The shard.
        shard: usize,
        /// The table's index.
        table: usize,
        /// The first row.
        first: u64,
        /// The row after the last.
        end: u64,
    },
    /// A number of shards or replicas outside the limits.
    #[error("{what} must be {least} to {most}, not {found}")]
    Count {
        /// What is counted.
        what: &'static str,
        /// The least.
        least: usize,
        /// The most.
        most: usize,
        /// What was given.
        found: usize,
    },
    /// Memory that holds not even the smallest piece of a table.
    #[error(
        "shards of {memory_bytes} bytes, each holding {versions} version(s) at once, would take more than \
         {SHARD_COUNT_MAX} for {bytes} bytes of tables: give shards more memory"
    )]
    Memory {
        /// What was given.
        memory_bytes: u64,
        /// Versions that are held at once.
        versions: u64,
        /// Bytes of all tables in memory.
        bytes: u64,
    },
    /// A shard that the map does not have.
    #[error("there is no shard {found}: the map has {shards}, numbered from 0")]
    Shard {
        /// What was asked for.
        found: usize,
        /// How many there are.
        shards: usize,
    },
}

impl ShardMap {
    /// Reads the map in a model's bundle, and checks that it is of that very version.
    ///
    /// # Errors
    /// [`Error::ShardMap`] for one that is missing, damaged or of another version; [`Error::Io`].
    pub fn read(model: &Model) -> Result<Self, Error> {
        let path = model.path().join(places::SHARDS);
        let wrong = |source| Error::ShardMap { path: path.clone(), source };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(wrong(MapError::Missing));
            }
            Err(error) => return Err(Error::io("open", &path)(error)),
        };
        let mut bytes = Vec::new();
        let mut limited = file.take(JSON_BYTES_MAX + 1);
        limited.read_to_end(&mut bytes).map_err(Error::io("read", &path))?;
        let map = Self::from_json(&bytes).map_err(wrong)?;
        map.check_model(model.manifest()).map_err(wrong)?;
        Ok(map)
    }

    /// Reads a map from the bytes of its file.
    ///
    /// # Errors
    /// [`MapError`] for anything but a whole map whose parts are every row once.
    pub fn from_json(bytes: &[u8]) -> Result<Self, MapError> {
        if bytes.len() as u64 > JSON_BYTES_MAX {
            return Err(MapError::Malformed { reason: "it is over 64 MiB long".into() });
        }
        let document: Document = serde_json::from_slice(bytes)
            .map_err(|error| MapError::Malformed { reason: error.to_string() })?;
        if document.format != FORMAT {
            return Err(MapError::Malformed { reason: format!("its format is not {FORMAT:?}") });
        }
        if document.format_version != FORMAT_VERSION {
            return Err(MapError::FutureVersion { found: document.format_version });
        }
        let map = Self::sealed(document.clone());
        if map.document.checksum != document.checksum {
            return Err(MapError::Checksum);
        }
        map.check()?;
        Ok(map)
    }

    /// The map of these shards of `model`.
    fn new(
        model: &ModelManifest,
        tables: Vec<ShardedTable>,
        shards: Vec<Shard>,
        replicas: usize,
    ) -> Result<Self, MapError> {
        let map = Self::sealed(Document {
            format: FORMAT.into(),
            format_version: FORMAT_VERSION,
            model: model.version(),
            name: model.name().to_owned(),
            replicas,
            tables,
            shards,
            checksum: String::new(),
        });
        map.check()?;
        Ok(map)
    }

    fn sealed(mut document: Document) -> Self {
        document.checksum.clear();
        let sum = blake3::hash(&to_bytes(&document));
        document.checksum = sum.to_string();
        Self { document }
    }

    /// Checks counts, and that the parts are every row of every table once.
    fn check(&self) -> Result<(), MapError> {
        let Document { shards, tables, replicas, .. } = &self.document;
        count("the number of shards", shards.len(), SHARD_COUNT_MAX)?;
        count("the number of replicas", *replicas, REPLICA_COUNT_MAX)?;
        let mut ranges: Vec<Vec<(u64, u64, usize)>> = vec![Vec::new(); tables.len()];
        for (shard, parts) in shards.iter().enumerate() {
            for &ShardPart { table, first, end } in &parts.parts {
                let is_range = tables.get(table).is_some_and(|table| {
                    first < end
                        && end <= table.rows
                        && first.is_multiple_of(SHARD_ALIGN_ROWS)
                        && (end == table.rows || end.is_multiple_of(SHARD_ALIGN_ROWS))
                });
                let is_once = parts.parts.iter().filter(|part| part.table == table).count() == 1;
                if !is_range || !is_once {
                    return Err(MapError::Part { shard, table, first, end });
                }
                ranges[table].push((first, end, shard));
            }
        }
        for (table, ranges) in tables.iter().zip(&mut ranges) {
            ranges.sort_unstable();
            let mut next = 0;
            let wrong = |shard, first, end| {
                Err(MapError::Rows { shard, table: table.name.clone(), first, end })
            };
            for &(first, end, shard) in &*ranges {
                if first < next {
                    return wrong(Some(shard), first, next.min(end));
                }
                if first > next {
                    return wrong(None, next, first);
                }
                next = end;
            }
            if next != table.rows {
                return wrong(None, next, table.rows);
            }
        }
        Ok(())
    }

    /// Checks that it is of this version of this model.
    ///
    /// # Errors
    /// [`MapError::Model`] for a map of another version, or that names or sizes its tables otherwise.
    pub fn check_model(&self, model: &ModelManifest) -> Result<(), MapError> {
        let (expected, found) = (model.version(), self.document.model);
        // Names lead to files: those of a map are the manifest's, which were checked.
        let is_its = |(of_map, of_model): (&ShardedTable, &super::TableRef)| {
            (&of_map.name, of_map.version, of_map.rows, of_map.row_bytes)
                == (
                    &of_model.name,
                    of_model.version,
                    of_model.shape.rows(),
                    of_model.shape.row_bytes(),
                )
        };
        let tables = self.document.tables.iter().zip(model.tables());
        let is_same =
            self.document.tables.len() == model.tables().len() && tables.into_iter().all(is_its);
        match expected == found && is_same {
            true => Ok(()),
            false => Err(MapError::Model { expected, found }),
        }
    }

    /// Writes it into the model's bundle, in one step.
    ///
    /// # Errors
    /// [`Error::ShardMap`] for a map of another version; [`Error::Io`].
    pub fn write(&self, model: &Model) -> Result<PathBuf, Error> {
        let path = model.path().join(places::SHARDS);
        self.check_model(model.manifest())
            .map_err(|source| Error::ShardMap { path: path.clone(), source })?;
        let new = model.path().join(format!(".{}.{}", places::SHARDS, std::process::id()));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(&self.to_json())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            sync_folder(model.path())
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&new);
            Error::io("write", &path)(error)
        })?;
        Ok(path)
    }

    /// The bytes of its file.
    pub fn to_json(&self) -> Vec<u8> {
        to_bytes(&self.document)
    }

    /// What it hashes to: shards and fronts with the same hash mean the same by a shard's number.
    pub fn version(&self) -> Version {
        Version::from(*blake3::hash(&self.to_json()).as_bytes())
    }

    /// The version of the model that it is of.
    pub fn model(&self) -> Version {
        self.document.model
    }

    /// The model's name.
    pub fn name(&self) -> &str {
        &self.document.name
    }

    /// Servers of each shard that it was planned for.
    pub fn replicas(&self) -> usize {
        self.document.replicas
    }

    /// The model's tables.
    pub fn tables(&self) -> &[ShardedTable] {
        &self.document.tables
    }

    /// The shards.
    pub fn shards(&self) -> &[Shard] {
        &self.document.shards
    }

    /// What shard `shard` holds.
    ///
    /// # Errors
    /// [`MapError::Shard`] for one that there is not.
    pub fn shard(&self, shard: usize) -> Result<&Shard, MapError> {
        let shards = self.document.shards.len();
        self.document.shards.get(shard).ok_or(MapError::Shard { found: shard, shards })
    }

    /// The rows of a table that a shard holds.
    pub fn rows_of(&self, shard: usize, table: usize) -> Option<Range<u64>> {
        let parts = &self.document.shards.get(shard)?.parts;
        parts.iter().find(|part| part.table == table).map(ShardPart::rows)
    }
}

fn count(what: &'static str, found: usize, most: usize) -> Result<(), MapError> {
    match (1..=most).contains(&found) {
        true => Ok(()),
        false => Err(MapError::Count { what, least: 1, most, found }),
    }
}

fn to_bytes(document: &Document) -> Vec<u8> {
    // A document has no key that is no text, and no number that JSON has not.
    let mut bytes = serde_json::to_vec_pretty(document).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

#[cfg(test)]
mod tests;
