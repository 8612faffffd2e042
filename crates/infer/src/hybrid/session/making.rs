//! How precomputes are made: by workers beside each other, each of which computes a step's request, has it
//! answered, and takes the reply, while others do the same with other steps.
//!
//! A worker is a machine. What they share is which precompute they are at and which steps are under way; a worker
//! that finds nothing to do waits for the others. A precompute that the server lost is begun again, once the steps
//! that are under way have come to their ends: there is room for one half at a time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hushtable_client::{
    Bell, CallFault, Error as Ended, InTurn, Machine, Operation, Outcome, PartOutcome, Random,
    Series, Shared, Then,
};
use hushtable_mpc::fill_random;

use super::super::error::Error;
use super::super::offline::Next;
use super::call::{Failure, Inference};
use super::halves::Halves;
use super::scheme::{Server, SessionSpec};
use super::step::{Attempt, Made, MakeAsk, What};

/// Told the steps that were made, and all of them.
pub type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// What making precomputes has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counted {
    /// Steps.
    pub steps: u64,
    /// Bytes of steps sent.
    pub sent_bytes: u64,
    /// Bytes of replies received.
    pub received_bytes: u64,
    /// How often a call was made again.
    pub retries: u64,
    /// Precomputes that the server lost while they were made, so that they were begun again.
    pub begun_again: u64,
}

/// How many things are done at once.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Pace {
    /// Precomputes, at least one.
    pub precomputes: usize,
    /// Steps of each, at least one.
    pub steps: usize,
}

/// Precomputes that are being made.
pub struct Making {
    batch: Arc<Batch>,
    pace: Pace,
}

/// What all workers share.
struct Batch {
    shared: Arc<Shared<Server>>,
    spec: SessionSpec,
    halves: Arc<dyn Halves>,
    bell: Bell,
    progress: Option<Progress>,
    /// Steps of all precomputes.
    all: u64,
    /// Precomputes that are not begun.
    left: AtomicU64,
    /// Whether a worker has failed: the others go no further.
    has_failed: AtomicBool,
    counted: Mutex<Counted>,
    /// Steps that are made, but for those of precomputes that were lost.
    done: AtomicU64,
}

/// What the workers of one precompute at a time share.
struct Crew {
    batch: Arc<Batch>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stage: Stage,
    /// Calls under way.
    under_way: usize,
    /// How often the precompute was begun.
    tries: u32,
    /// Whether the server has lost it.
    is_lost: bool,
}

#[derive(Default)]
enum Stage {
    /// To begin a precompute, if one is left.
    #[default]
    Idle,
    Beginning,
    Steps(Arc<Attempt>),
    Finishing,
}

impl Making {
    pub(super) fn new(
        shared: &Arc<Shared<Server>>,
        halves: Arc<dyn Halves>,
        bell: Bell,
        count: usize,
        pace: Pace,
        progress: Option<Progress>,
    ) -> Self {
        let session = shared.session();
        let steps = session.outline.steps(session.spec.garbler).len() as u64;
        let batch = Arc::new(Batch {
            shared: Arc::clone(shared),
            spec: session.spec,
            halves,
            bell,
            progress,
            all: count as u64 * steps,
            left: AtomicU64::new(count as u64),
            has_failed: AtomicBool::new(false),
            counted: Mutex::default(),
            done: AtomicU64::new(0),
        });
        let precomputes = pace.precomputes.clamp(1, count.max(1));
        Self { batch, pace: Pace { precomputes, steps: pace.steps.max(1) } }
    }

    /// The machines that make them, to be run beside each other: all is made once each is done. Once one of them has
    /// failed the others are of no use. `random` spreads retries.
    pub fn workers<E: Send>(
        &self,
        random: u64,
    ) -> Vec<impl Machine<E, Protocol = Inference, Output = ()> + use<E>> {
        let mut random = Random::new(random);
        let crews = (0..self.pace.precomputes).map(|_| {
            let batch = Arc::clone(&self.batch);
            Arc::new(Crew { batch, state: Mutex::default() })
        });
        let workers = crews.flat_map(|crew| (0..self.pace.steps).map(move |_| Arc::clone(&crew)));
        let worker = |crew| Worker { crew, random: Random::new(random.number()), at: None };
        workers.map(worker).map(InTurn::new).collect()
    }

    /// What it has cost so far.
    pub fn counted(&self) -> Counted {
        *lock(&self.batch.counted)
    }
}

impl Batch {
    fn tell(&self) {
        if let Some(progress) = &self.progress {
            let done = self.done.load(Ordering::Relaxed);
            progress(done, self.all.max(done));
        }
    }

    /// Whether there is another precompute to begin: then it is the caller's.
    fn takes_one(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        self.left.try_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

/// What a worker does next.
enum Turn {
    Make(Arc<Attempt>, What),
    Wait,
    Over,
}

impl Crew {
    fn turn(&self) -> Result<Turn, Failure> {
        let mut state = lock(&self.state);
        if self.batch.has_failed.load(Ordering::Relaxed) {
            return Ok(Turn::Over);
        }
        let turn = match &state.stage {
            // One that was lost is begun again.
            Stage::Idle if state.tries > 0 || self.batch.takes_one() => {
                let mut id = [0; 16];
                fill_random(&mut id).map_err(Error::from)?;
                state.stage = Stage::Beginning;
                state.tries += 1;
                Turn::Make(Arc::new(Attempt::new(id)), What::Begin)
            }
            Stage::Idle => return Ok(Turn::Over),
            Stage::Steps(attempt) if !state.is_lost => match attempt.next() {
                Next::Step(step) => Turn::Make(Arc::clone(attempt), What::Step(step)),
                Next::Wait if state.under_way == 0 => return Err(Failure::Stuck),
                Next::Wait => return Ok(Turn::Wait),
                Next::Done => {
                    let attempt = Arc::clone(attempt);
                    state.stage = Stage::Finishing;
                    Turn::Make(attempt, What::Finish)
                }
            },
            Stage::Beginning | Stage::Steps(_) | Stage::Finishing => return Ok(Turn::Wait),
        };
        state.under_way += 1;
        Ok(turn)
    }

    /// Takes what came of what a worker did.
    fn ended<E>(
        &self,
        attempt: &Arc<Attempt>,
        what: What,
        outcome: Outcome<Inference, Made, E>,
    ) -> Outcome<Inference, (), E> {
        let batch = &self.batch;
        let mut state = lock(&self.state);
        state.under_way -= 1;
        match outcome {
            Ok(made) => {
                let mut counted = lock(&batch.counted);
                counted.retries += u64::from(made.retries);
                match what {
                    What::Begin => state.stage = Stage::Steps(Arc::clone(attempt)),
                    What::Step(_) => {
                        counted.steps += 1;
                        counted.sent_bytes += made.sent_bytes * (u64::from(made.retries) + 1);
                        counted.received_bytes += made.received_bytes;
                        attempt.done.fetch_add(1, Ordering::Relaxed);
                        batch.done.fetch_add(1, Ordering::Relaxed);
                    }
                    What::Finish => (state.stage, state.tries) = (Stage::Idle, 0),
                }
            }
            Err(error) if is_lost(&error) && state.tries < TRIES_MAX => state.is_lost = true,
            Err(error) => {
                // Under the lock: a worker that finds nobody at work would say that nothing goes on.
                batch.has_failed.store(true, Ordering::Relaxed);
                return Err(error);
            }
        }
        if state.is_lost && state.under_way == 0 {
            (state.stage, state.is_lost) = (Stage::Idle, false);
            lock(&batch.counted).begun_again += 1;
            batch.done.fetch_sub(attempt.done.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        drop(state);
        match what {
            What::Finish => {}
            What::Begin | What::Step(_) => batch.tell(),
        }
        Ok(())
    }
}

/// Whether another precompute is begun in this one's place: the server has it no more, or no mask hides its proof.
fn is_lost<E>(error: &Ended<Failure, E>) -> bool {
    match error {
        Ended::Call { fault, .. } => matches!(fault, CallFault::Gone),
        Ended::Failure(Failure::Protocol(error)) => {
            matches!(&**error, Error::Linear(own) if own.is_unlucky())
        }
        Ended::Failure(_) => false,
    }
}

/// One of those that make precomputes.
struct Worker {
    crew: Arc<Crew>,
    random: Random,
    /// What it is at.
    at: Option<(Arc<Attempt>, What)>,
}

type Part<E> = Operation<Server, MakeAsk, E>;

impl Worker {
    fn go_on<E: Send>(
        &mut self,
        ended: Option<Outcome<Inference, Made, E>>,
    ) -> Result<Then<Part<E>, ()>, Ended<Failure, E>> {
        if let Some((outcome, (attempt, what))) = ended.zip(self.at.take()) {
            self.crew.ended(&attempt, what, outcome)?;
            self.crew.batch.bell.ring();
        }
        let batch = &self.crew.batch;
        Ok(match self.crew.turn()? {
            Turn::Make(attempt, what) => {
                self.at = Some((Arc::clone(&attempt), what));
                let ask = MakeAsk::new(&batch.spec, Arc::clone(&batch.halves), attempt, what);
                Then::Part(Operation::new(&batch.shared, ask, self.random.number()))
            }
            Turn::Wait => Then::Pause,
            Turn::Over => Then::Done(()),
        })
    }
}

impl<E: Send> Series<E> for Worker {
    type Protocol = Inference;
    type Part = Part<E>;
    type Output = ();

    fn next(
        &mut self,
        ended: Option<PartOutcome<Part<E>, E>>,
    ) -> Then<Part<E>, Outcome<Inference, (), E>> {
        match self.go_on(ended) {
            Ok(Then::Part(part)) => Then::Part(part),
            Ok(Then::Pause) => Then::Pause,
            Ok(Then::Done(())) => Then::Done(Ok(())),
            Err(error) => {
                let batch = &self.crew.batch;
                batch.has_failed.store(true, Ordering::Relaxed);
                batch.bell.ring();
                Then::Done(Err(error))
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A server that loses a precompute this often loses the next one too.
const TRIES_MAX: u32 = 5;
