//! The aggregate as written in a file.

use serde::{Deserialize, Serialize};

use super::average::{Adaptive, FedAvg, Moments};
use super::clip::bounded;
use super::private::NoisySum;
use super::{Aggregate, AggregateError};

/// An aggregate by name; [`build`](Self::build) checks it.
///
/// ```
/// # use hushtable_oram::aggregate::AggregateSpec;
/// let spec: AggregateSpec =
///     serde_json::from_str(r#"{ "name": "fed_adam", "learning_rate": 0.01 }"#)?;
/// assert_eq!(spec.build()?.state_bytes(16), 128);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum AggregateSpec {
    /// The weighted mean (equation 1).
    FedAvg {
        /// η; 1 if not given.
        #[serde(default = "one")]
        learning_rate: f32,
    },
    /// Adam on the weighted mean (Reddi et al., ICLR 2021).
    FedAdam {
        /// η; 0.01 if not given.
        #[serde(default = "hundredth")]
        learning_rate: f32,
        /// β₁, the first moment's decay a round; 0.9 if not given.
        #[serde(default = "nine_tenths")]
        beta1: f32,
        /// β₂, the second moment's decay a round; 0.99 if not given.
        #[serde(default = "ninety_nine_hundredths")]
        beta2: f32,
        /// Added to the root of the second moment; 1e-3 if not given.
        #[serde(default = "thousandth")]
        tau: f32,
    },
    /// Adagrad on the weighted mean.
    FedAdagrad {
        /// η; 0.1 if not given.
        #[serde(default = "tenth")]
        learning_rate: f32,
        /// Added to the root of the second moment; 1e-3 if not given.
        #[serde(default = "thousandth")]
        tau: f32,
    },
    /// The mean of clipped gradients over a fixed number of users, with noise (McMahan et al., ICLR
    /// 2018, the estimator with a fixed denominator). Weights count as one each.
    ///
    /// Every row gets the noise of every round, sent or not; a row that a round does not read gets it
    /// when it is next read, or exported (Lim et al., LazyDP, ASPLOS 2024). So neither the table nor
    /// the rows that users are served say which rows were trained, beyond ε.
    DpFedAvg {
        /// η; 1 if not given.
        #[serde(default = "one")]
        learning_rate: f32,
        /// C: the largest norm after clipping.
        clip: f32,
        /// Whether each row's norm is clipped or a user's whole upload's; a row's if not given.
        #[serde(default)]
        clip_per: ClipPer,
        /// σ: the noise's standard deviation over C.
        noise_multiplier: f32,
        /// The sum is divided by this number of users, whoever drops out.
        users: f32,
    },
    /// Clipped sums with noise, for the rows that were sent alone, as the paper has it (section 4.3;
    /// Ning et al., 2022). **It shows which rows were trained**: the others get no noise, so a
    /// published table, or a row served twice, tells them apart, and ε is infinite there. What it
    /// hides is how a trained row was changed.
    Eana {
        /// η; 1 if not given.
        #[serde(default = "one")]
        learning_rate: f32,
        /// C: the largest norm after clipping.
        clip: f32,
        /// Whether each row's norm is clipped or a user's whole upload's; a row's if not given.
        #[serde(default)]
        clip_per: ClipPer,
        /// σ: the noise's standard deviation over C.
        noise_multiplier: f32,
    },
    /// The mechanism of [`DpFedAvg`](Self::DpFedAvg) under the name that the paper has for it, for
    /// the sum of gradients unless `users` divides it.
    LazyDp {
        /// η; 1 if not given.
        #[serde(default = "one")]
        learning_rate: f32,
        /// C: the largest norm after clipping.
        clip: f32,
        /// Whether each row's norm is clipped or a user's whole upload's; a row's if not given.
        #[serde(default)]
        clip_per: ClipPer,
        /// σ: the noise's standard deviation over C.
        noise_multiplier: f32,
        /// The sum of the gradients is divided by this; 1 if not given.
        #[serde(default = "one")]
        users: f32,
    },
}

/// What the norm that is clipped is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClipPer {
    /// Each row's gradient, as the paper has it. Noise of σ C then hides one row of one user; all n
    /// rows of a user are a change of up to √n C.
    #[default]
    Row,
    /// All rows' gradients of one user together.
    User,
}

fn one() -> f32 {
    1.0
}

fn tenth() -> f32 {
    0.1
}

fn hundredth() -> f32 {
    0.01
}

fn thousandth() -> f32 {
    1e-3
}

fn nine_tenths() -> f32 {
    0.9
}

fn ninety_nine_hundredths() -> f32 {
    0.99
}

impl Default for AggregateSpec {
    fn default() -> Self {
        Self::FedAvg { learning_rate: one() }
    }
}

impl AggregateSpec {
    /// The aggregate.
    ///
    /// # Errors
    ///
    /// [`AggregateError::Setting`]: a number that cannot be: not finite, not positive (σ may be 0),
    /// or a β not in 0..1.
    pub fn build(&self) -> Result<Box<dyn Aggregate>, AggregateError> {
        Ok(match *self {
            Self::FedAvg { learning_rate } => {
                let learning_rate = positive("learning_rate", learning_rate)?;
                Box::new(FedAvg { learning_rate })
            }
            Self::FedAdam { learning_rate, beta1, beta2, tau } => Box::new(Adaptive {
                learning_rate: positive("learning_rate", learning_rate)?,
                tau: positive("tau", tau)?,
                moments: Moments::Adam {
                    beta1: fraction("beta1", beta1)?,
                    beta2: fraction("beta2", beta2)?,
                },
            }),
            Self::FedAdagrad { learning_rate, tau } => Box::new(Adaptive {
                learning_rate: positive("learning_rate", learning_rate)?,
                tau: positive("tau", tau)?,
                moments: Moments::Adagrad,
            }),
            Self::DpFedAvg { learning_rate, clip, clip_per, noise_multiplier, users } => {
                let sum = NoisySum {
                    name: "dp_fed_avg",
                    learning_rate,
                    clip,
                    clip_per,
                    noise_multiplier,
                    users,
                    owes_noise: true,
                };
                noisy(sum)?
            }
            Self::Eana { learning_rate, clip, clip_per, noise_multiplier } => {
                let (name, users, owes_noise) = ("eana", 1.0, false);
                let sum = NoisySum {
                    name,
                    learning_rate,
                    clip,
                    clip_per,
                    noise_multiplier,
                    users,
                    owes_noise,
                };
                noisy(sum)?
            }
            Self::LazyDp { learning_rate, clip, clip_per, noise_multiplier, users } => {
                let sum = NoisySum {
                    name: "lazy_dp",
                    learning_rate,
                    clip,
                    clip_per,
                    noise_multiplier,
                    users,
                    owes_noise: true,
                };
                noisy(sum)?
            }
        })
    }
}

fn noisy(sum: NoisySum) -> Result<Box<dyn Aggregate>, AggregateError> {
    positive("learning_rate", sum.learning_rate)?;
    bounded("clip", sum.clip)?;
    positive("users", sum.users)?;
    let value = sum.noise_multiplier;
    if !value.is_finite() || value < 0.0 {
        let expected = "zero or a positive number";
        return Err(AggregateError::Setting { setting: "noise_multiplier", value, expected });
    }
    Ok(Box::new(sum))
}

fn positive(setting: &'static str, value: f32) -> Result<f32, AggregateError> {
    if value.is_normal() && value > 0.0 {
        return Ok(value);
    }
    Err(AggregateError::Setting { setting, value, expected: "a positive number" })
}

fn fraction(setting: &'static str, value: f32) -> Result<f32, AggregateError> {
    if (0.0..1.0).contains(&value) {
        return Ok(value);
    }
    Err(AggregateError::Setting { setting, value, expected: "0 or more, and less than 1" })
}
