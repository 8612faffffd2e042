//! The map of a model's shards: which rows of which table each of several servers holds.
//!
//! A shard has one or more *parts*, each a range of one table's rows; all parts together are every
//! row of every table once. Ranges begin at multiples of [`SHARD_ALIGN_ROWS`] rows, and of more where
//! tables are large, so that a key is expanded below a few nodes of its tree, of which no other shard
//! expands any. The map is derived from the model: it can be made again, and is no part of the
//! model's version. It says which version it is of, and is refused beside another.
//!
//! Servers that are asked alone hold columns of tables, whose rows begin anywhere: their map is a file
//! of its own, [`MapScheme`] says which, and names the parameters that the columns follow from. What makes
//! it knows those; here it is read, and checked to be every row once.

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

pub use files::{FileHead, FilePiece, whole_blocks};
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
    /// The version of the prepared file of which each shard takes its part; none where shards prepare their
    /// rows themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared: Option<Version>,
}

/// Whose shards a map is of. A model may have a map for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "callers handle both")]
pub enum MapScheme {
    /// Two servers that do not collude: shards hold rows.
    Pair,
    /// One that is asked alone: shards hold columns.
    Onion,
}

impl MapScheme {
    /// What the command calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Onion => "onion",
        }
    }

    /// The map's file in a model's bundle.
    pub fn place(self) -> &'static str {
        match self {
            Self::Pair => places::SHARDS,
            Self::Onion => places::SHARDS_ONION,
        }
    }
}

impl std::str::FromStr for MapScheme {
    type Err = MapError;

    fn from_str(name: &str) -> Result<Self, MapError> {
        [Self::Pair, Self::Onion]
            .into_iter()
            .find(|scheme| scheme.name() == name)
            .ok_or_else(|| MapError::UnknownScheme { found: name.to_owned() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    format_version: u64,
    model: Version,
    name: String,
    /// Of servers that are asked alone, what the columns follow from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parameters: Option<String>,
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
    #[error("the model has no map of shards: make one with `hushtable shard plan MODEL{}`", of(*scheme))]
    Missing {
        /// Of what.
        scheme: MapScheme,
    },
    /// Another scheme's map, under this one's name.
    #[error(
        "it is a map of shards for {}, not for {}: make this one again with `hushtable shard plan MODEL{}`",
        found.name(), expected.name(), of(*expected)
    )]
    Scheme {
        /// The scheme that it is read for.
        expected: MapScheme,
        /// Whose it is.
        found: MapScheme,
    },
    /// No scheme of that name.
    #[error("no scheme is called {found:?}: shards are of \"pair\" or of \"onion\"")]
    UnknownScheme {
        /// What was given.
        found: String,
    },
    /// Columns of other parameters.
    #[error(
        "the map is for the parameters {expected:?}, not {found:?}: give the servers `--parameters \
         {expected}`, or plan again with `hushtable shard plan --scheme onion --parameters {found}`"
    )]
    Parameters {
        /// The map's.
        expected: String,
        /// The server's.
        found: String,
    },
    /// A server that was told of another number of shards.
    #[error(
        "the map is of {expected} shard(s), and the server was told that there are {found}: leave `--shards` \
         out, or plan again with `hushtable shard plan --scheme onion --shards {found}`"
    )]
    Shards {
        /// The map's.
        expected: usize,
        /// What the server was told.
        found: usize,
    },
    /// Rows on a shard that are not those of its columns.
    #[error(
        "shard {shard} has rows {found:?} of table {table:?}, and its columns are rows {expected:?}: make the map \
         again with `hushtable shard plan --scheme onion`"
    )]
    Columns {
        /// The shard.
        shard: usize,
        /// The table.
        table: String,
        /// Rows of its columns.
        expected: Range<u64>,
        /// Rows that the map has.
        found: Range<u64>,
    },
    /// A prepared file that is not the one that the map was made with.
    #[error(
        "the prepared file of table {table:?} is not the one that the map was made with (version {found}, not \
         {expected}): make the map again with `hushtable shard plan --scheme onion`"
    )]
    Prepared {
        /// The table.
        table: String,
        /// The map's.
        expected: Version,
        /// The file's.
        found: Version,
    },
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
    /// A map that calls the model by another name, which would become a folder's.
    #[error(
        "the map is of a model called {found:?}, this one is called {expected:?}: make it again with `hushtable \
         shard plan`"
    )]
    Name {
        /// The model's.
        expected: String,
        /// The map's, cut.
        found: String,
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
    /// Memory that leaves nothing for columns.
    #[error(
        "a server of {memory_bytes} bytes has no room for columns: the program, clients' keys and a pass's \
         queries take {besides_bytes} of them; give servers more memory"
    )]
    Besides {
        /// What was given.
        memory_bytes: u64,
        /// What a server takes besides its columns.
        besides_bytes: u64,
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
    /// Reads the map for pairs of servers in a model's bundle, and checks that it is of that very version.
    ///
    /// # Errors
    /// As [`read_of`](Self::read_of).
    pub fn read(model: &Model) -> Result<Self, Error> {
        Self::read_of(model, MapScheme::Pair)
    }

    /// Reads the map for a scheme in a model's bundle, and checks that it is of that very version.
    ///
    /// # Errors
    /// [`Error::ShardMap`] for one that is missing, damaged, of another version or of another scheme;
    /// [`Error::Io`].
    pub fn read_of(model: &Model, scheme: MapScheme) -> Result<Self, Error> {
        let path = model.path().join(scheme.place());
        let wrong = |source| Error::ShardMap { path: path.clone(), source };
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(wrong(MapError::Missing { scheme }));
            }
            Err(error) => return Err(Error::io("open", &path)(error)),
        };
        let mut bytes = Vec::new();
        let mut limited = file.take(JSON_BYTES_MAX + 1);
        limited.read_to_end(&mut bytes).map_err(Error::io("read", &path))?;
        let map = Self::from_json(&bytes).map_err(wrong)?;
        map.check_scheme(scheme).map_err(wrong)?;
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

    /// The map of these shards of `model`, for servers that are asked alone and whose columns follow from
    /// `parameters`. Whoever makes it says which rows are whose, and which prepared files there are.
    ///
    /// # Errors
    /// [`MapError`] for shards that have not every row once, or for too many.
    pub fn of_columns(
        model: &ModelManifest,
        parameters: &str,
        tables: Vec<ShardedTable>,
        shards: Vec<Shard>,
        replicas: usize,
    ) -> Result<Self, MapError> {
        Self::new(model, Some(parameters.to_owned()), tables, shards, replicas)
    }

    /// The map of these shards of `model`.
    fn new(
        model: &ModelManifest,
        parameters: Option<String>,
        tables: Vec<ShardedTable>,
        shards: Vec<Shard>,
        replicas: usize,
    ) -> Result<Self, MapError> {
        let map = Self::sealed(Document {
            format: FORMAT.into(),
            format_version: FORMAT_VERSION,
            model: model.version(),
            name: model.name().to_owned(),
            parameters,
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
        let align = match self.scheme() {
            MapScheme::Pair => SHARD_ALIGN_ROWS,
            MapScheme::Onion => 1,
        };
        let mut ranges: Vec<Vec<(u64, u64, usize)>> = vec![Vec::new(); tables.len()];
        for (shard, parts) in shards.iter().enumerate() {
            for &ShardPart { table, first, end } in &parts.parts {
                let is_range = tables.get(table).is_some_and(|table| {
                    first < end
                        && end <= table.rows
                        && first.is_multiple_of(align)
                        && (end == table.rows || end.is_multiple_of(align))
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

    /// Checks that it is for the servers of a scheme.
    ///
    /// # Errors
    /// [`MapError::Scheme`].
    pub fn check_scheme(&self, expected: MapScheme) -> Result<(), MapError> {
        match self.scheme() {
            found if found == expected => Ok(()),
            found => Err(MapError::Scheme { expected, found }),
        }
    }

    /// Checks that it is of this version of this model.
    ///
    /// # Errors
    /// [`MapError::Model`] for a map of another version, or that names or sizes its tables otherwise;
    /// [`MapError::Name`] for another name.
    pub fn check_model(&self, model: &ModelManifest) -> Result<(), MapError> {
        let (expected, found) = (model.version(), self.document.model);
        if self.document.name != model.name() {
            let (expected, found) = (model.name().to_owned(), super::manifest::clip(self.name()));
            return Err(MapError::Name { expected, found });
        }
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
        let place = self.scheme().place();
        let path = model.path().join(place);
        self.check_model(model.manifest())
            .map_err(|source| Error::ShardMap { path: path.clone(), source })?;
        let new = model.path().join(format!(".{place}.{}", std::process::id()));
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

    /// Whose shards they are.
    pub fn scheme(&self) -> MapScheme {
        match self.document.parameters {
            None => MapScheme::Pair,
            Some(_) => MapScheme::Onion,
        }
    }

    /// Of servers that are asked alone, the parameter set that their columns follow from.
    pub fn parameters(&self) -> Option<&str> {
        self.document.parameters.as_deref()
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

/// What `hushtable shard plan` is told beside the model.
fn of(scheme: MapScheme) -> &'static str {
    match scheme {
        MapScheme::Pair => "",
        MapScheme::Onion => " --scheme onion",
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
