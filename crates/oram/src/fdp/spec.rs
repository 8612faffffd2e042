//! What a file says about the number of rows that a round reads.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The mechanism as written in a file; [`Mechanism::new`](super::Mechanism::new) checks it.
///
/// ```
/// let spec: hushtable_oram::fdp::FdpSpec = serde_json::from_str(
///     r#"{ "epsilon": 1.0, "mechanism": { "exponential": { "shape": { "power": { "exponent": 5 } } } } }"#,
/// )?;
/// assert_eq!(spec.epsilon, 1.0);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FdpSpec {
    /// ε of one round for what [`protects`](Self::protects) names. 0: always read as many rows as
    /// there are requests; infinity (`"inf"`, or TOML's `inf`): read exactly those asked for.
    #[serde(serialize_with = "write_epsilon", deserialize_with = "read_epsilon")]
    pub epsilon: f64,
    /// How the noise is drawn; without a word, as before there was a choice.
    #[serde(default)]
    pub mechanism: MechanismSpec,
    /// Whom ε is promised to.
    #[serde(default)]
    pub protects: Protects,
}

impl FdpSpec {
    /// What a round may cost at most of what [`protects`](Self::protects) names, whatever K: ε, or
    /// less where a mechanism is known to spend less. Reading always as many rows spends nothing;
    /// equation 3 with Y = 1 spends most between a union of one row and one of two, where with
    /// a = e^(-ε/2) its loss is ε/2 + ln(1 + a - a²): 0.714 at ε = 1.
    pub fn spent(&self) -> f64 {
        let MechanismSpec::Exponential { shape } = self.mechanism else { return self.epsilon };
        match shape {
            Shape::Delta { .. } => 0.0,
            Shape::Uniform if self.epsilon > 0.0 && self.epsilon.is_finite() => {
                let values = match self.protects {
                    Protects::Value => 1.0,
                    Protects::Count { values } => f64::from(values.max(1)),
                };
                let half = self.epsilon / values / 2.0;
                let a = (-half).exp();
                // Rounded up, past what this and the sampler's own rounding come to.
                let each = (half + (a - a * a).ln_1p()) * (1.0 + 1e-9);
                self.epsilon.min(values * each)
            }
            _ => self.epsilon,
        }
    }
}

impl Default for FdpSpec {
    fn default() -> Self {
        Self { epsilon: 1.0, mechanism: MechanismSpec::default(), protects: Protects::default() }
    }
}

/// How the noise is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum MechanismSpec {
    /// Two-sided geometric noise, clamped to 1..=K: spends all of ε.
    #[default]
    Geometric,
    /// Two-sided geometric noise about `by` rows more than were asked for, clamped to `least`..=K:
    /// spends all of ε, and loses fewer rows than [`Geometric`](Self::Geometric) for more dummies.
    /// With r = e^-ε, a union of u > `least` rows loses
    /// r^`by` · r / (1 - r²) · (1 - r^(u - `least`)) of them on average, a smaller one none.
    Shifted {
        /// Rows that the noise is moved up by; at most K count.
        by: u64,
        /// The fewest rows ever read, 1 or more; at most K count.
        least: u64,
    },
    /// Equation 3 of the paper (section 3.3), an exponential mechanism: spends about half of ε.
    Exponential {
        /// The weights Y.
        shape: Shape,
    },
}

/// The weights Y_i of equation 3, for i of 1..=K.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Shape {
    /// Y_i = 1.
    Uniform,
    /// Y_i = 1 from `low` to `high`, both included, and 0 elsewhere.
    Square {
        /// The fewest rows ever read.
        low: u64,
        /// The most rows ever read.
        high: u64,
    },
    /// Y_i = i^exponent: losses are rarer, dummies more frequent.
    Power {
        /// 5 in the paper's figure.
        exponent: f64,
    },
    /// Always `at` rows.
    Delta {
        /// K where not given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<u64>,
    },
}

/// What two rounds may differ in and yet look alike up to e^ε (definition 3.2, and section 3.1 on
/// hiding several values).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Protects {
    /// One value of one user.
    #[default]
    Value,
    /// All values of one user, and so how many there are: ε is divided by the most a user may have.
    Count {
        /// The most values that a user may have; every user is padded to it.
        values: u32,
    },
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a number, or \"inf\" for reading exactly the rows asked for")]
enum Epsilon {
    Number(f64),
    Word(Word),
}

#[derive(Deserialize)]
enum Word {
    #[serde(rename = "inf", alias = "infinity")]
    Infinity,
}

fn read_epsilon<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(match Epsilon::deserialize(from)? {
        Epsilon::Number(number) => number,
        Epsilon::Word(Word::Infinity) => f64::INFINITY,
    })
}

/// JSON has no infinity, and would write null for it.
fn write_epsilon<S: Serializer>(epsilon: &f64, to: S) -> Result<S::Ok, S::Error> {
    if *epsilon == f64::INFINITY { to.serialize_str("inf") } else { to.serialize_f64(*epsilon) }
}

#[cfg(test)]
mod tests {
    use super::{FdpSpec, MechanismSpec, Protects, Shape};

    #[test]
    fn reads_what_it_writes() {
        let shapes = [
            Shape::Uniform,
            Shape::Square { low: 25, high: 100 },
            Shape::Power { exponent: 5.0 },
            Shape::Delta { at: None },
            Shape::Delta { at: Some(7) },
        ];
        let shifted = MechanismSpec::Shifted { by: 47, least: 100 };
        let mut mechanisms = vec![MechanismSpec::Geometric, shifted];
        mechanisms.extend(shapes.map(|shape| MechanismSpec::Exponential { shape }));
        for mechanism in mechanisms {
            for epsilon in [0.0, 0.5, f64::INFINITY] {
                for protects in [Protects::Value, Protects::Count { values: 100 }] {
                    let spec = FdpSpec { epsilon, mechanism, protects };
                    let json = serde_json::to_string(&spec).expect("JSON");
                    assert_eq!(serde_json::from_str::<FdpSpec>(&json).expect(&json), spec);
                }
            }
        }
    }

    #[test]
    fn reads_toml() {
        let spec: FdpSpec = toml::from_str(
            "epsilon = inf\nprotects.count.values = 100\n\
             [mechanism.exponential.shape.square]\nlow = 2\nhigh = 9\n",
        )
        .expect("TOML");
        assert_eq!(spec.epsilon, f64::INFINITY);
        assert_eq!(spec.protects, Protects::Count { values: 100 });
        let shape = Shape::Square { low: 2, high: 9 };
        assert_eq!(spec.mechanism, MechanismSpec::Exponential { shape });
        let plain: FdpSpec = toml::from_str("epsilon = 1").expect("a whole number");
        assert_eq!(plain, FdpSpec::default());
    }

    /// Folders were written by versions with another default, and one of them wrote no mechanism
    /// where none was given: what they hide, and what they lose, stays what it was.
    #[test]
    fn what_files_say_does_not_change_with_the_default() {
        for text in [r#"{"epsilon": 1}"#, r#"{"epsilon": 1, "mechanism": "geometric"}"#] {
            let spec: FdpSpec = serde_json::from_str(text).expect(text);
            assert_eq!(spec.mechanism, MechanismSpec::Geometric, "{text}");
            let again = serde_json::to_string(&spec).expect("JSON");
            assert!(again.contains(r#""mechanism":"geometric""#), "{again}");
        }
        let text = r#"{"epsilon": 1, "mechanism": {"shifted": {"by": 47}}}"#;
        serde_json::from_str::<FdpSpec>(text).expect_err("a shift that names no least");
    }

    #[test]
    fn says_what_epsilon_may_be() {
        let error = serde_json::from_str::<FdpSpec>(r#"{"epsilon": "lots"}"#).expect_err("no");
        assert!(error.to_string().contains("\"inf\""), "{error}");
        serde_json::from_str::<FdpSpec>(r#"{"epsilon": 1, "epsilom": 2}"#).expect_err("a typo");
        serde_json::from_str::<FdpSpec>("{}").expect_err("no epsilon");
    }
}
