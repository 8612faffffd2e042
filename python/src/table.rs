//! Tables in the clear: build, open, read, verify.

use std::path::PathBuf;
use std::sync::Arc;

use hushtable_table::{BuildSpec, DType, Shape, Source, Table, decode_rows, encode_rows, patch};
use numpy::{IntoPyArray, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::facts::TableFacts;
use crate::layout::NativeLayout;

/// An opened bundle, or a table in memory.
#[pyclass(frozen, module = "hushtable._native", name = "Table")]
pub(crate) struct NativeTable {
    table: Table,
}

#[pymethods]
impl NativeTable {
    /// Opens the bundle at `path`, memory-mapped.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let table = py.detach(|| Table::open(&path)).map_err(Failure::from)?;
        Ok(Self { table })
    }

    /// A table in memory from float32 values [rows, dim].
    #[staticmethod]
    fn from_weight(
        py: Python<'_>,
        name: &str,
        values: PyReadonlyArray2<'_, f32>,
        dtype: &str,
    ) -> PyResult<Self> {
        let dtype = parse_dtype(dtype)?;
        let (rows, dim) = values.as_array().dim();
        let values = values.as_slice()?;
        let table = py
            .detach(|| Table::from_weight(name, rows as u64, dim, dtype, values))
            .map_err(Failure::from)?;
        Ok(Self { table })
    }

    /// A table in memory from its rows as served.
    #[staticmethod]
    fn from_served(
        py: Python<'_>,
        name: &str,
        rows: u64,
        dim: usize,
        dtype: &str,
        served: &[u8],
    ) -> PyResult<Self> {
        let dtype = parse_dtype(dtype)?;
        let make = || Table::from_served(name, Shape::new(rows, dim, dtype)?, served.to_vec());
        Ok(Self { table: py.detach(make).map_err(Failure::from)? })
    }

    /// All rows as served.
    fn served(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        let mut served = vec![0; self.table.shape().content_bytes() as usize];
        py.detach(|| self.table.copy_rows(0, &mut served)).map_err(Failure::from)?;
        Ok(served)
    }

    /// Writes the table as a bundle, in one step.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.table.save(&path)).map_err(Failure::from)?;
        Ok(())
    }

    /// The rows `ids` as float32 [ids, dim].
    fn rows<'py>(
        &self,
        py: Python<'py>,
        ids: PyReadonlyArray1<'py, u64>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let ids = ids.as_slice()?;
        let values = py.detach(|| self.decode(ids))?;
        values.into_pyarray(py).reshape([ids.len(), self.table.dim()])
    }

    /// The table with another layout; saving it writes both.
    fn with_layout(&self, layout: &NativeLayout) -> PyResult<Self> {
        let table = self.table.clone().with_layout(Arc::clone(layout.layout()));
        Ok(Self { table: table.map_err(Failure::from)? })
    }

    /// The layout, if the table has one.
    fn layout(&self) -> Option<NativeLayout> {
        self.table.layout().map(|layout| NativeLayout::new(Arc::clone(layout)))
    }

    /// What the table is.
    fn facts(&self) -> TableFacts {
        TableFacts::of_table(&self.table)
    }

    /// The version of the bundle that was built whole, below the table's patch; its own where it has none.
    #[getter]
    fn base_version(&self) -> String {
        self.table.base_version().to_string()
    }

    /// How many rows the table's patch changes.
    #[getter]
    fn changed_rows(&self) -> usize {
        self.table.patch().map_or(0, |patch| patch.ids().len())
    }

    /// The file that the table was built from; empty where there was none.
    #[getter]
    fn created_from(&self) -> &str {
        self.table.manifest().created_from()
    }

    /// Values that are no finite number.
    #[getter]
    fn nonfinite_count(&self) -> u64 {
        self.table.manifest().nonfinite_count()
    }
}

impl NativeTable {
    pub(crate) fn new(table: Table) -> Self {
        Self { table }
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    fn decode(&self, ids: &[u64]) -> Result<Vec<f32>, Failure> {
        let (table, row_bytes) = (&self.table, self.table.row_bytes());
        if let Some(&id) = ids.iter().find(|&&id| id >= table.rows()) {
            return Err(Failure::id_out_of_range(id, table.rows()));
        }
        let mut served = vec![0; ids.len() * row_bytes];
        for (&id, row) in ids.iter().zip(served.chunks_exact_mut(row_bytes)) {
            table.copy_rows(id, row)?;
        }
        let mut values = vec![0.0; ids.len() * table.dim()];
        decode_rows(table.dtype(), table.dim(), &served, &mut values)?;
        Ok(values)
    }
}

/// Builds a bundle from a .safetensors, .npy, .pt, .pth or .bin file; see
/// `hushtable.build_table`.
#[pyfunction]
#[pyo3(signature = (source, out, *, name, key, dtype, progress))]
pub(crate) fn build_table(
    py: Python<'_>,
    source: PathBuf,
    out: PathBuf,
    name: String,
    key: Option<String>,
    dtype: Option<&str>,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let dtype = dtype.map(parse_dtype).transpose()?;
    let spec = BuildSpec { name, dtype, created_from: None };
    let mut reporter = Reporter::new(progress);
    py.detach(|| {
        let source = Source::from_path(source, key)?;
        hushtable_table::build(&source, &spec, &out, &mut |done, rows| reporter.call(done, rows))
    })
    .map_err(Failure::from)?;
    reporter.finish()
}

/// Makes the bundle of a next version, with other values in rows `ids`; see `hushtable.Table.patch`.
#[pyfunction]
pub(crate) fn patch_table(
    py: Python<'_>,
    base: PathBuf,
    ids: PyReadonlyArray1<'_, u64>,
    values: PyReadonlyArray2<'_, f32>,
    out: PathBuf,
) -> PyResult<()> {
    let (ids, values) = (ids.as_slice()?, values.as_slice()?);
    let run = || {
        let table = Table::open(&base)?;
        let mut served = vec![0; values.len() / table.dim().max(1) * table.row_bytes()];
        encode_rows(table.dtype(), table.dim(), values, &mut served)?;
        patch::patch(&base, ids, &served, &out).map(drop)
    };
    Ok(py.detach(run).map_err(Failure::from)?)
}

/// Makes the bundle of a next version by another bundle's `rows.patch`.
#[pyfunction]
pub(crate) fn apply_patch(
    py: Python<'_>,
    base: PathBuf,
    file: PathBuf,
    out: PathBuf,
) -> PyResult<()> {
    py.detach(|| patch::patch_from(&base, &file, &out)).map_err(Failure::from)?;
    Ok(())
}

/// Makes a bundle of what `next` holds as a patch of the bundle at `base`.
#[pyfunction]
pub(crate) fn follow_table(
    py: Python<'_>,
    base: PathBuf,
    next: &NativeTable,
    out: PathBuf,
) -> PyResult<()> {
    py.detach(|| patch::follow(&base, &next.table, &out)).map_err(Failure::from)?;
    Ok(())
}

/// What was found of a bundle's bytes.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct VerifyFacts {
    rows: u64,
    is_ok: bool,
    damage_count: u64,
    damaged: Vec<DamageFacts>,
}

/// A place where a bundle is not what was built.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct DamageFacts {
    file: &'static str,
    row: Option<u64>,
    what: String,
}

/// Checks every byte of a bundle.
#[pyfunction]
#[pyo3(signature = (path, *, progress))]
pub(crate) fn verify_table(
    py: Python<'_>,
    path: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<VerifyFacts> {
    let mut reporter = Reporter::new(progress);
    let report = py
        .detach(|| hushtable_table::verify(&path, &mut |done, rows| reporter.call(done, rows)))
        .map_err(Failure::from)?;
    reporter.finish()?;
    let place =
        |d: &hushtable_table::Damage| DamageFacts { file: d.file, row: d.row, what: d.to_string() };
    Ok(VerifyFacts {
        rows: report.rows,
        is_ok: report.ok,
        damage_count: report.damaged_count,
        damaged: report.damaged.iter().map(place).collect(),
    })
}

fn parse_dtype(name: &str) -> Result<DType, Failure> {
    name.parse().map_err(Failure::config)
}

/// Calls a Python function with the progress, and keeps the first error that it raises.
pub(crate) struct Reporter {
    callback: Option<Py<PyAny>>,
    error: Option<PyErr>,
}

impl Reporter {
    pub(crate) fn new(callback: Option<Py<PyAny>>) -> Self {
        Self { callback, error: None }
    }

    pub(crate) fn call(&mut self, done: u64, rows: u64) {
        if let (Some(callback), None) = (&self.callback, &self.error) {
            self.error = Python::attach(|py| callback.call1(py, (done, rows))).err();
        }
    }

    pub(crate) fn finish(self) -> PyResult<()> {
        self.error.map_or(Ok(()), Err)
    }
}
