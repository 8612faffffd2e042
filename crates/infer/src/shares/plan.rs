//! The plan of predictions on shares: what a model's servers compile its weights by.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::calibrate::{BOTTOM, LOGIT, PRODUCTS};
use super::dense::check_dense;
use super::network::check_numbers;
use super::{Error, Network, Ranges};
use crate::dlrm::weights::Affine;
use crate::dlrm::{Dlrm, DlrmSpec, Weights};

/// What plans of predictions on shares are called in a model's bundle.
pub const SCHEME: &str = "shares";

/// Everything about predictions on shares of a model but its weights.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct SharesPlan {
    /// The model's architecture.
    pub model: DlrmSpec,
    /// Bits after the point of activations: 4 to 20.
    pub fraction_bits: u32,
    /// Bits of a row's value: 8 or 16.
    pub value_bits: u32,
    /// How large each layer's values become.
    pub ranges: Ranges,
}

impl SharesPlan {
    /// The plan of a model whose layers reach what they reach for `samples` of dense features and indices.
    ///
    /// # Errors
    /// [`Error::Dlrm`] for a spec or a sample that is wrong, [`Error::Unsupported`] for a model or bits that
    /// shares do not have, [`Error::Weights`] for weights that are not the spec's, [`Error::Uncalibrated`]
    /// without samples, [`Error::Feature`] and [`Error::Plan`] for what is or becomes no number. Whether the layers fit, [`network`](Self::network) says.
    pub fn calibrate<'a>(
        model: DlrmSpec,
        weights: &Weights,
        samples: impl IntoIterator<Item = (&'a [f64], &'a [u64])>,
        fraction_bits: u32,
        value_bits: u32,
    ) -> Result<Self, Error> {
        let dlrm = Dlrm::new(model)?;
        check_numbers(&dlrm, fraction_bits, value_bits)?;
        check_weights(&dlrm, weights)?;
        let samples: Vec<_> = samples.into_iter().collect();
        for (user, (dense, _)) in samples.iter().enumerate() {
            check_dense(dense, fraction_bits, user)?;
        }
        let mut ranges = Ranges::of(&dlrm, weights, samples)?;
        // Numbers that come back from text as they were, and take the bits that they took.
        ranges.0.values_mut().for_each(|range| *range = (*range * 16.0).ceil() / 16.0);
        let plan = Self { model: dlrm.spec().clone(), fraction_bits, value_bits, ranges };
        plan.check_ranges(&dlrm)?;
        Ok(plan)
    }

    /// Reads and checks what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// [`Error::Plan`] names the entry; [`Error::Dlrm`], [`Error::Unsupported`] and [`Error::Uncalibrated`] as
    /// [`calibrate`](Self::calibrate).
    pub fn parse(json: &str) -> Result<Self, Error> {
        let file: PlanFile = serde_json::from_str(json).map_err(wrong("text"))?;
        if file.format != FORMAT {
            let why = format!("{}, this build reads {FORMAT}", file.format);
            return Err(Error::Plan { field: "format".into(), why });
        }
        let mut ranges = BTreeMap::new();
        for (layer, range) in file.ranges {
            let Some(number) = range.as_f64() else {
                let why = format!("{range}, but must be a number");
                return Err(Error::Plan { field: range_of(&layer), why });
            };
            ranges.insert(layer, number);
        }
        let plan = Self {
            model: serde_json::from_value(file.model).map_err(wrong("model"))?,
            fraction_bits: serde_json::from_value(file.fraction_bits)
                .map_err(wrong("fraction_bits"))?,
            value_bits: serde_json::from_value(file.value_bits).map_err(wrong("value_bits"))?,
            ranges: Ranges(ranges),
        };
        plan.dlrm()?;
        Ok(plan)
    }

    /// The plan as text, the same for the same plan.
    pub fn to_json(&self) -> String {
        let Self { ref model, fraction_bits, value_bits, ref ranges } = *self;
        let format = FORMAT;
        let text = PlanText { format, model, fraction_bits, value_bits, ranges };
        serde_json::to_string_pretty(&text).unwrap_or_default()
    }

    /// The architecture, checked with all else.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn dlrm(&self) -> Result<Dlrm, Error> {
        let dlrm = Dlrm::new(self.model.clone())?;
        check_numbers(&dlrm, self.fraction_bits, self.value_bits)?;
        self.check_ranges(&dlrm)?;
        Ok(dlrm)
    }

    /// The model as its servers compute it.
    ///
    /// # Errors
    /// [`Error::Weights`] for weights of another model; [`Error::Range`] names a layer whose sums do not fit;
    /// else as [`parse`](Self::parse).
    pub fn network(&self, weights: &Weights) -> Result<Network, Error> {
        let dlrm = self.dlrm()?;
        check_weights(&dlrm, weights)?;
        Network::compile(&dlrm, weights, &self.ranges, self.fraction_bits, self.value_bits)
    }

    /// A range for each layer that has one, and for nothing else.
    fn check_ranges(&self, dlrm: &Dlrm) -> Result<(), Error> {
        let activated = |part: &'static str, shapes: &[crate::dlrm::spec::Shape]| {
            let activated = shapes.iter().enumerate().filter(|(_, shape)| shape.is_activated);
            activated.map(|(index, _)| format!("{part} {index}")).collect::<Vec<_>>()
        };
        let mut needed = activated("bottom", dlrm.bottom());
        needed.extend(activated("top", dlrm.top()));
        needed.extend([BOTTOM.to_owned(), LOGIT.to_owned()]);
        if dlrm.is_dot() {
            needed.push(PRODUCTS.to_owned());
        }
        for (layer, &range) in &self.ranges.0 {
            let refuse = |why: String| Err(Error::Plan { field: range_of(layer), why });
            if layer != PRODUCTS && !needed.contains(layer) {
                return refuse(format!("the model's layers are {}", needed.join(", ")));
            }
            if !range.is_finite() || range < 0.0 {
                return refuse(format!("{range}, but must be a number and 0 or more"));
            }
        }
        needed.iter().try_for_each(|layer| self.ranges.range(layer).map(|_| ()))
    }
}

/// The plan as it is written.
#[derive(Serialize)]
struct PlanText<'a> {
    format: u32,
    model: &'a DlrmSpec,
    fraction_bits: u32,
    value_bits: u32,
    ranges: &'a Ranges,
}

/// The same as it is read: entry by entry, so that an error names the one.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    format: u32,
    model: Value,
    fraction_bits: Value,
    value_bits: Value,
    ranges: BTreeMap<String, Value>,
}

fn range_of(layer: &str) -> String {
    format!("range of {layer:?}")
}

fn wrong(field: &str) -> impl Fn(serde_json::Error) -> Error + use<> {
    let field = field.to_owned();
    move |error| Error::Plan { field: field.clone(), why: error.to_string() }
}

/// That weights have the model's shapes.
fn check_weights(dlrm: &Dlrm, weights: &Weights) -> Result<(), Error> {
    let refuse =
        |what: String, expected: usize, found: usize| Err(Error::Weights { what, expected, found });
    for (part, shapes, layers) in
        [("bottom", dlrm.bottom(), &weights.bottom), ("top", dlrm.top(), &weights.top)]
    {
        if layers.len() != shapes.len() {
            return refuse(format!("{part} layers"), shapes.len(), layers.len());
        }
        for (index, (shape, layer)) in shapes.iter().zip(layers).enumerate() {
            let Affine { inputs, outputs, .. } = *layer;
            if inputs != shape.inputs {
                return refuse(format!("inputs of {part} {index}"), shape.inputs, inputs);
            }
            if outputs != shape.outputs {
                return refuse(format!("outputs of {part} {index}"), shape.outputs, outputs);
            }
        }
    }
    if weights.tables.len() != dlrm.digits().len() {
        return refuse("tables".into(), dlrm.digits().len(), weights.tables.len());
    }
    for ((feature, digits), table) in
        dlrm.spec().features.iter().zip(dlrm.digits()).zip(&weights.tables)
    {
        let expected = digits.slots() * dlrm.spec().dim;
        if table.len() != expected {
            return refuse(format!("values of table {:?}", feature.name), expected, table.len());
        }
    }
    Ok(())
}

const FORMAT: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dlrm::reference::forward;
    use crate::dlrm::spec::Interaction;
    use crate::shares::bench::described;
    use crate::shares::price::{Model, features};
    use crate::shares::reference;

    fn spec(interaction: Interaction) -> DlrmSpec {
        let features = [("smokes", 2, 1), ("pain", 6, 1)];
        let spec = described(5, &[16, 4], &[16, 1], &features);
        DlrmSpec { interaction, bottom_activates_last: false, ..spec }
    }

    fn calibrated(interaction: Interaction) -> (SharesPlan, Model) {
        let model = Model::synthetic(spec(interaction), 12, 8, 5).unwrap();
        let samples: Vec<_> = (0..30).map(|it| features(&model.dlrm, it)).collect();
        let borrowed = samples.iter().map(|(dense, indices)| (&dense[..], &indices[..]));
        let plan =
            SharesPlan::calibrate(spec(interaction), &model.weights, borrowed, 12, 8).unwrap();
        (plan, model)
    }

    #[test]
    fn a_plan_comes_back_from_its_text_and_compiles_to_the_same() {
        for interaction in [Interaction::Concat, Interaction::Dot] {
            let (plan, model) = calibrated(interaction);
            let text = plan.to_json();
            let read = SharesPlan::parse(&text).unwrap();
            assert_eq!(read, plan);
            assert_eq!(read.to_json(), text);
            let network = read.network(&model.weights).unwrap();
            assert_eq!(network, plan.network(&model.weights).unwrap());
            assert_eq!(network.outline().fraction_bits, 12);
            let samples = [features(&model.dlrm, 0), features(&model.dlrm, 1)];
            let borrowed = samples.iter().map(|(dense, indices)| (&dense[..], &indices[..]));
            let error = reference::largest_error(&network, &model.dlrm, &model.weights, borrowed);
            let error = error.unwrap();
            assert!(error > 0.0 && error < 0.01, "{error}");
            let reached = forward(&model.dlrm, &model.weights, &[1.0; 5], &[0, 0]).unwrap().logit;
            assert!(reached.abs() < 4.0 * plan.ranges.range(LOGIT).unwrap());
        }
    }

    #[test]
    fn text_that_is_no_plan_is_refused_by_entry() {
        let text = calibrated(Interaction::Dot).0.to_json();
        let refused = |from: &str, to: &str| {
            let changed = text.replacen(from, to, 1);
            assert_ne!(changed, text, "{from}");
            SharesPlan::parse(&changed).unwrap_err()
        };
        let entry = |from: &str, to: &str, named: &str| {
            let error = refused(from, to);
            assert!(matches!(&error, Error::Plan { field, .. } if field == named), "{error}");
            error.to_string()
        };
        entry("\"format\": 1", "\"format\": 2", "format");
        assert!(entry("{", "{\"more\": 1, ", "text").contains("more"));
        assert!(entry("\"value_bits\"", "\"value\"", "text").contains("value"));
        entry("\"fraction_bits\": 12", "\"fraction_bits\": -1", "fraction_bits");
        entry("\"value_bits\": 8", "\"value_bits\": \"8\"", "value_bits");
        entry("\"dense\": 5", "\"dense\": \"five\"", "model");
        entry("\"bottom 0\": ", "\"bottom 0\": -", "range of \"bottom 0\"");
        entry("\"bottom 0\": ", "\"bottom 0\": null, \"bottom 9\": ", "range of \"bottom 0\"");
        entry("\"bottom 0\": ", "\"bottom 0\": 1.5, \"bottom 9\": ", "range of \"bottom 9\"");
        entry("\"bottom 0\": ", "\"bottom 0\": 1e999, \"x\": ", "text");
        assert!(matches!(
            refused("\"fraction_bits\": 12", "\"fraction_bits\": 3"),
            Error::Unsupported { field: "bits after the point", .. }
        ));
        assert!(matches!(
            refused("\"value_bits\": 8", "\"value_bits\": 9"),
            Error::Unsupported { field: "bits of a row's value", .. }
        ));
        assert!(matches!(
            refused("\"relu\"", "\"square\""),
            Error::Unsupported { field: "activation", .. }
        ));
        assert!(matches!(refused("\"dim\": 4", "\"dim\": 0"), Error::Dlrm(_)));
        for cut in 0..text.len() {
            SharesPlan::parse(&text[..cut]).unwrap_err();
        }
        for layer in ["bottom 0", "top 0", LOGIT, BOTTOM, PRODUCTS] {
            let mut plan = SharesPlan::parse(&text).unwrap();
            plan.ranges.0.remove(layer);
            let error = SharesPlan::parse(&plan.to_json()).unwrap_err();
            assert!(
                matches!(&error, Error::Uncalibrated { layer: named } if named == layer),
                "{error}"
            );
            plan.ranges.0.insert(layer.into(), f64::NAN);
            assert!(matches!(plan.dlrm(), Err(Error::Plan { .. })));
            SharesPlan::parse(&plan.to_json()).unwrap_err();
        }
    }

    #[test]
    fn a_model_that_is_not_the_plans_is_refused() {
        let (plan, model) = calibrated(Interaction::Concat);
        let weights = &model.weights;
        let refused = |plan: &SharesPlan| plan.network(weights).unwrap_err();
        let mut other = plan.clone();
        other.model.features[1].rows = 7;
        assert!(matches!(refused(&other), Error::Weights { expected: 28, found: 24, .. }));
        other.model.features.pop();
        assert!(matches!(refused(&other), Error::Weights { .. }));
        let mut other = plan.clone();
        other.model.bottom[0] = 8;
        assert!(matches!(refused(&other), Error::Weights { expected: 8, found: 16, .. }));
        // A layer that grows too large is named when the model is compiled.
        let mut other = plan.clone();
        other.ranges.0.insert("top 0".into(), 1e6);
        assert!(matches!(refused(&other), Error::Range { layer, .. } if layer == "top 0"));
        let none = SharesPlan::calibrate(plan.model.clone(), weights, [], 12, 8).unwrap_err();
        assert!(matches!(none, Error::Uncalibrated { .. }), "{none}");
        let dense = [0.0; 5];
        for bad in [f64::INFINITY, f64::NAN, -4096.0] {
            let (good, bad) = ([4095.0; 5], [0.0, 0.0, bad, 0.0, bad]);
            let outside = [&good[..], &bad, &good].map(|dense| (dense, &[1, 0][..]));
            let model = plan.model.clone();
            let error = SharesPlan::calibrate(model, weights, outside, 12, 8).unwrap_err();
            let is_named = matches!(error, Error::Feature { user: 1, index: 2, limit: 4096.0, .. });
            assert!(is_named, "{error}");
        }
        let outside = [(&dense[..], &[2, 0][..])];
        let error = SharesPlan::calibrate(plan.model, weights, outside, 12, 8).unwrap_err();
        assert!(matches!(error, Error::Dlrm(_)), "{error}");
    }
}
