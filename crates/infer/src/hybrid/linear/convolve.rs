//! A convolution in the clear, in integers modulo a power of two.

use hushtable_rlwe::ring::kernel::COLUMNS;
use hushtable_rlwe::ring::{Kernel, Platform};

use super::super::program::Convolution;

/// `out` += the convolution of `input` with `weights`, modulo 2^64: all flat, as [`Convolution`] says.
///
/// # Panics
/// For slices of other lengths than the shapes'.
pub fn convolve(convolution: &Convolution, weights: &[i32], input: &[u64], out: &mut [u64]) {
    convolve_modulo(Platform::detect(), 64, convolution, weights, input, out);
}

/// `out` += the convolution of `input` with `weights`, modulo 2^bits (what is above is left undefined): all
/// flat, as [`Convolution`] says.
///
/// # Panics
/// For slices of other lengths than the shapes'.
pub fn convolve_modulo(
    platform: Platform,
    bits: u32,
    convolution: &Convolution,
    weights: &[i32],
    input: &[u64],
    out: &mut [u64],
) {
    let Convolution { input: shape, kernel, .. } = *convolution;
    let output = convolution.output();
    assert!(input.len() == shape.count() && out.len() == output.count());
    assert_eq!(weights.len(), convolution.weights());
    let taps = shape.channels * kernel[0] * kernel[1];
    let plane = output.height * output.width;
    let own = Kernel::new(platform);
    // A block of outputs' positions in all planes, and of the inputs that they see tap after tap.
    let mut sums = vec![[0; COLUMNS]; convolution.outputs];
    let mut columns = vec![[0; COLUMNS]; TAPS.min(taps)];
    for first in (0..plane).step_by(COLUMNS) {
        let count = COLUMNS.min(plane - first);
        sums.fill([0; COLUMNS]);
        for start in (0..taps).step_by(TAPS) {
            let columns = &mut columns[..TAPS.min(taps - start)];
            for (tap, column) in (start..).zip(&mut *columns) {
                gather(convolution, tap, first, input, &mut column[..count]);
            }
            own.add_columns(bits, &weights[start..], taps, columns, &mut sums);
        }
        for (plane, sums) in out.chunks_exact_mut(plane).zip(&sums) {
            for (out, sum) in plane[first..][..count].iter_mut().zip(sums) {
                *out = out.wrapping_add(*sum);
            }
        }
    }
}

/// Taps that are done before the next block of outputs' planes: their columns stay in the second-level cache.
const TAPS: usize = 256;

/// What a tap sees at the output positions from `first` on.
fn gather(convolution: &Convolution, tap: usize, first: usize, input: &[u64], to: &mut [u64]) {
    let Convolution { input: shape, kernel, stride, pad, .. } = *convolution;
    let width = convolution.output().width;
    let (channel, a, b) =
        (tap / (kernel[0] * kernel[1]), tap / kernel[1] % kernel[0], tap % kernel[1]);
    let mut done = 0;
    while done < to.len() {
        let (y, x) = ((first + done) / width, (first + done) % width);
        let count = (width - x).min(to.len() - done);
        let to = &mut to[done..done + count];
        done += count;
        let row = (y * stride[0] + a).wrapping_sub(pad[0]);
        if row >= shape.height {
            to.fill(0);
            continue;
        }
        let from = &input[(channel * shape.height + row) * shape.width..][..shape.width];
        // Column i of the output sees column i · stride + b − pad of the input.
        for (x, to) in (x..).zip(to) {
            let column = (x * stride[1] + b).wrapping_sub(pad[1]);
            *to = if column < shape.width { from[column] } else { 0 };
        }
    }
}
