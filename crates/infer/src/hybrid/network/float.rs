//! A network computed in floats, node by node: what everything else is compared with.

use super::error::Error;
use super::graph::{Network, Op, sizes};
use super::matrix::convolve;
use crate::hybrid::program::{Convolution, Pool, Shape};

impl Network {
    /// The answer to an input, as the network's own library would compute it, with whatever is left to
    /// the client done.
    ///
    /// # Errors
    /// [`Error::Input`] for an input of another size.
    pub fn evaluate(&self, input: &[f32]) -> Result<Vec<f32>, Error> {
        let shape = self.input();
        if input.len() != shape.count() {
            let (expected, found) = (shape.count(), input.len());
            return Err(Error::Input { expected, found, shape: sizes(shape) });
        }
        let mut values = vec![input.to_vec()];
        for node in self.nodes() {
            let x = &values[node.inputs[0]];
            let shape = self.shape(node.inputs[0]);
            let y = match &node.op {
                Op::Conv { weight, bias, convolution, groups } => {
                    let mut y = self.bias(bias, node.shape);
                    grouped(convolution, *groups, self.tensor(weight), x, &mut y);
                    y
                }
                Op::Linear { weight, bias, outputs } => {
                    let mut y = self.bias(bias, node.shape);
                    let (outputs, kernel, stride, pad) = (*outputs, [1, 1], [1, 1], [0; 4]);
                    let own = Convolution { input: shape, outputs, kernel, stride, pad };
                    convolve(&own, self.tensor(weight), x, &mut y);
                    y
                }
                Op::BatchNorm { tensors, epsilon } => {
                    let (factors, offsets) = self.affine(tensors, *epsilon);
                    let planes =
                        x.chunks(shape.height * shape.width).zip(factors.iter().zip(offsets));
                    let each = planes.flat_map(|(plane, (&factor, offset))| {
                        plane.iter().map(move |&x| (f64::from(x) * factor + offset) as f32)
                    });
                    each.collect()
                }
                Op::Relu { most } => {
                    let most = most.unwrap_or(f32::INFINITY);
                    x.iter().map(|x| x.max(0.0).min(most)).collect()
                }
                Op::MaxPool(pool) => pooled(shape, *pool, x, |window| {
                    window.iter().copied().fold(f32::NEG_INFINITY, f32::max)
                }),
                Op::AveragePool(pool) => {
                    let count = (pool.kernel[0] * pool.kernel[1]) as f32;
                    // Pads are zeros, and are counted.
                    pooled(shape, *pool, x, |window| window.iter().sum::<f32>() / count)
                }
                Op::GlobalAveragePool => {
                    let count = shape.height * shape.width;
                    x.chunks(count).map(|plane| plane.iter().sum::<f32>() / count as f32).collect()
                }
                Op::Add => x.iter().zip(&values[node.inputs[1]]).map(|(x, y)| x + y).collect(),
                Op::Concat => node.inputs.iter().flat_map(|&at| values[at].clone()).collect(),
                Op::Flatten => x.clone(),
                Op::Post(post) => {
                    let mut y = x.clone();
                    post.apply(&mut y);
                    y
                }
            };
            values.push(y);
        }
        Ok(values.swap_remove(self.output()))
    }

    /// A bias spread over planes; zeros where there is none.
    fn bias(&self, name: &Option<String>, shape: Shape) -> Vec<f32> {
        match name {
            None => vec![0.0; shape.count()],
            Some(name) => spread(self.tensor(name), shape.height * shape.width),
        }
    }
}

/// Each number `count` times.
pub(super) fn spread(values: &[f32], count: usize) -> Vec<f32> {
    values.iter().flat_map(|&value| std::iter::repeat_n(value, count)).collect()
}

fn grouped(own: &Convolution, groups: usize, weights: &[f32], x: &[f32], y: &mut [f32]) {
    let (channels, outputs) = (own.input.channels / groups, own.outputs / groups);
    let group = Convolution { input: Shape { channels, ..own.input }, outputs, ..*own };
    let parts = weights.chunks(group.weights()).zip(x.chunks(group.input.count()));
    for ((weights, x), y) in parts.zip(y.chunks_mut(group.output().count())) {
        convolve(&group, weights, x, y);
    }
}

/// Windows of an image, which lie inside of it but for pads.
fn pooled(shape: Shape, pool: Pool, x: &[f32], of: impl Fn(&[f32]) -> f32) -> Vec<f32> {
    let Pool { kernel, stride, pad } = pool;
    let (inside, outputs) = (Shape { channels: 1, ..shape }, 1);
    let output = Convolution { input: inside, outputs, kernel, stride, pad }.output();
    let mut y = Vec::new();
    for plane in x.chunks(shape.height * shape.width) {
        for row in 0..output.height {
            for column in 0..output.width {
                let rows = (0..kernel[0]).map(|at| (row * stride[0] + at).wrapping_sub(pad[0]));
                let columns = |at: usize| (column * stride[1] + at).wrapping_sub(pad[1]);
                let mut window: Vec<f32> = Vec::new();
                for row in rows.filter(|&row| row < shape.height) {
                    let columns = (0..kernel[1]).map(columns).filter(|&at| at < shape.width);
                    window.extend(columns.map(|column| plane[row * shape.width + column]));
                }
                y.push(of(&window));
            }
        }
    }
    y
}
