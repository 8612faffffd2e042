//! Reads every byte of a model bundle and says what of it is damaged.

use std::fs::File;
use std::io;
use std::path::Path;

use serde::Serialize;

use super::manifest::ModelManifest;
use super::plans::{PlanReport, check_plans};
use super::{Model, ModelError, check_table};
use crate::error::Error;
use crate::table::Table;
use crate::verify::Report as TableDamage;

/// What [`verify`] found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Whether every byte is as it was built, and every plan belongs to the model.
    pub ok: bool,
    /// Each table, in the manifest's order.
    pub tables: Vec<TableReport>,
    /// What is wrong with the dense file; `None` if nothing is, or there is none.
    pub dense: Option<String>,
    /// Each compiled plan, by name.
    pub plans: Vec<PlanReport>,
}

/// What [`verify`] found of one table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TableReport {
    /// Its name.
    pub name: String,
    /// How many rows it has by the manifest.
    pub rows: u64,
    /// Why it cannot be read, or is not the manifest's.
    pub error: Option<String>,
    /// The first damages, at most 16, in row order.
    pub damaged: Vec<crate::verify::Damage>,
    /// How many damages there are in all.
    pub damaged_count: u64,
}

impl TableReport {
    /// Whether every byte of it is as it was built.
    pub fn ok(&self) -> bool {
        self.error.is_none() && self.damaged_count == 0
    }
}

/// Reads every byte of the model bundle at `path` and checks it against its manifest.
///
/// `progress` is called with the bytes of tables done and the bytes there are.
///
/// # Errors
/// [`Error::NotAModel`], [`Error::Model`] for a damaged manifest, [`Error::Io`]. What is damaged,
/// missing or another's below it is in the [`Report`].
pub fn verify(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Report, Error> {
    let manifest = ModelManifest::read(path)?;
    let folder = if path.is_file() { path.parent().unwrap_or(Path::new("")) } else { path };
    let model = Model { path: folder.to_owned(), manifest };
    let tables = model.manifest.tables();
    let total = tables.iter().map(|table| table.shape.content_bytes()).sum();
    let mut done = 0;
    progress(0, total);
    let mut reports = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let path = model.table_path(index);
        let row_bytes = table.shape.row_bytes() as u64;
        let found = match path.is_dir() {
            false => Err(ModelError::MissingTable { table: table.name.clone() }.to_string()),
            true => crate::verify::verify(&path, &mut |rows, _| {
                progress((done + rows * row_bytes).min(total), total);
            })
            .map_err(|error| error.to_string()),
        };
        // Whole, but another: only the manifest of the model can tell.
        let meant = || {
            let opened = Table::open(&path).map_err(|error| error.to_string())?;
            check_table(table, &opened).map_err(|error| error.to_string())
        };
        let found = found.and_then(|damage| meant().map(|()| damage));
        done += table.shape.content_bytes();
        let (error, damage) = match found {
            Ok(damage) => (None, Some(damage)),
            Err(error) => (Some(error), None),
        };
        let (damaged, damaged_count) = damage
            .map_or((Vec::new(), 0), |TableDamage { damaged, damaged_count, .. }| {
                (damaged, damaged_count)
            });
        let (name, rows) = (table.name.clone(), table.shape.rows());
        reports.push(TableReport { name, rows, error, damaged, damaged_count });
    }
    let dense = check_dense(&model);
    progress(total, total);
    let plans = check_plans(&model)?;
    let derived = plans.iter().all(|plan| plan.error.is_none());
    let ok = dense.is_none() && derived && reports.iter().all(TableReport::ok);
    Ok(Report { ok, tables: reports, dense, plans })
}

/// What is wrong with the dense file.
fn check_dense(model: &Model) -> Option<String> {
    match read_dense(model) {
        Ok(()) => None,
        Err(Error::Model { source, .. }) => Some(source.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// Reads the dense file, if the model has one, and checks it against the manifest.
pub(super) fn read_dense(model: &Model) -> Result<(), Error> {
    let (Some(expected), Some(path)) = (model.manifest.dense(), model.dense_path()) else {
        return Ok(());
    };
    let wrong = |source| Err(Error::model(&model.path)(source));
    let Ok(mut file) = File::open(&path) else { return wrong(ModelError::MissingDense) };
    let mut hasher = blake3::Hasher::new();
    let found = io::copy(&mut file, &mut hasher).map_err(Error::io("read", &path))?;
    if *hasher.finalize().as_bytes() == expected.blake3 {
        return Ok(());
    }
    let expected = expected.bytes;
    match found == expected {
        true => wrong(ModelError::DenseContent),
        false => wrong(ModelError::DenseBytes { expected, found }),
    }
}
