//! What is counted is what is sent and kept.

use std::sync::Arc;

use hushtable_infer::Platform;
use hushtable_infer::hybrid::network::{CompileSpec, compile, encode, reference};
use hushtable_infer::hybrid::program::Rounding;
use hushtable_infer::hybrid::{Bytes, Costs, HybridModel, Party, Precompute, Split};

use proptest::prelude::*;

use super::graphs::{Graph, made_up};

fn model(rounding: Rounding) -> (Arc<HybridModel>, Vec<u64>) {
    let mut own = Graph::new([2, 9, 8], 3);
    own.conv(4, [3, 3], [1, 1], [1; 4], 1);
    own.norm(0.2);
    own.relu();
    own.pool("max_pool", [2, 2], [2, 2]);
    own.conv(4, [3, 3], [1, 1], [1; 4], 1);
    own.add(3);
    own.relu();
    own.pool("average_pool", [2, 2], [2, 2]);
    own.conv(3, [1, 2], [1, 1], [0; 4], 1);
    own.relu();
    own.flatten();
    own.linear(5);
    let input = own.input();
    let spec = CompileSpec { rounding, ..CompileSpec::default() };
    let compiled = compile(&own.network(), &spec).unwrap();
    let input = encode(&compiled.program, compiled.input_max, &input).unwrap();
    let model = HybridModel::new(compiled.program, compiled.weights, Platform::detect()).unwrap();
    (Arc::new(model), input)
}

#[test]
fn bytes_are_those_that_are_sent() {
    for rounding in [Rounding::Nearest, Rounding::Stochastic] {
        let (model, input) = model(rounding);
        for garbler in [Party::Client, Party::Server] {
            let costs = Costs::of(model.outline(), garbler);
            let precompute = Precompute::make(&model, garbler).unwrap();
            let (offline, online) = (costs.offline(), costs.online());
            assert_eq!(precompute.bytes, [offline.up, offline.down], "{garbler:?}");
            let dither = precompute.dither.clone();
            let outcome = precompute.predict(&model, &input).unwrap();
            assert_eq!(outcome.bytes, [online.up, online.down], "{garbler:?}");
            // And it is the reference's answer, of a network with all kinds of stages.
            let program = model.outline().program();
            let dither = (rounding == Rounding::Stochastic).then_some(dither.as_slice());
            assert_eq!(outcome.output, reference(program, model.weights(), &input, dither));
            let (kept, sent) = match garbler {
                Party::Client => (costs.server_store, costs.tables.up),
                Party::Server => (costs.client_store, costs.tables.down),
            };
            assert!(kept > sent && sent > 0, "the evaluator keeps the tables");
            assert!(costs.operations.and_gates > 0 && costs.operations.multiplications > 0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_network_in_private_is_its_reference(seed in any::<u64>(), is_nearest in any::<bool>()) {
        check_made_up(seed, is_nearest);
    }
}

#[test]
fn a_network_of_tiny_sums_is_its_reference() {
    // All sums of one of its layers are below a half: by their size they need fewer bits than their fraction has.
    check_made_up(9_060_208_701_519_049_966, false);
}

fn check_made_up(seed: u64, is_nearest: bool) {
    let mut graph = made_up(seed);
    let rounding = if is_nearest { Rounding::Nearest } else { Rounding::Stochastic };
    let spec = CompileSpec { rounding, fraction: 8, ..CompileSpec::default() };
    let compiled = compile(&graph.network(), &spec).unwrap();
    let input = encode(&compiled.program, compiled.input_max, &graph.input()).unwrap();
    let model = HybridModel::new(compiled.program, compiled.weights, Platform::detect());
    let model = Arc::new(model.unwrap());
    let program = model.outline().program();
    for garbler in [Party::Client, Party::Server] {
        let costs = Costs::of(model.outline(), garbler);
        let precompute = Precompute::make(&model, garbler).unwrap();
        assert_eq!(precompute.bytes, [costs.offline().up, costs.offline().down]);
        let dither = precompute.dither.clone();
        let outcome = precompute.predict(&model, &input).unwrap();
        assert_eq!(outcome.bytes, [costs.online().up, costs.online().down]);
        let dither = (!is_nearest).then_some(dither.as_slice());
        let expected = reference(program, model.weights(), &input, dither);
        assert_eq!(outcome.output, expected, "{}", graph.json());
    }
}

#[test]
fn the_best_split_is_the_papers() {
    // U, D in megabits of ResNet-18 on TinyImageNet; Mbps up and seconds at 1,000 Mbps.
    for (up, down, up_mbps, seconds) in
        [(22_602.36, 350_883.24, 202.0, 551.60), (338_744.5, 13_476.6, 834.0, 487.35)]
    {
        let bytes = |megabits: f64| (megabits * 1e6 / 8.0) as u64;
        let split = Split::of(Bytes { up: bytes(up), down: bytes(down) }, 1_000.0);
        assert!((split.up_mbps - up_mbps).abs() < 0.6, "{split:?}");
        assert!((split.seconds - seconds).abs() < 0.01, "{split:?}");
        let at = |up_mbps: f64| up / up_mbps + down / (1_000.0 - up_mbps);
        assert!((at(split.up_mbps) - split.seconds).abs() < 1e-6);
        assert!(at(split.up_mbps + 5.0) > split.seconds && at(split.up_mbps - 5.0) > split.seconds);
        assert!((at(500.0) - split.even_seconds).abs() < 1e-6);
    }
    let nothing = Split::of(Bytes::default(), 1_000.0);
    assert_eq!((nothing.up_mbps, nothing.seconds), (500.0, 0.0));
}
