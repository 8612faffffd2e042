//! A model's architecture: as written down, and checked.

use serde::{Deserialize, Serialize};

use super::Error;
use super::digits::{BASE_MAX, Digits};

/// The widest layer and the most features that are read.
pub const WIDTH_MAX: usize = 1 << 13;
/// The most layers of each of the two perceptrons.
pub const LAYERS_MAX: usize = 16;
/// Degrees of the one polynomial that stands for ReLU.
pub const RELU_DEGREES: [usize; 3] = [31, 63, 127];
/// The most ids of one feature of a user.
pub const BAG_MAX: usize = 1 << 12;
/// What stands for no id where a user has fewer than a feature's bag.
pub const ABSENT: u64 = u64::MAX;
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
    /// The degree of the one polynomial that the model was trained with in ReLU's place; `None` for ReLU itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relu_degree: Option<usize>,
    /// Whether the bottom perceptron's last layer is followed by the activation too.
    #[serde(default)]
    pub bottom_activates_last: bool,
    /// The base of digit decomposition.
    #[serde(default = "default_base")]
    pub base: u64,
    /// The most rows of a feature whose table stays as it is.
    #[serde(default = "default_threshold")]
    pub threshold: u64,
    /// The sparse features, in the order of a user's indices.
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
    /// The bundle's table that it reads; `None` for that of the bundle's feature of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<String>,
    /// How many ids of it a user has at most, a history: their rows are summed, and those that are
    /// [`ABSENT`] are rows of zeros.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub bag: usize,
}

fn one() -> usize {
    1
}

fn is_one(bag: &usize) -> bool {
    *bag == 1
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
    /// max(x, 0), under encryption by the composite of degrees 15, 15 and 27; or the one polynomial that
    /// [`DlrmSpec::relu_degree`] says, everywhere.
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
        if let Some(degree) = spec.relu_degree {
            if spec.activation != Activation::Relu {
                let found = format!("{:?}", spec.activation).to_lowercase();
                let why = format!("{degree}, but its activation is {found}: only relu has one");
                return Err(wrong("relu_degree", why));
            }
            if !RELU_DEGREES.contains(&degree) {
                let why =
                    format!("{degree}, possible are 31, 63 and 127, and none for ReLU itself");
                return Err(wrong("relu_degree", why));
            }
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
            if !(1..=BAG_MAX).contains(&feature.bag) {
                let why = format!("a bag of {}, possible are 1 to {BAG_MAX}", feature.bag);
                return Err(wrong(&field, why));
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

    /// Indices of one user: as many as the bags of all features have room for.
    pub fn indices(&self) -> usize {
        self.spec.features.iter().map(|feature| feature.bag).sum()
    }

    /// The stored rows that a user's indices mean, by feature, those of a bag one after the other. What is
    /// [`ABSENT`] means, as often as a row has digits, the row after the table's last: one of zeros.
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::Index`].
    pub fn places(&self, indices: &[u64]) -> Result<Vec<Vec<usize>>, Error> {
        if indices.len() != self.indices() {
            let (expected, found) = (self.indices(), indices.len());
            return Err(Error::Count { what: "indices", expected, found });
        }
        let mut rest = indices;
        let of_feature = |(feature, digits): (&FeatureSpec, &Digits)| {
            let (bag, after) = rest.split_at(feature.bag);
            rest = after;
            let mut places = Vec::with_capacity(bag.len() * digits.count());
            for &index in bag {
                if index == ABSENT && feature.bag > 1 {
                    places.extend(std::iter::repeat_n(digits.slots(), digits.count()));
                } else if index < digits.rows() {
                    places.extend(digits.places(index));
                } else {
                    let (feature, rows) = (feature.name.clone(), digits.rows());
                    return Err(Error::Index { user: 0, feature, index, rows });
                }
            }
            Ok(places)
        };
        self.spec.features.iter().zip(&self.digits).map(of_feature).collect()
    }

    /// That no feature has a bag, for what looks up one row a feature.
    pub(super) fn check_single(&self) -> Result<(), Error> {
        let bag = |feature: &FeatureSpec| feature.bag != 1;
        match self.spec.features.iter().position(bag) {
            None => Ok(()),
            Some(index) => {
                let FeatureSpec { name, bag, .. } = &self.spec.features[index];
                let why = format!(
                    "{name:?} has a bag of {bag}: encrypted features have one id each; bags are for predictions \
                     on shares"
                );
                Err(Error::Spec { field: format!("features[{index}]"), why })
            }
        }
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
        // ReLU itself, as files from before it had a degree mean it and are written.
        let text = HEART.replace("square", "relu");
        let relu = Dlrm::parse(&text).unwrap();
        assert_eq!(relu.spec().relu_degree, None);
        assert!(!serde_json::to_string(relu.spec()).unwrap().contains("relu_degree"));
        let trained = Dlrm::parse(&format!("relu_degree = 63\n{text}")).unwrap();
        assert_eq!(trained.spec().relu_degree, Some(63));
    }

    #[test]
    fn a_bag_s_rows_are_named_and_absent_ids_are_rows_of_zeros() {
        let text = HEART.replace("rows = 2", "rows = 20\nbag = 3");
        let dlrm = Dlrm::parse(&format!("threshold = 5\n{text}")).unwrap();
        assert_eq!((dlrm.indices(), dlrm.digits()[0].count(), dlrm.onehot_slots()), (3, 3, 12));
        let places = dlrm.places(&[6, ABSENT, 0]).unwrap();
        assert_eq!(places, [[2, 5, 8, 12, 12, 12, 0, 4, 8]]);
        assert!(matches!(dlrm.places(&[6, 1]), Err(Error::Count { expected: 3, .. })));
        assert!(matches!(dlrm.places(&[6, 20, 1]), Err(Error::Index { index: 20, .. })));
        // A feature of one id is always there.
        let single = Dlrm::parse(HEART).unwrap();
        assert!(matches!(single.places(&[ABSENT]), Err(Error::Index { .. })));
        // Descriptions without bags are written as they were.
        assert!(!serde_json::to_string(single.spec()).unwrap().contains("bag"));
        assert!(serde_json::to_string(dlrm.spec()).unwrap().contains("\"bag\":3"));
        assert!(
            matches!(dlrm.check_single(), Err(Error::Spec { field, .. }) if field == "features[0]")
        );
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
        assert!(refused("rows = 2", "rows = 2\nbag = 0").contains("features[0]"));
        assert!(refused("rows = 2", "rows = 2\nbag = 5000").contains("4096"));
        assert!(refused("[16, 4]", "[]").contains("bottom"));
        assert!(refused("dim = 4", "dim = 4\nbase = 1").contains("base"));
        assert!(refused("dim = 4", "dim = 4\nrelu_degree = 63").contains("is square"));
        let own = refused("\"square\"", "\"relu\"\nrelu_degree = 30");
        assert!(own.contains("31, 63 and 127"), "{own}");
        let dot = HEART.replace("concat", "dot").replace("dim = 4", "dim = 8");
        assert!(Dlrm::parse(&dot).unwrap_err().to_string().contains("equal"));
    }
}
