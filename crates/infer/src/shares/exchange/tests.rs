//! Sessions of two servers: clients in any order, servers that restart, parts that never come.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Mutex;

use super::*;
use crate::dlrm::reference::forward;
use crate::shares::Dealers;
use crate::shares::bench::described;
use crate::shares::client::{deal, open, share};
use crate::shares::price::{Model, features};
use crate::shares::random::Random;

const PLAN: [u8; 32] = [1; 32];
const MODEL: [u8; 32] = [2; 32];
const SPEC: ExchangeSpec =
    ExchangeSpec { inferences_max: 16, silence_max: Duration::from_millis(1000) };
const SIDES: [Half; 2] = [Half::Left, Half::Right];

fn model() -> Model {
    let features = [("C0", 9, 1), ("C1", 10, 1), ("C2", 11, 1)];
    let spec = described(5, &[8, 4], &[8, 1], &features);
    Model::synthetic(spec, 10, 8, 3).unwrap()
}

fn session(model: &Model) -> [Exchange<Vec<u8>>; 2] {
    let hellos = SIDES.map(|half| Hello::new(half, PLAN, MODEL).unwrap());
    // As they travel.
    let [to_right, to_left] = hellos.each_ref().map(|it| Hello::parse(&it.to_bytes()).unwrap());
    let end = |own, other| Exchange::new(Arc::clone(&model.network), own, other, SPEC).unwrap();
    [end(&hellos[0], &to_left), end(&hellos[1], &to_right)]
}

/// A client's two parts, and the float model's logit.
fn questions(model: &Model, name: u64) -> ([Question<Vec<u8>>; 2], f64) {
    let (dense, indices) = features(&model.dlrm, name);
    let rows = model.rows(&indices).unwrap();
    let mut random = Random(!name);
    let left: Vec<u8> = rows.iter().map(|_| random.word() as u8).collect();
    let right = rows.iter().zip(&left).map(|(row, left)| row ^ left).collect();
    let dealt = deal(model.network.outline(), &dense).unwrap();
    let question = |dealt_to: &[u8], rows: Vec<u8>| Question {
        name: u128::from(name).to_le_bytes(),
        common: dealt.common.clone(),
        dealt: dealt_to.to_vec(),
        precompute: None,
        rows,
    };
    let float = forward(&model.dlrm, &model.weights, &dense, &indices).unwrap().logit;
    ([question(&dealt.left, left), question(&dealt.right, right)], float)
}

fn again(question: &Question<Vec<u8>>, name: Name) -> Question<Vec<u8>> {
    let Question { common, dealt, rows, .. } = question;
    Question {
        name,
        common: common.clone(),
        dealt: dealt.clone(),
        rows: rows.clone(),
        precompute: None,
    }
}

/// Passes frames until there are none; how many, and their bytes.
fn settle(ends: &mut [Exchange<Vec<u8>>; 2], now: Duration) -> (usize, usize) {
    let (mut frames, mut bytes) = (0, 0);
    loop {
        let before = frames;
        for side in 0..2 {
            while let Some(frame) = ends[side].send(usize::MAX) {
                frames += 1;
                bytes += frame.len();
                ends[1 - side].take(&frame, now).unwrap();
            }
        }
        if frames == before {
            return (frames, bytes);
        }
    }
}

fn logits(model: &Model, ends: &mut [Exchange<Vec<u8>>; 2]) -> BTreeMap<Name, f64> {
    let [left, right] = ends.each_mut().map(|end| {
        let shares = end.outcomes().into_iter().map(|(name, share)| (name, share.unwrap()));
        shares.collect::<BTreeMap<_, _>>()
    });
    assert!(left.keys().eq(right.keys()));
    let of = |(name, share): (&Name, &Vec<u8>)| {
        (*name, open(model.network.outline(), share, &right[name]).unwrap())
    };
    left.iter().map(of).collect()
}

#[test]
fn many_inferences_share_each_round_trip() {
    let model = model();
    let outline = model.network.outline();
    let mut ends = session(&model);
    let mut floats = BTreeMap::new();
    for name in 0..10 {
        let ([left, right], float) = questions(&model, name);
        floats.insert(left.name, float);
        ends[0].ask(left, Duration::ZERO).unwrap();
        ends[1].ask(right, Duration::ZERO).unwrap();
    }
    assert_eq!(ends.each_ref().map(Exchange::inferences), [10, 10]);
    let (frames, bytes) = settle(&mut ends, Duration::ZERO);
    assert_eq!(frames, outline.rounds() + 1);
    let entries = 10 * (2 * outline.rounds() * 13 + 16);
    assert_eq!(bytes, 10 * 2 * outline.peer_bytes() + entries);
    let found = logits(&model, &mut ends);
    assert_eq!(found.len(), 10);
    for (name, float) in floats {
        assert!((found[&name] - float).abs() < 1.0 / 128.0, "{} and {float}", found[&name]);
    }
    assert_eq!(ends.each_ref().map(Exchange::inferences), [0, 0]);
}

#[test]
fn frames_are_cut_where_they_grow_too_long_and_never_within_an_entry() {
    let model = model();
    let mut ends = session(&model);
    for name in 0..6 {
        let ([left, right], _) = questions(&model, name);
        ends[0].ask(left, Duration::ZERO).unwrap();
        ends[1].ask(right, Duration::ZERO).unwrap();
    }
    let whole: usize = ends[0].entries.iter().map(Entry::bytes).sum();
    let mut found = Vec::new();
    while let Some(frame) = ends[0].send(whole / 3 + 1) {
        assert!(frame.len() <= whole / 3 + 1);
        found.push(frame.len());
        ends[1].take(&frame, Duration::ZERO).unwrap();
    }
    assert_eq!((found.len(), found.iter().sum()), (3, whole));
    settle(&mut ends, Duration::ZERO);
    assert_eq!(logits(&model, &mut ends).len(), 6);
}

#[test]
fn servers_that_do_not_go_together_say_why() {
    let hello = |half, plan, model| Hello::new(half, [plan; 32], [model; 32]).unwrap();
    let left = hello(Half::Left, 1, 2);
    let refused = |other: &Hello| {
        let error = left.meet(other).map(|_| ()).unwrap_err();
        assert!(!error.to_string().is_empty());
        error
    };
    let itself = Hello::parse(&left.to_bytes()).unwrap();
    assert!(refused(&itself).to_string().contains("give the address of the right one"));
    assert!(refused(&hello(Half::Left, 1, 2)).to_string().contains("is left as well"));
    assert!(matches!(refused(&hello(Half::Right, 1, 3)), HelloError::Model { .. }));
    assert!(matches!(refused(&hello(Half::Right, 3, 2)), HelloError::Plan { .. }));
    let right = hello(Half::Right, 1, 2);
    let both = [left.meet(&right).unwrap(), right.meet(&left).unwrap()];
    assert_eq!(both[0].expose(), both[1].expose());
    // Sessions of the same two servers have secrets of their own, and inferences theirs.
    let later = left.meet(&hello(Half::Right, 1, 2)).unwrap();
    assert_ne!(later.expose(), both[0].expose());
    let seeds = [1, 2].map(|number| hello::zero_seed(&both[0], number));
    assert_ne!(seeds[0].expose(), seeds[1].expose());
    let bytes = left.to_bytes();
    for length in 0..bytes.len() {
        assert!(Hello::parse(&bytes[..length]).is_err());
    }
    assert!(matches!(Hello::parse(&[&bytes[..], &[0]].concat()), Err(HelloError::Bytes { .. })));
    for (at, value) in [(0, 2), (1, 4)] {
        let mut other = bytes.clone();
        other[at] = value;
        assert!(Hello::parse(&other).is_err());
    }
}

#[test]
fn nothing_is_masked_twice_though_a_client_deals_the_same_again() {
    let model = model();
    let rows = model.network.outline().looked_bits() / 8;
    let [mut left, _] = session(&model);
    let ([question, _], _) = questions(&model, 0);
    let mut sent = Vec::new();
    for name in 0..4 {
        left.ask(again(&question, [name; 16]), Duration::ZERO).unwrap();
        let entry = left.entries.pop().unwrap();
        // The rows' bits are masked by what this client dealt, and hide its rows alone.
        sent.push(entry.message[rows..].to_vec());
    }
    let [mut later, _] = session(&model);
    later.ask(again(&question, [0; 16]), Duration::ZERO).unwrap();
    sent.push(later.entries.pop().unwrap().message[rows..].to_vec());
    sent.sort();
    sent.dedup();
    assert_eq!(sent.len(), 5);
}

#[test]
fn questions_that_cannot_be_are_refused_before_anything_is_sent() {
    let model = model();
    for (half, end) in session(&model).iter_mut().enumerate() {
        let part = |name| {
            let (questions, _) = questions(&model, name);
            questions.into_iter().nth(half).unwrap()
        };
        for cut in 0..3 {
            let mut question = part(1);
            let bytes = [&mut question.common, &mut question.dealt, &mut question.rows];
            bytes.into_iter().nth(cut).unwrap().pop();
            let refused = end.ask(question, Duration::ZERO).unwrap_err();
            assert!(matches!(refused, AskError::Question(Error::Bytes { .. })), "{refused}");
        }
        assert_eq!((end.inferences(), end.send(usize::MAX)), (0, None));
        for name in 0..SPEC.inferences_max as u64 {
            end.ask(part(name), Duration::ZERO).unwrap();
        }
        assert!(matches!(end.ask(part(3), Duration::ZERO), Err(AskError::SameName)));
        let refused = end.ask(part(99), Duration::ZERO).unwrap_err();
        assert!(matches!(refused, AskError::Busy { inferences_max: 16 }), "{refused}");
    }
}

#[test]
fn a_part_that_never_comes_is_said_and_leaves_nothing() {
    let model = model();
    let ([left, right], _) = questions(&model, 1);
    let (at, late) = (Duration::from_millis(10), Duration::from_millis(1010));
    // Left alone has its part: right is told, and knows nothing of it.
    let mut ends = session(&model);
    ends[0].ask(again(&left, left.name), at).unwrap();
    settle(&mut ends, at);
    ends.iter_mut().for_each(|end| end.expire(late - Duration::from_millis(1)));
    assert!(ends[0].outcomes().is_empty());
    ends.iter_mut().for_each(|end| end.expire(late));
    let found = ends[0].outcomes();
    assert!(matches!(found[..], [(_, Err(Failure::Absent { .. }))]), "{found:?}");
    settle(&mut ends, late);
    assert!(ends[1].begun.is_empty() && ends[1].outcomes().is_empty());
    // Right alone.
    let mut ends = session(&model);
    ends[1].ask(again(&right, right.name), at).unwrap();
    ends[1].expire(late);
    let found = ends[1].outcomes();
    assert!(matches!(found[..], [(_, Err(Failure::Absent { .. }))]), "{found:?}");
    assert_eq!((ends[1].inferences(), ends[1].send(usize::MAX)), (0, None));
    // Both have it, then right says nothing any more.
    let mut ends = session(&model);
    ends[1].ask(right, at).unwrap();
    ends[0].ask(left, at).unwrap();
    let begin = ends[0].send(usize::MAX).unwrap();
    ends[1].take(&begin, at).unwrap();
    let answer = ends[1].send(usize::MAX).unwrap();
    ends[0].take(&answer, at).unwrap();
    ends[0].expire(late);
    let found = ends[0].outcomes();
    assert!(matches!(found[..], [(_, Err(Failure::Silent { .. }))]), "{found:?}");
    settle(&mut ends, late);
    let found = ends[1].outcomes();
    assert!(matches!(found[..], [(_, Err(Failure::GivenUp))]), "{found:?}");
    assert_eq!(ends.each_ref().map(Exchange::inferences), [0, 0]);
    // The session is lost.
    let mut ends = session(&model);
    let ([left, right], _) = questions(&model, 2);
    ends[0].ask(left, at).unwrap();
    ends[1].ask(right, at).unwrap();
    for end in ends {
        let found = end.close();
        assert!(matches!(found[..], [(_, Err(Failure::Lost))]), "{found:?}");
    }
}

#[test]
fn frames_of_nonsense_end_a_session_or_an_inference_and_no_server() {
    let model = model();
    let begun = || {
        let mut ends = session(&model);
        let ([left, right], _) = questions(&model, 1);
        ends[0].ask(left, Duration::ZERO).unwrap();
        ends[1].ask(right, Duration::ZERO).unwrap();
        let frame = ends[0].send(usize::MAX).unwrap();
        (ends, frame)
    };
    let (mut ends, frame) = begun();
    assert_eq!(ends[0].take(&frame, Duration::ZERO), Err(FrameError::Begins));
    ends[1].take(&frame, Duration::ZERO).unwrap();
    let twice = ends[1].take(&frame, Duration::ZERO);
    assert_eq!(twice, Err(FrameError::Number { last: 1, found: 1 }));
    let mut random = Random(5);
    let mut kinds = [0; 3];
    for round in 0..300 {
        let (mut ends, mut frame) = begun();
        match round % 3 {
            0 => frame.truncate(random.word() as usize % frame.len()),
            1 => {
                let at = random.word() as usize % 32;
                frame[at] ^= 1 << (random.word() % 8);
            }
            _ => frame.extend((0..random.word() % 40).map(|_| random.word() as u8)),
        }
        if ends[1].take(&frame, Duration::ZERO).is_err() {
            kinds[0] += 1;
            continue;
        }
        settle(&mut ends, Duration::ZERO);
        let late = 2 * SPEC.silence_max;
        ends.iter_mut().for_each(|end| end.expire(late));
        settle(&mut ends, late);
        let [left, right] = ends.each_mut().map(Exchange::outcomes);
        assert_eq!((left.len(), right.len()), (1, 1), "round {round}: each client hears");
        kinds[if left[0].1.is_ok() && right[0].1.is_ok() { 1 } else { 2 }] += 1;
        assert_eq!(ends.each_ref().map(Exchange::inferences), [0, 0]);
    }
    assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
}

/// Two servers, what is between them, and their clients.
struct World<'a> {
    model: &'a Model,
    random: Random,
    now: Duration,
    ends: [Exchange<Vec<u8>>; 2],
    /// Frames on their way to left, and to right.
    travelling: [VecDeque<Vec<u8>>; 2],
    /// Parts on their way: to whom, and the part.
    parts: Vec<(usize, Question<Vec<u8>>)>,
    floats: BTreeMap<Name, f64>,
    /// By name, what left and right said: a share, or nothing.
    heard: BTreeMap<Name, [Option<Option<Vec<u8>>>; 2]>,
    names: u64,
}

impl World<'_> {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.word() % bound
    }

    fn client_comes(&mut self) {
        self.names += 1;
        let (questions, float) = questions(self.model, self.names);
        self.floats.insert(questions[0].name, float);
        self.heard.insert(questions[0].name, Default::default());
        for (side, mut part) in questions.into_iter().enumerate() {
            match self.below(20) {
                // It never comes.
                0 => {}
                1 => {
                    part.dealt.pop();
                    self.parts.push((side, part));
                }
                _ => self.parts.push((side, part)),
            }
        }
    }

    fn part_arrives(&mut self) {
        if self.parts.is_empty() {
            return;
        }
        let chosen = self.below(self.parts.len() as u64) as usize;
        let (side, part) = self.parts.swap_remove(chosen);
        let name = part.name;
        if self.ends[side].ask(part, self.now).is_err() {
            self.hear(side, name, None);
        }
    }

    fn hear(&mut self, side: usize, name: Name, share: Option<Vec<u8>>) {
        let heard = &mut self.heard.get_mut(&name).unwrap()[side];
        assert!(heard.is_none(), "a part is answered once");
        *heard = Some(share);
    }

    fn collect(&mut self) {
        for side in 0..2 {
            for (name, outcome) in self.ends[side].outcomes() {
                self.hear(side, name, outcome.ok());
            }
        }
    }

    fn send(&mut self, side: usize) {
        let bytes_max = 1 + self.below(2000) as usize;
        if let Some(frame) = self.ends[side].send(bytes_max) {
            self.travelling[1 - side].push_back(frame);
        }
    }

    fn receive(&mut self, side: usize) {
        if let Some(frame) = self.travelling[side].pop_front() {
            self.ends[side].take(&frame, self.now).unwrap();
        }
    }

    /// One of them dies, or the connection.
    fn session_ends(&mut self) {
        let ends = std::mem::replace(&mut self.ends, session(self.model));
        for (side, end) in ends.into_iter().enumerate() {
            for (name, outcome) in end.close() {
                self.hear(side, name, outcome.ok());
            }
        }
        self.travelling.iter_mut().for_each(VecDeque::clear);
    }
}

#[test]
fn whatever_happens_a_client_gets_its_logit_or_none() {
    let model = model();
    let (mut answered, mut failed) = (0, 0);
    for seed in 1..=40 {
        let mut world = World {
            model: &model,
            random: Random(seed),
            now: Duration::ZERO,
            ends: session(&model),
            travelling: Default::default(),
            parts: Vec::new(),
            floats: BTreeMap::new(),
            heard: BTreeMap::new(),
            names: 1000 * seed,
        };
        let restarts = seed % 4 != 0;
        for _ in 0..1200 {
            match world.below(100) {
                0..3 => world.client_comes(),
                3..20 => world.part_arrives(),
                20..55 => (0..2).for_each(|side| world.send(side)),
                55..97 => (0..2).for_each(|side| world.receive(side)),
                97..99 => {
                    world.now += Duration::from_millis(100);
                    let now = world.now;
                    world.ends.iter_mut().for_each(|end| end.expire(now));
                }
                _ if restarts && world.below(4) == 0 => world.session_ends(),
                _ => {}
            }
            world.collect();
        }
        // What is on its way arrives, and what is not never does.
        while !world.parts.is_empty() {
            world.part_arrives();
        }
        for _ in 0..3 {
            while !world.travelling.iter().all(VecDeque::is_empty) {
                (0..2).for_each(|side| world.receive(side));
            }
            settle(&mut world.ends, world.now);
            world.now += SPEC.silence_max;
            let now = world.now;
            world.ends.iter_mut().for_each(|end| end.expire(now));
            world.collect();
        }
        for end in &world.ends {
            assert!(end.names.is_empty() && end.running.is_empty() && end.begun.is_empty());
        }
        for (name, heard) in &world.heard {
            match heard {
                [Some(Some(left)), Some(Some(right))] => {
                    let found = open(model.network.outline(), left, right).unwrap();
                    let float = world.floats[name];
                    assert!((found - float).abs() < 1.0 / 128.0, "{found} and {float}");
                    answered += 1;
                }
                _ => failed += 1,
            }
        }
    }
    assert!(answered > 200 && failed > 50, "{answered} answered, {failed} not");
}

/// Precomputes of right, by id.
#[derive(Default)]
struct Shelf(Mutex<HashMap<Id, Precompute>>);

impl Supply for Shelf {
    fn take(&self, id: &Id) -> Option<Precompute> {
        self.0.lock().unwrap().remove(id)
    }
}

/// A session of servers that deal, and halves of so many inferences: left's, and right's on a shelf.
fn dealt_by_servers(
    model: &Model,
    count: usize,
) -> ([Exchange<Vec<u8>>; 2], Vec<Precompute>, Arc<Shelf>) {
    let hello = |half| Hello::new(half, PLAN, MODEL).unwrap().dealt_by(DealtBy::Servers);
    let hellos = SIDES.map(|half| Hello::parse(&hello(half).to_bytes()).unwrap());
    let end = |own, other| Exchange::new(Arc::clone(&model.network), own, other, SPEC).unwrap();
    let [left, right] = Dealers::meet(model.network.outline()).unwrap().deal(count).unwrap();
    let shelf = Arc::new(Shelf::default());
    shelf.0.lock().unwrap().extend(right.into_iter().map(|it| (it.id(), it)));
    let supply: Arc<dyn Supply> = Arc::clone(&shelf) as _;
    let ends = [end(&hellos[0], &hellos[1]), end(&hellos[1], &hellos[0]).supplied(supply)];
    (ends, left, shelf)
}

/// Questions where the servers deal: left's needs a precompute.
fn shared_questions(model: &Model, name: u64) -> ([Question<Vec<u8>>; 2], f64) {
    let ([mut left, mut right], float) = questions(model, name);
    let (dense, _) = features(&model.dlrm, name);
    let shared = share(model.network.outline(), &dense).unwrap();
    for (question, dense) in [(&mut left, &shared.left), (&mut right, &shared.right)] {
        question.common.clear();
        question.dealt = dense.clone();
    }
    ([left, right], float)
}

#[test]
fn servers_that_deal_answer_with_what_left_names() {
    let model = model();
    let (mut ends, mut halves, shelf) = dealt_by_servers(&model, 6);
    let mut floats = BTreeMap::new();
    for name in 0..6 {
        let ([mut left, right], float) = shared_questions(&model, name);
        // Names and ids go together, in whatever order.
        left.precompute = halves.pop();
        floats.insert(left.name, float);
        if name % 2 == 0 {
            ends[1].ask(right, Duration::ZERO).unwrap();
            ends[0].ask(left, Duration::ZERO).unwrap();
        } else {
            ends[0].ask(left, Duration::ZERO).unwrap();
            settle(&mut ends, Duration::ZERO);
            ends[1].ask(right, Duration::ZERO).unwrap();
        }
    }
    settle(&mut ends, Duration::ZERO);
    let found = logits(&model, &mut ends);
    assert_eq!(found.len(), 6);
    for (name, float) in floats {
        assert!((found[&name] - float).abs() < 1.0 / 128.0, "{} and {float}", found[&name]);
    }
    assert!(shelf.0.lock().unwrap().is_empty());
}

#[test]
fn what_is_missing_declined_or_given_up_is_said_and_never_used_twice() {
    let model = model();
    let (mut ends, mut halves, shelf) = dealt_by_servers(&model, 3);
    // A client's part with what it dealt, and left without a precompute.
    let ([dealt, _], _) = questions(&model, 0);
    assert!(matches!(ends[0].ask(dealt, Duration::ZERO), Err(AskError::Question(_))));
    let ([left, right], _) = shared_questions(&model, 1);
    let name = left.name;
    let refused = ends[0].ask(left, Duration::ZERO);
    assert!(matches!(
        refused,
        Err(AskError::Question(Error::Precompute(PrecomputeError::Missing)))
    ));
    let (mut early, late) = (again(&right, [91; 16]), again(&right, [92; 16]));
    ends[0].decline(name);
    ends[1].ask(right, Duration::ZERO).unwrap();
    settle(&mut ends, Duration::ZERO);
    assert!(matches!(ends[1].outcomes()[..], [(found, Err(Failure::Dry))] if found == name));
    // Said before right has its part: it is told then, unless that takes too long.
    ends[0].decline(early.name);
    ends[0].decline(late.name);
    settle(&mut ends, Duration::ZERO);
    let early_name = early.name;
    early.rows.truncate(1);
    assert!(matches!(ends[1].ask(early, Duration::ZERO), Err(AskError::Question(_))));
    let early = again(&late, early_name);
    ends[1].ask(early, Duration::ZERO).unwrap();
    assert!(matches!(ends[1].outcomes()[..], [(found, Err(Failure::Dry))] if found == early_name));
    assert_eq!(ends[1].inferences(), 0);
    ends[1].expire(SPEC.silence_max);
    ends[1].ask(late, Duration::ZERO).unwrap();
    assert_eq!((ends[1].inferences(), ends[1].outcomes().len()), (1, 0));
    ends[1].expire(SPEC.silence_max);
    assert!(matches!(ends[1].outcomes()[..], [(_, Err(Failure::Absent { .. }))]));
    // One that right does not have, or no longer.
    let ([mut left, right], _) = shared_questions(&model, 2);
    let twice = halves.pop().unwrap();
    assert!(shelf.take(&twice.id()).is_some());
    left.precompute = Some(twice);
    ends[0].ask(left, Duration::ZERO).unwrap();
    ends[1].ask(right, Duration::ZERO).unwrap();
    settle(&mut ends, Duration::ZERO);
    let failed = |outcomes: Vec<(Name, Result<Vec<u8>, Failure>)>| {
        assert_eq!(outcomes.len(), 1);
        outcomes.into_iter().next().unwrap().1.unwrap_err()
    };
    assert!(matches!(failed(ends[0].outcomes()), Failure::GivenUp));
    assert!(matches!(
        failed(ends[1].outcomes()),
        Failure::Message(Error::Precompute(PrecomputeError::Missing))
    ));
    // Right never gets its part: what left took is gone on both sides.
    let ([mut left, _], _) = shared_questions(&model, 3);
    left.precompute = halves.pop();
    ends[0].ask(left, Duration::ZERO).unwrap();
    settle(&mut ends, Duration::ZERO);
    assert_eq!(shelf.0.lock().unwrap().len(), 2);
    ends[1].expire(SPEC.silence_max);
    assert_eq!(shelf.0.lock().unwrap().len(), 1);
    settle(&mut ends, Duration::ZERO);
    assert!(matches!(failed(ends[0].outcomes()), Failure::GivenUp));
    // Nor where the session ends meanwhile.
    let ([mut left, _], _) = shared_questions(&model, 4);
    left.precompute = halves.pop();
    ends[0].ask(left, Duration::ZERO).unwrap();
    settle(&mut ends, Duration::ZERO);
    let [_, right] = ends;
    right.close();
    assert!(shelf.0.lock().unwrap().is_empty());
}

/// What only one server has a part of costs no precompute, and who has learnt of what knows when that is over.
#[test]
fn left_knows_what_right_has_a_part_of() {
    let model = model();
    let (mut ends, mut halves, _) = dealt_by_servers(&model, 2);
    let ([mut left, right], _) = shared_questions(&model, 0);
    let name = left.name;
    ends[0].admit(&name).unwrap();
    assert!(!ends[0].has_other(&name));
    ends[1].ask(right, Duration::ZERO).unwrap();
    settle(&mut ends, Duration::ZERO);
    assert!(ends[0].has_other(&name) && ends[0].met() == [name] && ends[0].met().is_empty());
    left.precompute = halves.pop();
    ends[0].ask(left, Duration::ZERO).unwrap();
    assert!(!ends[0].has_other(&name), "it is known until it is begun");
    settle(&mut ends, Duration::ZERO);
    assert_eq!(ends[1].met(), [name]);
    assert_eq!(ends[0].met(), [name], "and once more, for right's first message");
    assert_eq!(logits(&model, &mut ends).len(), 1);
    // Right gives it up, for another client or for its age: left takes nothing for it any more.
    for (number, is_late) in [(1, false), (2, true)] {
        let ([_, right], _) = shared_questions(&model, number);
        let name = right.name;
        ends[1].ask(right, Duration::ZERO).unwrap();
        settle(&mut ends, Duration::ZERO);
        assert!(ends[0].has_other(&name));
        match is_late {
            true => ends[1].expire(SPEC.silence_max),
            false => ends[1].give_up(&name),
        }
        settle(&mut ends, Duration::ZERO);
        assert!(!ends[0].has_other(&name) && ends[1].outcomes().len() == 1);
    }
    // Left says nothing of the kind, and keeps no more than it may.
    for kind in [Kind::Has(name), Kind::Lacks(name)] {
        let frame = frame::encode([Entry { number: 0, kind, message: Vec::new() }]);
        assert_eq!(ends[1].take(&frame, Duration::ZERO), Err(FrameError::Has));
    }
    for number in 0..100_u8 {
        let kind = Kind::Has([number; 16]);
        let frame = frame::encode([Entry { number: 0, kind, message: Vec::new() }]);
        ends[0].take(&frame, Duration::ZERO).unwrap();
    }
    assert_eq!(ends[0].has.len(), 2 * SPEC.inferences_max);
    ends[0].expire(SPEC.silence_max);
    assert!(ends[0].has.is_empty());
}

/// Whatever state it is in, both servers are done with it.
#[test]
fn what_gives_its_place_up_is_over_at_both_servers() {
    let model = model();
    let displaced = |end: &mut Exchange<Vec<u8>>, name: Name| {
        end.give_up(&name);
        let outcomes = end.outcomes();
        assert!(matches!(outcomes[..], [(found, Err(Failure::Displaced))] if found == name));
    };
    for side in 0..2 {
        let mut ends = session(&model);
        let ([left, right], _) = questions(&model, 0);
        let name = left.name;
        ends[side].admit(&name).unwrap();
        displaced(&mut ends[side], name);
        ends[0].ask(left, Duration::ZERO).unwrap();
        ends[1].ask(right, Duration::ZERO).unwrap();
        let frame = ends[0].send(usize::MAX).unwrap();
        ends[1].take(&frame, Duration::ZERO).unwrap();
        displaced(&mut ends[side], name);
        settle(&mut ends, Duration::ZERO);
        let other = ends[1 - side].outcomes();
        assert!(matches!(other[..], [(_, Err(Failure::GivenUp))]), "{other:?}");
        assert_eq!(ends.each_ref().map(Exchange::inferences), [0, 0]);
        // Before the other has its part.
        let ([left, right], _) = questions(&model, 1);
        let question = if side == 0 { left } else { right };
        let name = question.name;
        ends[side].ask(question, Duration::ZERO).unwrap();
        displaced(&mut ends[side], name);
        settle(&mut ends, Duration::ZERO);
        assert_eq!(ends.each_ref().map(Exchange::inferences), [0, 0]);
        assert!(ends[1].begun.is_empty());
    }
}

/// Left takes a precompute for each that it admits, which must not be for nothing: nobody is admitted in vain.
#[test]
fn what_is_admitted_keeps_its_place_until_it_is_asked_or_dismissed() {
    let model = model();
    let (mut ends, mut halves, _) = dealt_by_servers(&model, 1);
    let left = &mut ends[0];
    let ([mut question, _], _) = shared_questions(&model, 0);
    let name = question.name;
    left.admit(&name).unwrap();
    assert!(matches!(left.admit(&name), Err(AskError::SameName)));
    let others: Vec<Name> = (1..SPEC.inferences_max as u8).map(|other| [other + 100; 16]).collect();
    others.iter().for_each(|other| left.admit(other).unwrap());
    assert!(matches!(left.admit(&[99; 16]), Err(AskError::Busy { inferences_max: 16 })));
    left.dismiss(&others[0]);
    left.decline(others[1]);
    assert_eq!(left.inferences(), SPEC.inferences_max - 2);
    // One that was admitted is asked, and is under way then; one that is no question leaves no place taken.
    question.precompute = halves.pop();
    left.ask(question, Duration::ZERO).unwrap();
    assert!(matches!(left.admit(&name), Err(AskError::SameName)));
    left.dismiss(&name);
    assert_eq!(left.inferences(), SPEC.inferences_max - 2, "what runs is not dismissed");
    let ([mut question, _], _) = shared_questions(&model, 1);
    question.name = others[2];
    left.ask(question, Duration::ZERO).unwrap_err();
    assert_eq!(left.inferences(), SPEC.inferences_max - 3);
}

#[test]
fn servers_with_different_dealers_do_not_go_together() {
    let left = Hello::new(Half::Left, PLAN, MODEL).unwrap();
    let right = Hello::new(Half::Right, PLAN, MODEL).unwrap().dealt_by(DealtBy::Servers);
    let error = left.meet(&right).map(|_| ()).unwrap_err();
    assert!(matches!(error, HelloError::Dealer { .. }));
    assert!(error.to_string().contains("dealt by the two servers"), "{error}");
}
