//! Whole clients of a training server over a simulated clock and network, which loses, delays, doubles and refuses,
//! while the server is killed and comes back, or another controller comes in its place: every user's rows are its
//! own, every gradient is added once, a round is opened once, and everything ends in its time.

mod host;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::simulation::{Answered, Faults, Network, bell, random_faults};
use hushtable_client::{CallError, CallFault, Called, Error, Machine, Outcome};
use hushtable_oram::RoundLimits;
use hushtable_oram::session::{Call, Failure, SessionSpec, Token, Trainer, Training};
use hushtable_oram::wire::{Context, Pin, UserSession};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use host::{Host, SLOTS, USERS, name, row};

const CALL_MAX: Duration = Duration::from_secs(6);
/// How long rows and the end of a round are waited for.
const WITHIN: Duration = Duration::from_secs(20);
const SECOND: Duration = Duration::from_secs(1);

type Ended<T> = Outcome<Training, Called<T>, &'static str>;

fn spec(pin: Option<Pin>) -> SessionSpec {
    let operator_token = Some(Token::new("secret"));
    SessionSpec { pin, trusts_announced: false, operator_token, call_max: CALL_MAX }
}

fn limits() -> RoundLimits {
    let users = USERS as usize;
    let none = None;
    RoundLimits { users, users_min: 1, request_max: none, upload_max: none, finish_max: none }
}

/// A world with one address: who answers there, and what time it is.
struct World<'a> {
    rng: ChaCha8Rng,
    faults: Faults,
    now: Duration,
    serve: &'a mut dyn FnMut(Duration, Call) -> Option<Answered<Training>>,
}

impl World<'_> {
    /// Runs operations beside each other, each of which must be over in its time.
    fn together<M>(
        &mut self,
        machines: Vec<M>,
        within: Duration,
    ) -> Vec<Outcome<Training, M::Output, &'static str>>
    where
        M: Machine<&'static str, Protocol = Training>,
    {
        let done: Vec<_> = machines.iter().map(|_| RefCell::new(None)).collect();
        let last = Cell::new(self.now);
        let (_, rung) = bell();
        let mut network = Network::new(&mut self.rng, &rung, self.now, self.faults);
        for (machine, done) in machines.into_iter().zip(&done) {
            // The last call that was begun in time may take all of its own.
            let ends_max = self.now + within.max(CALL_MAX) + CALL_MAX;
            let last = &last;
            network.start(self.now, ends_max, machine, move |now, outcome| {
                last.set(now.max(last.get()));
                *done.borrow_mut() = Some(outcome);
            });
        }
        network.run(&mut |now, _, _, call| Some(vec![(self.serve)(now, call)?]));
        drop(network);
        self.now = last.get();
        done.into_iter().map(|done| done.into_inner().expect("it is over")).collect()
    }

    fn one<M>(&mut self, machine: M, within: Duration) -> Outcome<Training, M::Output, &'static str>
    where
        M: Machine<&'static str, Protocol = Training>,
    {
        self.together(vec![machine], within).remove(0)
    }
}

/// What came of a round, as far as it came.
#[derive(Debug, Default)]
struct Came {
    round: Option<u64>,
    requested: usize,
    rows: usize,
    uploaded: usize,
    is_committed: bool,
    errors: Vec<&'static str>,
    late: usize,
}

impl Came {
    fn note<T>(&mut self, outcome: Ended<T>) -> Option<T> {
        match outcome {
            Ok(called) => return Some(called.reply),
            Err(Error::Call { error, .. }) => self.errors.push(error),
            Err(Error::Failure(Failure::Timeout { .. })) => self.late += 1,
            Err(Error::Failure(failure)) => panic!("{failure}"),
        }
        None
    }
}

/// Which rows a user asks for, and what it adds to each.
fn wish(user: u32) -> ([u32; 2], f32) {
    ([7 + user, 40], 1.0 + user as f32)
}

/// One round of all users, each of whom goes on for as long as its own calls succeed.
fn round(world: &mut World<'_>, client: &Trainer, pin: &Pin) -> Came {
    let mut came = Came::default();
    let opened = world.one(client.open_round(limits(), 1), CALL_MAX);
    let Some(round) = came.note(opened) else { return came };
    came.round = Some(round);
    let terms = &client.announced().terms;
    let mut users: Vec<(u32, UserSession)> = (0..USERS)
        .map(|user| (user, UserSession::new(pin, Context::new(terms, round, user), None).unwrap()))
        .collect();
    let asking = users.iter_mut().map(|(user, session)| {
        let sealed = session.request(&wish(*user).0).unwrap().into();
        client.request(round, *user, sealed, u64::from(*user))
    });
    let asked = asking.collect();
    let mut taken = world.together(asked, CALL_MAX).into_iter();
    users.retain(|_| taken.next().and_then(|it| came.note(it)).is_some());
    came.requested = users.len();
    let closed = world.one(client.close_requests(round, 2), CALL_MAX);
    came.note(closed);
    let asking = users.iter().map(|(user, _)| client.rows(round, *user, WITHIN, 3)).collect();
    let mut given = world.together(asking, WITHIN).into_iter();
    users.retain_mut(|(user, session)| {
        let Some(sealed) = given.next().and_then(|it| came.note(it)) else { return false };
        // Of another controller nothing opens.
        let reply = session.reply(&sealed).expect("it is this controller's");
        let (ids, _) = wish(*user);
        assert_eq!(reply.found[..2], [true, true]);
        assert_eq!(reply.rows[..4], [row(ids[0]), row(ids[1])].concat());
        true
    });
    came.rows = users.len();
    let asking = users.iter_mut().map(|(user, session)| {
        let mut gradients = vec![0.0; 2 * SLOTS];
        (gradients[0], gradients[2]) = (wish(*user).1, wish(*user).1);
        let sealed: Bytes = session.upload(&gradients, 1.0).unwrap().into();
        client.upload(round, *user, sealed, 4)
    });
    let asking = asking.collect();
    for outcome in world.together(asking, CALL_MAX) {
        came.uploaded += usize::from(came.note(outcome).is_some());
    }
    // A user whose upload was lost is not waited for.
    let is_hurried = came.uploaded < USERS as usize;
    let finished = world.one(client.finish(round, is_hurried, WITHIN, 5), WITHIN);
    if let Some(report) = came.note(finished) {
        assert_eq!(report.round, round);
        came.is_committed = true;
    }
    came
}

fn calm(serve: &mut dyn FnMut(Duration, Call) -> Option<Answered<Training>>) -> World<'_> {
    let (rng, faults) = (ChaCha8Rng::seed_from_u64(1), Faults::NONE);
    World { rng, faults, now: SECOND, serve }
}

fn open(world: &mut World<'_>, pin: Pin) -> Trainer {
    world.one(Trainer::open(spec(Some(pin)), 1, bell().0), CALL_MAX).expect("nothing is wrong")
}

/// What rounds of all users add to each row.
fn check_trained(host: &Host, rounds: u32) {
    let all: f32 = (0..USERS).map(|user| wish(user).1).sum();
    assert_eq!(host.trained.get(&40), (rounds > 0).then_some(&(all * rounds as f32)));
    for user in 0..USERS {
        let (ids, gradient) = wish(user);
        assert_eq!(host.trained[&ids[0]], gradient * rounds as f32);
    }
}

#[test]
fn a_round_without_faults_takes_each_call_once() {
    let host = RefCell::new(Host::new("films"));
    let pin = host.borrow().pin();
    let mut serve = |now, call| Some(host.borrow_mut().reply(now, call));
    let mut world = calm(&mut serve);
    let client = open(&mut world, pin);
    assert_eq!(client.pin(), Some(pin));
    let came = round(&mut world, &client, &pin);
    assert!(came.is_committed && came.uploaded == 3, "{came:?}");
    let info = world.one(client.info(1), CALL_MAX).unwrap().reply;
    assert_eq!((info.rounds, info.open), (1, None));
    let made = world.one(client.backup("b".into(), WITHIN, 1), WITHIN).unwrap().reply;
    assert_eq!(made.bytes, 3);
    let opened = world.one(client.open_round(limits(), 1), CALL_MAX).unwrap().reply;
    world.one(client.abandon(opened, 1), CALL_MAX).unwrap();
    let host = host.borrow();
    check_trained(&host, 1);
    let came: Vec<_> = host.came.iter().map(|(name, count)| (*name, *count)).collect();
    let once = |name| (name, 1);
    let expected = [
        once("Abandon"),
        once("Backup"),
        once("CloseRequests"),
        once("Finish"),
        ("Info", 2),
        ("OpenRound", 2),
        ("Request", 3),
        ("Rows", 3),
        ("Upload", 3),
    ];
    assert_eq!(came, expected);
}

/// Storms: whatever the network does, nothing is wrong, and what is over was over in its time.
#[test]
fn in_storms_rows_are_right_and_gradients_are_added_once() {
    let (mut committed, mut late, mut failed, mut again) = (0, 0, 0, 0);
    for seed in 0..150 {
        println!("seed {seed}");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let faults = random_faults(&mut rng);
        let host = RefCell::new(Host::new("films"));
        let pin = host.borrow().pin();
        let mut serve = |now, call| Some(host.borrow_mut().reply(now, call));
        let client = open(&mut calm(&mut serve), pin);
        let mut world = World { rng, faults, now: SECOND, serve: &mut serve };
        let came = round(&mut world, &client, &pin);
        committed += usize::from(came.is_committed);
        late += came.late;
        failed += came.errors.len();
        let host = host.borrow();
        assert!(host.came.get("OpenRound").is_none_or(|&times| times <= 1), "{:?}", host.came);
        again += host.came.values().sum::<usize>().saturating_sub(12);
        if came.is_committed {
            // Who was told that its gradients were taken is in the table, and nobody is in it twice.
            let all: f32 = (0..USERS).map(|user| wish(user).1).sum();
            assert!(host.trained.get(&40).copied().unwrap_or_default() <= all);
            if came.uploaded == USERS as usize {
                check_trained(&host, 1);
            }
        }
    }
    // The storms are storms, and clients come through them.
    assert!(
        committed >= 60 && late >= 20 && failed >= 20 && again >= 25,
        "{committed} {late} {failed} {again}"
    );
}

/// The server is killed at each of the calls of a round, before it does anything or before it replies, and comes
/// back: whoever asks is told what became of the round, and the next one is whole.
#[test]
fn a_server_killed_at_any_call_is_gone_on_with() {
    let calls = 1 + USERS as usize * 3 + 2;
    let mut ends = Vec::new();
    let kills = (0..calls).flat_map(|kill| [(kill, false), (kill, true)]);
    for (kill, does_it, is_away) in kills.flat_map(|(at, did)| [(at, did, false), (at, did, true)])
    {
        println!("killed at call {kill}, which it has done: {does_it}; away for long: {is_away}");
        let host = RefCell::new(Host::new("films"));
        let pin = host.borrow().pin();
        let (mut number, mut down_until) = (0, Duration::ZERO);
        let killed = Cell::new(None);
        let mut serve = |now, call: Call| {
            let mut host = host.borrow_mut();
            if now < down_until {
                return None;
            }
            let is_info = matches!(call, Call::Info);
            if !is_info && number == kill && killed.get().is_none() {
                killed.set(Some(name(&call)));
                if does_it {
                    drop(host.reply(now, call));
                }
                host.restart();
                down_until = if is_away { now + SECOND / 2 } else { now };
                return None;
            }
            number += usize::from(!is_info);
            Some(host.reply(now, call))
        };
        let mut world = calm(&mut serve);
        let client = open(&mut world, pin);
        let came = round(&mut world, &client, &pin);
        for error in &came.errors {
            assert!(["no connection", "round over", "no round"].contains(error), "{came:?}");
        }
        // What the operator was not told it can ask for.
        world.now += SECOND;
        let finished =
            came.round.map(|round| world.one(client.finish(round, true, WITHIN, 1), WITHIN));
        let is_committed = matches!(finished, Some(Ok(_)));
        assert!(is_committed || !came.is_committed);
        ends.push((killed.get().unwrap(), does_it, is_away, came.is_committed, is_committed));
        let next = round(&mut world, &client, &pin);
        assert!(next.is_committed && next.uploaded == 3, "{next:?}");
        check_trained(&host.borrow(), 1 + u32::from(is_committed));
    }
    let committed: Vec<_> = ends.iter().filter(|(.., is_committed)| *is_committed).collect();
    // Of a round that was committed before the kill the report comes again; at once, where the server is back at
    // once. One that was killed before anyone asked it for the round has had another one since.
    let expected = [("Finish", true, false, true, true), ("Finish", true, true, false, true)];
    assert_eq!(committed, expected.each_ref(), "{ends:?}");
}

/// Another controller answers from one of the calls on: nothing that is sealed opens there, and what it says is
/// nobody's rows.
#[test]
fn another_controller_in_the_servers_place_gets_and_gives_nothing() {
    let calls = 1 + USERS as usize * 3 + 2;
    for swap in 0..calls {
        println!("swapped at call {swap}");
        let hosts = [Host::new("films"), Host::new("foes")].map(RefCell::new);
        let pin = hosts[0].borrow().pin();
        let mut number = 0;
        let mut serve = |now, call: Call| {
            let which = usize::from(number > swap);
            number += 1;
            // The other controller has a round of the same number, if it can.
            Some(hosts[which].borrow_mut().reply(now, call))
        };
        let mut world = calm(&mut serve);
        let client = open(&mut world, pin);
        let came = round(&mut world, &client, &pin);
        assert!(!came.is_committed && came.uploaded <= 3, "{came:?}");
        assert!(hosts[1].borrow().trained.is_empty());
        // Who connects now is told.
        let opened = world.one(Trainer::open(spec(Some(pin)), 1, bell().0), CALL_MAX);
        assert!(matches!(opened, Err(Error::Failure(Failure::Pinned))));
    }
}

/// The announced controller is believed where the client is told to, and seals to nobody else from then on.
#[test]
fn who_is_believed_is_said_by_the_client() {
    let host = RefCell::new(Host::new("films"));
    let pin = host.borrow().pin();
    let mut serve = |now, call| Some(host.borrow_mut().reply(now, call));
    let mut world = calm(&mut serve);
    let announced = Some(pin);
    for (trusts_announced, expected) in [(true, announced), (false, None)] {
        let spec = SessionSpec { trusts_announced, ..spec(None) };
        let client = world.one(Trainer::open(spec, 1, bell().0), CALL_MAX).unwrap();
        assert_eq!(client.pin(), expected);
        assert_eq!(client.announced().terms, *host.borrow().terms());
    }
}

/// A server that waits for others is asked again for as long as the caller waits, and is told how long that is.
#[test]
fn what_is_waited_for_is_waited_for_as_long_as_was_said() {
    let pending = || {
        let fault = CallFault::Pending { retry_after: SECOND / 5 };
        Err(CallError { fault, error: "pending" })
    };
    let host = RefCell::new(Host::new("films"));
    let pin = host.borrow().pin();
    let mut info = |now, call| Some(host.borrow_mut().reply(now, call));
    let client = open(&mut calm(&mut info), pin);
    for within in [Duration::ZERO, SECOND, 3 * CALL_MAX] {
        let (mut asked, mut is_busy) = (Vec::new(), true);
        let mut serve = |now, call: Call| {
            asked.push((now - SECOND, call.within().unwrap()));
            // What a busy server costs is time that the next call does not have.
            if std::mem::take(&mut is_busy) {
                let fault = CallFault::Busy { retry_after: SECOND / 2 };
                return Some(Err(CallError { fault, error: "busy" }));
            }
            Some(pending())
        };
        let mut world = calm(&mut serve);
        let outcome = world.one(client.rows(1, 0, within, 1), within);
        let over = world.now - SECOND;
        let Err(Error::Call { error: "pending", .. }) = outcome else { panic!("{within:?}") };
        for (at, held) in &asked {
            // On the way to the server time goes by.
            assert!(*at + *held <= within.max(*at) + SECOND / 10, "{within:?}: {held:?} at {at:?}");
        }
        assert!(asked.len() >= 2 && over < within.max(2 * SECOND) + SECOND, "{within:?} {over:?}");
        let times = within.as_millis() / 500;
        assert!(asked.len() as u128 >= times, "{} of {times}", asked.len());
    }
}

/// Faults at each of the calls, of the kinds that a server says.
#[test]
fn what_passes_is_asked_again_and_what_does_not_is_an_end() {
    let busy = CallFault::Busy { retry_after: SECOND / 10 };
    for (fault, passes, opens) in [
        (busy, true, false),
        (CallFault::Draining, true, false),
        (CallFault::Unreachable, true, false),
        (CallFault::Other, false, false),
    ] {
        for number in 0..12 {
            let host = RefCell::new(Host::new("films"));
            let pin = host.borrow().pin();
            let (mut at, mut refuses, mut what) = (0, true, String::new());
            let mut serve = |now, call: Call| {
                let is_it = !matches!(call, Call::Info) && at == number;
                if is_it && std::mem::take(&mut refuses) {
                    // A token is in no log.
                    what = format!("{call:?}");
                    assert_eq!(what, name(&call));
                    return Some(Err(CallError { fault: fault.clone(), error: "not now" }));
                }
                at += usize::from(!matches!(call, Call::Info));
                Some(host.borrow_mut().reply(now, call))
            };
            let mut world = calm(&mut serve);
            let client = open(&mut world, pin);
            let came = round(&mut world, &client, &pin);
            let goes_on = if what == "OpenRound" { opens } else { passes };
            assert_eq!(came.errors.is_empty(), goes_on, "{fault:?} at {what}: {came:?}");
        }
    }
}
