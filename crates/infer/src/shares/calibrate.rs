//! How large the values of each layer become.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Error;
use crate::dlrm::reference::forward;
use crate::dlrm::{Dlrm, Weights};

/// The largest absolute value of each layer's outputs, by its name: `bottom 0`, `top 1`, ..., `bottom`,
/// `products`, `logit`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ranges(pub(super) BTreeMap<String, f64>);

impl Ranges {
    /// Runs the model in the clear on samples of dense features and indices.
    ///
    /// # Errors
    /// [`Error::Dlrm`] for a sample that is none of the model's.
    pub fn of<'a>(
        dlrm: &Dlrm,
        weights: &Weights,
        samples: impl IntoIterator<Item = (&'a [f64], &'a [u64])>,
    ) -> Result<Self, Error> {
        let mut ranges = BTreeMap::<String, f64>::new();
        let mut reach = |layer: String, value: f64| {
            let range = ranges.entry(layer).or_default();
            *range = range.max(value.abs());
        };
        for (dense, indices) in samples {
            let passed = forward(dlrm, weights, dense, indices)?;
            for seen in passed.seen {
                let largest = seen.inputs.iter().fold(0_f64, |most, x| most.max(x.abs()));
                reach(seen.layer, largest);
            }
            let (bottom, products) =
                passed.joined.split_at(dlrm.spec().dim.min(passed.joined.len()));
            bottom.iter().for_each(|x| reach(BOTTOM.into(), *x));
            products.iter().for_each(|x| reach(PRODUCTS.into(), *x));
            reach(LOGIT.into(), passed.logit);
        }
        Ok(Self(ranges))
    }

    /// The range of a layer.
    pub(super) fn range(&self, layer: &str) -> Result<f64, Error> {
        self.0.get(layer).copied().ok_or_else(|| Error::Uncalibrated { layer: layer.into() })
    }
}

pub(super) const LOGIT: &str = "logit";
/// The bottom perceptron's output, as it meets the rows.
pub(super) const BOTTOM: &str = "bottom";
/// What comes of that, beside the output itself.
pub(super) const PRODUCTS: &str = "products";
