//! What operations ask of levels, scales and numbers: one place, so that every implementation of
//! `Evaluate` refuses the same misuse with the same error.

use hushtable_ring::{Ring, declassify};
use num_complex::Complex64;

use super::residues::COEFFICIENT_LOG2_MAX;
use super::{Diagonals, Error, Parameters, Split};

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

/// log2 of the first absolute value that `ring` does not hold at `scale`.
fn value_limit_log2(ring: &Ring, scale: f64) -> f64 {
    (ring.modulus_log2() - 1.0).min(COEFFICIENT_LOG2_MAX) - scale.log2()
}

/// The largest absolute value; every one of them must be finite and below what `ring` holds at `scale`.
pub(super) fn largest(ring: &Ring, values: &[Complex64], scale: f64) -> Result<f64, Error> {
    scale_fits("encode", ring, scale)?;
    let limit_log2 = value_limit_log2(ring, scale);
    let size = |value: &Complex64| value.re.abs() + value.im.abs();
    // The sum is not finite where a value is not.
    let (largest, sum) = values.iter().fold((0.0f64, 0.0f64), |(largest, sum), value| {
        (largest.max(size(value)), sum + size(value))
    });
    let limit = limit_log2.exp2();
    let mut is_refused = u8::from(largest >= limit) | u8::from(!sum.is_finite());
    // Whether a vector is refused is what the caller is told, and nobody else.
    declassify(&mut is_refused);
    let is_outside = |size: f64| !(size.is_finite() && size < limit);
    if is_refused != 0
        && let Some(index) = values.iter().position(|value| is_outside(size(value)))
    {
        let Complex64 { re, im } = values[index];
        let value = if re.abs() >= im.abs() || re.is_nan() { re } else { im };
        return Err(Error::Value { index, value, limit_log2 });
    }
    Ok(largest)
}

/// What encoding real `values` at `level` would refuse.
pub(super) fn vector(
    parameters: &Parameters,
    values: &[f64],
    level: usize,
    scale: f64,
) -> Result<(), Error> {
    let values: Vec<_> = values.iter().map(|&value| Complex64::new(value, 0.0)).collect();
    complex_vector(parameters, &values, level, scale)
}

/// What encoding complex `values` at `level` would refuse.
fn complex_vector(
    parameters: &Parameters,
    values: &[Complex64],
    level: usize,
    scale: f64,
) -> Result<(), Error> {
    let (found, slots, expected) = (values.len(), parameters.slots(), parameters.levels());
    if level > expected {
        return Err(Error::Level { operation: "encode", found: level, expected });
    }
    if !found.is_power_of_two() || found > slots {
        return Err(Error::Slots { found, slots });
    }
    largest(parameters.ring(level), values, scale).map(|_| ())
}

/// What a constant in every slot is refused for.
pub(super) fn constant(ring: &Ring, value: f64, scale: f64) -> Result<(), Error> {
    let limit_log2 = value_limit_log2(ring, scale);
    // Written so that what is no number is refused.
    if !(value.is_finite() && value.abs().log2() < limit_log2) {
        return Err(Error::Value { index: 0, value, limit_log2 });
    }
    Ok(())
}

/// A map prepared for `level` must be one of the set's slots, and the level one that there is.
pub(super) fn map(
    parameters: &Parameters,
    map: &Diagonals,
    split: Split,
    level: usize,
) -> Result<(), Error> {
    assert!(
        split.baby_steps > 0 && split.inner_steps > 0,
        "baby steps are 0 to below a positive number"
    );
    let (slots, expected) = (parameters.slots(), parameters.levels());
    if map.slots() != slots {
        return Err(Error::Slots { found: map.slots(), slots });
    }
    if level > expected {
        return Err(Error::Level { operation: "encode", found: level, expected });
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
    self::map(parameters, map, split, level)?;
    for steps in map.steps() {
        let diagonal = map.complex(steps).expect("of steps that it has");
        complex_vector(parameters, &diagonal, level, scale)?;
    }
    Ok(())
}

/// A raise of a ciphertext at level `found` to `level`.
pub(super) fn raisable(parameters: &Parameters, found: usize, level: usize) -> Result<(), Error> {
    same_level(RAISE, found, 0)?;
    if level > parameters.levels() {
        return same_level(RAISE, level, parameters.levels());
    }
    Ok(())
}

/// The scale of what held numbers at `scale` and is taken to hold `factor` times them.
pub(super) fn weighed(ring: &Ring, scale: f64, factor: f64) -> Result<f64, Error> {
    // A factor that is no positive number gives a scale that is none either.
    let scale = scale / factor;
    scale_fits(WEIGH, ring, scale)?;
    Ok(scale)
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

/// The one split of the maps of a transform.
pub(super) fn one_split(mut splits: impl Iterator<Item = Split>) -> Split {
    let first = splits.next().expect("a transform has one ciphertext a map");
    assert!(splits.all(|split| split == first), "the maps of a transform have one split");
    first
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
pub(super) const WEIGH: &str = "weigh";
pub(super) const RAISE: &str = "raise the modulus";
pub(super) const CONJUGATE: &str = "conjugate";
