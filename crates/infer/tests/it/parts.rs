//! One-hot vectors in parts: the same logits for a query that is a fraction of the whole vectors'.

use hushtable_infer::dlrm::bench::{Published, Shape, synthetic_weights};
use hushtable_infer::dlrm::cost::{CostTable, Kind};
use hushtable_infer::dlrm::layout::{Input, Layout, Values};
use hushtable_infer::dlrm::plan::Fusion;
use hushtable_infer::dlrm::planner::{Prediction, describe};
use hushtable_infer::dlrm::simulate::{Mode, precision_bits, predict};
use hushtable_infer::dlrm::spec::{Activation, DlrmSpec, FeatureSpec, Interaction};
use hushtable_infer::dlrm::{
    Client, Dlrm, Engine, Error, Goal, MAP_BYTES_MAX, Plan, Terms, Weights, plan,
};
use hushtable_rlwe::largest;
use hushtable_rlwe::ring::Platform;
use serde_json::{Value, json};

use crate::costs::{check, has};
use crate::models::{features, logits, model, spec};

/// Two tables of more rows than slots, one of some, and small ones, of which one is cut into digits.
fn large(bottom: Vec<usize>, dim: usize) -> (Dlrm, Weights) {
    let feature = |name: &str, rows| FeatureSpec { name: name.into(), rows, table: None, bag: 1 };
    let features = vec![
        feature("street", 30_001),
        feature("sex", 2),
        feature("town", 60_011),
        feature("house", 1_000_000),
        feature("item", 700),
        feature("day", 7),
    ];
    let own = spec(Activation::Square, Interaction::Concat);
    model(DlrmSpec { bottom, dim, threshold: 100_000, features, ..own }, 1)
}

fn planned(dlrm: &Dlrm, weights: &Weights, goal: Goal) -> Plan {
    plan(dlrm, weights, goal, &CostTable::shipped().unwrap()).unwrap()
}

fn query_bytes(plan: &Plan) -> usize {
    Terms::of(plan, Platform::detect()).unwrap().query_bytes()
}

/// A plan whose queries are about as small as there are.
fn bounded(dlrm: &Dlrm, weights: &Weights, users: usize) -> Plan {
    let goal = |bytes| Goal { users, query_bytes_max: Some(bytes), ..Goal::default() };
    let refused = plan(dlrm, weights, goal(1), &CostTable::shipped().unwrap()).unwrap_err();
    let Error::Query { least_bytes, max_bytes: 1 } = refused else { panic!("{refused}") };
    let bound = least_bytes * 9 / 8;
    let plan = planned(dlrm, weights, goal(bound));
    assert!(has_parts(&plan), "{bound}: {}", plan.describe());
    assert!(query_bytes(&plan) <= bound, "{bound}: {}", plan.describe());
    plan
}

#[test]
fn exact_circuits_are_the_model() {
    let mut outputs = Vec::new();
    for (bottom, dim, users) in
        [(vec![6, 4], 4, 1), (vec![6, 4], 3, 1), (vec![4], 4, 1), (vec![6, 4], 16, 16)]
    {
        let (dlrm, weights) = large(bottom.clone(), dim);
        let plan = bounded(&dlrm, &weights, users);
        println!("{}", plan.describe());
        outputs.extend(parts_of(&plan).map(|input| input.ciphertexts - 1));
        let (dense, indices) = features(&dlrm, users, 3);
        let expected = logits(&dlrm, &weights, &dense, &indices);
        for (mode, error_max) in [(Mode::Clear, 1e-6), (Mode::Simulate([7; 32]), 1.0 / 1024.0)] {
            let platform = Platform::detect();
            let found = predict(&plan, &weights, platform, mode, &dense, &indices).unwrap();
            let error = largest(found.iter().zip(&expected).map(|(x, y)| x - y));
            assert!(error <= error_max, "{bottom:?} {dim} {users} {mode:?}: {error}");
        }
    }
    // Groups in one ciphertext, and in several.
    assert!(outputs.contains(&1) && outputs.iter().any(|&count| count > 1), "{outputs:?}");
}

#[test]
fn every_row_is_found() {
    let (dlrm, weights) = large(vec![6, 4], 4);
    let plan = bounded(&dlrm, &weights, 1);
    let (dense, mut indices) = features(&dlrm, 1, 3);
    // The ends of tables, and of what is a group at whatever number of columns.
    for street in [0, 1, 127, 128, 4095, 4096, 8191, 8192, 30_000] {
        indices[0] = street;
        indices[2] = 60_010 - street;
        let found = predict(&plan, &weights, Platform::detect(), Mode::Clear, &dense, &indices);
        let (found, expected) = (found.unwrap()[0], logits(&dlrm, &weights, &dense, &indices)[0]);
        assert!((found - expected).abs() < 1e-6, "{street}: {found} {expected}");
    }
    indices[2] = 60_011;
    let refused = predict(&plan, &weights, Platform::detect(), Mode::Clear, &dense, &indices);
    let refused = refused.unwrap_err();
    assert!(matches!(&refused, Error::Index { feature, .. } if feature == "town"), "{refused}");
}

#[test]
fn encrypted_logits_are_the_model_s() {
    let (dlrm, weights) = large(vec![6, 4], 4);
    let (plan, platform) = (bounded(&dlrm, &weights, 1), Platform::detect());
    let client =
        Client::of_announced(&Terms::of(&plan, platform).unwrap().to_bytes(), platform).unwrap();
    let keys = client.keys().collect::<Vec<_>>().concat();
    let (dense, mut indices) = features(&dlrm, 1, 3);
    let query = client.query(&dense, &indices).unwrap();
    assert_eq!(query.len(), client.terms().query_bytes());
    // With all maps held, and with none.
    for map_bytes_max in [MAP_BYTES_MAX, 0] {
        let engine = Engine::with_memory(&plan, &weights, platform, map_bytes_max).unwrap();
        let answer = engine.answer(&engine.keys(&keys).unwrap(), &query).unwrap();
        let error = client.open(&answer).unwrap()[0] - logits(&dlrm, &weights, &dense, &indices)[0];
        assert!(error.abs() <= 1.0 / 1024.0, "{map_bytes_max}: {error}");
    }
    let bits = precision_bits(&plan, &weights, platform, [7; 32], &dense, &indices).unwrap();
    assert!((10.0..40.0).contains(&bits), "{bits}");
    indices[0] = 30_001;
    let refused = client.query(&dense, &indices).unwrap_err();
    let is_named =
        matches!(&refused, Error::Index { feature, rows: 30_001, .. } if feature == "street");
    assert!(is_named, "{refused}");
}

#[test]
fn what_is_priced_is_what_is_done() {
    let (dlrm, weights) = large(vec![6, 4], 4);
    for users in [1, 4] {
        let counts = check("parts", &bounded(&dlrm, &weights, users), &weights);
        has(&counts, &[Kind::Cut, Kind::Hoisted, Kind::Giant, Kind::MultiplyRescale]);
    }
}

#[test]
fn plans_are_read_as_they_were_written_and_no_others_are() {
    let (dlrm, weights) = large(vec![6, 4], 4);
    let plan = bounded(&dlrm, &weights, 1);
    assert_eq!(plan.format, 4);
    let text = plan.to_json();
    assert_eq!(Plan::parse(&text).unwrap(), plan);
    // What has no parts is what builds from before them read.
    let whole =
        planned(&dlrm, &weights, Goal { query_bytes_max: Some(1 << 40), ..Goal::default() });
    let small = planned_small();
    assert_eq!((whole.format, small.format), (if has_parts(&whole) { 4 } else { 3 }, 3));
    assert!(!small.to_json().contains("parts"));
    let at = plan.inputs.iter().position(|input| input.values == Values::Parts).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    let parts = format!("/inputs/{at}");
    for (at, wrong) in [
        ("/format".into(), json!(3)),
        ("/format".into(), json!(5)),
        (format!("{parts}/ciphertexts"), json!(1)),
        (format!("{parts}/ciphertexts"), json!(1 << 13)),
        (format!("{parts}/level"), json!(1)),
        (format!("{parts}/values"), json!("onehot")),
        (format!("{parts}/layout/columns"), json!(3)),
        (format!("{parts}/layout/columns"), json!(0)),
        (format!("{parts}/layout/columns"), json!(1u64 << 40)),
        (format!("{parts}/layout/width"), json!(2)),
        (format!("{parts}/layout/counts"), json!([])),
        (format!("{parts}/layout/counts"), json!([0, 0, 0, 0, 0, 0])),
        (format!("{parts}/layout/counts"), json!([1, 1, 1, 1, 1, 1])),
    ] {
        let mut value = value.clone();
        *value.pointer_mut(&at).unwrap() = wrong.clone();
        let refused = Plan::parse(&value.to_string()).unwrap_err();
        let is_named = matches!(refused, Error::Plan { .. } | Error::Layout { .. });
        assert!(is_named, "{at} {wrong}: {refused}");
    }
    let mut value = value;
    value["input_splits"][at]["inner_steps"] = json!(2);
    value["input_splits"][at]["baby_steps"] = json!(4);
    assert!(Plan::parse(&value.to_string()).is_err());
}

fn parts_of(plan: &Plan) -> impl Iterator<Item = &Input> {
    plan.inputs.iter().filter(|input| input.values == Values::Parts)
}

fn has_parts(plan: &Plan) -> bool {
    matches!(plan.fusion(), Fusion::Parts { .. })
}

fn planned_small() -> Plan {
    let (dlrm, weights) = model(spec(Activation::Square, Interaction::Concat), 3);
    planned(&dlrm, &weights, Goal::default())
}

#[test]
fn terms_that_do_not_hold_every_feature_once_are_refused() {
    let (dlrm, weights) = large(vec![6, 4], 4);
    let plan = bounded(&dlrm, &weights, 1);
    let platform = Platform::detect();
    let text = Terms::of(&plan, platform).unwrap().to_bytes();
    let good: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(good["format"], 3);
    assert_eq!(Terms::parse(&text, platform).unwrap().to_bytes(), text);
    let at = |values| plan.inputs.iter().position(|input| input.values == values).unwrap();
    let (whole, parts) = (at(Values::Onehot), at(Values::Parts));
    let Layout::Parts { counts, .. } = &plan.inputs[parts].layout else { panic!() };
    let taken = counts.iter().position(|&count| count > 0).unwrap();
    let small = counts.iter().position(|&count| count == 0).unwrap();
    for (input, feature, count) in [(parts, taken, 0), (whole, small, 0), (whole, taken, 1)] {
        let mut terms = good.clone();
        terms["inputs"][input]["layout"]["counts"][feature] = json!(count);
        let refused = Terms::parse(terms.to_string().as_bytes(), platform).unwrap_err();
        assert!(matches!(refused, Error::Layout { .. }), "{input} {feature} {count}: {refused}");
    }
    for (at, wrong) in [
        ("level", json!(1)),
        ("ciphertexts", json!(1)),
        ("ciphertexts", json!(1u64 << 40)),
        ("values", json!("dense")),
    ] {
        let mut terms = good.clone();
        terms["inputs"][parts][at] = wrong;
        let refused = Terms::parse(terms.to_string().as_bytes(), platform).unwrap_err();
        assert!(matches!(refused, Error::Layout { .. }), "{at}: {refused}");
    }
    // Terms of a later format are refused by it, whatever else they say.
    let later = json!({ "format": 4, "new": [] }).to_string();
    let refused = Terms::parse(later.as_bytes(), platform).unwrap_err().to_string();
    assert!(refused.contains("format 4, this build reads 1 to 3"), "{refused}");
}

#[test]
fn queries_are_as_small_as_a_goal_bounds_them() {
    let (dlrm, weights) = large(vec![6, 4], 4);
    let costs = CostTable::shipped().unwrap();
    let refused =
        plan(&dlrm, &weights, Goal { query_bytes_max: Some(1000), ..Goal::default() }, &costs);
    let refused = refused.unwrap_err();
    let Error::Query { least_bytes, max_bytes: 1000 } = refused else { panic!("{refused}") };
    // What it says works, and a little less does not.
    let goal = Goal { query_bytes_max: Some(least_bytes), ..Goal::default() };
    let found = query_bytes(&planned(&dlrm, &weights, goal));
    assert!(found <= least_bytes, "{found} {least_bytes}");
    let goal = Goal { query_bytes_max: Some(least_bytes * 9 / 10), ..Goal::default() };
    let refused = plan(&dlrm, &weights, goal, &costs).unwrap_err();
    assert!(matches!(refused, Error::Query { .. }), "{refused}");
}

#[test]
fn criteo_s_queries_stay_below_ten_megabytes() {
    let costs = CostTable::shipped().unwrap();
    for (threshold, is_in_parts) in [(50_000, false), (500_000, true), (5_000_000, true)] {
        let dlrm = Shape::Criteo { threshold }.dlrm().unwrap();
        let weights = synthetic_weights(&dlrm, None, 1).unwrap();
        let plan = planned(&dlrm, &weights, Goal::default());
        let prediction = Prediction::of(&plan, &costs, Platform::detect()).unwrap();
        println!("threshold {threshold}\n{}", describe(&plan, &prediction));
        assert!(prediction.query_bytes <= 10_000_000, "{threshold}: {prediction:?}");
        assert_eq!(has_parts(&plan), is_in_parts, "{threshold}: {}", plan.describe());
        assert_eq!(Plan::parse(&plan.to_json()).unwrap(), plan, "{threshold}");
        let terms = Terms::of(&plan, Platform::detect()).unwrap();
        assert_eq!(Terms::parse(&terms.to_bytes(), Platform::detect()).unwrap().ciphertexts(), {
            plan.inputs.iter().map(|input| input.ciphertexts).sum::<usize>()
        });
    }
}

#[test]
fn bootstrapped_plans_have_parts_too() {
    let mut model = Published::named("criteo-relu-composite").unwrap();
    model.shape = Shape::Criteo { threshold: 5_000_000 };
    let dlrm = model.dlrm().unwrap();
    let weights = synthetic_weights(&dlrm, model.range, 1).unwrap();
    let plan = planned(&dlrm, &weights, Goal::default());
    let query_bytes = query_bytes(&plan);
    println!("{query_bytes}\n{}", plan.describe());
    assert!(has_parts(&plan) && plan.bootstraps() > 0, "{}", plan.describe());
    // Whole one-hot vectors alone take 85 ciphertexts.
    assert!(query_bytes < 30_000_000, "{query_bytes}: {}", plan.describe());
    assert_eq!(Plan::parse(&plan.to_json()).unwrap(), plan);
}
