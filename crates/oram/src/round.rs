//! The controller: rounds of federated training over one table (FEDORA 4, figure 4).
//!
//! A round is [`begin`](Controller::begin) with all users' requests, [`rows`](Controller::rows) and
//! [`add`](Controller::add) for each of them, and [`commit`](Controller::commit). It is atomic: when
//! `commit` has returned it is on disk; a crash before that, at any moment, leaves the table of the
//! round before.
//!
//! # What a round writes, and when
//!
//! 1. Nothing, but space for all that follows: a disk that is full refuses a round, and cuts none short.
//!    That it *begins*: a round spends of ε by drawing how many rows it reads, so it is counted,
//!    durably and under the root counter, before.
//! 2. The *intent*: which rows are about to be read, from which leaves, and where they go next. It is
//!    durable, and the root counter has advanced over it, before a bucket is read. For a round that was
//!    cut short has shown its leaves: were its rows then asked for by another round, the same paths
//!    would be read, and who watches would know that the two rounds want the same rows. So opening the
//!    folder again first ends the round as its intent says: same paths, rows unchanged, new leaves.
//! 3. Buckets, to their other copies.
//! 4. The rows themselves, and the commit with the round's [name](RoundName) and report, to the
//!    journal. Then the root counter.
//!
//! # What is secret
//!
//! Ids, where they lie in the union, its size, leaves until they are read, rows and gradients. Public:
//! K, k, the leaves read, which user uploaded, which was refused, sizes, and times.

mod budget;
mod error;
mod finish;
mod open;
mod payload;
mod records;
mod report;
mod settled;
mod spec;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use hushtable_prg::valgrind::declassify;
use rand_chacha::ChaCha20Rng;
use zeroize::Zeroizing;

use crate::aggregate::{
    Aggregate, TERM_MAX, VALUE_MAX, WEIGHT_MAX, check_gradients, check_weights, saturate,
};
use crate::bucket::DUMMY;
use crate::buffer::BufferOram;
use crate::disk::Counters;
use crate::disk::backup::Tap;
use crate::fdp::Mechanism;
use crate::geometry::Geometry;
use crate::journal::{CounterValue, Journal, RootCounter};
use crate::oblivious::Mask;
use crate::position::PositionMap;
use crate::raw::{Fetch, RawOram};
use crate::seal::Key;
use crate::union::{Kept, LOST, LastReads, Loss, Union};
use crate::wire::RefusedReason;

use budget::Budget;
pub use budget::{BudgetSpec, Spent};
pub use error::Error;
pub use open::{backup, salvage};
use payload::{numbers, settle_rows, update_rows};
use records::{Entry, Intent};
use report::Steps;
pub(crate) use report::one_each;
pub use report::{RoundReport, RoundStart};
pub use settled::{Ended, RoundName, Settled};
pub use spec::{ControllerSpec, DefaultRow, rows_at_once};

/// Bytes of journal after which the cached levels are written and a new one is started, at least.
const JOURNAL_BYTES: u64 = 64 << 20;

/// Given a row's number among those taken out, and its payload.
type Each<'a> = dyn FnMut(usize, &[u8]) -> Result<(), Error> + 'a;
/// [`Each`], with whether it was there.
type EachFound<'a> = dyn FnMut(usize, &[u8], Mask) -> Result<(), Error> + 'a;

/// Rounds over one table.
pub struct Controller {
    folder: PathBuf,
    spec: ControllerSpec,
    spec_hash: [u8; 32],
    aggregate: Arc<dyn Aggregate>,
    key: Key,
    raw: RawOram,
    position: PositionMap,
    /// What [`Loss::RecentlyRead`] goes by; from the first round on that loses by it.
    last_reads: Option<LastReads>,
    journal: Journal,
    counter: Box<dyn RootCounter>,
    /// Where the counter stands, as this controller left it.
    counted: CounterValue,
    random: ChaCha20Rng,
    default_row: Vec<f32>,
    round: u64,
    /// Rounds that were ever begun.
    begun: u64,
    budget: Budget,
    /// How the last rounds with a name have ended, oldest first.
    settled: Vec<Settled>,
    /// Where a backup is made from.
    tap: Tap,
    open: Option<Open>,
    /// An error has left memory behind the disk.
    ended: bool,
}

/// A round that is being served.
struct Open {
    name: RoundName,
    users: usize,
    k: usize,
    entries: Zeroizing<Vec<Entry>>,
    /// For each slot the rank of its row, or [`LOST`].
    positions: Zeroizing<Vec<u32>>,
    /// Until the round is to be finished.
    buffer: Option<BufferOram>,
    drained: Option<Drained>,
    added: Vec<bool>,
    /// Users of whom something was refused, and what is wrong with it.
    refused: Vec<(u32, RefusedReason)>,
    steps: Steps,
    disk: Counters,
    journal_bytes: u64,
}

/// What serving a user takes, but for the buffer.
struct Serving<'a> {
    positions: &'a [u32],
    added: &'a mut [bool],
    refused: &'a mut Vec<(u32, RefusedReason)>,
    steps: &'a mut Steps,
}

/// What was in the buffer, by rank.
struct Drained {
    payloads: Zeroizing<Vec<u8>>,
    sums: Zeroizing<Vec<f32>>,
    weights: Zeroizing<Vec<f32>>,
}

impl Controller {
    /// What it was created as.
    pub fn spec(&self) -> &ControllerSpec {
        &self.spec
    }

    /// BLAKE3 of its `controller.json`, as the sealed journal holds it.
    pub fn spec_hash(&self) -> &[u8; 32] {
        &self.spec_hash
    }

    /// The folder it is in.
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// The tree's shape.
    pub fn geometry(&self) -> &Geometry {
        self.raw.geometry()
    }

    /// Rounds committed.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// Whether a round has begun and is neither committed nor abandoned.
    pub fn is_serving(&self) -> bool {
        self.open.is_some()
    }

    /// k of the round that has begun: how many rows it read.
    pub fn accesses(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.k as u64)
    }

    /// Rounds that were ever begun, whatever became of them, and what they have cost.
    pub fn spent(&self) -> Spent {
        self.budget.spent(self.begun)
    }

    /// Whether a round may still begin: for asking before users send what they want.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetSpent`].
    pub fn check_budget(&self) -> Result<(), Error> {
        self.budget.charge(self.begun).map(drop)
    }

    /// How rounds with a [name](RoundName) have ended, the last ones, oldest first: those that were
    /// cut short and ended when this was opened, too. What is not among them has not begun here, or is
    /// long over.
    pub fn settled(&self) -> &[Settled] {
        &self.settled
    }

    /// Uses another aggregate than the spec's, of the same state: one from another language, say.
    ///
    /// # Errors
    ///
    /// State of another size.
    pub fn set_aggregate(&mut self, aggregate: Box<dyn Aggregate>) -> Result<(), Error> {
        let expected = self.aggregate.state_bytes(self.spec.dim);
        let found = aggregate.state_bytes(self.spec.dim);
        if found != expected {
            return Err(Error::Length { what: "a row's state bytes", found, expected });
        }
        self.aggregate = Arc::from(aggregate);
        Ok(())
    }

    /// Reads the rows that `ids` ask for: `users` · `slots` of them, [`DUMMY`] where a user has fewer
    /// values. A user with an id that is no row is refused as a whole (the answer says so); its slots
    /// count as padding, so that the other users' round is what it would have been.
    ///
    /// The round is charged to the budget, durably, before how many rows it reads is drawn. Rows that
    /// are owed noise get it before anyone is served them.
    ///
    /// # Errors
    ///
    /// A round that is open, too many users, the wrong number of ids, [`Error::BudgetSpent`], or a
    /// disk without space for the round: nothing has happened then. The
    /// disk or tampered state: the controller has ended, and is to be opened again.
    pub fn begin(&mut self, users: usize, ids: &[u32]) -> Result<RoundStart, Error> {
        self.begin_named(RoundName::NONE, users, ids)
    }

    /// [`begin`](Self::begin), by a name: how the round ends is kept in the journal with it, for
    /// [`settled`](Self::settled).
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    pub fn begin_named(
        &mut self,
        name: RoundName,
        users: usize,
        ids: &[u32],
    ) -> Result<RoundStart, Error> {
        self.check_idle("begin")?;
        let (users_max, slots) = (self.spec.users_max, self.spec.slots);
        if users == 0 || users > users_max {
            return Err(Error::Users { users, users_max });
        }
        if ids.len() != users * slots {
            return Err(Error::Ids { found: ids.len(), expected: users * slots, slots });
        }
        let mut steps = Steps::default();
        let clock = Instant::now();
        self.reserve_round(ids.len())?;
        let (ids, refused) = self.vet(ids);
        let union = Union::new(&ids)?;
        steps.union_us = micros(clock);

        let clock = Instant::now();
        let mechanism = Mechanism::new(&self.spec.fdp, ids.len() as u64)?;
        self.charge(name)?;
        let mut k = mechanism.sample(union.count(), &mut self.random);
        // How many rows are read is what the round shows of the union, and what ε is about.
        declassify(&mut k);
        let kept = self.keep(&union, k as usize)?;
        steps.sample_us = micros(clock);

        self.ended = true;
        let disk = self.raw.tree().counters();
        let journal_bytes = self.journal.counters().written_bytes;
        let intent = self.take_positions(&kept.ids, &mut steps)?;
        let clock = Instant::now();
        let (dim, payload_bytes) = (self.spec.dim, self.payload_bytes());
        let mut buffer = BufferOram::new(k as usize, payload_bytes, dim, &self.key)?;
        steps.buffer_us = micros(clock);
        let (aggregate, committed, mut noise) =
            (Arc::clone(&self.aggregate), self.round, intent.noise());
        let mut settled = Zeroizing::new(Vec::with_capacity(payload_bytes));
        self.take_rows(&intent.entries, &mut steps, &mut |rank, payload| {
            settled.clear();
            settled.extend_from_slice(payload);
            settle_rows(&*aggregate, dim, payload_bytes, &mut settled, committed, &mut noise)?;
            Ok(buffer.insert(rank as u32, &settled)?)
        })?;
        self.ended = false;
        let (round, requests) = (self.round + 1, ids.len() as u64);
        self.open = Some(Open {
            name,
            users,
            k: k as usize,
            entries: intent.entries,
            positions: kept.positions,
            buffer: Some(buffer),
            drained: None,
            added: vec![false; users],
            refused: refused.iter().map(|&user| (user as u32, RefusedReason::Ids)).collect(),
            steps,
            disk,
            journal_bytes,
        });
        Ok(RoundStart { round, users, requests, accesses: k, refused })
    }

    /// The rows that the round reads.
    fn keep(&mut self, union: &Union, k: usize) -> Result<Kept, Error> {
        // Public: the spec.
        if self.spec.loss != Loss::RecentlyRead {
            return Ok(union.keep(k, self.spec.loss, &mut self.random)?);
        }
        self.ended = true;
        let mut last_reads = match self.last_reads.take() {
            Some(last_reads) => last_reads,
            None => LastReads::new(self.spec.rows as usize, &self.key)?,
        };
        let found = last_reads.of(union)?;
        let (kept, is_kept) = last_reads.keep(union, &found, k, &mut self.random)?;
        last_reads.mark(&found, &is_kept)?;
        self.last_reads = Some(last_reads);
        self.ended = false;
        Ok(kept)
    }

    /// Books a round that is about to show how many rows it reads. It counts from here on, whatever
    /// becomes of it.
    fn charge(&mut self, name: RoundName) -> Result<(), Error> {
        let begun = self.budget.charge(self.begun)?;
        self.ended = true;
        let record = records::begun_to_bytes(begun, name.number);
        self.journal.append(records::BEGUN, self.round, &record)?;
        self.journal.sync()?;
        self.advance(self.round)?;
        self.begun = begun;
        self.ended = false;
        Ok(())
    }

    /// Makes padding of the slots of users who ask for what is no row, and says who they are.
    fn vet(&self, ids: &[u32]) -> (Zeroizing<Vec<u32>>, Vec<usize>) {
        let rows = self.spec.rows;
        let mut vetted = Zeroizing::new(ids.to_vec());
        let mut refused = Vec::new();
        for (user, own) in vetted.chunks_exact_mut(self.spec.slots).enumerate() {
            let mut wrong = Mask::NO;
            for &id in own.iter() {
                let row = Mask::less(u64::from(id), rows);
                let padding = Mask::equal(u64::from(id), u64::from(DUMMY));
                wrong = wrong.or(row.or(padding).not());
            }
            for id in own.iter_mut() {
                *id |= wrong.bits() as u32;
            }
            // That a user is refused is told to all.
            let mut wrong = wrong.bit();
            declassify(&mut wrong);
            if wrong != 0 {
                refused.push(user);
            }
        }
        (vetted, refused)
    }

    /// Moves `ids` to new leaves in the position map, and puts that on record.
    fn take_positions(&mut self, ids: &[u32], steps: &mut Steps) -> Result<Intent, Error> {
        let clock = Instant::now();
        let shape = self.geometry().shape();
        let mut entries = Zeroizing::new(Vec::with_capacity(ids.len()));
        for &id in ids {
            let fresh = shape.draw(&mut self.random);
            let leaf = self.position.exchange(id, fresh)?;
            entries.push(Entry { id, leaf, fresh });
        }
        steps.position_us += micros(clock);
        let clock = Instant::now();
        let intent = Intent::new(entries)?;
        self.journal.append(records::INTENT, self.round, &intent.to_bytes())?;
        self.journal.sync()?;
        self.advance(self.round)?;
        steps.journal_us += micros(clock);
        Ok(intent)
    }

    /// Adds to rows what they are owed up to the last committed round.
    fn settle(&self, payloads: &mut [u8], noise: &mut ChaCha20Rng) -> Result<(), Error> {
        let (dim, payload_bytes) = (self.spec.dim, self.payload_bytes());
        settle_rows(&*self.aggregate, dim, payload_bytes, payloads, self.round, noise)
    }

    /// Takes rows out of the tree; all of them must be there.
    fn take_rows(
        &mut self,
        entries: &[Entry],
        steps: &mut Steps,
        each: &mut Each<'_>,
    ) -> Result<(), Error> {
        let before = self.raw.times();
        let mut all_found = Mask::YES;
        let mut buffer_us = 0;
        self.fetch(entries, &mut |at, payload, found| {
            let dummy = Mask::equal(u64::from(entries[at].id), u64::from(DUMMY));
            all_found = all_found.and(found.or(dummy));
            let clock = Instant::now();
            let outcome = each(at, payload);
            buffer_us += micros(clock);
            outcome
        })?;
        let times = self.raw.times();
        steps.read_us += times.load_us - before.load_us;
        steps.find_us += (times.find_us - before.find_us).saturating_sub(buffer_us);
        steps.buffer_us += buffer_us;
        let mut all_found = all_found.bit();
        declassify(&mut all_found);
        if all_found == 0 { Err(Error::RowMissing) } else { Ok(()) }
    }

    /// Reads the entries' paths and takes their rows out; `each` is told whether a row was there.
    fn fetch(&mut self, entries: &[Entry], each: &mut EachFound<'_>) -> Result<(), Error> {
        // A leaf is told by reading its path; it is fresh and uniform whatever row it is of.
        let mut requests: Vec<Fetch> =
            entries.iter().map(|entry| Fetch { id: entry.id, leaf: entry.leaf }).collect();
        for request in &mut requests {
            declassify(&mut request.leaf);
        }
        let mut outcome = Ok(());
        self.raw.fetch(&requests, &mut |at, payload, found| {
            if outcome.is_ok() {
                outcome = each(at, payload, found);
            }
        })?;
        outcome
    }

    /// Serves a user: \[slots, dim\] rows, and which of them are the table's. Padding, lost rows and
    /// the slots of a refused user get the default row.
    ///
    /// # Errors
    ///
    /// No open round, no such user, arrays of other sizes.
    pub fn rows(&mut self, user: usize, rows: &mut [f32], found: &mut [bool]) -> Result<(), Error> {
        let (slots, dim) = (self.spec.slots, self.spec.dim);
        let (open, buffer) = Self::serving(&mut self.open, "rows", user)?;
        length("rows", rows.len(), slots * dim)?;
        length("found flags", found.len(), slots)?;
        let clock = Instant::now();
        let mut payload = Zeroizing::new(vec![0; self.raw.geometry().payload_bytes()]);
        let positions = &open.positions[user * slots..][..slots];
        for ((&rank, row), found) in positions.iter().zip(rows.chunks_exact_mut(dim)).zip(found) {
            buffer.row(rank, &mut payload)?;
            let lost = Mask::equal(u64::from(rank), u64::from(LOST));
            for ((number, bytes), default) in
                row.iter_mut().zip(payload.chunks_exact(4)).zip(&self.default_row)
            {
                let read = u32::from_le_bytes(bytes.try_into().expect("four bytes"));
                *number = f32::from_bits(lost.select_u32(default.to_bits(), read));
            }
            *found = lost.not().bit() != 0;
        }
        open.steps.serve_us += micros(clock);
        Ok(())
    }

    /// Takes a user's gradients, \[slots, dim\] (each the row that was served less the row after
    /// training), with the user's weight n_c. What is given for padding and lost rows is dropped; of
    /// the rest, what the spec's [`clip`](ControllerSpec::clip) and
    /// [`VALUE_MAX`] leave of it is added.
    ///
    /// # Errors
    ///
    /// No open round, no such user, a second upload, numbers that are not finite or too few: then
    /// nothing of this user has been added, and the other users are not concerned.
    pub fn add(&mut self, user: usize, gradients: &[f32], weight: f32) -> Result<(), Error> {
        let (slots, dim) = (self.spec.slots, self.spec.dim);
        let (open, buffer) = Self::serving(&mut self.open, "add", user)?;
        if open.added[user] {
            return Err(Error::Twice { user });
        }
        // (Not of a `vec![weight; slots]`, which asks whether it is zero.)
        let checked = check_gradients(gradients, dim, slots).and(check_weights(&[weight], 1));
        if let Err(error) = checked {
            open.refused.push((user as u32, error.reason()));
            return Err(error.into());
        }
        let clip = self.spec.clip.as_ref();
        let weight = clip.map_or(weight, |clip| clip.weight(weight));
        let clock = Instant::now();
        let positions = &open.positions[user * slots..][..slots];
        let mut gradients = Zeroizing::new(gradients.to_vec());
        let weight = weight.to_bits();
        let mut weights = Vec::with_capacity(slots);
        for &rank in positions {
            let lost = Mask::equal(u64::from(rank), u64::from(LOST));
            weights.push(f32::from_bits(lost.select_u32(0, weight)));
        }
        // So that no sum can be infinite, whatever the clip and whoever wrote the aggregate.
        saturate(&mut gradients, VALUE_MAX);
        if let Some(clip) = clip {
            clip.apply(&mut gradients, &weights)?;
        }
        self.aggregate.pre(&mut gradients, &mut weights)?;
        saturate(&mut gradients, TERM_MAX);
        saturate(&mut weights, WEIGHT_MAX);
        // From here on a part of it may be in the sums: it must not come in again.
        open.added[user] = true;
        for ((&rank, gradient), &weight) in
            positions.iter().zip(gradients.chunks_exact(dim)).zip(&weights)
        {
            buffer.add(rank, gradient, weight)?;
        }
        open.steps.add_us += micros(clock);
        Ok(())
    }

    /// Gives every row, in order, to `sink` (first row, \[n, dim\] numbers), in rounds of their own
    /// that read all rows and write them back. Noise that rows are owed is added first, so that what
    /// is given has the privacy that was promised.
    ///
    /// # Errors
    ///
    /// A round that is open; as [`commit`](Self::commit); what `sink` says.
    pub fn export(
        &mut self,
        sink: &mut dyn FnMut(u64, &[f32]) -> std::io::Result<()>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Error> {
        self.check_idle("export")?;
        let (dim, payload_bytes) = (self.spec.dim, self.payload_bytes());
        let rows = self.spec.rows as u32;
        let mut steps = Steps::default();
        let at_once = self.spec.rows_at_once() as u32;
        for first in (0..rows).step_by(at_once as usize) {
            let ids: Vec<u32> = (first..rows.min(first.saturating_add(at_once))).collect();
            let mut payloads = Zeroizing::new(vec![0; ids.len() * payload_bytes]);
            self.ended = true;
            let intent = self.take_positions(&ids, &mut steps)?;
            self.take_rows(&intent.entries, &mut steps, &mut |at, payload| {
                payloads[at * payload_bytes..][..payload_bytes].copy_from_slice(payload);
                Ok(())
            })?;
            self.settle(&mut payloads, &mut intent.noise())?;
            let mut published = Vec::with_capacity(ids.len() * dim);
            for payload in payloads.chunks_exact(payload_bytes) {
                published.extend(numbers(&payload[..4 * dim]));
            }
            self.put(&intent.entries, &payloads, self.round, None, &mut steps)?;
            self.ended = false;
            self.checkpoint_if_due()?;
            sink(u64::from(first), &published)
                .map_err(|source| Error::File { path: self.folder.clone(), source })?;
            progress(u64::from(first) + ids.len() as u64, u64::from(rows));
        }
        Ok(())
    }

    fn payload_bytes(&self) -> usize {
        self.raw.geometry().payload_bytes()
    }

    fn check_idle(&self, call: &'static str) -> Result<(), Error> {
        if self.ended {
            return Err(Error::Ended);
        }
        match self.open {
            None => Ok(()),
            Some(_) => Err(Error::Phase {
                call,
                phase: "serving a round",
                expected: "commit or abandon it first",
            }),
        }
    }

    fn serving<'a>(
        open: &'a mut Option<Open>,
        call: &'static str,
        user: usize,
    ) -> Result<(Serving<'a>, &'a mut BufferOram), Error> {
        let Some(Open { users, buffer: Some(buffer), positions, added, refused, steps, .. }) = open
        else {
            return Err(idle(call));
        };
        if user >= *users {
            return Err(Error::User { user, users: *users });
        }
        Ok((Serving { positions, added, refused, steps }, buffer))
    }
}

fn idle(call: &'static str) -> Error {
    Error::Phase { call, phase: "idle", expected: "begin a round first" }
}

fn length(what: &'static str, found: usize, expected: usize) -> Result<(), Error> {
    if found == expected { Ok(()) } else { Err(Error::Length { what, found, expected }) }
}

fn micros(clock: Instant) -> u64 {
    u64::try_from(clock.elapsed().as_micros()).unwrap_or(u64::MAX)
}
