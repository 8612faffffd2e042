//! Maps of a model's shards, and what a copy of a shard is made of and checked by. Facts go to Python
//! as the JSON that describes them.

use std::path::PathBuf;

use hushtable_table::model::{MapError, Model, ModelManifest, ShardMap, ShardMapSpec};
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::Failure;
use crate::table::Reporter;

/// Cuts a model into shards and writes the map into its bundle; the map as JSON.
#[pyfunction]
#[pyo3(signature = (model, *, shards, memory_bytes, versions, replicas))]
pub(crate) fn plan_shards(
    py: Python<'_>,
    model: PathBuf,
    shards: Option<usize>,
    memory_bytes: Option<u64>,
    versions: u64,
    replicas: usize,
) -> PyResult<String> {
    let spec = ShardMapSpec { shards, memory_bytes, versions, replicas };
    let planned = py.detach(|| {
        let model = Model::open(&model)?;
        let map = ShardMap::plan(&model, &spec)?;
        map.write(&model)?;
        Ok(facts(&map, model.manifest()))
    });
    Ok(planned.map_err(|error: hushtable_table::Error| Failure::from(error))?)
}

/// The map in a model's bundle, as JSON.
#[pyfunction]
pub(crate) fn read_shards(py: Python<'_>, model: PathBuf) -> PyResult<String> {
    let read = py.detach(|| {
        let model = Model::open(&model)?;
        Ok(facts(&ShardMap::read(&model)?, model.manifest()))
    });
    Ok(read.map_err(|error: hushtable_table::Error| Failure::from(error))?)
}

/// What the two files say that a copy begins with, as JSON: the map, and each file to be copied with
/// how many of its first bytes it takes to open the model.
#[pyfunction]
pub(crate) fn shard_heads(manifest: &[u8], map: &[u8]) -> PyResult<String> {
    let manifest = ModelManifest::from_json(manifest)
        .map_err(|error| Failure::new("ModelError", format!("its model.json: {error}")))?;
    let wrong =
        |error: MapError| Failure::new("ShardMapError", format!("its shards.json: {error}"));
    let map = ShardMap::from_json(map).map_err(wrong)?;
    map.check_model(&manifest).map_err(wrong)?;
    let heads = map.heads(&manifest);
    let heads: Vec<_> = heads.iter().map(|head| json!([head.path, head.bytes])).collect();
    Ok(json!({ "map": of_map(&map, &manifest), "heads": heads }).to_string())
}

/// The bytes of the model's files that a shard needs, or with none, a front: path, bytes of the
/// whole file, where they begin and how many there are.
#[pyfunction]
pub(crate) fn shard_pieces(
    py: Python<'_>,
    model: PathBuf,
    shard: Option<usize>,
) -> PyResult<Vec<(PathBuf, u64, u64, u64)>> {
    let pieces = py.detach(|| {
        let model = Model::open(&model)?;
        ShardMap::read(&model)?.pieces(&model, shard)
    });
    let pieces = pieces.map_err(Failure::from)?.into_iter();
    Ok(pieces.map(|it| (it.path, it.file_bytes, it.first, it.bytes)).collect())
}

/// Reads what a shard has of a model, or a front, and checks it against the model's version.
#[pyfunction]
#[pyo3(signature = (model, shard, *, progress))]
pub(crate) fn verify_shard(
    py: Python<'_>,
    model: PathBuf,
    shard: Option<usize>,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let mut reporter = Reporter::new(progress);
    py.detach(|| {
        let model = Model::open(&model)?;
        let map = ShardMap::read(&model)?;
        map.verify(&model, shard, &mut |done, all| reporter.call(done, all))
    })
    .map_err(Failure::from)?;
    reporter.finish()
}

fn facts(map: &ShardMap, model: &ModelManifest) -> String {
    of_map(map, model).to_string()
}

fn of_map(map: &ShardMap, model: &ModelManifest) -> serde_json::Value {
    let tables = map.tables().iter().zip(model.tables()).map(|(table, of_model)| {
        json!({
            "name": table.name,
            "version": table.version,
            "rows": table.rows,
            "row_bytes": table.row_bytes,
            "patched": table.patch.is_some(),
            "has_layout": of_model.layout.is_some(),
        })
    });
    let shards = map.shards().iter().map(|shard| {
        let parts = shard.parts.iter().map(|part| {
            json!({
                "table": map.tables()[part.table].name,
                "first": part.first,
                "end": part.end,
            })
        });
        json!({ "bytes": shard.bytes, "parts": parts.collect::<Vec<_>>() })
    });
    json!({
        "name": map.name(),
        "model": map.model(),
        "version": map.version(),
        "replicas": map.replicas(),
        "tables": tables.collect::<Vec<_>>(),
        "shards": shards.collect::<Vec<_>>(),
    })
}
