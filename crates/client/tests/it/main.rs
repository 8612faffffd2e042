//! A toy scheme over the simulated network: two places with two servers each hold one number, which changes; what
//! a client reads is what both held, or an error, and what may be sent once is never sent twice.

mod keys;
mod series;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hushtable_client::simulation::{Answered, Faults, Network, bell, random_faults};
use hushtable_client::{
    Ask, Bell, CallError, CallFault, CallId, Called, Cause, Connect, Error, Limits, Machine,
    Opening, Operation, Place, Protocol, Random, Round, RoundOf, Script, Shared, Step, Tally,
    Timed, Tried, pause,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const CALL_MAX: Duration = Duration::from_secs(3);
const WHOLE_MAX: Duration = Duration::from_secs(20);
const CALM: Duration = Duration::from_secs(40);

#[derive(Clone, Debug)]
enum Call {
    /// Which number the server holds.
    Held,
    /// That number, for who knows it; sent once.
    Read { held: u64, once: u64 },
}

#[derive(Debug, PartialEq)]
enum Failure {
    Late,
    Differ,
    Foreign,
}

#[derive(Debug)]
enum Toy {}

impl Protocol for Toy {
    type Call = Call;
    type Reply = u64;
    type Failure = Failure;

    fn timed_out(_: Place, _: Duration) -> Failure {
        Failure::Late
    }

    fn is_repeatable(call: &Call) -> bool {
        matches!(call, Call::Held)
    }

    fn state(held: &u64) -> Option<u64> {
        Some(*held)
    }
}

/// How many servers there are at each place.
struct Pair([usize; 3]);

struct Opens {
    has_asked: bool,
}

/// What comes of a reading: the number, and how often it was made anew.
struct Reading {
    held: u64,
    anew: u32,
}

impl Timed for Reading {
    fn took(&mut self, _: Duration, anew: u32) {
        self.anew = anew;
    }
}

impl Connect for Pair {
    type Protocol = Toy;
    type Session = u64;
    type Opening = Opens;

    fn opening(&self, _: Option<&Arc<u64>>) -> Opens {
        Opens { has_asked: false }
    }

    fn first(&self) -> Place {
        Place::Left
    }

    fn servers(&self) -> [usize; 3] {
        self.0
    }

    fn limits(&self) -> (Duration, Duration) {
        (CALL_MAX, WHOLE_MAX)
    }

    fn is_misfit(&self, failure: &Failure) -> bool {
        *failure == Failure::Differ
    }
}

impl Script for Opens {
    type Protocol = Toy;
    type Output = u64;

    fn next(&mut self, replies: Vec<u64>, _: Tally) -> RoundOf<Toy, u64> {
        if !std::mem::replace(&mut self.has_asked, true) {
            return Ok(Round::Ask(Place::PAIR.map(|place| (place, Call::Held)).into()));
        }
        match replies[..] {
            [left, right] if left == right => Ok(Round::Done(left)),
            _ => Err(Failure::Differ),
        }
    }
}

/// Reads by a number of its own for each time.
struct Read(RefCell<Random>);

struct Reads {
    calls: Vec<(Place, Call)>,
    held: u64,
}

impl Ask<Pair> for Read {
    type Output = Reading;
    type Script = Reads;

    fn script(&self, session: &Arc<u64>, _: u64) -> Result<Reads, Failure> {
        let held = **session;
        let call = |place| (place, Call::Read { held, once: self.0.borrow_mut().number() });
        Ok(Reads { calls: Place::PAIR.map(call).into(), held })
    }

    fn is_stale(&self, failure: &Failure) -> bool {
        *failure == Failure::Foreign
    }

    fn again(&self, cause: Cause<'_, Toy>, tried: Tried, random: u64) -> Option<Duration> {
        match cause {
            Cause::Fault(&CallFault::Busy { retry_after }) => {
                Some(pause(retry_after, tried.times, random))
            }
            _ => None,
        }
    }
}

impl Script for Reads {
    type Protocol = Toy;
    type Output = Reading;

    fn next(&mut self, replies: Vec<u64>, _: Tally) -> RoundOf<Toy, Reading> {
        if !self.calls.is_empty() {
            return Ok(Round::Ask(std::mem::take(&mut self.calls)));
        }
        match replies.iter().all(|&held| held == self.held) {
            true => Ok(Round::Done(Reading { held: self.held, anew: 0 })),
            false => Err(Failure::Foreign),
        }
    }
}

/// What each server holds over time: those of one number follow each other to the next.
fn held(at: Duration, place: Place, server: usize) -> Option<u64> {
    let behind = Duration::from_secs(2 * (place as u64) + server as u64);
    let epoch = Duration::from_secs(10);
    let since = at.saturating_sub(behind);
    // It restarts for a second before each change.
    let is_down = since < CALM && since.as_millis() % epoch.as_millis() > 9_000;
    (!is_down).then_some(since.min(CALM).as_secs() / epoch.as_secs())
}

#[derive(Debug, Default)]
struct Counts {
    right: usize,
    anew: usize,
    failed: usize,
}

fn storm(seed: u64, counts: &mut Counts) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let faults = random_faults(&mut rng);
    let (bell, rung) = bell();
    // A network that doubles what it carries does so to replies alone: who sees a call twice was sent it twice.
    let sent = RefCell::new(BTreeSet::new());
    let mut serve = |now, place, server, call| -> Option<Vec<Answered<Toy>>> {
        let holds = held(now, place, server)?;
        Some(vec![match call {
            Call::Held => Ok(holds),
            Call::Read { held, once } => {
                assert!(sent.borrow_mut().insert((place as usize, once)), "sent twice");
                match held == holds {
                    true => Ok(holds),
                    false => {
                        let fault = CallFault::Changed { found: None };
                        Err(CallError { fault, error: "changed" })
                    }
                }
            }
        }])
    };
    let shared = RefCell::new(None);
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, Faults::NONE);
    network.start(Duration::ZERO, WHOLE_MAX, open(seed, bell), |_, opened| {
        *shared.borrow_mut() = opened.ok();
    });
    network.run(&mut serve);
    drop(network);
    let shared = shared.into_inner().expect("nothing is wrong");
    let begins: Vec<_> =
        (0..12).map(|_| Duration::from_millis(rng.random_range(500..60_000))).collect();
    let noted = RefCell::new(&mut *counts);
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, faults);
    for (number, begins) in begins.into_iter().enumerate() {
        let ask = Read(RefCell::new(Random::new(seed << 8 | number as u64)));
        let machine = Operation::new(&shared, ask, seed);
        network.start(begins, begins + WHOLE_MAX, machine, |now, reading| {
            let mut noted = noted.borrow_mut();
            match reading {
                Ok(Reading { held, anew }) => {
                    // A change takes three seconds to go through all servers, and the reply some more.
                    assert!(held <= now.min(CALM + Duration::from_secs(3)).as_secs() / 10);
                    noted.right += 1;
                    noted.anew += anew as usize;
                }
                Err(_) => noted.failed += 1,
            }
        });
    }
    network.run(&mut serve);
}

fn open(
    seed: u64,
    bell: Bell,
) -> impl Machine<&'static str, Protocol = Toy, Output = Arc<Shared<Pair>>> {
    Opening::new(Pair([2, 2, 0]), bell, seed, |shared| shared)
}

#[test]
fn what_both_held_or_an_error_and_nothing_sent_twice() {
    let mut counts = Counts::default();
    (0..300).for_each(|seed| storm(seed, &mut counts));
    let Counts { right, anew, failed } = counts;
    assert!(right > 1000 && anew > 300 && failed > 100, "{counts:?}");
}

/// One call, within limits of its own.
struct Lone {
    limits: Limits,
    is_repeatable: bool,
}

struct LoneScript {
    has_asked: bool,
}

impl Ask<Pair> for Lone {
    type Output = Called<u64>;
    type Script = LoneScript;

    fn script(&self, _: &Arc<u64>, _: u64) -> Result<LoneScript, Failure> {
        Ok(LoneScript { has_asked: false })
    }

    fn limits(&self) -> Option<Limits> {
        Some(self.limits)
    }

    fn is_repeatable(&self) -> bool {
        self.is_repeatable
    }

    fn again(&self, cause: Cause<'_, Toy>, tried: Tried, random: u64) -> Option<Duration> {
        match cause {
            Cause::Fault(CallFault::Pending { retry_after }) => Some(*retry_after),
            Cause::Fault(CallFault::Unreachable) | Cause::Failure(Failure::Late) => {
                Some(pause(Duration::from_millis(200), tried.times, random))
            }
            _ => None,
        }
    }
}

impl Script for LoneScript {
    type Protocol = Toy;
    type Output = Called<u64>;

    fn next(&mut self, replies: Vec<u64>, tally: Tally) -> RoundOf<Toy, Called<u64>> {
        if !std::mem::replace(&mut self.has_asked, true) {
            return Ok(Round::Ask(vec![(Place::Left, Call::Held)]));
        }
        Ok(Round::Done(Called { reply: replies[0], retries: tally.retries }))
    }
}

/// A client whose session came of a network without faults, with one server at each place.
fn settled() -> Arc<Shared<Pair>> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let ((bell, rung), shared) = (bell(), RefCell::new(None));
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, Faults::NONE);
    let opening = Opening::new(Pair([1, 1, 0]), bell, 1, |shared| shared);
    network.start(Duration::ZERO, WHOLE_MAX, opening, |_, opened| {
        *shared.borrow_mut() = opened.ok();
    });
    network.run(&mut |_, _, _, _| Some(vec![Ok(3)]));
    drop(network);
    shared.into_inner().expect("nothing is wrong")
}

/// One call at a server that is busy, waits for others, is away for a while, or silent.
fn called(
    limits: Limits,
    serve: impl Fn(Duration) -> Option<Vec<Answered<Toy>>>,
) -> (Duration, Result<Called<u64>, Error<Failure, &'static str>>) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (_, rung) = bell();
    let outcome = RefCell::new(None);
    let mut network = Network::new(&mut rng, &rung, Duration::ZERO, Faults::NONE);
    let machine = Operation::new(&settled(), Lone { limits, is_repeatable: true }, 7);
    network.start(Duration::ZERO, Duration::from_secs(60), machine, |now, called| {
        *outcome.borrow_mut() = Some((now, called));
    });
    network.run(&mut |now, _, _, _| serve(now));
    drop(network);
    outcome.into_inner().expect("it ended")
}

fn refused(fault: CallFault) -> Option<Vec<Answered<Toy>>> {
    Some(vec![Err(CallError { fault, error: "refused" })])
}

#[test]
fn an_operation_with_limits_of_its_own_is_made_again_for_as_long_as_it_may() {
    let second = Duration::from_secs(1);
    let limits = Limits { whole: 9 * second, may_overrun: true, ..Limits::of(2 * second) };
    let hint = Duration::from_millis(100);
    // Until the server has come back, whatever it says until then.
    for fault in
        [CallFault::Pending { retry_after: hint }, CallFault::Unreachable, CallFault::Draining]
    {
        let serve = |now| match now < 5 * second {
            true => refused(fault.clone()),
            false => Some(vec![Ok(3)]),
        };
        let patient = Limits { whole: 30 * second, ..limits };
        let (now, outcome) = called(patient, serve);
        let Called { reply, retries, .. } = outcome.unwrap_or_else(|error| panic!("{error:?}"));
        assert!(reply == 3 && retries > 1 && now < 20 * second, "{fault:?} {retries} {now:?}");
    }
    // A busy one for less.
    let (now, outcome) = called(limits, |_| refused(CallFault::Busy { retry_after: hint }));
    assert!(matches!(outcome, Err(Error::Call { fault: CallFault::Busy { .. }, .. })));
    assert!(now < 3 * second, "{now:?}");
    // One that is silent, after each call's time, until all of it is over.
    let (now, outcome) = called(limits, |_| Some(Vec::new()));
    assert!(matches!(outcome, Err(Error::Failure(Failure::Late))));
    assert!(now > 8 * second && now <= 11 * second, "{now:?}");
    // And one that refuses is not asked again.
    let (now, outcome) = called(limits, |_| refused(CallFault::Other));
    assert!(outcome.is_err() && now < second, "{now:?}");
}

fn asked<T>(step: Step<Call, T>) -> CallId {
    match step {
        Step::Send { id, .. } => id,
        Step::Wait { .. } | Step::Done(_) => panic!("nothing is asked"),
    }
}

#[test]
fn what_is_not_awaited_any_more_may_be_given_up() {
    let now = Duration::ZERO;
    let mut opening = open(1, Bell::new(|| {}));
    let [left, right] = [(); 2].map(|()| asked(opening.poll(now)));
    assert!(opening.awaits(left) && opening.awaits(right));
    opening.received(right, now, Ok(3));
    assert!(opening.awaits(left) && !opening.awaits(right), "it was answered");
    opening.received(left, now, Ok(3));
    let Step::Done(Ok(shared)) = opening.poll(now) else { panic!("both agree") };

    let mut read: Operation<_, _, &'static str> =
        Operation::new(&shared, Read(RefCell::new(Random::new(1))), 1);
    let [left, right] = [(); 2].map(|()| asked(read.poll(now)));
    let busy = CallFault::Busy { retry_after: Duration::from_millis(50) };
    read.received(left, now, Err(CallError { fault: busy, error: "busy" }));
    assert!(matches!(read.poll(now), Step::Wait { .. }), "it is made anew");
    assert!(!read.awaits(right), "the other server's half of what failed is of no use");
}
