//! Networks to test with: written node by node, or made up from a seed.

use hushtable_infer::dlrm::weights::{Tensor, Tensors};
use hushtable_infer::hybrid::network::{Error, Network};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;
use serde_json::{Value, json};

/// A graph that is being written.
pub struct Graph {
    pub rng: ChaCha20Rng,
    pub shape: [usize; 3],
    pub nodes: Vec<Value>,
    /// The sizes of what each node gives.
    pub shapes: Vec<[usize; 3]>,
    pub tensors: Tensors,
}

impl Graph {
    pub fn new(shape: [usize; 3], seed: u64) -> Self {
        let rng = ChaCha20Rng::seed_from_u64(seed);
        Self { rng, shape, nodes: Vec::new(), shapes: Vec::new(), tensors: Tensors::new() }
    }

    /// The last node's name.
    pub fn last(&self) -> String {
        match self.nodes.len() {
            0 => "input".into(),
            count => format!("n{}", count - 1),
        }
    }

    pub fn sizes(&self) -> [usize; 3] {
        self.shapes.last().copied().unwrap_or(self.shape)
    }

    pub fn tensor(&mut self, shape: &[usize], low: f32, high: f32) -> String {
        let name = format!("t{}", self.tensors.len());
        let count = shape.iter().product::<usize>();
        let values = (0..count).map(|_| self.rng.random_range(low..high)).collect();
        self.tensors.insert(name.clone(), Tensor { shape: shape.to_vec(), values });
        name
    }

    /// Adds a node after the last.
    pub fn push(&mut self, mut node: Value, shape: [usize; 3]) -> String {
        if node.get("inputs").is_none() {
            node["inputs"] = json!([self.last()]);
        }
        let name = format!("n{}", self.nodes.len());
        node["name"] = json!(name);
        self.nodes.push(node);
        self.shapes.push(shape);
        name
    }

    pub fn conv(
        &mut self,
        outputs: usize,
        kernel: [usize; 2],
        stride: [usize; 2],
        pad: [usize; 4],
        groups: usize,
    ) {
        let [channels, height, width] = self.sizes();
        let shape = [outputs, channels / groups, kernel[0], kernel[1]];
        let end = (3.0 / (shape[1] * shape[2] * shape[3]) as f32).sqrt();
        let weight = self.tensor(&shape, -end, end);
        let bias = self.tensor(&[outputs], -0.5, 0.5);
        let mut node =
            json!({"op": "conv", "weight": weight, "stride": stride, "pad": pad, "groups": groups});
        if self.rng.random() {
            node["bias"] = json!(bias);
        }
        let size = |length, pads, at: usize| (length + pads - kernel[at]) / stride[at] + 1;
        let (height, width) = (size(height, pad[0] + pad[2], 0), size(width, pad[1] + pad[3], 1));
        self.push(node, [outputs, height, width]);
    }

    /// A batch norm; factors are between `low` and 1.5.
    pub fn norm(&mut self, low: f32) {
        let shape = self.sizes();
        let scale = self.tensor(&[shape[0]], low, 1.5);
        let shift = self.tensor(&[shape[0]], -0.5, 0.5);
        let mean = self.tensor(&[shape[0]], -0.5, 0.5);
        let variance = self.tensor(&[shape[0]], 0.5, 2.0);
        let node = json!({"op": "batch_norm", "scale": scale, "shift": shift, "mean": mean,
            "variance": variance, "epsilon": 1e-3});
        self.push(node, shape);
    }

    pub fn relu(&mut self) {
        let shape = self.sizes();
        self.push(json!({"op": "relu"}), shape);
    }

    /// A ReLU with a largest number.
    pub fn clipped(&mut self, most: f32) {
        let shape = self.sizes();
        self.push(json!({"op": "relu", "max": most}), shape);
    }

    /// The last node's planes, and those of nodes `others`, which have the same rows and columns.
    pub fn concat(&mut self, others: &[usize]) {
        let [mut channels, height, width] = self.sizes();
        let mut inputs = vec![self.last()];
        for &other in others {
            channels += self.shapes[other][0];
            inputs.push(format!("n{other}"));
        }
        self.push(json!({"op": "concat", "inputs": inputs}), [channels, height, width]);
    }

    pub fn pool(&mut self, op: &str, kernel: [usize; 2], stride: [usize; 2]) {
        self.padded_pool(op, kernel, stride, [0; 4]);
    }

    pub fn padded_pool(
        &mut self,
        op: &str,
        kernel: [usize; 2],
        stride: [usize; 2],
        pad: [usize; 4],
    ) {
        let [channels, height, width] = self.sizes();
        let node = json!({"op": op, "kernel": kernel, "stride": stride, "pad": pad});
        let size = |length: usize, at: usize| {
            (length + pad[at] + pad[at + 2] - kernel[at]) / stride[at] + 1
        };
        self.push(node, [channels, size(height, 0), size(width, 1)]);
    }

    pub fn flatten(&mut self) {
        let [channels, height, width] = self.sizes();
        self.push(json!({"op": "flatten"}), [channels * height * width, 1, 1]);
    }

    pub fn linear(&mut self, outputs: usize) {
        let inputs = self.sizes()[0];
        let end = (3.0 / inputs as f32).sqrt();
        let weight = self.tensor(&[outputs, inputs], -end, end);
        let bias = self.tensor(&[outputs], -0.5, 0.5);
        let node = json!({"op": "linear", "weight": weight, "bias": bias});
        self.push(node, [outputs, 1, 1]);
    }

    /// Adds the last node's value and that of node `other`.
    pub fn add(&mut self, other: usize) {
        let shape = self.sizes();
        let inputs = json!([self.last(), format!("n{other}")]);
        self.push(json!({"op": "add", "inputs": inputs}), shape);
    }

    pub fn json(&self) -> Value {
        json!({"format": 1, "input": {"shape": self.shape, "range": [-1.0, 1.0]},
            "nodes": self.nodes, "output": self.last()})
    }

    pub fn parse(&self) -> Result<Network, Error> {
        Network::parse(&self.json().to_string(), self.tensors.clone())
    }

    pub fn network(&self) -> Network {
        self.parse().unwrap()
    }

    /// With another output than the last node.
    pub fn network_named(&self, output: &str) -> Network {
        let mut json = self.json();
        json["output"] = json!(output);
        Network::parse(&json.to_string(), self.tensors.clone()).unwrap()
    }

    /// An input between −1 and 1.
    pub fn input(&mut self) -> Vec<f32> {
        let count = self.shape.iter().product();
        (0..count).map(|_| self.rng.random_range(-1.0..1.0)).collect()
    }
}

/// A network of a few operators in any order that makes sense.
pub fn made_up(seed: u64) -> Graph {
    let mut own = Graph::new([2, 9, 8], seed);
    let count = own.rng.random_range(2..12);
    for _ in 0..count {
        let [channels, height, width] = own.sizes();
        let is_image = height > 2 && width > 2;
        match own.rng.random_range(0..14) {
            0..3 => {
                let mut side = |max: usize| own.rng.random_range(1..=max);
                let (kernel, stride) = ([side(3), side(3)], [side(2), side(2)]);
                let pad = [side(2) - 1, side(2) - 1, side(2) - 1, side(2) - 1];
                let groups = if channels % 2 == 0 { side(2) } else { 1 };
                let outputs = groups * side(3);
                if height + pad[0] + pad[2] >= kernel[0] && width + pad[1] + pad[3] >= kernel[1] {
                    own.conv(outputs, kernel, stride, pad, groups);
                }
            }
            3 | 4 => {
                let low = if own.rng.random() { 0.2 } else { -1.5 };
                own.norm(low);
            }
            5 | 6 => own.relu(),
            kind @ (7 | 8) if is_image => {
                let (kernel, stride, pad) = [
                    ([2, 2], [2, 2], [0; 4]),
                    ([3, 3], [2, 1], [0; 4]),
                    ([1, 3], [1, 1], [0; 4]),
                    ([3, 2], [3, 2], [0; 4]),
                    // As before the blocks of residual networks for ImageNet.
                    ([3, 3], [2, 2], [1; 4]),
                    ([3, 2], [1, 2], [2, 1, 0, 0]),
                ][own.rng.random_range(0..6)];
                let op = if kind == 7 { "max_pool" } else { "average_pool" };
                own.padded_pool(op, kernel, stride, pad);
            }
            // Of one row and one column, what was flattened among them.
            kind @ (7 | 8) => {
                let op = if kind == 7 { "max_pool" } else { "average_pool" };
                let (kernel, stride, pad) = [
                    ([1, 1], [2, 2], [0; 4]),
                    ([3, 3], [1, 1], [1; 4]),
                    ([2, 1], [1, 1], [1, 0, 0, 0]),
                ][own.rng.random_range(0..3)];
                own.padded_pool(op, kernel, stride, pad);
            }
            13 if channels * height * width <= 96 => own.flatten(),
            9 => {
                let most = own.rng.random_range(0.2..2.0);
                own.clipped(most);
            }
            10 => {
                let is_beside = |at: &usize| own.shapes[*at][1..] == own.sizes()[1..];
                let beside: Vec<usize> = (0..own.shapes.len()).filter(is_beside).collect();
                // Three parts at most, one of which may be the last node's own.
                let others: Vec<usize> = (0..own.rng.random_range(1..3))
                    .filter(|_| !beside.is_empty())
                    .map(|_| beside[own.rng.random_range(0..beside.len())])
                    .collect();
                let planes: usize = others.iter().map(|&at| own.shapes[at][0]).sum();
                if !others.is_empty() && channels + planes <= 24 {
                    own.concat(&others);
                }
            }
            _ => {
                let like = (0..own.shapes.len()).filter(|&at| own.shapes[at] == own.sizes());
                let like: Vec<usize> = like.collect();
                if !like.is_empty() {
                    let other = like[own.rng.random_range(0..like.len())];
                    own.add(other);
                }
            }
        }
    }
    if own.rng.random() {
        let [channels, height, width] = own.sizes();
        if height * width > 1 && own.rng.random() {
            own.push(json!({"op": "global_average_pool"}), [channels, 1, 1]);
        }
        own.flatten();
        own.linear(3);
    }
    if own.nodes.is_empty() {
        own.relu();
    }
    own
}
