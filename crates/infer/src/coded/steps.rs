//! The steps of an indicator, taken.

use hushtable_rlwe::ckks::{Error, Evaluate, PreparedBootstrap};

use super::schedule::{Schedule, Step};

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
