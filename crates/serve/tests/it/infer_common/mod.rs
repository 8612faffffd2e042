//! A small model for encrypted inference, for the tests that serve one.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};

use crate::common::network;

use hushtable_infer::Platform;
use hushtable_infer::dlrm::cost::CostTable;
use hushtable_infer::dlrm::simulate::{self, Mode};
use hushtable_infer::dlrm::{Dlrm, Goal, Plan, Weights, plan};
use hushtable_serve::CkksServerSpec;
use hushtable_serve::wire::InferInfoReply;
use hushtable_table::model::{self, Feature, Model, Pooling};
use hushtable_table::{DType, Table};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

/// Numbers of a user.
pub const DENSE: usize = 5;
/// Rows of the two sparse features.
pub const ROWS: [u64; 2] = [3, 7];
const DIM: usize = 4;

const DESCRIPTION: &str = r#"
    dense = 5
    bottom = [16, 4]
    top = [16, 1]
    dim = 4
    activation = "square"
    [[features]]
    name = "color"
    rows = 3
    [[features]]
    name = "shape"
    rows = 7
"#;

/// A model bundle in `folder` with a plan; `seed` decides its weights.
pub fn bundle(folder: &Path, seed: u64) -> PathBuf {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut numbers = |count: usize, scale: f32| -> Vec<f32> {
        (0..count).map(|_| random.random_range(-scale..scale)).collect()
    };
    let table = |name, rows: u64, values: &[f32]| {
        Table::from_weight(name, rows, DIM, DType::F32, values).unwrap()
    };
    let tables = [
        table("color", ROWS[0], &numbers(ROWS[0] as usize * DIM, 1.0)),
        table("shape", ROWS[1], &numbers(ROWS[1] as usize * DIM, 1.0)),
    ];
    let mut tensors = Vec::new();
    let layers = [("bot_l.0", 16, 5), ("bot_l.2", 4, 16), ("top_l.0", 16, 12), ("top_l.2", 1, 16)];
    for (name, outputs, inputs) in layers {
        let scale = (inputs as f32).sqrt().recip();
        let weight = numbers(outputs * inputs, scale);
        tensors.push((format!("{name}.weight"), vec![outputs, inputs], weight));
        tensors.push((format!("{name}.bias"), vec![outputs], numbers(outputs, 0.1)));
    }
    let dense = folder.join("dense.safetensors");
    std::fs::write(&dense, safetensors(&tensors)).unwrap();
    let feature =
        |name: &str, table| Feature { name: name.into(), table, pooling: Pooling::Sum, max_ids: 1 };
    let features = [feature("color", 0), feature("shape", 1)];
    let named = [("color", &tables[0]), ("shape", &tables[1])];
    let out = folder.join("clicks");
    model::write(&out, "clicks", &named, &features, Some(&dense)).unwrap();
    let (model, plan) = (Model::open(&out).unwrap(), planned(&out));
    model.write_plan("clicks", "ckks", &plan.to_json()).unwrap();
    out
}

/// The description and the weights of the bundle at `path`.
fn parts(path: &Path) -> (Dlrm, Weights) {
    let dlrm = Dlrm::parse(DESCRIPTION).unwrap();
    let weights = Weights::from_bundle(&dlrm, &Model::open(path).unwrap()).unwrap();
    (dlrm, weights)
}

/// The plan of the bundle at `path`.
pub fn planned(path: &Path) -> Plan {
    let (dlrm, weights) = parts(path);
    plan(&dlrm, &weights, Goal::default(), &CostTable::shipped().unwrap()).unwrap()
}

/// Its plan for so many users a query.
pub fn planned_for(path: &Path, users: usize) -> Plan {
    let (dlrm, weights) = parts(path);
    let goal = Goal { users, ..Goal::default() };
    plan(&dlrm, &weights, goal, &CostTable::shipped().unwrap()).unwrap()
}

/// What the bundle's model says of users, in the clear.
pub fn logits(path: &Path, dense: &[f32], indices: &[u64]) -> Vec<f64> {
    let (_, weights) = parts(path);
    let plan = planned(path);
    let of_user = |user: usize| {
        let dense = &dense[user * DENSE..(user + 1) * DENSE];
        let indices = &indices[2 * user..2 * user + 2];
        simulate::predict(&plan, &weights, Platform::detect(), Mode::Clear, dense, indices)
    };
    (0..dense.len() / DENSE).map(|user| of_user(user).unwrap()[0]).collect()
}

/// Features of some users.
pub fn features(users: usize, seed: u64) -> (Vec<f32>, Vec<u64>) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let dense = (0..users * DENSE).map(|_| random.random_range(-1.0..1.0)).collect();
    let indices = (0..users).flat_map(|_| ROWS.map(|rows| random.random_range(0..rows)));
    (dense, indices.collect())
}

/// Addresses of its own, and one thread.
pub fn spec(model: impl Into<PathBuf>) -> CkksServerSpec {
    CkksServerSpec { network: network(), threads: 1, ..CkksServerSpec::new(model) }
}

/// What an honest server of such a model announces.
pub fn announced() -> InferInfoReply {
    let folder = TempDir::new().unwrap();
    let server = hushtable_serve::CkksServer::open(spec(bundle(folder.path(), 1))).unwrap();
    InferInfoReply::from(server.info())
}

/// The bytes of a safetensors file.
fn safetensors(tensors: &[(String, Vec<usize>, Vec<f32>)]) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, shape, values) in tensors {
        let begin = data.len();
        values.iter().for_each(|value| data.extend_from_slice(&value.to_le_bytes()));
        let entry = serde_json::json!({
            "dtype": "F32", "shape": shape, "data_offsets": [begin, data.len()],
        });
        header.insert(name.clone(), entry);
    }
    let mut json = serde_json::to_vec(&header).unwrap();
    json.resize(json.len().next_multiple_of(8), b' ');
    [&(json.len() as u64).to_le_bytes()[..], &json, &data].concat()
}
