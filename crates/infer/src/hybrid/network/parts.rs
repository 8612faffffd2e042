//! Planes after each other, each part held by itself.
//!
//! Nothing is moved to put planes after each other: a convolution of them is the sum of one of each part, and what
//! is done plane by plane is done to each part. Only a sum with something else needs them in one place.

use super::error::Error;
use super::lower::Lowering;
use super::value::{Affine, FloatTerm, Sum, Value};
use crate::hybrid::check::WEIGHTS_MAX;
use crate::hybrid::program::{Convolution, Shape};

impl Lowering<'_> {
    /// A convolution of parts: the sum of one of each.
    pub(super) fn convolve_parts(
        &mut self,
        name: &str,
        parts: Vec<Value>,
        convolution: Convolution,
        weights: &[f32],
        bias: &Option<String>,
    ) -> Result<Value, Error> {
        let taps = convolution.kernel[0] * convolution.kernel[1];
        let all = convolution.input.channels * taps;
        let (mut at, mut whole): (usize, Option<Sum>) = (0, None);
        for part in parts {
            let input = part.shape();
            let count = input.channels * taps;
            let own = weights.chunks(all).flat_map(|plane| &plane[at..at + count]).copied();
            let own = own.collect();
            at += count;
            let bias = if whole.is_none() { bias } else { &None };
            let part =
                self.convolve(name, part, Convolution { input, ..convolution }, own, bias)?;
            let mut part = self.sum(name, part)?;
            whole = Some(match whole {
                None => part,
                Some(mut whole) => {
                    whole.terms.append(&mut part.terms);
                    whole.bias.iter_mut().zip(part.bias).for_each(|(bias, own)| *bias += own);
                    whole
                }
            });
        }
        Ok(Value::Sum(whole.expect("there are two parts and more")))
    }

    /// Parts in one place: each goes to its own planes of a sum, by a convolution of ones and zeros.
    pub(super) fn joined(&mut self, name: &str, parts: Vec<Value>) -> Result<Sum, Error> {
        let shapes: Vec<Shape> = parts.iter().map(Value::shape).collect();
        let outputs = shapes.iter().map(|shape| shape.channels).sum();
        let shape = Shape { channels: outputs, ..shapes[0] };
        let (mut terms, mut bias) = (Vec::new(), Vec::new());
        for (part, input) in parts.into_iter().zip(shapes) {
            let (source, _, affine, _) = self.tensor(&format!("{name}.part"), part)?;
            let channels = input.channels;
            let Affine { factors, offsets } = affine.unwrap_or_else(|| Affine {
                factors: vec![1.0; channels],
                offsets: vec![0.0; channels],
            });
            let (kernel, stride, pad) = ([1, 1], [1, 1], [0; 4]);
            let convolution = Convolution { input, outputs, kernel, stride, pad };
            if convolution.weights() > WEIGHTS_MAX {
                let why = format!(
                    "{channels} of {outputs} planes, which have to be put into one place, would take a \
                     convolution of more than {WEIGHTS_MAX} weights"
                );
                return Err(Error::Node { node: name.to_owned(), why });
            }
            self.count(name, convolution.weights())?;
            let mut weights = vec![0.0; convolution.weights()];
            for (plane, factor) in factors.into_iter().enumerate() {
                weights[(bias.len() + plane) * channels + plane] = factor as f32;
            }
            bias.extend(offsets);
            terms.push(FloatTerm::Convolution { source, convolution, weights });
        }
        Ok(Sum { terms, bias, shape })
    }
}
