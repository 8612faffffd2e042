//! What both parties know of a network: its stages, their shapes, and how numbers are held.
//!
//! A tensor is `channels` planes of `height` rows of `width` numbers, flat in that order. Tensor 0 is the
//! input; tensor i + 1 is what stage i's activation gives. A number x is held as round(x · 2^fraction)
//! modulo 2^bits, in additive shares. Stage i sums its [`Term`]s and a bias to y, whose fraction is the
//! stage's, and its [`Activation`] drops bits of it to the program's fraction again. The last stage has no
//! activation: its y is the answer.

use serde::{Deserialize, Serialize};

/// The sizes of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Shape {
    /// Planes.
    pub channels: usize,
    /// Rows of a plane.
    pub height: usize,
    /// Numbers of a row.
    pub width: usize,
}

impl Shape {
    /// Numbers that it holds.
    pub fn count(self) -> usize {
        self.channels * self.height * self.width
    }
}

/// A convolution; a fully connected layer is one of a kernel of 1 × 1 on an image of 1 × 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Convolution {
    /// The input's sizes.
    pub input: Shape,
    /// Planes of the output.
    pub outputs: usize,
    /// Rows and columns of the kernel.
    pub kernel: [usize; 2],
    /// Rows and columns from one output to the next.
    pub stride: [usize; 2],
    /// Zeros around the input: top, left, bottom, right.
    pub pad: [usize; 4],
}

impl Convolution {
    /// The output's sizes.
    pub fn output(&self) -> Shape {
        let size = |length: usize, pads: usize, kernel: usize, stride: usize| {
            ((length + pads).saturating_sub(kernel)) / stride.max(1) + 1
        };
        let [top, left, bottom, right] = self.pad;
        Shape {
            channels: self.outputs,
            height: size(self.input.height, top + bottom, self.kernel[0], self.stride[0]),
            width: size(self.input.width, left + right, self.kernel[1], self.stride[1]),
        }
    }

    /// Weights: `outputs` × input channels × kernel rows × kernel columns, flat in that order.
    pub fn weights(&self) -> usize {
        self.outputs * self.input.channels * self.kernel[0] * self.kernel[1]
    }
}

/// What a stage adds to its sum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::exhaustive_enums, reason = "every part handles each")]
pub enum Term {
    /// A convolution of the tensor `source` with weights that only the server knows: by homomorphic
    /// encryption.
    Convolution {
        /// Which tensor.
        source: usize,
        /// Its sizes.
        convolution: Convolution,
        /// Bits by which its products are shifted up, to the stage's fraction.
        shift: u32,
    },
    /// The tensor `source` itself, or sums of its windows: each party on its share.
    Windows {
        /// Which tensor.
        source: usize,
        /// Its sizes.
        input: Shape,
        /// Rows and columns that are summed; 1 × 1 for the tensor itself.
        window: [usize; 2],
        /// Rows and columns from one window to the next.
        stride: [usize; 2],
        /// Bits by which sums are shifted up, to the stage's fraction.
        shift: u32,
    },
}

/// Windows of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Pool {
    /// Rows and columns of a window.
    pub kernel: [usize; 2],
    /// Rows and columns from one to the next.
    pub stride: [usize; 2],
    /// Around the image: top, left, bottom, right.
    pub pad: [usize; 4],
}

impl Pool {
    /// Each number alone.
    pub const NONE: Self = Self::side_by_side([1, 1]);

    /// Windows of these rows and columns, without overlap.
    pub const fn side_by_side(kernel: [usize; 2]) -> Self {
        Self { kernel, stride: kernel, pad: [0; 4] }
    }

    /// The sizes of what windows of an image of these sizes give.
    pub fn output(self, input: Shape) -> Shape {
        let Self { kernel, stride, pad } = self;
        Convolution { input, outputs: input.channels, kernel, stride, pad }.output()
    }
}

/// What is done to a stage's sum, in garbled circuits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Activation {
    /// Whether negative numbers become 0.
    pub rectify: bool,
    /// The largest number that what is rectified becomes, in the program's fraction; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<u64>,
    /// Rows and columns of which the largest is taken; 1 × 1 for each number alone. Rows and columns that fill no
    /// window are left out.
    pub window: [usize; 2],
    /// Rows and columns from one window to the next; `None` where they stand side by side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<[usize; 2]>,
    /// Places around the sum that hold no number: top, left, bottom, right.
    #[serde(default, skip_serializing_if = "is_none")]
    pub pad: [usize; 4],
    /// Fraction bits that are dropped: the stage's fraction less the program's.
    pub shift: u32,
}

fn is_none(pad: &[usize; 4]) -> bool {
    *pad == [0; 4]
}

impl Activation {
    /// Rectified or not, and the largest of each window of a pool.
    pub fn of(rectify: bool, pool: Pool, shift: u32) -> Self {
        let Pool { kernel: window, stride, pad } = pool;
        let stride = (stride != window).then_some(stride);
        Self { rectify, most: None, window, stride, pad, shift }
    }

    /// Its windows.
    pub fn pool(self) -> Pool {
        Pool { kernel: self.window, stride: self.stride.unwrap_or(self.window), pad: self.pad }
    }
}

/// One sum, and what is done to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Stage {
    /// Where it comes from in the network, for people.
    pub name: String,
    /// What is summed; all have the shape `sum`, or one as flat.
    pub terms: Vec<Term>,
    /// The sum's sizes.
    pub sum: Shape,
    /// Fraction bits of the sum.
    pub fraction: u32,
    /// None in the last stage.
    pub activation: Option<Activation>,
}

impl Stage {
    /// The sizes of what the activation gives; of the sum where there is none.
    pub fn output(&self) -> Shape {
        self.activation.map_or(self.sum, |activation| activation.pool().output(self.sum))
    }
}

/// How activations drop fraction bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(clippy::exhaustive_enums, reason = "every part handles each")]
pub enum Rounding {
    /// Shares are added without the bits that are dropped: floor((y − u) / 2^shift), where u is the lowest
    /// bits of the client's share, uniform and known to it alone. With 2^shift − 1 in the bias this rounds
    /// to one of the two numbers beside y / 2^shift, each with the chance that makes the mean right.
    Stochastic,
    /// Shares are added whole: floor(y / 2^shift), to the nearest with 2^(shift − 1) in the bias. Each
    /// activation takes `shift` gates and twice as many labels more.
    Nearest,
}

/// What both parties know of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::exhaustive_structs, reason = "written field by field; checked by `check`")]
pub struct Program {
    /// k: numbers are held modulo 2^this; 16 to 64.
    pub bits: u32,
    /// f: fraction bits of tensors.
    pub fraction: u32,
    /// How fraction bits are dropped.
    pub rounding: Rounding,
    /// The name of the encryption's parameters (`linear`).
    pub lattice: String,
    /// The input's sizes.
    pub input: Shape,
    /// In order.
    pub stages: Vec<Stage>,
}

impl Program {
    /// The sizes of a tensor.
    pub fn tensor(&self, index: usize) -> Shape {
        match index {
            0 => self.input,
            _ => self.stages[index - 1].output(),
        }
    }

    /// 2^bits − 1.
    pub fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Convolutions in the order of stages and terms, which weights are in: stage, term, source and sizes.
    pub fn convolutions(&self) -> impl Iterator<Item = (usize, usize, usize, Convolution)> + '_ {
        self.stages.iter().enumerate().flat_map(|(stage, own)| {
            own.terms.iter().enumerate().filter_map(move |(term, found)| match *found {
                Term::Convolution { source, convolution, .. } => {
                    Some((stage, term, source, convolution))
                }
                Term::Windows { .. } => None,
            })
        })
    }

    /// Numbers that become 0 where they are negative: what the paper counts.
    pub fn relus(&self) -> usize {
        let is_relu = |stage: &&Stage| stage.activation.is_some_and(|own| own.rectify);
        self.stages.iter().filter(is_relu).map(|stage| stage.sum.count()).sum()
    }

    /// Results of garbled circuits.
    pub fn activations(&self) -> usize {
        let active = self.stages.iter().filter(|stage| stage.activation.is_some());
        active.map(|stage| stage.output().count()).sum()
    }
}

/// What only the server knows of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Weights {
    /// Of each of [`Program::convolutions`], times 2^(its fraction); outputs × channels × rows × columns.
    pub convolutions: Vec<Vec<i32>>,
    /// Of each stage, for each of its sum's planes, in the stage's fraction; what rounding asks for is in
    /// it.
    pub biases: Vec<Vec<i64>>,
}
