//! Models that tests compute on shares: unit tests take them from here too.

use hushtable_infer::dlrm::DlrmSpec;
use hushtable_infer::dlrm::spec::{Activation, FeatureSpec, Interaction};

/// A model of ReLU layers: its features' names, rows and bags; embeddings are as wide as what the bottom gives.
pub fn described(
    dense: usize,
    bottom: &[usize],
    top: &[usize],
    features: &[(&str, u64, usize)],
) -> DlrmSpec {
    let feature = |&(name, rows, bag): &(&str, u64, usize)| FeatureSpec {
        name: name.into(),
        rows,
        table: None,
        bag,
    };
    DlrmSpec {
        dense,
        bottom: bottom.to_vec(),
        top: top.to_vec(),
        dim: bottom.last().copied().unwrap_or_default(),
        interaction: Interaction::Concat,
        activation: Activation::Relu,
        bottom_activates_last: true,
        base: 4,
        threshold: u64::MAX,
        features: features.iter().map(feature).collect(),
    }
}

/// Criteo's shape: 13-512-256-64-16 and 432-512-256-1, with 26 tables of so many rows.
pub fn criteo(rows: u64) -> DlrmSpec {
    let names: Vec<String> = (1..=26).map(|number| format!("C{number}")).collect();
    let features: Vec<_> = names.iter().map(|name| (name.as_str(), rows, 1)).collect();
    described(13, &[512, 256, 64, 16], &[512, 256, 1], &features)
}
