//! Windows of images: their places, their sums, the largest of each.

use super::program::{Shape, Term};

/// Where windows of `window` begin in `input`, `stride` apart.
pub(super) fn windows(input: Shape, window: [usize; 2], stride: [usize; 2]) -> Shape {
    let size = |length: usize, window: usize, stride: usize| (length - window) / stride + 1;
    Shape {
        channels: input.channels,
        height: size(input.height, window[0], stride[0]),
        width: size(input.width, window[1], stride[1]),
    }
}

/// Adds windows of an image to an output, number by number.
pub(super) fn add_windows<N: Copy>(
    (input, window, stride): (Shape, [usize; 2], [usize; 2]),
    x: &[N],
    out: &mut [N],
    add: impl Fn(&mut N, N),
) {
    let output = windows(input, window, stride);
    let planes = x.chunks(input.height * input.width);
    for (x, out) in planes.zip(out.chunks_mut(output.height * output.width)) {
        for (at, out) in out.iter_mut().enumerate() {
            let (row, column) = (at / output.width * stride[0], at % output.width * stride[1]);
            for row in row..row + window[0] {
                let row = &x[row * input.width + column..][..window[1]];
                row.iter().for_each(|&x| add(out, x));
            }
        }
    }
}

/// The largest of each window, side by side.
pub(super) fn largest<N: Copy + PartialOrd>(sum: Shape, window: [usize; 2], y: &[N]) -> Vec<N> {
    let output = windows(sum, window, window);
    let mut found = Vec::with_capacity(output.count());
    for plane in y.chunks(sum.height * sum.width) {
        for row in 0..output.height {
            for column in 0..output.width {
                let start = row * window[0] * sum.width + column * window[1];
                let rows = (0..window[0]).map(|at| &plane[start + at * sum.width..][..window[1]]);
                let most = rows.flatten().copied().reduce(|a, b| if b > a { b } else { a });
                found.extend(most);
            }
        }
    }
    found
}

/// Adds a term of windows of a share to a share of its stage's sum, modulo 2^64; nothing for other terms.
pub(super) fn add_share(term: &Term, x: &[u64], sum: &mut [u64]) {
    if let Term::Windows { input, window, stride, shift, .. } = *term {
        let add = |sum: &mut u64, x: u64| *sum = sum.wrapping_add(x << shift);
        add_windows((input, window, stride), x, sum, add);
    }
}
