//! A small network for hybrid inference, for the tests that serve one.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::path::{Path, PathBuf};

use crate::common;
use hushtable_infer::dlrm::weights::{Tensor, Tensors};
use hushtable_infer::hybrid::network::{CompileSpec, Compiled, Network, compile, lower};
use hushtable_infer::hybrid::{Plan, Terms};
use hushtable_serve::HybridServerSpec;
use hushtable_serve::wire::HybridInfoReply;
use hushtable_table::model::{self, Model};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

/// Numbers of an input.
pub const INPUT: usize = 2 * 8 * 8;
/// Numbers of an answer.
pub const OUTPUT: usize = 5;

const GRAPH: &str = r#"{
    "format": 1,
    "input": { "shape": [2, 8, 8], "range": [-1, 1] },
    "nodes": [
        { "name": "first", "op": "conv", "inputs": ["input"], "weight": "first.weight",
          "bias": "first.bias", "stride": [1, 1], "pad": [1, 1, 1, 1], "groups": 1 },
        { "name": "active", "op": "relu", "inputs": ["first"] },
        { "name": "second", "op": "conv", "inputs": ["active"], "weight": "second.weight",
          "stride": [2, 2], "pad": [1, 1, 1, 1], "groups": 1 },
        { "name": "again", "op": "relu", "inputs": ["second"] },
        { "name": "flat", "op": "flatten", "inputs": ["again"] },
        { "name": "last", "op": "linear", "inputs": ["flat"], "weight": "last.weight",
          "bias": "last.bias" }
    ],
    "output": "last"
}"#;

/// The network; `seed` decides its weights.
pub fn network(seed: u64) -> Network {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut tensors = Tensors::new();
    let mut add = |name: &str, shape: &[usize], scale: f32| {
        let count = shape.iter().product();
        let values = (0..count).map(|_| random.random_range(-scale..scale)).collect();
        tensors.insert(name.to_owned(), Tensor { shape: shape.to_vec(), values });
    };
    add("first.weight", &[4, 2, 3, 3], 0.4);
    add("first.bias", &[4], 0.1);
    add("second.weight", &[6, 4, 3, 3], 0.3);
    add("last.weight", &[OUTPUT, 6 * 4 * 4], 0.2);
    add("last.bias", &[OUTPUT], 0.1);
    Network::parse(GRAPH, tensors).unwrap()
}

/// The network compiled.
pub fn compiled(network: &Network) -> Compiled {
    compile(network, &CompileSpec::default()).unwrap()
}

/// A model bundle in `folder` with a plan; `seed` decides its weights.
pub fn bundle(folder: &Path, seed: u64) -> PathBuf {
    let network = network(seed);
    let dense = folder.join("dense.safetensors");
    std::fs::write(&dense, network.to_safetensors().unwrap()).unwrap();
    let out = folder.join("shapes");
    model::write(&out, "shapes", &[], &[], Some(&dense)).unwrap();
    let model = Model::open(&out).unwrap();
    Plan::of(&compiled(&network)).write(&model, "shapes").unwrap();
    out
}

/// An input.
pub fn input(seed: u64) -> Vec<f32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    (0..INPUT).map(|_| random.random_range(-1.0..1.0)).collect()
}

/// What the network of this seed says, in floats.
pub fn outputs(seed: u64, input: &[f32]) -> Vec<f32> {
    let lowered = lower(&network(seed)).unwrap();
    let mut largest = vec![0.0; lowered.stages.len()];
    lowered.run(input, &mut largest)
}

/// Addresses of its own, and one thread.
pub fn spec(model: impl Into<PathBuf>) -> HybridServerSpec {
    HybridServerSpec { network: common::network(), threads: 2, ..HybridServerSpec::new(model) }
}

/// What an honest server of such a model announces.
pub fn announced() -> HybridInfoReply {
    let folder = TempDir::new().unwrap();
    let server = hushtable_serve::HybridServer::open(spec(bundle(folder.path(), 1))).unwrap();
    HybridInfoReply::from(server.info())
}

/// The terms of an announcement.
pub fn terms(reply: &HybridInfoReply) -> Terms {
    Terms::parse(&reply.terms).unwrap()
}
