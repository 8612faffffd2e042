//! The network in whole numbers, in the clear: the specification that predictions on shares equal bit for bit.
//!
//! Where bits are cut off, the result is rounded up with a chance of just what was cut off. `draw(layer, output)`
//! says below which number it is: on shares, the lowest bits of left's share of the sum.

use super::Error;
use super::dense::whole;
use super::linear::Sums;
use super::network::{Layer, Network, QuantisedTable, Slot};
use super::outline::StepOutline;
use super::products::Products;
use super::random::Random;
use super::words::mask;
use crate::dlrm::reference::forward;
use crate::dlrm::{Dlrm, Weights};

/// The logit, in units of 2^−[`fraction_bits`](super::Outline::fraction_bits), for dense features in the same units and
/// each feature's rows summed.
pub fn logit(
    network: &Network,
    dense: &[i64],
    rows: &[i64],
    mut draw: impl FnMut(usize, usize) -> u32,
) -> i64 {
    let mut outputs: Vec<Vec<i64>> = Vec::new();
    for (index, (layer, step)) in network.steps.iter().enumerate() {
        let sums = sums(layer, dense, rows, &outputs);
        let rounded = sums.iter().enumerate().map(|(at, sum)| round(*sum, layer, draw(index, at)));
        outputs.push(match *step {
            StepOutline::Relu { .. } => rounded.map(|x| x.max(0)).collect(),
            StepOutline::Lift { .. } => rounded.collect(),
            StepOutline::Products { vectors, dim } => {
                let vector = |index: usize| &sums[index * dim..][..dim];
                let dot = |(i, j)| vector(i).iter().zip(vector(j)).map(|(x, y)| x * y).sum();
                Products { vectors, dim }.pairs().map(dot).collect()
            }
        });
    }
    let sums = sums(&network.last, dense, rows, &outputs);
    round(sums[0], &network.last, draw(network.steps.len(), 0))
}

/// The values of the rows that are looked up, summed by feature: what [`logit`] takes. `places` are those of
/// [`Dlrm::places`](crate::dlrm::Dlrm::places).
pub fn summed(network: &Network, places: &[Vec<usize>]) -> Vec<i64> {
    let of_feature = |(table, places): (&QuantisedTable, &Vec<usize>)| {
        let mut sums = vec![0_i64; table.dim];
        for place in places {
            let row = table.values(table.row(*place));
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += i64::from(value));
        }
        sums
    };
    network.tables.iter().zip(places).flat_map(of_feature).collect()
}

/// The largest difference of a logit in whole numbers to the float model's over samples of dense features and
/// indices; what is rounded by chance is by the same at each call.
///
/// # Errors
/// [`Error::Feature`] and [`Error::Dlrm`] for a sample that is none of the model's.
pub fn largest_error<'a>(
    network: &Network,
    dlrm: &Dlrm,
    weights: &Weights,
    samples: impl IntoIterator<Item = (&'a [f64], &'a [u64])>,
) -> Result<f64, Error> {
    let outline = network.outline();
    let one = f64::from(1_u32 << outline.fraction_bits);
    let (mut random, mut largest) = (Random(1), 0_f64);
    for (dense, indices) in samples {
        let float = forward(dlrm, weights, dense, indices)?.logit;
        let rows = summed(network, &dlrm.places(indices)?);
        let found = logit(network, &whole(outline, dense)?, &rows, |_, _| random.word() as u32);
        largest = largest.max((found as f64 / one - float).abs());
    }
    Ok(largest)
}

fn sums(layer: &Layer, dense: &[i64], rows: &[i64], outputs: &[Vec<i64>]) -> Vec<i64> {
    let of = |slot: &Slot| match *slot {
        Slot::Dense => dense,
        Slot::Rows => rows,
        Slot::Outputs(step) => &outputs[step],
    };
    let inputs = layer.reads.iter().map(of).collect::<Vec<_>>().concat();
    match &layer.sums {
        Sums::Same => inputs,
        Sums::Scaled(scales) => {
            inputs.iter().zip(scales).map(|(x, scale)| x * i64::from(*scale)).collect()
        }
        Sums::Linear(linear) => {
            let matrix = linear.weights.chunks_exact(linear.inputs);
            let product =
                |row: &[i32]| row.iter().zip(&inputs).map(|(w, x)| i64::from(*w) * x).sum::<i64>();
            matrix.zip(&linear.bias).map(|(row, bias)| bias + product(row)).collect()
        }
    }
}

/// A sum without its lowest bits, as a number of `layer.bits` bits.
fn round(sum: i64, layer: &Layer, draw: u32) -> i64 {
    let cut = i64::from(mask(layer.cut));
    let up = i64::from(i64::from(draw) & cut < sum & cut);
    let shift = 64 - layer.bits;
    ((sum >> layer.cut) + up) << shift >> shift
}
