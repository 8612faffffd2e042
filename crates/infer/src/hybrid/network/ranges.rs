//! How large the numbers of a network become.

use serde::{Deserialize, Serialize};

use super::lower::Lowered;
use super::matrix::convolve;
use super::value::{FloatActivation, FloatStage, FloatTerm};
use crate::hybrid::program::{Pool, Shape};
use crate::hybrid::windows::{add_windows, largest};

/// How large one stage's sum becomes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Range {
    /// The stage's name.
    pub stage: String,
    /// The largest absolute value that was met.
    pub largest: f64,
    /// Fraction bits of the sum.
    pub fraction: u32,
    /// Bits that it needs with them, a sign and the margin.
    pub needed: u32,
}

/// How large the numbers of a network become.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Ranges {
    /// How many inputs were run.
    pub samples: usize,
    /// Whether they were made up rather than the user's.
    pub is_random: bool,
    /// Bits that numbers may grow by beyond what was met.
    pub margin: u32,
    /// The input's largest absolute value.
    pub input: f64,
    /// By stage.
    pub stages: Vec<Range>,
}

/// Bits that numbers up to `largest` need with `fraction`, a sign and a margin.
pub(super) fn needed(largest: f64, fraction: u32, margin: u32) -> u32 {
    let largest = largest.max(f64::from(f32::MIN_POSITIVE));
    let whole = largest.log2() + f64::from(fraction + margin);
    // However small a number is: a program holds the whole fraction, and a sign.
    (whole.floor() as i64 + 1).max(i64::from(fraction)) as u32 + 1
}

impl Lowered {
    /// Computes all stages on one input, in floats. Gives the answer, and notes the largest absolute
    /// value of each stage's sum.
    pub fn run(&self, input: &[f32], largest: &mut [f64]) -> Vec<f32> {
        let mut tensors = vec![input.to_vec()];
        for (stage, largest) in self.stages.iter().zip(largest) {
            let y = sum(stage, &tensors);
            *largest = hushtable_rlwe::largest(y.iter().map(|&y| f64::from(y)).chain([*largest]));
            tensors.push(activate(stage, y));
        }
        tensors.pop().unwrap_or_default()
    }
}

fn sum(stage: &FloatStage, tensors: &[Vec<f32>]) -> Vec<f32> {
    let plane = stage.sum.height * stage.sum.width;
    let bias: Vec<f32> = stage.bias.iter().map(|&bias| bias as f32).collect();
    let mut y = super::float::spread(&bias, plane);
    for term in &stage.terms {
        match term {
            FloatTerm::Convolution { source, convolution, weights } => {
                convolve(convolution, weights, &tensors[*source], &mut y);
            }
            &FloatTerm::Windows { source, input, window, stride, log } => {
                let factor = (0.5_f32).powi(log as i32);
                let add = |sum: &mut f32, x: f32| *sum += x * factor;
                add_windows((input, window, stride), &tensors[source], &mut y, add);
            }
        }
    }
    y
}

fn activate(stage: &FloatStage, y: Vec<f32>) -> Vec<f32> {
    let Some(FloatActivation { rectify, most, pool }) = stage.activation else { return y };
    let mut x = if pool == Pool::NONE { y } else { largest(stage.sum, pool, &y) };
    if rectify {
        let most = most.map_or(f32::INFINITY, |most| most as f32);
        x.iter_mut().for_each(|x| *x = x.max(0.0).min(most));
    }
    x
}

/// Inputs between two ends that reach far: noise, plain ones, and such that change slowly, as images do.
pub(super) fn made_up(shape: Shape, [low, high]: [f32; 2]) -> Vec<Vec<f32>> {
    let count = shape.count();
    let mut bytes =
        blake3::Hasher::new_derive_key("hushtable hybrid inputs for ranges").finalize_xof();
    let mut noise = |count: usize| -> Vec<f32> {
        let mut found = vec![0; 4 * count];
        bytes.fill(&mut found);
        let words = found.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word));
        words.map(|word| low + (high - low) * (word as f32 / u32::MAX as f32)).collect()
    };
    let mut inputs = vec![noise(count), vec![high; count], vec![low; count]];
    for coarse in [2, 4] {
        let corners = noise(shape.channels * (coarse + 1) * (coarse + 1));
        let at = |length: usize, index: usize| {
            let place = index as f32 * coarse as f32 / length as f32;
            (place as usize, place.fract())
        };
        let mut input = Vec::with_capacity(count);
        for corners in corners.chunks((coarse + 1) * (coarse + 1)) {
            for row in 0..shape.height {
                let (top, down) = at(shape.height, row);
                for column in 0..shape.width {
                    let (left, right) = at(shape.width, column);
                    let corner = |row: usize, column: usize| corners[row * (coarse + 1) + column];
                    let upper = corner(top, left) * (1.0 - right) + corner(top, left + 1) * right;
                    let lower =
                        corner(top + 1, left) * (1.0 - right) + corner(top + 1, left + 1) * right;
                    input.push(upper * (1.0 - down) + lower * down);
                }
            }
        }
        inputs.push(input);
    }
    inputs
}
