//! How likely it is that a coefficient leaves the range of the reduction.

/// log2 of a bound on the probability that one of `coefficients` numbers, after the modulus was raised
/// under a secret of weight `weight`, is more than `wraps` times q_0 in absolute value.
///
/// Such a number is q_0 times the sum of `weight` + 1 numbers that are uniform from −1/2 to 1/2, so the
/// tail is Irwin and Hall's; those of all coefficients are added.
pub fn reduction_failure_log2(weight: usize, wraps: f64, coefficients: usize) -> f64 {
    let count = weight + 1;
    // The sum moved to 0..count: below x on one side, and as likely above on the other.
    let x = count as f64 / 2.0 - wraps;
    1.0 + below_log2(count, x) + (coefficients as f64).log2()
}

/// log2 of the probability that `count` numbers uniform from 0 to 1 add up to less than `x`.
///
/// It is Σ_k f(x − k), f the density of one number more: a spline, by the recurrence of splines, in which
/// every term is positive (de Boor 1972) and nothing cancels.
fn below_log2(count: usize, x: f64) -> f64 {
    if x <= 0.0 {
        return f64::NEG_INFINITY;
    }
    let (whole, part) = (x.floor() as usize, x.fract());
    // densities[k] is that of as many numbers as the round at part + k.
    let mut densities = vec![0.0; whole + 1];
    densities[0] = 1.0;
    // Divided by the largest of each round, so that none is too small for a double.
    let mut taken_log2 = 0.0f64;
    for numbers in 2..=count + 1 {
        for k in (0..=whole).rev() {
            let at = part + k as f64;
            let lower = if k > 0 { densities[k - 1] } else { 0.0 };
            let rising = at * densities[k];
            let falling = (numbers as f64 - at).max(0.0) * lower;
            densities[k] = (rising + falling) / (numbers - 1) as f64;
        }
        let largest = densities.iter().fold(0.0f64, |largest, &value| largest.max(value));
        densities.iter_mut().for_each(|value| *value /= largest);
        taken_log2 += largest.log2();
    }
    let sum: f64 = densities.iter().sum();
    (sum.log2() + taken_log2).min(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_irwin_and_halls() {
        // One number: x. Two: x² / 2 below 1. Three: 1/6 below 1, 5/6 below 2.
        for (count, x, expected) in [
            (1, 0.3, 0.3f64),
            (2, 0.5, 0.125),
            (3, 1.0, 1.0 / 6.0),
            (3, 2.0, 5.0 / 6.0),
            (4, 2.0, 0.5),
        ] {
            let found = below_log2(count, x).exp2();
            assert!((found - expected).abs() < 1e-12, "{count} {x}: {found}");
        }
        for (weight, wraps, coefficients, expected) in [
            (32, 16.0, 1 << 16, -138.7),
            (32, 16.0, 1024, -144.7),
            (32, 14.0, 1 << 16, -62.0),
            (32, 14.0, 1024, -68.0),
            (32, 12.0, 1 << 16, -34.0),
            (64, 28.0, 1 << 16, -144.0),
            (192, 28.0, 1 << 16, -23.0),
        ] {
            let found = reduction_failure_log2(weight, wraps, coefficients);
            // The design gives one decimal, or none.
            let most = if (expected * 10.0f64) % 10.0 == 0.0 { 0.6 } else { 0.1 };
            assert!((found - expected).abs() <= most, "{weight} {wraps}: {found}, not {expected}");
        }
    }
}
