//! Models of the published shape with weights that are made up, to be measured.

use std::path::Path;

use hushtable_table::model::{self as bundle, Feature, Pooling};
use hushtable_table::{DType, Table};
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, TensorView};

use super::price::{self, CALIBRATION};
use super::{Error, SCHEME, SharesPlan};
use crate::dlrm;
use crate::dlrm::spec::{Activation, DlrmSpec, FeatureSpec, Interaction};
use crate::dlrm::weights::Weights;

use super::price::Model;

impl Model {
    /// Criteo's shape, 13-512-256-64-16 and 432-512-256-1 with 26 tables of `rows` rows, ReLUs.
    ///
    /// # Errors
    /// As [`Network::compile`](super::Network::compile).
    pub fn criteo(rows: u64, fraction_bits: u32, seed: u64) -> Result<Self, Error> {
        let spec = criteo([rows; 26]);
        Self::synthetic(spec, fraction_bits, 8, seed)
    }

    /// Writes a bundle of the model with a plan of its name, calibrated on made-up users, at `out`.
    ///
    /// # Errors
    /// [`Error::Dlrm`] for what cannot be written; as [`SharesPlan::calibrate`].
    pub fn write(&self, out: &Path, name: &str) -> Result<(), Error> {
        let (spec, mut weights) = (self.dlrm.spec(), self.weights.clone());
        let mut tables = Vec::with_capacity(spec.features.len());
        let digits = self.dlrm.digits();
        for ((feature, digits), rows) in spec.features.iter().zip(digits).zip(&mut weights.tables) {
            // The row of zeros behind a bag's table is made again from a bundle.
            rows.truncate(digits.slots() * spec.dim);
            let rows_count = digits.slots() as u64;
            let table = Table::from_weight(&feature.name, rows_count, spec.dim, DType::F32, rows);
            tables.push(table.map_err(dlrm::Error::from)?);
        }
        let names = spec.features.iter().map(|it| it.name.as_str());
        let named: Vec<(&str, &Table)> = names.zip(&tables).collect();
        let features = spec.features.iter().enumerate().map(|(table, it)| Feature {
            name: it.name.clone(),
            table,
            pooling: Pooling::Sum,
            max_ids: it.bag,
        });
        let features: Vec<_> = features.collect();
        let dense = out.with_extension("dense");
        let io = |source| dlrm::Error::Io { path: dense.display().to_string(), source };
        std::fs::write(&dense, dense_file(&weights)?).map_err(io)?;
        let written = bundle::write(out, name, &named, &features, Some(&dense));
        std::fs::remove_file(&dense).map_err(io)?;
        written.map_err(dlrm::Error::from)?;
        let samples: Vec<_> = (0..CALIBRATION).map(|it| price::features(&self.dlrm, !it)).collect();
        let borrowed = samples.iter().map(|(dense, indices)| (&dense[..], &indices[..]));
        let fraction_bits = self.network.outline().fraction_bits;
        let value_bits = self.network.tables().first().map_or(8, |table| table.value_bits);
        let plan =
            SharesPlan::calibrate(spec.clone(), &weights, borrowed, fraction_bits, value_bits)?;
        let bundle = bundle::Model::open(out).map_err(dlrm::Error::from)?;
        bundle.write_plan(name, SCHEME, &plan.to_json()).map_err(dlrm::Error::from)?;
        Ok(())
    }
}

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
        relu_degree: None,
        bottom_activates_last: true,
        base: 4,
        threshold: u64::MAX,
        features: features.iter().map(feature).collect(),
    }
}

/// Criteo's shape: 13-512-256-64-16 and 432-512-256-1, with so many rows a table.
pub fn criteo(rows: [u64; 26]) -> DlrmSpec {
    let names: Vec<String> = (1..=rows.len()).map(|number| format!("C{number}")).collect();
    let features: Vec<_> =
        names.iter().zip(rows).map(|(name, rows)| (name.as_str(), rows, 1)).collect();
    described(13, &[512, 256, 64, 16], &[512, 256, 1], &features)
}

/// The perceptrons' weights, as a bundle's dense file has them.
fn dense_file(weights: &Weights) -> Result<Vec<u8>, dlrm::Error> {
    let bytes = |values: &[f64]| values.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect();
    let mut tensors: Vec<(String, Vec<usize>, Vec<u8>)> = Vec::new();
    for (part, layers) in [("bot", &weights.bottom), ("top", &weights.top)] {
        for (index, layer) in layers.iter().enumerate() {
            let name = |what: &str| format!("{part}_l.{}.{what}", 2 * index);
            let shape = vec![layer.outputs, layer.inputs];
            tensors.push((name("weight"), shape, bytes(&layer.matrix)));
            tensors.push((name("bias"), vec![layer.outputs], bytes(&layer.bias)));
        }
    }
    let views = tensors
        .iter()
        .map(|(name, shape, data)| {
            Ok((name.as_str(), TensorView::new(Dtype::F32, shape.clone(), data)?))
        })
        .collect::<Result<Vec<_>, SafeTensorError>>()?;
    Ok(safetensors::serialize(views, None)?)
}
