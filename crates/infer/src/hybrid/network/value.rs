//! What nodes of a network become: stages of floats, and values that no stage holds yet.

use super::error::Error;
use crate::hybrid::check::TERMS_MAX;
use crate::hybrid::program::{Convolution, Pool, Shape};

/// A [`Stage`](crate::hybrid::program::Stage) of floats.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FloatStage {
    /// Where it comes from in the network.
    pub name: String,
    /// What is summed.
    pub terms: Vec<FloatTerm>,
    /// For each plane of the sum.
    pub bias: Vec<f64>,
    /// The sum's sizes.
    pub sum: Shape,
    /// None in the last stage.
    pub activation: Option<FloatActivation>,
}

/// An [`Activation`](crate::hybrid::program::Activation) of floats.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct FloatActivation {
    /// Whether negative numbers become 0.
    pub rectify: bool,
    /// The largest number that what is rectified becomes, if there is one.
    pub most: Option<f64>,
    /// Windows of which the largest is taken.
    pub pool: Pool,
}

impl FloatActivation {
    /// Numbers as they are.
    pub(super) const NONE: Self = Self { rectify: false, most: None, pool: Pool::NONE };
}

impl FloatStage {
    /// The sizes of what it gives.
    pub fn output(&self) -> Shape {
        self.activation.map_or(self.sum, |own| own.pool.output(self.sum))
    }
}

/// A [`Term`](crate::hybrid::program::Term) of floats.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_enums, reason = "every part handles each")]
pub enum FloatTerm {
    /// A convolution of tensor `source`.
    Convolution {
        /// Which tensor.
        source: usize,
        /// Its sizes.
        convolution: Convolution,
        /// Its weights, batch norms in them.
        weights: Vec<f32>,
    },
    /// Sums of windows of tensor `source`, over 2^`log`.
    Windows {
        /// Which tensor.
        source: usize,
        /// Its sizes.
        input: Shape,
        /// Rows and columns that are summed.
        window: [usize; 2],
        /// Rows and columns from one window to the next.
        stride: [usize; 2],
        /// The logarithm of what sums are divided by.
        log: u32,
    },
}

/// A factor and an offset for each plane.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    pub(super) factors: Vec<f64>,
    pub(super) offsets: Vec<f64>,
}

impl Affine {
    pub(super) fn is_shifted(&self) -> bool {
        self.offsets.iter().any(|&offset| offset != 0.0)
    }

    /// Whether order is kept: factors are not negative.
    pub(super) fn is_rising(&self) -> bool {
        self.factors.iter().all(|&factor| factor >= 0.0)
    }

    /// First this, then `next`.
    pub(super) fn then(self, next: &Self) -> Self {
        let both = next.factors.iter().zip(&next.offsets);
        let offsets =
            self.offsets.iter().zip(both).map(|(own, (factor, offset))| own * factor + offset);
        let offsets = offsets.collect();
        let factors =
            self.factors.iter().zip(&next.factors).map(|(own, next)| own * next).collect();
        Self { factors, offsets }
    }
}

/// Terms and a bias that no activation was applied to.
#[derive(Clone, Debug)]
pub(super) struct Sum {
    pub(super) terms: Vec<FloatTerm>,
    pub(super) bias: Vec<f64>,
    pub(super) shape: Shape,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Tensor {
        tensor: usize,
        /// As whoever reads it has it: it may be flat.
        shape: Shape,
        affine: Option<Affine>,
        /// Whether nothing else reads the tensor, so that its activation may still be changed.
        is_own: bool,
    },
    Sum(Sum),
    /// Planes after each other; no part is of parts.
    Parts(Vec<Self>),
}

impl Value {
    /// Its sizes, as whoever reads it has it.
    pub(super) fn shape(&self) -> Shape {
        match self {
            Self::Tensor { shape, .. } | Self::Sum(Sum { shape, .. }) => *shape,
            Self::Parts(parts) => {
                let channels = parts.iter().map(|part| part.shape().channels).sum();
                Shape { channels, ..parts[0].shape() }
            }
        }
    }
}

/// Values after each other. Whoever reads parts has a term of each.
pub(super) fn concat(name: &str, values: impl Iterator<Item = Value>) -> Result<Value, Error> {
    let parts = values.flat_map(|value| match value {
        Value::Parts(parts) => parts,
        value => vec![value],
    });
    let parts: Vec<Value> = parts.take(TERMS_MAX + 1).collect();
    if parts.len() <= TERMS_MAX {
        return Ok(Value::Parts(parts));
    }
    let why = format!(
        "it puts more than {TERMS_MAX} parts after each other, of which stages read no more"
    );
    Err(Error::Node { node: name.to_owned(), why })
}

/// The same done to each part.
pub(super) fn each(
    parts: Vec<Value>,
    of: impl FnMut(Value) -> Result<Value, Error>,
) -> Result<Value, Error> {
    Ok(Value::Parts(parts.into_iter().map(of).collect::<Result<_, _>>()?))
}
