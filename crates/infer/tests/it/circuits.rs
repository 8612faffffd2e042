//! Circuits in the clear and under noise alone, against the reference.

use hushtable_infer::dlrm::cost::CostTable;
use hushtable_infer::dlrm::reference::{forward, forward_relu};
use hushtable_infer::dlrm::simulate::{Mode, precision_bits, predict};
use hushtable_infer::dlrm::spec::{Activation, DlrmSpec, Interaction};
use hushtable_infer::dlrm::{Dlrm, Goal, Plan, Weights, plan};
use hushtable_rlwe::largest;
use hushtable_rlwe::ring::Platform;

use crate::models::{features, logits, model, spec, tensors};

fn planned(dlrm: &Dlrm, weights: &Weights, goal: Goal) -> Plan {
    plan(dlrm, weights, goal, &CostTable::shipped().unwrap()).unwrap()
}

/// The largest distance to the reference, of 5 users.
fn distance(dlrm: &Dlrm, weights: &Weights, goal: Goal, mode: Mode) -> f64 {
    let plan = planned(dlrm, weights, goal);
    let count = plan.users.min(5);
    let (dense, indices) = features(dlrm, count, 3);
    let found = predict(&plan, weights, Platform::detect(), mode, &dense, &indices).unwrap();
    let expected = logits(dlrm, weights, &dense, &indices);
    assert_eq!(found.len(), count);
    largest(found.iter().zip(&expected).map(|(x, y)| x - y))
}

#[test]
fn exact_circuits_are_the_model() {
    for interaction in [Interaction::Concat, Interaction::Dot] {
        for activates_last in [false, true] {
            for activation in [Activation::Square, Activation::Polynomial] {
                for (lift, users) in [(true, 1), (false, 1), (true, 8)] {
                    let own = DlrmSpec {
                        bottom_activates_last: activates_last,
                        ..spec(activation, interaction)
                    };
                    let (dlrm, weights) = model(own, 1);
                    let goal = Goal { lift, users, ..Goal::default() };
                    let found = distance(&dlrm, &weights, goal, Mode::Clear);
                    assert!(found < 1e-6, "{interaction:?} {activation:?} {goal:?}: {found}");
                }
            }
        }
    }
}

#[test]
fn noise_alone_keeps_ten_bits() {
    for interaction in [Interaction::Concat, Interaction::Dot] {
        let (dlrm, weights) = model(spec(Activation::Square, interaction), 2);
        let found = distance(&dlrm, &weights, Goal::default(), Mode::Simulate([7; 32]));
        assert!(found < 2f64.powi(-10) && found > 0.0, "{interaction:?}: {found}");
        let plan = planned(&dlrm, &weights, Goal::default());
        let (dense, indices) = features(&dlrm, 1, 3);
        let platform = Platform::detect();
        let bits = precision_bits(&plan, &weights, platform, [7; 32], &dense, &indices).unwrap();
        assert!((10.0..40.0).contains(&bits), "{bits}");
    }
}

#[test]
fn polynomials_of_higher_degree_are_evaluated() {
    let dlrm = Dlrm::new(spec(Activation::Polynomial, Interaction::Concat)).unwrap();
    let weights = Weights::new(&dlrm, tensors(&dlrm, 3, 4)).unwrap();
    let plan = planned(&dlrm, &weights, Goal::default());
    assert!(!plan.chain.is_lifted);
    let found = distance(&dlrm, &weights, Goal::default(), Mode::Clear);
    assert!(found < 1e-6, "{found}");
}

#[test]
fn silu_is_within_ten_bits() {
    let (dlrm, weights) = model(spec(Activation::Silu, Interaction::Concat), 4);
    let found = distance(&dlrm, &weights, Goal::default(), Mode::Clear);
    assert!(found < 2f64.powi(-10) && found > 1e-9, "{found}");
}

#[test]
fn relu_s_composite_fits_one_layer() {
    let own = DlrmSpec { bottom: vec![4], ..spec(Activation::Relu, Interaction::Concat) };
    let (dlrm, weights) = model(own, 5);
    let found = distance(&dlrm, &weights, Goal::default(), Mode::Clear);
    assert!(found < 2e-2 && found > 1e-9, "{found}");
}

#[test]
fn relu_s_one_polynomial_is_the_model_in_every_layer() {
    let mut distances = Vec::new();
    for degree in [31, 63, 127] {
        let own =
            DlrmSpec { relu_degree: Some(degree), ..spec(Activation::Relu, Interaction::Concat) };
        let (dlrm, weights) = model(own, 5);
        let plan = planned(&dlrm, &weights, Goal::default());
        let gates = plan.chain.links.iter().filter(|link| link.gate.is_some()).count();
        let log2 = (degree + 1).ilog2() as usize;
        assert_eq!((gates, plan.parameters.moduli.len() - 1), (2, 3 + 2 * log2));
        // What is trained with is what is computed: nothing is left of the approximation.
        let found = distance(&dlrm, &weights, Goal::default(), Mode::Clear);
        assert!(found < 1e-6, "{degree}: {found}");
        let found = distance(&dlrm, &weights, Goal::default(), Mode::Simulate([7; 32]));
        assert!(found < 2f64.powi(-10) && found > 0.0, "{degree}: {found}");
        // It is not ReLU, and the plan says by how much at most.
        let (dense, indices) = features(&dlrm, 1, 3);
        let dense: Vec<f64> = dense.iter().map(|&value| f64::from(value)).collect();
        let [polynomial, relu] = [forward, forward_relu]
            .map(|model| model(&dlrm, &weights, &dense, &indices).unwrap().logit);
        distances.push((polynomial - relu).abs());
        let said = format!("ReLU by degree {degree} on [-4, 4], at most {:.1e} from it", {
            4.0 * 0.280_17 / (2 * (degree - 1)) as f64
        });
        assert!(plan.describe().contains(&said), "{said}: {}", plan.describe());
    }
    assert!(distances[0] > 1e-4 && distances[0] > distances[2], "{distances:?}");
}

#[test]
fn plans_without_a_degree_mean_the_composite_and_no_plan_has_another_than_its_model() {
    let composite = DlrmSpec { bottom: vec![4], ..spec(Activation::Relu, Interaction::Concat) };
    let (dlrm, weights) = model(composite.clone(), 5);
    let text = planned(&dlrm, &weights, Goal::default()).to_json();
    assert!(!text.contains("relu_degree"));
    let read = Plan::parse(&text).unwrap();
    assert!(read.describe().contains("ReLU by degrees 15, 15, 27"), "{}", read.describe());
    let (dlrm, weights) = model(DlrmSpec { relu_degree: Some(63), ..composite }, 5);
    let text = planned(&dlrm, &weights, Goal::default()).to_json();
    for (from, to) in
        [("relu_degree\": 63", "relu_degree\": 31"), ("  \"degree\": 63", "  \"degree\": 31")]
    {
        let broken = text.replace(from, to);
        assert_ne!(broken, text, "{from}: {text}");
        assert!(Plan::parse(&broken).is_err(), "{to}");
    }
}

#[test]
fn models_without_hidden_layers_or_features_are_computed() {
    for (bottom, top, features) in
        [(vec![4], vec![1], 3), (vec![6, 4], vec![1], 3), (vec![6, 4], vec![7, 1], 0)]
    {
        let mut own = DlrmSpec { bottom, top, ..spec(Activation::Square, Interaction::Concat) };
        own.features.truncate(features);
        let (dlrm, weights) = model(own, 6);
        let found = distance(&dlrm, &weights, Goal::default(), Mode::Clear);
        assert!(found < 1e-6, "{:?} {found}", dlrm.spec());
    }
}

#[test]
fn a_plan_is_read_back_as_it_was() {
    let (dlrm, weights) = model(spec(Activation::Square, Interaction::Concat), 7);
    let plan = planned(&dlrm, &weights, Goal::default());
    let text = plan.to_json();
    assert_eq!(Plan::parse(&text).unwrap(), plan);
    for (from, to) in [
        ("\"users\": 1", "\"users\": 2"),
        ("\"is_dot\": false", "\"is_dot\": true"),
        ("\"join\": 0", "\"join\": 1"),
        ("\"format\": 3", "\"format\": 7"),
    ] {
        let broken = text.replace(from, to);
        assert_ne!(broken, text, "{from}");
        assert!(Plan::parse(&broken).is_err(), "{to}");
    }
    // Parameters without a modulus, fewer than there are of any plan.
    let mut broken: serde_json::Value = serde_json::from_str(&text).unwrap();
    broken["parameters"]["moduli"] = serde_json::json!([]);
    let refused = Plan::parse(&broken.to_string()).unwrap_err().to_string();
    assert!(refused.contains("the set has 0"), "{refused}");
}

#[test]
fn lookups_are_as_good_as_fused_maps() {
    use hushtable_infer::dlrm::chain::Chain;
    use hushtable_infer::dlrm::plan::{Fusion, levels};
    use hushtable_rlwe::ckks::{ModulusBits, ParameterSpec};
    for activates_last in [false, true] {
        let own = DlrmSpec {
            bottom_activates_last: activates_last,
            ..spec(Activation::Square, Interaction::Concat)
        };
        let (dlrm, weights) = model(own, 8);
        for lift in [false, true] {
            let chain = Chain::new(&dlrm, &weights, lift).unwrap();
            for fusion in [Fusion::First, Fusion::Join, Fusion::None] {
                let bits = ModulusBits { first: 38, level: 28, special: 38 };
                let count = levels(&chain, fusion);
                let set = ParameterSpec::of_bits("set", 16_384, bits, count, 1).unwrap();
                let Ok(made) = Plan::new(&dlrm, chain.clone(), &set, 4, fusion) else {
                    assert_ne!(fusion, Fusion::None);
                    continue;
                };
                let made = made.with_baby_steps();
                let (dense, indices) = features(&dlrm, 3, 9);
                let platform = Platform::detect();
                let found = predict(&made, &weights, platform, Mode::Clear, &dense, &indices);
                let expected = logits(&dlrm, &weights, &dense, &indices);
                for (x, y) in found.unwrap().iter().zip(expected) {
                    assert!((x - y).abs() < 1e-6, "{fusion:?} {lift}: {x} {y}");
                }
            }
        }
    }
}
