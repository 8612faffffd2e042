//! What a server is asked to hold: the tables and models of several bundles, each table once.

use std::path::{Path, PathBuf};

use hushtable_table::Table;
use hushtable_table::model::{Model, ModelError, ModelManifest, places};

use crate::Error;

/// The tables and models of some bundles.
#[derive(Default)]
pub(crate) struct Bundles {
    /// The tables: of one name, version and layout each once.
    pub tables: Vec<HeldTable>,
    /// The models.
    pub models: Vec<HeldModel>,
}

/// A table that is held.
pub(crate) struct HeldTable {
    pub table: Table,
    /// Its name: in its own manifest, or in its model's.
    pub name: String,
    /// Where a model keeps what a single server answers from for it.
    pub prepared: Option<PathBuf>,
    /// The first model that names it and its feature there; none for a table bundle.
    reader: Option<(String, String)>,
}

/// A model that is held.
pub(crate) struct HeldModel {
    pub manifest: ModelManifest,
    /// The bundle.
    pub path: PathBuf,
    /// By the manifest's index, its place among the tables that are held.
    pub tables: Vec<usize>,
}

impl Bundles {
    /// Opens bundles of tables and of models. No row is read.
    ///
    /// # Errors
    /// [`Error::Table`], [`Error::Model`], [`Error::ModelTable`], [`Error::ModelTwice`].
    pub fn open<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<Self, Error> {
        let mut bundles = Self::default();
        for path in paths {
            match is_model(path) {
                true => bundles.open_model(path)?,
                false => {
                    let table = Table::open(path).map_err(|source| Error::Table {
                        path: path.clone(),
                        source: Box::new(source),
                    })?;
                    let name = table.name().to_owned();
                    bundles.push(HeldTable { table, name, prepared: None, reader: None });
                }
            }
        }
        Ok(bundles)
    }

    /// One table that is open already.
    pub fn of_table(table: Table) -> Self {
        let name = table.name().to_owned();
        let held = HeldTable { table, name, prepared: None, reader: None };
        Self { tables: vec![held], models: Vec::new() }
    }

    fn open_model(&mut self, path: &Path) -> Result<(), Error> {
        let broken = |source| Error::Model { path: path.to_owned(), source: Box::new(source) };
        let manifest = ModelManifest::read(path).map_err(broken)?;
        if let Some(other) = self.models.iter().find(|it| it.manifest.name() == manifest.name()) {
            let (expected, found) = (other.manifest.version(), manifest.version());
            let (path, name) = (path.to_owned(), manifest.name().to_owned());
            return match expected == found {
                true => Ok(()),
                false => Err(Error::ModelTwice { path, name, expected, found }),
            };
        }
        let model = match Model::open(path) {
            Ok(model) => model,
            Err(source) => {
                let missing = match &source {
                    hushtable_table::Error::Model { source, .. } => match &**source {
                        ModelError::MissingTable { table } => manifest.table(table),
                        _ => None,
                    },
                    _ => None,
                };
                return Err(match missing {
                    Some(table) => of_feature(path, &manifest, table, source),
                    None => broken(source),
                });
            }
        };
        if manifest.tables().is_empty() {
            return Err(Error::NoTables { path: path.to_owned() });
        }
        let mut tables = Vec::with_capacity(manifest.tables().len());
        for index in 0..manifest.tables().len() {
            let table =
                model.table(index).map_err(|source| of_feature(path, &manifest, index, source))?;
            let name = manifest.tables()[index].name.clone();
            let reader = Some((manifest.name().to_owned(), reader_of(&manifest, index)));
            let prepared = Some(model.prepared_path(index));
            tables.push(self.push(HeldTable { table, name, prepared, reader }));
        }
        self.models.push(HeldModel { manifest, path: path.to_owned(), tables });
        Ok(())
    }

    /// Holds a table, unless it is held already; its place.
    fn push(&mut self, table: HeldTable) -> usize {
        let layout = |held: &HeldTable| held.table.layout().map(|layout| layout.version());
        let is_it = |held: &HeldTable| {
            held.name == table.name
                && held.table.version() == table.table.version()
                && layout(held) == layout(&table)
        };
        self.tables.iter().position(is_it).unwrap_or_else(|| {
            self.tables.push(table);
            self.tables.len() - 1
        })
    }

    /// The tables whose rows are held for the first time: later ones of the same version share them.
    pub fn is_first_of_version(&self, index: usize) -> bool {
        let version = self.tables[index].table.version();
        self.tables[..index].iter().all(|held| held.table.version() != version)
    }

    /// The same of layouts.
    pub fn is_first_of_layout(&self, index: usize) -> bool {
        let layout_of = |held: &HeldTable| held.table.layout().map(|layout| layout.version());
        let layout = layout_of(&self.tables[index]);
        layout.is_some() && self.tables[..index].iter().all(|held| layout_of(held) != layout)
    }

    /// Refuses tables that take more memory than `bytes_max`; `stored` says what a table takes that
    /// no table before it has taken.
    pub fn check_budget(
        &self,
        bytes_max: Option<u64>,
        stored: impl Fn(usize) -> Result<u64, Error>,
    ) -> Result<(), Error> {
        let Some(bytes_max) = bytes_max else { return Ok(()) };
        let mut bytes: u64 = 0;
        for (index, held) in self.tables.iter().enumerate() {
            bytes = bytes.saturating_add(stored(index)?);
            if bytes > bytes_max {
                return Err(Error::TablesBudget { what: held.describe(), bytes, bytes_max });
            }
        }
        Ok(())
    }
}

impl HeldTable {
    fn describe(&self) -> String {
        let name = &self.name;
        match &self.reader {
            None => format!("table {name:?}"),
            Some((model, feature)) => {
                format!("table {name:?} (feature {feature:?} of model {model:?})")
            }
        }
    }
}

/// Whether a path leads to a model's bundle, or to a model's manifest.
pub(super) fn is_model(path: &Path) -> bool {
    path.join(places::MANIFEST).is_file()
        || (path.is_file() && path.file_name().is_some_and(|name| name == places::MANIFEST))
}

/// The first feature that reads a table.
fn reader_of(manifest: &ModelManifest, table: usize) -> String {
    let reader = manifest.features().iter().find(|feature| feature.table == table);
    reader.map_or_else(String::new, |feature| feature.name.clone())
}

fn of_feature(
    path: &Path,
    manifest: &ModelManifest,
    table: usize,
    source: hushtable_table::Error,
) -> Error {
    let feature = reader_of(manifest, table);
    Error::ModelTable { path: path.to_owned(), feature, source: Box::new(source) }
}
