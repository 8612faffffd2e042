//! Whole clients of encrypted inference over a simulated clock and network, which loses, delays,
//! doubles and refuses, while two servers of one operator drain, die, forget keys and come back,
//! also with another plan: never a wrong logit, never a hang, and a server that never was of the
//! client's plan gets neither its keys nor a query.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hushtable_client::simulation::{self, Faults, Network, Serve, bell, random_faults};
use hushtable_client::{CallError, CallFault, Error, Machine, Outcome, Step};
use hushtable_infer::dlrm::cost::CostTable;
use hushtable_infer::dlrm::session::{
    Answer, Answered, Call, Failure, Inference, Info, Predictor, Reply, SessionSpec,
};
use hushtable_infer::dlrm::spec::{Activation, DlrmSpec, FeatureSpec, Interaction};
use hushtable_infer::dlrm::{Dlrm, Engine, Goal, Keys, Weights, plan};
use hushtable_rlwe::ring::Platform;
use hushtable_table::Version;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::models::{features, logits, model};

const CALL_MAX: Duration = Duration::from_secs(6);
const UPLOAD_MAX: Duration = Duration::from_secs(10);
/// An operation's own time, and that of the uploads that it may make: one a server, and one where
/// keys are forgotten.
const ENDS_AFTER: Duration = Duration::from_secs(6 + 3 * 10);
/// When storms are over and the servers settled.
const CALM: Duration = Duration::from_secs(40);
/// When what began in the storm is over.
const QUIET: Duration = Duration::from_secs(90);
/// The largest error of a logit, as the plans were made for.
const ERROR_MAX: f64 = 1.0 / 1024.0;
/// Users of a query.
const USERS: usize = 2;
/// What a server says to what is of another plan.
const OTHER_PLAN: &str = "another plan";

type Replied = simulation::Answered<Inference>;
type Came<T> = Outcome<Inference, T, &'static str>;

/// What a server holds.
struct Held {
    dlrm: Dlrm,
    weights: Weights,
    engine: Engine,
    info: Info,
}

/// Two of other weights and plans, whose keys, queries and answers are of the same lengths.
fn held() -> &'static [Held; 2] {
    static HELD: OnceLock<[Held; 2]> = OnceLock::new();
    HELD.get_or_init(|| [Held::new(1, 2), Held::new(2, 3)])
}

impl Held {
    /// One linear map: the fewest levels, and so the smallest ring that is of 128 bits.
    fn new(seed: u8, rows: u64) -> Self {
        let feature = FeatureSpec { name: "sex".into(), rows, table: None, bag: 1 };
        let spec = DlrmSpec {
            dense: 2,
            bottom: vec![2],
            top: vec![1],
            dim: 2,
            interaction: Interaction::Concat,
            activation: Activation::Square,
            relu_degree: None,
            bottom_activates_last: false,
            base: 4,
            threshold: 8,
            features: vec![feature],
        };
        let (dlrm, weights) = model(spec, seed.into());
        let goal = Goal { users: USERS, ..Goal::default() };
        let plan = plan(&dlrm, &weights, goal, &CostTable::shipped().unwrap()).unwrap();
        let engine = Engine::new(&plan, &weights, Platform::detect()).unwrap();
        let (version, terms) = (Version::from([seed; 32]), engine.terms().clone());
        let info = Info::new("clicks".into(), version, terms, "test".into()).unwrap();
        Self { dlrm, weights, engine, info }
    }
}

fn refused(fault: CallFault, error: &'static str) -> Replied {
    Err(CallError { fault, error })
}

/// What one server is at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Now {
    Serves(usize),
    /// It says what it holds, and refuses all else.
    Drains(usize),
    Down,
}

/// One of the servers: what it has kept, and what it was sent and has said since it was first
/// started.
#[derive(Default)]
struct Server {
    kept: BTreeMap<[u8; 32], Keys>,
    plans: BTreeSet<Version>,
    uploads: usize,
    queries: usize,
}

impl Server {
    fn reply(&mut self, number: usize, now: Now, call: Call) -> Option<Vec<Replied>> {
        Some(vec![match now {
            Now::Down => {
                self.kept.clear();
                return None;
            }
            Now::Drains(state) if matches!(call, Call::Info) => self.serve(number, state, call),
            Now::Drains(_) => refused(CallFault::Draining, "it drains"),
            Now::Serves(state) => self.serve(number, state, call),
        }])
    }

    fn serve(&mut self, number: usize, state: usize, call: Call) -> Replied {
        let Held { engine, info, .. } = &held()[state];
        let plan = match &call {
            Call::Info => {
                self.plans.insert(info.plan);
                return Ok(Reply::Info(Box::new(info.announced())));
            }
            Call::HaveKeys { plan, .. }
            | Call::UploadKeys { plan, .. }
            | Call::Predict { plan, .. } => *plan,
            other => panic!("no such call: {other:?}"),
        };
        assert!(self.plans.contains(&plan), "server {number} never was of the plan of {call:?}");
        if plan != info.plan {
            return refused(CallFault::Other, OTHER_PLAN);
        }
        match call {
            Call::HaveKeys { key_id, .. } => Ok(Reply::KeysHeld(self.kept.contains_key(&key_id))),
            Call::UploadKeys { bytes, client, .. } => {
                let sent = client.keys().collect::<Vec<_>>().concat();
                assert_eq!(bytes, sent.len() as u64);
                let id = *blake3::hash(&sent).as_bytes();
                self.uploads += 1;
                self.kept.insert(id, engine.keys(&sent).expect("an honest client's keys"));
                Ok(Reply::KeysKept(id))
            }
            Call::Predict { key_id, query, answer_bytes, .. } => {
                self.queries += 1;
                let Some(keys) = self.kept.get(&key_id) else {
                    return refused(CallFault::UnknownKeys, "unknown keys");
                };
                let answer = engine.answer(keys, &query).expect("an honest client's query");
                assert_eq!(answer.len(), answer_bytes);
                // By its time in the queue an answer shows whose it is.
                let (queue, took) = (queue_of(number), Duration::from_micros(9));
                Ok(Reply::Answer(Answer { plan, answer: answer.into(), queue, took }))
            }
            other => panic!("no such call: {other:?}"),
        }
    }
}

fn queue_of(server: usize) -> Duration {
    Duration::from_micros(server as u64 + 1)
}

fn spec(servers: usize) -> SessionSpec {
    SessionSpec {
        servers,
        version: None,
        call_max: CALL_MAX,
        upload_max: UPLOAD_MAX,
        key_bytes_max: 1 << 20,
    }
}

/// A prediction for `users` of those that `seed` makes.
fn predict(
    client: &Predictor,
    users: usize,
    seed: u64,
) -> impl Machine<&'static str, Protocol = Inference, Output = Answered> + use<> {
    let (dense, indices) = features(&held()[0].dlrm, users, seed);
    client.query(dense, indices, seed)
}

/// Holds what came against the model in the clear.
fn check(users: usize, seed: u64, found: &Answered) {
    let Held { dlrm, weights, info, .. } = &held()[0];
    let (dense, indices) = features(dlrm, users, seed);
    let expected = logits(dlrm, weights, &dense, &indices);
    assert_eq!(found.logits.len(), users);
    for (found, expected) in found.logits.iter().zip(&expected) {
        assert!((found - expected).abs() <= ERROR_MAX, "{found} and {expected}");
    }
    assert!(found.sent_bytes >= info.query_bytes() as u64);
    assert_eq!(found.received_bytes, info.answer_bytes() as u64);
}

/// Runs one machine to its end, without faults.
fn run<M>(machine: M, from: Duration, serve: &mut Serve<'_, Inference>) -> Came<M::Output>
where
    M: Machine<&'static str, Protocol = Inference>,
{
    let (_, rung) = bell();
    let (mut rng, done) = (ChaCha8Rng::seed_from_u64(1), RefCell::new(None));
    let mut network = Network::new(&mut rng, &rung, from, Faults::NONE);
    network.start(from, from + CALL_MAX + UPLOAD_MAX, machine, |_, came| {
        *done.borrow_mut() = Some(came);
    });
    network.run(serve);
    drop(network);
    done.into_inner().expect("it is done")
}

/// What came of the operations that began in the storm.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    right: usize,
    /// Right, by the second server.
    moved: usize,
    /// Right, and keys were brought for it.
    renewed: usize,
    other_plan: usize,
    mismatched: usize,
    late: usize,
    failed: usize,
    opened: usize,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.right += other.right;
        self.moved += other.moved;
        self.renewed += other.renewed;
        self.other_plan += other.other_plan;
        self.mismatched += other.mismatched;
        self.late += other.late;
        self.failed += other.failed;
        self.opened += other.opened;
    }

    fn note_error(&mut self, error: &Error<Failure, &'static str>) {
        match error {
            Error::Call { error, .. } if *error == OTHER_PLAN => self.other_plan += 1,
            Error::Call { .. } => self.failed += 1,
            Error::Failure(Failure::Timeout { .. }) => self.late += 1,
            Error::Failure(Failure::VersionMismatch { .. }) => self.mismatched += 1,
            Error::Failure(error) => panic!("{error}"),
        }
    }
}

/// What each of two servers is when.
struct History {
    holds: [Vec<(Duration, Now)>; 2],
    /// Whether the second one is of the other plan all the time.
    is_strange: bool,
    last: usize,
}

impl History {
    fn random(rng: &mut ChaCha8Rng) -> Self {
        let (is_strange, last) = (rng.random_bool(0.3), usize::from(rng.random_bool(0.3)));
        let holds = [0, 1].map(|server| {
            let state = |state| if is_strange && server == 1 { 1 } else { state };
            let mut held = state(0);
            let (mut changes, mut at) = (vec![(Duration::ZERO, Now::Serves(held))], 0);
            loop {
                at += rng.random_range(1_000..12_000);
                let down = at + rng.random_range(0..2_000);
                let up = down + rng.random_range(0..4_000);
                let drains = std::mem::replace(&mut at, up);
                let [drains, down, up] = [drains, down, up].map(Duration::from_millis);
                if up >= CALM {
                    break;
                }
                changes.extend([(drains, Now::Drains(held)), (down, Now::Down)]);
                held = state(usize::from(rng.random_bool(0.2)));
                changes.push((up, Now::Serves(held)));
            }
            changes.push((CALM, Now::Down));
            changes.push((CALM, Now::Serves(state(last))));
            changes
        });
        Self { holds, is_strange, last }
    }

    fn at(&self, now: Duration, server: usize) -> Now {
        let past = self.holds[server].iter().rev().find(|&&(from, _)| from <= now);
        past.map_or(Now::Down, |&(_, now)| now)
    }
}

fn storm(seed: u64) -> Counts {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let history = History::random(&mut rng);
    let faults = random_faults(&mut rng);
    let mut chance = || [0.0, 0.15][usize::from(rng.random_bool(0.5))];
    let (forgets, breaks) = (chance(), chance());
    let mut mishaps = ChaCha8Rng::seed_from_u64(!seed);
    let servers = RefCell::new([Server::default(), Server::default()]);
    let was = RefCell::new([Now::Down; 2]);
    let mut serve = |now, _, number: usize, call: Call| {
        let (state, server) = (history.at(now, number), &mut servers.borrow_mut()[number]);
        let before = std::mem::replace(&mut was.borrow_mut()[number], state);
        let has_restarted = before != state && matches!(state, Now::Serves(_));
        if has_restarted || (now < CALM && mishaps.random_bool(forgets)) {
            server.kept.clear();
        }
        let is_upload = matches!(call, Call::UploadKeys { .. });
        if is_upload && now < CALM && mishaps.random_bool(breaks) {
            return None;
        }
        server.reply(number, state, call)
    };
    let (bell, rung) = bell();
    // The first session in peace, which is moment zero of the history.
    let opening = Predictor::open(spec(2), None, seed, bell.clone());
    let mut first = |_, _, number: usize, call| {
        servers.borrow_mut()[number].reply(number, Now::Serves(0), call)
    };
    let client = run(opening, Duration::ZERO, &mut first).unwrap();
    let plans: Vec<_> = (0..15)
        .map(|turn| {
            let begins = Duration::from_millis(rng.random_range(0..35_000));
            let pin = rng.random_bool(0.5).then_some(held()[0].info.version);
            (turn % 5, begins, rng.random_range(1..=USERS), pin, rng.random())
        })
        .collect();
    let counts = RefCell::new(Counts::default());
    let noted = &counts;
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, faults);
    for &(kind, begins, users, version, random) in &plans {
        let ends_max = begins + ENDS_AFTER;
        match kind {
            // A client that connects in the middle of it.
            0 => {
                let spec = SessionSpec { version, ..spec(2) };
                let opening = Predictor::open(spec, None, random, bell.clone());
                network.start(begins, ends_max, opening, move |_, opened| match opened {
                    Ok(client) => {
                        assert!(version.is_none_or(|pin| pin == client.info().version));
                        noted.borrow_mut().opened += 1;
                    }
                    Err(error) => noted.borrow_mut().note_error(&error),
                });
            }
            1 => network.start(begins, ends_max, client.upload(random), move |_, uploaded| {
                let key_bytes = held()[0].info.key_bytes() as u64;
                match uploaded {
                    Ok(uploaded) => assert_eq!(uploaded.sent_bytes % key_bytes, 0),
                    Err(error) => noted.borrow_mut().note_error(&error),
                }
            }),
            _ => {
                let predicting = predict(&client, users, random);
                network.start(begins, ends_max, predicting, move |_, came| {
                    let mut counts = noted.borrow_mut();
                    match came {
                        Ok(found) => {
                            check(users, random, &found);
                            let query_bytes = held()[0].info.query_bytes() as u64;
                            counts.right += 1;
                            counts.moved += usize::from(found.queue == queue_of(1));
                            counts.renewed += usize::from(found.sent_bytes % query_bytes != 0);
                        }
                        Err(error) => counts.note_error(&error),
                    }
                });
            }
        }
    }
    network.run(&mut serve);
    drop(network);

    // When the faults are over, a prediction succeeds if the servers compute by the client's plan.
    match run(predict(&client, 1, seed), QUIET, &mut serve) {
        Ok(found) if history.last == 0 => check(1, seed, &found),
        Err(Error::Call { error: OTHER_PLAN, .. }) if history.last != 0 => {}
        Err(Error::Failure(Failure::VersionMismatch { .. })) if history.last != 0 => {}
        Ok(_) => panic!("nobody computes by this plan any more"),
        Err(error) => panic!("{error}"),
    }
    if history.is_strange {
        let [_, strange] = servers.into_inner();
        assert_eq!((strange.uploads, strange.queries), (0, 0));
    }
    counts.into_inner()
}

/// The storms are storms, and clients come through them: else the properties would hold of nothing.
#[test]
fn of_every_outcome_there_are_many() {
    let mut counts = Counts::default();
    (0..80).for_each(|seed| counts.add(storm(seed)));
    let Counts { right, moved, renewed, other_plan, mismatched, late, failed, opened } = counts;
    assert!(right >= 150 && moved >= 15 && renewed >= 40 && opened >= 40, "{counts:?}");
    assert!(other_plan >= 20 && mismatched >= 2 && late >= 20 && failed >= 20, "{counts:?}");
}

/// A logit of the other model would be seen.
#[test]
fn the_models_differ() {
    let [first, second] = held();
    assert_ne!(first.info.plan, second.info.plan);
    assert_eq!(first.info.key_bytes(), second.info.key_bytes());
    for user in 0..8 {
        let (dense, indices) = features(&first.dlrm, 1, user);
        let of = |held: &Held| logits(&held.dlrm, &held.weights, &dense, &indices)[0];
        assert!((of(first) - of(second)).abs() > 8.0 * ERROR_MAX, "user {user}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_client_gives_right_logits_or_an_error(seed: u64) {
        storm(seed);
    }
}

/// Eight at once: at the server, at the next one when it drains under them, and at one that
/// forgets.
#[test]
fn many_predictions_at_once_bring_their_keys_once_to_each_server() {
    for seed in 0..12 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let servers = RefCell::new([Server::default(), Server::default()]);
        let (second, third) = (Duration::from_secs(60), Duration::from_secs(120));
        // The first answers some of them yet.
        let drains = second + Duration::from_millis(rng.random_range(0..400));
        let mut serve = |now: Duration, _, number: usize, call| {
            let state = if now >= drains && number == 0 { Now::Drains(0) } else { Now::Serves(0) };
            servers.borrow_mut()[number].reply(number, state, call)
        };
        let (bell, rung) = bell();
        let opening = Predictor::open(spec(2), None, seed, bell);
        let client = run(opening, Duration::ZERO, &mut serve).unwrap();
        let mut sent = 0;
        for (from, uploads) in [(Duration::ZERO, [1, 0]), (second, [1, 1]), (third, [1, 2])] {
            if from == third {
                servers.borrow_mut()[1].kept.clear();
            }
            let bytes = RefCell::new(0);
            let noted = &bytes;
            let mut network = Network::new(&mut rng, &rung, from, Faults::NONE);
            for turn in 0..8 {
                let apart = if from == second { 60 } else { 0 };
                let begins = from + Duration::from_millis(turn * apart);
                let predicting = predict(&client, 1, turn);
                network.start(begins, begins + CALL_MAX, predicting, move |_, found| {
                    let found = found.unwrap_or_else(|error| panic!("{error}"));
                    check(1, turn, &found);
                    *noted.borrow_mut() += found.sent_bytes;
                });
            }
            let uploading = client.upload(seed);
            network.start(from, from + CALL_MAX, uploading, move |_, uploaded| {
                *noted.borrow_mut() += uploaded.unwrap().sent_bytes;
            });
            network.run(&mut serve);
            drop(network);
            sent += bytes.into_inner();
            let found = servers.borrow().each_ref().map(|server| server.uploads);
            assert_eq!(found, uploads, "at {from:?}, of seed {seed}");
        }
        let keys = 3 * held()[0].info.key_bytes();
        assert!(sent > keys as u64, "{sent}");
    }
}

/// A driver that decides how long each call takes: all machines begin at zero. When each was done,
/// and what came of it.
fn drive<M>(
    machines: Vec<M>,
    rung: &AtomicBool,
    mut serve: impl FnMut(Duration, usize, Call) -> (Duration, Replied),
) -> Vec<(Duration, Came<M::Output>)>
where
    M: Machine<&'static str, Protocol = Inference>,
{
    let (mut now, mut coming) = (Duration::ZERO, Vec::new());
    let mut done: Vec<_> = machines.iter().map(|_| None).collect();
    let mut running: Vec<_> = machines.into_iter().map(Some).collect();
    while running.iter().any(Option::is_some) {
        let mut next = Duration::MAX;
        for (who, it) in running.iter_mut().enumerate() {
            while let Some(machine) = it {
                match machine.poll(now) {
                    Step::Send { id, server, call, .. } => {
                        let (after, came) = serve(now, server, call);
                        coming.push((now + after, who, id, came));
                    }
                    Step::Wait { until } => {
                        next = next.min(until);
                        break;
                    }
                    Step::Done(came) => {
                        done[who] = Some((now, came));
                        *it = None;
                    }
                }
            }
        }
        if rung.swap(false, Ordering::Relaxed) {
            continue;
        }
        coming.sort_by_key(|&(at, ..)| std::cmp::Reverse(at));
        now = coming.last().map_or(next, |&(at, ..)| at.min(next));
        while coming.last().is_some_and(|&(at, ..)| at == now) {
            let Some((_, who, id, came)) = coming.pop() else { break };
            if let Some(machine) = &mut running[who] {
                machine.received(id, now, came);
            }
        }
    }
    done.into_iter().flatten().collect()
}

/// A client of as many servers that hold the first model.
fn opened(number: usize, servers: &RefCell<[Server; 2]>) -> (Predictor, Arc<AtomicBool>) {
    let (bell, rung) = bell();
    let opening = Predictor::open(spec(number), None, 1, bell);
    let client = run(opening, Duration::ZERO, &mut |_, _, server: usize, call| {
        Some(vec![settled(servers, server, call)])
    });
    (client.unwrap(), rung)
}

/// The reply of a server that holds the first model.
fn settled(servers: &RefCell<[Server; 2]>, number: usize, call: Call) -> Replied {
    servers.borrow_mut()[number].serve(number, 0, call)
}

/// By the prediction itself where it breaks off at once, or there is another server; else by the
/// next that waits for the keys.
#[test]
fn an_upload_that_dies_halfway_is_begun_again() {
    let (soon, late) = (Duration::from_millis(100), Duration::from_secs(2));
    for (number, breaks, after, lost) in
        [(1, 1, soon, 0), (1, 2, soon, 1), (1, 2, late, 2), (2, 1, late, 0), (2, 3, late, 0)]
    {
        let servers = RefCell::default();
        let (client, rung) = opened(number, &servers);
        let predictions = (0..4).map(|seed| predict(&client, 1, seed)).collect();
        let mut begun = 0;
        let came = drive(predictions, &rung, |_, server, call| {
            begun += usize::from(matches!(call, Call::UploadKeys { .. }));
            match call {
                Call::UploadKeys { .. } if begun <= breaks => {
                    (after, refused(CallFault::Unreachable, "it broke off"))
                }
                call => (Duration::from_millis(20), settled(&servers, server, call)),
            }
        });
        let mut found_lost = 0;
        for (seed, (at, came)) in came.into_iter().enumerate() {
            assert!(at < CALL_MAX, "{at:?}");
            match came {
                Ok(found) => check(1, seed as u64, &found),
                Err(Error::Call { fault: CallFault::Unreachable, .. }) => found_lost += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(found_lost, lost, "{number} servers, {breaks} uploads break after {after:?}");
        let uploads = servers.borrow().each_ref().map(|server| server.uploads);
        assert!(uploads[0] == 1 && uploads[1] <= 1, "{uploads:?}");
        assert_eq!(begun, breaks + uploads[0] + uploads[1]);
    }
}

/// The next one is asked whether it is of the plan, at any place of the list, also by a client that
/// takes any version.
#[test]
fn a_server_of_another_plan_in_the_list_gets_neither_keys_nor_a_query() {
    for (strange, is_pinned) in [(0, true), (1, true), (1, false)] {
        let servers = RefCell::new([Server::default(), Server::default()]);
        let drains = Cell::new(false);
        let mut serve = |_, _, number: usize, call: Call| {
            let state = usize::from(number == strange);
            let now = match state == 0 && drains.get() {
                true => Now::Drains(0),
                false => Now::Serves(state),
            };
            servers.borrow_mut()[number].reply(number, now, call)
        };
        let version = is_pinned.then_some(held()[0].info.version);
        let opening = Predictor::open(SessionSpec { version, ..spec(2) }, None, 1, bell().0);
        let client = run(opening, Duration::ZERO, &mut serve).unwrap();
        check(1, 1, &run(predict(&client, 1, 1), Duration::ZERO, &mut serve).unwrap());
        drains.set(true);
        let lost = run(predict(&client, 1, 2), Duration::ZERO, &mut serve).unwrap_err();
        let is_misfit = matches!(lost, Error::Failure(Failure::VersionMismatch { .. }));
        assert!(is_misfit, "{lost}");
        drains.set(false);
        check(1, 3, &run(predict(&client, 1, 3), Duration::ZERO, &mut serve).unwrap());
        let servers = servers.borrow();
        assert_eq!((servers[strange].uploads, servers[strange].queries), (0, 0));
        assert!(servers[strange].plans.contains(&held()[1].info.plan), "it was not even asked");
        assert_eq!(servers[1 - strange].uploads, 1);
    }
}

fn of_answer(reply: Reply, change: fn(&mut Answer)) -> Reply {
    match reply {
        Reply::Answer(mut answer) => {
            change(&mut answer);
            Reply::Answer(answer)
        }
        other => other,
    }
}

/// A server that says what it should not.
#[test]
fn replies_that_do_not_fit_are_refused() {
    type Lie = fn(Reply) -> Reply;
    type Expected = fn(&Failure) -> bool;
    let lies: [(Lie, Expected); 5] = [
        (
            |reply| match reply {
                Reply::KeysKept(_) => Reply::KeysKept([7; 32]),
                other => other,
            },
            |failure| matches!(failure, Failure::KeyId),
        ),
        (
            |reply| of_answer(reply, |answer| answer.plan = held()[1].info.plan),
            |failure| matches!(failure, Failure::OtherPlan),
        ),
        (
            |reply| of_answer(reply, |answer| answer.answer.truncate(9)),
            |failure| matches!(failure, Failure::AnswerBytes { found: 9, .. }),
        ),
        (
            |reply| of_answer(reply, |it| it.answer = vec![0; it.answer.len()].into()),
            |failure| matches!(failure, Failure::Dlrm(_)),
        ),
        (
            |reply| match reply {
                Reply::Answer(_) => Reply::KeysHeld(true),
                other => other,
            },
            |failure| matches!(failure, Failure::OtherCall),
        ),
    ];
    for (lie, is_expected) in lies {
        let servers = RefCell::default();
        let (client, _) = opened(1, &servers);
        let came = run(predict(&client, 1, 1), Duration::ZERO, &mut |_, _, number, call| {
            Some(vec![settled(&servers, number, call).map(lie)])
        });
        match came.unwrap_err() {
            Error::Failure(failure) if is_expected(&failure) => {}
            error => panic!("{error}"),
        }
    }
}
/// The time of an operation stands still while keys are uploaded: what comes after has all of it.
#[test]
fn an_upload_does_not_take_the_time_of_what_follows_it() {
    let seconds = Duration::from_secs;
    let servers = RefCell::default();
    let (client, rung) = opened(2, &servers);
    let came = drive(vec![predict(&client, 1, 1)], &rung, |_, server, call| match call {
        Call::UploadKeys { .. } => (seconds(8), settled(&servers, server, call)),
        Call::Predict { .. } if server == 0 => {
            (seconds(1), refused(CallFault::Draining, "it drains"))
        }
        call => (Duration::from_millis(500), settled(&servers, server, call)),
    });
    let [(_, found)] = &came[..] else { panic!("one was asked for") };
    check(1, 1, found.as_ref().unwrap_or_else(|error| panic!("{error}")));
}

/// Who waits for keys that another operation brings waits as long as that may take.
#[test]
fn a_prediction_waits_for_keys_that_another_one_brings() {
    let seconds = Duration::from_secs;
    let servers = RefCell::default();
    let (client, rung) = opened(1, &servers);
    let predictions = (0..2).map(|seed| predict(&client, 1, seed)).collect();
    let came = drive(predictions, &rung, |_, server, call| match call {
        Call::UploadKeys { .. } => (seconds(8), settled(&servers, server, call)),
        call => (seconds(1), settled(&servers, server, call)),
    });
    for (seed, (at, found)) in came.iter().enumerate() {
        check(1, seed as u64, found.as_ref().unwrap_or_else(|error| panic!("{at:?}: {error}")));
    }
}
