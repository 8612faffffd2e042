//! What can be wrong with a model bundle, and what to do about it.

use super::places::DENSE;
use super::{FEATURE_COUNT_MAX, IDS_MAX, IDS_SUM_MAX, MODEL_JSON_BYTES_MAX, NAME_BYTES_MAX};
use crate::dtype::DType;
use crate::shape::ShapeError;
use crate::version::Version;

/// What can be wrong with a model bundle.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The checksum does not match the entries.
    #[error(
        "the model manifest's checksum does not match its entries: it was edited or damaged; \
         restore it from a copy or build the model again"
    )]
    Checksum,
    /// The dense file has other bytes than those that were built.
    #[error("{DENSE} is not as it was built; restore that file, or build the model again")]
    DenseContent,
    /// A tensor that is no table has values of a type that the dense file does not keep.
    #[error(
        "tensor {tensor} is of a type that dense.safetensors does not keep; convert it, or leave out \
         all that are no tables with --no-dense"
    )]
    DenseType {
        /// Its name, shape and type.
        tensor: String,
    },
    /// More or fewer features than a model has.
    #[error(
        "a model has 1 to {FEATURE_COUNT_MAX} features, or none beside a dense part, not {count}; \
         split a larger one"
    )]
    FeatureCount {
        /// How many there are.
        count: usize,
    },
    /// Not a model manifest at all.
    #[error("this is no model manifest (its format is not \"hushtable-model\")")]
    Format,
    /// Written by a later hushtable.
    #[error(
        "the model's format version is {found}, the newest known is {newest}; update hushtable"
    )]
    FutureVersion {
        /// What it says.
        found: u64,
        /// What this build reads.
        newest: u64,
    },
    /// Not the bytes that hushtable writes, though they may mean the same.
    #[error(
        "the model manifest is not in the form that hushtable writes, byte for byte; its version is \
         the hash of these bytes, so restore it from a copy or build the model again"
    )]
    Form,
    /// No JSON, or not of the entries that a manifest has.
    #[error("the model manifest is malformed: {source}")]
    Json {
        /// What the parser said.
        source: serde_json::Error,
    },
    /// A table in the folder has another layout than the manifest says.
    #[error(
        "table {table:?} has layout {}, the model's manifest says {}; `hushtable tune MODEL` writes \
         both, and building the model again makes them agree",
        name_layout(*.found), name_layout(*.expected)
    )]
    Layout {
        /// The table.
        table: String,
        /// What the manifest says.
        expected: Option<Version>,
        /// What the table has.
        found: Option<Version>,
    },
    /// A feature's most ids are outside the limits.
    #[error("feature {feature:?} has max_ids {max_ids}; it must be 1 to {IDS_MAX}")]
    MaxIds {
        /// The feature.
        feature: String,
        /// What was given.
        max_ids: u64,
    },
    /// All features' most ids are too many together.
    #[error(
        "the features' max_ids are {sum} together, over {IDS_SUM_MAX} for one inference; lower the \
         largest, or split the model"
    )]
    MaxIdsSum {
        /// Their sum.
        sum: u64,
    },
    /// The dense file is not there.
    #[error(
        "the model has no dense.safetensors, which its manifest names; restore that file or build \
         the model again"
    )]
    MissingDense,
    /// A table's folder is not there.
    #[error(
        "the model has no table {table:?} (no folder tables/{table}), which its manifest names; \
         restore that folder or build the model again"
    )]
    MissingTable {
        /// The table.
        table: String,
    },
    /// A name that cannot be a file's, or cannot be typed.
    #[error(
        "{name:?} cannot name a {what}: 1 to {NAME_BYTES_MAX} of the characters a-z A-Z 0-9 _ - . \
         that begin with a letter, a digit or _; name it in a --spec file"
    )]
    Name {
        /// What was to be named: a model, a table or a feature.
        what: &'static str,
        /// The name as given, cut to 160 characters.
        name: String,
    },
    /// No tensor of the checkpoint is named as embeddings are.
    #[error(
        "no tensor of the checkpoint is named as embeddings are (emb_l.N.weight, \
         *embedding*.weight, *.embeddings.*); {}",
        advise(.tensors, *.tensor_count)
    )]
    NoEmbeddings {
        /// The first tensors that could be tables: name, shape and type.
        tensors: Vec<String>,
        /// How many could be.
        tensor_count: usize,
    },
    /// A pattern that matches nothing.
    #[error("no tensor of the checkpoint matches {pattern:?}; {}", advise(.tensors, *.tensor_count))]
    NoMatch {
        /// The pattern, cut to 160 characters.
        pattern: String,
        /// The first tensors that could be tables: name, shape and type.
        tensors: Vec<String>,
        /// How many could be.
        tensor_count: usize,
    },
    /// A tensor that was chosen is no table.
    #[error(
        "tensor {tensor} was chosen but is no table: a table has two dimensions, rows and values, \
         of f16, bf16, f32 or f64; narrow the pattern"
    )]
    NotATable {
        /// Its name, shape and type.
        tensor: String,
    },
    /// A plan of another scheme.
    #[error("plan {name:?} cannot be of scheme {scheme:?}: {why}")]
    PlanScheme {
        /// The plan's name.
        name: String,
        /// The scheme, cut to 40 characters.
        scheme: String,
        /// What is possible.
        why: String,
    },
    /// A compiled plan that cannot be read.
    #[error(
        "plan {name:?} cannot be used: {why}; compile the model again (`hushtable infer compile`)"
    )]
    PlanForm {
        /// The plan.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A compiled plan of another version of the model.
    #[error(
        "plan {name:?} was compiled of version {found} of the model, which is {expected} now: \
         compile it again (`hushtable infer compile`)"
    )]
    PlanVersion {
        /// The plan.
        name: String,
        /// The model's version.
        expected: Version,
        /// The version that it was compiled of.
        found: Version,
    },
    /// A table's rows are outside the limits of tables.
    #[error("table {table:?}: {source}")]
    Shape {
        /// The table.
        table: String,
        /// Which limit.
        source: ShapeError,
    },
    /// More bytes than any manifest has.
    #[error(
        "the model manifest has over {MODEL_JSON_BYTES_MAX} bytes; it was damaged or is none: \
         restore it from a copy or build the model again"
    )]
    TooLarge,
    /// A table in the folder is another than the manifest says.
    #[error(
        "table {table:?} is not the model's: its version is {found}, the manifest says {expected}; \
         restore that table, or build the model again"
    )]
    Table {
        /// The table.
        table: String,
        /// What the manifest says.
        expected: Version,
        /// What the table has.
        found: Version,
    },
    /// A table in the folder has another shape than the manifest says.
    #[error(
        "table {table:?} has {found}, the model's manifest says {expected}; restore that table, or \
         build the model again"
    )]
    TableShape {
        /// The table.
        table: String,
        /// Rows, dim and dtype that the manifest says.
        expected: String,
        /// Rows, dim and dtype that the table has.
        found: String,
    },
    /// Two tables or two features of one name.
    #[error("two {what}s are named {name:?}; each needs a name of its own")]
    Twice {
        /// What there are two of: table or feature.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// No feature has this name.
    #[error("the model has no feature {feature:?}; it has {}", list(.features, *.feature_count))]
    UnknownFeature {
        /// The name as asked for, cut to 160 characters.
        feature: String,
        /// The first names there are.
        features: Vec<String>,
        /// How many there are.
        feature_count: usize,
    },
    /// No plan has this name.
    #[error(
        "the model has no plan {name:?}; {}",
        match &plans[..] {
            [] => "it has none: compile it (`hushtable infer compile`)".to_owned(),
            names => format!("it has {}", names.join(", ")),
        }
    )]
    UnknownPlan {
        /// The name as asked for.
        name: String,
        /// The names that there are.
        plans: Vec<String>,
    },
    /// No table has this name.
    #[error("the model has no table {table:?}; it has {}", list(.tables, *.table_count))]
    UnknownTable {
        /// The name as asked for, cut to 160 characters.
        table: String,
        /// The first names there are.
        tables: Vec<String>,
        /// How many there are.
        table_count: usize,
    },
    /// No tensor has the name that was asked for.
    #[error("the checkpoint has no tensor {key:?}; {}", advise(.tensors, *.tensor_count))]
    UnknownTensor {
        /// The name as asked for, cut to 160 characters.
        key: String,
        /// The first tensors that could be tables: name, shape and type.
        tensors: Vec<String>,
        /// How many could be.
        tensor_count: usize,
    },
    /// A table that no feature reads.
    #[error("no feature of the model reads table {table:?}; leave it out, or give it a feature")]
    UnusedTable {
        /// The table.
        table: String,
    },
    /// An entry's value is not one that a manifest has.
    #[error("the model manifest's {key} is not {expected}")]
    Value {
        /// Which entry.
        key: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// The dense file has another size than the manifest says.
    #[error(
        "dense.safetensors has {found} bytes, the manifest says {expected}; restore that file, or \
         build the model again"
    )]
    DenseBytes {
        /// What the manifest says.
        expected: u64,
        /// What there is.
        found: u64,
    },
}

/// How many names an error lists.
pub(super) const LISTED_MAX: usize = 8;

pub(super) fn list(names: &[String], count: usize) -> String {
    let more = count.saturating_sub(names.len());
    match more {
        0 => names.join(", "),
        _ => format!("{} and {more} more", names.join(", ")),
    }
}

/// What a user may choose from.
fn advise(tensors: &[String], count: usize) -> String {
    match count {
        0 => "and no tensor could be a table (two dimensions of floats)".to_owned(),
        _ => {
            format!("{count} could be tables, choose with --tables GLOB: {}", list(tensors, count))
        }
    }
}

fn name_layout(layout: Option<Version>) -> String {
    layout.map_or_else(|| "none".to_owned(), |version| version.to_string())
}

/// A shape in words, for errors.
pub(super) fn describe(rows: u64, dim: usize, dtype: DType) -> String {
    format!("{rows} rows of {dim} {dtype} values")
}
