//! A controller is made anew of what can be read of another one's folder: a backup, an older state that is
//! to be gone on from, a folder of which parts are damaged.
//!
//! The folder is only read, and read without its root counter. What comes of it is another
//! [instance](crate::instance) of the same terms under the same key, so users know it by the same pin.
//! Every row gets a fresh leaf. That is what makes it right to go back: the leaves of an older state were
//! shown by the rounds since, and reading them once more would tell that two rounds want the same row.
//!
//! # What it shows
//!
//! The old file is read from its first page to its last, twice. Every slot of it is written to the new
//! tree, a stale one as a dummy, in the order in which they lie; which of them count is found by the sorts of
//! [`recover`](crate::recover). So neither disk nor memory tells which copy of a row was the newest, as long
//! as nothing is damaged. Where something is, the rows that are lost or uncertain are told, and finding
//! them looks at memory by where rows lie: it is then to be done where nobody watches.

mod old;
mod survey;
mod swap;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use serde::Serialize;
use zeroize::Zeroizing;

use super::{
    Checked, Controller, ControllerSpec, Error, JOURNAL_FILE, NewPlace, Progress, Replay,
    SPEC_FILE, TREE_FILE, file, read_spec, seeded,
};
use crate::attempt::Attempts;
use crate::bucket::{DUMMY, HEAD_BYTES, block_bytes, id, set_head};
use crate::disk::{DiskError, Faults};
use crate::journal::{CounterPlace, CounterValue, Journal, SalvagedJournal};
use crate::oblivious::Mask;
use crate::recover::Entered;
use crate::round::Spent;
use crate::round::budget::Budget;
use crate::round::settled::Settled;
use crate::seal::Key;
use crate::tree::{BitSet, TreeError};
use old::OldTree;
use survey::{Survey, survey};
pub use swap::{Recovered, recovered_place, swap};

/// Evictions that a journal may lack which was cut, where the counter does not say.
const EVICTIONS_AHEAD: u64 = 1 << 16;

/// A controller's folder that was read without its root counter, its tree not yet.
pub struct Salvage {
    text: Vec<u8>,
    spec: ControllerSpec,
    journal: SalvagedJournal,
    default_row: Vec<f32>,
    entered: Vec<Entered>,
    tree: OldTree,
    budget: Budget,
    rounds: u64,
    rounds_begun: u64,
    was_serving: bool,
    owes_noise: bool,
    /// How rounds have ended.
    settled: Vec<Settled>,
}

/// What a folder holds, and what is to become of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Rows of the table.
    pub rows: u64,
    /// Rounds committed, as the folder has it.
    pub rounds: u64,
    /// Rounds that were ever begun, as far as the folder and the counter say, and what they cost.
    pub spent: Spent,
    /// Rows that no copy was found of, ascending: they get the default row.
    pub lost: Vec<u64>,
    /// Rows of which an earlier or a later value may have been found than that of the last committed round,
    /// ascending.
    pub uncertain: Vec<u64>,
    /// The most rows beside these that may have an earlier value. Which, nothing tells.
    pub older_max: u64,
    /// Buckets of the tree that are not what was written last.
    pub damaged_buckets: u64,
    /// Those of them of which no copy opens at all.
    pub unreadable_buckets: u64,
    /// The byte at which the journal is damaged: what rounds behind it wrote is mixed with what was before.
    pub journal_damaged_at: Option<u64>,
    /// Whether rows that are owed noise may get other noise than their users have seen already, if
    /// rounds were undone.
    pub redraws_noise: bool,
    /// Whether a round was cut short.
    pub was_serving: bool,
}

impl SalvageReport {
    /// Whether every row is there, with the value of the last committed round.
    pub fn is_whole(&self) -> bool {
        let is_sure = self.lost.is_empty() && self.uncertain.is_empty() && self.older_max == 0;
        is_sure && self.damaged_buckets == 0 && self.journal_damaged_at.is_none()
    }
}

impl Salvage {
    /// Reads what `folder` was created as, and its journal. `counted` is where its root counter stands, if
    /// that can be read: it says how far the folder once was.
    ///
    /// # Errors
    ///
    /// A folder that is in use, of another key, or of which too little is left: without
    /// `controller.json`, or the journal's first record, no bucket can be opened
    /// ([`Error::Unsalvageable`]).
    pub fn read(folder: &Path, key: &Key, counted: Option<&CounterValue>) -> Result<Self, Error> {
        let (text, spec) = read_spec(folder)?;
        let changed = || Error::SpecChanged { path: folder.join(SPEC_FILE) };
        let Checked { place, aggregate, budget } = spec.check()?;
        let (geometry, layout) = (*place.geometry(), *place.layout());
        let shape = geometry.shape();

        let mut replay = Replay::default();
        let mut wrong = None;
        let journal_path = folder.join(JOURNAL_FILE);
        let journal = Journal::salvage(&journal_path, &key.derive("journal"), &mut |record| {
            if wrong.is_none()
                && let Err(error) = replay.take(&record)
            {
                wrong = Some(error);
            }
        })?;
        if let Some(error) = wrong {
            return Err(error);
        }
        let unsalvageable = || Error::Unsalvageable { path: journal_path.clone() };
        let checkpoint = replay.checkpoint.take().ok_or_else(unsalvageable)?;
        if checkpoint.spec != *blake3::hash(&text).as_bytes()
            || checkpoint.default_row.len() != spec.dim
        {
            return Err(changed());
        }
        let flushed = checkpoint.evictions;
        let cached = place.cached_buckets();
        let mut copies =
            BitSet::from_words(checkpoint.copies, layout.paired_buckets()).ok_or(Error::Record)?;
        let mut evictions = flushed;
        for &(before, after) in &replay.commits {
            if before != evictions {
                return Err(Error::Record);
            }
            let leaves: Vec<u32> = (before..after).map(|g| shape.eviction_leaf(g)).collect();
            for number in shape.union_of_paths(&leaves) {
                if number >= cached && !layout.is_in_ring(number) {
                    copies.flip(number);
                }
            }
            evictions = after;
        }
        let stride = block_bytes(geometry.payload_bytes());
        let mut entered = vec![Entered { evictions: flushed, blocks: checkpoint.stash }];
        entered.append(&mut replay.entered);
        if entered.iter().any(|record| !record.blocks.len().is_multiple_of(stride)) {
            return Err(Error::Record);
        }
        let rounds = replay.round.max(replay.checkpoint_round);
        let counted = counted.filter(|counted| counted.instance == journal.instance);
        let was_serving = replay.intent.is_some();
        // The one that was cut short was counted as it began.
        let rounds_since = counted
            .map_or(0, |counted| counted.round.saturating_sub(rounds))
            .saturating_sub(u64::from(was_serving));
        let begun = replay.begun.max(checkpoint.begun);
        let ahead = match (counted, journal.damage) {
            (Some(counted), _) => counted.evictions,
            (None, Some(_)) => evictions + EVICTIONS_AHEAD,
            (None, None) => evictions,
        };
        let tree_path = folder.join(TREE_FILE);
        let tree = OldTree {
            file: old::open(&tree_path)?,
            geometry,
            layout,
            key: key.derive_for("buckets", &journal.instance),
            copies,
            attempts: Attempts::from_ranges(checkpoint.attempts, flushed).ok_or(Error::Record)?,
            evictions,
            flushed,
            ahead,
            cached,
        };
        Ok(Self {
            text,
            spec,
            journal,
            default_row: checkpoint.default_row,
            entered,
            tree,
            budget,
            rounds,
            rounds_begun: begun.saturating_add(rounds_since),
            was_serving,
            settled: replay.settled(),
            owes_noise: aggregate.owes_noise(),
        })
    }

    /// What it was created as.
    pub fn spec(&self) -> &ControllerSpec {
        &self.spec
    }

    /// The journal.
    pub fn journal(&self) -> &SalvagedJournal {
        &self.journal
    }

    /// Rounds committed, and rounds that were ever begun as far as is known.
    pub fn rounds(&self) -> (u64, u64) {
        (self.rounds, self.rounds_begun)
    }

    /// Evictions that were committed.
    pub fn evictions(&self) -> u64 {
        self.tree.evictions
    }

    /// What `rounds` rounds cost.
    pub fn spent(&self, rounds: u64) -> Spent {
        self.budget.spent(rounds)
    }

    /// Makes a root counter that stands where this folder is, at `counter`. That the folder is the newest is
    /// for the caller to know: going on from an older one reads rows from leaves that were shown already.
    ///
    /// # Errors
    ///
    /// A journal with damage ([`Error::Record`]); a counter that exists, or cannot be made.
    pub fn anchor(
        &self,
        key: &Key,
        counter: &dyn CounterPlace,
        faults: &Faults,
    ) -> Result<(), Error> {
        let head = match (self.journal.damage, self.journal.heads.last()) {
            (None, Some(head)) => *head,
            _ => return Err(Error::Record),
        };
        let (round, evictions) = (self.rounds, self.tree.evictions);
        let value = CounterValue { instance: self.journal.instance, round, evictions, head };
        counter.create(&key.derive("counter"), &value, faults)?;
        Ok(())
    }

    /// Looks at all of the tree, and changes nothing.
    ///
    /// # Errors
    ///
    /// A tree of which not one row can be read.
    pub fn look(mut self, progress: &mut Progress<'_>) -> Result<SalvageReport, Error> {
        let entered = std::mem::take(&mut self.entered);
        let survey = survey(&self.tree, entered, progress)?;
        Ok(self.report(&survey, self.rounds_begun))
    }

    /// Makes a controller of it in `to`, a new folder, with its root counter at `counter`, a new one, once
    /// `approve` has seen what there is; None if that says no. At least `rounds_begun` rounds count as begun.
    ///
    /// The new controller is opened before this returns: it is whole.
    ///
    /// # Errors
    ///
    /// As [`look`](Self::look); a folder or counter that exists, a full disk. What is in `to` is then of
    /// no use.
    #[expect(clippy::too_many_arguments, reason = "a place, a bound, and who is told")]
    pub fn rebuild(
        mut self,
        to: &Path,
        key: &Key,
        counter: &dyn CounterPlace,
        rounds_begun: u64,
        approve: &mut dyn FnMut(&SalvageReport) -> bool,
        progress: &mut Progress<'_>,
        faults: &Faults,
    ) -> Result<Option<SalvageReport>, Error> {
        check_free(to, counter)?;
        let entered = std::mem::take(&mut self.entered);
        // Work in thirds: the tree is read, written anew, and opened.
        let survey = survey(&self.tree, entered, &mut |done, all| progress(done, 3 * all))?;
        let begun = self.rounds_begun.max(rounds_begun);
        let report = self.report(&survey, begun);
        if !approve(&report) {
            return Ok(None);
        }
        faults.step().allow()?;
        fs::create_dir(to).map_err(file(to))?;
        let place = NewPlace { folder: to, key, counter };
        // The map is not used: opening makes one of what was written.
        let leaves = vec![0; self.spec.rows as usize];
        let mut new = Controller::without_rows(&place, &self.spec, &self.text, &leaves, faults)?;
        drop(leaves);
        self.refill(&mut new, &survey, &mut |done, all| progress(all + done, 3 * all))?;
        new.default_row.clone_from(&self.default_row);
        new.settled.clone_from(&self.settled);
        (new.round, new.begun) = (self.rounds, begun);
        new.checkpoint()?;
        drop(new);
        let opened = Controller::open_with(
            to,
            key,
            counter,
            &mut |done, all| progress(2 * all + done, 3 * all),
            faults,
        )?;
        opened.close()?;
        Ok(Some(report))
    }

    /// Writes every slot and every block that entered to `new`, what is not the newest as a dummy.
    fn refill(
        &self,
        new: &mut Controller,
        survey: &Survey,
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        let stride = block_bytes(self.tree.geometry.payload_bytes());
        let slots = self.tree.geometry.slots();
        let shape = self.tree.geometry.shape();
        let mut random = seeded()?;
        let raw = &mut new.raw;
        let mut put = |blocks: &[u8], newest: &[Mask]| {
            raw.write(newest.len(), &mut |at, to| {
                to.copy_from_slice(&blocks[at * stride..][..stride]);
                let id = newest[at].select_u32(id(to), DUMMY);
                set_head(to, id, shape.draw(&mut random));
            })
            .map_err(Error::from)
        };
        // Several buckets at a time, so that a window of evictions is worth its reads.
        let batch_slots = slots * 256;
        let mut batch = Zeroizing::new(Vec::with_capacity(batch_slots * stride));
        let (on_disk, in_journal) = survey.newest.split_at(survey.sources.len() * slots);
        let mut rest = on_disk;
        let mut sources = survey.sources.iter();
        self.tree.reopen(
            &survey.sources,
            &mut |blocks| {
                let source = sources.next();
                let Some(blocks) = blocks else {
                    let number = source.map_or(0, |source| source.number);
                    let (level, index) = shape.place(number);
                    return Err(Error::Tree(TreeError::Forged { level, index }));
                };
                batch.extend_from_slice(blocks);
                if batch.len() >= batch_slots * stride {
                    let (own, behind) = rest.split_at(batch.len() / stride);
                    put(&batch, own)?;
                    rest = behind;
                    batch.clear();
                }
                Ok(())
            },
            progress,
        )?;
        put(&batch, rest)?;
        put(&survey.entered, in_journal)?;
        let lost: &[u64] = &survey.lost;
        let default_row = &self.default_row;
        new.raw.write(lost.len(), &mut |at, to| {
            set_head(to, lost[at] as u32, shape.draw(&mut random));
            to[HEAD_BYTES..].fill(0);
            let numbers = to[HEAD_BYTES..].chunks_exact_mut(4).zip(default_row);
            numbers.for_each(|(bytes, number)| bytes.copy_from_slice(&number.to_le_bytes()));
        })?;
        let all = self.tree.layout.pages();
        progress(all, all);
        Ok(())
    }

    fn report(&self, survey: &Survey, begun: u64) -> SalvageReport {
        SalvageReport {
            rows: self.spec.rows,
            rounds: self.rounds,
            spent: self.budget.spent(begun),
            lost: survey.lost.clone(),
            uncertain: survey.uncertain.clone(),
            older_max: survey.older_max,
            damaged_buckets: survey.damaged_buckets,
            unreadable_buckets: survey.unreadable_buckets,
            journal_damaged_at: self.journal.damage.map(|(offset, _)| offset),
            redraws_noise: self.owes_noise,
            was_serving: self.was_serving,
        }
    }
}

/// Checks that neither the folder nor the counter is there.
fn check_free(folder: &Path, counter: &dyn CounterPlace) -> Result<(), Error> {
    use crate::journal::JournalError;

    counter.check_free().map_err(|error| match error {
        JournalError::Disk(DiskError::Exists { path }) => Error::Exists { path },
        error => error.into(),
    })?;
    match folder.try_exists().map_err(file(folder))? {
        true => Err(Error::Exists { path: folder.to_owned() }),
        false => Ok(()),
    }
}
