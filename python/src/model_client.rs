//! Private lookups of a model: many tables behind one address.

use std::path::PathBuf;
use std::sync::Arc;

use hushtable_serve::{ClientSpec, FeatureRows, ModelClient, ModelLookup, ModelPin};
use hushtable_table::model::ModelManifest;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::client::{NativeRows, pinned_version};
use crate::connected::{Connect, Connected, NativeCall};
use crate::errors::Failure;
use crate::facts::{Costs, ModelFacts};
use crate::trust::{Authorities, Trust, duration};

/// A client of a model at a left and a right server, for many threads and for forked children.
#[pyclass(frozen, module = "hushtable._native", name = "ModelClient")]
pub(crate) struct NativeModelClient(Connected<ModelClient>);

/// Rows of an inference.
#[pyclass(frozen, module = "hushtable._native", name = "ModelRows")]
pub(crate) struct NativeModelRows {
    features: Vec<Py<NativeFeatureRows>>,
    /// Ids to which all features together are padded.
    #[pyo3(get)]
    max_ids: usize,
    #[pyo3(get)]
    costs: Costs,
}

#[pymethods]
impl NativeModelRows {
    /// In the order in which they were asked for.
    #[getter]
    fn features(&self, py: Python<'_>) -> Vec<Py<NativeFeatureRows>> {
        self.features.iter().map(|rows| rows.clone_ref(py)).collect()
    }
}

/// Rows of one feature.
#[pyclass(frozen, get_all, module = "hushtable._native", name = "FeatureRows")]
pub(crate) struct NativeFeatureRows {
    /// float32 [ids, dim]; zero where an id was dropped.
    values: Py<PyArray2<f32>>,
    /// Which ids' rows are there.
    kept: Py<PyArray1<bool>>,
    /// Distinct ids that were dropped.
    dropped: usize,
}

/// A model's servers, and which model of theirs.
pub(crate) struct ModelEndpoints {
    spec: ClientSpec,
    pin: ModelPin,
}

impl Connect for ModelClient {
    type Spec = ModelEndpoints;

    async fn connect(endpoints: &ModelEndpoints) -> Result<Self, Failure> {
        let has_certificate = endpoints.spec.left.identity.is_some();
        let connected = Self::connect(&endpoints.spec, &endpoints.pin).await;
        connected.map_err(|error| Failure::at_connect(error, has_certificate))
    }
}

#[pymethods]
impl NativeModelClient {
    /// Connects to both servers; `model` is a model's name, none for their only one. Other arguments
    /// as of `PairClient`.
    #[new]
    #[pyo3(signature = (left, right, *, cas, certificate, names, prg, insecure, connect_seconds,
                        seconds, layout_bytes_max, version, model))]
    #[allow(clippy::too_many_arguments, reason = "called from one place, by keyword")]
    fn new(
        py: Python<'_>,
        left: Vec<String>,
        right: Vec<String>,
        cas: (Option<Authorities>, Option<Authorities>),
        certificate: Option<(PathBuf, PathBuf)>,
        names: (Option<String>, Option<String>),
        prg: &str,
        insecure: bool,
        connect_seconds: f64,
        seconds: f64,
        layout_bytes_max: u64,
        version: Option<&str>,
        model: Option<String>,
    ) -> PyResult<Self> {
        let [of_left, of_right] = Trust::of_sides(cas, certificate)?;
        let lookup_max = duration("timeout", seconds)?;
        let spec = ClientSpec {
            prg: prg.parse().map_err(Failure::config)?,
            insecure,
            connect_max: duration("connect_timeout", connect_seconds)?,
            call_max: lookup_max,
            lookup_max,
            layout_bytes_max,
            ..ClientSpec::new(of_left.side(left, names.0)?, of_right.side(right, names.1)?)
        };
        let pin = ModelPin { model, version: pinned_version(version)? };
        Ok(Self(Connected::open(py, ModelEndpoints { spec, pin })?))
    }

    /// One inference: ids by features' names.
    fn lookup(
        &self,
        py: Python<'_>,
        asked: Vec<(String, PyReadonlyArray1<'_, u64>)>,
    ) -> PyResult<NativeModelRows> {
        let asked = owned(&asked)?;
        let session = self.0.session(py)?;
        let found = session.run(py, session.client().lookup(&borrowed(&asked)))?;
        NativeModelRows::new(py, found)
    }

    /// As `PairClient.start_lookup`, for an inference.
    fn start_lookup(
        &self,
        py: Python<'_>,
        asked: Vec<(String, PyReadonlyArray1<'_, u64>)>,
        done: Py<PyAny>,
    ) -> PyResult<NativeCall> {
        let asked = owned(&asked)?;
        let call =
            move |client: Arc<ModelClient>| async move { client.lookup(&borrowed(&asked)).await };
        self.0.start(py, done, call, |py, found| {
            Ok(Py::new(py, NativeModelRows::new(py, found)?)?.into_any())
        })
    }

    /// Rows of the table of one feature.
    fn lookup_feature(
        &self,
        py: Python<'_>,
        feature: &str,
        ids: PyReadonlyArray1<'_, u64>,
        max_ids: usize,
    ) -> PyResult<NativeRows> {
        let (ids, session) = (ids.as_slice()?, self.0.session(py)?);
        let table = session.client().table(feature).map_err(Failure::from)?;
        let found = session.run(py, table.lookup(ids, max_ids))?;
        NativeRows::new(py, &found, ids.len())
    }

    /// As `PairClient.start_lookup`, for `lookup_feature`.
    fn start_lookup_feature(
        &self,
        py: Python<'_>,
        feature: String,
        ids: PyReadonlyArray1<'_, u64>,
        max_ids: usize,
        done: Py<PyAny>,
    ) -> PyResult<NativeCall> {
        let ids = ids.as_slice()?.to_vec();
        let count = ids.len();
        let call = move |client: Arc<ModelClient>| async move {
            client.table(&feature)?.lookup(&ids, max_ids).await
        };
        self.0.start(py, done, call, move |py, found| NativeRows::object(py, &found, count))
    }

    /// The model.
    fn info(&self, py: Python<'_>) -> PyResult<ModelFacts> {
        Ok(ModelFacts::of_manifest(&self.0.session(py)?.client().info().manifest))
    }

    /// Closes the connections; lookups under way finish.
    fn close(&self) {
        self.0.close();
    }
}

impl NativeModelRows {
    fn new(py: Python<'_>, found: ModelLookup) -> PyResult<Self> {
        let ModelLookup { features, facts, stats, .. } = found;
        let rows = |rows: FeatureRows| Py::new(py, NativeFeatureRows::new(py, rows)?);
        Ok(Self {
            features: features.into_iter().map(rows).collect::<Result<_, _>>()?,
            max_ids: facts.manifest.features().iter().map(|feature| feature.max_ids).sum(),
            costs: Costs::new(&stats),
        })
    }
}

impl NativeFeatureRows {
    fn new(py: Python<'_>, rows: FeatureRows) -> PyResult<Self> {
        let FeatureRows { rows, kept, dropped, format, .. } = rows;
        let values = py.detach(|| format.decode(&rows)).map_err(Failure::from)?;
        let values = values.into_pyarray(py).reshape([kept.len(), format.dim])?.unbind();
        Ok(Self { values, kept: kept.into_pyarray(py).unbind(), dropped })
    }
}

/// Ids by features' names, as a call on another thread may hold them.
type Asked = Vec<(String, Vec<u64>)>;

fn owned(asked: &[(String, PyReadonlyArray1<'_, u64>)]) -> PyResult<Asked> {
    asked.iter().map(|(name, ids)| Ok((name.clone(), ids.as_slice()?.to_vec()))).collect()
}

fn borrowed(asked: &Asked) -> Vec<(&str, &[u64])> {
    asked.iter().map(|(name, ids)| (&name[..], &ids[..])).collect()
}

/// The name and the version of the model whose bundle or manifest is at `path`.
#[pyfunction]
pub(crate) fn model_pin(py: Python<'_>, path: PathBuf) -> PyResult<(String, String)> {
    let manifest = py.detach(|| ModelManifest::read(&path)).map_err(Failure::from)?;
    Ok((manifest.name().to_owned(), manifest.version().to_string()))
}
