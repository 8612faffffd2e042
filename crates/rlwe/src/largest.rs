//! The largest error, which a number that is none is.

/// The largest absolute value, 0 of none: NaN where one is NaN, so that no bound holds of it.
///
/// `f64::max` leaves NaN out: a result that could not be decoded would pass for an exact one.
pub fn largest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().map(f64::abs).max_by(f64::total_cmp).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::largest;

    #[test]
    fn what_is_no_number_is_the_largest() {
        assert_eq!(largest([]), 0.0);
        assert_eq!(largest([1.0, -3.0, 2.0]), 3.0);
        assert_eq!(largest([1.0, f64::NEG_INFINITY]), f64::INFINITY);
        for nan in [f64::NAN, -f64::NAN] {
            assert!(largest([1.0, nan, f64::INFINITY, 2.0]).is_nan());
        }
    }
}
