//! What operations ask of levels and scales: one place, so that every implementation of `Evaluate`
//! refuses the same misuse with the same error.

use hushtable_ring::Ring;

use super::{Diagonals, Error, Parameters, Split, encoder};

/// `found` must be the level `expected`.
pub(super) fn same_level(
    operation: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), Error> {
    if found != expected {
        return Err(Error::Level { operation, found, expected });
    }
    Ok(())
}

/// The scales must be equal to 2^-20, relatively.
pub(super) fn same_scale(operation: &'static str, found: f64, expected: f64) -> Result<(), Error> {
    // Written so that a scale that is no number is refused.
    if (found / expected - 1.0).abs() <= 2f64.powi(-20) {
        return Ok(());
    }
    Err(Error::Scale { operation, found: found.log2(), expected: expected.log2() })
}

/// Level and scale of an operand of a sum: those of what it is added to.
pub(super) fn same(
    operation: &'static str,
    found: (usize, f64),
    expected: (usize, f64),
) -> Result<(), Error> {
    same_level(operation, found.0, expected.0)?;
    same_scale(operation, found.1, expected.1)
}

/// The product of two scales, which the modulus must hold.
pub(super) fn product_scale(
    operation: &'static str,
    ring: &Ring,
    x: f64,
    y: f64,
) -> Result<f64, Error> {
    let scale = x * y;
    scale_fits(operation, ring, scale)?;
    Ok(scale)
}

/// A scale must be at least 1, and below half the modulus: else no number but 0 fits.
pub(super) fn scale_fits(operation: &'static str, ring: &Ring, scale: f64) -> Result<(), Error> {
    let limit = ring.modulus_log2() - 1.0;
    let log2 = scale.log2();
    if (0.0..limit).contains(&log2) {
        return Ok(());
    }
    Err(Error::Scale { operation, found: log2, expected: limit })
}

/// A ciphertext at level and scale `found` can be taken down to `level`, which holds its scale.
pub(super) fn droppable(
    parameters: &Parameters,
    (found, scale): (usize, f64),
    level: usize,
) -> Result<(), Error> {
    if found < level {
        return Err(Error::Level { operation: DROP, found, expected: level });
    }
    scale_fits(DROP, parameters.ring(level), scale)
}

/// A ciphertext of `level` must have a level to lose.
pub(super) fn rescalable(parameters: &Parameters, level: usize) -> Result<(), Error> {
    if level == 0 {
        let (levels, name) = (parameters.levels(), parameters.name().to_owned());
        return Err(Error::Exhausted { operation: "rescale", levels, name });
    }
    Ok(())
}

/// What preparing a map refuses: values that do not fit the level, a map of other slots.
pub(super) fn preparable(
    parameters: &Parameters,
    map: &Diagonals,
    split: Split,
    level: usize,
    scale: f64,
) -> Result<(), Error> {
    assert!(split.baby_steps > 0, "baby steps are 0 to below a positive number");
    let slots = parameters.slots();
    if map.slots() != slots {
        return Err(Error::Slots { found: map.slots(), slots });
    }
    for steps in map.steps() {
        let diagonal = map.diagonal(steps).expect("of steps that it has");
        encoder::check(parameters, diagonal, level, scale)?;
    }
    Ok(())
}

/// Level and scale of Σ maps[i](xs[i]), each map and each ciphertext given by its own: one ciphertext a
/// map, at least one, all of one level, the maps of one scale and the ciphertexts of one.
pub(super) fn transform(
    parameters: &Parameters,
    maps: &[(usize, f64)],
    xs: &[(usize, f64)],
) -> Result<(usize, f64), Error> {
    assert!(maps.len() == xs.len() && !maps.is_empty(), "a transform has one ciphertext a map");
    let ((_, map_scale), (level, x_scale)) = (maps[0], xs[0]);
    for &x in xs {
        same(TRANSFORM, x, (level, x_scale))?;
    }
    for &map in maps {
        same(TRANSFORM, map, (level, map_scale))?;
    }
    Ok((level, product_scale(TRANSFORM, parameters.ring(level), map_scale, x_scale)?))
}

/// What is said of which operation.
pub(super) const ADD: &str = "add";
pub(super) const SUBTRACT: &str = "subtract";
pub(super) const ADD_PLAIN: &str = "add a plaintext";
pub(super) const MULTIPLY: &str = "multiply";
pub(super) const MULTIPLY_PLAIN: &str = "multiply by a plaintext";
pub(super) const MULTIPLY_CONSTANT: &str = "multiply by a constant";
pub(super) const DROP: &str = "drop to a level";
pub(super) const TRANSFORM: &str = "transform";
