//! A network as importers write it: operators by name, and tensors of weights.
//!
//! ```json
//! {"format": 1, "input": {"shape": [3, 32, 32], "range": [-2.0, 2.0]}, "nodes": [
//!   {"name": "c", "op": "conv", "inputs": ["input"], "weight": "c.w", "bias": "c.b",
//!    "stride": [1, 1], "pad": [1, 1, 1, 1], "groups": 1},
//!   {"name": "n", "op": "batch_norm", "inputs": ["c"], "scale": "n.s", "shift": "n.b",
//!    "mean": "n.m", "variance": "n.v", "epsilon": 1e-5},
//!   {"name": "r", "op": "relu", "inputs": ["n"]},
//!   {"name": "p", "op": "max_pool", "inputs": ["r"], "kernel": [2, 2], "stride": [2, 2],
//!    "pad": [0, 0, 0, 0]},
//!   {"name": "f", "op": "flatten", "inputs": ["p"]},
//!   {"name": "l", "op": "linear", "inputs": ["f"], "weight": "l.w", "bias": "l.b"}], "output": "l"}
//! ```
//!
//! Others are `average_pool` (as `max_pool`), `global_average_pool`, `add` of two, `concat` of two and more
//! (their planes after each other), and, at the end of a network only, `softmax` and `sigmoid`. A `relu`
//! may have a `max`, the largest number that it gives: 6 in a ReLU6. Each node's inputs stand before it. Weights of `conv` are
//! outputs × (channels / groups) × rows × columns, of `linear` outputs × inputs. `range`, which inputs
//! lie in, may be left out.

use std::collections::HashMap;
use std::fmt;

use hushtable_table::model::Model;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::error::Error;
use crate::dlrm::weights::{Tensor, Tensors, read_safetensors};
use crate::hybrid::check::{NAME_BYTES_MAX, NUMBERS_MAX, TERMS_MAX, WEIGHTS_MAX};
use crate::hybrid::program::{Convolution, Pool, Shape};
use crate::hybrid::windows::windows;

/// Under which name a network's graph stands among the metadata of its safetensors file.
pub const METADATA_KEY: &str = "hushtable.network";
/// The name of the input among nodes' inputs.
pub const INPUT: &str = "input";
/// The most nodes of a network.
pub const NODES_MAX: usize = 4096;

/// What is done to an answer by whoever opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::exhaustive_enums, reason = "every party handles each")]
pub enum Post {
    /// Negative numbers become 0.
    Relu,
    /// e^x over the sum of all e^x.
    Softmax,
    /// 1 / (1 + e^−x).
    Sigmoid,
}

impl Post {
    /// Does it to an answer.
    pub fn apply(self, values: &mut [f32]) {
        match self {
            Self::Relu => values.iter_mut().for_each(|x| *x = x.max(0.0)),
            Self::Sigmoid => values.iter_mut().for_each(|x| *x = 1.0 / (1.0 + (-*x).exp())),
            Self::Softmax => {
                let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                values.iter_mut().for_each(|x| *x = (*x - most).exp());
                let sum: f32 = values.iter().sum();
                values.iter_mut().for_each(|x| *x /= sum);
            }
        }
    }
}

/// An operator; weights are named.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "every part handles each")]
pub enum Op {
    /// A convolution.
    Conv {
        /// Its tensor.
        weight: String,
        /// Of one number for each output plane.
        bias: Option<String>,
        /// Its sizes; `input` has all channels.
        convolution: Convolution,
        /// In how many groups channels and outputs are, each group of outputs reading its own channels.
        groups: usize,
    },
    /// A fully connected layer.
    Linear {
        /// Its tensor.
        weight: String,
        /// Of one number for each output.
        bias: Option<String>,
        /// How many numbers come out.
        outputs: usize,
    },
    /// scale · (x − mean) / sqrt(variance + epsilon) + shift, plane by plane.
    BatchNorm {
        /// The tensors of scale, shift, mean and variance.
        tensors: [String; 4],
        /// Added to the variance.
        epsilon: f64,
    },
    /// Negative numbers become 0.
    Relu {
        /// The largest number that comes out, if there is one.
        most: Option<f32>,
    },
    /// The largest of each window.
    MaxPool(Pool),
    /// The mean of each window.
    AveragePool(Pool),
    /// The mean of each plane.
    GlobalAveragePool,
    /// The sum of two.
    Add,
    /// Planes of all after each other.
    Concat,
    /// One row of all numbers.
    Flatten,
    /// What is left to whoever opens the answer.
    Post(Post),
}

/// One operator at its place.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What it does.
    pub op: Op,
    /// What it reads: 0 is the input, i + 1 is node i.
    pub inputs: Vec<usize>,
    /// The sizes of what it gives.
    pub shape: Shape,
}

/// A network of floats, checked: every tensor is there, every size fits.
#[derive(Clone, PartialEq)]
pub struct Network {
    input: Shape,
    range: Option<[f32; 2]>,
    nodes: Vec<Node>,
    output: usize,
    json: String,
    tensors: Tensors,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Weights are the server's secret, and many.
        f.debug_struct("Network")
            .field("input", &self.input)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

impl Network {
    /// Reads a graph, whose weights are in `tensors`; others there are left alone.
    ///
    /// # Errors
    /// [`Error::Graph`], [`Error::Node`], [`Error::Unsupported`] with the operator's and the node's name;
    /// [`Error::MissingTensor`], [`Error::TensorShape`], [`Error::Weight`].
    pub fn parse(json: &str, tensors: Tensors) -> Result<Self, Error> {
        let graph = |why: String| Error::Graph { why };
        let file: File = serde_json::from_str(json).map_err(|error| graph(error.to_string()))?;
        if file.format != FORMAT {
            let why = format!("it has format {}, this build reads {FORMAT}", file.format);
            return Err(graph(why));
        }
        if !(1..=NODES_MAX).contains(&file.nodes.len()) {
            let why = format!("{} nodes, possible are 1 to {NODES_MAX}", file.nodes.len());
            return Err(graph(why));
        }
        let [channels, height, width] = file.input.shape;
        let input = Shape { channels, height, width };
        check_count(input).map_err(|why| graph(format!("the input: {why}")))?;
        let is_range =
            |range: &[f32; 2]| range.iter().all(|end| end.is_finite()) && range[0] < range[1];
        if file.input.range.is_some_and(|range| !is_range(&range)) {
            return Err(graph("the input's range is none: expected [LOWEST, HIGHEST]".into()));
        }
        let mut places = HashMap::from([(INPUT.to_owned(), 0)]);
        let mut nodes: Vec<Node> = Vec::new();
        for raw in file.nodes {
            let node = Reading::new(raw, nodes.len())?.read(input, &nodes, &places, &tensors)?;
            if places.insert(node.name.clone(), nodes.len() + 1).is_some() {
                return Err(graph(format!("two nodes have the name {:?}", node.name)));
            }
            nodes.push(node);
        }
        let Some(&output) = places.get(&file.output) else {
            return Err(graph(format!("the output {:?} is no node", clip(&file.output))));
        };
        if output == 0 {
            return Err(graph("the output is the input".into()));
        }
        let range = file.input.range;
        Ok(Self { input, range, nodes, output, json: json.to_owned(), tensors })
    }

    /// Reads a safetensors file, whose metadata hold the graph under [`METADATA_KEY`].
    ///
    /// # Errors
    /// [`Error::Weights`] for what is no such file; as [`parse`](Self::parse).
    pub fn from_safetensors(bytes: &[u8]) -> Result<Self, Error> {
        let (_, header) = SafeTensors::read_metadata(bytes)
            .map_err(|error| Error::Weights(crate::dlrm::Error::Safetensors(error)))?;
        let json = header.metadata().as_ref().and_then(|metadata| metadata.get(METADATA_KEY));
        let Some(json) = json else {
            let why = format!(
                "the weights' file has none: its metadata have no {METADATA_KEY:?}; import the model \
                 with `hushtable infer import`"
            );
            return Err(Error::Graph { why });
        };
        Self::parse(json, read_safetensors(bytes)?)
    }

    /// Reads the dense part of a model bundle.
    ///
    /// # Errors
    /// [`Error::Graph`] where the bundle has none; [`Error::Io`]; as
    /// [`from_safetensors`](Self::from_safetensors).
    pub fn from_bundle(model: &Model) -> Result<Self, Error> {
        let Some(path) = model.dense_path() else {
            let why = "the model bundle has no dense part, which networks are in".into();
            return Err(Error::Graph { why });
        };
        let bytes = std::fs::read(&path)
            .map_err(|source| Error::Io { path: path.display().to_string(), source })?;
        Self::from_safetensors(&bytes)
    }

    /// A safetensors file of this network, which [`from_safetensors`](Self::from_safetensors) reads.
    ///
    /// # Errors
    /// [`Error::Weights`] where the format cannot hold it.
    pub fn to_safetensors(&self) -> Result<Vec<u8>, Error> {
        let wrong = |error| Error::Weights(crate::dlrm::Error::Safetensors(error));
        let bytes: Vec<(&String, &Tensor, Vec<u8>)> = self
            .tensors
            .iter()
            .map(|(name, tensor)| {
                let bytes = tensor.values.iter().flat_map(|value| value.to_le_bytes()).collect();
                (name, tensor, bytes)
            })
            .collect();
        let views = bytes.iter().map(|(name, tensor, bytes)| {
            let dtype = safetensors::Dtype::F32;
            Ok((name.as_str(), TensorView::new(dtype, tensor.shape.clone(), bytes)?))
        });
        let views = views.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
        let metadata = HashMap::from([(METADATA_KEY.to_owned(), self.json.clone())]);
        safetensors::serialize(views, Some(metadata)).map_err(wrong)
    }

    /// The input's sizes.
    pub fn input(&self) -> Shape {
        self.input
    }

    /// Between what inputs lie, where the graph says so.
    pub fn range(&self) -> Option<[f32; 2]> {
        self.range
    }

    /// Its nodes in order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Which value is the answer: i + 1 is node i.
    pub fn output(&self) -> usize {
        self.output
    }

    /// The graph as JSON.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// The sizes of a value: 0 is the input, i + 1 is node i.
    pub fn shape(&self, value: usize) -> Shape {
        shape_of(self.input, &self.nodes, value)
    }

    /// A named tensor's numbers, which `parse` found to be there.
    pub(super) fn tensor(&self, name: &str) -> &[f32] {
        self.tensors.get(name).map_or(&[], |tensor| &tensor.values)
    }

    /// A batch norm's factor and offset for each plane.
    pub(super) fn affine(&self, tensors: &[String; 4], epsilon: f64) -> (Vec<f64>, Vec<f64>) {
        let [scale, shift, mean, variance] = tensors.each_ref().map(|name| self.tensor(name));
        let planes = scale.iter().zip(shift).zip(mean.iter().zip(variance));
        let each = planes.map(|((&scale, &shift), (&mean, &variance))| {
            let factor = f64::from(scale) / (f64::from(variance) + epsilon).sqrt();
            (factor, f64::from(shift) - factor * f64::from(mean))
        });
        each.unzip()
    }
}

/// The file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    input: FileInput,
    nodes: Vec<Map<String, Value>>,
    output: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileInput {
    shape: [usize; 3],
    #[serde(default)]
    range: Option<[f32; 2]>,
}

fn shape_of(input: Shape, nodes: &[Node], value: usize) -> Shape {
    value.checked_sub(1).map_or(input, |node| nodes[node].shape)
}

fn clip(text: &str) -> String {
    text.chars().take(160).collect()
}

fn check_count(shape: Shape) -> Result<(), String> {
    let Shape { channels, height, width } = shape;
    let count = channels.checked_mul(height).and_then(|count| count.checked_mul(width));
    match count {
        Some(1..=NUMBERS_MAX) => Ok(()),
        _ => {
            Err(format!("{channels} × {height} × {width} numbers, possible are 1 to {NUMBERS_MAX}"))
        }
    }
}

/// A node that is being read: what is left of its entries.
struct Reading {
    name: String,
    operator: String,
    entries: Map<String, Value>,
}

impl Reading {
    fn new(mut entries: Map<String, Value>, index: usize) -> Result<Self, Error> {
        let mut text = |key: &str| match entries.remove(key) {
            Some(Value::String(text)) if (1..=NAME_BYTES_MAX).contains(&text.len()) => Ok(text),
            _ => {
                let why = format!(
                    "node {index} has no {key:?} of 1 to {NAME_BYTES_MAX} bytes, which every node needs"
                );
                Err(Error::Graph { why })
            }
        };
        let (name, operator) = (text("name")?, text("op")?);
        match name.chars().any(char::is_control) {
            false => Ok(Self { name, operator, entries }),
            true => {
                Err(Error::Graph { why: format!("node {index} has a name that cannot be printed") })
            }
        }
    }

    fn wrong(&self, why: impl Into<String>) -> Error {
        Error::Node { node: self.name.clone(), why: why.into() }
    }

    /// An entry, read as its type; `default` where there is none.
    fn entry<T: for<'de> Deserialize<'de>>(
        &mut self,
        key: &str,
        default: Option<T>,
    ) -> Result<T, Error> {
        match (self.entries.remove(key), default) {
            (None, Some(default)) => Ok(default),
            (None, None) => {
                Err(self.wrong(format!("it has no {key:?}, which {} needs", self.operator)))
            }
            (Some(value), _) => serde_json::from_value(value)
                .map_err(|error| self.wrong(format!("{key:?}: {error}"))),
        }
    }

    fn read(
        mut self,
        input: Shape,
        nodes: &[Node],
        places: &HashMap<String, usize>,
        tensors: &Tensors,
    ) -> Result<Node, Error> {
        let names: Vec<String> = self.entry("inputs", None)?;
        let find = |name: &String| {
            places.get(name).copied().ok_or_else(|| {
                let name = clip(name);
                self.wrong(format!("its input {name:?} is no node before it"))
            })
        };
        let inputs = names.iter().map(find).collect::<Result<Vec<usize>, _>>()?;
        let (expected, text) = match self.operator.as_str() {
            "add" => (2..=2, "2"),
            "concat" => (2..=TERMS_MAX, "2 to 64"),
            _ => (1..=1, "1"),
        };
        if !expected.contains(&inputs.len()) {
            let why = format!("{} inputs, {} takes {text}", inputs.len(), self.operator);
            return Err(self.wrong(why));
        }
        let shapes: Vec<Shape> = inputs.iter().map(|&at| shape_of(input, nodes, at)).collect();
        let from = shapes[0];
        let (op, shape) = match self.operator.as_str() {
            "conv" => self.read_conv(from, tensors)?,
            "linear" => self.read_linear(from, tensors)?,
            "batch_norm" => {
                let name = |own: &mut Self, key: &str| own.entry::<String>(key, None);
                let keys = ["scale", "shift", "mean", "variance"];
                let mut names: [String; 4] = Default::default();
                for (held, key) in names.iter_mut().zip(keys) {
                    *held = name(&mut self, key)?;
                    self.check_tensor(tensors, held, &[from.channels])?;
                }
                let epsilon: f64 = self.entry("epsilon", Some(1e-5))?;
                let least = tensors
                    .get(&names[3])
                    .and_then(|own| own.values.iter().copied().reduce(f32::min));
                if !epsilon.is_finite() || f64::from(least.unwrap_or(0.0)) + epsilon <= 0.0 {
                    return Err(self.wrong("a variance that, with epsilon, is not above 0"));
                }
                (Op::BatchNorm { tensors: names, epsilon }, from)
            }
            "relu" => {
                let most: Option<f32> = self.entry("max", Some(None))?;
                if let Some(most) = most.filter(|most| !(*most > 0.0 && *most <= VALUE_MAX)) {
                    return Err(
                        self.wrong(format!("a max of {most}: a number above 0 is possible"))
                    );
                }
                (Op::Relu { most }, from)
            }
            "softmax" => (Op::Post(Post::Softmax), from),
            "sigmoid" => (Op::Post(Post::Sigmoid), from),
            "max_pool" | "average_pool" => {
                let kernel: [usize; 2] = self.entry("kernel", None)?;
                let stride: [usize; 2] = self.entry("stride", Some(kernel))?;
                let pad: [usize; 4] = self.entry("pad", Some([0; 4]))?;
                let pool = Pool { kernel, stride, pad };
                let shape = self.pooled(from, pool)?;
                match self.operator.as_str() {
                    "max_pool" => (Op::MaxPool(pool), shape),
                    _ => (Op::AveragePool(pool), shape),
                }
            }
            "global_average_pool" => {
                (Op::GlobalAveragePool, Shape { channels: from.channels, height: 1, width: 1 })
            }
            "add" if shapes[0] != shapes[1] => {
                let why = format!("it adds {} and {}", sizes(shapes[0]), sizes(shapes[1]));
                return Err(self.wrong(why));
            }
            "add" => (Op::Add, from),
            "concat" => {
                let is_alike = |own: &Shape| (own.height, own.width) == (from.height, from.width);
                if let Some(&other) = shapes.iter().find(|own| !is_alike(own)) {
                    let why = format!("it puts {} after {}", sizes(other), sizes(from));
                    return Err(self.wrong(why));
                }
                let channels = shapes.iter().map(|own| own.channels).sum();
                (Op::Concat, Shape { channels, ..from })
            }
            "flatten" => (Op::Flatten, Shape { channels: from.count(), height: 1, width: 1 }),
            _ => {
                let last = names.last().filter(|name| *name != INPUT);
                return Err(Error::Unsupported {
                    input: last.map(|name| clip(name)).unwrap_or_default(),
                    why: format!(
                        "supported are {}, and softmax and sigmoid at the end",
                        OPERATORS.join(", ")
                    ),
                    node: self.name,
                    operator: self.operator,
                });
            }
        };
        if let Some(key) = self.entries.keys().next() {
            return Err(self.wrong(format!("{} has no entry {:?}", self.operator, clip(key))));
        }
        check_count(shape).map_err(|why| self.wrong(why))?;
        Ok(Node { name: self.name, op, inputs, shape })
    }

    fn read_conv(&mut self, input: Shape, tensors: &Tensors) -> Result<(Op, Shape), Error> {
        let weight: String = self.entry("weight", None)?;
        let bias: Option<String> = self.entry("bias", Some(None))?;
        let stride: [usize; 2] = self.entry("stride", Some([1, 1]))?;
        let pad: [usize; 4] = self.entry("pad", Some([0; 4]))?;
        let groups: usize = self.entry("groups", Some(1))?;
        let found = tensors.get(&weight).map(|tensor| tensor.shape.clone());
        let Some([outputs, own, rows, columns]) =
            found.as_deref().and_then(|shape| <[usize; 4]>::try_from(shape).ok())
        else {
            let expected = vec![0, input.channels / groups.max(1), 0, 0];
            let (node, tensor) = (self.name.clone(), clip(&weight));
            return Err(match found {
                Some(found) => Error::TensorShape { node, tensor, expected, found },
                None => Error::MissingTensor { node, tensor, expected },
            });
        };
        let is_split =
            groups > 0 && [input.channels, outputs].iter().all(|count| count % groups == 0);
        if !is_split || input.channels / groups != own || outputs == 0 {
            let why = format!(
                "{groups} groups of {} channels to {outputs} planes, with weights for {own} channels each",
                input.channels
            );
            return Err(self.wrong(why));
        }
        let sizes = [outputs, input.channels, rows, columns];
        let count = sizes.iter().fold(1_usize, |count, &size| count.saturating_mul(size));
        if count > WEIGHTS_MAX {
            let why = format!("{count} weights, with zeros between groups: at most {WEIGHTS_MAX}");
            return Err(self.wrong(why));
        }
        self.check_tensor(tensors, &weight, &[outputs, own, rows, columns])?;
        if let Some(bias) = &bias {
            self.check_tensor(tensors, bias, &[outputs])?;
        }
        let pool = Pool { kernel: [rows, columns], stride, pad };
        let shape = Shape { channels: outputs, ..self.pooled(input, pool)? };
        let convolution = Convolution { input, outputs, kernel: [rows, columns], stride, pad };
        Ok((Op::Conv { weight, bias, convolution, groups }, shape))
    }

    fn read_linear(&mut self, input: Shape, tensors: &Tensors) -> Result<(Op, Shape), Error> {
        let weight: String = self.entry("weight", None)?;
        let bias: Option<String> = self.entry("bias", Some(None))?;
        if input.height * input.width != 1 {
            let why = format!("it reads an image of {}: flatten it before", sizes(input));
            return Err(self.wrong(why));
        }
        let outputs = tensors.get(&weight).and_then(|own| own.shape.first().copied()).unwrap_or(0);
        self.check_tensor(tensors, &weight, &[outputs, input.channels])?;
        if let Some(bias) = &bias {
            self.check_tensor(tensors, bias, &[outputs])?;
        }
        let shape = Shape { channels: outputs, height: 1, width: 1 };
        Ok((Op::Linear { weight, bias, outputs }, shape))
    }

    /// The sizes after windows.
    fn pooled(&self, input: Shape, pool: Pool) -> Result<Shape, Error> {
        let Pool { kernel, stride, pad: [top, left, bottom, right] } = pool;
        let sides = kernel.iter().chain(&stride);
        if sides.clone().any(|&side| !(1..=4096).contains(&side))
            || pool.pad.iter().any(|&pad| pad > 4096)
        {
            return Err(
                self.wrong(format!("kernel {kernel:?}, stride {stride:?}, pad {:?}", pool.pad))
            );
        }
        let (height, width) = (input.height + top + bottom, input.width + left + right);
        if height < kernel[0] || width < kernel[1] {
            let why = format!("a kernel of {kernel:?} on an image of {height} × {width}");
            return Err(self.wrong(why));
        }
        Ok(windows(Shape { height, width, ..input }, kernel, stride))
    }

    fn check_tensor(&self, tensors: &Tensors, name: &str, expected: &[usize]) -> Result<(), Error> {
        let (node, expected) = (self.name.clone(), expected.to_vec());
        let Some(tensor) = tensors.get(name) else {
            return Err(Error::MissingTensor { node, tensor: clip(name), expected });
        };
        let count = expected.iter().try_fold(1usize, |count, &size| count.checked_mul(size));
        if tensor.shape != expected || count != Some(tensor.values.len()) {
            let (tensor, found) = (clip(name), tensor.shape.clone());
            return Err(Error::TensorShape { node, tensor, expected, found });
        }
        match tensor.values.iter().position(|value| value.is_nan() || value.abs() > VALUE_MAX) {
            None => Ok(()),
            Some(at) => {
                let value = tensor.values[at];
                Err(self.wrong(format!("tensor {name:?} has {value} at {at}, which is no weight")))
            }
        }
    }
}

/// Sizes for people.
pub(super) fn sizes(shape: Shape) -> String {
    format!("{} × {} × {}", shape.channels, shape.height, shape.width)
}

/// A graph's JSON from its parts, for networks that are built rather than imported.
pub(crate) fn document(input: Shape, range: [f32; 2], nodes: Vec<Value>, output: &str) -> String {
    let shape = [input.channels, input.height, input.width];
    let input = json!({"shape": shape, "range": range});
    json!({"format": FORMAT, "input": input, "nodes": nodes, "output": output}).to_string()
}

const FORMAT: u32 = 1;
const VALUE_MAX: f32 = 1e12;
const OPERATORS: [&str; 10] = [
    "conv",
    "linear",
    "batch_norm",
    "relu",
    "max_pool",
    "average_pool",
    "global_average_pool",
    "add",
    "concat",
    "flatten",
];
