//! A part of a whole.

use serde::{Deserialize, Serialize};

/// A number from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Fraction(f64);

// It is never NaN.
impl Eq for Fraction {}

/// A number that is no [`Fraction`].
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{0} is no fraction: give a number from 0 to 1, as 0.01")]
pub struct NoFraction(f64);

impl Fraction {
    /// One in a hundred.
    pub const HUNDREDTH: Self = Self(0.01);

    /// `number`, where it is one.
    ///
    /// # Errors
    /// [`NoFraction`] for less than 0, more than 1, NaN.
    pub fn new(number: f64) -> Result<Self, NoFraction> {
        match (0.0..=1.0).contains(&number) {
            true => Ok(Self(number)),
            false => Err(NoFraction(number)),
        }
    }

    /// The number.
    pub fn number(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Fraction {
    type Error = NoFraction;

    fn try_from(number: f64) -> Result<Self, NoFraction> {
        Self::new(number)
    }
}

impl From<Fraction> for f64 {
    fn from(fraction: Fraction) -> Self {
        fraction.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_zero_to_one_and_nothing_else() {
        for (json, number) in [("0", Some(0.0)), ("1", Some(1.0)), ("0.25", Some(0.25))]
            .into_iter()
            .chain(["-0.1", "1.01", "1e300", "\"1\"", "null"].map(|json| (json, None)))
        {
            let found = serde_json::from_str::<Fraction>(json).ok();
            assert_eq!(found.map(Fraction::number), number, "{json}");
        }
        assert!(Fraction::new(f64::NAN).is_err());
    }
}
