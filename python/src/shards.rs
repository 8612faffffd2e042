//! Maps of a model's shards, and what a copy of a shard is made of and checked by. Facts go to Python
//! as the JSON that describes them.

use std::path::PathBuf;

use hushtable_pir::onion::{self, ParameterSet};
use hushtable_table::model::{
    FilePiece, MapError, MapScheme, Model, ModelManifest, ShardMap, ShardMapSpec,
};
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::Failure;
use crate::table::Reporter;

/// Cuts a model into shards and writes the map into its bundle; the map as JSON. With the name of a parameter set, for
/// servers that are asked alone.
#[pyfunction]
#[pyo3(signature = (model, *, shards, memory_bytes, versions, replicas, parameters=None))]
pub(crate) fn plan_shards(
    py: Python<'_>,
    model: PathBuf,
    shards: Option<usize>,
    memory_bytes: Option<u64>,
    versions: u64,
    replicas: usize,
    parameters: Option<&str>,
) -> PyResult<String> {
    let spec = ShardMapSpec { shards, memory_bytes, versions, replicas };
    let set = parameters.map(|name| {
        ParameterSet::from_name(name).ok_or_else(|| {
            let text = format!("there is no parameter set {name:?}: n4096_128 or ive_paper");
            Failure::new("ConfigError", text)
        })
    });
    let set = set.transpose()?;
    Ok(py.detach(|| {
        let model = Model::open(&model)?;
        let map = match set {
            None => ShardMap::plan(&model, &spec)?,
            Some(set) => onion::plan_shards(&model, set, &spec)?,
        };
        map.write(&model)?;
        Ok::<_, Failure>(facts(&map, model.manifest()))
    })?)
}

/// The map for a scheme in a model's bundle, as JSON.
#[pyfunction]
#[pyo3(signature = (model, scheme="pair"))]
pub(crate) fn read_shards(py: Python<'_>, model: PathBuf, scheme: &str) -> PyResult<String> {
    let scheme = scheme_of(scheme)?;
    let read = py.detach(|| {
        let model = Model::open(&model)?;
        Ok(facts(&ShardMap::read_of(&model, scheme)?, model.manifest()))
    });
    Ok(read.map_err(|error: hushtable_table::Error| Failure::from(error))?)
}

fn scheme_of(name: &str) -> Result<MapScheme, Failure> {
    name.parse().map_err(|error: MapError| Failure::new("ConfigError", error.to_string()))
}

/// What the two files say that a copy begins with, as JSON: the map, and each file to be copied with
/// how many of its first bytes it takes to open the model.
#[pyfunction]
#[pyo3(signature = (manifest, map, scheme="pair"))]
pub(crate) fn shard_heads(manifest: &[u8], map: &[u8], scheme: &str) -> PyResult<String> {
    let scheme = scheme_of(scheme)?;
    let manifest = ModelManifest::from_json(manifest)
        .map_err(|error| Failure::new("ModelError", format!("its model.json: {error}")))?;
    let wrong =
        |error: MapError| Failure::new("ShardMapError", format!("its {}: {error}", scheme.place()));
    let map = ShardMap::from_json(map).map_err(wrong)?;
    map.check_scheme(scheme).map_err(wrong)?;
    map.check_model(&manifest).map_err(wrong)?;
    let heads = map.heads(&manifest);
    let heads: Vec<_> = heads.iter().map(|head| json!([head.path, head.bytes])).collect();
    Ok(json!({ "map": of_map(&map, &manifest), "heads": heads }).to_string())
}

/// The bytes of the model's files that a shard needs, or with none, a front: path, bytes of the
/// whole file, where they begin and how many there are.
#[pyfunction]
#[pyo3(signature = (model, shard, scheme="pair"))]
pub(crate) fn shard_pieces(
    py: Python<'_>,
    model: PathBuf,
    shard: Option<usize>,
    scheme: &str,
) -> PyResult<Vec<(PathBuf, u64, u64, u64)>> {
    let scheme = scheme_of(scheme)?;
    let pieces = py.detach(|| {
        let model = Model::open(&model)?;
        let map = ShardMap::read_of(&model, scheme)?;
        Ok::<Vec<FilePiece>, Failure>(match scheme {
            MapScheme::Pair => map.pieces(&model, shard)?,
            MapScheme::Onion => onion::shard_pieces(&map, &model, shard)?,
        })
    });
    let pieces = pieces?.into_iter();
    Ok(pieces.map(|it| (it.path, it.file_bytes, it.first, it.bytes)).collect())
}

/// Reads what a shard has of a model, or a front, and checks it against the model's version.
#[pyfunction]
#[pyo3(signature = (model, shard, scheme="pair", *, progress))]
pub(crate) fn verify_shard(
    py: Python<'_>,
    model: PathBuf,
    shard: Option<usize>,
    scheme: &str,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    let scheme = scheme_of(scheme)?;
    let mut reporter = Reporter::new(progress);
    py.detach(|| {
        let model = Model::open(&model)?;
        let map = ShardMap::read_of(&model, scheme)?;
        let mut call = |done, all| reporter.call(done, all);
        match scheme {
            MapScheme::Pair => map.verify(&model, shard, &mut call)?,
            MapScheme::Onion => onion::verify_shard(&map, &model, shard, &mut call)?,
        }
        Ok::<_, Failure>(())
    })?;
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
            "prepared": table.prepared.is_some(),
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
        "scheme": map.scheme().name(),
        "parameters": map.parameters(),
        "replicas": map.replicas(),
        "tables": tables.collect::<Vec<_>>(),
        "shards": shards.collect::<Vec<_>>(),
    })
}
