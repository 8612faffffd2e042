//! Whose work goes next where more waits than there are threads: each peer's in turn, however much of one waits.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::host::quota::Holder;

/// Turns to work, so many at once.
pub(crate) struct FairTurns(Arc<Mutex<State>>);

struct State {
    free: usize,
    /// Those that wait, by whose they are.
    waiting: HashMap<Holder, VecDeque<oneshot::Sender<Turn>>>,
    /// Whose turn is next, each once.
    order: VecDeque<Holder>,
}

/// A turn; it ends when it is dropped.
pub(crate) struct Turn(Option<Arc<Mutex<State>>>);

impl FairTurns {
    /// So many at once.
    pub fn new(count: usize) -> Self {
        let (waiting, order) = Default::default();
        Self(Arc::new(Mutex::new(State { free: count, waiting, order })))
    }

    /// Waits for a turn.
    pub async fn take(&self, holder: Holder) -> Turn {
        loop {
            let waiting = {
                let mut state = lock(&self.0);
                // Whoever waits has found none free.
                if state.free > 0 {
                    state.free -= 1;
                    return Turn(Some(Arc::clone(&self.0)));
                }
                let (sender, waiting) = oneshot::channel();
                let line = state.waiting.entry(holder).or_default();
                line.push_back(sender);
                if line.len() == 1 {
                    state.order.push_back(holder);
                }
                waiting
            };
            // The sender is kept until it has sent.
            if let Ok(turn) = waiting.await {
                return turn;
            }
        }
    }
}

impl State {
    /// Who is next, of those that still wait.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        while let Some(holder) = self.order.pop_front() {
            let Some(line) = self.waiting.get_mut(&holder) else { continue };
            let next = std::iter::from_fn(|| line.pop_front()).find(|next| !next.is_closed());
            match line.is_empty() {
                true => drop(self.waiting.remove(&holder)),
                false => self.order.push_back(holder),
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else { return };
        loop {
            let next = {
                let mut state = lock(&turns);
                let next = state.next();
                if next.is_none() {
                    state.free += 1;
                }
                next
            };
            let Some(next) = next else { return };
            match next.send(Self(Some(Arc::clone(&turns)))) {
                Ok(()) => return,
                // It was given up a moment ago. The turn that comes back is this one, which ends once.
                Err(mut turn) => turn.0 = None,
            }
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_peer_with_much_work_waits_for_one_with_little() {
        let turns = Arc::new(FairTurns::new(1));
        let (hog, other) = (Holder::default(), Holder::of_number(7));
        let first = turns.take(hog).await;
        let done = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = Vec::new();
        for (number, holder) in [hog; 20].into_iter().chain([other; 3]).enumerate() {
            let (turns, done) = (Arc::clone(&turns), Arc::clone(&done));
            tasks.push(tokio::spawn(async move {
                let turn = turns.take(holder).await;
                done.lock().unwrap().push(number);
                tokio::task::yield_now().await;
                drop(turn);
            }));
            tokio::task::yield_now().await;
        }
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        let done = done.lock().unwrap();
        assert_eq!(done[..7], [0, 20, 1, 21, 2, 22, 3], "{done:?}");
        assert_eq!(done.len(), 23);
    }

    #[tokio::test]
    async fn who_gives_up_takes_no_turn_along() {
        let turns = Arc::new(FairTurns::new(2));
        let most = AtomicUsize::new(0);
        for round in 0..50 {
            let held = [turns.take(Holder::default()).await, turns.take(Holder::default()).await];
            let mut given_up: Vec<_> =
                (0..10).map(|_| Box::pin(turns.take(Holder::of_number(round % 3)))).collect();
            for waiting in &mut given_up {
                assert!(futures_poll(waiting.as_mut()).is_none());
            }
            given_up.truncate(round as usize % 10);
            drop(held);
            drop(given_up);
            most.fetch_add(1, Ordering::Relaxed);
        }
        let all = [turns.take(Holder::default()).await, turns.take(Holder::default()).await];
        assert_eq!(lock(&turns.0).free, 0);
        drop(all);
        let state = lock(&turns.0);
        assert!(state.free == 2 && state.order.is_empty() && state.waiting.is_empty());
    }

    /// One poll of a future that nobody wakes.
    fn futures_poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}
