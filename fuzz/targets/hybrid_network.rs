#![no_main]

use hushtable_infer::hybrid::Plan;
use hushtable_infer::hybrid::network::{CompileSpec, Network, Op, compile, lower};
use hushtable_infer::hybrid::program::{Pool, Shape};
use libfuzzer_sys::fuzz_target;

// A model's file: its graph and its weights, and what a small one is compiled to.
fuzz_target!(|bytes: &[u8]| {
    if let Ok(network) = Network::from_safetensors(bytes) {
        if is_light(&network) {
            let _ = lower(&network);
        }
        if is_small(&network) {
            let spec = CompileSpec { lattice: Some("none".into()), ..CompileSpec::default() };
            if let Ok(compiled) = compile(&network, &spec) {
                let plan = Plan::of(&compiled);
                let plan = Plan::parse(&plan.to_json()).expect("its own text");
                assert_eq!(plan.weights(&network).expect("its own network"), compiled.weights);
            }
        }
        let again = network.to_safetensors().expect("what was read can be written");
        assert_eq!(Network::from_safetensors(&again).expect("a network").nodes(), network.nodes());
    }
});

/// Whether the zeros between its weights are few: a network may have gigabytes of them.
fn is_light(network: &Network) -> bool {
    let is_few = |shape: Shape| shape.channels <= 1 << 10 && shape.count() <= 1 << 20;
    let has_few = |pool: Pool| pool.kernel.iter().chain(&pool.pad).all(|&side| side <= 16);
    network.nodes().len() <= 32
        && is_few(network.input())
        && network.nodes().iter().all(|node| {
            let has_few = match node.op {
                Op::MaxPool(pool) | Op::AveragePool(pool) => has_few(pool),
                _ => true,
            };
            has_few && is_few(node.shape)
        })
}

/// Whether it is run in no time.
fn is_small(network: &Network) -> bool {
    let is_small = |shape: Shape| shape.count() <= 1 << 6;
    let nodes = network.nodes();
    is_light(network)
        && nodes.len() <= 16
        && is_small(network.input())
        && nodes.iter().all(|node| is_small(node.shape))
}
