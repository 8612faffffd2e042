//! What tables, layouts, servers and lookups are and cost, as Python reads it: by name.

use std::path::PathBuf;

use hushtable_pir::TableShape;
use hushtable_pir::batch::Geometry as BagGeometry;
use hushtable_pir::onion::{Geometry, ParameterSet};
use hushtable_serve::{LookupStats, OnionInfo, TableInfo};
use hushtable_table::Table;
use hushtable_table::layout::Layout;
use hushtable_table::model::{Feature, ModelManifest, TableRef, places};
use pyo3::prelude::*;

use crate::errors::Failure;

/// A table, by its manifest or its servers.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct TableFacts {
    name: String,
    rows: u64,
    dim: usize,
    dtype: &'static str,
    row_bytes: usize,
    version: String,
}

/// What a server of rows holds.
#[pyclass(frozen, get_all, module = "hushtable._native")]
pub(crate) struct HeldFacts {
    /// Of bundles of tables.
    tables: Vec<TableFacts>,
    /// Of bundles of models.
    models: Vec<ModelFacts>,
    /// Of the table, where there is one alone.
    layout: Option<LayoutFacts>,
    /// What a lookup from a single server costs in the first table; None of one of two.
    onion: Option<OnionFacts>,
}

/// What a client knows of the servers that it is connected to.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct ServedFacts {
    table: TableFacts,
    /// Most keys, or queries, of one lookup.
    keys_per_request_max: usize,
    /// What a lookup from a single server costs; None with two.
    onion: Option<OnionFacts>,
}

/// What a lookup from a single server costs.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct OnionFacts {
    parameters: &'static str,
    key_bytes: u64,
    query_bytes: u64,
    response_bytes: u64,
}

/// A layout, and what an inference by it costs. Bytes of messages are of both servers together.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct LayoutFacts {
    /// The text of `layout.json`.
    json: String,
    keys: u64,
    bytes_up: u64,
    bytes_down: u64,
    stored_bytes: u64,
    map_bytes: u64,
}

/// What a lookup cost.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct Costs {
    bytes_up: u64,
    bytes_down: u64,
    seconds: f64,
    queue_seconds: f64,
    answer_seconds: f64,
    retries: u32,
    /// Of the table that answered, or of the model.
    version: String,
}

/// A model, by its bundle or its servers.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct ModelFacts {
    name: String,
    version: String,
    /// In the manifest's order.
    features: Vec<FeatureFacts>,
    tables: Vec<TableFacts>,
}

/// One input of a model that reads rows of a table.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct FeatureFacts {
    name: String,
    /// Its table's name.
    table: String,
    pooling: &'static str,
    max_ids: usize,
}

impl HeldFacts {
    /// Of bundles that a server has opened and checked; a single server, of a parameter set.
    pub(crate) fn read(paths: &[PathBuf], set: Option<ParameterSet>) -> Result<Self, Failure> {
        let (mut tables, mut models) = (Vec::new(), Vec::new());
        for path in paths {
            match path.join(places::MANIFEST).is_file() || path.is_file() {
                true => models.push(ModelManifest::read(path)?),
                false => tables.push(Table::open(path)?),
            }
        }
        let layout = match (&tables[..], &models[..], set) {
            ([table], [], None) => table.layout().map(|layout| LayoutFacts::new(layout)),
            _ => None,
        };
        let tables: Vec<_> = tables.iter().map(TableFacts::of_table).collect();
        let models: Vec<_> = models.iter().map(ModelFacts::of_manifest).collect();
        let first = tables.iter().chain(models.iter().flat_map(|model| &model.tables)).next();
        let onion = match (set, first) {
            (Some(set), Some(table)) => Some(table.onion(set)?),
            _ => None,
        };
        Ok(Self { tables, models, layout, onion })
    }
}

impl ModelFacts {
    pub(crate) fn of_manifest(manifest: &ModelManifest) -> Self {
        let tables = manifest.tables();
        let feature = |feature: &Feature| FeatureFacts {
            name: feature.name.clone(),
            table: tables[feature.table].name.clone(),
            pooling: feature.pooling.name(),
            max_ids: feature.max_ids,
        };
        let table = |table: &TableRef| TableFacts {
            name: table.name.clone(),
            rows: table.shape.rows(),
            dim: table.shape.dim(),
            dtype: table.shape.dtype().name(),
            row_bytes: table.shape.row_bytes(),
            version: table.version.to_string(),
        };
        Self {
            name: manifest.name().to_owned(),
            version: manifest.version().to_string(),
            features: manifest.features().iter().map(feature).collect(),
            tables: tables.iter().map(table).collect(),
        }
    }
}

impl TableFacts {
    /// What a lookup in the table costs by a parameter set.
    fn onion(&self, set: ParameterSet) -> Result<OnionFacts, Failure> {
        let shape = TableShape::new(self.rows, self.row_bytes)?;
        Ok(OnionFacts::new(&Geometry::new(set, shape)?))
    }

    pub(crate) fn of_table(table: &Table) -> Self {
        Self {
            name: table.name().to_owned(),
            rows: table.rows(),
            dim: table.dim(),
            dtype: table.dtype().name(),
            row_bytes: table.row_bytes(),
            version: table.version().to_string(),
        }
    }
}

impl ServedFacts {
    pub(crate) fn of_pair(info: TableInfo) -> Self {
        let table = TableFacts {
            name: info.name,
            rows: info.shape.rows(),
            dim: info.dim,
            dtype: info.dtype.name(),
            row_bytes: info.shape.row_bytes(),
            version: info.version.to_string(),
        };
        Self { table, keys_per_request_max: info.keys_per_request_max, onion: None }
    }

    pub(crate) fn of_onion(info: OnionInfo) -> Self {
        let table = TableFacts {
            name: info.name,
            rows: info.shape.rows(),
            dim: info.dim,
            dtype: info.dtype.name(),
            row_bytes: info.shape.row_bytes(),
            version: info.version.to_string(),
        };
        let onion = Some(OnionFacts::new(&info.geometry));
        Self { table, keys_per_request_max: info.queries_per_request_max, onion }
    }
}

impl OnionFacts {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        Self {
            parameters: geometry.set().name(),
            key_bytes: geometry.key_bytes() as u64,
            query_bytes: geometry.query_bytes() as u64,
            response_bytes: geometry.response_bytes() as u64,
        }
    }
}

impl LayoutFacts {
    pub(crate) fn new(layout: &Layout) -> Self {
        let costs = BagGeometry::new(layout).costs(layout);
        Self {
            json: layout.to_json(),
            keys: costs.keys,
            bytes_up: costs.up_left_bytes + costs.up_right_bytes,
            bytes_down: 2 * costs.down_bytes,
            stored_bytes: costs.stored_bytes,
            map_bytes: costs.map_bytes,
        }
    }
}

impl Costs {
    pub(crate) fn new(stats: &LookupStats) -> Self {
        Self {
            bytes_up: stats.sent_bytes,
            bytes_down: stats.received_bytes,
            seconds: stats.elapsed.as_secs_f64(),
            queue_seconds: stats.queue.as_secs_f64(),
            answer_seconds: stats.answer.as_secs_f64(),
            retries: stats.retries,
            version: stats.version.to_string(),
        }
    }
}
