//! Keys that take longer to bring than an operation may, at two servers of one operator.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hushtable_client::{
    Ask, Bell, CallError, CallFault, CallId, Connect, Error, Machine, Opening, Operation, OwnTime,
    Place, Protocol, Round, RoundOf, Script, Shared, Step, Tally, Timed, Upload, UploadTurn,
    Uploads,
};

const SECOND: Duration = Duration::from_secs(1);
const CALL_MAX: Duration = Duration::from_secs(60);
const BRING_MAX: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Open,
    Bring,
    Use,
}

#[derive(Debug)]
enum Keyed {}

impl Protocol for Keyed {
    type Call = Call;
    type Reply = ();
    type Failure = Duration;

    fn timed_out(_: Place, after: Duration) -> Duration {
        after
    }

    fn sent_bytes(call: &Call) -> u64 {
        if *call == Call::Bring { 1000 } else { 1 }
    }

    fn own_time(call: &Call, _: Duration) -> Option<OwnTime> {
        (*call == Call::Bring).then_some(OwnTime { whole: BRING_MAX, next: BRING_MAX })
    }
}

struct Client(Bell);

struct Opens(Bell, bool);

struct Uses {
    uploads: Arc<Uploads>,
    turn: Option<UploadTurn>,
    is_asked: bool,
}

struct Sent(u64);

impl Timed for Sent {
    fn took(&mut self, _: Duration, _: u32) {}
}

impl Connect for Client {
    type Protocol = Keyed;
    type Session = Arc<Uploads>;
    type Opening = Opens;

    fn opening(&self, _: Option<&Arc<Arc<Uploads>>>) -> Opens {
        Opens(self.0.clone(), false)
    }

    fn first(&self) -> Place {
        Place::Single
    }

    fn servers(&self) -> [usize; 3] {
        [0, 0, 2]
    }

    fn limits(&self) -> (Duration, Duration) {
        (CALL_MAX, CALL_MAX)
    }

    fn is_misfit(&self, _: &Duration) -> bool {
        false
    }
}

impl Script for Opens {
    type Protocol = Keyed;
    type Output = Arc<Uploads>;

    fn next(&mut self, _: Vec<()>, _: Tally) -> RoundOf<Keyed, Arc<Uploads>> {
        match std::mem::replace(&mut self.1, true) {
            false => Ok(Round::Ask(vec![(Place::Single, Call::Open)])),
            true => Ok(Round::Done(Uploads::new(self.0.clone()))),
        }
    }
}

struct Use;

impl Ask<Client> for Use {
    type Output = Sent;
    type Script = Uses;

    fn script(&self, session: &Arc<Arc<Uploads>>, _: u64) -> Result<Uses, Duration> {
        Ok(Uses { uploads: Arc::clone(session), turn: None, is_asked: false })
    }
}

impl Script for Uses {
    type Protocol = Keyed;
    type Output = Sent;

    fn next(&mut self, _: Vec<()>, tally: Tally) -> RoundOf<Keyed, Sent> {
        if self.is_asked {
            return Ok(Round::Done(Sent(tally.sent_bytes)));
        }
        match self.turn.take() {
            Some(turn) => drop(turn.end()),
            None => match self.uploads.after(0) {
                Upload::Done(_) => {}
                Upload::Wait => return Ok(Round::Pause(Place::Single, Some(BRING_MAX))),
                Upload::Turn(turn) => {
                    self.turn = Some(turn);
                    return Ok(Round::Ask(vec![(Place::Single, Call::Bring)]));
                }
            },
        }
        self.is_asked = true;
        Ok(Round::Ask(vec![(Place::Single, Call::Use)]))
    }
}

/// When a machine ended, and with what.
type Ended<T> = (Duration, Result<T, Error<Duration, &'static str>>);
type Replied = Result<(), CallError<&'static str>>;

fn fault(fault: CallFault) -> Replied {
    Err(CallError { fault, error: "refused" })
}

/// Drives machines to their ends; `serve` says what a server replies, and after which time.
fn drive<M: Machine<&'static str, Protocol = Keyed>>(
    mut machines: Vec<M>,
    rung: &AtomicBool,
    mut serve: impl FnMut(Duration, usize, Call) -> (Duration, Replied),
) -> Vec<Ended<M::Output>> {
    let (mut now, mut sent) = (Duration::ZERO, 0);
    let mut replies: BTreeMap<(Duration, usize), (usize, CallId, Replied)> = BTreeMap::new();
    let mut wakes = vec![Some(Duration::ZERO); machines.len()];
    let mut done: Vec<_> = machines.iter().map(|_| None).collect();
    for _ in 0..100_000 {
        for who in 0..machines.len() {
            while done[who].is_none() && wakes[who].is_some_and(|at| at <= now) {
                match machines[who].poll(now) {
                    Step::Send { id, server, call, .. } => {
                        let (after, reply) = serve(now, server, call);
                        sent += 1;
                        replies.insert((now + after, sent), (who, id, reply));
                    }
                    Step::Wait { until } => wakes[who] = Some(until.max(now + SECOND / 1000)),
                    Step::Done(outcome) => done[who] = Some((now, outcome)),
                }
            }
        }
        if rung.swap(false, Ordering::Relaxed) {
            wakes.fill(Some(now));
            continue;
        }
        if done.iter().all(Option::is_some) {
            return done.into_iter().flatten().collect();
        }
        let woken = wakes.iter().zip(&done).filter(|(_, done)| done.is_none());
        let woken = woken.filter_map(|(at, _)| *at).min().unwrap_or(Duration::MAX);
        match replies.first_key_value().map(|(&(at, _), _)| at).filter(|&at| at <= woken) {
            None => now = now.max(woken),
            Some(at) => {
                now = now.max(at);
                let (_, (who, id, reply)) = replies.pop_first().expect("there is one");
                machines[who].received(id, now, reply);
                wakes[who] = Some(now);
            }
        }
    }
    panic!("it does not end");
}

fn opened() -> (Arc<Shared<Client>>, Arc<AtomicBool>) {
    let rung = Arc::new(AtomicBool::new(false));
    let ring = Arc::clone(&rung);
    let bell = Bell::new(move || ring.store(true, Ordering::Relaxed));
    let opening = Opening::new(Client(bell.clone()), bell, 1, |shared| shared);
    let done = drive(vec![opening], &rung, |_, _, _| (SECOND / 100, Ok(())));
    let (_, shared) = done.into_iter().next().expect("one");
    (shared.expect("nothing is wrong"), rung)
}

fn uses(shared: &Arc<Shared<Client>>) -> Operation<Client, Use, &'static str> {
    Operation::new(shared, Use, 1)
}

#[test]
fn the_next_server_gets_keys_that_the_first_died_under() {
    let (shared, rung) = opened();
    let asked = RefCell::new(Vec::new());
    let done = drive(vec![uses(&shared)], &rung, |_, server, call| {
        asked.borrow_mut().push((server, call));
        match (server, call) {
            (0, Call::Bring) => (100 * SECOND, fault(CallFault::Unreachable)),
            (_, Call::Bring) => (100 * SECOND, Ok(())),
            _ => (SECOND, Ok(())),
        }
    });
    assert!(done[0].1.is_ok(), "{:?} {:?}", done[0].0, asked);
    assert_eq!(asked.into_inner()[..2], [(0, Call::Bring), (1, Call::Open)]);
}

#[test]
fn operations_wait_for_keys_that_another_brings() {
    let (shared, rung) = opened();
    let brought = RefCell::new(0);
    let done = drive((0..3).map(|_| uses(&shared)).collect(), &rung, |_, _, call| match call {
        Call::Bring => {
            *brought.borrow_mut() += 1;
            (100 * SECOND, Ok(()))
        }
        _ => (59 * SECOND, Ok(())),
    });
    assert_eq!(*brought.borrow(), 1);
    for (now, outcome) in done {
        assert!(outcome.is_ok(), "{now:?}");
    }
    // But not for longer than bringing them may take.
    let (shared, rung) = opened();
    let done = drive((0..2).map(|_| uses(&shared)).collect(), &rung, |_, _, call| match call {
        Call::Bring => (10_000 * SECOND, Ok(())),
        _ => (SECOND, Ok(())),
    });
    for (now, outcome) in done {
        assert!(outcome.is_err() && now < 2 * BRING_MAX + CALL_MAX, "{now:?}");
    }
}

#[test]
fn a_server_that_is_busy_with_other_keys_is_asked_for_as_long_as_they_may_take() {
    let (shared, rung) = opened();
    let done = drive(vec![uses(&shared)], &rung, |now, _, call| match call {
        Call::Bring if now < 200 * SECOND => {
            (SECOND / 10, fault(CallFault::Busy { retry_after: SECOND / 2 }))
        }
        Call::Bring => (100 * SECOND, Ok(())),
        _ => (59 * SECOND, Ok(())),
    });
    let (now, outcome) = &done[0];
    let Ok(Sent(bytes)) = outcome else { panic!("{now:?}") };
    assert_eq!(*bytes, 1001, "refused at its first bytes");
}

#[test]
fn an_end_that_is_said_holds_for_keys_and_for_who_waits_for_them() {
    let (shared, rung) = opened();
    let mut machines: Vec<_> = (0..3).map(|_| uses(&shared)).collect();
    // The one that brings them, and one that waits; the third has its client's time.
    for (machine, seconds) in machines.iter_mut().zip([30, 20]) {
        machine.end_by(seconds * SECOND);
    }
    let done = drive(machines, &rung, |_, _, call| match call {
        Call::Bring => (100 * SECOND, Ok(())),
        _ => (SECOND, Ok(())),
    });
    for ((now, outcome), seconds) in done.iter().zip([30, 20]) {
        assert!(*now == seconds * SECOND, "{now:?}");
        assert!(matches!(outcome, Err(Error::Failure(after)) if *after == seconds * SECOND));
    }
    assert!(done[2].1.is_ok(), "it brings them itself then: {:?}", done[2].0);
    // A client's own time does not end what has more.
    let (shared, rung) = opened();
    let mut machine = uses(&shared);
    machine.end_by(500 * SECOND);
    let done = drive(vec![machine], &rung, |_, _, call| match call {
        Call::Bring => (SECOND, Ok(())),
        _ => (CALL_MAX + 100 * SECOND, Ok(())),
    });
    assert!(done[0].1.is_ok(), "{:?}", done[0].0);
}
