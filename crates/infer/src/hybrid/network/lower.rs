//! A network as stages: batch norms folded into weights, activations merged with pools, sums gathered.
//!
//! Values of the graph are held as late as possible. A [`Value::Sum`] is what no activation was applied
//! to yet: a convolution's result takes batch norms into its weights, and takes other sums in. A
//! [`Value::Tensor`] is what an activation gave, with a factor and an offset for each plane that are still
//! to be folded into whatever reads it. [`Value::Parts`] are planes after each other, each part held by itself:
//! what is done to planes is done to each, and a convolution becomes one of each (`parts`).

use hushtable_mpc::garble::WINDOW_MAX;

use super::error::Error;
use super::graph::{Network, Node, Op, Post};
use super::value::{Affine, FloatActivation, FloatStage, FloatTerm, Sum, Value, concat, each};
use crate::hybrid::check::{POST_MAX, TERMS_MAX, WEIGHTS_MAX, WEIGHTS_SUM_MAX};
use crate::hybrid::program::{Convolution, Pool, Shape};
use crate::hybrid::windows::windows;

/// A network as stages of floats.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Lowered {
    /// The input's sizes.
    pub input: Shape,
    /// In order; the last has no activation.
    pub stages: Vec<FloatStage>,
    /// What is left to whoever opens the answer, in order.
    pub post: Vec<Post>,
    /// What was changed on the way, for people.
    pub notes: Vec<String>,
}

/// Lowers a network to stages.
///
/// # Errors
/// [`Error::Unsupported`] for what no stages compute, with the node's name.
pub fn lower(network: &Network) -> Result<Lowered, Error> {
    let mut notes = Vec::new();
    let (output, post) = strip(network, &mut notes);
    let readers = readers(network, output);
    let mut left = readers.clone();
    left[output] += 1;
    let mut own = Lowering { network, stages: Vec::new(), weights: 0 };
    // Before any of them are put among zeros.
    for (index, node) in network.nodes().iter().enumerate() {
        if readers[index + 1] > 0 || index + 1 == output {
            own.count(&node.name, weights_of(network, node))?;
        }
    }
    let input = Value::Tensor { tensor: 0, shape: network.input(), affine: None, is_own: false };
    let mut values = vec![Some(input)];
    for (index, node) in network.nodes().iter().enumerate() {
        if readers[index + 1] == 0 && index + 1 != output {
            values.push(None);
            continue;
        }
        let mut take = |&at: &usize| {
            left[at] -= 1;
            // Its weights are many: whoever reads it last has them as they are.
            if left[at] == 0 { values[at].take() } else { values[at].clone() }
        };
        let inputs = node.inputs.iter().filter_map(&mut take).collect();
        let mut value = own.node(node, inputs)?;
        if readers[index + 1] > 1 {
            value = own.shared(&node.name, value);
        }
        values.push(Some(value));
    }
    let value = values.swap_remove(output).expect("what the output needs was computed");
    let name = output.checked_sub(1).map_or("output", |node| &network.nodes()[node].name);
    let sum = own.sum(name, value)?;
    let Sum { terms, bias, shape } = sum;
    own.stages.push(FloatStage {
        name: name.to_owned(),
        terms,
        bias,
        sum: shape,
        activation: None,
    });
    let (input, stages) = (network.input(), own.stages);
    Ok(Lowered { input, stages, post, notes })
}

/// The last value before what clients do themselves, and what they do.
fn strip(network: &Network, notes: &mut Vec<String>) -> (usize, Vec<Post>) {
    let (mut output, mut post) = (network.output(), Vec::new());
    // Of more, those before the last ones are stages.
    while let Some(index) = output.checked_sub(1).filter(|_| post.len() < POST_MAX) {
        let node = &network.nodes()[index];
        let found = match node.op {
            Op::Relu { most: None } => Post::Relu,
            Op::Post(post) => post,
            Op::Flatten => {
                output = node.inputs[0];
                continue;
            }
            _ => break,
        };
        notes.push(format!(
            "{:?} at the end is left to the client, which sees what it is given",
            node.name
        ));
        post.insert(0, found);
        output = node.inputs[0];
    }
    (output, post)
}

/// How often each value is read on the way to `output`.
fn readers(network: &Network, output: usize) -> Vec<usize> {
    let mut readers = vec![0; network.nodes().len() + 1];
    for index in (0..output).rev() {
        if readers[index + 1] > 0 || index + 1 == output {
            network.nodes()[index].inputs.iter().for_each(|&input| readers[input] += 1);
        }
    }
    readers
}

/// Weights of a node, with zeros between groups.
fn weights_of(network: &Network, node: &Node) -> usize {
    match &node.op {
        Op::Conv { convolution, .. } => convolution.weights(),
        Op::Linear { outputs, .. } => outputs * network.shape(node.inputs[0]).count(),
        _ => 0,
    }
}

pub(super) struct Lowering<'n> {
    network: &'n Network,
    stages: Vec<FloatStage>,
    /// Of all stages, those included that nodes still to come have.
    weights: usize,
}

impl Lowering<'_> {
    /// Counts weights that a node is about to have.
    pub(super) fn count(&mut self, name: &str, weights: usize) -> Result<(), Error> {
        self.weights = self.weights.saturating_add(weights);
        if self.weights <= WEIGHTS_SUM_MAX {
            return Ok(());
        }
        let why = format!(
            "with its weights, zeros between groups and factors of planes among them, the network has more \
             than {WEIGHTS_SUM_MAX}"
        );
        Err(Error::Node { node: name.to_owned(), why })
    }

    fn node(&mut self, node: &Node, inputs: Vec<Value>) -> Result<Value, Error> {
        let name = &node.name;
        let unsupported = |operator: &str, why: &str| {
            let before = node.inputs.first().and_then(|input| input.checked_sub(1));
            let input = before.map(|at| self.network.nodes()[at].name.clone()).unwrap_or_default();
            let (operator, why) = (operator.to_owned(), why.to_owned());
            Error::Unsupported { node: name.clone(), operator, input, why }
        };
        let mut inputs = inputs.into_iter();
        let value = inputs.next().expect("every node reads what was computed before");
        Ok(match &node.op {
            Op::Conv { weight, bias, convolution, groups } => {
                let weights = dense(convolution, *groups, self.network.tensor(weight));
                self.convolve(name, value, *convolution, weights, bias)?
            }
            Op::Linear { weight, bias, outputs } => {
                let input = self.network.shape(node.inputs[0]);
                let (outputs, kernel, stride, pad) = (*outputs, [1, 1], [1, 1], [0; 4]);
                let own = Convolution { input, outputs, kernel, stride, pad };
                let weights = self.network.tensor(weight).to_vec();
                self.convolve(name, value, own, weights, bias)?
            }
            Op::BatchNorm { tensors, epsilon } => {
                let (factors, offsets) = self.network.affine(tensors, *epsilon);
                self.scale(name, value, Affine { factors, offsets })?
            }
            Op::Relu { most } => self.rectify(name, value, most.map(f64::from))?,
            Op::MaxPool(pool) => {
                let [top, left, bottom, right] = pool.pad;
                if top.max(bottom) >= pool.kernel[0] || left.max(right) >= pool.kernel[1] {
                    let why = "pads narrower than the windows are: each window holds a number";
                    return Err(unsupported("max_pool of wide pads", why));
                }
                if pool.kernel[0].max(pool.kernel[1]) > WINDOW_MAX {
                    let why = format!("windows of up to {WINDOW_MAX} rows and columns");
                    return Err(unsupported("max_pool of large windows", &why));
                }
                self.largest(name, value, *pool)?
            }
            Op::AveragePool(pool) => self.average(name, value, *pool)?,
            Op::GlobalAveragePool => {
                let Shape { height, width, .. } = self.network.shape(node.inputs[0]);
                self.average(name, value, Pool::side_by_side([height, width]))?
            }
            Op::Add => {
                let other = inputs.next().expect("an addition has two inputs");
                self.add(name, value, other)?
            }
            Op::Concat => concat(name, std::iter::once(value).chain(inputs))?,
            Op::Flatten => self.flatten(name, value)?,
            Op::Post(post) => {
                let operator = format!("{post:?}").to_lowercase();
                return Err(unsupported(&operator, "it is at the end of a network"));
            }
        })
    }

    /// A value that is read more than once: nobody may compute it again, nor change it for the others.
    fn shared(&mut self, name: &str, value: Value) -> Value {
        match value {
            Value::Sum(sum) => {
                let value = self.finish(name, sum, FloatActivation::NONE);
                self.shared(name, value)
            }
            Value::Tensor { tensor, shape, affine, .. } => {
                Value::Tensor { tensor, shape, affine, is_own: false }
            }
            Value::Parts(parts) => {
                Value::Parts(parts.into_iter().map(|part| self.shared(name, part)).collect())
            }
        }
    }

    /// Ends a sum by an activation.
    fn finish(&mut self, name: &str, sum: Sum, activation: FloatActivation) -> Value {
        let Sum { terms, bias, shape } = sum;
        let activation = Some(activation);
        let stage = FloatStage { name: name.to_owned(), terms, bias, sum: shape, activation };
        let shape = stage.output();
        self.stages.push(stage);
        Value::Tensor { tensor: self.stages.len(), shape, affine: None, is_own: true }
    }

    /// A value as a tensor; one whose offsets matter only after its affine map was applied.
    pub(super) fn tensor(
        &mut self,
        name: &str,
        value: Value,
    ) -> Result<(usize, Shape, Option<Affine>, bool), Error> {
        match value {
            Value::Tensor { tensor, shape, affine, is_own } => Ok((tensor, shape, affine, is_own)),
            value => {
                let sum = self.sum(name, value)?;
                let value = self.finish(name, sum, FloatActivation::NONE);
                self.tensor(name, value)
            }
        }
    }

    /// A value as a sum that others can be added to.
    pub(super) fn sum(&mut self, name: &str, value: Value) -> Result<Sum, Error> {
        Ok(match value {
            Value::Sum(sum) => sum,
            Value::Parts(parts) => self.joined(name, parts)?,
            Value::Tensor { tensor: source, shape, affine: None, .. } => {
                let (window, stride, log) = ([1, 1], [1, 1], 0);
                let terms = vec![FloatTerm::Windows { source, input: shape, window, stride, log }];
                Sum { terms, bias: vec![0.0; shape.channels], shape }
            }
            Value::Tensor { tensor: source, shape, affine: Some(affine), .. } => {
                let (convolution, weights) =
                    self.diagonal(name, shape, Pool::NONE, &affine.factors)?;
                let terms = vec![FloatTerm::Convolution { source, convolution, weights }];
                Sum { terms, bias: affine.offsets, shape }
            }
        })
    }

    pub(super) fn convolve(
        &mut self,
        name: &str,
        value: Value,
        convolution: Convolution,
        mut weights: Vec<f32>,
        bias: &Option<String>,
    ) -> Result<Value, Error> {
        if let Value::Parts(parts) = value {
            return self.convolve_parts(name, parts, convolution, &weights, bias);
        }
        let (mut source, _, mut affine, _) = self.tensor(&format!("{name}.input"), value)?;
        let shape = convolution.input;
        if let Some(own) = affine.take_if(|own| own.is_shifted() && convolution.pad != [0; 4]) {
            // Pads are zeros of what was shifted, which no bias of a whole plane makes good.
            let value = Value::Tensor { tensor: source, shape, affine: Some(own), is_own: false };
            let sum = self.sum(name, value)?;
            let value = self.finish(&format!("{name}.shift"), sum, FloatActivation::NONE);
            (source, ..) = self.tensor(name, value)?;
        }
        let mut offsets = match bias {
            Some(bias) => self.network.tensor(bias).iter().map(|&bias| f64::from(bias)).collect(),
            None => vec![0.0; convolution.outputs],
        };
        if let Some(Affine { factors, offsets: shifts }) = affine {
            let taps = convolution.kernel[0] * convolution.kernel[1];
            let planes = weights.chunks_mut(taps * shape.channels);
            for (plane, offset) in planes.zip(&mut offsets) {
                for (channel, (factor, shift)) in
                    plane.chunks_mut(taps).zip(factors.iter().zip(&shifts))
                {
                    *offset += shift * channel.iter().map(|&weight| f64::from(weight)).sum::<f64>();
                    channel
                        .iter_mut()
                        .for_each(|weight| *weight = (f64::from(*weight) * factor) as f32);
                }
            }
        }
        let terms = vec![FloatTerm::Convolution { source, convolution, weights }];
        Ok(Value::Sum(Sum { terms, bias: offsets, shape: convolution.output() }))
    }

    fn rectify(&mut self, name: &str, value: Value, most: Option<f64>) -> Result<Value, Error> {
        let activation = FloatActivation { rectify: true, most, pool: Pool::NONE };
        Ok(match value {
            Value::Parts(parts) => each(parts, |part| self.rectify(name, part, most))?,
            Value::Tensor { tensor, shape, affine: None, is_own } => {
                let bare = Value::Tensor { tensor, shape, affine: None, is_own };
                let before =
                    tensor.checked_sub(1).and_then(|stage| self.stages[stage].activation.as_mut());
                match before {
                    // The largest of a window commutes with both.
                    Some(own) if is_own => {
                        own.rectify = true;
                        own.most = own.most.into_iter().chain(most).reduce(f64::min);
                        bare
                    }
                    Some(own) if own.rectify && most.is_none() => bare,
                    _ => {
                        let sum = self.sum(name, bare)?;
                        self.finish(name, sum, activation)
                    }
                }
            }
            Value::Tensor { tensor, shape, affine: Some(own), is_own }
                if own.is_rising() && !own.is_shifted() && most.is_none() =>
            {
                // A factor that is not negative may as well come after.
                let value = Value::Tensor { tensor, shape, affine: None, is_own };
                let rectified = self.rectify(name, value, None)?;
                self.scale(name, rectified, own)?
            }
            value => {
                let sum = self.sum(name, value)?;
                self.finish(name, sum, activation)
            }
        })
    }

    fn largest(&mut self, name: &str, value: Value, pool: Pool) -> Result<Value, Error> {
        let is_rising = |affine: &Option<Affine>| affine.as_ref().is_none_or(Affine::is_rising);
        let activation = FloatActivation { pool, ..FloatActivation::NONE };
        Ok(match value {
            value if pool == Pool::NONE => value,
            Value::Parts(parts) => each(parts, |part| self.largest(name, part, pool))?,
            value if pool.kernel[0] * pool.kernel[1] > WINDOW_MAX => {
                // The largest of rows' largest: two circuits of few numbers, where one has too many.
                let ([rows, columns], [top, left, bottom, right]) = (pool.kernel, pool.pad);
                let [down, across] = pool.stride;
                let (kernel, stride, pad) = ([1, columns], [1, across], [0, left, 0, right]);
                let value =
                    self.largest(&format!("{name}.rows"), value, Pool { kernel, stride, pad })?;
                let (kernel, stride, pad) = ([rows, 1], [down, 1], [top, 0, bottom, 0]);
                self.largest(name, value, Pool { kernel, stride, pad })?
            }
            // The largest of what keeps order is found before it as well.
            Value::Tensor { tensor, shape, affine, is_own } if is_rising(&affine) => {
                // One that was flattened since has other windows.
                let is_as_made = |&at: &usize| is_own && self.stages[at].output() == shape;
                let stage = tensor.checked_sub(1).filter(is_as_made);
                let own = stage.and_then(|stage| self.stages[stage].activation.as_mut());
                let found = match own.filter(|own| own.pool == Pool::NONE) {
                    Some(own) => {
                        own.pool = pool;
                        let shape = self.stages[tensor - 1].output();
                        Value::Tensor { tensor, shape, affine: None, is_own }
                    }
                    None => {
                        let bare = Value::Tensor { tensor, shape, affine: None, is_own };
                        let sum = self.sum(name, bare)?;
                        self.finish(name, sum, activation)
                    }
                };
                match affine {
                    Some(affine) => self.scale(name, found, affine)?,
                    None => found,
                }
            }
            value => {
                let sum = self.sum(name, value)?;
                self.finish(name, sum, activation)
            }
        })
    }

    fn average(&mut self, name: &str, value: Value, pool: Pool) -> Result<Value, Error> {
        if pool == Pool::NONE {
            return Ok(value);
        }
        let value = match value {
            Value::Parts(parts) => return each(parts, |part| self.average(name, part, pool)),
            value => value,
        };
        if pool.pad != [0; 4] {
            // Each plane's own convolution, which has pads.
            let shape = value.shape();
            let each = 1.0 / (pool.kernel[0] * pool.kernel[1]) as f64;
            let own = vec![each; shape.channels];
            let (convolution, weights) = self.diagonal(name, shape, pool, &own)?;
            return self.convolve(name, value, convolution, weights, &None);
        }
        let Pool { kernel: window, stride, .. } = pool;
        let (source, input, affine, _) = self.tensor(&format!("{name}.input"), value)?;
        let count = window[0] * window[1];
        let log = count.next_power_of_two().ilog2();
        let shape = windows(input, window, stride);
        let terms = vec![FloatTerm::Windows { source, input, window, stride, log }];
        let sum = Sum { terms, bias: vec![0.0; shape.channels], shape };
        // What a power of two does not divide by is left to whatever comes next.
        let rest = (1_u64 << log) as f64 / count as f64;
        let affine = match affine {
            None if rest == 1.0 => return Ok(Value::Sum(sum)),
            None => {
                Affine { factors: vec![rest; shape.channels], offsets: vec![0.0; shape.channels] }
            }
            Some(Affine { factors, offsets }) => {
                Affine { factors: factors.iter().map(|factor| factor * rest).collect(), offsets }
            }
        };
        let pooled = self.finish(name, sum, FloatActivation::NONE);
        self.scale(name, pooled, affine)
    }

    fn add(&mut self, name: &str, left: Value, right: Value) -> Result<Value, Error> {
        let mut short = |value: Value| -> Result<Sum, Error> {
            let sum = self.sum(name, value)?;
            if sum.terms.len() <= TERMS_MAX / 2 {
                return Ok(sum);
            }
            let value = self.finish(&format!("{name}.part"), sum, FloatActivation::NONE);
            self.sum(name, value)
        };
        let (mut left, mut right) = (short(left)?, short(right)?);
        left.terms.append(&mut right.terms);
        left.bias.iter_mut().zip(right.bias).for_each(|(left, right)| *left += right);
        Ok(Value::Sum(left))
    }

    fn flatten(&mut self, name: &str, value: Value) -> Result<Value, Error> {
        let value = match value {
            // Planes come one after the other, flat or not.
            Value::Parts(parts) => return each(parts, |part| self.flatten(name, part)),
            Value::Sum(sum) if sum.shape.height * sum.shape.width == 1 => {
                return Ok(Value::Sum(sum));
            }
            value => value,
        };
        let (tensor, shape, affine, is_own) = self.tensor(name, value)?;
        let count = shape.height * shape.width;
        let spread = |own: Vec<f64>| {
            own.into_iter().flat_map(|value| std::iter::repeat_n(value, count)).collect()
        };
        let affine = affine.map(|Affine { factors, offsets }| Affine {
            factors: spread(factors),
            offsets: spread(offsets),
        });
        let shape = Shape { channels: shape.count(), height: 1, width: 1 };
        Ok(Value::Tensor { tensor, shape, affine, is_own })
    }

    /// A value with a factor and an offset for each plane.
    fn scale(&mut self, name: &str, value: Value, affine: Affine) -> Result<Value, Error> {
        let mut sum = match value {
            Value::Sum(sum) => sum,
            Value::Parts(parts) => {
                let Affine { mut factors, mut offsets } = affine;
                return each(parts, |part| {
                    let own = part.shape().channels;
                    let (next_factors, next_offsets) =
                        (factors.split_off(own), offsets.split_off(own));
                    let factors = std::mem::replace(&mut factors, next_factors);
                    let offsets = std::mem::replace(&mut offsets, next_offsets);
                    self.scale(name, part, Affine { factors, offsets })
                });
            }
            Value::Tensor { tensor, shape, affine: before, is_own } => {
                let affine = match before {
                    Some(before) => before.then(&affine),
                    None => affine,
                };
                return Ok(Value::Tensor { tensor, shape, affine: Some(affine), is_own });
            }
        };
        let Affine { factors, offsets } = affine;
        let each = factors.iter().zip(&offsets);
        sum.bias
            .iter_mut()
            .zip(each)
            .for_each(|(bias, (factor, offset))| *bias = *bias * factor + offset);
        let is_one = factors.iter().all(|&factor| factor == 1.0);
        for term in &mut sum.terms {
            match term {
                FloatTerm::Convolution { weights, convolution, .. } => {
                    let planes = weights.chunks_mut(convolution.weights() / convolution.outputs);
                    for (plane, factor) in planes.zip(&factors) {
                        plane
                            .iter_mut()
                            .for_each(|weight| *weight = (f64::from(*weight) * factor) as f32);
                    }
                }
                FloatTerm::Windows { .. } if is_one => {}
                FloatTerm::Windows { source, input, window, stride, log } => {
                    let divisor = (1_u64 << *log) as f64;
                    let factors: Vec<f64> = factors.iter().map(|factor| factor / divisor).collect();
                    let pool = Pool { kernel: *window, stride: *stride, pad: [0; 4] };
                    let (source, input) = (*source, *input);
                    let (convolution, weights) = self.diagonal(name, input, pool, &factors)?;
                    *term = FloatTerm::Convolution { source, convolution, weights };
                }
            }
        }
        Ok(Value::Sum(sum))
    }

    /// A convolution of each plane with a factor of its own, summed over windows.
    fn diagonal(
        &mut self,
        name: &str,
        input: Shape,
        pool: Pool,
        factors: &[f64],
    ) -> Result<(Convolution, Vec<f32>), Error> {
        let Pool { kernel, stride, pad } = pool;
        let (outputs, taps) = (input.channels, kernel[0] * kernel[1]);
        let convolution = Convolution { input, outputs, kernel, stride, pad };
        if outputs.saturating_mul(outputs).saturating_mul(taps) > WEIGHTS_MAX {
            let why = format!(
                "factors of {outputs} planes, which cannot be folded into what comes next, would take a \
             convolution of more than {WEIGHTS_MAX} weights"
            );
            return Err(Error::Node { node: name.to_owned(), why });
        }
        self.count(name, convolution.weights())?;
        let mut weights = vec![0.0; convolution.weights()];
        for (plane, &factor) in factors.iter().enumerate() {
            weights[(plane * outputs + plane) * taps..][..taps].fill(factor as f32);
        }
        Ok((convolution, weights))
    }
}

/// Weights of groups among zeros.
fn dense(convolution: &Convolution, groups: usize, weights: &[f32]) -> Vec<f32> {
    if groups == 1 {
        return weights.to_vec();
    }
    let taps = convolution.kernel[0] * convolution.kernel[1];
    let (own, all) =
        (convolution.input.channels / groups * taps, convolution.input.channels * taps);
    let mut found = vec![0.0; convolution.weights()];
    let planes = found.chunks_mut(all).zip(weights.chunks(own)).enumerate();
    for (plane, (found, weights)) in planes {
        let group = plane / (convolution.outputs / groups);
        found[group * own..][..own].copy_from_slice(weights);
    }
    found
}
