//! Windows of images: their places, their sums, the largest of each.

use super::program::{Pool, Shape, Term};

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

/// The places in an image of the numbers of one window, row by row: that of the result at `index`.
///
/// A place in a pad is that of the nearest number of the image. Pads are narrower than windows, so that number is in the
/// window too, and twice in it changes no largest: circuits are of one size, and none is told of pads.
pub(super) fn places(
    image: Shape,
    pool: Pool,
    index: usize,
) -> impl Iterator<Item = usize> + use<> {
    let (output, [rows, columns]) = (pool.output(image), pool.kernel);
    let (plane, rest) =
        (index / (output.height * output.width), index % (output.height * output.width));
    let (row, column) =
        (rest / output.width * pool.stride[0], rest % output.width * pool.stride[1]);
    let [top, left, ..] = pool.pad;
    (0..rows * columns).map(move |at| {
        let row = (row + at / columns).saturating_sub(top).min(image.height - 1);
        let column = (column + at % columns).saturating_sub(left).min(image.width - 1);
        (plane * image.height + row) * image.width + column
    })
}

/// The largest of each window.
pub(super) fn largest<N: Copy + PartialOrd>(sum: Shape, pool: Pool, y: &[N]) -> Vec<N> {
    let of_window = |index| {
        let numbers = places(sum, pool, index).map(|place| y[place]);
        numbers.reduce(|a, b| if b > a { b } else { a })
    };
    (0..pool.output(sum).count()).filter_map(of_window).collect()
}

/// Adds a term of windows of a share to a share of its stage's sum, modulo 2^64; nothing for other terms.
pub(super) fn add_share(term: &Term, x: &[u64], sum: &mut [u64]) {
    if let Term::Windows { input, window, stride, shift, .. } = *term {
        let add = |sum: &mut u64, x: u64| *sum = sum.wrapping_add(x << shift);
        add_windows((input, window, stride), x, sum, add);
    }
}
