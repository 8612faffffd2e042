//! What either party sees of a private prediction must not tell the other's secret: inputs from the server,
//! weights from the client. Views with a planted leak must be caught.

use std::sync::Arc;

use hushtable_infer::Platform;
use hushtable_infer::hybrid::Seed;
use hushtable_infer::hybrid::program::{
    Activation, Convolution, Pool, Program, Rounding, Shape, Stage, Term, Weights,
};
use hushtable_infer::hybrid::records::Memory;
use hushtable_infer::hybrid::{
    HybridModel, Next, OfflineClient, OfflineServer, OnlineClient, OnlineServer, Parallel, Party,
    Records, linear,
};

use crate::classifier::accuracy_of;

/// Views of each class to learn from, and views to be told apart.
pub const VIEWS: [usize; 2] = [80, 120];
/// Six standard deviations above a coin.
pub const CHANCE_MAX: f64 = 0.5 + 6.0 * 0.5 / 10.95;

/// A convolution, an activation and a layer; of an input of zeros, it gives the same whatever `weight` is.
pub fn model(weight: i32) -> Arc<HybridModel> {
    let input = Shape { channels: 1, height: 4, width: 4 };
    let (stride, pad) = ([1, 1], [0; 4]);
    let first = Convolution { input, outputs: 1, kernel: [3, 3], stride, pad };
    let flat = Shape { channels: 4, height: 1, width: 1 };
    let last = Convolution { input: flat, outputs: 1, kernel: [1, 1], stride, pad };
    let stage = |name: &str, source, convolution: Convolution, activation| Stage {
        name: name.to_owned(),
        terms: vec![Term::Convolution { source, convolution, shift: 0 }],
        sum: convolution.output(),
        fraction: 16,
        activation,
    };
    let activation = Some(Activation::of(true, Pool::NONE, 8));
    let stages = vec![stage("first", 0, first, activation), stage("last", 1, last, None)];
    let convolutions = vec![vec![weight; 9], vec![-weight; 4]];
    let parts = [first, last].into_iter().zip(convolutions.iter().map(Vec::as_slice));
    let parts: Vec<_> = parts.collect();
    let lattice = linear::choose(32, &parts, false, Platform::detect()).unwrap().to_owned();
    let rounding = Rounding::Stochastic;
    let program = Program { bits: 32, fraction: 8, rounding, lattice, input, stages };
    let weights = Weights { convolutions, biases: vec![vec![-1000], vec![77]] };
    Arc::new(HybridModel::new(program, weights, Platform::detect()).unwrap())
}

/// All bytes that the client got from the server, and the server from the client. Where `seed` is given,
/// both draw from it what should be fresh.
fn views(model: &Arc<HybridModel>, garbler: Party, x: u64, seed: Option<u8>) -> [Vec<u8>; 2] {
    let [client, server] = [0, 1].map(|_| Arc::new(Memory::default()) as Arc<dyn Records>);
    let outline = Arc::clone(model.outline());
    let (keep, theirs) = (Arc::clone(&client), Arc::clone(&server));
    let (ours, theirs) = match seed {
        None => (
            OfflineClient::new(Arc::clone(&outline), garbler, Parallel::Layers, keep).unwrap(),
            OfflineServer::new(Arc::clone(model), garbler, theirs).unwrap(),
        ),
        Some(seed) => {
            let draw = |own: u8| Seed::new([seed ^ own; 32]);
            (
                OfflineClient::of_seed(
                    Arc::clone(&outline),
                    garbler,
                    Parallel::Layers,
                    keep,
                    draw(0),
                )
                .unwrap(),
                OfflineServer::of_seed(Arc::clone(model), garbler, theirs, draw(1)),
            )
        }
    };
    let [mut by_client, mut by_server] = [const { Vec::new() }; 2];
    while let Next::Step(step) = ours.next() {
        let request = ours.request(step).unwrap();
        let reply = theirs.answer(step, &request).unwrap();
        ours.accept(step, &reply).unwrap();
        by_server.extend(request);
        by_client.extend(reply);
    }
    let input = vec![x & u64::from(u32::MAX); 16];
    let mut ours = OnlineClient::new(outline, garbler, client, &input).unwrap();
    let mut theirs = OnlineServer::new(Arc::clone(model), garbler, server).unwrap();
    while ours.output().is_none() {
        while let Some(frame) = ours.pull() {
            theirs.push(&frame).unwrap();
            by_server.extend(frame);
        }
        let frame = theirs.pull().unwrap().unwrap();
        ours.push(&frame).unwrap();
        by_client.extend(frame);
    }
    if x == 0 {
        assert_eq!(ours.output(), Some([77].as_slice()));
    }
    [by_client, by_server]
}

/// How well the server tells two inputs apart.
fn inputs_told(garbler: Party, seed: Option<u8>) -> f64 {
    let model = model(100);
    accuracy_of(VIEWS, |class| {
        let [_, seen] = views(&model, garbler, if class { 0x7_0000 } else { 0 }, seed);
        seen
    })
}

/// How well the client tells two models apart that answer it the same.
fn weights_told(garbler: Party, seed: Option<u8>) -> f64 {
    let models = [model(100), model(-2000)];
    accuracy_of(VIEWS, |class| {
        let [seen, _] = views(&models[usize::from(class)], garbler, 0, seed);
        seen
    })
}

#[test]
fn the_server_does_not_tell_inputs_apart() {
    for garbler in [Party::Client, Party::Server] {
        let score = inputs_told(garbler, None);
        assert!(score < CHANCE_MAX, "{garbler:?}: {score}");
    }
}

#[test]
fn the_client_does_not_tell_weights_apart() {
    for garbler in [Party::Client, Party::Server] {
        let score = weights_told(garbler, None);
        assert!(score < CHANCE_MAX, "{garbler:?}: {score}");
    }
}

#[test]
fn a_seed_that_is_used_twice_is_seen() {
    let (inputs, weights) =
        (inputs_told(Party::Server, Some(1)), weights_told(Party::Client, Some(2)));
    assert!(inputs > 0.99 && weights > 0.99, "{inputs} {weights}");
}
