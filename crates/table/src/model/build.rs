//! From a checkpoint to a model bundle.

use std::path::Path;

use serde::Serialize;

use super::choice::{self, choose, describe, table_names};
use super::dense::write_dense;
use super::error::ModelError;
use super::manifest::{Feature, ModelManifest, ModelSpec, Pooling, TableRef, check_name};
use super::writer::ModelWriter;
use crate::build::{build_tensor, convert_table};
use crate::dtype::DType;
use crate::error::Error;
use crate::shape::Shape;
use crate::source::{Checkpoint, Content, Stored};
use crate::table::Table;
use crate::version::Version;

/// A table that is to be built, as a user writes it down.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct TableSpec {
    /// Its name in the model.
    pub name: String,
    /// The tensor's name in the checkpoint.
    pub key: String,
    /// How to store values; `None` for [`BuildSpec::dtype`].
    pub dtype: Option<DType>,
}

/// A feature, as a user writes it down.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct FeatureSpec {
    /// Its name.
    pub name: String,
    /// Its table's name in the model.
    pub table: String,
    /// What the model does with the rows; `None` for [`BuildSpec::pooling`].
    pub pooling: Option<Pooling>,
    /// The most ids of one inference; `None` for [`BuildSpec::max_ids`].
    pub max_ids: Option<usize>,
}

/// What to build of a checkpoint; [`plan`] and [`build`] check it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written out by callers, with ..Default::default()")]
pub struct BuildSpec {
    /// The model's name.
    pub name: String,
    /// Which tensors are tables, by patterns of `*` and `?`; empty for all that are named as
    /// embeddings. Not beside [`tables`](Self::tables).
    pub patterns: Vec<String>,
    /// Which tensors are tables, one by one.
    pub tables: Vec<TableSpec>,
    /// The features, in the order of requests; empty for one a table, of its name.
    pub features: Vec<FeatureSpec>,
    /// Of features that say nothing else.
    pub pooling: Pooling,
    /// Of features that say nothing else.
    pub max_ids: usize,
    /// How to store values of tables that say nothing else; `None` keeps each tensor's own type.
    pub dtype: Option<DType>,
    /// Whether to keep the tensors that are no tables.
    pub dense: bool,
}

impl Default for BuildSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            patterns: Vec::new(),
            tables: Vec::new(),
            features: Vec::new(),
            pooling: Pooling::Sum,
            max_ids: 1,
            dtype: None,
            dense: true,
        }
    }
}

/// A table that [`build`] would make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PlannedTable {
    /// Its name in the model.
    pub name: String,
    /// The tensor's name in the checkpoint.
    pub key: String,
    /// How many rows.
    pub rows: u64,
    /// Values a row.
    pub dim: usize,
    /// What the values are called in the checkpoint.
    pub stored: String,
    /// How they would be stored.
    pub dtype: DType,
}

/// What [`build`] would make of a checkpoint.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// Its tables.
    pub tables: Vec<PlannedTable>,
    /// Its features; [`Feature::table`] is an index into `tables`.
    pub features: Vec<Feature>,
    /// The tensors that would be kept beside them, by name.
    pub dense: Vec<String>,
    /// The tensors that would not be kept, by name: an optimizer's state, or all that are no tables.
    pub left_out: Vec<String>,
}

struct Chosen<'a> {
    stored: &'a Stored,
    name: String,
    shape: Shape,
}

/// Says what [`build`] would make, and checks all of it that needs no rows.
///
/// # Errors
/// [`Error::Model`] for a checkpoint without embeddings, and for what no manifest holds.
pub fn plan(checkpoint: &Checkpoint, spec: &BuildSpec) -> Result<Plan, Error> {
    let (chosen, features) = check(checkpoint, spec).map_err(Error::model(checkpoint.path()))?;
    let (dense, left_out) = split_dense(checkpoint, spec, &chosen);
    let tables = chosen.iter().map(|chosen| PlannedTable {
        name: chosen.name.clone(),
        key: chosen.stored.info.name.clone(),
        rows: chosen.shape.rows(),
        dim: chosen.shape.dim(),
        stored: chosen.stored.info.dtype.clone(),
        dtype: chosen.shape.dtype(),
    });
    let name = |stored: &&Stored| stored.info.name.clone();
    Ok(Plan {
        tables: tables.collect(),
        features,
        dense: dense.iter().map(name).collect(),
        left_out: left_out.iter().map(name).collect(),
    })
}

/// Builds a model bundle at `out` from a checkpoint: its tables, a chunk of rows at a time, and the
/// rest of its tensors as they are.
///
/// The same checkpoint and spec make the same manifest, and so the same version. As with a table,
/// the bundle takes its place in one step, and an older one stands until then. `progress` is called
/// with what is done and what there is to do, in bytes of the bundle.
///
/// # Errors
/// As [`plan`]; else as [`crate::build`], with the file that is at fault.
pub fn build(
    checkpoint: &Checkpoint,
    spec: &BuildSpec,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<ModelManifest, Error> {
    let wrong = |source| Error::model(checkpoint.path())(source);
    let (chosen, features) = check(checkpoint, spec).map_err(wrong)?;
    let (dense, _) = split_dense(checkpoint, spec, &chosen);
    if let Some(odd) = dense.iter().find(|stored| stored.kind.is_none()) {
        return Err(wrong(ModelError::DenseType { tensor: describe(&odd.info) }));
    }
    let mut total: u64 = chosen.iter().map(|chosen| chosen.shape.content_bytes()).sum();
    for stored in &dense {
        total = total.saturating_add(checkpoint.size_of(stored)?);
    }
    let mut done = 0;
    let mut writer = ModelWriter::new(out, &spec.name)?;
    progress(0, total);
    for Chosen { stored, name, shape } in &chosen {
        let path = writer.table_path(name)?;
        let mut advance = |rows: u64, _: u64| {
            progress(done + rows * shape.row_bytes() as u64, total);
        };
        let origin = origin(checkpoint, stored);
        match &stored.content {
            Content::Bundle(from, _) => {
                convert_table(&Table::open(from)?, name, shape.dtype(), &path, &mut advance)?;
            }
            Content::Pieces(_) => {
                let tensor = checkpoint.table(stored)?;
                build_tensor(&tensor, *shape, name, &origin, &path, &mut advance)?;
            }
        }
        writer.adopt_table(name)?;
        done += shape.content_bytes();
    }
    if !dense.is_empty() {
        write_dense(&mut writer, checkpoint, &dense, &mut |bytes| {
            done += bytes;
            progress(done, total);
        })?;
    }
    writer.finish(&features)
}

/// What a table's manifest says it was built from.
fn origin(checkpoint: &Checkpoint, stored: &Stored) -> String {
    let file = checkpoint.path().file_name().unwrap_or_default().to_string_lossy();
    format!("{file}#{}", stored.info.name)
}

/// Which tensors become tables, and the features; all that a manifest will be checked for, but for
/// the hashes that are not known yet.
fn check<'a>(
    checkpoint: &'a Checkpoint,
    spec: &BuildSpec,
) -> Result<(Vec<Chosen<'a>>, Vec<Feature>), ModelError> {
    check_name("model", &spec.name)?;
    let mut chosen = Vec::new();
    let mut push = |stored: &'a Stored, name: String, dtype: Option<DType>| {
        let own = match (&stored.content, stored.info.element) {
            (Content::Bundle(_, dtype), _) => *dtype,
            (_, Some(element)) => element.dtype(),
            (_, None) => return Err(ModelError::NotATable { tensor: describe(&stored.info) }),
        };
        let dim = usize::try_from(stored.info.shape[1]).unwrap_or(usize::MAX);
        let shape = Shape::new(stored.info.shape[0], dim, dtype.or(spec.dtype).unwrap_or(own));
        let shape = shape.map_err(|source| ModelError::Shape { table: name.clone(), source })?;
        chosen.push(Chosen { stored, name, shape });
        Ok(())
    };
    if spec.tables.is_empty() {
        let stored = choose(checkpoint, &spec.patterns)?;
        let names = table_names(&stored)?;
        for (stored, name) in stored.into_iter().zip(names) {
            push(stored, name, None)?;
        }
    } else {
        for table in &spec.tables {
            push(choice::find(checkpoint, &table.key)?, table.name.clone(), table.dtype)?;
        }
    }
    let features = match spec.features.is_empty() {
        true => chosen
            .iter()
            .enumerate()
            .map(|(table, chosen)| Feature {
                name: chosen.name.clone(),
                table,
                pooling: spec.pooling,
                max_ids: spec.max_ids,
            })
            .collect(),
        false => spec
            .features
            .iter()
            .map(|feature| {
                let table = chosen.iter().position(|chosen| chosen.name == feature.table);
                let table = table.ok_or_else(|| ModelError::UnknownTable {
                    table: feature.table.chars().take(160).collect(),
                    tables: chosen.iter().take(8).map(|chosen| chosen.name.clone()).collect(),
                    table_count: chosen.len(),
                })?;
                Ok(Feature {
                    name: feature.name.clone(),
                    table,
                    pooling: feature.pooling.unwrap_or(spec.pooling),
                    max_ids: feature.max_ids.unwrap_or(spec.max_ids),
                })
            })
            .collect::<Result<Vec<_>, ModelError>>()?,
    };
    // The limits of a manifest hold before hours are spent on its rows.
    let tables = chosen.iter().map(|chosen| TableRef {
        name: chosen.name.clone(),
        version: Version::from([0; 32]),
        shape: chosen.shape,
        layout: None,
    });
    let spec =
        ModelSpec { name: spec.name.clone(), tables: tables.collect(), features, dense: None };
    let features = ModelManifest::new(spec)?.features().to_vec();
    Ok((chosen, features))
}

/// The tensors that are kept beside the tables, and those that are not.
fn split_dense<'a>(
    checkpoint: &'a Checkpoint,
    spec: &BuildSpec,
    chosen: &[Chosen<'_>],
) -> (Vec<&'a Stored>, Vec<&'a Stored>) {
    let is_chosen =
        |stored: &&Stored| chosen.iter().any(|chosen| chosen.stored.info.name == stored.info.name);
    // The scales of 8-bit floats are in their tables.
    let scales = checkpoint.scales();
    let rest = checkpoint.stored().iter().filter(|stored| !is_chosen(stored));
    rest.partition(|stored| {
        let is_bundle = matches!(stored.content, Content::Bundle(..));
        // A safetensors header has its own meaning for this name.
        let is_reserved = stored.info.name == "__metadata__";
        spec.dense
            && !is_bundle
            && !is_reserved
            && !scales.contains(&stored.info.name)
            && !choice::is_optimizer_state(&stored.info.name)
    })
}
