//! The thread that runs the passes of several schedulers, one at a time, in turns.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use super::{Due, Turns};
use crate::Error;

/// A scheduler as its runner sees it.
pub(super) trait Lane: Send + Sync {
    /// What a runner that is free does next for this lane.
    fn due(&self, now: Instant) -> Due;

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
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    lanes: Vec<Option<Arc<dyn Lane>>>,
    turns: Turns,
    ends: bool,
}

impl Runner {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Io`] where the system gives no thread.
    pub fn start() -> Result<Self, Error> {
        let shared = Arc::new(Shared { state: Mutex::default(), wake: Condvar::new() });
        let worker = Builder::new()
            .name("hushtable-pass".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || shared.work()
            })
            .map_err(|source| Error::Io { what: "start the answering thread".into(), source })?;
        Ok(Self(Arc::new(Running { shared, worker: Some(worker) })))
    }

    pub(super) fn join(&self, lane: Arc<dyn Lane>) -> usize {
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

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's life.
    fn work(&self) {
        let mut answers = Vec::new();
        let mut due = Vec::new();
        let mut state = self.lock();
        while !state.ends {
            let now = Instant::now();
            due.clear();
            let mut until: Option<Instant> = None;
            for (number, lane) in state.lanes.iter().enumerate() {
                match lane.as_ref().map_or(Due::Never, |lane| lane.due(now)) {
                    Due::Never => {}
                    Due::At(at) => until = Some(until.map_or(at, |until| until.min(at))),
                    Due::Now => due.push(number),
                }
            }
            let next = state.turns.next(due.iter().copied());
            state = match (next.and_then(|lane| Some((lane, state.lanes[lane].clone()?))), until) {
                (Some((number, lane)), _) => {
                    drop(state);
                    lane.run(&mut answers);
                    let mut state = self.lock();
                    state.turns.served(number, now.elapsed());
                    state
                }
                (None, None) => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                (None, Some(until)) => {
                    let left = until.saturating_duration_since(now);
                    let waited = self.wake.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
