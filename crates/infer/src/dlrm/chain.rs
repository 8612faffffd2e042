//! A model as a chain of links: linear maps with a gate after each but the last.
//!
//! Adjacent linear maps are one link. With a *lift*, the client sends the degree-2 monomials of its
//! dense features too, so that the first layer, its square and the next layer are one linear map of
//! what it sends.

use serde::{Deserialize, Serialize};

use super::error::Error;
use super::gate::{Gate, shift};
use super::spec::Dlrm;
use super::weights::{Affine, Trained, Weights};

/// A linear map and what follows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Link {
    /// The layers that it is made of.
    pub name: String,
    /// Values in: of the link before, or of the client's dense features and their monomials.
    pub inputs: usize,
    /// Values out.
    pub outputs: usize,
    /// What follows.
    pub gate: Option<Gate>,
}

/// A model's links.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Chain {
    /// The links, the logit's last.
    pub links: Vec<Link>,
    /// The link that embeddings are added in.
    pub join: usize,
    /// Whether pairwise dot products follow the join.
    pub is_dot: bool,
    /// Whether the client sends degree-2 monomials.
    pub is_lifted: bool,
}

impl Chain {
    /// The links of a model whose embeddings join by concatenation or dot products; lifted if asked
    /// for and possible.
    ///
    /// # Errors
    /// [`Error::Spec`] for an activation that needs a range and has none, or a feature with a bag.
    pub fn new(dlrm: &Dlrm, weights: &Weights, lift: bool) -> Result<Self, Error> {
        dlrm.check_single()?;
        let (spec, mut links) = (dlrm.spec(), Vec::new());
        let is_dot = dlrm.is_dot();
        let mut waiting: Option<Link> = None;
        for (index, shape) in dlrm.bottom().iter().enumerate() {
            let name = format!("bottom {index}");
            let mut link = Link { name, inputs: shape.inputs, outputs: shape.outputs, gate: None };
            if shape.is_activated {
                let trained = &weights.bottom_trained[index];
                link.gate = Some(Gate::new(spec, trained, &link.name)?);
                links.push(link);
            } else {
                waiting = Some(link);
            }
        }
        let bottom_outputs = dlrm.bottom()[dlrm.bottom().len() - 1].outputs;
        let join = links.len();
        if is_dot {
            let (inputs, outputs) = (bottom_outputs, bottom_outputs);
            let name = "lanes".to_owned();
            links.push(waiting.take().unwrap_or(Link { name, inputs, outputs, gate: None }));
        }
        for (index, shape) in dlrm.top().iter().enumerate() {
            let mut name = format!("top {index}");
            let mut inputs = shape.inputs;
            if index == 0 && !is_dot {
                inputs = bottom_outputs;
                if let Some(bottom) = waiting.take() {
                    (name, inputs) = (format!("{} · {name}", bottom.name), bottom.inputs);
                }
            }
            let gate = match shape.is_activated {
                true => Some(Gate::new(spec, &weights.top_trained[index], &name)?),
                false => None,
            };
            links.push(Link { name, inputs, outputs: shape.outputs, gate });
        }
        let mut chain = Self { links, join, is_dot, is_lifted: false };
        if lift && chain.join > 0 && chain.links[0].gate == Some(Gate::Square) {
            let first = chain.links.remove(0);
            chain.join -= 1;
            let link = &mut chain.links[0];
            link.name = format!("{} · square · {}", first.name, link.name);
            link.inputs = first.inputs + first.inputs * (first.inputs + 1) / 2;
            chain.is_lifted = true;
        }
        Ok(chain)
    }
}

/// A chain's numbers.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Folded {
    /// By link: the map of the link before's outputs, gates' scales and shifts folded in.
    pub affines: Vec<Affine>,
    /// With concatenation: what the join makes of all embeddings, outputs × (features · dim).
    pub embedding: Option<Affine>,
    /// By link: the polynomial gate's coefficients on [−1, 1], the constant first.
    pub coefficients: Vec<Vec<f64>>,
    /// By link: what its gate's inputs must keep to, if the training held them inside a range.
    pub limits: Vec<Option<Limit>>,
}

/// A range that inputs were held in, and what was made of them since: x · `scale` + `shift`.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Limit {
    /// The end of the range.
    pub range: f64,
    /// What was multiplied.
    pub scale: f64,
    /// What was added after.
    pub shift: f64,
}

/// What a gate does to the links around it.
struct Around {
    /// Before: x · scale + shift.
    scale_in: f64,
    shift_in: f64,
    /// After: y · scale + shift.
    scale_out: f64,
    shift_out: f64,
}

impl Chain {
    /// The numbers of the chain that was made of these weights.
    pub fn fold(&self, dlrm: &Dlrm, weights: &Weights) -> Folded {
        let count = dlrm.bottom().len();
        let is_waiting = !dlrm.bottom()[count - 1].is_activated;
        let gated = count - usize::from(is_waiting);
        let mut affines: Vec<Affine> = weights.bottom[..gated].to_vec();
        let mut trained: Vec<&Trained> = weights.bottom_trained.iter().collect();
        let waiting = is_waiting.then(|| &weights.bottom[count - 1]);
        let mut embedding = None;
        let first = &weights.top[0];
        if self.is_dot {
            let dim = weights.bottom[count - 1].outputs;
            affines.push(waiting.cloned().unwrap_or_else(|| identity(dim)));
            trained.push(const { &Trained { coefficients: Vec::new(), range: None, relu: None } });
            affines.push(first.clone());
        } else {
            let split = weights.bottom[count - 1].outputs;
            let (hidden, rest) = split_columns(first, split);
            affines.push(waiting.map_or(hidden.clone(), |bottom| compose(&hidden, bottom)));
            embedding = Some(rest);
        }
        affines.extend(weights.top[1..].iter().cloned());
        trained.extend(&weights.top_trained);

        let mut gates: Vec<Option<Gate>> = self.links.iter().map(|link| link.gate).collect();
        if self.is_lifted {
            gates.insert(0, Some(Gate::Square));
        }
        let join = self.join + usize::from(self.is_lifted);
        let mut coefficients = vec![Vec::new(); gates.len()];
        let mut limits = vec![None; gates.len()];
        for (index, gate) in gates.iter().enumerate() {
            let Some(gate) = gate else { continue };
            let around = around(gate, trained[index]);
            limits[index] = trained[index].range.map(|range| {
                let Around { scale_in: scale, shift_in: shift, .. } = around;
                Limit { range, scale, shift }
            });
            let before = &mut affines[index];
            before.matrix.iter_mut().for_each(|w| *w *= around.scale_in);
            let shift = |b: &mut f64| *b = *b * around.scale_in + around.shift_in;
            before.bias.iter_mut().for_each(shift);
            if let Some(embedding) = embedding.as_mut().filter(|_| index == join) {
                embedding.matrix.iter_mut().for_each(|w| *w *= around.scale_in);
            }
            let after = &mut affines[index + 1];
            for output in 0..after.outputs {
                let sum: f64 = after.row(output).iter().sum();
                after.bias[output] += sum * around.shift_out;
            }
            after.matrix.iter_mut().for_each(|w| *w *= around.scale_out);
            if let Gate::Polynomial { range, .. } = gate {
                let scaled = |(power, c): (usize, &f64)| c * range.powi(power as i32);
                coefficients[index] =
                    trained[index].coefficients.iter().enumerate().map(scaled).collect();
            }
        }
        if self.is_lifted {
            let first = affines.remove(0);
            coefficients.remove(0);
            limits.remove(0);
            affines[0] = lift(&first, &affines[0]);
        }
        Folded { affines, embedding, coefficients, limits }
    }
}

fn around(gate: &Gate, trained: &Trained) -> Around {
    let plain = Around { scale_in: 1.0, shift_in: 0.0, scale_out: 1.0, shift_out: 0.0 };
    match gate {
        Gate::Square => match (trained.coefficients.as_slice(), shift(&trained.coefficients)) {
            (&[c0, c1, c2], Some(shift)) => Around {
                shift_in: shift,
                scale_out: c2,
                // c2 (x + s)² = c2 x² + c1 x + c1² / 4 c2; the next link's scale c2 is applied to
                // its matrix after this shift was added through it.
                shift_out: c0 - c1 * c1 / (4.0 * c2),
                ..plain
            },
            _ => plain,
        },
        // Approximations take x / range and give the function of x.
        Gate::Polynomial { range, .. } | Gate::Silu { range, .. } | Gate::Relu { range, .. } => {
            Around { scale_in: 1.0 / range, ..plain }
        }
    }
}

fn identity(size: usize) -> Affine {
    let mut identity = Affine::zero(size, size);
    (0..size).for_each(|index| identity.matrix[index * (size + 1)] = 1.0);
    identity
}

/// The map of the first `split` inputs, with the bias, and that of the others, without.
fn split_columns(affine: &Affine, split: usize) -> (Affine, Affine) {
    let mut left = Affine::zero(split, affine.outputs);
    let mut right = Affine::zero(affine.inputs - split, affine.outputs);
    left.bias.clone_from(&affine.bias);
    for output in 0..affine.outputs {
        let (a, b) = affine.row(output).split_at(split);
        left.matrix[output * left.inputs..][..a.len()].copy_from_slice(a);
        right.matrix[output * right.inputs..][..b.len()].copy_from_slice(b);
    }
    (left, right)
}

/// second ∘ first.
fn compose(second: &Affine, first: &Affine) -> Affine {
    let mut both = Affine::zero(first.inputs, second.outputs);
    both.bias = second.apply(&first.bias);
    for output in 0..second.outputs {
        let out = &mut both.matrix[output * first.inputs..][..first.inputs];
        for (middle, &w) in second.row(output).iter().enumerate() {
            out.iter_mut().zip(first.row(middle)).for_each(|(out, v)| *out += w * v);
        }
    }
    both
}

/// second(first(x)²) as a map of x and the monomials x_i x_j, i ≤ j, in the order of
/// [`monomials`].
fn lift(first: &Affine, second: &Affine) -> Affine {
    let (n, hidden) = (first.inputs, first.outputs);
    let mut lifted = Affine::zero(n + n * (n + 1) / 2, second.outputs);
    lifted.bias.clone_from(&second.bias);
    for h in 0..hidden {
        let (row, b) = (first.row(h), first.bias[h]);
        let linear = row.iter().map(|w| 2.0 * b * w);
        let products = (0..n)
            .flat_map(|i| (i..n).map(move |j| row[i] * row[j] * if i == j { 1.0 } else { 2.0 }));
        let square: Vec<f64> = linear.chain(products).collect();
        for output in 0..second.outputs {
            let w = second.row(output)[h];
            lifted.bias[output] += w * b * b;
            let out = &mut lifted.matrix[output * square.len()..][..square.len()];
            out.iter_mut().zip(&square).for_each(|(out, v)| *out += w * v);
        }
    }
    lifted
}

/// What a client sends of its dense features when lifted: them, and x_i x_j for i ≤ j.
pub fn monomials(x: &[f64]) -> Vec<f64> {
    let products = (0..x.len()).flat_map(|i| (i..x.len()).map(move |j| x[i] * x[j]));
    x.iter().copied().chain(products).collect()
}
