//! Chebyshev's polynomials, and the polynomials that come nearest to a function.

use std::f64::consts::PI;

use crate::largest;

/// Σ coefficients[k] · T_k(x), by Clenshaw's recurrence.
pub(super) fn sum(coefficients: &[f64], x: f64) -> f64 {
    let (mut next, mut after) = (0.0, 0.0);
    for &coefficient in coefficients.iter().skip(1).rev() {
        (next, after) = (coefficient + 2.0 * x * next - after, next);
    }
    coefficients.first().copied().unwrap_or(0.0) + x * next - after
}

/// The coefficients, in T_0 to T_degree, of the polynomial that is `function` at Chebyshev's
/// `degree` + 1 nodes in [−1, 1].
pub(super) fn interpolate(function: impl Fn(f64) -> f64, degree: usize) -> Vec<f64> {
    let count = degree + 1;
    let angle = |node: usize| PI * (node as f64 + 0.5) / count as f64;
    let values: Vec<f64> = (0..count).map(|node| function(angle(node).cos())).collect();
    let coefficient = |k: usize| {
        let terms = values.iter().enumerate();
        let sum: f64 = terms.map(|(node, value)| value * (k as f64 * angle(node)).cos()).sum();
        sum * if k == 0 { 1.0 } else { 2.0 } / count as f64
    };
    (0..count).map(coefficient).collect()
}

/// (quotient, remainder) of Σ coefficients[k] · T_k by T_giant, from T_i · T_g = (T_(i + g) +
/// T_|i − g|) / 2; the degree is below twice `giant`.
pub(super) fn divide(coefficients: &[f64], giant: usize) -> (Vec<f64>, Vec<f64>) {
    let mut remainder = coefficients[..giant].to_vec();
    let mut quotient = vec![coefficients[giant]];
    for (index, &coefficient) in coefficients.iter().enumerate().skip(giant + 1) {
        quotient.push(2.0 * coefficient);
        remainder[2 * giant - index] -= coefficient;
    }
    (quotient, remainder)
}

/// What a polynomial of one parity is to come near, on [low, 1] and so on [−1, −low].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// The sign, which is odd: 1.
    Sign,
    /// |x|, which is even: x.
    Magnitude,
}

impl Target {
    fn at(self, x: f64) -> f64 {
        match self {
            Self::Sign => 1.0,
            Self::Magnitude => x,
        }
    }

    /// The lowest power that a polynomial of its parity has.
    fn parity(self) -> usize {
        match self {
            Self::Sign => 1,
            Self::Magnitude => 0,
        }
    }
}

/// The polynomial of `target`'s parity and of at most `degree` (at least 1) that comes nearest to it on
/// [`low`, 1], and so on both sides of 0: its coefficients in T_0 to T_degree, and how far off it gets.
///
/// Remez's exchange. For a unique best one among k coefficients, the error takes its largest value
/// k + 1 times, with alternating signs: points where it might are moved to where it does.
pub(super) fn nearest(target: Target, degree: usize, low: f64) -> (Vec<f64>, f64) {
    let count = (degree - target.parity()) / 2 + 1;
    let mut points: Vec<f64> =
        (0..=count).map(|index| place(low, index as f64 / count as f64)).collect();
    let mut coefficients = vec![0.0; degree + 1];
    for _ in 0..EXCHANGES {
        solve(target, &points, &mut coefficients);
        let error = |x: f64| sum(&coefficients, x) - target.at(x);
        let extrema = alternating_extrema(&error, low);
        if extrema.len() < points.len() {
            break;
        }
        // Of too many, the run with the largest smallest error.
        let windows = extrema.windows(points.len());
        let smallest = |run: &[f64]| run.iter().map(|&x| error(x).abs()).fold(f64::MAX, f64::min);
        let best = windows.max_by(|a, b| smallest(a).total_cmp(&smallest(b)));
        let best = best.expect("at least one run").to_vec();
        let is_settled = best.iter().zip(&points).all(|(a, b)| (a - b).abs() <= 1e-7 * b);
        points = best;
        if is_settled {
            break;
        }
    }
    let error = |x: f64| sum(&coefficients, x) - target.at(x);
    let extrema = alternating_extrema(&error, low);
    let error = largest(extrema.iter().map(|&x| error(x)));
    (coefficients, error)
}

/// The coefficients of the polynomial that misses `target` by one number, with alternating signs, at all
/// `points`.
fn solve(target: Target, points: &[f64], coefficients: &mut [f64]) {
    let (size, parity) = (points.len(), target.parity());
    let row = |(index, &x): (usize, &f64)| {
        let angle = x.min(1.0).acos();
        let powers = (0..size - 1).map(|k| parity + 2 * k);
        let mut row: Vec<f64> = powers.map(|power| (power as f64 * angle).cos()).collect();
        row.extend([if index % 2 == 0 { 1.0 } else { -1.0 }, target.at(x)]);
        row
    };
    let mut rows: Vec<Vec<f64>> = points.iter().enumerate().map(row).collect();
    // Gauss' elimination, with the largest pivot of each column.
    for column in 0..size {
        let pivot = (column..size)
            .max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()))
            .expect("a row is left");
        rows.swap(column, pivot);
        let own = rows[column].clone();
        for (index, row) in rows.iter_mut().enumerate() {
            if index != column {
                let factor = row[column] / own[column];
                row.iter_mut().zip(&own).for_each(|(x, y)| *x -= factor * y);
            }
        }
    }
    for k in 0..size - 1 {
        coefficients[parity + 2 * k] = rows[k][size] / rows[k][k];
    }
}

/// The point of [`low`, 1] at a share of the way, as extrema lie: a polynomial of one parity is one of x²,
/// or x times one, and its extrema are about Chebyshev's.
fn place(low: f64, share: f64) -> f64 {
    let (middle, half) = ((1.0 + low * low) / 2.0, (1.0 - low * low) / 2.0);
    (middle - half * (PI * share).cos()).sqrt().max(low)
}

/// Where `error` is largest between its changes of sign on [`low`, 1], ascending.
fn alternating_extrema(error: &impl Fn(f64) -> f64, low: f64) -> Vec<f64> {
    let grid: Vec<f64> = (0..=GRID).map(|index| place(low, index as f64 / GRID as f64)).collect();
    let errors: Vec<f64> = grid.iter().map(|&x| error(x)).collect();
    let mut extrema: Vec<usize> = Vec::new();
    for (index, value) in errors.iter().enumerate() {
        match extrema.last_mut() {
            Some(last) if (errors[*last] > 0.0) == (*value > 0.0) => {
                if value.abs() > errors[*last].abs() {
                    *last = index;
                }
            }
            _ => extrema.push(index),
        }
    }
    let refine = |&index: &usize| {
        let (from, to) = (grid[index.saturating_sub(1)], grid[(index + 1).min(grid.len() - 1)]);
        largest_between(error, from, to)
    };
    extrema.iter().map(refine).collect()
}

/// Where |error| is largest in [from, to], with one extremum in it: by thirds.
fn largest_between(error: &impl Fn(f64) -> f64, mut from: f64, mut to: f64) -> f64 {
    for _ in 0..40 {
        let (a, b) = (from + (to - from) / 3.0, to - (to - from) / 3.0);
        if error(a).abs() < error(b).abs() { from = a } else { to = b }
    }
    let middle = (from + to) / 2.0;
    [from, middle, to]
        .into_iter()
        .fold(middle, |best, x| if error(x).abs() > error(best).abs() { x } else { best })
}

const EXCHANGES: usize = 60;
const GRID: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_odd_polynomials_alternate() {
        for (degree, low) in [(3, 0.2), (7, 0.05), (15, 0.003), (27, 0.3)] {
            let (coefficients, largest) = nearest(Target::Sign, degree, low);
            assert!(coefficients.iter().step_by(2).all(|&even| even == 0.0));
            // By de la Vallée Poussin, no odd polynomial of the degree misses 1 by less than the
            // smallest of as many alternating errors as it has coefficients, and one.
            let error = |x: f64| sum(&coefficients, x) - 1.0;
            let extrema = alternating_extrema(&error, low);
            assert!(extrema.len() > degree.div_ceil(2), "{degree} {low}: {}", extrema.len());
            let smallest = extrema.iter().map(|&x| error(x).abs()).fold(f64::MAX, f64::min);
            assert!(largest / smallest < 1.0 + 1e-6, "{degree} {low}: {largest} {smallest}");
        }
        // By hand: x · (a + b x²) on [0.5, 1] is nearest to 1 with its extrema at both ends and
        // inside, where the derivative a + 3 b x² is 0.
        let (coefficients, largest) = nearest(Target::Sign, 3, 0.5);
        let b = 4.0 * coefficients[3];
        let a = coefficients[1] - 3.0 * coefficients[3];
        let inside = (-a / (3.0 * b)).sqrt();
        for (x, sign) in [(0.5, -1.0), (inside, 1.0), (1.0, -1.0)] {
            assert!((x * (a + b * x * x) - 1.0 - sign * largest).abs() < 1e-9, "{x}");
        }
    }

    #[test]
    fn quotient_and_remainder_make_the_polynomial() {
        let coefficients: Vec<f64> = (0..13).map(|k| f64::from(k * 7 % 5) - 1.5).collect();
        let (quotient, remainder) = divide(&coefficients, 8);
        for x in [-1.0, -0.3, 0.0, 0.77, 1.0] {
            let giant = sum(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], x);
            let product = sum(&quotient, x) * giant + sum(&remainder, x);
            assert!((product - sum(&coefficients, x)).abs() < 1e-12);
        }
    }
}
