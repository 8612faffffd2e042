//! An encrypted token to its one-hot form, by squarings.

use hushtable_rlwe::ckks::{Error, Evaluate, PreparedBootstrap};

use super::schedule::{Schedule, Step};

/// The encrypted indicator function of one base p (Kim et al., "Privacy-preserving embedding via
/// look-up table evaluation with fully homomorphic encryption", ICML 2024, section 3.3): about 1 where
/// a difference of tokens is 0, about 0 where it is another integer of −p..p.
///
/// (1 − (x / p)²)^(2^r) falls off so quickly in x that 1 is told from 0; x²(3 − 2x) then pulls what is
/// near to 0 and 1 nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indicator {
    base: usize,
    squarings: u32,
    cleanings: u32,
}

impl Indicator {
    /// The bases that its authors give squarings for.
    pub const BASES: [usize; 5] = [4, 8, 16, 32, 64];

    /// The indicator of one of the [`BASES`](Self::BASES), as its authors have it.
    pub fn of_base(base: usize) -> Option<Self> {
        let (squarings, cleanings) = match base {
            4 => (6, 1),
            8 => (8, 1),
            16 => (10, 2),
            32 => (11, 2),
            64 => (13, 3),
            _ => return None,
        };
        Some(Self { base, squarings, cleanings })
    }

    /// p.
    pub fn base(self) -> usize {
        self.base
    }

    /// Squarings after the first, which makes 1 − (x / p)².
    pub(super) fn squarings(self) -> usize {
        self.squarings as usize
    }

    /// How often x²(3 − 2x) is taken.
    pub(super) fn cleanings(self) -> usize {
        self.cleanings as usize
    }

    /// Levels that it takes.
    pub fn depth(self) -> usize {
        1 + self.squarings() + 2 * self.cleanings()
    }

    /// The function itself, of a difference over p.
    pub fn value(self, difference: f64) -> f64 {
        let start = 1.0 - difference * difference;
        let sharp = start.powf(f64::from(self.squarings).exp2());
        (0..self.cleanings).fold(sharp, |x, _| x * x * (3.0 - 2.0 * x))
    }
}

/// Takes the steps of `schedule` from slots that hold differences over p, at the level and scale that
/// it starts with.
///
/// # Errors
/// [`Error::Bootstrap`] where the schedule bootstraps and there is no `bootstrap`; what the evaluator
/// refuses.
pub(super) fn apply<E: Evaluate>(
    evaluator: &mut E,
    schedule: &Schedule,
    bootstrap: Option<&PreparedBootstrap<E::Transform>>,
    difference: E::Ciphertext,
) -> Result<E::Ciphertext, Error> {
    let mut x = difference;
    for &step in schedule.steps() {
        x = match step {
            Step::Differ => {
                let mut square = evaluator.square_rescale(&x)?;
                // The power is even: the sign of 1 − x² does not matter.
                evaluator.add_constant(&mut square, -1.0)?;
                square
            }
            Step::Square => evaluator.square_rescale(&x)?,
            Step::Clean => clean(evaluator, x)?,
            Step::Align => {
                let to = evaluator.parameters().scale();
                align(evaluator, &mut x, to)?;
                x
            }
            Step::Bootstrap { then } => {
                let bootstrap = bootstrap.ok_or_else(|| {
                    let why = "the lookup has bootstraps and was given none: prepare one";
                    Error::Bootstrap { why: why.into() }
                })?;
                let mut out = bootstrap.run(evaluator, &x)?;
                evaluator.drop_to(&mut out, then)?;
                out
            }
        };
    }
    Ok(x)
}

/// x²(3 − 2x).
fn clean<E: Evaluate>(evaluator: &mut E, mut x: E::Ciphertext) -> Result<E::Ciphertext, Error> {
    let square = evaluator.square_rescale(&x)?;
    // −2 x²(x − 3/2), the integer at scale 1: it takes no level.
    evaluator.add_constant(&mut x, -1.5)?;
    let level = evaluator.level(&square);
    evaluator.drop_to(&mut x, level)?;
    let mut out = evaluator.multiply_rescale(&square, &x)?;
    evaluator.multiply_constant(&mut out, -2.0, 1.0)?;
    Ok(out)
}

/// Brings the scale to `to`, by a level.
fn align<E: Evaluate>(evaluator: &mut E, x: &mut E::Ciphertext, to: f64) -> Result<(), Error> {
    let prime = evaluator.parameters().modulus(evaluator.level(x)).value() as f64;
    let factor = to * prime / evaluator.scale(x);
    evaluator.multiply_constant(x, 1.0, factor)?;
    evaluator.rescale(x)
}
