#![no_main]

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arbitrary::Arbitrary;
use hushtable_fuzz::{hurt, small_shared};
use hushtable_infer::shares::exchange::{Exchange, ExchangeSpec, Hello, Question, Supply};
use hushtable_infer::shares::joint::{Dealer, Id, Precompute, Progress};
use hushtable_infer::shares::price::{Model, features};
use hushtable_infer::shares::{Dealers, DealtBy, Half, client};
use libfuzzer_sys::fuzz_target;

/// What two servers do.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Work {
    Deal,
    InferAsClientsDealt,
    InferAsServersDealt,
}

// Two servers whose frames travel, one of them changed on its way, lost, or sent twice: an error or other numbers, never
// a panic, and one outcome of each question at each server.
fuzz_target!(|input: (Work, u8, u8, u32, Vec<u8>)| {
    static WORLD: OnceLock<(Model, [Vec<u8>; 2], Id)> = OnceLock::new();
    let (model, dealt, id) = WORLD.get_or_init(world);
    let (work, which, how, at, damage) = input;
    let mut way = Way { left: Some(which), how, at, damage };
    match work {
        Work::Deal => deal(model, &mut way),
        Work::InferAsClientsDealt => infer(model, &mut way, None),
        Work::InferAsServersDealt => {
            let read = |bytes: &Vec<u8>| Precompute::from_bytes(bytes.clone(), id).expect("whole");
            infer(model, &mut way, Some(dealt.each_ref().map(read)));
        }
    }
});

/// Between the servers.
struct Way {
    /// Frames that pass before one is hurt; None behind that.
    left: Option<u8>,
    how: u8,
    at: u32,
    damage: Vec<u8>,
}

impl Way {
    /// What arrives of a frame.
    fn pass(&mut self, mut frame: Vec<u8>) -> Vec<Vec<u8>> {
        let is_hurt = self.left == Some(0);
        self.left = self.left.and_then(|left| left.checked_sub(1));
        match self.how % 4 {
            0 if is_hurt => Vec::new(),
            1 if is_hurt => vec![frame.clone(), frame],
            _ => {
                if is_hurt {
                    hurt(&mut frame, self.at, &self.damage);
                }
                vec![frame]
            }
        }
    }

    fn is_honest(&self) -> bool {
        self.left.is_some()
    }
}

fn deal(model: &Model, way: &mut Way) {
    let outline = model.network.outline();
    let start = |half| Dealer::start(half, outline).expect("servers can deal for it");
    let [(left, first), (right, second)] = [Half::Left, Half::Right].map(start);
    let (mut dealers, mut messages) = ([left, right], [first, second]);
    for is_dealing in [false, true] {
        if is_dealing {
            messages =
                dealers.each_mut().map(|dealer| dealer.deal(1).expect("nothing else goes on"));
        }
        loop {
            let mut made = [None, None];
            for side in 0..2 {
                for message in way.pass(messages[1 - side].clone()) {
                    match dealers[side].step(&message) {
                        Ok(Progress::Send(next)) if made[side].is_none() => made[side] = Some(next),
                        Ok(Progress::Ready(dealt)) if made[side].is_none() => {
                            let is_whole = |it: &Precompute| {
                                it.as_bytes().len() == Precompute::bytes_of(outline)
                            };
                            assert_eq!(dealt.len(), usize::from(is_dealing));
                            assert!(dealt.iter().all(is_whole));
                            made[side] = Some(Vec::new());
                        }
                        Ok(_) => return assert!(!way.is_honest()),
                        Err(_) => {
                            let again = dealers[side].step(&message);
                            return assert!(!way.is_honest() && again.is_err(), "it is over");
                        }
                    }
                }
            }
            match made {
                [Some(left), Some(right)] if left.is_empty() && right.is_empty() => break,
                [Some(left), Some(right)] => messages = [left, right],
                // It waits for a message that was lost.
                _ => return assert!(!way.is_honest()),
            }
        }
    }
}

/// One precompute, taken once.
struct Held(Mutex<Option<Precompute>>);

impl Supply for Held {
    fn take(&self, id: &Id) -> Option<Precompute> {
        self.0.lock().expect("no panic").take_if(|held| held.id() == *id)
    }
}

fn infer(model: &Model, way: &mut Way, dealt: Option<[Precompute; 2]>) {
    const NAME: [u8; 16] = [3; 16];
    let dealt_by = if dealt.is_some() { DealtBy::Servers } else { DealtBy::Client };
    let hello = |half| Hello::new(half, [1; 32], [2; 32]).expect("randomness").dealt_by(dealt_by);
    let hellos = [Half::Left, Half::Right].map(hello);
    let end = |own: usize| {
        let network = Arc::clone(&model.network);
        let (own, other) = (&hellos[own], &hellos[1 - own]);
        Exchange::new(network, own, other, ExchangeSpec::default()).expect("both sides, one model")
    };
    let (outline, (dense, indices)) = (model.network.outline(), features(&model.dlrm, 1));
    let rows = model.rows(&indices).expect("indices in bounds");
    let (common, parts) = match dealt_by {
        DealtBy::Client => {
            let dealt = client::deal(outline, &dense).expect("randomness");
            (dealt.common.clone(), [dealt.left.clone(), dealt.right.clone()])
        }
        DealtBy::Servers => {
            let shared = client::share(outline, &dense).expect("randomness");
            (Vec::new(), [shared.left.clone(), shared.right.clone()])
        }
    };
    let [own, held] = dealt.map_or([None, None], |dealt| dealt.map(Some));
    let [left, right] = parts;
    let question = |dealt, precompute, rows| {
        let common = common.clone();
        Question { name: NAME, common, dealt, precompute, rows }
    };
    let nothing = vec![0; rows.len()];
    let [mut left_rows, right_rows] = [rows, nothing];
    let mut ends = [end(0), end(1).supplied(Arc::new(Held(Mutex::new(held))))];
    ends[1].ask(question(right, None, right_rows), Duration::ZERO).expect("it is of this model");
    let (mut left, mut own) = (Some(left), own);
    loop {
        // Left takes a precompute once right is known to have its part.
        if dealt_by == DealtBy::Client || ends[0].has_other(&NAME) {
            if let Some(left) = left.take() {
                let question = question(left, own.take(), std::mem::take(&mut left_rows));
                ends[0].ask(question, Duration::ZERO).expect("it is of this model");
            }
        }
        let mut is_quiet = true;
        for side in 0..2 {
            while let Some(frame) = ends[side].send(usize::MAX) {
                is_quiet = false;
                for frame in way.pass(frame) {
                    // The session is over.
                    if ends[1 - side].take(&frame, Duration::ZERO).is_err() {
                        return settle(ends, left.is_none(), way.is_honest());
                    }
                }
            }
        }
        if is_quiet {
            return settle(ends, left.is_none(), way.is_honest());
        }
    }
}

/// Each server has one outcome of what it was asked, at the latest when it has waited for too long.
fn settle(mut ends: [Exchange<Vec<u8>>; 2], is_asked: bool, is_honest: bool) {
    for (end, expected) in ends.iter_mut().zip([usize::from(is_asked), 1]) {
        end.expire(Duration::from_secs(3600));
        let outcomes = end.outcomes();
        assert_eq!((end.inferences(), outcomes.len()), (0, expected));
        assert!(!is_honest || outcomes.iter().all(|(_, outcome)| outcome.is_ok()));
    }
}

fn world() -> (Model, [Vec<u8>; 2], Id) {
    let model = small_shared();
    let mut dealers = Dealers::meet(model.network.outline()).expect("servers can deal for it");
    let [left, right] = dealers.deal(1).expect("one");
    let id = left[0].id();
    let bytes = [&left[0], &right[0]].map(|made| made.as_bytes().to_vec());
    (model, bytes, id)
}
