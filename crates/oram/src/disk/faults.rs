//! Planned faults: power that goes at a chosen I/O operation, and what an adversary sees meanwhile.
//!
//! A test makes one [`Faults`], hands it to everything that does I/O (a [`FaultStore`], the journal,
//! the root counter), runs a round, and opens again what is left. Doing so for every operation of
//! the round proves that there is none at which a crash loses anything.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Counters, DiskError, PAGE_BYTES, Pages, Run, Store};

/// What may be torn is half a page: disks promise no more than whole sectors.
const TORN_BYTES: usize = PAGE_BYTES / 2;

/// A plan for one simulated crash, shared by all that takes part in it; clones are the same plan.
///
/// An operation is one call of read, write, sync, rename or the like, by any holder.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    shared: Option<Arc<Mutex<State>>>,
}

/// How a crash is to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultSpec {
    /// The operation at which everything ends, counted from 0; without it nothing fails, and
    /// operations are counted and traced.
    pub kill_at: Option<u64>,
    /// What is done of the operation at which everything ends, should it be a write.
    pub tear: Tear,
    /// What becomes of writes that no sync followed.
    pub unsynced: Unsynced,
}

/// What is done of a write at which everything ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tear {
    /// Nothing.
    #[default]
    Nothing,
    /// The first half of the runs, or of an appended record's bytes.
    Half,
    /// The first half of the first page, or the first byte of an appended record.
    HalfPage,
    /// Each page or not, by a coin from this seed: what was in flight ends in no order. Of an
    /// appended record, a part whose length the seed decides.
    Scattered(u64),
    /// All of it: what ends everything is that nobody hears of it.
    Everything,
}

/// What becomes of writes that no sync followed, when everything ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unsynced {
    /// They are on the disk, as after the end of a process.
    #[default]
    Kept,
    /// They are lost, all of them: the disk's cache was without power.
    Lost,
    /// Each page is on the disk or lost, by a coin from this seed.
    Scattered(u64),
}

/// What was done to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Access {
    /// It was read.
    Read,
    /// It was written.
    Write,
}

/// What an adversary who watches the disk has seen: accesses and their pages, in order.
pub type Trace = Vec<(Access, u64)>;

#[derive(Debug)]
struct State {
    spec: FaultSpec,
    operations: u64,
    killed: bool,
    /// From this operation on, the disk has no space left.
    full_from: Option<u64>,
    trace: Trace,
}

/// What to do of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// All of it.
    Go,
    /// This much, if it writes; then fail.
    Last(u64, Tear),
    /// Nothing: everything has ended.
    Dead(u64),
}

impl Verdict {
    /// For an operation that cannot be torn: it happens, or fails.
    pub(crate) fn allow(self) -> Result<(), DiskError> {
        match self {
            Verdict::Go => Ok(()),
            Verdict::Last(operation, _) | Verdict::Dead(operation) => {
                Err(DiskError::Killed { operation })
            }
        }
    }
}

impl Faults {
    /// No plan: nothing fails, nothing is counted, and nothing is spent on it.
    pub const fn none() -> Faults {
        Faults { shared: None }
    }

    /// A crash as `spec` has it, or with no `kill_at` none, only counts and a trace.
    pub fn new(spec: FaultSpec) -> Faults {
        let trace = Trace::new();
        let state = State { spec, operations: 0, killed: false, full_from: None, trace };
        Faults { shared: Some(Arc::new(Mutex::new(state))) }
    }

    /// Fills the disk before `operation`, counted from 0: from then on nothing gets space that has
    /// not got it yet, and what has is written and read as ever. None makes space again.
    pub fn fill_from(&self, operation: Option<u64>) {
        if let Some(mut state) = self.state() {
            state.full_from = operation;
        }
    }

    /// Operations so far, with those that failed.
    pub fn operation_count(&self) -> u64 {
        self.state().map_or(0, |state| state.operations)
    }

    /// Whether everything has ended.
    pub fn is_killed(&self) -> bool {
        self.state().is_some_and(|state| state.killed)
    }

    /// What was seen of stores' pages since this was last asked.
    pub fn take_trace(&self) -> Trace {
        self.state().map_or_else(Trace::new, |mut state| std::mem::take(&mut state.trace))
    }

    /// Whether `wanted_bytes` of new space are to be had for the file at `path`.
    pub(crate) fn allocate(&self, path: &Path, wanted_bytes: u64) -> Result<(), DiskError> {
        let full = self.state().is_some_and(|state| {
            state.full_from.is_some_and(|operation| state.operations >= operation)
        });
        match full {
            true => {
                Err(DiskError::Full { path: path.to_owned(), wanted_bytes, available_bytes: 0 })
            }
            false => Ok(()),
        }
    }

    /// Counts an operation and says what to do of it.
    pub(crate) fn step(&self) -> Verdict {
        let Some(mut state) = self.state() else { return Verdict::Go };
        let operation = state.operations;
        state.operations += 1;
        if state.killed {
            Verdict::Dead(operation)
        } else if state.spec.kill_at == Some(operation) {
            state.killed = true;
            Verdict::Last(operation, state.spec.tear)
        } else {
            Verdict::Go
        }
    }

    /// What becomes of writes without a sync, once everything has ended.
    pub(crate) fn losses(&self) -> Unsynced {
        self.state()
            .filter(|state| state.killed)
            .map_or(Unsynced::Kept, |state| state.spec.unsynced)
    }

    fn may_lose(&self) -> bool {
        self.state().is_some_and(|state| {
            state.spec.kill_at.is_some() && state.spec.unsynced != Unsynced::Kept
        })
    }

    fn saw(&self, access: Access, runs: &[Run]) {
        let Some(mut state) = self.state() else { return };
        for run in runs {
            let pages = run.first_page..run.first_page + u64::from(run.pages);
            state.trace.extend(pages.map(|page| (access, page)));
        }
    }

    fn state(&self) -> Option<MutexGuard<'_, State>> {
        // A panic elsewhere leaves the counts as they are.
        self.shared.as_ref().map(|shared| shared.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The coin of `seed` for `index`: the finaliser of splitmix64, good enough for tests' faults.
pub(crate) fn coin(seed: u64, index: u64) -> u64 {
    let mut word = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// A store with faults as planned, that records what it does.
///
/// When everything has ended, what the plan says of unsynced writes is done as this is dropped: the
/// store beneath then holds what the next process finds.
#[derive(Debug)]
pub struct FaultStore<S: Store> {
    /// Taken only by `into_inner`.
    inner: Option<S>,
    faults: Faults,
    /// Pages as they were before they were written, oldest first, since the last sync.
    undo: Vec<(u64, Pages)>,
}

impl<S: Store> FaultStore<S> {
    /// `inner`, with faults as planned.
    pub fn new(inner: S, faults: Faults) -> FaultStore<S> {
        FaultStore { inner: Some(inner), faults, undo: Vec::new() }
    }

    /// The store beneath, as the next process finds it.
    ///
    /// # Panics
    ///
    /// When what is lost cannot be taken back.
    pub fn into_inner(mut self) -> S {
        self.lose();
        self.inner.take().expect("taken by nobody else")
    }

    fn inner(&mut self) -> &mut S {
        self.inner.as_mut().expect("there until `into_inner`")
    }

    fn remember(&mut self, runs: &[Run]) -> Result<(), DiskError> {
        if self.faults.may_lose() {
            for page in
                runs.iter().flat_map(|run| (0..u64::from(run.pages)).map(|i| run.first_page + i))
            {
                let mut old = Pages::new();
                self.inner().read(&[Run::page(page)], &mut old)?;
                self.undo.push((page, old));
            }
        }
        Ok(())
    }

    fn lose(&mut self) {
        let losses = self.faults.losses();
        let mut undo = std::mem::take(&mut self.undo);
        while let Some((page, old)) = undo.pop() {
            let lost = match losses {
                Unsynced::Kept => false,
                Unsynced::Lost => true,
                Unsynced::Scattered(seed) => coin(seed, page) & 1 == 1,
            };
            if lost {
                self.inner().write(&[Run::page(page)], &old).expect("a page to take back");
            }
        }
    }

    /// Writes what is left of a write that was torn.
    fn write_torn(&mut self, tear: Tear, runs: &[Run], from: &Pages) -> Result<(), DiskError> {
        let pages =
            runs.iter().flat_map(|run| (0..u64::from(run.pages)).map(|i| run.first_page + i));
        let pages: Vec<(usize, u64)> = pages.enumerate().collect();
        let half = runs[..runs.len() / 2].iter().map(|run| run.pages as usize).sum();
        for (i, page) in pages {
            let mut bytes = Pages::from_bytes(from.page(i));
            let written = match tear {
                Tear::Nothing => false,
                Tear::Half => i < half,
                Tear::HalfPage => i == 0,
                Tear::Scattered(seed) => coin(seed, page) & 1 == 1,
                Tear::Everything => true,
            };
            if tear == Tear::HalfPage && i == 0 {
                let mut old = Pages::new();
                self.inner().read(&[Run::page(page)], &mut old)?;
                bytes.bytes_mut()[TORN_BYTES..].copy_from_slice(&old.bytes()[TORN_BYTES..]);
            }
            if written {
                self.inner().write(&[Run::page(page)], &bytes)?;
            }
        }
        Ok(())
    }
}

impl<S: Store> Store for FaultStore<S> {
    fn pages(&self) -> u64 {
        self.inner.as_ref().map_or(0, Store::pages)
    }

    fn read(&mut self, runs: &[Run], into: &mut Pages) -> Result<(), DiskError> {
        self.faults.step().allow()?;
        self.inner().read(runs, into)?;
        self.faults.saw(Access::Read, runs);
        Ok(())
    }

    fn read_each(
        &mut self,
        runs: &[Run],
        each: &mut dyn FnMut(usize, &mut [u8]),
    ) -> Result<(), DiskError> {
        self.faults.step().allow()?;
        self.inner().read_each(runs, each)?;
        self.faults.saw(Access::Read, runs);
        Ok(())
    }

    fn write(&mut self, runs: &[Run], from: &Pages) -> Result<(), DiskError> {
        let verdict = self.faults.step();
        if let Verdict::Dead(_) = verdict {
            return verdict.allow();
        }
        super::run::check_write(runs, from, self.pages())?;
        self.remember(runs)?;
        self.faults.saw(Access::Write, runs);
        if let Verdict::Last(_, tear) = verdict {
            self.write_torn(tear, runs, from)?;
            return verdict.allow();
        }
        self.inner().write(runs, from)
    }

    fn sync(&mut self) -> Result<(), DiskError> {
        self.faults.step().allow()?;
        self.inner().sync()?;
        self.undo.clear();
        Ok(())
    }

    fn counters(&self) -> Counters {
        self.inner.as_ref().map_or_else(Counters::default, Store::counters)
    }
}

impl<S: Store> Drop for FaultStore<S> {
    fn drop(&mut self) {
        if self.inner.is_some() {
            self.lose();
        }
    }
}
