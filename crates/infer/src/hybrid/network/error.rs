//! What networks refuse.

use crate::dlrm;
use crate::hybrid::check::ProgramError;
use crate::hybrid::linear;

/// Why a network was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An operator that there is no private form of.
    #[error("node {node:?}: operator {operator:?} is not supported{}: {why}", input_of(input))]
    Unsupported {
        /// The node's name.
        node: String,
        /// The operator.
        operator: String,
        /// The node before it, where that matters; empty otherwise.
        input: String,
        /// What is possible instead.
        why: String,
    },
    /// A graph that is none.
    #[error("the network's graph: {why}")]
    Graph {
        /// What is wrong, and where.
        why: String,
    },
    /// A node that cannot be computed.
    #[error("node {node:?}: {why}")]
    Node {
        /// Its name.
        node: String,
        /// What is wrong, and what was expected.
        why: String,
    },
    /// A tensor that a node names is not there.
    #[error("node {node:?}: there is no tensor {tensor:?} of shape {expected:?}")]
    MissingTensor {
        /// The node's name.
        node: String,
        /// The tensor's name.
        tensor: String,
        /// Its shape.
        expected: Vec<usize>,
    },
    /// A tensor of another shape.
    #[error("node {node:?}: tensor {tensor:?} has shape {found:?}, expected {expected:?}")]
    TensorShape {
        /// The node's name.
        node: String,
        /// The tensor's name.
        tensor: String,
        /// The shape there should be.
        expected: Vec<usize>,
        /// The shape there is.
        found: Vec<usize>,
    },
    /// A weight that is no number, or too large for fixed point.
    #[error(
        "{place}: {value} is out of range: with {fraction} fraction bits, at most {max:.3} in absolute \
         value is possible; choose a smaller fraction"
    )]
    Weight {
        /// Which tensor or stage.
        place: String,
        /// The value.
        value: f64,
        /// Fraction bits.
        fraction: u32,
        /// The largest absolute value.
        max: f64,
    },
    /// Numbers that do not fit the bits they are held with.
    #[error(
        "stage {stage:?} reaches {largest:.4} in absolute value ({margin} bits of margin come on top): \
         its {fraction} fraction bits then need {needed} bits, {bits} are given; choose bits = {needed} \
         or more, or a smaller fraction"
    )]
    Range {
        /// The stage's name.
        stage: String,
        /// The largest absolute value.
        largest: f64,
        /// Bits of margin.
        margin: u32,
        /// Fraction bits of the stage.
        fraction: u32,
        /// Bits that it needs.
        needed: u32,
        /// Bits that there are.
        bits: u32,
    },
    /// Numbers for compiling that make no sense.
    #[error("{field} = {value}: {why}")]
    Spec {
        /// Which of [`CompileSpec`](super::CompileSpec)'s fields.
        field: &'static str,
        /// What it is.
        value: String,
        /// What is possible.
        why: String,
    },
    /// An input of another shape.
    #[error("an input of {found} numbers, the network takes {expected} ({shape})")]
    Input {
        /// Numbers there should be.
        expected: usize,
        /// Numbers there are.
        found: usize,
        /// The input's sizes.
        shape: String,
    },
    /// An input outside the range that the plan was made for.
    #[error(
        "the input has {value} at {index}: this plan takes numbers from -{max:.4} to {max:.4}; scale \
         inputs as the model was trained, or compile it with samples of such inputs"
    )]
    InputRange {
        /// The number's place.
        index: usize,
        /// The number.
        value: f64,
        /// The largest absolute value.
        max: f64,
    },
    /// A plan that was made of another network, or by another version of this library.
    #[error("the plan does not belong to this network ({why}): compile it again")]
    OtherNetwork {
        /// What differs.
        why: String,
    },
    /// Terms or a plan that are none, or that no party should accept.
    #[error("the {what} was refused: {why}")]
    Refused {
        /// Terms, or a plan.
        what: &'static str,
        /// What is wrong.
        why: String,
    },
    /// The program is none.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// Weights that could not be read.
    #[error(transparent)]
    Weights(#[from] dlrm::Error),
    /// The model bundle.
    #[error(transparent)]
    Bundle(#[from] hushtable_table::Error),
    /// The linear layers cannot be computed under encryption.
    #[error("{place}: {source}")]
    Linear {
        /// The stage whose layer it is, where it is one's.
        place: String,
        /// What the encryption's side says.
        source: Box<linear::Error>,
    },
    /// A file could not be read.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

fn input_of(input: &str) -> String {
    if input.is_empty() { String::new() } else { format!(" after node {input:?}") }
}
