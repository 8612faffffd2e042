//! What plans are predicted to do is what their circuits do, kind by kind and level by level.

use std::collections::BTreeMap;

use hushtable_infer::dlrm::bench::{Published, synthetic_weights};
use hushtable_infer::dlrm::chain::Chain;
use hushtable_infer::dlrm::compile::Compiled;
use hushtable_infer::dlrm::cost::{CostTable, Counted, Kind, operations};
use hushtable_infer::dlrm::plan::{EmbeddingPlan, Fusion, levels};
use hushtable_infer::dlrm::planner::Bootstraps;
use hushtable_infer::dlrm::simulate;
use hushtable_infer::dlrm::spec::{Activation, DlrmSpec, Interaction};
use hushtable_infer::dlrm::{Dlrm, Goal, Plan, Weights, plan};
use hushtable_infer::trace;
use hushtable_rlwe::ckks::{Clear, Evaluate, ModulusBits, ParameterSpec};
use hushtable_rlwe::ring::Platform;

use crate::models::{model, spec, tensors};

/// How often, by layer, level and kind.
pub type Counts = BTreeMap<(String, usize, Kind), usize>;

fn costs() -> CostTable {
    CostTable::shipped().unwrap()
}

/// What the circuit of `plan` does when it runs, ciphertexts' reading left out.
fn counted(plan: &Plan, weights: &Weights) -> Counts {
    let parameters = plan.parameters.check(Platform::detect()).unwrap();
    let clear = Clear::with_keys(&parameters, &plan.key_spec());
    let mut xs = Vec::new();
    for input in &plan.inputs {
        let vector = |level| clear.vector(&[0.0], level, parameters.scale()).unwrap();
        xs.extend(input.levels().map(vector));
    }
    let mut evaluator = Counted::new(clear);
    let compiled = Compiled::new(plan, weights, &evaluator, usize::MAX).unwrap();
    let out = compiled.run(&mut evaluator, xs, &mut |_, _| Ok(())).unwrap();
    assert_eq!(evaluator.level(&out), 0);
    let own = evaluator.finish().into_iter();
    own.map(|own| ((own.layer, own.level, own.kind), own.count)).collect()
}

/// What it is predicted to do.
fn predicted(plan: &Plan) -> Counts {
    let own = operations(plan).into_iter().filter(|own| own.kind != Kind::Read);
    own.map(|own| ((own.layer, own.level, own.kind), own.count)).collect()
}

pub fn check(name: &str, plan: &Plan, weights: &Weights) -> Counts {
    let (said, found) = (predicted(plan), counted(plan, weights));
    let keys: std::collections::BTreeSet<_> = said.keys().chain(found.keys()).collect();
    let other: Vec<_> = keys
        .into_iter()
        .filter(|key| said.get(key) != found.get(key))
        .map(|key| format!("{key:?}: predicted {:?}, done {:?}", said.get(key), found.get(key)))
        .collect();
    assert!(other.is_empty(), "{name}\n{}\n{}", other.join("\n"), plan.describe());
    check_trace(name, plan, weights, &said);
    said
}

/// The same against what was recorded without kinds of its own: a product that is rescaled at once is a
/// product and a rescaling there.
fn check_trace(name: &str, plan: &Plan, weights: &Weights, said: &Counts) {
    let found = simulate::trace(name, plan, weights, Platform::detect()).unwrap();
    let mut recorded: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    let mut put = |level: usize, what, count: usize| {
        if count > 0 {
            *recorded.entry((level, what)).or_default() += count;
        }
    };
    for own in &found.operations {
        let (level, count) = (own.level, own.count);
        match own.kind {
            trace::Kind::Multiply | trace::Kind::Square => put(level, "products", count),
            trace::Kind::Rescale => put(level, "rescalings", count),
            trace::Kind::Rotate => put(level, "rotations", count),
            trace::Kind::Raise => put(level, "raises", count),
            trace::Kind::MultiplyPlain | trace::Kind::MultiplyConstant => {
                put(level, "numbers", count);
            }
            trace::Kind::Add => put(level, "sums", count),
            trace::Kind::AddPlain | trace::Kind::AddConstant => put(level, "parts", count),
            trace::Kind::RotateMany => put(level, "babies", count * own.baby_rotations),
            trace::Kind::Transform => {
                put(level, "diagonals", count * own.diagonals);
                put(level, "babies", count * own.baby_rotations);
                put(level, "giants", count * own.giant_rotations);
            }
            // Copies are not: where a circuit asks for the level that there is, none is made.
            trace::Kind::Drop => {}
            trace::Kind::Bootstrap => panic!("{name}: a bootstrap as one operation"),
        }
    }
    let mut expected: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    for (&(_, level, kind), &count) in said {
        let both: &[&str] = match kind {
            Kind::Multiply => &["products"],
            Kind::MultiplyRescale => &["products", "rescalings"],
            // A map's last divisions rescale.
            Kind::Rescale | Kind::Close => &["rescalings"],
            Kind::Rotate => &["rotations"],
            Kind::Raise => &["raises"],
            Kind::Constant => &["numbers"],
            Kind::Add => &["sums"],
            Kind::AddPart => &["parts"],
            Kind::Hoisted => &["babies"],
            Kind::Giant => &["giants"],
            Kind::Diagonal | Kind::DiagonalOverP | Kind::Repeated | Kind::RepeatedOverP => {
                &["diagonals"]
            }
            _ => &[],
        };
        for what in both {
            *expected.entry((level, *what)).or_default() += count;
        }
    }
    assert_eq!(recorded, expected, "{name}");
}

pub fn has(counts: &Counts, kinds: &[Kind]) {
    for kind in kinds {
        assert!(counts.keys().any(|(.., own)| own == kind), "{kind:?}: {counts:?}");
    }
}

#[test]
fn small_models_do_what_is_predicted() {
    for (name, interaction, activation, relu_degree) in [
        ("squares", Interaction::Concat, Activation::Square, None),
        ("dot", Interaction::Dot, Activation::Square, None),
        ("polynomials", Interaction::Concat, Activation::Polynomial, None),
        ("silu", Interaction::Concat, Activation::Silu, None),
        ("silu, dot", Interaction::Dot, Activation::Silu, None),
        ("relu", Interaction::Concat, Activation::Relu, Some(31)),
    ] {
        for users in [1, 8] {
            let own = DlrmSpec { relu_degree, ..spec(activation, interaction) };
            let dlrm = Dlrm::new(own).unwrap();
            // Polynomials of degree 2 would be squares.
            let weights = Weights::new(&dlrm, tensors(&dlrm, 3, 4)).unwrap();
            let goal = Goal { users, ..Goal::default() };
            let plan = plan(&dlrm, &weights, goal, &costs()).unwrap();
            let counts = check(name, &plan, &weights);
            let main = match activation {
                Activation::Square => Kind::Multiply,
                _ => Kind::Constant,
            };
            has(&counts, &[main, Kind::Close, Kind::AddPart]);
            if interaction == Interaction::Dot {
                has(&counts, &[Kind::Hoisted, Kind::MultiplyRescale, Kind::Cut]);
            }
        }
    }
}

#[test]
fn composites_do_what_is_predicted() {
    let own = DlrmSpec { bottom: vec![4], ..spec(Activation::Relu, Interaction::Concat) };
    let (dlrm, weights) = model(own, 5);
    let goal = Goal { bootstraps: Bootstraps::Never, ..Goal::default() };
    let plan = plan(&dlrm, &weights, goal, &costs()).unwrap();
    let counts = check("composite", &plan, &weights);
    has(&counts, &[Kind::Multiply, Kind::Rescale, Kind::Copy]);
}

#[test]
fn bootstrapped_models_do_what_is_predicted() {
    let (dlrm, weights) = model(spec(Activation::Silu, Interaction::Concat), 1);
    let bootstraps = Bootstraps::Required;
    let goal = Goal { degree_max: 1 << 15, bootstraps, ..Goal::default() };
    let plan = plan(&dlrm, &weights, goal, &costs()).unwrap();
    assert!(plan.bootstraps() > 0);
    let counts = check("bootstrapped", &plan, &weights);
    has(&counts, &[Kind::Raise, Kind::RepeatedOverP, Kind::Hoisted, Kind::Giant, Kind::Divide]);
}

#[test]
fn maps_however_split_do_what_is_predicted() {
    let (dlrm, weights) = published("uci");
    let made = plan(&dlrm, &weights, Goal::default(), &costs()).unwrap();
    check("uci", &made, &weights);
    check("uci, by roots", &made.clone().with_baby_steps(), &weights);
    // Fewer bytes of keys: chains, and baby steps of two rotations.
    let (dlrm, weights) = published("uci-silu");
    let least = plan(&dlrm, &weights, Goal { key_bytes_max: Some(1), ..Goal::default() }, &costs());
    let Err(hushtable_infer::dlrm::Error::Keys { least_bytes, .. }) = least else { panic!() };
    let goal = Goal { key_bytes_max: Some(least_bytes), ..Goal::default() };
    let small = plan(&dlrm, &weights, goal, &costs()).unwrap();
    let text = small.describe();
    assert!(text.contains("chain") && text.contains('·'), "{text}");
    check("uci-silu, small keys", &small, &weights);
}

#[test]
fn lookups_and_fused_maps_do_what_is_predicted() {
    let mut seen = [false; 3];
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
                let Ok(made) = Plan::new(&dlrm, chain.clone(), &set, 4, fusion) else { continue };
                let made = made.with_baby_steps();
                let counts = check(&format!("{fusion:?} {lift}"), &made, &weights);
                has(&counts, &[Kind::Close]);
                let kind = match made.embedding {
                    EmbeddingPlan::Joined => 0,
                    EmbeddingPlan::Fused => 1,
                    _ => 2,
                };
                seen[kind] = true;
            }
        }
    }
    assert_eq!(seen, [true; 3]);
}

fn published(name: &str) -> (Dlrm, Weights) {
    let model = Published::named(name).unwrap();
    let dlrm = model.dlrm().unwrap();
    let weights = synthetic_weights(&dlrm, model.range, 1).unwrap();
    (dlrm, weights)
}

#[test]
fn a_deeper_model_of_the_same_layers_is_priced_higher() {
    let costs = costs();
    let mut before = 0.0;
    for degree in [31, 63, 127] {
        let own =
            DlrmSpec { relu_degree: Some(degree), ..spec(Activation::Relu, Interaction::Concat) };
        let (dlrm, weights) = model(own, 5);
        let goal = Goal { bootstraps: Bootstraps::Never, ..Goal::default() };
        let ms = costs.server_ms(&plan(&dlrm, &weights, goal, &costs).unwrap());
        assert!(ms > before, "{degree}: {ms} after {before}");
        before = ms;
    }
}
