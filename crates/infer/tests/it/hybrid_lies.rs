//! A server, or a client, that lies to learn the other's secret: in the transfers where it evaluates, in circuits, labels
//! and products where it garbles.

use std::sync::Arc;

use hushtable_infer::hybrid::program::Rounding;
use hushtable_infer::hybrid::records::Memory;
use hushtable_infer::hybrid::{
    Error, HybridModel, Next, OfflineClient, OfflineServer, OnlineClient, OnlineServer, Parallel,
    Party, Records, Seed, Step, linear,
};
use hushtable_mpc::ot;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

use crate::classifier::accuracy_of;
use crate::hybrid::{input, model};
use crate::hybrid_views::{CHANCE_MAX, VIEWS, model as tiny};

fn memory() -> Arc<dyn Records> {
    Arc::new(Memory::default())
}

/// Both halves of a precompute's offline phase.
fn halves(model: &Arc<HybridModel>, garbler: Party) -> (OfflineClient, OfflineServer) {
    let outline = Arc::clone(model.outline());
    let client = OfflineClient::new(outline, garbler, Parallel::Sequential, memory()).unwrap();
    (client, OfflineServer::new(Arc::clone(model), garbler, memory()).unwrap())
}

fn is_inconsistent<T>(found: Result<T, Error>) -> bool {
    matches!(found, Err(Error::Ot(ot::Error::Inconsistent)))
}

/// The client garbles, and the server's choices in a deal are not the same in every tree.
#[test]
fn a_server_that_lies_in_a_deal_gets_no_circuit_at_all() {
    let model = model(Rounding::Stochastic, 1);
    for place in [0, 1000, usize::MAX] {
        let (ours, theirs) = halves(&model, Party::Client);
        let steps = model.outline().steps(Party::Client);
        let mut lied = 0;
        while let Next::Step(step) = ours.next() {
            let request = ours.request(step).unwrap();
            let kind = steps[step as usize];
            assert!(!matches!(kind, Step::Tables { .. }), "nothing is sent under its labels");
            let honest = theirs.answer(step, &request).unwrap();
            if !matches!(kind, Step::Deal { .. }) {
                ours.accept(step, &honest).unwrap();
                continue;
            }
            let mut reply = honest.clone();
            let at = place.min(reply.len() - 1);
            reply[at] ^= 16;
            // The first lie is found, and after that nothing is taken, not even the truth.
            let reply = if lied == 0 { &reply } else { &honest };
            assert!(is_inconsistent(ours.accept(step, reply)), "byte {at}");
            assert!(is_inconsistent(ours.accept(step, &honest)));
            assert!(matches!(ours.next(), Next::Wait));
            lied += 1;
            if lied == 3 {
                break;
            }
            ours.abandon(step);
        }
        assert_eq!(lied, 3);
    }
}

/// The server garbles, and the client's choices are not the same in every tree.
#[test]
fn a_client_that_lies_in_its_choices_gets_no_circuit_at_all() {
    let model = model(Rounding::Stochastic, 1);
    let (ours, theirs) = halves(&model, Party::Server);
    let steps = model.outline().steps(Party::Server);
    let mut lied = 0;
    while let Next::Step(step) = ours.next() {
        let mut request = ours.request(step).unwrap();
        if !matches!(steps[step as usize], Step::Tables { .. }) {
            ours.accept(step, &theirs.answer(step, &request).unwrap()).unwrap();
            continue;
        }
        request[77] ^= u8::from(lied == 0);
        assert!(is_inconsistent(theirs.answer(step, &request)));
        lied += 1;
        // The next chunk of the stage.
        let others = (step + 1..steps.len() as u32)
            .take_while(|next| matches!(steps[*next as usize], Step::Tables { .. }));
        for next in others {
            assert!(is_inconsistent(theirs.answer(next, &ours.request(next).unwrap())));
            lied += 1;
        }
        break;
    }
    assert!(lied > 0 && !theirs.is_complete());
}

/// What a server sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// Offline: garbled circuits.
    Tables,
    /// Offline: products under encryption.
    Products,
    /// Online: labels of its own shares.
    Labels,
    /// Online: the answer's shares.
    Answer,
}

/// How it is wrong.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Bit(usize),
    Zeros,
    Noise,
    /// One half in the other's place: other gates' rows, other wires' labels.
    Exchanged,
    /// Of another precompute: a circuit and labels that are garbled rightly, under another offset.
    Others,
}

const SENT: [Sent; 4] = [Sent::Tables, Sent::Products, Sent::Labels, Sent::Answer];
const WRONG: [Wrong; 7] = [
    Wrong::Bit(0),
    Wrong::Bit(1001),
    Wrong::Bit(usize::MAX),
    Wrong::Zeros,
    Wrong::Noise,
    Wrong::Exchanged,
    Wrong::Others,
];

impl Wrong {
    fn apply(self, message: &mut [u8], others: &[u8]) {
        let half = message.len() / 2;
        match self {
            Self::Bit(bit) => {
                let bit = bit.min(8 * message.len() - 1);
                message[bit / 8] ^= 1 << (bit % 8);
            }
            Self::Zeros => message.fill(0),
            Self::Noise => ChaCha20Rng::seed_from_u64(5).fill_bytes(message),
            Self::Exchanged => message.rotate_left(half),
            Self::Others => message.copy_from_slice(others),
        }
    }
}

/// All that a client sends to a server that garbles, and what that server would have answered it.
struct Run {
    by_client: Vec<Vec<u8>>,
    /// The first of these that depends on the input.
    online: usize,
    by_server: Vec<Vec<u8>>,
    output: Vec<u64>,
}

/// A precompute and its prediction, of a server that sends something wrong; nothing where the client takes it for no
/// message of the protocol before there is an input. `others` are an honest server's messages of another precompute.
fn run(
    model: &Arc<HybridModel>,
    seeds: [[u8; 32]; 2],
    x: &[u64],
    lie: Option<(Sent, Wrong, &[Vec<u8>])>,
) -> Option<Run> {
    let outline = Arc::clone(model.outline());
    let [client, server] = [memory(), memory()];
    let [own, theirs] = seeds.map(Seed::new);
    let (keep, garbler) = (Arc::clone(&client), Party::Server);
    let parallel = Parallel::Sequential;
    let ours = OfflineClient::of_seed(Arc::clone(&outline), garbler, parallel, keep, own).unwrap();
    let theirs = OfflineServer::of_seed(Arc::clone(model), garbler, Arc::clone(&server), theirs);
    let [mut by_client, mut by_server] = [const { Vec::<Vec<u8>>::new() }; 2];
    let mut spoil = |what: Option<Sent>, message: &mut Vec<u8>| {
        let honest = message.clone();
        if let Some((sent, wrong, others)) = lie
            && what == Some(sent)
        {
            wrong.apply(message, &others[by_server.len()]);
        }
        by_server.push(honest);
    };
    while let Next::Step(step) = ours.next() {
        let request = ours.request(step).unwrap();
        let mut reply = theirs.answer(step, &request).unwrap();
        by_client.push(request);
        let what = match outline.steps(garbler)[step as usize] {
            Step::Tables { .. } => Some(Sent::Tables),
            Step::Unit { .. } => Some(Sent::Products),
            _ => None,
        };
        spoil(what, &mut reply);
        let taken = ours.accept(step, &reply);
        if lie.is_some_and(|(sent, ..)| sent == Sent::Products) && taken.is_err() {
            return None;
        }
        taken.unwrap();
    }
    let online = by_client.len();
    let mut ours = OnlineClient::new(Arc::clone(&outline), garbler, client, x).unwrap();
    let mut theirs = OnlineServer::new(Arc::clone(model), garbler, server).unwrap();
    let mut chunks = outline.chunks().len();
    let output = loop {
        while let Some(frame) = ours.pull() {
            theirs.push(&frame).unwrap();
            by_client.push(frame);
        }
        if let Some(output) = ours.output() {
            break output.to_vec();
        }
        let mut frame = theirs.pull().unwrap().unwrap();
        spoil(Some(if chunks > 0 { Sent::Labels } else { Sent::Answer }), &mut frame);
        chunks = chunks.saturating_sub(1);
        let taken = ours.push(&frame);
        if lie.is_some_and(|(sent, ..)| sent == Sent::Answer) && taken.is_err() {
            // After all was sent.
            break Vec::new();
        }
        taken.unwrap();
    };
    Some(Run { by_client, online, by_server, output })
}

/// Whatever a garbler sends for its circuits, labels, products and answer: no step and no frame of the client fails, and
/// it sends as many bytes as ever, of which those before the circuits are the same. So neither that it sends, nor how much,
/// says anything of its input.
#[test]
fn a_server_that_garbles_wrongly_is_sent_what_an_honest_one_is() {
    let model = model(Rounding::Stochastic, 1);
    let inputs = [input(model.outline().program(), 1), input(model.outline().program(), 2)];
    let lengths = |run: &Run| run.by_client.iter().map(Vec::len).collect::<Vec<_>>();
    let others = run(&model, [[9; 32], [8; 32]], &inputs[0], None).unwrap().by_server;
    let honest = inputs.each_ref().map(|x| run(&model, [[1; 32], [2; 32]], x, None).unwrap());
    assert_ne!(honest[0].output, honest[1].output);
    let mut refused = Vec::new();
    for sent in SENT {
        for wrong in WRONG {
            let found = inputs
                .each_ref()
                .map(|x| run(&model, [[1; 32], [2; 32]], x, Some((sent, wrong, &others))));
            let [Some(first), Some(second)] = found else {
                assert!(found.iter().all(Option::is_none), "{sent:?} {wrong:?}");
                refused.push((sent, wrong));
                continue;
            };
            for (found, honest) in [&first, &second].into_iter().zip(&honest) {
                let what = format!("{sent:?} {wrong:?}");
                assert_eq!(lengths(found), lengths(honest), "{what}");
                assert_eq!(found.by_client[found.online], honest.by_client[found.online], "{what}");
                let is_same = found.by_client == honest.by_client;
                match sent {
                    // It comes last, and says what the client is told.
                    Sent::Answer => assert!(is_same && found.output != honest.output, "{what}"),
                    // A bit of a row may be one that no instance reads.
                    _ => assert!(!is_same || matches!(wrong, Wrong::Bit(_)), "{what}"),
                }
            }
            assert_eq!(first.by_client[..first.online], second.by_client[..first.online]);
        }
    }
    // Bytes after the last number alone.
    assert!(refused.iter().all(|(sent, _)| *sent == Sent::Products), "{refused:?}");
}

/// How well a server that garbles wrongly tells two inputs apart by all that it is sent online. `seed` is every client's,
/// where it is given.
fn told(lie: (Sent, Wrong), seed: Option<u8>) -> f64 {
    let model = tiny(100);
    let inputs = [0, 0x7_0000].map(|x| vec![x; 16]);
    let others = run(&model, [[9; 32], [8; 32]], &inputs[0], None).unwrap().by_server;
    let mut seeds = ChaCha20Rng::seed_from_u64(6);
    accuracy_of(VIEWS, |class| {
        let own = seed.map_or_else(|| seeds.random(), |seed| [seed; 32]);
        let lie = Some((lie.0, lie.1, &others[..]));
        let run = run(&model, [own, [2; 32]], &inputs[usize::from(class)], lie).unwrap();
        run.by_client[run.online..].concat()
    })
}

#[test]
fn a_server_that_garbles_wrongly_does_not_tell_inputs_apart() {
    for lie in [(Sent::Tables, Wrong::Others), (Sent::Labels, Wrong::Noise)] {
        let score = told(lie, None);
        assert!(score < CHANCE_MAX, "{lie:?}: {score}");
    }
    // Masks that are drawn twice are caught.
    let score = told((Sent::Tables, Wrong::Others), Some(1));
    assert!(score > 0.99, "{score}");
}

/// A public key, a setup and an upload of any other size than the plan's, up to 64 MiB, are refused by their length, and
/// what is right is taken after them.
#[test]
fn keys_and_uploads_of_any_other_size_are_refused() {
    let model = model(Rounding::Stochastic, 1);
    let sizes = |own: usize| [0, 1, own - 1, own + 1, 2 * own, 64 << 20];
    for garbler in [Party::Client, Party::Server] {
        let (ours, theirs) = halves(&model, garbler);
        for kind in ["open", "set-up", "upload"] {
            let Next::Step(step) = ours.next() else { panic!("a step") };
            let request = ours.request(step).unwrap();
            for size in sizes(request.len()) {
                let mut wrong = request.clone();
                wrong.resize(size, 0);
                // A server of its own for each, which remembers what it was asked.
                let (_, fresh) = halves(&model, garbler);
                if step > 0 {
                    let (other, _) = halves(&model, garbler);
                    fresh.answer(0, &other.request(0).unwrap()).unwrap();
                }
                let error = fresh.answer(step, &wrong).unwrap_err();
                let is_length = matches!(
                    error,
                    Error::Bytes { .. }
                        | Error::Ot(ot::Error::Length { .. })
                        | Error::Linear(linear::Error::Bytes { .. })
                );
                assert!(is_length, "{garbler:?}, {kind} of {size} bytes: {error}");
            }
            ours.accept(step, &theirs.answer(step, &request).unwrap()).unwrap();
        }
    }
}
