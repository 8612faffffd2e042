//! Where each file of a model bundle is, relative to the bundle's folder. Nothing else spells these
//! names, so that every part of the house finds the same files.

use std::path::PathBuf;

use crate::within::step;

/// The manifest.
pub const MANIFEST: &str = "model.json";
/// The tensors of the checkpoint that are no tables.
pub const DENSE: &str = "dense.safetensors";
/// The folder of table bundles.
pub const TABLES: &str = "tables";
/// The folder of what is derived from tables and can be made again.
pub const PREPARED: &str = "prepared";
/// How the prepared file of a table for a single server ends.
pub const PREPARED_EXTENSION: &str = "onion";

/// Which rows lie on which shard: derived from the model, and can be made again.
pub const SHARDS: &str = "shards.json";
/// The same for servers that are asked alone, whose shards hold columns.
pub const SHARDS_ONION: &str = "shards.onion.json";

/// The folder of compiled plans, which are derived from the model and can be made again.
pub const PLANS: &str = "plans";
/// What plans are compiled for. The file of a plan ends with its scheme, and names are unique over all.
pub const PLAN_SCHEMES: [&str; 3] = ["ckks", "hybrid", "shares"];

/// The bundle of the table of this name: `tables/NAME`.
pub fn table(name: &str) -> PathBuf {
    [TABLES, &step(name)].iter().collect()
}

/// The file that a single server answers from for the table of this name: `prepared/NAME.onion`.
pub fn prepared(name: &str) -> PathBuf {
    [PREPARED, &step(&format!("{name}.{PREPARED_EXTENSION}"))].iter().collect()
}

/// How the model is computed in private, by the plan of this name and scheme: `plans/NAME.SCHEME.json`.
pub fn plan(name: &str, scheme: &str) -> PathBuf {
    [PLANS, &step(&format!("{name}{}", plan_ending(scheme)))].iter().collect()
}

/// How the file of a compiled plan of a scheme ends.
pub fn plan_ending(scheme: &str) -> String {
    format!(".{scheme}.json")
}
