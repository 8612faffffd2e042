//! The model bundle: a model's tables, which feature reads which, and the rest of its checkpoint.
//!
//! A bundle is a folder ([`places`] has every name in it):
//!
//! | place | what it holds |
//! |---|---|
//! | `model.json` | the [`ModelManifest`]; the model's version is the BLAKE3 of its bytes |
//! | `tables/NAME/` | table bundles, whose layouts stay with them |
//! | `dense.safetensors` | the tensors of the checkpoint that are no tables, if they were kept |
//! | `prepared/NAME.onion` | what a single server answers from: derived, and no part of the version |
//! | `plans/NAME.ckks.json` | how it is computed on encrypted features ([`CompiledPlan`]): derived, too |
//! | `plans/NAME.hybrid.json` | how it is computed by both parties: likewise |
//! | `plans/NAME.shares.json` | how it is computed by two servers on shares: likewise |
//! | `shards.json` | which rows lie on which shard ([`ShardMap`]): derived, too |
//!
//! As with tables, a bundle takes its place in one step, and nothing in it is written in place.

mod build;
mod choice;
mod dense;
mod error;
mod manifest;
pub mod places;
mod plans;
mod shards;
mod verify;
mod writer;

use std::path::{Path, PathBuf};

pub use self::build::{BuildSpec, FeatureSpec, Plan, PlannedTable, TableSpec, build, plan};
pub use self::error::ModelError;
pub use self::manifest::{
    DenseRef, FEATURE_COUNT_MAX, Feature, IDS_MAX, IDS_SUM_MAX, MODEL_FORMAT_VERSION,
    MODEL_JSON_BYTES_MAX, ModelManifest, ModelSpec, NAME_BYTES_MAX, Pooling, TableRef,
};
pub use self::plans::{CompiledPlan, PlanReport};
pub use self::shards::{
    FileHead, FilePiece, MapError, MapScheme, REPLICA_COUNT_MAX, SHARD_ALIGN_ROWS, SHARD_COUNT_MAX,
    Shard, ShardMap, ShardMapSpec, ShardPart, ShardedTable, whole_blocks,
};
pub use self::verify::{Report, TableReport, verify};
use self::writer::ModelWriter;
pub use self::writer::write;
use crate::error::Error;
use crate::shape::Shape;
use crate::table::Table;

/// A model bundle on disk whose manifest was read and whose files are there.
#[derive(Clone, Debug)]
pub struct Model {
    path: PathBuf,
    manifest: ModelManifest,
}

impl Model {
    /// Opens the model bundle at `path`: reads its manifest, and looks that every table's folder
    /// and the dense file are there. No row is read: [`table`](Self::table) opens a table.
    ///
    /// # Errors
    /// [`Error::NotAModel`]; [`Error::Model`] for a manifest that is damaged, or that names what is
    /// not there; [`Error::Io`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        let manifest = ModelManifest::read(path)?;
        // The manifest file may be named instead of the folder that it is in.
        let is_file = path.is_file();
        let folder = if is_file { path.parent().unwrap_or(Path::new("")) } else { path };
        let model = Self { path: folder.to_owned(), manifest };
        let wrong = |source| Error::model(&model.path)(source);
        for table in model.manifest.tables() {
            if !model.path.join(places::table(&table.name)).is_dir() {
                return Err(wrong(ModelError::MissingTable { table: table.name.clone() }));
            }
        }
        if let (Some(path), Some(dense)) = (model.dense_path(), model.manifest.dense()) {
            match path.metadata() {
                Ok(file) if file.is_file() && file.len() == dense.bytes => {}
                Ok(file) if file.is_file() => {
                    let (expected, found) = (dense.bytes, file.len());
                    return Err(wrong(ModelError::DenseBytes { expected, found }));
                }
                _ => return Err(wrong(ModelError::MissingDense)),
            }
        }
        Ok(model)
    }

    /// The manifest.
    pub fn manifest(&self) -> &ModelManifest {
        &self.manifest
    }

    /// The bundle's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the table of this index in the manifest, and checks that it is the one meant there.
    ///
    /// # Errors
    /// [`Error::Model`] for a table of another version, shape or layout; as [`Table::open`].
    ///
    /// # Panics
    /// Unless `index` is below the number of tables.
    pub fn table(&self, index: usize) -> Result<Table, Error> {
        let expected = &self.manifest.tables()[index];
        let path = self.table_path(index);
        let table = Table::open(&path)?;
        check_table(expected, &table).map_err(Error::model(&self.path))?;
        Ok(table)
    }

    /// Writes the model anew at `out`, which may be its own path, with `table` in place of the table
    /// of this name; the files of all others are shared, not copied, where the file system allows.
    ///
    /// Prepared files and plans do not come along: they are made again from the tables.
    ///
    /// # Errors
    /// [`Error::Model`] for a name that is no table's; else as [`write()`].
    pub fn replace_table(
        &self,
        name: &str,
        table: &Table,
        out: &Path,
    ) -> Result<ModelManifest, Error> {
        let manifest = &self.manifest;
        let replaced = manifest.find_table(name).map_err(Error::model(&self.path))?;
        let mut writer = ModelWriter::new(out, manifest.name())?;
        for (index, other) in manifest.tables().iter().enumerate() {
            if index == replaced {
                writer.push_table(name, table)?;
            } else {
                // Opened first: what the manifest does not mean must not get into a new one.
                self.table(index)?;
                writer.link_table(&other.name, &self.table_path(index))?;
            }
        }
        if let Some(dense) = self.dense_path() {
            writer.copy_dense(&dense)?;
        }
        writer.finish(manifest.features())
    }

    /// The folder of the table of this index.
    ///
    /// # Panics
    /// Unless `index` is below the number of tables.
    pub fn table_path(&self, index: usize) -> PathBuf {
        self.path.join(places::table(&self.manifest.tables()[index].name))
    }

    /// Where the prepared file of the table of this index is, once it is made.
    ///
    /// # Panics
    /// Unless `index` is below the number of tables.
    pub fn prepared_path(&self, index: usize) -> PathBuf {
        self.path.join(places::prepared(&self.manifest.tables()[index].name))
    }

    /// The dense file, if the model has one.
    pub fn dense_path(&self) -> Option<PathBuf> {
        self.manifest.dense().map(|_| self.path.join(places::DENSE))
    }
}

/// Checks that an open table is the one that a manifest means.
fn check_table(expected: &TableRef, found: &Table) -> Result<(), ModelError> {
    let describe = |shape: Shape| error::describe(shape.rows(), shape.dim(), shape.dtype());
    let table = expected.name.clone();
    if expected.shape != found.shape() {
        let (expected, found) = (describe(expected.shape), describe(found.shape()));
        return Err(ModelError::TableShape { table, expected, found });
    }
    if expected.version != found.version() {
        let (expected, found) = (expected.version, found.version());
        return Err(ModelError::Table { table, expected, found });
    }
    let layout = found.layout().map(|layout| layout.version());
    match expected.layout == layout {
        true => Ok(()),
        false => Err(ModelError::Layout { table, expected: expected.layout, found: layout }),
    }
}
