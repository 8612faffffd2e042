//! Whose work goes next where more waits than there are threads: each peer's in turn, however much of one waits.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::host::quota::Holder;

/// A line is looked through for what nobody waits for any more once it is so long.
const PURGED_MIN: usize = 64;

/// What waits, by whose it is: each is served in turn.
pub(crate) struct Rota<T> {
    lines: HashMap<Holder, VecDeque<T>>,
    /// Whose turn is next, each once.
    order: VecDeque<Holder>,
}

impl<T> Rota<T> {
    pub fn new() -> Self {
        Self { lines: HashMap::new(), order: VecDeque::new() }
    }

    /// Puts one at the end of its holder's line, in which nobody waits any more that is not `is_live`.
    pub fn push(&mut self, holder: Holder, item: T, is_live: impl Fn(&T) -> bool) {
        let line = self.lines.entry(holder).or_default();
        if line.is_empty() {
            self.order.push_back(holder);
        }
        line.push_back(item);
        // Now and then, so that each is looked at a few times only.
        if line.len() >= PURGED_MIN && line.len().is_power_of_two() {
            let last = line.pop_back();
            line.retain(is_live);
            line.extend(last);
        }
    }

    /// What is next, of what is still live.
    pub fn pop(&mut self, is_live: impl Fn(&T) -> bool) -> Option<T> {
        while let Some(holder) = self.order.pop_front() {
            let Some(line) = self.lines.get_mut(&holder) else { continue };
            let next = std::iter::from_fn(|| line.pop_front()).find(&is_live);
            match line.is_empty() {
                true => drop(self.lines.remove(&holder)),
                false => self.order.push_back(holder),
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// The next `count` that are live, of each holder's `each_max` at most.
    pub fn take(&mut self, count: usize, each_max: usize, is_live: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for _ in 0..each_max {
            for _ in 0..self.order.len() {
                if taken.len() == count {
                    return taken;
                }
                taken.extend(self.pop(&is_live));
            }
            if self.order.is_empty() {
                break;
            }
        }
        taken
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// Turns to work, so many at once.
pub(crate) struct FairTurns(Arc<Mutex<State>>);

struct State {
    free: usize,
    waiting: Rota<oneshot::Sender<Turn>>,
}

/// A turn; it ends when it is dropped.
pub(crate) struct Turn(Option<Arc<Mutex<State>>>);

impl FairTurns {
    /// So many at once.
    pub fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: count, waiting: Rota::new() })))
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
                state.waiting.push(holder, sender, |waiting| !waiting.is_closed());
                waiting
            };
            // The sender is kept until it has sent.
            if let Ok(turn) = waiting.await {
                return turn;
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(turns) = self.0.take() else { return };
        loop {
            let next = {
                let mut state = lock(&turns);
                // Whoever has given up takes no turn.
                let next = state.waiting.pop(|waiting| !waiting.is_closed());
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

    #[test]
    fn of_each_holder_no_more_is_taken_than_it_may_have() {
        let mut rota = Rota::new();
        let [hog, one, two] = [1, 2, 3].map(Holder::of_number);
        let push = |rota: &mut Rota<u32>, holder, item| rota.push(holder, item, |_| true);
        (0..10).for_each(|item| push(&mut rota, hog, item));
        push(&mut rota, one, 20);
        push(&mut rota, two, 30);
        push(&mut rota, two, 31);
        assert_eq!(rota.take(6, 2, |_| true), [0, 20, 30, 1, 31]);
        // What nobody waits for takes no part.
        assert_eq!(rota.take(3, 100, |item| *item != 3), [2, 4, 5]);
        push(&mut rota, one, 21);
        assert_eq!(rota.take(100, 100, |_| true), [6, 21, 7, 8, 9]);
        assert!(rota.is_empty() && rota.take(5, 5, |_| true).is_empty());
    }

    #[test]
    fn what_nobody_waits_for_is_not_kept() {
        let mut rota = Rota::new();
        let hog = Holder::of_number(1);
        rota.push(hog, 0, |_| true);
        for item in 1..100_000 {
            rota.push(hog, item, |item| *item == 0);
            assert!(rota.lines[&hog].len() <= 64);
        }
        assert_eq!(rota.pop(|item| *item == 0), Some(0));
        assert_eq!((rota.pop(|item| *item == 0), rota.is_empty()), (None, true));
    }

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
        assert!(state.free == 2 && state.waiting.is_empty());
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
