//! A model of two tables for the server that is asked alone, as tests of it by the bare wire contract have it.

use std::path::PathBuf;

use bytes::Bytes;
use hushtable_pir::onion::{Client, Pending};
use hushtable_table::Table;
use hushtable_table::model::{self, Feature, ModelManifest, Pooling};
use tempfile::TempDir;

/// Three features, two of them of one table, on disk; its tables in memory.
pub struct Clicks {
    _folder: TempDir,
    pub path: PathBuf,
    pub manifest: ModelManifest,
    pub tables: [Table; 2],
}

impl Clicks {
    pub fn new(tables: [Table; 2]) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("clicks");
        let feature = |name: &str, table, max_ids| Feature {
            name: name.into(),
            table,
            pooling: Pooling::None,
            max_ids,
        };
        let features = [feature("tag", 0, 1), feature("item", 1, 2), feature("other", 0, 2)];
        let named = [("tags", &tables[0]), ("items", &tables[1])];
        let manifest = model::write(&path, "clicks", &named, &features, None).unwrap();
        Self { _folder: folder, path, manifest, tables }
    }

    /// Each feature's queries by its table's client, in one piece, and what opens their answers.
    pub fn ask(&self, clients: &[Client], ids: [&[u64]; 3]) -> (Vec<Bytes>, Vec<Pending>) {
        let features = self.manifest.features().iter().zip(ids);
        let query = |(feature, ids): (&Feature, &[u64])| {
            let (queries, pending) = clients[feature.table].query(ids, feature.max_ids).unwrap();
            (Bytes::from(queries.concat()), pending)
        };
        features.map(query).unzip()
    }
}
