//! Plans in bundles, and what clients are told.

use hushtable_infer::Platform;
use hushtable_infer::hybrid::network::{CompileSpec, Error, Network, compile};
use hushtable_infer::hybrid::program::{Convolution, Program, Rounding, Shape, Stage, Term};
use hushtable_infer::hybrid::{self, Outline, Party, Plan, TERMS_BYTES_MAX, Terms};
use hushtable_table::Version;
use hushtable_table::model::{self, Model};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::graphs::Graph;

fn graph() -> Graph {
    let mut own = Graph::new([2, 6, 6], 1);
    own.conv(4, [3, 3], [1, 1], [1; 4], 1);
    own.norm(0.1);
    own.relu();
    own.pool("max_pool", [2, 2], [2, 2]);
    own.conv(4, [3, 3], [1, 1], [1; 4], 1);
    own.add(3);
    own.relu();
    own.flatten();
    own.linear(3);
    own
}

fn plan(network: &Network) -> Plan {
    Plan::of(&compile(network, &CompileSpec::default()).unwrap())
}

fn terms() -> Terms {
    plan(&graph().network()).terms("net", &Version::from([7; 32])).unwrap()
}

#[test]
fn a_bundle_keeps_a_plan_and_its_weights_are_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (dense, out) = (folder.path().join("dense"), folder.path().join("net"));
    let mut graph = graph();
    std::fs::write(&dense, graph.network().to_safetensors().unwrap()).unwrap();
    model::write(&out, "net", &[], &[], Some(&dense)).unwrap();
    let bundle = Model::open(&out).unwrap();
    let network = Network::from_bundle(&bundle).unwrap();
    let compiled = compile(&network, &CompileSpec::default()).unwrap();
    let plan = Plan::of(&compiled);
    plan.write(&bundle, "private").unwrap();
    assert!(out.join("plans/private.hybrid.json").is_file());
    let read = Plan::read(&bundle, "private").unwrap();
    assert_eq!(read.program, plan.program);
    assert_eq!(read.weights(&network).unwrap(), compiled.weights);
    assert!(plan.describe().contains("n2"));

    // Other weights of the same shapes are not what the plan was made with; nor are other stages.
    graph.tensors.get_mut("t0").unwrap().values[0] += 0.25;
    let error = read.weights(&graph.network()).unwrap_err();
    assert!(matches!(error, Error::OtherNetwork { .. }), "{error}");
    graph.relu();
    graph.linear(2);
    let error = read.weights(&graph.network()).unwrap_err();
    assert!(matches!(error, Error::OtherNetwork { .. }), "{error}");

    // A plan of the other scheme is not read as one of this.
    bundle.write_plan("clicks", "ckks", &plan.to_json()).unwrap();
    let error = Plan::read(&bundle, "clicks").unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert!(matches!(Plan::read(&bundle, "none").unwrap_err(), Error::Bundle(_)));
}

#[test]
fn terms_come_back_as_they_were_and_change_with_what_they_say() {
    let terms = terms();
    let read = Terms::parse(&terms.to_bytes()).unwrap();
    assert_eq!(read, terms);
    assert_eq!((read.id(), read.model()), (terms.id(), "net"));
    let plan = plan(&graph().network());
    let mut ids = vec![terms.id()];
    ids.push(plan.terms("other", &Version::from([7; 32])).unwrap().id());
    ids.push(plan.terms("net", &Version::from([8; 32])).unwrap().id());
    let mut weights = plan.clone();
    weights.weights = Version::from([1; 32]);
    ids.push(weights.terms("net", &Version::from([7; 32])).unwrap().id());
    let mut bits = plan.clone();
    bits.program.bits += 1;
    ids.push(bits.terms("net", &Version::from([7; 32])).unwrap().id());
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 5);
    for name in ["", "a\nb", &"x".repeat(200)] {
        assert!(plan.terms(name, &Version::from([7; 32])).is_err(), "{name:?}");
    }
}

/// Terms with one entry changed.
fn forged(pointer: &str, with: Value) -> Result<Terms, Error> {
    let mut json: Value = serde_json::from_slice(&terms().to_bytes()).unwrap();
    *json.pointer_mut(pointer).unwrap_or_else(|| panic!("{pointer}")) = with;
    // In the order of the entries, which only `Program` itself knows.
    let program: Program = serde_json::from_value(json["program"].take())
        .map_err(|error| Error::Refused { what: "terms", why: error.to_string() })?;
    let post = serde_json::from_value(json["post"].take()).unwrap_or_default();
    let max = json["input_max"].as_u64().unwrap_or(0);
    Terms::new(json["model"].as_str().unwrap_or(""), Version::from([7; 32]), program, post, max)
}

#[test]
fn hostile_terms_are_refused() {
    let numbers = [
        ("/program/bits", 15),
        ("/program/bits", 65),
        ("/program/fraction", 29),
        ("/program/fraction", 13),
        ("/program/input/channels", 0),
        ("/program/input/channels", 3),
        ("/program/input/channels", 1 << 40),
        ("/program/stages/0/fraction", 11),
        ("/program/stages/0/fraction", 25),
        ("/program/stages/0/fraction", u32::MAX.into()),
        ("/program/stages/0/sum/channels", 5),
        ("/program/stages/0/sum/height", u64::MAX),
        ("/program/stages/0/activation/shift", 11),
        ("/program/stages/0/activation/shift", 64),
        ("/program/stages/0/activation/window/0", 0),
        ("/program/stages/0/activation/window/0", 7),
        ("/program/stages/0/terms/0/convolution/source", 1),
        ("/program/stages/0/terms/0/convolution/source", u64::MAX),
        ("/program/stages/0/terms/0/convolution/shift", 40),
        ("/program/stages/0/terms/0/convolution/shift", u32::MAX.into()),
        ("/program/stages/0/terms/0/convolution/convolution/outputs", 0),
        ("/program/stages/0/terms/0/convolution/convolution/outputs", u64::MAX),
        ("/program/stages/0/terms/0/convolution/convolution/stride/0", 0),
        ("/program/stages/0/terms/0/convolution/convolution/kernel/0", 0),
        ("/program/stages/0/terms/0/convolution/convolution/kernel/1", 1 << 33),
        ("/program/stages/0/terms/0/convolution/convolution/pad/3", 1 << 50),
        ("/program/stages/1/terms/1/windows/window/0", 0),
        ("/program/stages/1/terms/1/windows/window/1", 9),
        ("/program/stages/1/terms/1/windows/stride/1", 0),
        ("/program/stages/1/terms/1/windows/source", 2),
        ("/program/stages/1/terms/1/windows/input/width", 4),
        ("/program/stages/1/terms/1/windows/shift", 13),
        ("/input_max", 0),
        ("/input_max", u64::MAX),
    ];
    for (pointer, with) in numbers {
        let found = forged(pointer, json!(with));
        assert!(found.is_err(), "{pointer} = {with}");
    }
    let others = [
        ("/program/stages", json!([])),
        ("/program/stages/0/terms", json!([])),
        ("/program/stages/0/activation", json!(null)),
        ("/program/stages/0/name", json!("\u{1b}[31m")),
        ("/program/lattice", json!("../../etc/passwd")),
        ("/program/rounding", json!("up")),
        ("/model", json!("")),
    ];
    for (pointer, with) in others {
        assert!(forged(pointer, with.clone()).is_err(), "{pointer} = {with}");
    }
    let stage = serde_json::from_slice::<Value>(&terms().to_bytes()).unwrap();
    let stage = stage["program"]["stages"][0].clone();
    assert!(forged("/program/stages", json!(vec![stage.clone(); 1025])).is_err());
    for (rectify, most, is_good) in
        [(true, 6 << 12, true), (true, 0, false), (true, u64::MAX, false), (false, 6 << 12, false)]
    {
        let mut activation = stage["activation"].clone();
        activation["rectify"] = json!(rectify);
        activation["most"] = json!(most);
        let found = forged("/program/stages/0/activation", activation);
        assert_eq!(found.is_ok(), is_good, "{rectify} {most}: {found:?}");
    }
    let term = stage["terms"][0].clone();
    assert!(forged("/program/stages/0/terms", json!(vec![term; 65])).is_err());
}

#[test]
fn terms_are_one_text() {
    let honest = terms().to_bytes();
    let text = String::from_utf8(honest.clone()).unwrap();
    let variants = [
        text.replacen('{', "{ ", 1),
        text.replacen("\"model\":", "\"more\":1,\"model\":", 1),
        text.replacen("\"bits\":", "\"more\":1,\"bits\":", 1),
        format!("{text}\n"),
        text.replacen("\"format\":1", "\"format\":2", 1),
    ];
    for variant in variants {
        assert_ne!(variant, text);
        let error = Terms::parse(variant.as_bytes()).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
    for length in 0..honest.len() {
        assert!(Terms::parse(&honest[..length]).is_err());
    }
    assert!(Terms::parse(&vec![b' '; TERMS_BYTES_MAX + 1]).is_err());
    assert!(Terms::parse("[".repeat(1 << 20).as_bytes()).is_err());
}

proptest! {
    #[test]
    fn a_changed_byte_is_refused_or_makes_other_terms(at in any::<usize>(), with in any::<u8>()) {
        let honest = terms();
        let mut bytes = honest.to_bytes();
        let at = at % bytes.len();
        prop_assume!(bytes[at] != with);
        bytes[at] = with;
        if let Ok(found) = Terms::parse(&bytes) {
            prop_assert_ne!(found.id(), honest.id());
        }
    }

    #[test]
    fn no_plan_makes_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Plan::parse(&String::from_utf8_lossy(&bytes));
        let _ = Terms::parse(&bytes);
    }
}

#[test]
fn the_largest_terms_are_laid_out_or_refused() {
    let stage = |input: Shape, outputs, kernel: [usize; 2], stride: [usize; 2]| {
        let convolution = Convolution { input, outputs, kernel, stride, pad: [0; 4] };
        let terms = vec![Term::Convolution { source: 0, convolution, shift: 0 }];
        let sum = convolution.output();
        Stage { name: "large".into(), terms, sum, fraction: 24, activation: None }
    };
    let shape = |channels, height, width| Shape { channels, height, width };
    // Whoever announces them must not stop a client that only looks at what it was told.
    let stages = [
        stage(shape(1, 4096, 4096), 1, [1, 1], [1, 1]),
        stage(shape(1, 4096, 4096), 1, [4096, 4096], [1, 1]),
        stage(shape(1, 4096, 4096), 16, [60, 60], [1, 1]),
        stage(shape(1, 4096, 4096), 1, [1, 4096], [1, 1]),
        stage(shape(1, 4096, 4096), 1, [64, 64], [64, 64]),
        stage(shape(4096, 64, 64), 4096, [3, 3], [1, 1]),
        stage(shape(1 << 24, 1, 1), 16, [1, 1], [1, 1]),
        stage(shape(16, 1, 1), 1 << 24, [1, 1], [1, 1]),
        stage(shape(1, 1, 1 << 24), 16, [1, 1], [1, 4096]),
        stage(shape(2, 4096, 2048), 7, [5, 3], [2, 3]),
    ];
    for stage in stages {
        let input = match stage.terms[0] {
            Term::Convolution { convolution, .. } => convolution.input,
            Term::Windows { input, .. } => input,
        };
        let (bits, fraction, rounding) = (37, 12, Rounding::Nearest);
        let lattice = "linear_4096".into();
        let program = Program { bits, fraction, rounding, lattice, input, stages: vec![stage] };
        if let Ok(terms) = Terms::new("net", Version::from([7; 32]), program, Vec::new(), 1) {
            let found = Outline::new(terms.program().clone(), Platform::detect());
            if let Err(error) = found.map(|outline| outline.steps(Party::Client).len()) {
                assert!(matches!(error, hybrid::Error::Linear(_)), "{error}");
            }
        }
    }
}
