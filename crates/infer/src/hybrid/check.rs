//! Which programs a party accepts.

use hushtable_mpc::garble::WINDOW_MAX;

use super::program::{Activation, Convolution, Pool, Program, Shape, Stage, Term};
use super::windows::windows;

/// The most stages of a program.
pub const STAGES_MAX: usize = 1024;
/// The most terms of a stage.
pub const TERMS_MAX: usize = 64;
/// The most numbers of a tensor.
pub const NUMBERS_MAX: usize = 1 << 24;
/// The most numbers of all tensors and sums together.
pub const NUMBERS_SUM_MAX: usize = 1 << 28;
/// The most weights of a convolution.
pub const WEIGHTS_MAX: usize = 1 << 28;
/// The most weights of a program.
pub const WEIGHTS_SUM_MAX: usize = 1 << 30;
/// The most fraction bits of a tensor.
pub const FRACTION_MAX: u32 = 28;
/// The most steps that are left to the client.
pub(super) const POST_MAX: usize = 8;
/// The most bytes of a name.
pub const NAME_BYTES_MAX: usize = 128;
/// The largest stride, kernel or pad.
const SIDE_MAX: usize = 4096;

/// A program that cannot be run, or that no party should run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
#[non_exhaustive]
pub struct ProgramError {
    /// Which part of it.
    pub place: String,
    /// What is wrong, and what is possible.
    pub why: String,
}

type Checked = Result<(), ProgramError>;

fn refuse(place: &str, why: impl Into<String>) -> Checked {
    Err(ProgramError { place: place.into(), why: why.into() })
}

fn check_shape(place: &str, shape: Shape) -> Checked {
    let Shape { channels, height, width } = shape;
    let count = channels.checked_mul(height).and_then(|count| count.checked_mul(width));
    match count {
        Some(1..=NUMBERS_MAX) => Ok(()),
        _ => refuse(
            place,
            format!("{channels} × {height} × {width} numbers, possible are 1 to {NUMBERS_MAX}"),
        ),
    }
}

/// Checks a name: it is printed, and in errors.
pub(super) fn check_name(place: &str, name: &str) -> Checked {
    let is_good = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
    match is_good {
        true => Ok(()),
        false => refuse(place, format!("a name of 1 to {NAME_BYTES_MAX} printable bytes, please")),
    }
}

fn check_sides(place: &str, what: &str, sides: &[usize], least: usize) -> Checked {
    match sides.iter().all(|side| (least..=SIDE_MAX).contains(side)) {
        true => Ok(()),
        false => refuse(place, format!("{what} {sides:?}, possible are {least} to {SIDE_MAX}")),
    }
}

fn check_convolution(place: &str, own: &Convolution) -> Checked {
    check_shape(place, own.input)?;
    check_sides(place, "a kernel of", &own.kernel, 1)?;
    check_sides(place, "a stride of", &own.stride, 1)?;
    check_sides(place, "pads of", &own.pad, 0)?;
    let [top, left, bottom, right] = own.pad;
    let [rows, columns] = own.kernel;
    if own.input.height + top + bottom < rows || own.input.width + left + right < columns {
        return refuse(place, "a kernel that is larger than the padded image");
    }
    let weights = own
        .outputs
        .checked_mul(own.input.channels)
        .and_then(|count| count.checked_mul(rows * columns))
        .filter(|count| (1..=WEIGHTS_MAX).contains(count));
    if weights.is_none() {
        return refuse(place, format!("{} planes: at most {WEIGHTS_MAX} weights", own.outputs));
    }
    check_shape(place, own.output())
}

impl Program {
    /// Checks everything that the parties count on: sizes that fit each other and are bounded, terms of
    /// tensors that are there, fractions that add up.
    ///
    /// # Errors
    /// [`ProgramError`] says what no party accepts.
    pub fn check(&self) -> Result<(), ProgramError> {
        let place = "the program";
        let Self { bits, fraction, .. } = *self;
        if !(16..=64).contains(&bits) {
            return refuse(place, format!("{bits} bits, possible are 16 to 64"));
        }
        if fraction > FRACTION_MAX || fraction + 2 > bits {
            return refuse(place, format!("{fraction} fraction bits of {bits}"));
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if self.lattice.len() > NAME_BYTES_MAX || !self.lattice.bytes().all(is_name) {
            return refuse(place, "a lattice whose name is none");
        }
        check_shape("the input", self.input)?;
        if !(1..=STAGES_MAX).contains(&self.stages.len()) {
            let why = format!("{} stages, possible are 1 to {STAGES_MAX}", self.stages.len());
            return refuse(place, why);
        }
        let (mut numbers, mut weights) = (self.input.count(), 0usize);
        for (index, stage) in self.stages.iter().enumerate() {
            self.check_stage(index, stage)?;
            numbers += stage.sum.count();
            let own = stage.terms.iter().filter_map(|term| match term {
                Term::Convolution { convolution, .. } => Some(convolution.weights()),
                Term::Windows { .. } => None,
            });
            weights += own.sum::<usize>();
            if numbers > NUMBERS_SUM_MAX || weights > WEIGHTS_SUM_MAX {
                let why = format!(
                    "{numbers} numbers and {weights} weights up to stage {index}, at most \
                     {NUMBERS_SUM_MAX} and {WEIGHTS_SUM_MAX}"
                );
                return refuse(place, why);
            }
        }
        Ok(())
    }

    fn check_stage(&self, index: usize, stage: &Stage) -> Checked {
        check_name(&format!("stage {index}"), &stage.name)?;
        let place = &format!("stage {index} ({:?})", stage.name);
        check_shape(place, stage.sum)?;
        if !(1..=TERMS_MAX).contains(&stage.terms.len()) {
            let why = format!("{} terms, possible are 1 to {TERMS_MAX}", stage.terms.len());
            return refuse(place, why);
        }
        if stage.fraction < self.fraction || stage.fraction >= self.bits {
            let why = format!(
                "a sum of {} fraction bits, possible are {} to {}",
                stage.fraction,
                self.fraction,
                self.bits - 1
            );
            return refuse(place, why);
        }
        for term in &stage.terms {
            self.check_term(place, index, stage, term)?;
        }
        let is_last = index + 1 == self.stages.len();
        match stage.activation {
            None if is_last => Ok(()),
            Some(activation) if !is_last => self.check_activation(place, stage, activation),
            _ => refuse(place, "the last stage has no activation, and only the last"),
        }
    }

    fn check_term(&self, place: &str, index: usize, stage: &Stage, term: &Term) -> Checked {
        let (source, input, output, shift) = match *term {
            Term::Convolution { source, convolution, shift } => {
                check_convolution(place, &convolution)?;
                (source, convolution.input, convolution.output(), shift)
            }
            Term::Windows { source, input, window, stride, shift } => {
                check_shape(place, input)?;
                check_sides(place, "a window of", &window, 1)?;
                check_sides(place, "a stride of", &stride, 1)?;
                if window[0] > input.height || window[1] > input.width {
                    return refuse(place, "a window that is larger than the image");
                }
                (source, input, windows(input, window, stride), shift)
            }
        };
        if source > index || self.tensor(source).count() != input.count() {
            let why = format!("a term of tensor {source}, which is not there or has another size");
            return refuse(place, why);
        }
        // One as flat has its numbers in the same order.
        if output != stage.sum
            && (output.count() != stage.sum.count() || output.height * output.width != 1)
        {
            return refuse(place, "a term that has another shape than the sum");
        }
        // What is left is the weights' fraction, or the logarithm of what a window's sum is divided by.
        match stage.fraction.checked_sub(self.fraction).and_then(|left| left.checked_sub(shift)) {
            Some(0..=30) => Ok(()),
            _ => refuse(place, format!("a term that is shifted by {shift}")),
        }
    }

    fn check_activation(&self, place: &str, stage: &Stage, own: Activation) -> Checked {
        let (Pool { kernel: window, stride, pad }, shift) = (own.pool(), own.shift);
        if stage.fraction - self.fraction != shift {
            let why = format!(
                "{shift} fraction bits are dropped, expected {}",
                stage.fraction - self.fraction
            );
            return refuse(place, why);
        }
        if own.most.is_some_and(|most| most == 0 || most > self.mask() >> 1 || !own.rectify) {
            let why = format!("{:?} as the largest number of what is rectified", own.most);
            return refuse(place, why);
        }
        check_sides(place, "windows of", &window, 1)?;
        check_sides(place, "windows with a stride of", &stride, 1)?;
        let [top, left, bottom, right] = pad;
        let is_inside = |window: usize, length: usize, pads: [usize; 2]| {
            // Each window holds a number of the image.
            let is_narrow = pads.iter().all(|&pad| pad < window);
            is_narrow && window <= length + pads[0] + pads[1]
        };
        if !is_inside(window[0], stage.sum.height, [top, bottom])
            || !is_inside(window[1], stage.sum.width, [left, right])
            || window[0].saturating_mul(window[1]) > WINDOW_MAX
        {
            let why = format!("the largest of windows of {window:?}, padded by {pad:?}");
            return refuse(place, why);
        }
        Ok(())
    }
}
