//! Whole clients of hybrid inference over a simulated clock and network, which loses, delays, doubles and refuses,
//! while the server is killed and comes back, with what it had or without, or with another network: never a wrong
//! answer, no half is used twice on either side, and everything comes to an end.

mod servers;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hushtable_client::simulation::{Answered, Faults, Network, bell, random_faults};
use hushtable_client::{CallFault, Error, Machine, Outcome, Step};
use hushtable_infer::hybrid::Party;
use hushtable_infer::hybrid::session::{
    Answer, Call, Counted, Failure, Inference, Pace, Predicted, Predictor, Reply, SessionSpec,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use servers::{Folder, GONE, Lost, OTHER_PLAN, Own, Server, held, payload, refused};

const CALL_MAX: Duration = Duration::from_secs(6);
const RETRY_MAX: Duration = Duration::from_secs(40);
/// In no test anything takes so long.
const LONG: Duration = Duration::from_secs(24 * 3600);
const SECOND: Duration = Duration::from_secs(1);
const ONE: Pace = Pace { precomputes: 1, steps: 1 };

type Came<T> = Outcome<Inference, T, &'static str>;

fn spec(garbler: Party) -> SessionSpec {
    SessionSpec {
        version: None,
        garbler,
        call_max: CALL_MAX,
        retry_max: RETRY_MAX,
        half_bytes_max: 1 << 30,
    }
}

/// A world with one address, and what time it is.
struct World<'a> {
    rng: ChaCha8Rng,
    rung: Arc<AtomicBool>,
    faults: Faults,
    now: Duration,
    /// What the server replies: nothing where it is down, no reply where it is silent.
    serve: &'a mut dyn FnMut(Duration, Call) -> Option<Vec<Answered<Inference>>>,
}

impl World<'_> {
    fn together<M>(&mut self, machines: Vec<M>, within: Duration) -> Vec<Came<M::Output>>
    where
        M: Machine<&'static str, Protocol = Inference>,
    {
        let done: Vec<_> = machines.iter().map(|_| RefCell::new(None)).collect();
        let last = Cell::new(self.now);
        let mut network = Network::new(&mut self.rng, &self.rung, self.now, self.faults);
        for (machine, done) in machines.into_iter().zip(&done) {
            let last = &last;
            network.start(self.now, self.now + within, machine, move |now, outcome| {
                last.set(now.max(last.get()));
                *done.borrow_mut() = Some(outcome);
            });
        }
        network.run(&mut |now, _, _, call| (self.serve)(now, call));
        drop(network);
        self.now = last.get();
        done.into_iter().map(|done| done.into_inner().expect("it is over")).collect()
    }

    fn one<M>(&mut self, machine: M) -> Came<M::Output>
    where
        M: Machine<&'static str, Protocol = Inference>,
    {
        self.together(vec![machine], LONG).remove(0)
    }

    /// A client, and the folder of its halves.
    fn open(&mut self, spec: SessionSpec, room: usize) -> Client {
        let (bell, rung) = bell();
        self.rung = rung;
        let predictor = self.one(Predictor::open(spec, 1, bell));
        let predictor = predictor.unwrap_or_else(|error| panic!("{error}"));
        Client { predictor, folder: Folder::new(room) }
    }
}

/// A client, and its halves.
struct Client {
    predictor: Predictor,
    folder: Arc<Folder>,
}

impl Client {
    fn own(&self) -> Arc<Own> {
        Arc::new(Own(Arc::clone(&self.folder)))
    }

    fn make(
        &self,
        world: &mut World<'_>,
        count: usize,
        pace: Pace,
    ) -> Result<Counted, Error<Failure, &'static str>> {
        let making = self.predictor.make(self.own(), count, pace, None);
        let outcomes = world.together(making.workers(7), LONG);
        let counted = making.counted();
        // Those that go no further because another one failed say nothing.
        outcomes.into_iter().collect::<Result<Vec<()>, _>>().map(|_| counted)
    }

    fn asking(
        &self,
        seed: u64,
        is_fresh: bool,
    ) -> impl Machine<&'static str, Protocol = Inference, Output = Predicted> + use<> {
        let (x, _) = held()[0].asked(seed);
        self.predictor.predict(self.own(), x, is_fresh, seed)
    }

    /// Predicts, with a precompute that is made where there is none: as whoever drives clients does.
    fn predict(
        &self,
        world: &mut World<'_>,
        seed: u64,
    ) -> Result<Answer, Error<Failure, &'static str>> {
        let mut is_fresh = false;
        loop {
            match world.one(self.asking(seed, is_fresh))? {
                Predicted::Answer(answer) => {
                    assert_eq!(answer.raw, held()[0].asked(seed).1, "a wrong answer");
                    return Ok(answer);
                }
                Predicted::Dry { .. } => {
                    assert!(!is_fresh, "what was made is not there");
                    self.make(world, 1, ONE)?;
                    is_fresh = true;
                }
            }
        }
    }
}

fn calm(serve: &mut dyn FnMut(Duration, Call) -> Option<Vec<Answered<Inference>>>) -> World<'_> {
    let (rng, faults) = (ChaCha8Rng::seed_from_u64(1), Faults::NONE);
    World { rng, rung: bell().1, faults, now: SECOND, serve }
}

const BOTH: [Party; 2] = [Party::Client, Party::Server];

#[test]
fn without_faults_each_call_is_made_once_however_many_work() {
    for garbler in BOTH {
        for pace in [ONE, Pace { precomputes: 1, steps: 5 }, Pace { precomputes: 2, steps: 1 }] {
            println!("{garbler:?} {pace:?}");
            let server = RefCell::new(Server::new(true));
            let mut serve = |_, call| Some(vec![server.borrow_mut().reply(call)]);
            let mut world = calm(&mut serve);
            let client = world.open(spec(garbler), pace.precomputes);
            let counted = client.make(&mut world, 2, pace).unwrap();
            let steps = 2 * held()[0].steps(garbler);
            assert_eq!((counted.steps, counted.retries, counted.begun_again), (steps as u64, 0, 0));
            {
                let server = server.borrow();
                assert_eq!([counted.sent_bytes, counted.received_bytes], server.bytes);
                let came = ["Begin", "Step", "Finish"].map(|name| server.count(name));
                assert_eq!(came, [2, steps, 2]);
            }
            assert_eq!((client.folder.count(), client.folder.open()), (2, 0));
            let before = server.borrow().bytes;
            // Beside each other they use different ones.
            let both = world.together(vec![client.asking(1, false), client.asking(2, false)], LONG);
            let (mut frames, mut bytes) = (0, [0; 2]);
            for (outcome, seed) in both.into_iter().zip([1, 2]) {
                let Ok(Predicted::Answer(answer)) = outcome else { panic!("no answer") };
                assert_eq!(answer.raw, held()[0].asked(seed).1);
                assert!(answer.lost == 0 && !answer.online.is_zero());
                frames += answer.frames;
                bytes[0] += answer.sent_bytes;
                bytes[1] += answer.received_bytes;
            }
            let server = server.borrow();
            assert_eq!(server.count("Open"), 2);
            assert_eq!(frames, server.frames);
            assert_eq!([0, 1].map(|way| server.bytes[way] - before[way]), bytes);
        }
    }
}

/// What came of the operations of many storms.
#[derive(Debug, Default)]
struct Counts {
    made: usize,
    not_made: usize,
    again: u64,
    begun_again: u64,
    right: usize,
    lost: usize,
    dry: usize,
    failed: usize,
    late: usize,
}

impl Counts {
    fn note(&mut self, error: &Error<Failure, &'static str>) {
        match error {
            Error::Call { .. } => self.failed += 1,
            Error::Failure(Failure::Timeout { .. }) => self.late += 1,
            Error::Failure(failure) => panic!("{failure}"),
        }
    }
}

fn storm(seed: u64, counts: &mut Counts) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let faults = random_faults(&mut rng);
    let garbler = BOTH[rng.random_range(0..2)];
    let precomputes = rng.random_range(1..3);
    let pace = Pace { precomputes, steps: [1, 4][rng.random_range(0..2)] };
    let server = RefCell::new(Server::new(rng.random_bool(0.5)));
    // It is killed now and then.
    let mut kills = ChaCha8Rng::seed_from_u64(!seed);
    let (is_calm, mut down_until) = (Cell::new(true), Duration::ZERO);
    let mut serve = |now, call| {
        if !is_calm.get() && kills.random_range(0..1000) < 8 {
            server.borrow_mut().restart();
            down_until = now + Duration::from_millis(kills.random_range(0..2000));
        }
        (now >= down_until).then(|| vec![server.borrow_mut().reply(call)])
    };
    let mut world = calm(&mut serve);
    let client = world.open(spec(garbler), pace.precomputes);
    is_calm.set(false);
    (world.rng, world.faults) = (rng, faults);
    match client.make(&mut world, 2, pace) {
        Ok(counted) => {
            counts.made += 1;
            counts.again += counted.retries;
            counts.begun_again += counted.begun_again;
        }
        Err(error) => {
            counts.not_made += 1;
            counts.note(&error);
        }
    }
    // A prediction is many frames, none of which is sent again.
    let Faults { lost, broken, busy, doubled, late } = faults;
    let (lost, broken, busy, late) = (lost / 8, broken / 8, busy / 16, late / 8);
    world.faults = Faults { lost, broken, busy, doubled, late };
    let asking = vec![client.asking(1, false), client.asking(2, false), client.asking(3, false)];
    for (outcome, seed) in world.together(asking, LONG).into_iter().zip(1..) {
        match outcome {
            Ok(Predicted::Answer(answer)) => {
                assert_eq!(answer.raw, held()[0].asked(seed).1, "a wrong answer");
                counts.right += 1;
                counts.lost += answer.lost;
            }
            Ok(Predicted::Dry { lost }) => {
                counts.dry += 1;
                counts.lost += lost;
            }
            Err(error) => counts.note(&error),
        }
    }
    // When the faults are over, predictions succeed, and nothing is left behind.
    is_calm.set(true);
    (world.faults, world.now) = (Faults::NONE, world.now + 10 * SECOND);
    let answer = client.predict(&mut world, 4);
    answer.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn in_storms_answers_are_right_and_no_precompute_is_used_twice() {
    let mut counts = Counts::default();
    for seed in 0..STORMS {
        println!("seed {seed}");
        storm(seed, &mut counts);
    }
    println!("{counts:?}");
    // The storms are storms, and clients come through them.
    let Counts { made, not_made, again, begun_again, right, lost, dry, failed, late } = counts;
    assert!(made >= 60 && not_made >= 4 && again >= 500 && begun_again >= 6, "{counts:?}");
    assert!(right >= 80 && lost >= 1 && dry >= 60 && failed >= 15 && late >= 6, "{counts:?}");
}

/// The server is killed at each call of a precompute and of a prediction, before it does anything or before it
/// replies, and comes back with what was whole, or with nothing.
#[test]
fn a_server_killed_at_any_call_is_gone_on_with() {
    let garbler = Party::Server;
    let (mut kills, mut ends) = (0, Vec::new());
    loop {
        let mut is_reached = false;
        for (does_it, keeps) in [(false, false), (true, false), (true, true)] {
            println!(
                "killed at call {kills}, which it has done: {does_it}; keeps what is whole: {keeps}"
            );
            let server = RefCell::new(Server::new(keeps));
            let (mut number, mut down_until) = (0, Duration::ZERO);
            let (killed, is_over) = (Cell::new(None), Cell::new(false));
            let mut serve = |now, call: Call| -> Option<Vec<Answered<Inference>>> {
                let mut server = server.borrow_mut();
                if now < down_until {
                    return None;
                }
                if !matches!(call, Call::Info) && !is_over.get() {
                    if number == kills {
                        number += 1;
                        killed.set(Some(format!("{call:?}")));
                        if does_it {
                            drop(server.reply(call));
                        }
                        server.restart();
                        down_until = now + SECOND;
                        return None;
                    }
                    number += 1;
                }
                Some(vec![server.reply(call)])
            };
            let mut world = calm(&mut serve);
            // There is room for one half: the one that was lost is gone before the next is begun.
            let client = world.open(spec(garbler), 1);
            let pace = Pace { precomputes: 1, steps: 3 };
            // While precomputes are made a server may be away.
            let counted =
                client.make(&mut world, 1, pace).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(client.folder.count(), 1);
            let predicted = client.predict(&mut world, 1);
            is_over.set(true);
            world.now += 2 * SECOND;
            client.predict(&mut world, 2).unwrap_or_else(|error| panic!("{error}"));
            let Some(killed): Option<String> = killed.take() else { continue };
            is_reached = true;
            let is_error = match predicted {
                Ok(_) => false,
                Err(Error::Call { error, .. }) => {
                    assert!(["no connection", "the stream broke"].contains(&error), "{error}");
                    true
                }
                Err(error) => panic!("{error}"),
            };
            ends.push((killed, does_it, keeps, counted.begun_again, is_error));
        }
        if !is_reached {
            break;
        }
        kills += 1;
    }
    for (killed, does_it, keeps, begun_again, is_error) in &ends {
        // What was begun is begun again, unless the server has all of it; a prediction that was begun is over.
        let has_all = killed == "Finish" && *does_it && *keeps;
        let expected = match &killed[..] {
            "Step" | "Finish" => u64::from(!has_all),
            _ => 0,
        };
        assert_eq!(*begun_again, expected, "{killed} {does_it} {keeps}");
        let is_online = matches!(&killed[..], "Open" | "Exchange");
        assert_eq!(*is_error, is_online, "{killed} {does_it} {keeps}");
    }
    let kinds = ["Begin", "Step", "Finish", "Open", "Exchange"];
    for kind in kinds {
        assert!(ends.iter().any(|(killed, ..)| killed == kind), "{kind}");
    }
}

/// A client that is killed at any call, and its successor with the same halves.
#[test]
fn a_client_killed_at_any_call_leaves_halves_that_are_whole_or_none() {
    let garbler = Party::Client;
    let mut kill = 0;
    let mut left = Vec::new();
    loop {
        println!("killed at call {kill}");
        let server = RefCell::new(Server::new(true));
        let mut serve = |_, call| Some(vec![server.borrow_mut().reply(call)]);
        let mut world = calm(&mut serve);
        let client = world.open(spec(garbler), 1);
        let making = client.predictor.make(client.own(), 1, ONE, None);
        let mut calls = 0;
        let mut end = |machine: &mut dyn FnMut(Duration) -> Option<Call>| {
            let mut now = SECOND;
            while calls < kill {
                let Some(_) = machine(now) else { return true };
                calls += 1;
                now += SECOND / 100;
            }
            false
        };
        let mut is_over = true;
        for mut worker in making.workers::<&'static str>(1) {
            is_over &= end(&mut |now| turn(&mut worker, now, &server));
        }
        if is_over {
            let mut asking = client.asking(1, false);
            is_over = end(&mut |now| turn(&mut asking, now, &server));
        }
        drop(making);
        left.push((client.folder.count(), client.folder.open()));
        // Whoever comes next knows nothing but the folder.
        let folder = Arc::clone(&client.folder);
        drop(client);
        let next = Client { folder, ..world.open(spec(garbler), 1) };
        next.predict(&mut world, 5).unwrap_or_else(|error| panic!("{error}"));
        if is_over {
            break;
        }
        kill += 1;
    }
    // At first nothing, then a whole half, then nothing again.
    let whole = left.iter().filter(|(count, _)| *count == 1).count();
    assert!(whole >= 1 && left[0] == (0, 0) && left[left.len() - 1].0 == 0, "{left:?}");
    assert!(left.iter().all(|(_, open)| *open == 0), "halves that nobody has: {left:?}");
}

/// One call of a machine, answered at once; none once it is done.
fn turn<M>(machine: &mut M, now: Duration, server: &RefCell<Server>) -> Option<Call>
where
    M: Machine<&'static str, Protocol = Inference>,
{
    match machine.poll(now) {
        Step::Send { id, call, .. } => {
            let reply = server.borrow_mut().reply(call.clone());
            machine.received(id, now, reply);
            Some(call)
        }
        Step::Wait { .. } => panic!("nothing to wait for"),
        Step::Done(outcome) => {
            drop(outcome.unwrap_or_else(|error| panic!("{error}")));
            None
        }
    }
}

/// The server comes back with another network at each of the calls: nothing of the old plan is answered, and what
/// is said is why.
#[test]
fn a_server_with_another_network_gives_no_answer() {
    let mut swap = 0;
    loop {
        println!("swapped at call {swap}");
        let server = RefCell::new(Server::new(true));
        let mut number = 0;
        let mut serve = |_, call| {
            let mut server = server.borrow_mut();
            if number == swap {
                server.restart();
                server.holds = 1;
            }
            number += 1;
            Some(vec![server.reply(call)])
        };
        let mut world = calm(&mut serve);
        let (bell, rung) = bell();
        world.rung = rung;
        let opened = world.one(Predictor::open(spec(Party::Server), 1, bell));
        let Ok(predictor) = opened else { panic!("it announces itself") };
        if predictor.announced().plan != held()[0].announced.plan {
            swap += 1;
            continue;
        }
        let client = Client { predictor, folder: Folder::new(1) };
        let predicted = client.predict(&mut world, 1);
        let is_swapped = server.borrow().holds == 1;
        match predicted {
            Err(Error::Call { error, .. }) => {
                assert!(is_swapped && [OTHER_PLAN, "the stream broke"].contains(&error), "{error}");
            }
            Ok(_) if !is_swapped => break,
            Ok(_) => panic!("an answer of two networks"),
            Err(error) => panic!("{error}"),
        }
        let again = client.predict(&mut world, 2);
        assert!(matches!(again, Err(Error::Call { error: OTHER_PLAN, .. })));
        swap += 1;
    }
    assert!(swap > held()[0].steps(Party::Server));
}

/// A server that loses a precompute again and again loses the next one too.
#[test]
fn a_precompute_is_begun_again_so_often_and_no_more() {
    for (loses, expected) in [(3, Some(3)), (usize::MAX, None)] {
        let (server, lost) = (RefCell::new(Server::new(true)), Cell::new(0));
        let mut serve = |_, call: Call| {
            let mut server = server.borrow_mut();
            if matches!(call, Call::Finish { .. }) && lost.get() < loses {
                lost.set(lost.get() + 1);
                server.forget();
            }
            Some(vec![server.reply(call)])
        };
        let mut world = calm(&mut serve);
        let client = world.open(spec(Party::Client), 1);
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let progress = Arc::new(move |done, all| telling.lock().unwrap().push((done, all)));
        let making = client.predictor.make(client.own(), 1, ONE, Some(progress));
        let outcome = world.together(making.workers(1), LONG).remove(0);
        let steps = held()[0].steps(Party::Client) as u64;
        match expected {
            Some(times) => {
                outcome.unwrap_or_else(|error| panic!("{error}"));
                assert_eq!((making.counted().begun_again, lost.get()), (times, 3));
                assert_eq!(making.counted().steps, (times + 1) * steps);
                // What was lost is not counted among what is done.
                let told = told.lock().unwrap();
                assert_eq!(told.last(), Some(&(steps, steps)));
                assert!(told.iter().all(|&(done, all)| done <= all && all == steps), "{told:?}");
            }
            None => {
                assert!(matches!(outcome, Err(Error::Call { error: GONE, .. })));
                assert_eq!(server.borrow().count("Begin"), 5);
            }
        }
        let expected = expected.map_or(0, |_| 1);
        drop(making);
        assert_eq!((client.folder.count(), client.folder.open()), (expected, 0));
    }
}

/// One that the server has lost a moment after it was made is an error, and not another turn.
#[test]
fn halves_without_their_other_half_are_dropped() {
    let server = RefCell::new(Server::new(true));
    let mut serve = |_, call| Some(vec![server.borrow_mut().reply(call)]);
    let mut world = calm(&mut serve);
    let client = world.open(spec(Party::Server), 3);
    client.make(&mut world, 2, ONE).unwrap();
    server.borrow_mut().forget();
    client.make(&mut world, 1, ONE).unwrap();
    let Predicted::Answer(Answer { lost, .. }) = world.one(client.asking(1, false)).unwrap() else {
        panic!("one is whole");
    };
    // Those that were looked at before the one that is whole.
    assert_eq!(lost + client.folder.count(), 2);
    server.borrow_mut().forget();
    client.make(&mut world, 1, ONE).unwrap();
    server.borrow_mut().forget();
    let outcome = world.one(client.asking(1, true));
    assert!(matches!(outcome, Err(Error::Call { fault: CallFault::Gone, .. })));
}

/// The server has taken its own then: the next one is used, and nobody is asked to call again.
#[test]
fn halves_that_are_lost_here_are_passed_over() {
    for how in [Lost::Gone, Lost::Damaged, Lost::Records] {
        let server = RefCell::new(Server::new(true));
        let mut serve = |_, call| Some(vec![server.borrow_mut().reply(call)]);
        let mut world = calm(&mut serve);
        let client = world.open(spec(Party::Server), 3);
        client.make(&mut world, 3, ONE).unwrap();
        *client.folder.losing.lock().unwrap() = vec![how; 2];
        let outcome = world.one(client.asking(1, false)).unwrap_or_else(|error| panic!("{error}"));
        let Predicted::Answer(answer) = outcome else { panic!("{how:?}: one is whole") };
        assert_eq!(answer.raw, held()[0].asked(1).1, "a wrong answer");
        assert_eq!((answer.lost, client.folder.count()), (2, 0), "{how:?}");
        // Where it was the last, there is none; and one that was made a moment ago would be lost again.
        client.make(&mut world, 1, ONE).unwrap();
        *client.folder.losing.lock().unwrap() = vec![how];
        let outcome = world.one(client.asking(1, false)).unwrap();
        assert!(matches!(outcome, Predicted::Dry { lost: 1 }), "{how:?}");
        client.make(&mut world, 1, ONE).unwrap();
        *client.folder.losing.lock().unwrap() = vec![how];
        assert!(world.one(client.asking(1, true)).is_err(), "{how:?}");
    }
    // What gives none now gives no other one: the rest is not used up at the server.
    let server = RefCell::new(Server::new(true));
    let mut serve = |_, call| Some(vec![server.borrow_mut().reply(call)]);
    let mut world = calm(&mut serve);
    let client = world.open(spec(Party::Server), 3);
    client.make(&mut world, 3, ONE).unwrap();
    *client.folder.losing.lock().unwrap() = vec![Lost::Medium; 3];
    let error = world.one(client.asking(1, false)).unwrap_err().to_string();
    assert_eq!((error.as_str(), server.borrow().count("Open")), ("the disk is full", 1));
}

/// What a server may say at each kind of call, and whether the client goes on.
#[test]
fn what_passes_is_asked_again_and_what_does_not_is_an_end() {
    let busy = CallFault::Busy { retry_after: SECOND / 10 };
    let faults = [Some(busy), Some(CallFault::Draining), Some(CallFault::Unreachable), None];
    for fault in faults.into_iter().chain([Some(CallFault::Other)]) {
        for kind in ["Begin", "Step", "Finish", "Open", "Exchange"] {
            let server = RefCell::new(Server::new(true));
            // For longer than a call that is made again at once.
            let times = Cell::new(3);
            let mut serve = |_, call: Call| {
                if format!("{call:?}") == kind && times.get() > 0 {
                    times.set(times.get() - 1);
                    let refusal = fault.clone().map(|fault| Err(refused(fault, "not now")));
                    return Some(refusal.into_iter().collect());
                }
                Some(vec![server.borrow_mut().reply(call)])
            };
            let mut world = calm(&mut serve);
            let client = world.open(spec(Party::Server), 1);
            let outcome = client.predict(&mut world, 1);
            let is_making = matches!(kind, "Begin" | "Step" | "Finish");
            // Whoever predicts is there: a server that is away is waited for only where precomputes are made.
            let passes = match &fault {
                None | Some(CallFault::Unreachable) => is_making,
                Some(CallFault::Busy { .. } | CallFault::Draining) => is_making || kind == "Open",
                _ => false,
            };
            assert_eq!(outcome.is_ok(), passes, "{fault:?} at {kind}");
            if !is_making {
                // Frames are never sent again.
                let expected = if kind == "Open" { 1 } else { 0 };
                assert!(server.borrow().count("Open") <= 1.max(expected), "{fault:?} at {kind}");
            }
        }
    }
}

/// What is announced is held against what the client was told.
#[test]
fn what_a_client_is_told_is_held_against_the_server() {
    let other = held()[1].announced.version;
    let bytes_max = 1000;
    for (number, spec) in [
        SessionSpec { version: Some(other), ..spec(Party::Server) },
        spec(Party::Client),
        SessionSpec { half_bytes_max: bytes_max, ..spec(Party::Server) },
    ]
    .into_iter()
    .enumerate()
    {
        let mut serve = |_, _| {
            let mut announced = held()[0].announced.clone();
            announced.client_garbles = false;
            Some(vec![Ok(Reply::Info(Box::new(announced)))])
        };
        let opened = calm(&mut serve).one(Predictor::open(spec, 1, bell().0));
        let Err(Error::Failure(failure)) = opened else { panic!("it is refused") };
        let is_expected = match number {
            0 => matches!(failure, Failure::VersionMismatch { expected, .. } if expected == other),
            1 => matches!(failure, Failure::Garbler { garbler: Party::Client }),
            _ => matches!(failure, Failure::PrecomputeBytes { bytes, .. } if bytes > bytes_max),
        };
        assert!(is_expected, "{number}: {failure}");
    }
}

/// What goes to and fro is in no log.
#[test]
fn calls_say_no_more_than_their_names() {
    let server = RefCell::new(Server::new(true));
    let seen = RefCell::new(0);
    let mut serve = |_, call: Call| {
        let text = format!("{call:?}");
        assert!(text.len() <= "Exchange".len(), "{text}");
        *seen.borrow_mut() += payload(&call).len();
        Some(vec![server.borrow_mut().reply(call)])
    };
    let mut world = calm(&mut serve);
    let client = world.open(spec(Party::Server), 1);
    client.predict(&mut world, 1).unwrap();
    assert!(*seen.borrow() > 1000);
}

const STORMS: u64 = 100;
