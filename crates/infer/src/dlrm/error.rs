//! What encrypted recommendation refuses.

use hushtable_rlwe::ckks;
use hushtable_rlwe::ring::EntropyError;

/// Why a model, a plan, features or bytes were refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The arithmetic refused.
    #[error(transparent)]
    Ckks(#[from] ckks::Error),
    /// The core under it refused.
    #[error(transparent)]
    Core(#[from] hushtable_rlwe::Error),
    /// No randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
    /// A model bundle or one of its tables refused.
    #[error(transparent)]
    Table(#[from] hushtable_table::Error),
    /// A file could not be read.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A model's description is no TOML of its form.
    #[error("the model's description: {0}; see docs/infer.md for its entries")]
    Toml(#[from] toml::de::Error),
    /// A model's description says what cannot be.
    #[error("the model's {field}: {why}")]
    Spec {
        /// Which entry.
        field: String,
        /// What is wrong, and what is possible.
        why: String,
    },
    /// Bytes that are no safetensors file.
    #[error("the weights are no safetensors file: {0}")]
    Safetensors(#[from] safetensors::SafeTensorError),
    /// Two tensors of one name.
    #[error(
        "the weights have two tensors named {name:?}, and either could be meant: write each once"
    )]
    RepeatedTensor {
        /// The name.
        name: String,
    },
    /// A tensor that the model needs is not there.
    #[error("the weights have no tensor {name:?} of shape {expected:?}")]
    MissingTensor {
        /// Its name.
        name: String,
        /// Its shape.
        expected: Vec<usize>,
    },
    /// A feature's table is not in the bundle.
    #[error(
        "the feature {feature:?} reads the table {table:?}, which the bundle does not have: say which of its tables a \
         feature reads (table = \"...\" under [[features]]). The description's features: {features}. The bundle's \
         tables: {tables}"
    )]
    NoTable {
        /// The feature's name in the description.
        feature: String,
        /// The table's name that was looked for.
        table: String,
        /// Names of the description's features.
        features: String,
        /// Names of the bundle's tables.
        tables: String,
    },
    /// The model has parts that the description does not, so that it would compute something else.
    #[error(
        "the description has no place for the {what} {names}: without them the model would compute something else; \
         describe them, or build a bundle without them"
    )]
    Unread {
        /// Of what: tables or tensors.
        what: &'static str,
        /// Their names.
        names: String,
    },
    /// A tensor has another shape.
    #[error("tensor {name:?} has shape {found:?}, the model's description needs {expected:?}")]
    TensorShape {
        /// Its name.
        name: String,
        /// The shape there should be.
        expected: Vec<usize>,
        /// The shape there is.
        found: Vec<usize>,
    },
    /// A tensor of a type that is not read.
    #[error("tensor {name:?} is of type {found}; convert it to f32, f64, f16 or bf16")]
    TensorType {
        /// Its name.
        name: String,
        /// Its type.
        found: String,
    },
    /// A tensor holds a number that is not finite or is out of all proportion.
    #[error("tensor {name:?} holds {value} at {index}: weights are finite and below 2^20")]
    TensorValue {
        /// Its name.
        name: String,
        /// Where.
        index: usize,
        /// What.
        value: f64,
    },
    /// No secure set carries the model.
    #[error(
        "the model needs {levels} levels; at 128 bits and {degree} coefficients at most {levels_max} \
         levels of {level_bits} bits fit: {advice}"
    )]
    Depth {
        /// Levels that the circuit takes.
        levels: usize,
        /// The largest ring.
        degree: usize,
        /// Levels that it carries.
        levels_max: usize,
        /// log2 of the scale that the precision asked for needs.
        level_bits: u32,
        /// What to change.
        advice: String,
    },
    /// No plan's keys are as small as asked for.
    #[error(
        "the keys of the smallest plan take {least_bytes} bytes, and at most {max_bytes} are allowed: allow \
         as many, or train a model of fewer levels"
    )]
    Keys {
        /// Bytes of the keys of the plan whose keys are smallest.
        least_bytes: usize,
        /// Bytes that were allowed.
        max_bytes: usize,
    },
    /// No plan's queries are as small as asked for.
    #[error(
        "the smallest query of the model takes {least_bytes} bytes, and at most {max_bytes} are allowed: allow \
         as many, or lower the threshold of its tables"
    )]
    Query {
        /// Bytes of a query of the plan whose queries are smallest.
        least_bytes: usize,
        /// Bytes that were allowed.
        max_bytes: usize,
    },
    /// A model that no layout carries.
    #[error("the model cannot be laid out: {why}")]
    Layout {
        /// What is too large, and what to do.
        why: String,
    },
    /// A measured answer is not the model's.
    #[error("the logit is {found}, the model in the clear has {expected}: nothing was measured")]
    Wrong {
        /// What was opened.
        found: f64,
        /// What it should be.
        expected: f64,
    },
    /// A plan that does not fit itself or the model.
    #[error("the plan is none of this model: {why}; compile the model again")]
    Plan {
        /// What does not fit.
        why: String,
    },
    /// Another number of features than the model has.
    #[error("{found} {what}, expected {expected}")]
    Count {
        /// Of what: dense features, indices, users.
        what: &'static str,
        /// How many there should be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// More users than one query holds, or none.
    #[error("{found} users in one query, possible are 1 to {users_max}; send several queries")]
    Users {
        /// How many there are.
        found: usize,
        /// How many fit.
        users_max: usize,
    },
    /// A dense feature that is no usable number.
    #[error(
        "dense feature {index} of user {user} is {value}: features are finite and at most {max} in \
         absolute value; normalise them as the training did"
    )]
    Feature {
        /// Which user.
        user: usize,
        /// Which feature.
        index: usize,
        /// Its value.
        value: f32,
        /// The largest absolute value.
        max: f32,
    },
    /// An index outside its table.
    #[error("index {index} of user {user} is outside feature {feature:?}: it has {rows} rows")]
    Index {
        /// Which user.
        user: usize,
        /// The feature's name.
        feature: String,
        /// The index.
        index: u64,
        /// How many rows the feature has.
        rows: u64,
    },
    /// An activation got what it was not trained for.
    #[error(
        "{layer}: {value:.4} is outside [-{limit}, {limit}], the range that the activation was made \
         for; train with ranges enforced, or set a wider range"
    )]
    Range {
        /// The layer's name.
        layer: String,
        /// The value.
        value: f64,
        /// The range's end.
        limit: f64,
    },
    /// Terms that are none, or that no client should accept.
    #[error("the server's terms were refused: {why}")]
    Terms {
        /// What is wrong.
        why: String,
    },
    /// Keys, a query or an answer of another length.
    #[error("{what} of {found} bytes, expected {expected}")]
    Bytes {
        /// What they are.
        what: &'static str,
        /// Bytes there should be.
        expected: usize,
        /// Bytes there are.
        found: usize,
    },
    /// Keys, a query or an answer for another plan.
    #[error("{what} made for plan {found}, this is plan {expected}: read the server's terms again")]
    OtherPlan {
        /// What they are.
        what: &'static str,
        /// The plan there should be, in hexadecimal.
        expected: String,
        /// The plan that the bytes name.
        found: String,
    },
    /// An answer that no honest server gives.
    #[error("the answer does not open to a logit: it was damaged, or is no answer to this query")]
    Answer,
}

/// Bytes in hexadecimal, for errors.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
