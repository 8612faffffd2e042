//! The networks of the paper, with made-up weights: for benchmarks and tests.
//!
//! ResNet-18, ResNet-32 and VGG-16 are laid out as Garimella et al. have them for CIFAR-100 (32 × 32, 100
//! classes) and TinyImageNet (64 × 64, 200 classes): their ReLUs are those of the paper's Figure 3.
//! Residual networks halve images by strides, with 1 × 1 convolutions beside; VGG-16 by average pools.
//! LeNet-5 (10 classes, one plane) has largest-of pools.

use std::fmt;
use std::str::FromStr;

use serde_json::{Value, json};

use super::network::{Error, Network, graph};
use super::program::Shape;
use crate::dlrm::weights::{Tensor, Tensors};

/// A network that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "the networks that there are")]
pub enum Architecture {
    /// Eight blocks of 64 to 512 planes.
    Resnet18,
    /// Fifteen blocks of 16 to 64 planes.
    Resnet32,
    /// Thirteen convolutions and three fully connected layers.
    Vgg16,
    /// Two convolutions and three fully connected layers.
    Lenet,
}

impl Architecture {
    /// All.
    pub const ALL: [Self; 4] = [Self::Resnet18, Self::Resnet32, Self::Vgg16, Self::Lenet];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resnet18 => "resnet18",
            Self::Resnet32 => "resnet32",
            Self::Vgg16 => "vgg16",
            Self::Lenet => "lenet",
        }
    }

    /// Classes of the paper's data of this size.
    pub fn classes(self, size: usize) -> usize {
        match (self, size) {
            (Self::Lenet, _) => 10,
            (_, 64) => 200,
            _ => 100,
        }
    }

    /// The network for images of `size` × `size`, 32 or 64, with weights from `seed`. Inputs lie between
    /// −2 and 2, as normalised images do.
    ///
    /// # Errors
    /// [`Error::Spec`] for another size.
    pub fn build(self, size: usize, seed: u64) -> Result<Network, Error> {
        if ![32, 64].contains(&size) {
            let why = "possible are 32 and 64".into();
            return Err(Error::Spec { field: "size", value: size.to_string(), why });
        }
        let channels = if self == Self::Lenet { 1 } else { 3 };
        let mut own = Building::new(Shape { channels, height: size, width: size }, seed);
        let classes = self.classes(size);
        match self {
            Self::Resnet18 => own.residual(64, &[2, 2, 2, 2], classes),
            Self::Resnet32 => own.residual(16, &[5, 5, 5], classes),
            Self::Vgg16 => own.vgg(classes),
            Self::Lenet => own.lenet(classes),
        }
        let json = graph::document(own.input, [-2.0, 2.0], own.nodes, &own.last);
        Network::parse(&json, own.tensors)
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Architecture {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|own| own.name() == name);
        found.ok_or_else(|| {
            let (value, names) = (name.chars().take(40).collect(), Self::ALL.map(Self::name));
            Error::Spec {
                field: "network",
                value,
                why: format!("possible are {}", names.join(", ")),
            }
        })
    }
}

/// A network that is being built: what is added goes after `last`.
struct Building {
    input: Shape,
    shape: Shape,
    last: String,
    nodes: Vec<Value>,
    tensors: Tensors,
    seed: u64,
}

impl Building {
    fn new(input: Shape, seed: u64) -> Self {
        let last = graph::INPUT.to_owned();
        Self { input, shape: input, last, nodes: Vec::new(), tensors: Tensors::new(), seed }
    }

    /// A tensor of numbers between two ends, which follow from its name and the seed.
    fn tensor(&mut self, name: &str, shape: &[usize], [low, high]: [f32; 2]) -> String {
        let mut hasher = blake3::Hasher::new_derive_key("hushtable hybrid architecture weights");
        hasher.update(&self.seed.to_le_bytes()).update(name.as_bytes());
        let mut bytes = vec![0; 4 * shape.iter().product::<usize>()];
        hasher.finalize_xof().fill(&mut bytes);
        let words = bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word));
        let values =
            words.map(|word| low + (high - low) * (word as f32 / u32::MAX as f32)).collect();
        self.tensors.insert(name.to_owned(), Tensor { shape: shape.to_vec(), values });
        name.to_owned()
    }

    fn push(&mut self, name: &str, mut node: Value, shape: Shape) {
        node["name"] = json!(name);
        if node.get("inputs").is_none() {
            node["inputs"] = json!([self.last]);
        }
        self.nodes.push(node);
        (self.last, self.shape) = (name.to_owned(), shape);
    }

    /// A convolution and a batch norm, weights as He et al. begin with them.
    fn convolution(&mut self, name: &str, outputs: usize, kernel: usize, stride: usize, gain: f32) {
        let Shape { channels, height, width } = self.shape;
        let end = (6.0 / (channels * kernel * kernel) as f32).sqrt();
        let shape = [outputs, channels, kernel, kernel];
        let weight = self.tensor(&format!("{name}.weight"), &shape, [-end, end]);
        let (steps, pad) = ([stride; 2], [kernel / 2; 4]);
        let node = json!({"op": "conv", "weight": weight, "stride": steps, "pad": pad});
        let (height, width) = (height.div_ceil(stride), width.div_ceil(stride));
        let shape = Shape { channels: outputs, height, width };
        self.push(name, node, shape);
        let norm = format!("{name}.norm");
        let mut tensor =
            |what: &str, ends| self.tensor(&format!("{norm}.{what}"), &[outputs], ends);
        let node = json!({
            "op": "batch_norm",
            "scale": tensor("scale", [0.9 * gain, 1.1 * gain]),
            "shift": tensor("shift", [-0.1, 0.1]),
            "mean": tensor("mean", [-0.1, 0.1]),
            "variance": tensor("variance", [0.8, 1.2]),
            "epsilon": 1e-5,
        });
        self.push(&norm, node, shape);
    }

    fn linear(&mut self, name: &str, outputs: usize) {
        let inputs = self.shape.count();
        let end = (6.0 / inputs as f32).sqrt();
        let weight = self.tensor(&format!("{name}.weight"), &[outputs, inputs], [-end, end]);
        let bias = self.tensor(&format!("{name}.bias"), &[outputs], [-0.1, 0.1]);
        let node = json!({"op": "linear", "weight": weight, "bias": bias});
        self.push(name, node, Shape { channels: outputs, height: 1, width: 1 });
    }

    fn relu(&mut self, name: &str) {
        self.push(name, json!({"op": "relu"}), self.shape);
    }

    fn pool(&mut self, name: &str, op: &str) {
        let Shape { channels, height, width } = self.shape;
        let node = json!({"op": op, "kernel": [2, 2], "stride": [2, 2]});
        self.push(name, node, Shape { channels, height: height / 2, width: width / 2 });
    }

    fn flatten(&mut self) {
        let shape = Shape { channels: self.shape.count(), height: 1, width: 1 };
        self.push("flatten", json!({"op": "flatten"}), shape);
    }

    fn residual(&mut self, planes: usize, groups: &[usize], classes: usize) {
        self.convolution("stem", planes, 3, 1, 1.0);
        self.relu("stem.relu");
        for (group, &blocks) in groups.iter().enumerate() {
            for block in 0..blocks {
                let (planes, name) = (planes << group, format!("group{}.{block}", group + 1));
                let stride = if group > 0 && block == 0 { 2 } else { 1 };
                let (before, shape) = (self.last.clone(), self.shape);
                self.convolution(&format!("{name}.conv1"), planes, 3, stride, 1.0);
                self.relu(&format!("{name}.relu1"));
                // Less than 1, so that what many blocks add up does not grow.
                self.convolution(&format!("{name}.conv2"), planes, 3, 1, 0.4);
                let (own, after) = (self.last.clone(), self.shape);
                let mut beside = before.clone();
                if stride != 1 {
                    (self.last, self.shape) = (before, shape);
                    self.convolution(&format!("{name}.short"), planes, 1, stride, 0.7);
                    beside = self.last.clone();
                }
                let add = format!("{name}.add");
                self.push(&add, json!({"op": "add", "inputs": [own, beside]}), after);
                self.relu(&format!("{name}.relu2"));
            }
        }
        let shape = Shape { height: 1, width: 1, ..self.shape };
        self.push("pool", json!({"op": "global_average_pool"}), shape);
        self.flatten();
        self.linear("classes", classes);
    }

    fn vgg(&mut self, classes: usize) {
        for (group, &(planes, count)) in
            [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)].iter().enumerate()
        {
            for index in 0..count {
                let name = format!("conv{}.{index}", group + 1);
                self.convolution(&name, planes, 3, 1, 1.0);
                self.relu(&format!("{name}.relu"));
            }
            self.pool(&format!("pool{}", group + 1), "average_pool");
        }
        self.flatten();
        for index in 1..=2 {
            self.linear(&format!("full{index}"), 4096);
            self.relu(&format!("full{index}.relu"));
        }
        self.linear("classes", classes);
    }

    fn lenet(&mut self, classes: usize) {
        for (index, planes) in [6, 16].into_iter().enumerate() {
            let name = format!("conv{}", index + 1);
            let Shape { channels, height, width } = self.shape;
            let end = (6.0 / (25 * channels) as f32).sqrt();
            let shape = [planes, channels, 5, 5];
            let weight = self.tensor(&format!("{name}.weight"), &shape, [-end, end]);
            let bias = self.tensor(&format!("{name}.bias"), &[planes], [-0.1, 0.1]);
            let node = json!({"op": "conv", "weight": weight, "bias": bias});
            let shape = Shape { channels: planes, height: height - 4, width: width - 4 };
            self.push(&name, node, shape);
            self.relu(&format!("{name}.relu"));
            self.pool(&format!("{name}.pool"), "max_pool");
        }
        self.flatten();
        for (index, outputs) in [120, 84].into_iter().enumerate() {
            self.linear(&format!("full{}", index + 1), outputs);
            self.relu(&format!("full{}.relu", index + 1));
        }
        self.linear("classes", classes);
    }
}
