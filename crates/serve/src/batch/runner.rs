//! The thread that runs the passes of several schedulers, one at a time, in turns.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::{Due, Turns};
use crate::Error;
use crate::vital::{Vital, Vitals};

/// A scheduler as its runner sees it.
pub(super) trait Passes: Send + Sync {
    /// What a runner that is free does next for this lane.
    fn due(&self, now: Instant) -> Due;

    /// What the next pass is likely to take.
    fn expected(&self) -> Duration;

    /// Runs the pass that is due; `answers` is a buffer that passes share.
    fn run(&self, answers: &mut Vec<u8>);
}

/// A thread that runs passes. Schedulers that share one share the threads that answer: never do
/// passes of two of them compete, and none keeps another waiting for longer than [`Turns`] says.
#[derive(Clone)]
pub struct Runner(Arc<Running>);

/// Ends the thread with the last scheduler that uses it.
struct Running {
    shared: Arc<Shared>,
    worker: Option<JoinHandle<()>>,
    /// What is told of its panics.
    vitals: Vitals,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    /// Notified once the thread looks for passes.
    up: Condvar,
}

#[derive(Default)]
struct State {
    lanes: Vec<Option<Arc<dyn Passes>>>,
    turns: Turns,
    /// Whether a pass runs: whoever runs it looks for the next one afterwards.
    is_busy: bool,
    /// Until when the thread sleeps at most, where it does and knows.
    sleeps_until: Option<Instant>,
    is_up: bool,
    ends: bool,
}

/// What is to be done next, of all lanes.
enum Step {
    Run(usize, Arc<dyn Passes>),
    Sleep(Option<Instant>),
}

/// A runner as a task of a runtime sees it that runs short passes itself.
pub(super) struct Visitor(Weak<Running>);

/// What a [`Visitor`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visited {
    /// A pass was run: another may be due.
    Ran,
    /// Nothing is due that is short: what there is, is the thread's.
    Ended,
}

impl Runner {
    /// Starts the thread, and returns once it waits for passes: short ones that come first are the tasks' from the
    /// first on. `vitals` is told where a pass panics; and where the thread does, nothing is answered any more.
    ///
    /// # Errors
    /// [`Error::Io`] where the system gives no thread.
    pub fn start(vitals: &Vitals) -> Result<Self, Error> {
        let shared = Arc::new(Shared::default());
        let worker = Builder::new()
            .name(THREAD.into())
            .spawn({
                let (shared, vital) = (Arc::clone(&shared), vitals.hold(THREAD));
                move || shared.work(&vital)
            })
            .map_err(|source| Error::Io { what: "start the answering thread".into(), source })?;
        // Its lock is the thread's until that sleeps.
        let up = shared.up.wait_while(shared.lock(), |state| !state.is_up);
        drop(up.unwrap_or_else(PoisonError::into_inner));
        Ok(Self(Arc::new(Running { shared, worker: Some(worker), vitals: vitals.clone() })))
    }

    pub(super) fn join(&self, lane: Arc<dyn Passes>) -> usize {
        let mut state = self.0.shared.lock();
        let number = state.turns.join();
        if state.lanes.len() <= number {
            state.lanes.resize_with(number + 1, || None);
        }
        state.lanes[number] = Some(lane);
        number
    }

    pub(super) fn leave(&self, lane: usize) {
        let mut state = self.0.shared.lock();
        state.turns.leave(lane);
        state.lanes[lane] = None;
    }

    /// Lets a task run short passes. It does not keep the thread alive.
    pub(super) fn visitor(&self) -> Visitor {
        Visitor(Arc::downgrade(&self.0))
    }

    /// What is told of panics.
    pub(super) fn vitals(&self) -> &Vitals {
        &self.0.vitals
    }

    /// Says that a lane's next step has changed.
    pub(super) fn wake(&self) {
        // Through the lock, so that a thread that has just found nothing to do is waiting by now.
        drop(self.0.shared.lock());
        self.0.shared.wake.notify_one();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.lock().ends = true;
        self.shared.wake.notify_one();
        if let Some(worker) = self.worker.take() {
            // A panic on the worker was logged where it happened.
            let _ = worker.join();
        }
    }
}

impl Visitor {
    /// Runs the pass that is due, if it is likely to take no longer than `longest`; wakes the thread for
    /// one that takes longer, or that is due later.
    pub fn visit(&self, longest: Duration, answers: &mut Vec<u8>) -> Visited {
        let Some(running) = self.0.upgrade() else { return Visited::Ended };
        let shared = &running.shared;
        let vital = running.vitals.hold(VISITOR);
        vital.turn();
        let mut state = shared.lock();
        if state.is_busy || state.ends {
            return Visited::Ended;
        }
        let now = Instant::now();
        match state.step(now) {
            Step::Run(number, lane) if lane.expected() <= longest => {
                drop(shared.run(state, number, &*lane, now, answers));
                Visited::Ran
            }
            Step::Sleep(None) => Visited::Ended,
            // It wakes in time by itself.
            Step::Sleep(Some(due)) if state.sleeps_until.is_some_and(|until| until <= due) => {
                Visited::Ended
            }
            Step::Run(..) | Step::Sleep(Some(_)) => {
                drop(state);
                shared.wake.notify_one();
                Visited::Ended
            }
        }
    }
}

impl State {
    fn step(&mut self, now: Instant) -> Step {
        let mut until: Option<Instant> = None;
        let mut due = Vec::new();
        for (number, lane) in self.lanes.iter().enumerate() {
            match lane.as_ref().map_or(Due::Never, |lane| lane.due(now)) {
                Due::Never => {}
                Due::At(at) => until = Some(until.map_or(at, |until| until.min(at))),
                Due::Now => due.push(number),
            }
        }
        let next = self.turns.next(due);
        match next.and_then(|number| Some((number, self.lanes[number].clone()?))) {
            Some((number, lane)) => Step::Run(number, lane),
            None => Step::Sleep(until),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the pass of a lane, without the lock.
    fn run<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        number: usize,
        lane: &dyn Passes,
        now: Instant,
        answers: &mut Vec<u8>,
    ) -> MutexGuard<'a, State> {
        state.is_busy = true;
        drop(state);
        lane.run(answers);
        let mut state = self.lock();
        state.is_busy = false;
        state.turns.served(number, now.elapsed());
        state
    }

    /// The thread's life.
    fn work(&self, vital: &Vital) {
        let mut answers = Vec::new();
        let mut state = self.lock();
        state.is_up = true;
        self.up.notify_one();
        while !state.ends {
            vital.turn();
            let now = Instant::now();
            // Who runs a pass looks for the next one afterwards.
            let step = if state.is_busy { Step::Sleep(None) } else { state.step(now) };
            state = match step {
                Step::Run(number, lane) => self.run(state, number, &*lane, now, &mut answers),
                Step::Sleep(None) => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Step::Sleep(Some(until)) => {
                    state.sleeps_until = Some(until);
                    let left = until.saturating_duration_since(now);
                    let waited = self.wake.wait_timeout(state, left);
                    let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    state.sleeps_until = None;
                    state
                }
            };
        }
    }
}

const THREAD: &str = "hushtable-pass";
/// A task that runs short passes, as its thread would.
const VISITOR: &str = "that runs short passes";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::vital::planted;

    /// A lane that is always due, and panics where a pass is not looked after.
    #[derive(Default)]
    struct Lane(AtomicBool);

    impl Passes for Lane {
        fn due(&self, _: Instant) -> Due {
            match self.0.load(Ordering::SeqCst) {
                true => Due::Now,
                false => Due::Never,
            }
        }

        fn expected(&self) -> Duration {
            Duration::ZERO
        }

        fn run(&self, _: &mut Vec<u8>) {
            panic!("a lane's own");
        }
    }

    async fn lost(vitals: &Vitals) -> &'static str {
        match vitals.lost().await {
            Error::Panicked { thread } => thread,
            error => panic!("{error}"),
        }
    }

    #[tokio::test]
    async fn a_thread_of_passes_that_panics_is_told_of() {
        let vitals = Vitals::default();
        let runner = Runner::start(&vitals).unwrap();
        planted::panic_in(THREAD);
        runner.wake();
        assert_eq!(lost(&vitals).await, THREAD);
    }

    #[tokio::test]
    async fn a_pass_that_panics_where_nothing_catches_it_is_told_of_whoever_runs_it() {
        let vitals = Vitals::default();
        let runner = Runner::start(&vitals).unwrap();
        let lane = Arc::new(Lane::default());
        runner.join(Arc::clone(&lane) as Arc<dyn Passes>);
        lane.0.store(true, Ordering::SeqCst);
        let visitor = runner.visitor();
        let visit = move || visitor.visit(Duration::MAX, &mut Vec::new());
        assert!(tokio::spawn(async move { visit() }).await.unwrap_err().is_panic());
        assert_eq!(lost(&vitals).await, VISITOR);
        let vitals = Vitals::default();
        let runner = Runner::start(&vitals).unwrap();
        runner.join(lane);
        runner.wake();
        assert_eq!(lost(&vitals).await, THREAD);
    }
}
