//! Layouts: what a trace suggests, what they cost, which ids they serve.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hushtable_pir::batch::{BatchBackend, BatchEngine, BatchKeys, Client, Geometry};
use hushtable_pir::dpf::Side;
use hushtable_pir::{EngineSpec, PrgKind};
use hushtable_table::Table;
use hushtable_table::layout::{Layout, LayoutSpec, Plan, Planner, Profile, Trace, simulate};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;
use crate::facts::LayoutFacts;
use crate::table::NativeTable;

/// A trace, counted.
#[pyclass(frozen, module = "hushtable._native", name = "Profile")]
pub(crate) struct NativeProfile {
    profile: Profile,
}

/// A layout of one version of one table.
#[pyclass(frozen, module = "hushtable._native", name = "Layout")]
pub(crate) struct NativeLayout {
    planner: Planner,
}

#[pymethods]
impl NativeProfile {
    /// Counts bags `ids[offsets[i]..offsets[i + 1]]` of a table with `rows`.
    #[new]
    fn new(
        py: Python<'_>,
        ids: PyReadonlyArray1<'_, u32>,
        offsets: PyReadonlyArray1<'_, u64>,
        rows: u64,
    ) -> PyResult<Self> {
        let (ids, offsets) = (ids.as_slice()?.to_vec(), offsets.as_slice()?.to_vec());
        let profile =
            py.detach(|| Profile::new(Trace::new(ids, offsets)?, rows)).map_err(Failure::from)?;
        Ok(Self { profile })
    }

    /// Reads of each row.
    fn counts<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u32>> {
        self.profile.counts().to_vec().into_pyarray(py)
    }

    /// The `count` rows most read, the most read first.
    fn ranked<'py>(&self, py: Python<'py>, count: usize) -> Bound<'py, PyArray1<u32>> {
        let ranked = self.profile.ranked();
        ranked[..count.min(ranked.len())].to_vec().into_pyarray(py)
    }

    /// The layout of `spec` (JSON) with the map that this trace suggests.
    #[pyo3(signature = (table, spec, progress=None))]
    fn design(
        &self,
        py: Python<'_>,
        table: &NativeTable,
        spec: &str,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<NativeLayout> {
        let spec: LayoutSpec = serde_json::from_str(spec).map_err(Failure::config)?;
        let table = table.table();
        let failed = Mutex::new(None::<PyErr>);
        // Told from several threads, one at a time.
        let report = |done: usize, rows: usize| {
            let Some(progress) = &progress else { return };
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            if failed.is_none() {
                *failed = Python::attach(|py| progress.call1(py, (done, rows))).err();
            }
        };
        let layout = py
            .detach(|| self.profile.design(&spec, table.shape(), table.version(), report))
            .map_err(Failure::from)?;
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(NativeLayout::new(Arc::new(layout))),
        }
    }
}

#[pymethods]
impl NativeLayout {
    /// The layout of the bundle at `path`, if it has one.
    #[staticmethod]
    fn of_bundle(py: Python<'_>, path: PathBuf) -> PyResult<Option<Self>> {
        let table = py.detach(|| Table::open(&path)).map_err(Failure::from)?;
        Ok(table.layout().map(|layout| Self::new(Arc::clone(layout))))
    }

    /// Reads what `to_bytes` wrote.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        Ok(Self::new(Arc::new(Layout::from_bytes(bytes).map_err(Failure::from)?)))
    }

    /// The layout as one message.
    fn to_bytes(&self) -> Vec<u8> {
        self.layout().to_bytes()
    }

    /// Writes the layout into the bundle at `path`, replacing the bundle in one step.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| {
            let table = Table::open(&path)?.with_layout(Arc::clone(self.layout()))?;
            Ok::<_, Failure>(table.save(&path)?)
        })?;
        Ok(())
    }

    /// The text of `layout.json`.
    fn to_json(&self) -> String {
        self.layout().to_json()
    }

    /// What the layout hashes to.
    fn version(&self) -> String {
        self.layout().version().to_string()
    }

    /// The layout, and what a client and its servers should know of it.
    fn facts(&self) -> LayoutFacts {
        LayoutFacts::new(self.layout())
    }

    /// What one inference costs; see `hushtable_pir::batch::Costs`.
    fn costs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let costs = Geometry::new(self.layout()).costs(self.layout());
        let dict = PyDict::new(py);
        for (name, value) in [
            ("keys", costs.keys),
            ("up_left_bytes", costs.up_left_bytes),
            ("up_right_bytes", costs.up_right_bytes),
            ("down_bytes", costs.down_bytes),
            ("comm_bytes", costs.comm_bytes),
            ("expanded_rows", costs.expanded_rows),
            ("prf_calls", costs.prf_calls),
            ("prf_blocks", costs.prf_blocks),
            ("product_bytes", costs.product_bytes),
            ("stored_bytes", costs.stored_bytes),
            ("map_bytes", costs.map_bytes),
        ] {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    /// For each id of each bag whether it is served.
    #[pyo3(signature = (ids, offsets, seed=0))]
    fn simulate<'py>(
        &self,
        py: Python<'py>,
        ids: PyReadonlyArray1<'py, u32>,
        offsets: PyReadonlyArray1<'py, u64>,
        seed: u64,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let (ids, offsets) = (ids.as_slice()?.to_vec(), offsets.as_slice()?.to_vec());
        let kept = py
            .detach(|| simulate(&self.planner, &Trace::new(ids, offsets)?, seed))
            .map_err(Failure::from)?;
        Ok(kept.into_pyarray(py))
    }

    /// The median seconds that a server needs for a pass over `batch` inferences, on random rows;
    /// of the two sides' the larger. It measures for about `seconds`.
    #[pyo3(signature = (batch, seconds, threads=1))]
    fn measure(&self, py: Python<'_>, batch: usize, seconds: f64, threads: usize) -> PyResult<f64> {
        if batch == 0 || !(0.0..=3600.0).contains(&seconds) {
            return Err(Failure::config("measure at least one inference, for 0 to 3600 s").into());
        }
        Ok(py.detach(|| measure(self.layout(), batch, seconds, threads))?)
    }

    fn __repr__(&self) -> String {
        format!("Layout({})", self.layout().version())
    }
}

impl NativeLayout {
    pub(crate) fn new(layout: Arc<Layout>) -> Self {
        Self { planner: Planner::new(layout) }
    }

    pub(crate) fn layout(&self) -> &Arc<Layout> {
        self.planner.layout()
    }
}

/// Fills row `id`. Any bytes take as long as others: an engine looks at none of them.
pub(crate) fn made_up_row<E>(id: u64, row: &mut [u8]) -> Result<(), E> {
    let word = id.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    for part in row.chunks_mut(word.len()) {
        part.copy_from_slice(&word[..part.len()]);
    }
    Ok(())
}

fn measure(layout: &Layout, batch: usize, seconds: f64, threads: usize) -> Result<f64, Failure> {
    let spec = EngineSpec { threads, ..EngineSpec::default() };
    let engine = BatchEngine::new(layout, &spec, made_up_row)?;
    let geometry = Geometry::new(layout);
    let client = Client::new(geometry.clone(), PrgKind::Aes128);
    let plan = Plan::empty(geometry.keys());
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for _ in 0..batch {
        let (request, _) = client.query(&plan)?;
        left.push(BatchKeys::parse(&geometry, Side::Left, request.left.clone())?);
        right.push(BatchKeys::parse(&geometry, Side::Right, request.right.clone())?);
    }
    let mut answers = vec![0; batch * geometry.answer_bytes()];
    let mut slower = 0.0f64;
    for requests in [&left, &right] {
        let mut times = Vec::new();
        let started = Instant::now();
        // The first pass warms caches and threads.
        engine.answer(requests, &mut answers)?;
        while times.len() < 3 || started.elapsed() < Duration::from_secs_f64(seconds / 2.0) {
            let pass = Instant::now();
            engine.answer(requests, &mut answers)?;
            times.push(pass.elapsed().as_secs_f64());
        }
        times.sort_unstable_by(f64::total_cmp);
        slower = slower.max(times[times.len() / 2]);
    }
    Ok(slower)
}
