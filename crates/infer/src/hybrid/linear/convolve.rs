//! A convolution in the clear, modulo 2^64.

use super::super::program::Convolution;

/// `out` += the convolution of `input` with `weights`, modulo 2^64: all flat, as [`Convolution`] says.
///
/// # Panics
/// For slices of other lengths than the shapes'.
pub fn convolve(convolution: &Convolution, weights: &[i32], input: &[u64], out: &mut [u64]) {
    let Convolution { input: shape, kernel, stride, pad, .. } = *convolution;
    let output = convolution.output();
    assert!(input.len() == shape.count() && out.len() == output.count());
    assert_eq!(weights.len(), convolution.weights());
    let taps = shape.channels * kernel[0] * kernel[1];
    let planes = out.chunks_exact_mut((output.height * output.width).max(1));
    for (plane, weights) in planes.zip(weights.chunks_exact(taps)) {
        for (tap, &weight) in weights.iter().enumerate() {
            let (channel, a, b) =
                (tap / (kernel[0] * kernel[1]), tap / kernel[1] % kernel[0], tap % kernel[1]);
            let weight = i64::from(weight) as u64;
            for y in 0..output.height {
                let row = (y * stride[0] + a).wrapping_sub(pad[0]);
                if row >= shape.height {
                    continue;
                }
                let from = &input[(channel * shape.height + row) * shape.width..][..shape.width];
                for x in 0..output.width {
                    let column = (x * stride[1] + b).wrapping_sub(pad[1]);
                    if column < shape.width {
                        let out = &mut plane[y * output.width + x];
                        *out = out.wrapping_add(from[column].wrapping_mul(weight));
                    }
                }
            }
        }
    }
}
