//! Convolutions in the open, of floats and of integers modulo 2^64.

use rayon::prelude::*;

use crate::hybrid::program::Convolution;

/// A number that is summed.
pub(crate) trait Number: Copy + Default + Send + Sync {
    /// A weight by which it is multiplied.
    type Weight: Copy + Send + Sync;

    /// sum + weight · self, wrapping where the number wraps.
    fn add_product(self, weight: Self::Weight, sum: Self) -> Self;

    /// left + right.
    fn sum(left: Self, right: Self) -> Self;
}

impl Number for f32 {
    type Weight = f32;

    fn add_product(self, weight: f32, sum: f32) -> f32 {
        sum + weight * self
    }

    fn sum(left: f32, right: f32) -> f32 {
        left + right
    }
}

impl Number for u64 {
    type Weight = i32;

    fn add_product(self, weight: i32, sum: u64) -> u64 {
        // The sign is extended: modulo 2^64 that is the weight.
        sum.wrapping_add(self.wrapping_mul(i64::from(weight) as u64))
    }

    fn sum(left: u64, right: u64) -> u64 {
        left.wrapping_add(right)
    }
}

/// Positions that are summed together, at most: their columns stay in a near cache.
const LANES: usize = 64;
/// Output planes whose sums are held at once.
const PLANES: usize = 4;

/// Adds a convolution of `input` to `out`. `weights` are outputs × channels × rows × columns.
///
/// # Panics
/// Unless the slices have the convolution's sizes.
pub(crate) fn convolve<N: Number>(
    convolution: &Convolution,
    weights: &[N::Weight],
    input: &[N],
    out: &mut [N],
) {
    let output = convolution.output();
    let (positions, taps) = (output.height * output.width, convolution.weights());
    assert_eq!(weights.len(), taps, "weights of another convolution");
    assert_eq!(input.len(), convolution.input.count(), "an input of another convolution");
    assert_eq!(out.len(), output.count(), "an output of another convolution");
    let taps = taps / convolution.outputs;
    let chunks = positions.div_ceil(LANES);
    let parts: Vec<Vec<N>> = (0..chunks)
        .into_par_iter()
        .map(|chunk| {
            let start = chunk * LANES;
            let lanes = LANES.min(positions - start);
            let of = Chunk { convolution, weights, taps, input, start, lanes };
            // Late layers have few positions, and layers without planes one.
            match lanes {
                ..=4 => of.sums::<4>(),
                5..=16 => of.sums::<16>(),
                _ => of.sums::<LANES>(),
            }
        })
        .collect();
    for (chunk, sums) in parts.into_iter().enumerate() {
        let start = chunk * LANES;
        let lanes = LANES.min(positions - start);
        for (plane, sums) in sums.chunks(lanes).enumerate() {
            let own = &mut out[plane * positions + start..][..lanes];
            own.iter_mut().zip(sums).for_each(|(own, &sum)| *own = N::sum(*own, sum));
        }
    }
}

/// The `lanes` positions from `start`.
struct Chunk<'a, N: Number> {
    convolution: &'a Convolution,
    weights: &'a [N::Weight],
    /// Weights of an output plane.
    taps: usize,
    input: &'a [N],
    start: usize,
    lanes: usize,
}

impl<N: Number> Chunk<'_, N> {
    /// Their sums in every output plane, computed `L` positions wide.
    fn sums<const L: usize>(&self) -> Vec<N> {
        let &Self { convolution, weights, taps, lanes, .. } = self;
        let columns = self.gather::<L>();
        let mut sums = vec![N::default(); convolution.outputs * lanes];
        for (rows, sums) in weights.chunks(PLANES * taps).zip(sums.chunks_mut(PLANES * lanes)) {
            multiply(rows, taps, &columns, sums, lanes);
        }
        sums
    }

    /// The numbers that each weight of an output plane meets.
    fn gather<const L: usize>(&self) -> Vec<[N; L]> {
        let &Self { input, start, lanes, .. } = self;
        let Convolution { input: shape, kernel: [rows, columns], stride, pad, .. } =
            *self.convolution;
        let width = self.convolution.output().width;
        let mut found = vec![[N::default(); L]; shape.channels * rows * columns];
        let mut taps = found.iter_mut();
        for plane in input.chunks(shape.height * shape.width) {
            for row in 0..rows {
                for (column, tap) in (0..columns).zip(&mut taps) {
                    for (lane, tap) in tap[..lanes].iter_mut().enumerate() {
                        let (y, x) = ((start + lane) / width, (start + lane) % width);
                        let (y, x) = (y * stride[0] + row, x * stride[1] + column);
                        // Above and left of the image these wrap to what is below and right of it.
                        let (y, x) = (y.wrapping_sub(pad[0]), x.wrapping_sub(pad[1]));
                        if y < shape.height && x < shape.width {
                            *tap = plane[y * shape.width + x];
                        }
                    }
                }
            }
        }
        found
    }
}

/// Sums of a few output planes.
fn multiply<N: Number, const L: usize>(
    rows: &[N::Weight],
    taps: usize,
    columns: &[[N; L]],
    out: &mut [N],
    lanes: usize,
) {
    let mut sums = [[N::default(); L]; PLANES];
    if let [first, second, third, fourth] = rows.chunks(taps).collect::<Vec<_>>()[..] {
        for (index, column) in columns.iter().enumerate() {
            let weights = [first[index], second[index], third[index], fourth[index]];
            for (sums, weight) in sums.iter_mut().zip(weights) {
                for (sum, &x) in sums.iter_mut().zip(column) {
                    *sum = x.add_product(weight, *sum);
                }
            }
        }
    } else {
        for (row, sums) in rows.chunks(taps).zip(&mut sums) {
            for (&weight, column) in row.iter().zip(columns) {
                for (sum, &x) in sums.iter_mut().zip(column) {
                    *sum = x.add_product(weight, *sum);
                }
            }
        }
    }
    for (out, sums) in out.chunks_mut(lanes).zip(&sums) {
        out.copy_from_slice(&sums[..lanes]);
    }
}

#[cfg(test)]
mod tests {
    use super::convolve;
    use crate::hybrid::program::{Convolution, Shape};

    /// The definition.
    fn plain(own: &Convolution, weights: &[i32], input: &[u64]) -> Vec<u64> {
        let (output, [rows, columns]) = (own.output(), own.kernel);
        let mut out = Vec::new();
        for plane in 0..output.channels {
            for y in 0..output.height {
                for x in 0..output.width {
                    let mut sum = 0_u64;
                    for channel in 0..own.input.channels {
                        for row in 0..rows {
                            for column in 0..columns {
                                let y = (y * own.stride[0] + row) as isize - own.pad[0] as isize;
                                let x = (x * own.stride[1] + column) as isize - own.pad[1] as isize;
                                let (height, width) = (own.input.height, own.input.width);
                                if !(0..height as isize).contains(&y)
                                    || !(0..width as isize).contains(&x)
                                {
                                    continue;
                                }
                                let at = (channel * height + y as usize) * width + x as usize;
                                let tap = (plane * own.input.channels + channel) * rows + row;
                                let weight = i64::from(weights[tap * columns + column]) as u64;
                                sum = sum.wrapping_add(weight.wrapping_mul(input[at]));
                            }
                        }
                    }
                    out.push(sum);
                }
            }
        }
        out
    }

    #[test]
    fn convolutions_are_their_definition() {
        let shapes = [
            (3, 9, 11, 5, [3, 3], [1, 1], [1, 1, 1, 1]),
            (2, 8, 8, 4, [3, 3], [2, 2], [0, 0, 1, 1]),
            (1, 7, 5, 3, [2, 5], [3, 1], [1, 2, 0, 2]),
            (17, 1, 1, 9, [1, 1], [1, 1], [0; 4]),
            (2, 10, 10, 6, [1, 1], [2, 2], [0; 4]),
            (3, 4, 4, 6, [3, 3], [1, 1], [1; 4]),
            (3, 2, 2, 5, [3, 3], [1, 1], [1; 4]),
        ];
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            state
        };
        for (channels, height, width, outputs, kernel, stride, pad) in shapes {
            let input = Shape { channels, height, width };
            let own = Convolution { input, outputs, kernel, stride, pad };
            let weights: Vec<i32> = (0..own.weights()).map(|_| (next() >> 32) as i32).collect();
            let x: Vec<u64> = (0..input.count()).map(|_| next() ^ next() >> 31).collect();
            let mut out = vec![5; own.output().count()];
            convolve(&own, &weights, &x, &mut out);
            let expected = plain(&own, &weights, &x).into_iter().map(|y| y.wrapping_add(5));
            assert!(out.iter().copied().eq(expected), "{own:?}");
        }
    }
}
