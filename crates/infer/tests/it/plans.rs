//! Plans of published shapes: what they take, and what of it a goal can bound.

use hushtable_infer::dlrm::bench::{Shape, synthetic_weights};
use hushtable_infer::dlrm::chain::Chain;
use hushtable_infer::dlrm::compile::Compiled;
use hushtable_infer::dlrm::cost::CostTable;
use hushtable_infer::dlrm::plan::{Fusion, levels};
use hushtable_infer::dlrm::planner::{Prediction, plan_precisely};
use hushtable_infer::dlrm::simulate::precision_bits;
use hushtable_infer::dlrm::spec::{Activation, DlrmSpec, Interaction};
use hushtable_infer::dlrm::{
    Client, Dlrm, Engine, Error, FLOOD_BITS, Goal, Plan, Terms, Weights, plan,
};
use hushtable_rlwe::ckks::{Clear, Error as CkksError, KeySpec, ModulusBits, ParameterSpec};
use hushtable_rlwe::ring::Platform;

use crate::models::{features, model, spec, tensors};

/// Criteo's whole shape with SiLU: 31 levels.
fn silu() -> (Dlrm, Weights) {
    let squares = Shape::Criteo { threshold: 500 }.dlrm().unwrap();
    let spec = DlrmSpec { activation: Activation::Silu, ..squares.spec().clone() };
    let dlrm = Dlrm::new(spec).unwrap();
    let mut tensors = tensors(&dlrm, 1, 2);
    // Degree 31.
    let ranges = tensors.iter_mut().filter(|(name, _)| name.ends_with("range"));
    ranges.for_each(|(_, range)| range.values = vec![8.0]);
    let weights = Weights::new(&dlrm, tensors).unwrap();
    (dlrm, weights)
}

fn squares(shape: Shape) -> (Dlrm, Weights) {
    let dlrm = shape.dlrm().unwrap();
    let weights = synthetic_weights(&dlrm, None, 1).unwrap();
    (dlrm, weights)
}

fn predicted((dlrm, weights): &(Dlrm, Weights), goal: Goal) -> (Plan, Prediction) {
    let costs = CostTable::shipped().unwrap();
    let plan = plan(dlrm, weights, goal, &costs).unwrap();
    let prediction = Prediction::of(&plan, &costs, Platform::detect()).unwrap();
    (plan, prediction)
}

#[test]
fn keys_of_published_shapes_are_small() {
    // The most megabytes of keys and milliseconds of a query, by the shipped table.
    for (name, model, megabytes, ms) in [
        ("criteo-silu", silu(), 510.0, 8_700.0),
        ("criteo", squares(Shape::Criteo { threshold: 500 }), 75.0, 201.0),
        // Queries of 9.3 MB in place of 165: parts take rotations and a level of their own.
        ("criteo-large", squares(Shape::Criteo { threshold: 5_000_000 }), 225.0, 1_900.0),
        ("uci", squares(Shape::Uci), 5.0, 3.8),
    ] {
        let (plan, prediction) = predicted(&model, Goal::default());
        println!("{name}: {prediction:?}\n{}", plan.describe());
        assert!(prediction.key_bytes as f64 <= megabytes * 1e6, "{name}: {prediction:?}");
        assert!(prediction.server_ms <= ms, "{name}: {prediction:?}");
        assert_eq!(Plan::parse(&plan.to_json()).unwrap(), plan, "{name}");
    }
}

#[test]
fn keys_are_as_small_as_a_goal_bounds_them() {
    let (dlrm, weights) = silu();
    let (mut before, costs) = (0.0, CostTable::shipped().unwrap());
    for bound in [650_000_000, 550_000_000, 500_000_000, 450_000_000] {
        let goal = Goal { key_bytes_max: Some(bound), ..Goal::default() };
        let (plan, prediction) = predicted(&(dlrm.clone(), weights.clone()), goal);
        println!("{bound}: {prediction:?}\n{}", plan.describe());
        assert!(prediction.key_bytes <= bound, "{prediction:?}");
        // Fewer bytes take more time.
        assert!(prediction.server_ms >= before, "{prediction:?}");
        before = prediction.server_ms;
    }
    let goal = Goal { key_bytes_max: Some(1_000_000), ..Goal::default() };
    let refused = plan(&dlrm, &weights, goal, &costs).unwrap_err();
    let Error::Keys { least_bytes, max_bytes: 1_000_000 } = refused else { panic!("{refused}") };
    // What it says works, and a megabyte less does not.
    let goal = Goal { key_bytes_max: Some(least_bytes), ..Goal::default() };
    let (_, prediction) = predicted(&(dlrm.clone(), weights.clone()), goal);
    assert!(prediction.key_bytes <= least_bytes, "{prediction:?}");
    let goal = Goal { key_bytes_max: Some(least_bytes - 1_000_000), ..Goal::default() };
    let refused = plan(&dlrm, &weights, goal, &costs).unwrap_err();
    assert!(matches!(refused, Error::Keys { .. }), "{refused}");
}

#[test]
fn memory_of_keys_is_what_they_take() {
    let (dlrm, weights) = model(spec(Activation::Square, Interaction::Concat), 3);
    let (plan, prediction) = predicted(&(dlrm, weights.clone()), Goal::default());
    let engine = Engine::new(&plan, &weights, Platform::detect()).unwrap();
    let client = Client::new(Terms::of(&plan, Platform::detect()).unwrap()).unwrap();
    let bytes = client.keys().collect::<Vec<_>>().concat();
    assert_eq!(bytes.len(), prediction.key_bytes);
    let found = engine.keys(&bytes).unwrap().memory_bytes() as f64;
    let ratio = found / prediction.key_memory_bytes as f64;
    // The zero that answers are hidden with is a ciphertext beside them.
    assert!((1.0..1.1).contains(&ratio), "{ratio}");
    assert!(prediction.map_memory_bytes > 0);
}

/// Computes a plan in the clear with the keys of `keys` alone.
fn run(plan: &Plan, weights: &Weights, keys: &KeySpec) -> Result<(), Error> {
    let parameters = plan.parameters.check(Platform::detect()).unwrap();
    let mut clear = Clear::with_keys(&parameters, keys);
    let compiled = Compiled::new(plan, weights, &clear, usize::MAX)?;
    let mut xs = Vec::new();
    for level in plan.inputs.iter().flat_map(|input| input.levels()) {
        xs.push(clear.vector(&[0.0], level, parameters.scale())?);
    }
    compiled.run(&mut clear, xs, &mut |_, _| Ok(())).map(|_| ())
}

#[test]
fn every_key_is_needed_up_to_its_level() {
    for (activation, interaction) in [
        (Activation::Square, Interaction::Concat),
        (Activation::Square, Interaction::Dot),
        (Activation::Silu, Interaction::Concat),
    ] {
        let (dlrm, weights) = model(spec(activation, interaction), 3);
        let (plan, _) = predicted(&(dlrm, weights.clone()), Goal::default());
        let all = KeySpec {
            products: plan.products(),
            rotations: plan.rotations().into_iter().collect(),
            ..KeySpec::default()
        };
        run(&plan, &weights, &all).unwrap();
        for lowered in plan.rotations().into_keys() {
            let lower = |(steps, level): (usize, usize)| match steps == lowered {
                true => level.checked_sub(1).map(|level| (steps, level)),
                false => Some((steps, level)),
            };
            let rotations = plan.rotations().into_iter().filter_map(lower).collect();
            let refused = run(&plan, &weights, &KeySpec { rotations, ..all.clone() }).unwrap_err();
            let is_named = matches!(
                refused,
                Error::Ckks(CkksError::MissingRotation { steps }) if steps == lowered
            );
            assert!(is_named, "{activation:?} {interaction:?} {lowered}: {refused}");
        }
        let products = all.products.map(|level| level - 1);
        let refused = run(&plan, &weights, &KeySpec { products, ..all.clone() }).unwrap_err();
        let is_named = matches!(refused, Error::Ckks(CkksError::MissingKey { .. }));
        assert!(is_named, "{activation:?} {interaction:?}: {refused}");
    }
}

#[test]
fn plans_of_before_are_read() {
    let (dlrm, weights) = model(spec(Activation::Square, Interaction::Concat), 3);
    let (plan, _) = predicted(&(dlrm.clone(), weights), Goal::default());
    let mut old = plan.with_baby_steps();
    old.format = 1;
    let text = old.to_json();
    for word in ["is_chained", "inner_steps", "input_splits", "bootstrap", "restored", "parts"] {
        assert!(!text.contains(word), "{word}");
    }
    let read = Plan::parse(&text).unwrap();
    assert_eq!((read.hash(), &read), (old.hash(), &old));
    for format in [0, 5] {
        // What else such a plan says is not read.
        let refused = Plan::parse(&format!("{{\"format\": {format}, \"new\": []}}")).unwrap_err();
        let refused = refused.to_string();
        assert!(
            refused.contains(&format!("format {format}, this build reads 1 to 4")),
            "{refused}"
        );
    }
}

#[test]
fn splits_that_there_are_not_are_refused() {
    let (plan, _) = predicted(&squares(Shape::Uci), Goal::default());
    let mut value: serde_json::Value = serde_json::from_str(&plan.to_json()).unwrap();
    for split in [
        serde_json::json!({ "baby_steps": 0 }),
        serde_json::json!({ "baby_steps": 3 }),
        serde_json::json!({ "baby_steps": 1u64 << 40 }),
        serde_json::json!({ "baby_steps": 1, "inner_steps": 7 }),
    ] {
        value["input_splits"] = serde_json::json!([split]);
        let refused = Plan::parse(&value.to_string()).unwrap_err();
        assert!(matches!(refused, Error::Plan { .. }), "{refused}");
    }
    value["input_splits"] = serde_json::json!([{ "baby_steps": 1 }, { "baby_steps": 1 }]);
    assert!(Plan::parse(&value.to_string()).is_err());
    // Links, inputs and layouts that there are not.
    for (at, wrong) in [
        ("/links", serde_json::json!([])),
        ("/inputs", serde_json::json!([])),
        ("/inputs/0/layout/period", serde_json::json!(0)),
        ("/embedding", serde_json::json!({ "kind": "lookup", "turn": value["links"][1]["turn"] })),
    ] {
        let mut value = value.clone();
        value["input_splits"] = serde_json::json!([]);
        *value.pointer_mut(at).unwrap() = wrong;
        let refused = Plan::parse(&value.to_string()).unwrap_err();
        assert!(matches!(refused, Error::Layout { .. } | Error::Plan { .. }), "{at}: {refused}");
    }
    // Packed by more diagonals than values need: possible. By none: not.
    value["input_splits"] = serde_json::json!([]);
    for (diagonals, copies) in [(0, 1), (3, 1), (1, 1 << 20), (1 << 20, 1)] {
        value["inputs"][0]["layout"]["diagonals"] = serde_json::json!(diagonals);
        value["inputs"][0]["layout"]["copies"] = serde_json::json!(copies);
        let refused = Plan::parse(&value.to_string()).unwrap_err();
        assert!(matches!(refused, Error::Layout { .. } | Error::Plan { .. }), "{refused}");
    }
}

#[test]
fn turns_whose_sizes_overflow_are_refused() {
    let (dlrm, weights) = model(spec(Activation::Square, Interaction::Concat), 3);
    let chain = Chain::new(&dlrm, &weights, false).unwrap();
    let bits = ModulusBits { first: 40, level: 30, special: 41 };
    let count = levels(&chain, Fusion::None);
    let set = ParameterSpec::of_bits("lookup", 16_384, bits, count, 1).unwrap();
    let plan = Plan::new(&dlrm, chain, &set, 1, Fusion::None).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&plan.to_json()).unwrap();
    assert_eq!(value["embedding"]["kind"], "lookup");
    for field in ["diagonals", "fold_count"] {
        value["embedding"]["turn"][field] = serde_json::json!(1u64 << 40);
    }
    let refused = Plan::parse(&value.to_string()).unwrap_err();
    assert!(matches!(refused, Error::Plan { .. }), "{refused}");
}

/// −log2 of a user's error before and after planning for a model's own weights, of which the first layer's
/// are multiplied by `first` and the last layer's by `last`.
fn bits_by_plan(first: f32, last: f32) -> [f64; 2] {
    let (dlrm, _) = model(spec(Activation::Silu, Interaction::Concat), 4);
    let mut all = tensors(&dlrm, 4, 2);
    for (name, factor) in [("bot_l.0.weight", first), ("top_l.2.weight", last)] {
        all.get_mut(name).unwrap().values.iter_mut().for_each(|value| *value *= factor);
    }
    let weights = Weights::new(&dlrm, all).unwrap();
    let (costs, platform) = (CostTable::shipped().unwrap(), Platform::detect());
    let (dense, indices) = features(&dlrm, 1, 3);
    let dense: Vec<f32> = dense.into_iter().map(|value| value / first).collect();
    let goal = Goal::default();
    let before = plan(&dlrm, &weights, goal, &costs).unwrap();
    let after = plan_precisely(&dlrm, &weights, goal, &costs, platform).unwrap();
    [before, after]
        .map(|plan| precision_bits(&plan, &weights, platform, [7; 32], &dense, &indices).unwrap())
}

#[test]
fn models_that_wide_features_leave_are_measured_with_narrow_ones() {
    let [before, after] = bits_by_plan(24.0, 256.0);
    assert!(before < 12.0 && after >= 15.0, "{before} {after}");
}

#[test]
fn a_circuit_s_noise_is_below_what_hides_it() {
    let [before, after] = bits_by_plan(1.0, 64.0);
    // Drawn users are others: they may have a bit less.
    assert!(before < 15.0 && after >= f64::from(FLOOD_BITS) + 3.0, "{before} {after}");
}
