//! The forward pass in the clear: the specification that the circuit is held against.

use super::error::Error;
use super::spec::{Activation, Dlrm, Interaction};
use super::weights::{Trained, Weights};

/// What one layer's activation got.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Seen {
    /// The layer: `bottom 0`, `top 1`, ...
    pub layer: String,
    /// Its activation's inputs.
    pub inputs: Vec<f64>,
}

/// One user's logit, and what the activations got on the way.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Forward {
    /// The logit.
    pub logit: f64,
    /// Every activation's inputs, in order.
    pub seen: Vec<Seen>,
    /// The bottom perceptron's output and what the embeddings made of it: the top perceptron's inputs.
    pub joined: Vec<f64>,
}

/// The logit of one user, whose indices are as [`Dlrm::places`] takes them.
///
/// # Errors
/// [`Error::Count`], [`Error::Index`].
pub fn forward(
    dlrm: &Dlrm,
    weights: &Weights,
    dense: &[f64],
    indices: &[u64],
) -> Result<Forward, Error> {
    let trained = || weights.bottom_trained.iter().chain(&weights.top_trained);
    let gates: Vec<&Trained> = trained().collect();
    let activation = dlrm.spec().activation;
    forward_by(dlrm, weights, dense, indices, |index, x| activate(activation, gates[index], x))
}

/// As [`forward`], with ReLU itself where the model was trained with a polynomial in its place: what that
/// polynomial makes of the logit is the distance between the two.
///
/// # Errors
/// As [`forward`].
pub fn forward_relu(
    dlrm: &Dlrm,
    weights: &Weights,
    dense: &[f64],
    indices: &[u64],
) -> Result<Forward, Error> {
    forward_by(dlrm, weights, dense, indices, |_, x| x.max(0.0))
}

/// As [`forward`], with another function in place of each activation, which are counted from the bottom's first.
pub(super) fn forward_by(
    dlrm: &Dlrm,
    weights: &Weights,
    dense: &[f64],
    indices: &[u64],
    gate: impl Fn(usize, f64) -> f64,
) -> Result<Forward, Error> {
    let spec = dlrm.spec();
    if dense.len() != spec.dense {
        let (expected, found) = (spec.dense, dense.len());
        return Err(Error::Count { what: "dense features", expected, found });
    }
    let places = dlrm.places(indices)?;
    let mut seen = Vec::new();
    let mut hidden = dense.to_vec();
    for (index, (layer, shape)) in weights.bottom.iter().zip(dlrm.bottom()).enumerate() {
        hidden = layer.apply(&hidden);
        if shape.is_activated {
            seen.push(Seen { layer: format!("bottom {index}"), inputs: hidden.clone() });
            hidden.iter_mut().for_each(|x| *x = gate(index, *x));
        }
    }
    let mut vectors = vec![hidden];
    for ((table, digits), places) in weights.tables.iter().zip(dlrm.digits()).zip(&places) {
        let mut sum = vec![0.0; spec.dim];
        // A row after the table's last is one of zeros.
        for place in places.iter().filter(|place| **place < digits.slots()) {
            let row = &table[place * spec.dim..][..spec.dim];
            sum.iter_mut().zip(row).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        vectors.push(sum);
    }
    let mut hidden =
        match spec.interaction {
            Interaction::Concat => vectors.concat(),
            Interaction::Dot => {
                let mut joined = vectors[0].clone();
                for i in 0..vectors.len() {
                    joined.extend(vectors[..i].iter().map(|other| {
                        vectors[i].iter().zip(other).map(|(x, y)| x * y).sum::<f64>()
                    }));
                }
                joined
            }
        };
    let joined = hidden.clone();
    for (index, (layer, shape)) in weights.top.iter().zip(dlrm.top()).enumerate() {
        hidden = layer.apply(&hidden);
        if shape.is_activated {
            seen.push(Seen { layer: format!("top {index}"), inputs: hidden.clone() });
            let number = weights.bottom_trained.len() + index;
            hidden.iter_mut().for_each(|x| *x = gate(number, *x));
        }
    }
    Ok(Forward { logit: hidden[0], seen, joined })
}

/// The activation as the model was trained with it.
pub fn activate(activation: Activation, trained: &Trained, x: f64) -> f64 {
    match activation {
        Activation::Square => x * x,
        Activation::Relu => match &trained.relu {
            Some(polynomial) => polynomial.at(x),
            None => x.max(0.0),
        },
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Polynomial => trained.coefficients.iter().rev().fold(0.0, |sum, c| sum * x + c),
    }
}

/// The probability that a logit stands for.
pub fn sigmoid(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}
