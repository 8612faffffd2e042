//! An open folder of precomputes, as what is taken from it and written to it holds it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::folder::{Folder, name};
use super::ledger::Ledger;
use super::sealed::Seals;
use super::spec::{Cause, Dropped, Head, Listed, Role};

/// An open folder, whoever holds it.
pub(super) struct Inner {
    pub(super) folder: Folder,
    pub(super) seals: Seals,
    pub(super) ledger: Ledger,
    pub(super) bytes_max: u64,
    pub(super) state: Mutex<State>,
}

/// What is in the folder, and what is under way.
#[derive(Default)]
pub(super) struct State {
    /// Oldest first.
    pub(super) ready: Vec<Listed>,
    pub(super) writing: Vec<(Head, u64)>,
    pub(super) taken: Vec<([u8; 16], u64)>,
    pub(super) dropped: Vec<Dropped>,
}

impl State {
    pub(super) fn bytes(&self) -> u64 {
        let ready = self.ready.iter().map(|listed| listed.bytes);
        let writing = self.writing.iter().map(|(_, bytes)| *bytes);
        ready.chain(writing).chain(self.taken.iter().map(|(_, bytes)| *bytes)).sum()
    }

    pub(super) fn roles(&self) -> impl Iterator<Item = Role> + '_ {
        let writing = self.writing.iter().map(|(head, _)| head.role);
        self.ready.iter().map(|listed| listed.head.role).chain(writing)
    }

    pub(super) fn has(&self, id: &[u8; 16]) -> bool {
        self.ready.iter().any(|listed| listed.head.id == *id)
            || self.writing.iter().any(|(head, _)| head.id == *id)
            || self.taken.iter().any(|(taken, _)| taken == id)
    }
}

impl Inner {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Every change of it is one push, removal or retain, so a panic leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the oldest that is wanted one that nobody else takes.
    pub(super) fn claim(&self, is_wanted: impl Fn(&Head) -> bool) -> Option<Listed> {
        let mut state = self.state();
        let place = state.ready.iter().position(|listed| is_wanted(&listed.head))?;
        let listed = state.ready.remove(place);
        state.taken.push((listed.head.id, listed.bytes));
        Some(listed)
    }

    /// Lists a damaged precompute, which was deleted.
    pub(super) fn drop_damaged<T>(&self, id: &[u8; 16], why: Cause) -> Option<T> {
        self.state().dropped.push(Dropped { name: name(id), why });
        None
    }

    /// Gives back the room of a precompute that was taken.
    pub(super) fn release(&self, id: &[u8; 16]) {
        self.state().taken.retain(|(other, _)| other != id);
    }
}
