//! A model's architecture: as written down, and checked.

use serde::{Deserialize, Serialize};

use super::Error;
use super::digits::{BASE_MAX, Digits};

/// The widest layer and the most features that are read.
pub const WIDTH_MAX: usize = 1 << 13;
/// The most layers of each of the two perceptrons.
pub const LAYERS_MAX: usize = 16;
/// The most rows of all stored tables together.
pub const SLOTS_MAX: usize = 1 << 24;

/// A DLRM as its `model.toml` says it; [`Dlrm::new`] checks it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct DlrmSpec {
    /// Dense features.
    pub dense: usize,
    /// Outputs of each layer of the bottom perceptron.
    pub bottom: Vec<usize>,
    /// Outputs of each layer of the top perceptron; the last is 1, the logit.
    pub top: Vec<usize>,
    /// Values of an embedding.
    pub dim: usize,
    /// How embeddings meet the bottom perceptron's output.
    #[serde(default)]
    pub interaction: Interaction,
    /// What stands between layers.
    pub activation: Activation,
    /// Whether the bottom perceptron's last layer is followed by the activation too.
    #[serde(default)]
    pub bottom_activates_last: bool,
    /// The base of digit decomposition.
    #[serde(default = "default_base")]
    pub base: u64,
    /// The most rows of a feature whose table stays as it is.
    #[serde(default = "default_threshold")]
    pub threshold: u64,
    /// The sparse features, in the order of the tables.
    #[serde(default)]
    pub features: Vec<FeatureSpec>,
}

fn default_base() -> u64 {
    4
}

fn default_threshold() -> u64 {
    500
}

/// A sparse feature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct FeatureSpec {
    /// Its name.
    pub name: String,
    /// How many values it has: rows before digit decomposition.
    pub rows: u64,
}

/// How embeddings meet the bottom perceptron's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Interaction {
    /// All vectors one after the other, the bottom perceptron's first.
    #[default]
    Concat,
    /// The bottom perceptron's output, then the dot product of each pair of vectors, in the order of
    /// facebook's DLRM: (1,0), (2,0), (2,1), (3,0), ...
    Dot,
}

/// What stands between layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Activation {
    /// x².
    Square,
    /// max(x, 0), under encryption by the composite of degrees 15, 15 and 27.
    Relu,
    /// x / (1 + e^−x), under encryption by a Chebyshev series.
    Silu,
    /// A polynomial whose coefficients come with the weights, layer by layer.
    Polynomial,
}

/// One linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shape {
    /// Inputs.
    pub inputs: usize,
    /// Outputs.
    pub outputs: usize,
    /// Whether the activation follows.
    pub is_activated: bool,
}

/// An architecture that was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Dlrm {
    spec: DlrmSpec,
    digits: Vec<Digits>,
    bottom: Vec<Shape>,
    top: Vec<Shape>,
}

impl Dlrm {
    /// Checks `spec`.
    ///
    /// # Errors
    /// [`Error::Spec`] names the entry.
    pub fn new(spec: DlrmSpec) -> Result<Self, Error> {
        let wrong = |field: &str, why: String| Error::Spec { field: field.into(), why };
        let width = |field: &str, value: usize| match value {
            1..=WIDTH_MAX => Ok(()),
            _ => Err(wrong(field, format!("{value}, possible are 1 to {WIDTH_MAX}"))),
        };
        width("dense", spec.dense)?;
        width("dim", spec.dim)?;
        for (field, layers) in [("bottom", &spec.bottom), ("top", &spec.top)] {
            if layers.is_empty() || layers.len() > LAYERS_MAX {
                let found = layers.len();
                return Err(wrong(
                    field,
                    format!("{found} layers, possible are 1 to {LAYERS_MAX}"),
                ));
            }
            layers.iter().try_for_each(|&outputs| width(field, outputs))?;
        }
        if spec.top.last() != Some(&1) {
            return Err(wrong("top", "the last layer has 1 output, the logit".into()));
        }
        if !(2..=BASE_MAX).contains(&spec.base) {
            return Err(wrong("base", format!("{}, possible are 2 to {BASE_MAX}", spec.base)));
        }
        if spec.features.len() > 1024 {
            return Err(wrong(
                "features",
                format!("{}, possible are 0 to 1024", spec.features.len()),
            ));
        }
        let mut slots = 0usize;
        let mut digits = Vec::new();
        for (index, feature) in spec.features.iter().enumerate() {
            let field = format!("features[{index}]");
            if feature.name.is_empty() || feature.name.len() > 160 {
                return Err(wrong(&field, "its name has 1 to 160 bytes".into()));
            }
            if spec.features[..index].iter().any(|other| other.name == feature.name) {
                return Err(wrong(&field, format!("{:?} is named twice", feature.name)));
            }
            if feature.rows == 0 {
                return Err(wrong(&field, "it has no rows".into()));
            }
            let cut = Digits::new(feature.rows, spec.threshold, spec.base);
            slots = slots.saturating_add(cut.slots());
            digits.push(cut);
        }
        if slots > SLOTS_MAX {
            let why = format!("tables of {slots} rows, at most {SLOTS_MAX}: lower the threshold");
            return Err(wrong("threshold", why));
        }
        let bottom_outputs = *spec.bottom.last().unwrap_or(&0);
        let joined = match spec.interaction {
            Interaction::Concat => bottom_outputs + spec.features.len() * spec.dim,
            Interaction::Dot if bottom_outputs != spec.dim => {
                let why = format!(
                    "its last layer has {bottom_outputs} outputs, dim is {}: dot products need them equal",
                    spec.dim
                );
                return Err(wrong("bottom", why));
            }
            Interaction::Dot => {
                bottom_outputs + spec.features.len() * (spec.features.len() + 1) / 2
            }
        };
        if joined > 4 * WIDTH_MAX {
            let why = format!("{joined} inputs of the top, at most {}", 4 * WIDTH_MAX);
            return Err(wrong("features", why));
        }
        let bottom = shapes(spec.dense, &spec.bottom, spec.bottom_activates_last);
        let top = shapes(joined, &spec.top, false);
        Ok(Self { spec, digits, bottom, top })
    }

    /// Reads and checks a `model.toml`.
    ///
    /// # Errors
    /// [`Error::Toml`], [`Error::Spec`].
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::new(toml::from_str(text)?)
    }

    /// What was checked.
    pub fn spec(&self) -> &DlrmSpec {
        &self.spec
    }

    /// The decomposition of each sparse feature.
    pub fn digits(&self) -> &[Digits] {
        &self.digits
    }

    /// The bottom perceptron's layers.
    pub fn bottom(&self) -> &[Shape] {
        &self.bottom
    }

    /// The top perceptron's layers.
    pub fn top(&self) -> &[Shape] {
        &self.top
    }

    /// Whether dot products are taken: of one vector there are none.
    pub fn is_dot(&self) -> bool {
        self.spec.interaction == Interaction::Dot && !self.spec.features.is_empty()
    }

    /// Rows of all stored tables: slots of the one-hot vectors.
    pub fn onehot_slots(&self) -> usize {
        self.digits.iter().map(Digits::slots).sum()
    }
}

fn shapes(mut inputs: usize, outputs: &[usize], activates_last: bool) -> Vec<Shape> {
    let last = outputs.len() - 1;
    let shapes = outputs.iter().enumerate().map(|(index, &outputs)| {
        let shape = Shape { inputs, outputs, is_activated: index < last || activates_last };
        inputs = outputs;
        shape
    });
    shapes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEART: &str = r#"
        dense = 5
        bottom = [16, 4]
        top = [16, 1]
        dim = 4
        interaction = "concat"
        activation = "square"
        [[features]]
        name = "sex"
        rows = 2
    "#;

    #[test]
    fn reads_a_description() {
        let dlrm = Dlrm::parse(HEART).unwrap();
        assert_eq!(dlrm.top()[0].inputs, 8);
        assert!(!dlrm.bottom()[1].is_activated);
        assert_eq!((dlrm.spec().base, dlrm.onehot_slots()), (4, 2));
    }

    #[test]
    fn refuses_what_cannot_be() {
        let refused = |from: &str, to: &str| {
            let text = HEART.replace(from, to);
            assert_ne!(text, HEART);
            Dlrm::parse(&text).unwrap_err().to_string()
        };
        assert!(refused("top = [16, 1]", "top = [16, 2]").contains("logit"));
        assert!(refused("dense = 5", "dense = 0").contains("dense"));
        assert!(refused("dense = 5", "dense = 5\nbias = 3").contains("bias"));
        assert!(refused("rows = 2", "rows = 0").contains("features[0]"));
        assert!(refused("[16, 4]", "[]").contains("bottom"));
        assert!(refused("dim = 4", "dim = 4\nbase = 1").contains("base"));
        let dot = HEART.replace("concat", "dot").replace("dim = 4", "dim = 8");
        assert!(Dlrm::parse(&dot).unwrap_err().to_string().contains("equal"));
    }
}
