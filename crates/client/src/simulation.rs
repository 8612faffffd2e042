//! A network and a clock of their own, for tests of machines: calls are lost, late, doubled, refused, in an order
//! that a seed decides.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::{Rng, RngExt};
use rand_chacha::ChaCha8Rng;

use crate::{Bell, CallError, CallFault, CallId, Machine, Outcome, Place, Protocol, Step, Stepped};

/// Why a simulated call failed.
pub type Refused = CallError<&'static str>;

/// What comes of a simulated call.
pub type Answered<P> = Result<<P as Protocol>::Reply, Refused>;

/// How bad the network is: chances in 1,000.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Faults {
    /// A call or its reply never arrives.
    pub lost: u32,
    /// A connection breaks: an error comes, whether the server did anything or not.
    pub broken: u32,
    /// The server is busy.
    pub busy: u32,
    /// A reply comes twice.
    pub doubled: u32,
    /// A reply takes seconds.
    pub late: u32,
}

impl Faults {
    /// None of them.
    pub const NONE: Self = Self { lost: 0, broken: 0, busy: 0, doubled: 0, late: 0 };
}

enum Event<P: Protocol> {
    /// A call reaches one of the servers at a place.
    Arrives(Place, usize, P::Call),
    /// A reply reaches the client.
    Comes(Answered<P>),
}

/// A machine without its output's type, which is checked when it is done.
trait Actor<P: Protocol> {
    fn poll(&mut self, now: Duration) -> Step<P::Call, ()>;
    fn received(&mut self, id: CallId, now: Duration, outcome: Answered<P>);
}

struct Watched<M, F> {
    machine: M,
    done: F,
}

impl<P, M, F> Actor<P> for Watched<M, F>
where
    P: Protocol,
    M: Machine<&'static str, Protocol = P>,
    F: FnMut(Duration, Outcome<P, M::Output, &'static str>),
{
    fn poll(&mut self, now: Duration) -> Step<P::Call, ()> {
        let step: Stepped<P, M::Output, _> = self.machine.poll(now);
        match step {
            Step::Send { id, place, server, call } => Step::Send { id, place, server, call },
            Step::Wait { until } => Step::Wait { until },
            Step::Done(outcome) => {
                (self.done)(now, outcome);
                Step::Done(())
            }
        }
    }

    fn received(&mut self, id: CallId, now: Duration, outcome: Answered<P>) {
        self.machine.received(id, now, outcome);
    }
}

struct Running<'a, P> {
    actor: Box<dyn Actor<P> + 'a>,
    begins: Duration,
    ends_max: Duration,
    next: Option<Duration>,
}

/// The servers' half: what one of those at `place` replies at a time. `None` where it is down.
/// Of a call that several replies answer, they come in order, and none twice.
pub type Serve<'a, P> =
    dyn FnMut(Duration, Place, usize, <P as Protocol>::Call) -> Option<Vec<Answered<P>>> + 'a;

/// The clock, and all that is on its way.
pub struct Network<'a, P: Protocol> {
    now: Duration,
    rng: &'a mut ChaCha8Rng,
    faults: Faults,
    events: BTreeMap<(Duration, u64), (usize, CallId, Event<P>)>,
    sent: u64,
    running: Vec<Option<Running<'a, P>>>,
    rung: Arc<AtomicBool>,
}

impl<'a, P: Protocol> Network<'a, P>
where
    P::Reply: Clone,
{
    /// A network of these faults, at the time `now`; `rung` is a [`bell`]'s.
    pub fn new(
        rng: &'a mut ChaCha8Rng,
        rung: &Arc<AtomicBool>,
        now: Duration,
        faults: Faults,
    ) -> Self {
        let (events, running, rung) = (BTreeMap::new(), Vec::new(), Arc::clone(rung));
        Self { now, rng, faults, events, sent: 0, running, rung }
    }

    /// Has a machine begin at `begins`, which must be done by `ends_max`; `done` is told what of.
    pub fn start<M: Machine<&'static str, Protocol = P> + 'a>(
        &mut self,
        begins: Duration,
        ends_max: Duration,
        machine: M,
        done: impl FnMut(Duration, Outcome<P, M::Output, &'static str>) + 'a,
    ) {
        let actor = Box::new(Watched { machine, done });
        self.running.push(Some(Running { actor, begins, ends_max, next: Some(begins) }));
    }

    /// Lets time pass until all machines are done.
    ///
    /// # Panics
    /// Where a machine waits for what never comes, or for what is past, or is not done in time.
    pub fn run(&mut self, serve: &mut Serve<'_, P>) {
        for _ in 0..STEPS_MAX {
            let wakes = self.running.iter().enumerate();
            let wakes = wakes.filter_map(|(i, it)| Some((it.as_ref()?.next?, i)));
            let wake = wakes.min();
            let event = self.events.first_key_value().map(|(&(at, _), _)| at);
            match (event, wake) {
                (Some(at), wake) if wake.is_none_or(|(until, _)| at <= until) => {
                    let Some(((at, _), (who, id, event))) = self.events.pop_first() else { return };
                    self.now = self.now.max(at);
                    self.happen(who, id, event, serve);
                }
                (_, Some((until, who))) => {
                    self.now = self.now.max(until);
                    self.poll(who);
                }
                _ => {
                    let left = self.running.iter().flatten().count();
                    assert_eq!(left, 0, "machines wait for what never comes");
                    return;
                }
            }
        }
        panic!("it does not end in {STEPS_MAX} steps");
    }

    fn poll(&mut self, who: usize) {
        loop {
            let now = self.now;
            let Some(it) = &mut self.running[who] else { return };
            assert!(now <= it.ends_max, "began at {:?}, not over at {now:?}", it.begins);
            match it.actor.poll(now) {
                Step::Send { id, place, server, call } => {
                    self.send(who, id, Event::Arrives(place, server, call));
                }
                Step::Wait { until } => {
                    assert!(until > now, "it waits for what is past");
                    it.next = Some(until);
                    break;
                }
                Step::Done(()) => {
                    self.running[who] = None;
                    break;
                }
            }
        }
        if self.rung.swap(false, Ordering::Relaxed) {
            let now = self.now;
            for it in self.running.iter_mut().flatten().filter(|it| it.begins <= now) {
                it.next = Some(now);
            }
        }
    }

    fn happens(&mut self, chance: u32) -> bool {
        self.rng.random_range(0..1000) < chance
    }

    fn delay(&mut self) -> Duration {
        let late = self.happens(self.faults.late);
        Duration::from_micros(match late {
            true => self.rng.random_range(1_000_000..9_000_000),
            false => self.rng.random_range(100..80_000),
        })
    }

    fn after(&mut self, delay: Duration, who: usize, id: CallId, event: Event<P>) {
        self.sent += 1;
        self.events.insert((self.now + delay, self.sent), (who, id, event));
    }

    fn send(&mut self, who: usize, id: CallId, call: Event<P>) {
        let delay = self.delay();
        if self.happens(self.faults.broken) {
            self.after(delay, who, id, Event::Comes(Err(unreachable_server())));
            // It may have got there all the same.
            if self.happens(500) {
                return;
            }
        }
        if !self.happens(self.faults.lost) {
            self.after(delay, who, id, call);
        }
    }

    fn happen(&mut self, who: usize, id: CallId, event: Event<P>, serve: &mut Serve<'_, P>) {
        match event {
            Event::Comes(outcome) => {
                let now = self.now;
                if let Some(it) = &mut self.running[who] {
                    it.actor.received(id, now, outcome);
                    it.next = Some(now);
                }
            }
            Event::Arrives(place, server, call) => {
                let replies = if self.happens(self.faults.busy) {
                    let hint = Duration::from_millis(self.rng.random_range(0..400));
                    let fault = CallFault::Busy { retry_after: hint };
                    vec![Err(CallError { fault, error: "busy" })]
                } else {
                    serve(self.now, place, server, call)
                        .unwrap_or_else(|| vec![Err(unreachable_server())])
                };
                let (mut delay, is_single) = (Duration::ZERO, replies.len() == 1);
                for reply in replies {
                    // The chunks of one stream keep their order; what is lost ends it.
                    delay += self.delay();
                    if self.happens(self.faults.lost) {
                        break;
                    }
                    if is_single && self.happens(self.faults.doubled) {
                        let again = delay + self.delay();
                        self.after(again, who, id, Event::Comes(reply.clone()));
                    }
                    self.after(delay, who, id, Event::Comes(reply));
                }
            }
        }
    }
}

fn unreachable_server() -> Refused {
    CallError { fault: CallFault::Unreachable, error: "no connection" }
}

/// A bell, and whether it rang.
pub fn bell() -> (Bell, Arc<AtomicBool>) {
    let rung = Arc::new(AtomicBool::new(false));
    let ring = Arc::clone(&rung);
    (Bell::new(move || ring.store(true, Ordering::Relaxed)), rung)
}

/// Faults of every kind, some of them none.
pub fn random_faults(rng: &mut impl Rng) -> Faults {
    let mut chance = |max| match rng.random_range(0..3) {
        0 => 0,
        _ => rng.random_range(0..max),
    };
    let (lost, broken, doubled, late) = (chance(120), chance(200), chance(300), chance(150));
    // A storm now and then.
    let busy = chance(950);
    Faults { lost, broken, busy, doubled, late }
}

const STEPS_MAX: usize = 100_000;
