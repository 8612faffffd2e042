//! Private lookups of a model: many tables behind one address.

use std::path::PathBuf;
use std::sync::Arc;

use hushtable_serve::{
    ClientSpec, Error, FeatureRows, LookupClient, ModelClient, ModelLookup, ModelPin,
};
use hushtable_table::model::ModelManifest;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::asked::{Answer, Asked, Given, answer, unknown};
use crate::connected::Connect;
use crate::errors::Failure;
use crate::facts::{Costs, ModelFacts};
use crate::reach::Reach;
use crate::schemes::rows::NativeRows;

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

    async fn connect(endpoints: &ModelEndpoints) -> Result<Self, Error> {
        Self::connect(&endpoints.spec, &endpoints.pin).await
    }
}

impl Asked for ModelClient {
    /// As of a table's pair, whose version is the model's.
    fn spec(reach: &Reach<'_>) -> PyResult<ModelEndpoints> {
        let mut spec = LookupClient::spec(reach)?;
        let pin = ModelPin { model: reach.model.clone(), version: spec.version.take() };
        Ok(ModelEndpoints { spec, pin })
    }

    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        ModelFacts::of_manifest(&self.info().manifest).into_py_any(py)
    }

    fn ask<'a>(self: Arc<Self>, call: &str, given: &mut Given<'a, '_, '_>) -> PyResult<Answer<'a>> {
        Ok(match call {
            // One inference: ids by features' names.
            "lookup" => {
                let asked: Vec<(String, PyReadonlyArray1<'_, u64>)> = given.other()?;
                let owned = |(name, ids): (_, PyReadonlyArray1<'_, u64>)| {
                    Ok((name, ids.as_slice()?.to_vec()))
                };
                let asked: Vec<(String, Vec<u64>)> =
                    asked.into_iter().map(owned).collect::<PyResult<_>>()?;
                let call = async move {
                    let asked: Vec<_> =
                        asked.iter().map(|(name, ids)| (&name[..], &ids[..])).collect();
                    self.lookup(&asked).await
                };
                answer(call, NativeModelRows::new)
            }
            // Rows of the table of one feature.
            "lookup_feature" => {
                let feature: String = given.other()?;
                let (ids, max_ids) = (given.ids()?, given.other()?);
                let count = ids.len();
                let call = async move { self.table(&feature)?.lookup(&ids, max_ids).await };
                answer(call, move |py, found| NativeRows::new(py, &found, count))
            }
            _ => return unknown(call),
        })
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

/// The name and the version of the model whose bundle or manifest is at `path`.
#[pyfunction]
pub(crate) fn model_pin(py: Python<'_>, path: PathBuf) -> PyResult<(String, String)> {
    let manifest = py.detach(|| ModelManifest::read(&path)).map_err(Failure::from)?;
    Ok((manifest.name().to_owned(), manifest.version().to_string()))
}
