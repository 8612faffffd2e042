//! Predictions on shares equal the reference bit for bit, come near the float model's, and show neither server a thing.

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::bench::described;
use super::client::{Dealt, deal, deal_from, open};
use super::dense::whole;
use super::linear::Sums;
use super::price::{Model, features};
use super::stream::random_seed;
use super::{
    Error, Half, Network, Outline, Progress, Ranges, Server, Session, StepOutline, reference, run,
};
use crate::dlrm::reference::forward;
use crate::dlrm::spec::{ABSENT, Activation, Dlrm, DlrmSpec, Interaction};

fn spec(bottom: &[usize], top: &[usize], rows: &[u64], activates_last: bool) -> DlrmSpec {
    let names: Vec<String> = (0..rows.len()).map(|index| format!("C{index}")).collect();
    let features: Vec<_> =
        names.iter().zip(rows).map(|(name, &rows)| (name.as_str(), rows, 1)).collect();
    let spec = described(13, bottom, top, &features);
    DlrmSpec { bottom_activates_last: activates_last, threshold: 64, ..spec }
}

/// The same with a bag for each feature.
fn pooled(mut spec: DlrmSpec, bags: &[usize]) -> DlrmSpec {
    spec.features.iter_mut().zip(bags).for_each(|(feature, bag)| feature.bag = *bag);
    spec
}

fn model(spec: DlrmSpec, fraction_bits: u32, value_bits: u32, seed: u64) -> Model {
    Model::synthetic(spec, fraction_bits, value_bits, seed).unwrap()
}

/// The rows that indices mean: their bytes, feature after feature, and their values summed by feature.
fn looked_up(model: &Model, indices: &[u64]) -> (Vec<u8>, Vec<i64>) {
    let places = model.dlrm.places(indices).unwrap();
    let summed = reference::summed(&model.network, &places);
    (model.rows(indices).unwrap(), summed)
}

fn split(bytes: &[u8], rng: &mut ChaCha12Rng) -> [Vec<u8>; 2] {
    let left: Vec<u8> = bytes.iter().map(|_| rng.random()).collect();
    let right = bytes.iter().zip(&left).map(|(byte, left)| byte ^ left).collect();
    [left, right]
}

/// The logit on shares, the reference's for the same draws, and the float model's.
fn logits(model: &Model, seed: u64) -> [f64; 3] {
    let (dense, indices) = features(&model.dlrm, seed);
    let (bytes, values) = looked_up(model, &indices);
    let [left, right] = split(&bytes, &mut ChaCha12Rng::seed_from_u64(seed));
    let outline = model.network.outline();
    let dealt = deal(outline, &dense).unwrap();
    assert_eq!(2 * dealt.common.len() + dealt.left.len() + dealt.right.len(), outline.up_bytes());
    let mut session = Session::start(&model.network, &dealt, [&left, &right]).unwrap();
    let shares = session.finish().unwrap();
    assert_eq!(session.sent.len(), outline.rounds());
    for side in 0..2 {
        let bytes: usize = session.sent.iter().map(|sent| sent[side].len()).sum();
        assert_eq!(bytes, outline.peer_bytes());
    }
    let found = open(outline, &shares[0], &shares[1]).unwrap();
    let drawn = &session.servers[0].drawn;
    let numbers = whole(outline, &dense).unwrap();
    let expected =
        reference::logit(&model.network, &numbers, &values, |layer, output| drawn[layer][output]);
    let one = f64::from(1_u32 << outline.fraction_bits);
    let float = forward(&model.dlrm, &model.weights, &dense, &indices).unwrap().logit;
    [found, expected as f64 / one, float]
}

#[test]
fn a_logit_is_the_references_bit_for_bit() {
    let shapes = [
        spec(&[32, 8], &[24, 1], &[10, 300, 5], false),
        spec(&[32, 8], &[24, 16, 1], &[10, 300, 5], true),
        // Nothing but linear layers below, and above.
        spec(&[8], &[24, 1], &[10, 40], false),
        spec(&[16, 8], &[1], &[10], true),
        // Dot products, of what an activation made and of what none did.
        DlrmSpec { interaction: Interaction::Dot, ..spec(&[16, 8], &[24, 1], &[10, 300, 5], true) },
        DlrmSpec {
            interaction: Interaction::Dot,
            ..spec(&[16, 8], &[24, 1], &[10, 300, 5], false)
        },
        DlrmSpec { interaction: Interaction::Dot, ..spec(&[8], &[1], &[10, 5], false) },
        // Histories, of whole ids and of digits, some of them short or empty.
        pooled(spec(&[32, 8], &[24, 1], &[10, 300, 5], false), &[1, 4, 20]),
        pooled(
            DlrmSpec {
                interaction: Interaction::Dot,
                ..spec(&[16, 8], &[24, 1], &[10, 300], true)
            },
            &[150, 2],
        ),
    ];
    for (index, spec) in shapes.into_iter().enumerate() {
        for value_bits in [8, 16] {
            let model = model(spec.clone(), 10, value_bits, 7 + index as u64);
            for seed in 0..20 {
                let [found, expected, float] = logits(&model, seed);
                assert_eq!(found, expected, "shape {index}, {value_bits} bits, seed {seed}");
                assert!(
                    (found - float).abs() < 0.1,
                    "{found} and {float}: shape {index}, seed {seed}"
                );
            }
        }
    }
}

#[test]
fn absent_ids_are_looked_up_and_add_nothing() {
    let spec = pooled(spec(&[16, 8], &[24, 1], &[10, 300], true), &[6, 2]);
    let model = model(spec, 10, 8, 4);
    let (tables, outline) = (model.network.tables(), model.network.outline());
    // 300 rows are five digits of base 4, whose table has 20 rows; one of zeros comes after.
    assert_eq!([tables[0].rows(), tables[1].rows()], [11, 21]);
    assert_eq!(outline.lookups.iter().map(|it| it.rows).collect::<Vec<_>>(), [6, 10]);
    let short = [3, 9, ABSENT, ABSENT, 3, ABSENT, 299, ABSENT];
    let (bytes, sums) = looked_up(&model, &short);
    assert_eq!(bytes.len(), 16 * 8, "as long as that of a full history");
    let row = |table: usize, place: usize| tables[table].values(tables[table].row(place));
    let first = row(0, 3).into_iter().zip(row(0, 9)).map(|(x, y)| i64::from(2 * x + y));
    assert_eq!(sums[..8], first.collect::<Vec<_>>());
    assert!(row(0, 10).iter().chain(&row(1, 20)).all(|value| *value == 0));
    let dense = [0.5; 13];
    let logit = |indices: &[u64]| forward(&model.dlrm, &model.weights, &dense, indices);
    let turned = [ABSENT, 3, 3, ABSENT, ABSENT, 9, ABSENT, 299];
    let near = (logit(&short).unwrap().logit - logit(&turned).unwrap().logit).abs();
    assert!(near < 1e-9, "{near}");
    assert!((logit(&short).unwrap().logit - logit(&[ABSENT; 8]).unwrap().logit).abs() > 1e-3);
    assert!(matches!(
        logit(&short[1..]),
        Err(crate::dlrm::Error::Count { expected: 8, found: 7, .. })
    ));
}

#[test]
fn a_criteo_shaped_logit_is_within_a_thousandth_of_the_float_models() {
    let rows = [40; 26];
    let model = model(spec(&[512, 256, 64, 16], &[512, 256, 1], &rows, false), 14, 8, 3);
    for seed in 0..4 {
        let [found, expected, float] = logits(&model, seed);
        assert_eq!(found, expected);
        assert!((found - float).abs() <= 1.0 / 1024.0, "{found} and {float}");
    }
}

#[test]
fn two_runs_round_differently_and_on_average_to_the_number_itself() {
    let model = model(spec(&[32, 8], &[24, 1], &[10, 300, 5], false), 4, 8, 9);
    let (dense, indices) = features(&model.dlrm, 1);
    let (bytes, _) = looked_up(&model, &indices);
    let [left, right] = split(&bytes, &mut ChaCha12Rng::seed_from_u64(1));
    let found: Vec<f64> =
        (0..400).map(|_| run(&model.network, &dense, [&left, &right]).unwrap()).collect();
    assert!(found.iter().any(|logit| *logit != found[0]), "rounding is by chance");
    let dense: Vec<f64> =
        whole(model.network.outline(), &dense).unwrap().iter().map(|x| *x as f64 / 16.0).collect();
    let float = forward(&model.dlrm, &model.weights, &dense, &indices).unwrap().logit;
    let mean = found.iter().sum::<f64>() / found.len() as f64;
    // A logit's steps are of 1/16; each of a few roundings is off by half a step at most, and a bias would add up.
    assert!((mean - float).abs() < 0.03, "{mean} and {float}");
}

#[test]
fn what_is_not_the_models_is_refused() {
    let model = model(spec(&[32, 8], &[24, 1], &[10, 300, 5], false), 10, 8, 1);
    let outline = model.network.outline();
    let (dense, indices) = features(&model.dlrm, 1);
    let (rows, _) = looked_up(&model, &indices);
    assert!(matches!(
        deal(outline, &dense[1..]),
        Err(Error::Count { what: "dense features", expected: 13, found: 12 })
    ));
    for bad in [f64::NAN, f64::INFINITY, 1e9, -20_000.0] {
        let dense = [&[bad], &dense[1..]].concat();
        assert!(matches!(deal(outline, &dense), Err(Error::Feature { index: 0, .. })), "{bad}");
    }
    let dealt = deal(outline, &dense).unwrap();
    let start = |common: &[u8], own: &[u8], rows: &[u8]| {
        let network = Arc::clone(&model.network);
        Server::start(network, Half::Right, common, own, rows, &[0; 32]).map(drop)
    };
    assert!(start(&dealt.common, &dealt.right, &rows).is_ok());
    for outcome in [
        start(&dealt.common[1..], &dealt.right, &rows),
        start(&dealt.common, &dealt.right[1..], &rows),
        start(&dealt.common, &dealt.left, &rows),
        start(&dealt.common, &dealt.right, &rows[1..]),
    ] {
        assert!(matches!(outcome, Err(Error::Bytes { .. })), "{outcome:?}");
    }
    // A message that is cut, and one after the end.
    let session = || Session::start(&model.network, &dealt, [&rows, &vec![0; rows.len()]]).unwrap();
    let mut cut = session();
    let message = cut.messages[1].clone();
    assert!(cut.servers[0].step(&message[1..]).is_err());
    assert!(matches!(cut.servers[0].step(&message), Err(Error::Finished)));
    let mut whole = session();
    whole.finish().unwrap();
    assert!(matches!(whole.servers[0].step(&message), Err(Error::Finished)));
    let short = open(outline, &[0; 1], &[0; 4]);
    assert!(matches!(short, Err(Error::Bytes { .. })));
}

#[test]
fn layers_that_do_not_fit_are_named() {
    let spec = spec(&[32, 8], &[24, 1], &[10], false);
    let built = model(spec.clone(), 10, 8, 1);
    let (mut dense, indices) = features(&built.dlrm, 1);
    dense.iter_mut().for_each(|x| *x *= 100.0);
    let ranges = Ranges::of(&built.dlrm, &built.weights, [(&dense[..], &indices[..])]).unwrap();
    let compile = |ranges: &Ranges, fraction_bits, value_bits| {
        Network::compile(&built.dlrm, &built.weights, ranges, fraction_bits, value_bits)
            .unwrap_err()
            .to_string()
    };
    assert!(compile(&ranges, 20, 8).starts_with("bottom 0 reaches"));
    assert!(compile(&Ranges::default(), 10, 8).contains("bottom 0"));
    assert!(compile(&ranges, 10, 9).contains("8 or 16"));
    let squares = Dlrm::new(DlrmSpec { activation: Activation::Square, ..spec.clone() }).unwrap();
    let refused = Network::compile(&squares, &built.weights, &ranges, 10, 8).unwrap_err();
    assert!(refused.to_string().contains("relu"));
    // Trained with another function than shares compute.
    let trained = Dlrm::new(DlrmSpec { relu_degree: Some(63), ..spec }).unwrap();
    let refused = Network::compile(&trained, &built.weights, &ranges, 10, 8).unwrap_err();
    assert!(refused.to_string().contains("relu_degree"), "{refused}");
}

/// Everything that a server sees of an inference: what it was dealt, its rows' shares and the other's messages.
fn views(
    model: &Model,
    dense: &[f64],
    rows: &[u8],
    leaks: bool,
    rng: &mut ChaCha12Rng,
) -> [Vec<u8>; 2] {
    let outline = model.network.outline();
    let [left, right] = split(rows, rng);
    let dealt: Dealt = match leaks {
        false => deal(outline, dense).unwrap(),
        // A dealer whose own randomness is the same each time: r is used again and again.
        true => {
            let seeds = [[3; 32].into(), random_seed().unwrap(), random_seed().unwrap()];
            deal_from(outline, dense, &seeds).unwrap()
        }
    };
    let mut session = Session::start(&model.network, &dealt, [&left, &right]).unwrap();
    session.finish().unwrap();
    let sent =
        |side: usize| session.sent.iter().flat_map(|sent| sent[side].clone()).collect::<Vec<_>>();
    // X and D, which both compute, are each server's own message and the other's.
    let opened = |side: usize| {
        let (own, other) = (sent(side), sent(1 - side));
        own.iter().zip(&other).map(|(own, other)| own.wrapping_add(*other)).collect::<Vec<_>>()
    };
    [
        [&dealt.common, &dealt.left, &left, &sent(1), &opened(0)].map(Vec::as_slice).concat(),
        [&dealt.common, &dealt.right, &right, &sent(0), &opened(1)].map(Vec::as_slice).concat(),
    ]
}

/// Per bit of a view, how often it is set for two users that differ in all they have: a classifier of single bits
/// would use the largest difference. Neither server has one; both have where a mask is used twice.
#[test]
fn neither_servers_whole_view_tells_two_users_apart() {
    let model = model(spec(&[8, 4], &[8, 1], &[4, 4], true), 6, 8, 2);
    let users = [(vec![-1.0; 13], vec![0, 1]), (vec![2.0; 13], vec![3, 2])];
    let rows = users.each_ref().map(|(_, indices)| looked_up(&model, indices).0);
    let mut rng = ChaCha12Rng::seed_from_u64(5);
    const RUNS: i32 = 2000;
    let mut furthest = |leaks: bool| {
        let mut largest = [0; 2];
        let mut counts: [Vec<i32>; 2] = Default::default();
        for _ in 0..RUNS {
            for (user, sign) in [(0, 1), (1, -1)] {
                let seen = views(&model, &users[user].0, &rows[user], leaks, &mut rng);
                for (view, counts) in seen.iter().zip(&mut counts) {
                    counts.resize(8 * view.len(), 0);
                    for (bit, count) in counts.iter_mut().enumerate() {
                        *count += sign * i32::from(view[bit / 8] >> (bit % 8) & 1);
                    }
                }
            }
        }
        for (largest, counts) in largest.iter_mut().zip(&counts) {
            *largest = counts.iter().map(|count| count.abs()).max().unwrap();
        }
        largest
    };
    // The difference of two counts of 2,000 fair bits has a deviation of 32; 7 of them among 20,000 bits are chance
    // once in 10^7 runs.
    let bound = (7.0 * f64::from(RUNS / 2).sqrt()) as i32;
    let found = furthest(false);
    assert!(found.iter().all(|it| *it < bound), "{found:?} of {bound}");
    let planted = furthest(true);
    assert!(
        planted.iter().all(|it| *it > bound),
        "a mask that is used twice is not seen: {planted:?}"
    );
}

#[test]
fn a_server_that_is_stepped_wrongly_says_so() {
    let model = model(spec(&[8, 4], &[8, 1], &[4], true), 6, 8, 2);
    let (dense, indices) = features(&model.dlrm, 1);
    let (rows, _) = looked_up(&model, &indices);
    let dealt = deal(model.network.outline(), &dense).unwrap();
    let network = Arc::clone(&model.network);
    let (mut server, first) =
        Server::start(network, Half::Left, &dealt.common, &dealt.left, &rows, &[1; 32]).unwrap();
    let Progress::Send(first) = first else { panic!("it begins with a message") };
    // Its own message is as long as the other's: what it says is wrong, but nothing panics.
    assert!(server.step(&first).is_ok());
    assert!(server.step(&[]).is_err());
}

/// What is dealt and what the other server says come from outside: of the right length they give numbers, of another an
/// error, and after either it is over.
#[test]
fn bytes_from_anyone_give_numbers_or_errors() {
    let mut rng = ChaCha12Rng::seed_from_u64(8);
    let concat = spec(&[8, 4], &[8, 1], &[4, 100], true);
    let dot = DlrmSpec { interaction: Interaction::Dot, ..concat.clone() };
    for model in [concat, dot].map(|spec| model(spec, 6, 8, 2)) {
        let outline = model.network.outline();
        let mut ended = 0;
        for case in 0..600 {
            let mut bytes = |count: usize| (0..count).map(|_| rng.random()).collect::<Vec<u8>>();
            let half = [Half::Left, Half::Right][case % 2];
            let own = [outline.left_bytes(), outline.right_bytes()][case % 2];
            let (common, own) = (bytes(outline.common_bytes()), bytes(own));
            let rows = bytes(outline.looked_bits() / 8);
            let network = Arc::clone(&model.network);
            let (mut server, mut progress) =
                Server::start(network, half, &common, &own, &rows, &[1; 32]).unwrap();
            // One message of a few is cut, or too long.
            let bad = case % 16;
            let mut round = 0;
            while let Progress::Send(sent) = progress {
                let mut message = bytes(sent.len());
                // Of numbers that fill no whole bytes the rest is zeros; an own message has them.
                message.iter_mut().zip(&sent).for_each(|(byte, sent)| *byte &= sent);
                let is_bad = round == bad;
                if is_bad && case % 3 == 0 {
                    message.pop();
                } else if is_bad {
                    message.push(0);
                }
                round += 1;
                match server.step(&message) {
                    Ok(next) => {
                        assert!(!is_bad, "a message of another length is taken");
                        progress = next;
                    }
                    Err(error) => {
                        assert!(is_bad, "{error}");
                        break;
                    }
                }
            }
            ended += usize::from(round > bad);
            assert!(matches!(server.step(&[]), Err(Error::Finished)));
        }
        assert!(ended > 100, "{ended}");
    }
}

#[test]
fn an_outline_that_no_model_has_is_refused() {
    let model = model(spec(&[8, 4], &[8, 1], &[4, 100], true), 6, 8, 2);
    let good = model.network.outline();
    let (dense, _) = features(&model.dlrm, 1);
    let refused = |change: &dyn Fn(&mut Outline)| {
        let mut outline = good.clone();
        change(&mut outline);
        let outcome = deal(&outline, &dense);
        assert!(matches!(outcome, Err(Error::Unsupported { .. })), "{outline:?}");
        assert!(open(&outline, &[0; 4], &[0; 4]).is_err());
    };
    refused(&|it| it.fraction_bits = 40);
    refused(&|it| it.dense = usize::MAX);
    refused(&|it| it.logit_bits = 0);
    refused(&|it| it.logit_bits = 33);
    refused(&|it| it.lookups[0].value_bits = 12);
    refused(&|it| it.lookups[0].rows = usize::MAX);
    for step in [
        StepOutline::Relu { count: 1, bits: 0 },
        StepOutline::Lift { count: 1, bits: 2 },
        StepOutline::Relu { count: 1, bits: 33 },
        StepOutline::Lift { count: usize::MAX, bits: 9 },
        StepOutline::Products { vectors: 1 << 40, dim: 1 },
    ] {
        refused(&|it| it.steps.push(step));
    }
}

/// A scale that was rounded up counts as often as a history is long.
#[test]
fn the_longest_histories_fit_what_they_are_lifted_from() {
    let mut closest = 0_f64;
    // Of values up to a half these come near to a power of two, above and below.
    for (bag, seed) in (500..540).flat_map(|bag| (0..30).map(move |seed| (bag, seed))) {
        let dot = DlrmSpec { interaction: Interaction::Dot, ..spec(&[8, 4], &[8, 1], &[9], false) };
        // The longest ones leave too little room for the layers behind them.
        let Ok(model) = Model::synthetic(pooled(dot, &[bag]), 10, 16, seed) else { continue };
        let (layer, step) = model
            .network
            .steps
            .iter()
            .find(|(layer, _)| matches!(layer.sums, Sums::Scaled(_)))
            .expect("rows of tables have scales");
        let (Sums::Scaled(scales), StepOutline::Lift { bits, .. }) = (&layer.sums, step) else {
            panic!("{step:?}")
        };
        let largest = f64::from(scales.iter().copied().max().unwrap());
        let largest =
            largest * f64::from((1 << 15) - 1) * bag as f64 / 2_f64.powi(layer.cut as i32);
        let room = 2_f64.powi(*bits as i32 - 2);
        assert!(largest <= room, "histories of {bag}: {largest} and {room}");
        closest = closest.max(largest / room);
    }
    assert!(closest > 0.99, "{closest}");
}
