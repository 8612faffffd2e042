//! Both halves of hybrid inference against the integer reference, and against each other's mistakes.

use std::sync::Arc;

use hushtable_infer::Platform;
use hushtable_infer::hybrid::network::reference;
use hushtable_infer::hybrid::program::{
    Activation, Convolution, Pool, Program, Rounding, Shape, Stage, Term, Weights,
};
use hushtable_infer::hybrid::records::Memory;
use hushtable_infer::hybrid::{
    Error, HybridModel, Next, OfflineClient, OfflineServer, OnlineClient, OnlineServer, Outline,
    Parallel, Party, Precompute, Records, Step, linear,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

const BITS: u32 = 37;
const FRACTION: u32 = 8;

/// A convolution, a residual block that halves the image, a pool, and a fully connected layer. The pool's windows lie
/// side by side, or with odd seeds they overlap, and pads are in them. The block gives at most a quarter.
fn small(rounding: Rounding, seed: u64) -> (Program, Weights) {
    let input = Shape { channels: 2, height: 9, width: 8 };
    let shape = |input: Shape, outputs, kernel, stride, pad| Convolution {
        input,
        outputs,
        kernel: [kernel; 2],
        stride: [stride; 2],
        pad: [pad; 4],
    };
    let conv = |source, convolution| Term::Convolution { source, convolution, shift: 0 };
    let active = |pool| Some(Activation::of(true, pool, FRACTION));
    let at_most = |activation: Option<Activation>| {
        activation.map(|own| Activation { most: Some(1 << (FRACTION - 2)), ..own })
    };
    let pool = match seed % 2 {
        0 => Pool::side_by_side([2, 2]),
        _ => Pool { kernel: [3, 3], stride: [2, 2], pad: [0, 1, 0, 0] },
    };
    let first = shape(input, 3, 3, 1, 1);
    let one = first.output();
    let second = shape(one, 4, 3, 2, 1);
    let aside = shape(one, 4, 1, 2, 0);
    let two = second.output();
    let last_input = Shape { channels: 4, height: 2, width: 2 };
    let flat = Shape { channels: last_input.count(), height: 1, width: 1 };
    let last = shape(flat, 3, 1, 1, 0);
    let stage = |name: &str, terms, sum, fraction, activation| Stage {
        name: name.to_owned(),
        terms,
        sum,
        fraction,
        activation,
    };
    let twice = 2 * FRACTION;
    let stages = vec![
        stage("first", vec![conv(0, first)], one, twice, active(Pool::NONE)),
        stage(
            "block",
            vec![conv(1, second), conv(1, aside)],
            two,
            twice,
            at_most(active(Pool::NONE)),
        ),
        stage(
            "sum",
            vec![
                conv(2, shape(two, 4, 3, 1, 1)),
                Term::Windows {
                    source: 2,
                    input: two,
                    window: [1; 2],
                    stride: [1; 2],
                    shift: FRACTION,
                },
            ],
            two,
            twice,
            active(pool),
        ),
        stage("answer", vec![conv(3, last)], last.output(), twice, None),
    ];
    let mut program =
        Program { bits: BITS, fraction: FRACTION, rounding, lattice: String::new(), input, stages };
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let convolutions: Vec<Vec<i32>> = program
        .convolutions()
        .map(|(.., shape)| (0..shape.weights()).map(|_| rng.random_range(-300..300)).collect())
        .collect();
    let biases = program
        .stages
        .iter()
        .map(|stage| (0..stage.sum.channels).map(|_| rng.random_range(-40_000..40_000)).collect());
    let weights = Weights { biases: biases.collect(), convolutions };
    let shapes: Vec<_> = program.convolutions().map(|(.., shape)| shape).collect();
    let parts: Vec<_> =
        shapes.iter().copied().zip(weights.convolutions.iter().map(Vec::as_slice)).collect();
    program.lattice = linear::choose(BITS, &parts, false, Platform::detect()).unwrap().to_owned();
    (program, weights)
}

pub fn input(program: &Program, seed: u64) -> Vec<u64> {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let numbers = (0..program.input.count()).map(|_| rng.random_range(-512i64..512) as u64);
    numbers.map(|number| number & program.mask()).collect()
}

pub fn model(rounding: Rounding, seed: u64) -> Arc<HybridModel> {
    let (program, weights) = small(rounding, seed);
    Arc::new(HybridModel::new(program, weights, Platform::detect()).unwrap())
}

/// The same, of which uploads are proven to be encryptions.
pub fn proven_model(rounding: Rounding, seed: u64) -> Arc<HybridModel> {
    let (mut program, weights) = small(rounding, seed);
    program.lattice = "linear_8192_verified".to_owned();
    Arc::new(HybridModel::new(program, weights, Platform::detect()).unwrap())
}

const BOTH: [Party; 2] = [Party::Client, Party::Server];

/// For either garbler, with and without proofs of uploads.
fn models(rounding: Rounding, seed: u64) -> impl Iterator<Item = (Party, Arc<HybridModel>)> {
    let own = [model(rounding, seed), proven_model(rounding, seed)];
    own.into_iter().flat_map(|own| BOTH.map(|garbler| (garbler, Arc::clone(&own))))
}

/// What a server answers to a client of which one row of the proof does not hold.
#[test]
fn nothing_is_computed_for_a_client_whose_proof_does_not_hold() {
    for garbler in BOTH {
        let model = proven_model(Rounding::Stochastic, 1);
        let memory = || Arc::new(Memory::default()) as Arc<dyn Records>;
        let theirs = OfflineServer::new(Arc::clone(&model), garbler, memory()).unwrap();
        let outline = Arc::clone(model.outline());
        let ours = OfflineClient::new(outline, garbler, Parallel::Sequential, memory()).unwrap();
        let steps = model.outline().steps(garbler);
        let mut refused = 0;
        while let Next::Step(step) = ours.next() {
            let mut request = ours.request(step).unwrap();
            let kind = steps[step as usize];
            let is_false = matches!(kind, Step::Prove { row: 4, .. });
            if is_false {
                request[50] ^= 1;
            }
            match (kind, theirs.answer(step, &request)) {
                (Step::Prove { row: 4, .. }, found) => {
                    assert!(matches!(found, Err(Error::Linear(own)) if own.is_unproven()));
                    // It goes on as if nothing had been said.
                    ours.accept(step, &[]).unwrap();
                    refused += 1;
                }
                (Step::Unit { .. }, found) => {
                    assert!(matches!(found, Err(Error::Linear(own)) if own.is_unproven()));
                    refused += 1;
                    break;
                }
                (_, found) => ours.accept(step, &found.unwrap()).unwrap(),
            }
        }
        assert_eq!(refused, 2, "{garbler:?}");
    }
}

#[test]
fn what_is_computed_in_private_is_the_reference_bit_for_bit() {
    for garbler in BOTH {
        for rounding in [Rounding::Nearest, Rounding::Stochastic] {
            for seed in 0..3 {
                let model = if seed == 2 { proven_model } else { model }(rounding, seed);
                let program = model.outline().program();
                let x = input(program, seed);
                let precompute = Precompute::make(&model, garbler).unwrap();
                let dither = (rounding == Rounding::Stochastic).then(|| precompute.dither.clone());
                let expected = reference(program, model.weights(), &x, dither.as_deref());
                let found = precompute.predict(&model, &x).unwrap();
                assert_eq!(found.output, expected, "{garbler:?} {rounding:?} {seed}");
                assert!(expected.iter().any(|&value| value != 0));
            }
        }
    }
}

/// One precompute of both sides, whose records are given back.
fn make(model: &Arc<HybridModel>, garbler: Party) -> (Arc<Memory>, Arc<Memory>) {
    let (client, server) = (Arc::new(Memory::default()), Arc::new(Memory::default()));
    let theirs =
        OfflineServer::new(Arc::clone(model), garbler, Arc::clone(&server) as Arc<dyn Records>);
    let theirs = theirs.unwrap();
    let outline = Arc::clone(model.outline());
    let records = Arc::clone(&client) as Arc<dyn Records>;
    let ours = OfflineClient::new(outline, garbler, Parallel::Layers, records).unwrap();
    while let Next::Step(step) = ours.next() {
        let reply = theirs.answer(step, &ours.request(step).unwrap()).unwrap();
        ours.accept(step, &reply).unwrap();
    }
    assert!(theirs.is_complete());
    (client, server)
}

#[test]
fn steps_may_overlap_be_repeated_and_be_abandoned() {
    for (garbler, model) in models(Rounding::Nearest, 7) {
        let records = [Arc::new(Memory::default()), Arc::new(Memory::default())];
        let [client, server] = records.clone().map(|records| records as Arc<dyn Records>);
        let theirs = OfflineServer::new(Arc::clone(&model), garbler, server).unwrap();
        let outline = Arc::clone(model.outline());
        let ours = OfflineClient::new(outline, garbler, Parallel::Layers, client).unwrap();
        let mut rng = ChaCha20Rng::seed_from_u64(1);
        let mut begun = Vec::new();
        loop {
            while begun.len() < 8
                && let Next::Step(step) = ours.next()
            {
                begun.push(step);
            }
            if begun.is_empty() {
                break;
            }
            let step = begun.swap_remove(rng.random_range(0..begun.len()));
            let request = ours.request(step).unwrap();
            let reply = theirs.answer(step, &request).unwrap();
            if rng.random_range(0..4) == 0 {
                // The reply is lost: the step is begun again, with the same bytes.
                ours.abandon(step);
                continue;
            }
            assert_eq!(theirs.answer(step, &request).unwrap(), reply, "{step}");
            ours.accept(step, &reply).unwrap();
        }
        assert!(theirs.is_complete() && ours.done() == ours.steps());
    }
}

#[test]
fn a_step_is_answered_to_one_request_alone() {
    for (garbler, model) in models(Rounding::Stochastic, 3) {
        let server: Arc<dyn Records> = Arc::new(Memory::default());
        let client: Arc<dyn Records> = Arc::new(Memory::default());
        let theirs = OfflineServer::new(Arc::clone(&model), garbler, server).unwrap();
        let outline = Arc::clone(model.outline());
        let ours = OfflineClient::new(outline, garbler, Parallel::Sequential, client).unwrap();
        let steps = ours.steps();
        let error = theirs.answer(steps, &[]).unwrap_err();
        assert!(matches!(error, Error::NoStep { .. }), "{error}");
        while let Next::Step(step) = ours.next() {
            assert_eq!(ours.next(), Next::Wait);
            let request = ours.request(step).unwrap();
            let reply = theirs.answer(step, &request).unwrap();
            let mut other = request;
            match other.first_mut() {
                Some(byte) => *byte ^= 1,
                None => other.push(0),
            }
            let error = theirs.answer(step, &other).unwrap_err();
            assert!(matches!(error, Error::Changed { .. }), "{step}: {error}");
            // Too long a reply is none.
            let longer = [reply.clone(), vec![0]].concat();
            assert!(ours.accept(step, &longer).is_err(), "{step}");
            ours.accept(step, &reply).unwrap();
        }
        assert_eq!(ours.next(), Next::Done);
    }
}

#[test]
fn steps_before_what_they_need_are_refused() {
    for (garbler, model) in models(Rounding::Nearest, 4) {
        let steps = model.outline().steps(garbler).len() as u32;
        for step in 1..steps {
            let server: Arc<dyn Records> = Arc::new(Memory::default());
            let theirs = OfflineServer::new(Arc::clone(&model), garbler, server).unwrap();
            for bytes in [Vec::new(), vec![0; 100]] {
                assert!(theirs.answer(step, &bytes).is_err(), "{garbler:?} {step}");
            }
            assert!(!theirs.is_complete());
        }
    }
}

#[test]
fn frames_of_another_length_are_refused() {
    for garbler in BOTH {
        let model = model(Rounding::Nearest, 5);
        let x = input(model.outline().program(), 5);
        for wrong in 0..12 {
            let (client, server) = make(&model, garbler);
            let outline = Arc::clone(model.outline());
            let mut ours = OnlineClient::new(outline, garbler, client, &x).unwrap();
            let mut theirs = OnlineServer::new(Arc::clone(&model), garbler, server).unwrap();
            let mut frames = 0;
            let mut tampered = |frame: &mut Vec<u8>| {
                frames += 1;
                match frames > wrong {
                    true if wrong % 2 == 0 => frame.push(0),
                    true => drop(frame.pop()),
                    false => {}
                }
                frames > wrong
            };
            let refused = 'run: loop {
                while let Some(mut frame) = ours.pull() {
                    let is_wrong = tampered(&mut frame);
                    match theirs.push(&frame) {
                        Err(_) if is_wrong => break 'run true,
                        found => found.unwrap(),
                    }
                    assert!(!is_wrong, "{garbler:?} {wrong}");
                }
                let Some(mut frame) = theirs.pull().unwrap() else { break false };
                let is_wrong = tampered(&mut frame);
                match ours.push(&frame) {
                    Err(_) if is_wrong => break true,
                    found => found.unwrap(),
                }
                assert!(!is_wrong, "{garbler:?} {wrong}");
            };
            // Four stages: the input, six frames of chunks, the answer.
            assert_eq!(refused, wrong < 8, "{garbler:?} {wrong}");
        }
    }
}

#[test]
fn an_input_of_another_size_and_a_precompute_of_another_role_are_refused() {
    let model = model(Rounding::Nearest, 6);
    let x = input(model.outline().program(), 6);
    let outline = || Arc::clone(model.outline());
    let (client, server) = make(&model, Party::Server);
    let error = OnlineClient::new(outline(), Party::Server, client, &x[1..]).err().unwrap();
    assert!(matches!(error, Error::Input { expected: 144, found: 143 }), "{error}");
    let error = OnlineServer::new(Arc::clone(&model), Party::Client, server).err().unwrap();
    assert!(matches!(error, Error::Bytes { .. }), "{error}");
    let (client, _) = make(&model, Party::Server);
    let error = OnlineClient::new(outline(), Party::Client, client, &x).err().unwrap();
    assert!(matches!(error, Error::Bytes { .. }), "{error}");
}

#[test]
fn messages_say_nothing_by_their_number_or_length() {
    for garbler in BOTH {
        let model = model(Rounding::Stochastic, 8);
        let program = model.outline().program();
        let zeros = vec![0; program.input.count()];
        let runs = [input(program, 1), input(program, 2), zeros].map(|x| {
            let precompute = Precompute::make(&model, garbler).unwrap();
            let offline = precompute.bytes;
            (offline, precompute.predict(&model, &x).unwrap().bytes)
        });
        assert!(runs.iter().all(|run| *run == runs[0]), "{runs:?}");
    }
}

#[test]
fn records_have_the_sizes_that_are_announced() {
    for garbler in BOTH {
        let model = model(Rounding::Stochastic, 9);
        let (client, server) = make(&model, garbler);
        for (party, records) in [(Party::Client, client), (Party::Server, server)] {
            let expected = model.outline().record_bytes(garbler, party);
            for (record, bytes) in expected.iter().enumerate() {
                assert_eq!(records.get(record).unwrap().len() as u64, *bytes, "{party:?} {record}");
            }
            assert!(records.get(expected.len()).is_err());
        }
    }
}

#[test]
fn an_outline_follows_from_the_program_alone() {
    let (program, _) = small(Rounding::Stochastic, 1);
    let (one, two) = (
        Outline::new(program.clone(), Platform::detect()).unwrap(),
        Outline::new(program, Platform::PORTABLE).unwrap(),
    );
    for garbler in BOTH {
        assert_eq!(one.steps(garbler), two.steps(garbler));
        for party in BOTH {
            assert_eq!(one.record_bytes(garbler, party), two.record_bytes(garbler, party));
        }
    }
}
