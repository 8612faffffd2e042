//! What a table would become for one server, or for training, in numbers: nothing is made.

use hushtable_oram::geometry as oram;
use hushtable_oram::round::rows_at_once;
use hushtable_oram::tree::TreePlace;
use hushtable_pir::TableShape;
use hushtable_pir::onion::Geometry;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;
use crate::prepare::parameter_set;

/// Of the tree of `rows` rows of `row_bytes` bytes in buckets of `bucket_bytes`: Z, A, levels and the
/// root's children; with `cached_levels` in memory and rounds of up to `requests` rows the first level
/// on disk and the bytes of the file. `is_paired` for a tree of before there were rings.
#[pyfunction]
#[pyo3(signature = (rows, row_bytes, *, bucket_bytes, cached_levels, requests, is_paired))]
pub(crate) fn oram_shape(
    rows: u64,
    row_bytes: usize,
    bucket_bytes: usize,
    cached_levels: u32,
    requests: usize,
    is_paired: bool,
) -> PyResult<(usize, usize, u32, u32, u32, u64)> {
    let storage = if is_paired { oram::Storage::Pairs } else { oram::Storage::Rings };
    let spec = oram::GeometrySpec {
        bucket_bytes,
        storage,
        ..oram::GeometrySpec::on_disk(rows, row_bytes)
    };
    let tree = oram::Geometry::new(&spec).map_err(|error| Failure::new("ConfigError", error))?;
    let place = TreePlace::new(&tree, cached_levels, rows_at_once(rows, requests));
    let shape = (tree.slots(), tree.period(), tree.levels(), tree.shape().fan());
    let (boundary, file_bytes) = (tree.boundary(cached_levels), place.pages() * 4096);
    Ok((shape.0, shape.1, shape.2, shape.3, boundary, file_bytes))
}

/// What a table would become, in numbers, without preparing it: the matrix, the sizes
/// of its steps and of what is sent.
#[pyfunction]
#[pyo3(signature = (rows, row_bytes, *, parameters, levels))]
pub(crate) fn onion_geometry<'py>(
    py: Python<'py>,
    rows: u64,
    row_bytes: usize,
    parameters: &str,
    levels: Option<u32>,
) -> PyResult<Bound<'py, PyDict>> {
    geometry_facts(py, &onion_shape(rows, row_bytes, parameters, levels)?)
}

/// A geometry, as Python reads it.
pub(crate) fn geometry_facts<'py>(
    py: Python<'py>,
    geometry: &Geometry,
) -> PyResult<Bound<'py, PyDict>> {
    let (params, prediction) = (geometry.params(), geometry.prediction());
    let ring = params.answer_ring();
    let columns = geometry.columns().next_multiple_of(4) * geometry.chunks() as u64;
    let vectors = (ring.limbs() * ring.degree() / 8 * geometry.rows()) as u64 * columns;
    let facts = PyDict::new(py);
    facts.set_item("levels", geometry.levels())?;
    facts.set_item("matrix_rows", geometry.rows())?;
    facts.set_item("matrix_columns", geometry.columns())?;
    facts.set_item("games", geometry.games())?;
    facts.set_item("chunks", geometry.chunks())?;
    facts.set_item("vectors", vectors)?;
    facts.set_item("resident_bytes", geometry.prepared_bytes())?;
    facts.set_item("degree", ring.degree())?;
    facts.set_item("modulus_bits", ring.modulus(0).bits())?;
    facts.set_item("limbs", params.ring().limbs())?;
    facts.set_item("answer_limbs", ring.limbs())?;
    facts.set_item("key_switch_digits", params.key_switch().digits())?;
    facts.set_item("selector_digits", params.selector().digits())?;
    facts.set_item("key_bytes", geometry.key_bytes())?;
    facts.set_item("query_bytes", geometry.query_bytes())?;
    facts.set_item("response_bytes", geometry.response_bytes())?;
    facts.set_item("noise_budget_bits", prediction.budget_bits())?;
    facts.set_item("failure_log2", prediction.failure_log2())?;
    Ok(facts)
}

/// The geometry of a table of `rows × row_bytes`; no `levels` for the engine's own choice.
pub(crate) fn onion_shape(
    rows: u64,
    row_bytes: usize,
    parameters: &str,
    levels: Option<u32>,
) -> Result<Geometry, Failure> {
    let set = parameter_set(parameters)?;
    let shape = TableShape::new(rows, row_bytes)?;
    Ok(match levels {
        None => Geometry::new(set, shape)?,
        Some(levels) => Geometry::with_levels(set, shape, levels)?,
    })
}
