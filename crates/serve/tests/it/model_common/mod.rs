//! A model bundle, as tests of its servers and clients write and check it.

use std::path::{Path, PathBuf};

use hushtable_serve::ModelLookup;
use hushtable_table::model::{self, Feature, ModelManifest, Pooling};
use hushtable_table::{DType, Table};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::{lay_out, layout_spec, row};

/// A table called `name` of pseudorandom numbers.
fn table(name: &str, rows: u64, dim: usize, seed: u64) -> Table {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let values: Vec<f32> = (0..rows as usize * dim).map(|_| rng.random_range(-1.0..1.0)).collect();
    Table::from_weight(name, rows, dim, DType::F32, &values).unwrap()
}

/// A model on disk, and its tables in memory.
pub struct Bundle {
    pub path: PathBuf,
    pub manifest: ModelManifest,
    pub tables: Vec<Table>,
}

impl Bundle {
    /// A model of users and items; `features` are (name, table, max_ids), `seed` decides the content.
    pub fn write(folder: &Path, name: &str, seed: u64, features: &[(&str, usize, usize)]) -> Self {
        let items = lay_out(table("items", 1000, 4, seed + 1), layout_spec(1000, 1));
        let tables = vec![table("users", 3000, 8, seed), items];
        let feature = |&(name, table, max_ids): &(&str, usize, usize)| Feature {
            name: name.into(),
            table,
            pooling: Pooling::Sum,
            max_ids,
        };
        let features: Vec<_> = features.iter().map(feature).collect();
        let named = [("users", &tables[0]), ("items", &tables[1])];
        let path = folder.join(format!("{name}-{seed}"));
        let manifest = model::write(&path, name, &named, &features, None).unwrap();
        Self { path, manifest, tables }
    }

    pub fn first(folder: &Path) -> Self {
        Self::write(folder, "clicks", 10, &[("user", 0, 1), ("cart", 1, 32), ("friend", 0, 3)])
    }

    /// The same model trained on: other rows, and its features in another order.
    pub fn second(folder: &Path) -> Self {
        Self::write(folder, "clicks", 20, &[("friend", 0, 2), ("user", 0, 1), ("cart", 1, 32)])
    }

    #[track_caller]
    pub fn check(&self, asked: &[(&str, &[u64])], found: &ModelLookup) {
        assert_eq!(found.version, self.manifest.version());
        assert_eq!(found.stats.version, found.version);
        assert_eq!(found.features.len(), asked.len());
        for ((name, ids), rows) in asked.iter().zip(&found.features) {
            let feature = &found.facts.manifest.features()[rows.feature];
            assert_eq!(feature.name, *name);
            let table = &self.tables[feature.table];
            let numbers = rows.to_f32().unwrap();
            assert_eq!(numbers.len(), ids.len() * table.dim());
            let found = rows.rows.chunks_exact(table.row_bytes());
            for ((&id, bytes), &kept) in ids.iter().zip(found).zip(&rows.kept) {
                match kept {
                    true => assert_eq!(bytes, row(table, id), "{name} {id}"),
                    false => assert!(bytes.iter().all(|&byte| byte == 0)),
                }
            }
        }
    }
}
