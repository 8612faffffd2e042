//! The protocol's numbers computed in the open, bit by bit the same.

use super::network::{Error, convolve};
use super::program::{Activation, Pool, Program, Rounding, Stage, Term, Weights};
use super::windows::{add_windows, largest};

/// Computes a program on integers modulo 2^bits: the answer's numbers, as [`decode`] reads them.
///
/// Where rounding is stochastic, a sum y becomes floor((y − u) / 2^shift). By stage, `dither` has the
/// number for each of a sum's numbers whose lowest `shift` bits are u: in the protocol, the client's
/// share of the sum. Without it, u is 2^(shift − 1), which rounds to the nearest.
///
/// # Panics
/// Unless program, weights, input and dither fit each other.
pub fn reference(
    program: &Program,
    weights: &Weights,
    input: &[u64],
    dither: Option<&[Vec<u64>]>,
) -> Vec<u64> {
    assert_eq!(input.len(), program.input.count(), "an input of another shape");
    let mut tensors = vec![input.to_vec()];
    let mut convolutions = weights.convolutions.iter();
    for (index, stage) in program.stages.iter().enumerate() {
        let mut y = bias(stage, &weights.biases[index]);
        for term in &stage.terms {
            let own =
                matches!(term, Term::Convolution { .. }).then(|| convolutions.next()).flatten();
            add_term(term, own.map_or(&[], Vec::as_slice), &tensors, &mut y);
        }
        y.iter_mut().for_each(|y| *y &= program.mask());
        tensors.push(match stage.activation {
            Some(activation) => {
                let dither = dither.map(|dither| dither[index].as_slice());
                activate(program, stage, activation, y, dither)
            }
            None => y,
        });
    }
    tensors.pop().unwrap_or_default()
}

/// A stage's sum before its terms.
fn bias(stage: &Stage, bias: &[i64]) -> Vec<u64> {
    let plane = stage.sum.height * stage.sum.width;
    bias.iter().flat_map(|&bias| std::iter::repeat_n(bias as u64, plane)).collect()
}

fn add_term(term: &Term, weights: &[i32], tensors: &[Vec<u64>], y: &mut [u64]) {
    match *term {
        Term::Convolution { source, convolution, shift } => {
            let mut own = vec![0; y.len()];
            convolve(&convolution, weights, &tensors[source], &mut own);
            y.iter_mut().zip(own).for_each(|(y, own)| *y = y.wrapping_add(own << shift));
        }
        Term::Windows { source, input, window, stride, shift } => {
            let add = |sum: &mut u64, x: u64| *sum = sum.wrapping_add(x << shift);
            add_windows((input, window, stride), &tensors[source], y, add);
        }
    }
}

fn activate(
    program: &Program,
    stage: &Stage,
    own: Activation,
    y: Vec<u64>,
    dither: Option<&[u64]>,
) -> Vec<u64> {
    let Activation { rectify, most, shift, .. } = own;
    let low = (1_u64 << shift) - 1;
    let middle = (1_u64 << shift) >> 1;
    let lowered = y.into_iter().enumerate().map(|(at, y)| {
        let u = match program.rounding {
            Rounding::Nearest => 0,
            Rounding::Stochastic => dither.map_or(middle, |dither| dither[at] & low),
        };
        signed(y.wrapping_sub(u), program.bits) >> shift
    });
    let mut x: Vec<i64> = lowered.collect();
    if own.pool() != Pool::NONE {
        x = largest(stage.sum, own.pool(), &x);
    }
    let rectified = x.into_iter().map(|x| if rectify { x.max(0) } else { x });
    let most = most.map_or(i64::MAX, |most| i64::try_from(most).unwrap_or(i64::MAX));
    rectified.map(|x| x.min(most) as u64 & program.mask()).collect()
}

/// A number modulo 2^bits as one with a sign.
pub(super) fn signed(value: u64, bits: u32) -> i64 {
    ((value << (64 - bits)) as i64) >> (64 - bits)
}

/// An input's numbers as they are shared: round(x · 2^fraction) modulo 2^bits.
///
/// # Errors
/// [`Error::Input`] for an input of another size, [`Error::InputRange`] for a number beyond `max`, the
/// largest absolute value times 2^fraction that the plan was made for.
pub fn encode(program: &Program, max: u64, input: &[f32]) -> Result<Vec<u64>, Error> {
    if input.len() != program.input.count() {
        let super::program::Shape { channels, height, width } = program.input;
        let shape = format!("{channels} × {height} × {width}");
        return Err(Error::Input { expected: program.input.count(), found: input.len(), shape });
    }
    let scale = (1_u64 << program.fraction) as f64;
    let each = input.iter().enumerate().map(|(index, &x)| {
        let value = (f64::from(x) * scale).round();
        match value.abs() <= max as f64 {
            true => Ok(value as i64 as u64 & program.mask()),
            false => Err(Error::InputRange { index, value: f64::from(x), max: max as f64 / scale }),
        }
    });
    each.collect()
}

/// An answer's numbers.
pub fn decode(program: &Program, output: &[u64]) -> Vec<f32> {
    let fraction = program.stages.last().map_or(program.fraction, |stage| stage.fraction);
    let scale = (2.0_f64).powi(-(fraction as i32));
    output.iter().map(|&y| (signed(y, program.bits) as f64 * scale) as f32).collect()
}
