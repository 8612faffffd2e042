//! Operations that follow each other: each has time of its own, and none takes what another one waited for.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hushtable_client::simulation::{Faults, Network};
use hushtable_client::{
    CallError, CallFault, InTurn, Limits, Machine, Operation, Outcome, PartOutcome, Series, Shared,
    Step, Then,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::{Failure, Lone, Pair, Toy, bell, settled};

const SECOND: Duration = Duration::from_secs(1);

type Part = Operation<Pair, Lone, &'static str>;

/// Reads again and again, and adds up what it reads.
struct Reads {
    shared: Arc<Shared<Pair>>,
    left: u64,
    sum: u64,
    is_repeatable: bool,
}

fn reads(left: u64) -> Reads {
    Reads { shared: settled(), left, sum: 0, is_repeatable: true }
}

impl Series<&'static str> for Reads {
    type Protocol = Toy;
    type Part = Part;
    type Output = u64;

    fn next(
        &mut self,
        ended: Option<PartOutcome<Part, &'static str>>,
    ) -> Then<Part, Outcome<Toy, u64, &'static str>> {
        match ended {
            Some(Ok(called)) => self.sum += called.reply,
            Some(Err(error)) => return Then::Done(Err(error)),
            None => {}
        }
        if self.left == 0 {
            return Then::Done(Ok(self.sum));
        }
        self.left -= 1;
        let (limits, is_repeatable) = (Limits::of(2 * SECOND), self.is_repeatable);
        Then::Part(Operation::new(&self.shared, Lone { limits, is_repeatable }, self.left))
    }
}

#[test]
fn each_part_has_time_of_its_own() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let ((_, rung), sums) = (bell(), RefCell::new(Vec::new()));
    let faults = Faults { late: 1000, ..Faults::NONE };
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, Faults::NONE);
    // Each takes some ten milliseconds, and all of them longer than one may.
    network.start(Duration::ZERO, 60 * SECOND, InTurn::new(reads(100)), |now, outcome| {
        sums.borrow_mut().push((now, outcome.unwrap()));
    });
    network.run(&mut |_, _, _, _| Some(vec![Ok(3)]));
    drop(network);
    let (now, sum) = sums.into_inner()[0];
    assert!(sum == 300 && now > 2 * SECOND, "{sum} {now:?}");
    // One that is late ends them.
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, faults);
    network.start(Duration::ZERO, 60 * SECOND, InTurn::new(reads(100)), |_, outcome| {
        assert!(matches!(outcome, Err(hushtable_client::Error::Failure(Failure::Late))));
    });
    network.run(&mut |_, _, _, _| Some(vec![Ok(3)]));
}

/// What a part did not wait for any more is not given to the next one.
#[test]
fn a_late_reply_is_of_no_use_to_the_part_that_follows() {
    let mut machine = InTurn::new(reads(3));
    let (mut sent, mut now) = (BTreeMap::new(), Duration::ZERO);
    for turn in 0..3 {
        let Step::Send { id, .. } = machine.poll(now) else { panic!("it asks") };
        assert!(sent.insert(turn, id).is_none_or(|_| false));
        assert!(sent.values().filter(|&&other| other == id).count() == 1, "a number of its own");
        assert!(machine.awaits(id));
        for old in 0..turn {
            assert!(!machine.awaits(sent[&old]));
            machine.received(sent[&old], now, Ok(1000));
        }
        assert!(matches!(machine.poll(now), Step::Wait { .. }), "it waits for its own");
        now += SECOND / 10;
        machine.received(id, now, Ok(3));
    }
    assert!(matches!(machine.poll(now), Step::Done(Ok(9))));
    assert!(matches!(machine.poll(now), Step::Wait { .. }) && !machine.computes());
}

#[test]
fn what_may_be_asked_once_is_asked_once() {
    for fault in [CallFault::Draining, CallFault::Unreachable, CallFault::Changed { found: None }] {
        let mut machine = InTurn::new(Reads { is_repeatable: false, ..reads(1) });
        let Step::Send { id, .. } = machine.poll(Duration::ZERO) else { panic!("it asks") };
        let late = 2 * SECOND - SECOND / 10;
        machine.received(id, late, Err(CallError { fault: fault.clone(), error: "refused" }));
        assert!(matches!(machine.poll(late), Step::Done(Err(_))), "{fault:?}");
    }
}

#[test]
fn an_end_that_is_said_is_that_of_all_parts() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let ((_, rung), ended) = (bell(), RefCell::new(None));
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, Faults::NONE);
    let mut machine = InTurn::new(reads(1000));
    machine.end_by(SECOND);
    network.start(Duration::ZERO, 60 * SECOND, machine, |now, outcome| {
        *ended.borrow_mut() = Some((now, outcome));
    });
    network.run(&mut |_, _, _, _| Some(vec![Ok(3)]));
    drop(network);
    let (now, outcome) = ended.into_inner().expect("it ended");
    assert!(matches!(outcome, Err(hushtable_client::Error::Failure(Failure::Late))), "{now:?}");
    assert!(now <= SECOND + SECOND / 20, "{now:?}");
}
