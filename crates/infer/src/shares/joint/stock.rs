//! What one server has of inferences that were dealt for, on disk, until each is used once.
//!
//! A batch is kept by both servers, each in a folder of its own ([`store`](crate::store)), and used only once both have it
//! durably: [`keep`](Stock::keep), tell the other, and [`agreed`](Stock::agreed) on what it told. At the start of a session
//! each says what it holds, and what the other has not is of no use to either: [`agree`](Stock::agree) discards it. So
//! whatever kills a process, a precompute is with both, or is soon with neither; and no server uses one twice, for it is
//! gone from its folder before it is handed out.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use hushtable_mpc::compare::Half;

use super::{Id, Precompute, PrecomputeError};
use crate::records::{RecordError, Records};
use crate::shares::outline::Outline;
use crate::store::{Counts, Head, Store, StoreError, StoreSpec, Taken};

/// A precompute that cannot be kept or taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StockError {
    /// The folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file of it.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// What is in it.
    #[error(transparent)]
    Precompute(#[from] PrecomputeError),
}

/// One server's folder of precomputes of one model. A few are taken from it [ahead](Self::fetch), so that who uses one need
/// not wait for the disk: they are in memory alone, and lost where the process ends.
pub struct Stock {
    store: Store,
    half: Half,
    outline: Outline,
    state: Mutex<State>,
    /// That some were fetched.
    fetched: Condvar,
    /// That one which both had is gone here alone.
    has_disagreed: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Those in the folder that the other server has too, in an order that both have.
    ready: VecDeque<Id>,
    /// Those of them that are on their way to memory.
    fetching: Vec<Id>,
    /// Those that are taken already, the same.
    ahead: VecDeque<Precompute>,
}

impl Stock {
    /// Opens a folder, and discards what was made for another model. Nothing of it is ready until both servers
    /// [agree](Self::agree).
    ///
    /// # Errors
    /// [`StockError`]: a folder in use, the other server's, or what the file system says.
    pub fn open(spec: &StoreSpec, half: Half, outline: &Outline) -> Result<Self, StockError> {
        let store = Store::open(spec)?;
        let hash = outline.hash();
        for listed in store.list() {
            if listed.head.role != half.into() {
                return Err(StoreError::OtherParty { folder: spec.folder.clone() }.into());
            }
            if listed.head.plan != hash {
                store.discard(&listed.head.id)?;
            }
        }
        let (state, fetched, has_disagreed) = Default::default();
        Ok(Self { store, half, outline: outline.clone(), state, fetched, has_disagreed })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of it is one call, so a panic leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, once nothing of these is on its way to memory.
    fn settled(&self, is_wanted: impl Fn(&[Id]) -> bool) -> MutexGuard<'_, State> {
        let mut state = self.state();
        while is_wanted(&state.fetching) {
            state = self.fetched.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// All that is held, oldest first: what the other server is told at the start of a session.
    pub fn held(&self) -> Vec<Id> {
        let state = self.settled(|fetching| !fetching.is_empty());
        let ahead = state.ahead.iter().map(Precompute::id);
        ahead.chain(self.store.list().iter().map(|listed| listed.head.id)).collect()
    }

    /// Takes what the other server holds: what it has not is discarded, the rest is ready, in left's order. Gives how many
    /// were discarded.
    ///
    /// # Errors
    /// [`StockError`], where the folder does not let one go.
    pub fn agree(&self, other: &[Id]) -> Result<usize, StockError> {
        let own = self.held();
        let [theirs, mine] = [other, &own].map(|ids| ids.iter().collect::<HashSet<&Id>>());
        let mut state = self.settled(|fetching| !fetching.is_empty());
        let before = state.ahead.len();
        state.ahead.retain(|it| theirs.contains(&it.id()));
        let lost = before - state.ahead.len();
        let ahead: HashSet<Id> = state.ahead.iter().map(Precompute::id).collect();
        let order = if self.half == Half::Left { &own[..] } else { other };
        let both = order.iter().filter(|id| theirs.contains(id) && mine.contains(id));
        state.ready = both.filter(|id| !ahead.contains(*id)).copied().collect();
        drop(state);
        let alone = own.iter().filter(|id| !theirs.contains(id));
        let discarded = alone.map(|id| Ok(usize::from(self.store.discard(id)?)));
        Ok(lost + discarded.sum::<Result<usize, StockError>>()?)
    }

    /// Keeps a batch, durably. It is ready once the other server has said that it has it as well.
    ///
    /// # Errors
    /// [`StockError`]: no room, or what the file system says. Nothing, or a part, of the batch is kept then.
    pub fn keep(&self, batch: &[Precompute]) -> Result<(), StockError> {
        for precompute in batch {
            precompute.check(&self.outline, self.half)?;
            let head = Head {
                id: precompute.id(),
                plan: precompute.outline(),
                client_garbles: false,
                role: self.half.into(),
            };
            let bytes = precompute.as_bytes();
            let writing = self.store.begin(head, &[bytes.len() as u64])?;
            writing.put(0, bytes)?;
            writing.commit()?;
        }
        Ok(())
    }

    /// The other server has said that it keeps these: they are ready where this one does.
    pub fn agreed(&self, ids: &[Id]) {
        let held: HashSet<Id> = self.held().into_iter().collect();
        let mut state = self.state();
        for id in ids {
            let is_ahead = state.ahead.iter().any(|ahead| ahead.id() == *id);
            if held.contains(id) && !state.ready.contains(id) && !is_ahead {
                state.ready.push_back(*id);
            }
        }
    }

    /// Takes so many that are ready out of the folder ahead of their use, the next ones first; gives how many it took.
    ///
    /// # Errors
    /// As [`take_next`](Self::take_next): those that were to be taken are gone.
    pub fn fetch(&self, count: usize) -> Result<usize, StockError> {
        let ids: Vec<Id> = {
            let mut state = self.state();
            let count = count.min(state.ready.len());
            let ids: Vec<Id> = state.ready.drain(..count).collect();
            state.fetching.extend(&ids);
            ids
        };
        let taken = self.take_out(&ids);
        let mut state = self.state();
        state.fetching.retain(|id| !ids.contains(id));
        self.fetched.notify_all();
        let taken = taken?;
        let count = taken.len();
        state.ahead.extend(taken);
        Ok(count)
    }

    /// Those of them that can be read. One that cannot is gone here, and of no use to the other server.
    fn take_out(&self, ids: &[Id]) -> Result<Vec<Precompute>, StockError> {
        let read = |taken: Taken| {
            let precompute = Precompute::from_bytes(taken.get(0)?, &taken.head().id)?;
            precompute.check(&self.outline, self.half)?;
            Ok(precompute)
        };
        let taken = self.store.take_ids(ids);
        let read = taken.map_err(StockError::from).and_then(|taken| {
            taken.into_iter().map(read).collect::<Result<Vec<Precompute>, StockError>>()
        });
        if read.as_ref().map_or(true, |read| read.len() < ids.len()) {
            self.disagree();
        }
        read
    }

    /// One that both servers had is gone here alone: they are to [agree](Self::agree) anew.
    pub fn disagree(&self) {
        self.has_disagreed.store(true, Ordering::SeqCst);
    }

    /// Whether that was so since the last call.
    pub fn has_disagreed(&self) -> bool {
        self.has_disagreed.swap(false, Ordering::SeqCst)
    }

    /// Takes the next one that is ready; none where there is none. It is gone from the folder, whatever happens.
    ///
    /// # Errors
    /// [`StockError`] for one that cannot be read: it is gone too.
    pub fn take_next(&self) -> Result<Option<Precompute>, StockError> {
        loop {
            let mut state = self.state();
            while state.ahead.is_empty() && !state.fetching.is_empty() {
                state = self.fetched.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if let Some(precompute) = state.ahead.pop_front() {
                return Ok(Some(precompute));
            }
            let Some(id) = state.ready.pop_front() else { return Ok(None) };
            drop(state);
            // Of one whose files are damaged there is nothing; the next one is as good.
            if let Some(precompute) = self.take_out(&[id])?.pop() {
                return Ok(Some(precompute));
            }
        }
    }

    /// Takes one; none where there is none of this id, or no longer.
    ///
    /// # Errors
    /// As [`take_next`](Self::take_next).
    pub fn take(&self, id: &Id) -> Result<Option<Precompute>, StockError> {
        let mut state = self.settled(|fetching| fetching.contains(id));
        if let Some(place) = state.ahead.iter().position(|ahead| ahead.id() == *id) {
            return Ok(state.ahead.remove(place));
        }
        state.ready.retain(|ready| ready != id);
        drop(state);
        Ok(self.take_out(&[*id])?.pop())
    }

    /// How many may be taken.
    pub fn ready(&self) -> usize {
        let state = self.state();
        state.ready.len() + state.fetching.len() + state.ahead.len()
    }

    /// How many of those are in memory, or on their way.
    pub fn ahead(&self) -> usize {
        let state = self.state();
        state.fetching.len() + state.ahead.len()
    }

    /// How many more there is room for.
    pub fn room(&self) -> usize {
        self.store.room(&[Precompute::bytes_of(&self.outline) as u64]) as usize
    }

    /// The folder, for what was dropped of it and why.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// How full the folder is.
    pub fn counts(&self) -> Counts {
        self.store.counts()
    }
}
