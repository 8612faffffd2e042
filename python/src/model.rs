//! Model bundles: build, open, verify. Facts go to Python as the JSON that describes them.

use std::path::PathBuf;

use hushtable_table::model::{self, BuildSpec, Feature, FeatureSpec, Model, TableSpec};
use hushtable_table::{Checkpoint, DType};
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::Failure;
use crate::table::{NativeTable, Reporter};

/// `(name, key, dtype)` of a table that is chosen by its tensor's name.
type TableChoice = (String, String, Option<String>);
/// `(name, table, pooling, max_ids)` of a feature.
type FeatureChoice = (String, String, Option<String>, Option<usize>);

/// An open model bundle.
#[pyclass(frozen, module = "hushtable._native", name = "Model")]
pub(crate) struct NativeModel {
    model: Model,
}

#[pymethods]
impl NativeModel {
    /// Opens the model at `path`: its folder, or its manifest.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let model = py.detach(|| Model::open(&path)).map_err(Failure::from)?;
        Ok(Self { model })
    }

    /// The folder.
    fn path(&self) -> PathBuf {
        self.model.path().to_owned()
    }

    /// The text of the manifest.
    fn manifest(&self) -> String {
        String::from_utf8_lossy(&self.model.manifest().to_json()).into_owned()
    }

    /// The model's version.
    fn version(&self) -> String {
        self.model.manifest().version().to_string()
    }

    /// The dense file, if there is one.
    fn dense_path(&self) -> Option<PathBuf> {
        self.model.dense_path()
    }

    /// Where the table of this name is, and where its prepared file is or would be.
    fn places(&self, name: &str) -> PyResult<(PathBuf, PathBuf)> {
        let index = self.find(name)?;
        Ok((self.model.table_path(index), self.model.prepared_path(index)))
    }

    /// The compiled plans, each with what is wrong with it, as JSON.
    fn plans(&self, py: Python<'_>) -> PyResult<String> {
        let found = py.detach(|| {
            let plans = self.model.plan_names()?.into_iter().map(|name| match self.model.plan(&name) {
                Ok(plan) => json!({
                    "name": name,
                    "scheme": plan.scheme,
                    "version": plan.version,
                    "error": null,
                }),
                Err(error) => {
                    json!({ "name": name, "scheme": "", "version": "", "error": error.to_string() })
                }
            });
            Ok::<_, hushtable_table::Error>(plans.collect::<Vec<_>>())
        });
        Ok(serde_json::Value::from(found.map_err(Failure::from)?).to_string())
    }

    /// Opens the table of this name, and checks that it is the manifest's.
    fn table(&self, py: Python<'_>, name: &str) -> PyResult<NativeTable> {
        let index = self.find(name)?;
        let table = py.detach(|| self.model.table(index)).map_err(Failure::from)?;
        Ok(NativeTable::new(table))
    }

    /// Writes the model at `out` with another table in place of the one of this name.
    fn replace_table(
        &self,
        py: Python<'_>,
        name: &str,
        table: &NativeTable,
        out: PathBuf,
    ) -> PyResult<()> {
        let replaced = py.detach(|| self.model.replace_table(name, table.table(), &out));
        replaced.map_err(Failure::from)?;
        Ok(())
    }
}

impl NativeModel {
    fn find(&self, name: &str) -> Result<usize, Failure> {
        let found = self.model.manifest().find_table(name);
        found.map_err(|error| Failure::new("ModelError", error))
    }
}

/// Writes a model of one table, read by one feature of its name.
#[pyfunction]
#[pyo3(signature = (out, name, table_name, table, *, pooling, max_ids))]
pub(crate) fn write_model(
    py: Python<'_>,
    out: PathBuf,
    name: &str,
    table_name: &str,
    table: &NativeTable,
    pooling: &str,
    max_ids: usize,
) -> PyResult<()> {
    let pooling = pooling.parse().map_err(Failure::config)?;
    let features = [Feature { name: table_name.to_owned(), table: 0, pooling, max_ids }];
    let tables = [(table_name, table.table())];
    py.detach(|| model::write(&out, name, &tables, &features, None)).map_err(Failure::from)?;
    Ok(())
}

/// Writes a model without tables: a safetensors file, which is copied.
#[pyfunction]
pub(crate) fn model_of_dense(
    py: Python<'_>,
    out: PathBuf,
    name: &str,
    dense: PathBuf,
) -> PyResult<()> {
    py.detach(|| model::write(&out, name, &[], &[], Some(&dense))).map_err(Failure::from)?;
    Ok(())
}

/// Says what `build_model` would make, as JSON.
#[pyfunction]
#[pyo3(signature = (checkpoint, *, name, patterns, tables, features, pooling, max_ids, dtype, dense))]
#[allow(clippy::too_many_arguments, reason = "the fields of the spec")]
pub(crate) fn plan_model(
    py: Python<'_>,
    checkpoint: PathBuf,
    name: String,
    patterns: Vec<String>,
    tables: Vec<TableChoice>,
    features: Vec<FeatureChoice>,
    pooling: &str,
    max_ids: usize,
    dtype: Option<&str>,
    dense: bool,
) -> PyResult<String> {
    let spec = spec(name, patterns, tables, features, pooling, max_ids, dtype, dense)?;
    let found = py.detach(|| {
        let checkpoint = Checkpoint::open(&checkpoint)?;
        let plan = model::plan(&checkpoint, &spec)?;
        let features = plan.features.iter().map(|feature| {
            json!({
                "name": feature.name,
                "table": plan.tables[feature.table].name,
                "pooling": feature.pooling,
                "max_ids": feature.max_ids,
            })
        });
        Ok(json!({
            "format": checkpoint.format().name(),
            "tables": plan.tables,
            "features": features.collect::<Vec<_>>(),
            "dense": plan.dense,
            "left_out": plan.left_out,
        }))
    });
    Ok(found.map_err(|error: hushtable_table::Error| Failure::from(error))?.to_string())
}

/// Builds a model bundle from a checkpoint; see `hushtable.Model.build`.
#[pyfunction]
#[pyo3(signature = (
    checkpoint, out, *, name, patterns, tables, features, pooling, max_ids, dtype, dense, progress
))]
#[allow(clippy::too_many_arguments, reason = "the fields of the spec")]
pub(crate) fn build_model(
    py: Python<'_>,
    checkpoint: PathBuf,
    out: PathBuf,
    name: String,
    patterns: Vec<String>,
    tables: Vec<TableChoice>,
    features: Vec<FeatureChoice>,
    pooling: &str,
    max_ids: usize,
    dtype: Option<&str>,
    dense: bool,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let spec = spec(name, patterns, tables, features, pooling, max_ids, dtype, dense)?;
    let mut reporter = Reporter::new(progress);
    py.detach(|| {
        let checkpoint = Checkpoint::open(&checkpoint)?;
        model::build(&checkpoint, &spec, &out, &mut |done, all| reporter.call(done, all))
    })
    .map_err(|error: hushtable_table::Error| Failure::from(error))?;
    reporter.finish()
}

/// Checks every byte of a model bundle; the report as JSON.
#[pyfunction]
#[pyo3(signature = (path, *, progress))]
pub(crate) fn verify_model(
    py: Python<'_>,
    path: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let mut reporter = Reporter::new(progress);
    let report = py
        .detach(|| model::verify(&path, &mut |done, all| reporter.call(done, all)))
        .map_err(Failure::from)?;
    reporter.finish()?;
    let tables = report.tables.iter().map(|table| {
        let damaged: Vec<String> = table.damaged.iter().map(ToString::to_string).collect();
        json!({
            "name": table.name,
            "rows": table.rows,
            "ok": table.ok(),
            "error": table.error,
            "damaged": damaged,
            "damaged_count": table.damaged_count,
        })
    });
    let tables: Vec<_> = tables.collect();
    let (ok, dense, plans) = (report.ok, report.dense, report.plans);
    Ok(json!({ "ok": ok, "tables": tables, "dense": dense, "plans": plans }).to_string())
}

#[allow(clippy::too_many_arguments, reason = "the fields of the spec")]
fn spec(
    name: String,
    patterns: Vec<String>,
    tables: Vec<TableChoice>,
    features: Vec<FeatureChoice>,
    pooling: &str,
    max_ids: usize,
    dtype: Option<&str>,
    dense: bool,
) -> Result<BuildSpec, Failure> {
    let parse_dtype = |dtype: &str| dtype.parse::<DType>().map_err(Failure::config);
    let tables = tables.into_iter().map(|(name, key, dtype)| {
        let dtype = dtype.as_deref().map(parse_dtype).transpose()?;
        Ok(TableSpec { name, key, dtype })
    });
    let features = features.into_iter().map(|(name, table, pooling, max_ids)| {
        let pooling = pooling.map(|it| it.parse().map_err(Failure::config)).transpose()?;
        Ok(FeatureSpec { name, table, pooling, max_ids })
    });
    Ok(BuildSpec {
        name,
        patterns,
        tables: tables.collect::<Result<_, Failure>>()?,
        features: features.collect::<Result<_, Failure>>()?,
        pooling: pooling.parse().map_err(Failure::config)?,
        max_ids,
        dtype: dtype.map(parse_dtype).transpose()?,
        dense,
    })
}
