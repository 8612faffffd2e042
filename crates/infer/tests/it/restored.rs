//! Plans with bootstraps: where they stand, what they ask for, and that what they answer is the model's.

use hushtable_infer::dlrm::bench::{Published, synthetic_features, synthetic_weights};
use hushtable_infer::dlrm::cost::CostTable;
use hushtable_infer::dlrm::planner::{self, Bootstraps, Prediction};
use hushtable_infer::dlrm::simulate::{self, precision_bits};
use hushtable_infer::dlrm::spec::{Activation, Interaction};
use hushtable_infer::dlrm::{
    Client, Dlrm, Engine, Error, FLOOD_BITS, Goal, Plan, Terms, Weights, plan,
};
use hushtable_infer::project::Backend;
use hushtable_infer::trace::Kind;
use hushtable_rlwe::ckks::KeySpec;
use hushtable_rlwe::ring::Platform;

use crate::models::{features, logits, model, spec};

fn published(name: &str) -> (Dlrm, Weights) {
    let model = Published::named(name).unwrap();
    let dlrm = model.dlrm().unwrap();
    let weights = synthetic_weights(&dlrm, model.range, 1).unwrap();
    (dlrm, weights)
}

fn costs() -> CostTable {
    CostTable::shipped().unwrap()
}

/// A small model whose activations take four levels each, with bootstraps at N = 2^15.
fn small() -> (Dlrm, Weights, Plan) {
    let (dlrm, weights) = model(spec(Activation::Silu, Interaction::Concat), 1);
    let bootstraps = Bootstraps::Required;
    let goal = Goal { degree_max: 1 << 15, bootstraps, ..Goal::default() };
    let plan = plan(&dlrm, &weights, goal, &costs()).unwrap();
    (dlrm, weights, plan)
}

#[test]
fn what_is_too_deep_is_bootstrapped_where_it_costs_least() {
    let (dlrm, weights) = published("criteo-relu-composite");
    let never = Goal { bootstraps: Bootstraps::Never, ..Goal::default() };
    let refused = plan(&dlrm, &weights, never, &costs()).unwrap_err();
    assert!(matches!(refused, Error::Depth { levels: 76, .. }), "{refused}");

    let plan = plan(&dlrm, &weights, Goal::default(), &costs()).unwrap();
    let text = plan.describe();
    // The first gate is fresh; each of the four others has 14 levels, and two links never fit in 15.
    let restored: Vec<_> = plan.links.iter().map(|link| link.restored).collect();
    assert_eq!(restored, [None, Some(17), Some(17), Some(17), Some(15), None], "{text}");
    assert!(text.contains("4 of 512 numbers, to level 17"), "{text}");
    let own = plan.bootstrap.as_ref().unwrap();
    assert_eq!((own.slots, own.output(), own.left), (512, 17, 15), "{text}");
    assert_eq!(Plan::parse(&plan.to_json()).unwrap(), plan);
    let prediction = Prediction::of(&plan, &costs(), Platform::detect()).unwrap();
    assert!(prediction.key_bytes <= 900_000_000, "{prediction:?}");
    let KeySpec { products, conjugation, raise, .. } = plan.key_spec();
    assert_eq!((products, conjugation, raise), (Some(25), Some(25), Some(27)));

    // The noise stays below what hides it, and the circuit is the model's.
    let (dense, indices) = synthetic_features(&dlrm, 77);
    let platform = Platform::detect();
    let bits = precision_bits(&plan, &weights, platform, [1; 32], &dense, &indices).unwrap();
    assert!(bits >= f64::from(FLOOD_BITS + 4), "{bits}");
    let trace = simulate::trace("composite", &plan, &weights, platform).unwrap();
    assert_eq!((trace.count(Kind::Raise), trace.count(Kind::Bootstrap)), (plan.bootstraps(), 0));
}

#[test]
fn bootstrapped_answers_are_the_model_s() {
    let (dlrm, weights, plan) = small();
    println!("{}", plan.describe());
    assert!(plan.bootstraps() > 0 && plan.parameters.degree == 1 << 15);
    let platform = Platform::detect();
    let engine = Engine::new(&plan, &weights, platform).unwrap();
    let client = Client::new(Terms::parse(&engine.terms().to_bytes(), platform).unwrap()).unwrap();
    let uploaded = client.keys().collect::<Vec<_>>().concat();
    let prediction = Prediction::of(&plan, &costs(), platform).unwrap();
    assert_eq!(uploaded.len(), prediction.key_bytes);
    let keys = engine.keys(&uploaded).unwrap();
    let (dense, indices) = features(&dlrm, 1, 3);
    let answer = engine.answer(&keys, &client.query(&dense, &indices).unwrap()).unwrap();
    let error = client.open(&answer).unwrap()[0] - logits(&dlrm, &weights, &dense, &indices)[0];
    assert!(error.abs() <= 1.0 / 1024.0, "{error}");
}

#[test]
fn a_bootstrap_is_projected_once() {
    let (_, weights, plan) = small();
    let trace = simulate::trace("small", &plan, &weights, Platform::detect()).unwrap();
    // Its parts are in the trace: a machine of which no bootstrap's time is known has them all.
    let table = r#"{"name": "m", "device": "d", "sources": ["s"], "degree": 32768, "costs": {
        "add": [[1, 1], [2, 1.1]], "multiply_plain": [[1, 1], [2, 1.1]], "multiply": [[1, 1], [2, 1.1]],
        "rescale": [[1, 1], [2, 1.1]], "rotate": [[1, 1], [2, 1.1]], "hoisted_rotate": [[1, 1], [2, 1.1]]}}"#;
    let found = Backend::parse(table).unwrap().project(&trace).unwrap();
    let own = found.layers.iter().filter(|(layer, _)| layer.ends_with("bootstrapped"));
    let own: f64 = own.map(|(_, ms)| ms).sum();
    assert!(own > 0.0 && own < found.total_ms, "{found:?}");
    assert!((found.bootstrap_ms / own - 1.0).abs() < 1e-9, "{found:?}");
}

#[test]
fn shallow_models_are_not_bootstrapped() {
    for name in ["uci", "uci-silu", "uci-relu", "criteo"] {
        let (dlrm, weights) = published(name);
        let plan = plan(&dlrm, &weights, Goal::default(), &costs()).unwrap();
        assert_eq!(plan.bootstraps(), 0, "{name}\n{}", plan.describe());
        assert_eq!(plan.key_spec().raise, None, "{name}");
    }
}

#[test]
fn a_plan_says_what_else_there_is() {
    let (dlrm, weights) = published("criteo-relu-composite");
    let goal = Goal::default();
    let plan = plan(&dlrm, &weights, goal, &costs()).unwrap();
    let all = planner::alternatives(&dlrm, &weights, goal, &costs(), &plan).unwrap();
    let text = planner::describe_alternatives(&all);
    assert_eq!(all.len(), 4, "{text}");
    assert!(all[0].refused.as_ref().is_some_and(|why| why.contains("76 levels")), "{text}");
    let own = costs().server_ms(&plan);
    for (other, degree) in all[1..].iter().zip([31, 63, 127]) {
        assert!(other.what.contains(&format!("degree {degree}")), "{text}");
        assert!(other.server_ms.is_some_and(|ms| ms < own), "{text}");
        assert!(other.key_bytes.is_some() && other.refused.is_none(), "{text}");
    }
    // Squares can be nothing else.
    let (dlrm, weights) = published("uci");
    let plan = planner::plan(&dlrm, &weights, goal, &costs()).unwrap();
    let all = planner::alternatives(&dlrm, &weights, goal, &costs(), &plan).unwrap();
    assert_eq!(all, []);
}

#[test]
fn bootstraps_that_are_none_are_refused() {
    let (_, _, plan) = small();
    let link = plan.links.iter().position(|link| link.restored.is_some()).unwrap();
    type Change = Box<dyn Fn(&mut Plan)>;
    let own = |change: fn(&mut hushtable_infer::dlrm::plan::BootstrapPlan)| -> Change {
        Box::new(move |plan| change(plan.bootstrap.as_mut().unwrap()))
    };
    let changes: Vec<(&str, Change)> = vec![
        ("left", own(|own| own.left += 1)),
        ("left without end", own(|own| own.left = usize::MAX)),
        ("to coefficients", own(|own| own.to_coefficients = 0)),
        ("to slots without end", own(|own| own.to_slots = usize::MAX)),
        ("slots", own(|own| own.slots *= 2)),
        ("no slots", own(|own| own.slots = 0)),
        ("products", own(|own| own.products += 1)),
        ("rotations", own(|own| own.rotations.push((3, 1)))),
        ("maps", own(|own| own.maps[0].diagonals += 1)),
        ("no bootstrap", Box::new(|plan| plan.bootstrap = None)),
        ("a level", Box::new(move |plan| plan.links[link].restored = Some(99))),
        ("nothing restored", Box::new(move |plan| plan.links[link].restored = None)),
        ("the last", Box::new(|plan| plan.links.last_mut().unwrap().restored = Some(1))),
    ];
    for (name, change) in changes {
        let mut changed = plan.clone();
        change(&mut changed);
        assert!(Plan::parse(&changed.to_json()).is_err(), "{name}");
    }
}

#[test]
fn clients_check_what_bootstraps_ask_for() {
    let (_, _, plan) = small();
    let platform = Platform::detect();
    let terms: serde_json::Value =
        serde_json::from_slice(&Terms::of(&plan, platform).unwrap().to_bytes()).unwrap();
    assert_eq!(terms["format"], 2);
    let levels = plan.parameters.moduli.len() - 1;
    for (field, value) in [
        ("raise", serde_json::json!(levels + 1)),
        ("raise", serde_json::json!(0)),
        ("conjugation", serde_json::json!(levels + 1)),
        ("format", serde_json::json!(4)),
    ] {
        let mut changed = terms.clone();
        changed[field] = value.clone();
        let refused = Terms::parse(&serde_json::to_vec(&changed).unwrap(), platform);
        let Err(Error::Terms { why }) = refused else { panic!("{field} {value}") };
        assert!(field != "format" || why.contains("upgrade"), "{why}");
    }
    // Terms without any are of the first format, which clients of before read.
    let (dlrm, weights) = published("uci");
    let plan = planner::plan(&dlrm, &weights, Goal::default(), &costs()).unwrap();
    let text = String::from_utf8(Terms::of(&plan, platform).unwrap().to_bytes()).unwrap();
    assert!(text.contains("\"format\":1") && !text.contains("raise"), "{text}");
}

#[test]
fn an_activation_without_a_range_is_not_bootstrapped() {
    let (dlrm, weights) = model(spec(Activation::Square, Interaction::Concat), 1);
    let goal = Goal { bootstraps: Bootstraps::Required, ..Goal::default() };
    let refused = plan(&dlrm, &weights, goal, &costs()).unwrap_err();
    assert!(refused.to_string().contains("no set of 128 bits bootstraps it"), "{refused}");
}
