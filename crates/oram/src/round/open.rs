//! Controllers come to be: created from a table, or opened from a folder, whatever state a crash has
//! left it in.

pub mod backup;
pub mod salvage;

use std::fs;
use std::path::{Path, PathBuf};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::records::{
    self, BEGUN, CHECKPOINT, COMMIT, Checkpoint, Entry, INTENT, Intent, ROWS, SETTLED,
};
use super::settled::{self, Ended, Settled};
use super::spec::Checked;
use super::{Controller, ControllerSpec, DefaultRow, Error, JOURNAL_BYTES, Steps};
use zeroize::Zeroizing;

use crate::attempt::{Attempt, Attempts};
use crate::bucket::{DUMMY, HEAD_BYTES, set_head};
use crate::disk::backup::{Tap, TapStore};
use crate::disk::{DiskError, FaultStore, Faults, FileStore, Store};
use crate::geometry::{Geometry, eviction_leaf};
use crate::instance::Instance;
use crate::journal::{
    CounterPlace, CounterValue, Entry as JournalEntry, Journal, JournalError, Record,
};
use crate::oblivious::Mask;
use crate::position::PositionMap;
use crate::raw::RawOram;
use crate::recover::{Entered, recover};
use crate::seal::Key;
use crate::tree::{BitSet, Tree, union_of_paths};
use crate::vtree::Vtree;

const SPEC_FILE: &str = "controller.json";
const TREE_FILE: &str = "tree";
const JOURNAL_FILE: &str = "journal";
/// Records that a crash may leave between a commit's first and the counter's advance.
const RECORDS_AHEAD_MAX: u64 = 4096;
/// What a checkpoint may grow by: each opening and each abandoned write begins an attempt.
const MORE_ATTEMPTS_BYTES: usize = 64 << 10;

/// Rows to begin with: fills \[n, dim\] numbers from the row of that index on.
pub type Rows<'a> = dyn FnMut(u64, &mut [f32]) -> Result<(), Error> + 'a;
/// Told of the work done and the work there is.
pub type Progress<'a> = dyn FnMut(u64, u64) + 'a;

impl Controller {
    /// Creates a controller in `folder` (a new one) with its root counter at `counter` (a new file, or
    /// a service's key, where whoever can write to `folder` cannot put it back). Each row goes to a
    /// random leaf, by the writes that a round makes, so that building shows nothing of where.
    ///
    /// The controller is an [instance](crate::instance) of its own: of two that are created with one key,
    /// neither takes the other's files.
    ///
    /// # Errors
    ///
    /// A spec that cannot be, a folder or counter that exists, a row that is not finite, a full disk;
    /// the folder is then to be removed.
    pub fn create(
        folder: &Path,
        key: &Key,
        counter: &dyn CounterPlace,
        spec: &ControllerSpec,
        rows: &mut Rows<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<Self, Error> {
        Self::create_with(folder, key, counter, spec, rows, progress, &Faults::none())
    }

    /// [`create`](Self::create), its I/O under `faults`.
    #[doc(hidden)]
    pub fn create_with(
        folder: &Path,
        key: &Key,
        counter: &dyn CounterPlace,
        spec: &ControllerSpec,
        rows: &mut Rows<'_>,
        progress: &mut Progress<'_>,
        faults: &Faults,
    ) -> Result<Self, Error> {
        let geometry = spec.check()?.geometry;
        counter.check_free().map_err(|error| match error {
            JournalError::Disk(DiskError::Exists { path }) => Error::Exists { path },
            error => error.into(),
        })?;
        match fs::create_dir(folder) {
            Err(source) if source.kind() == std::io::ErrorKind::AlreadyExists => {
                return Err(Error::Exists { path: folder.to_owned() });
            }
            made => made.map_err(file(folder))?,
        }
        let text = spec.to_text()?;
        let mut random = seeded()?;
        let leaves_mask = geometry.leaves() as u32 - 1;
        let leaves: Vec<u32> = (0..spec.rows).map(|_| random.next_u32() & leaves_mask).collect();
        let place = NewPlace { folder, key, counter };
        let mut controller = Self::without_rows(&place, spec, &text, &leaves, faults)?;
        controller.fill(&leaves, rows, progress)?;
        controller.checkpoint()?;
        // A folder that could not be opened again on a full disk is not made.
        controller.reserve_round(controller.spec.slots)?;
        Ok(controller)
    }

    /// A controller in a folder that was made for it, of a new instance, no row written yet. `text` is its
    /// `controller.json`, `leaves` where its rows are going to be.
    fn without_rows(
        place: &NewPlace<'_>,
        spec: &ControllerSpec,
        text: &[u8],
        leaves: &[u32],
        faults: &Faults,
    ) -> Result<Self, Error> {
        let NewPlace { folder, key, counter } = *place;
        let Checked { geometry, aggregate, budget } = spec.check()?;
        let spec_path = folder.join(SPEC_FILE);
        fs::write(&spec_path, text).map_err(file(&spec_path))?;
        let journal = Journal::create(&folder.join(JOURNAL_FILE), &key.derive("journal"), faults)?;
        let instance = *journal.instance();
        let store =
            FileStore::create(&folder.join(TREE_FILE), Tree::pages_of(&geometry), spec.file)?;
        let tap = Tap::default();
        let raw = Self::empty(geometry, spec, (key, &instance), store, &tap, faults)?;
        let counted = CounterValue { instance, round: 0, evictions: 0, head: journal.head() };
        let counter = counter.create(&key.derive("counter"), &counted, faults)?;
        Ok(Self {
            folder: folder.to_owned(),
            spec_hash: *blake3::hash(text).as_bytes(),
            default_row: vec![0.0; spec.dim],
            spec: spec.clone(),
            aggregate,
            key: key.derive("memories"),
            raw,
            position: PositionMap::build(leaves, geometry.leaves() as u32, key)?,
            last_reads: None,
            journal,
            counter,
            counted,
            random: seeded()?,
            round: 0,
            begun: 0,
            budget,
            settled: Vec::new(),
            tap,
            open: None,
            ended: false,
        })
    }

    /// Writes all rows for the first time.
    fn fill(
        &mut self,
        leaves: &[u32],
        rows: &mut Rows<'_>,
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        let (dim, all) = (self.spec.dim, self.spec.rows);
        let mut sums = vec![0_f64; dim];
        let mut batch = Vec::new();
        let mut first = 0;
        while first < all {
            let count = (all - first).min(1 << 16) as usize;
            batch.clear();
            batch.resize(count * dim, 0.0);
            rows(first, &mut batch)?;
            for (at, row) in batch.chunks_exact(dim).enumerate() {
                for (column, (sum, &number)) in sums.iter_mut().zip(row).enumerate() {
                    if !number.is_finite() {
                        return Err(Error::Row { row: first + at as u64, column });
                    }
                    *sum += f64::from(number);
                }
            }
            self.raw.write(count, &mut |at, block| {
                set_head(block, first as u32 + at as u32, leaves[first as usize + at]);
                block[HEAD_BYTES..].fill(0);
                let numbers =
                    block[HEAD_BYTES..].chunks_exact_mut(4).zip(&batch[at * dim..][..dim]);
                numbers.for_each(|(bytes, number)| bytes.copy_from_slice(&number.to_le_bytes()));
            })?;
            first += count as u64;
            progress(first, all);
        }
        if self.spec.default_row == DefaultRow::Mean {
            self.default_row = sums.iter().map(|sum| (sum / all as f64) as f32).collect();
        }
        Ok(())
    }

    fn empty(
        geometry: Geometry,
        spec: &ControllerSpec,
        (key, instance): (&Key, &Instance),
        store: FileStore,
        tap: &Tap,
        faults: &Faults,
    ) -> Result<RawOram, Error> {
        let attempts = Attempts::first(Attempt::random()?);
        let copies = BitSet::new(geometry.buckets());
        let tree =
            Self::tree(geometry, spec, (key, instance), store, (copies, attempts), tap, faults)?;
        let words = geometry.valid_words();
        let valid =
            Vtree::build(geometry.levels(), words, &key.derive("valid"), |_, _, w| w.fill(0))?;
        Ok(RawOram::new(tree, valid, 0, spec.window_bytes_max))
    }

    fn tree(
        geometry: Geometry,
        spec: &ControllerSpec,
        (key, instance): (&Key, &Instance),
        store: FileStore,
        (copies, attempts): (BitSet, Attempts),
        tap: &Tap,
        faults: &Faults,
    ) -> Result<Tree, Error> {
        let store = TapStore::new(FaultStore::new(store, faults.clone()), tap.clone());
        let store: Box<dyn Store> = Box::new(store);
        let (levels, key) = (spec.cached_levels, key.derive_for("buckets", instance));
        Ok(Tree::new(geometry, levels, key, store, copies, attempts, seeded()?))
    }

    /// Opens the controller in `folder`, as of its last committed round. A round that a crash cut
    /// short is ended first, without effect on the table (see [the module](super)).
    ///
    /// # Errors
    ///
    /// A folder that is no controller, another key, files that were changed or put back to an older
    /// state, a folder in use by another process.
    pub fn open(
        folder: &Path,
        key: &Key,
        counter: &dyn CounterPlace,
        progress: &mut Progress<'_>,
    ) -> Result<Self, Error> {
        Self::open_with(folder, key, counter, progress, &Faults::none())
    }

    /// [`open`](Self::open), its I/O under `faults`.
    #[doc(hidden)]
    pub fn open_with(
        folder: &Path,
        key: &Key,
        counter: &dyn CounterPlace,
        progress: &mut Progress<'_>,
        faults: &Faults,
    ) -> Result<Self, Error> {
        let (text, spec) = read_spec(folder)?;
        let changed = || Error::SpecChanged { path: folder.join(SPEC_FILE) };
        let Checked { geometry, aggregate, budget } = spec.check()?;
        let spec_hash = *blake3::hash(&text).as_bytes();

        let mut replay = Replay::default();
        let mut wrong = None;
        let journal = Journal::open(
            &folder.join(JOURNAL_FILE),
            &key.derive("journal"),
            faults,
            &mut |record| {
                if let Err(error) = replay.take(&record) {
                    wrong.get_or_insert(error);
                }
            },
        )?;
        let mut counter = counter.open(&key.derive("counter"), faults)?;
        let counted = counter.read()?;
        journal.reconcile(&counted, RECORDS_AHEAD_MAX)?;
        if let Some(error) = wrong {
            return Err(error);
        }
        let Some(checkpoint) = replay.checkpoint.take() else {
            return Err(Error::Incomplete { path: folder.to_owned() });
        };
        if checkpoint.spec != spec_hash || checkpoint.default_row.len() != spec.dim {
            return Err(changed());
        }

        let store = FileStore::open(&folder.join(TREE_FILE), spec.file)?;
        let flushed = checkpoint.evictions;
        let copies =
            BitSet::from_words(checkpoint.copies, geometry.buckets()).ok_or(Error::Record)?;
        // From here on under a name of its own: what an earlier attempt wrote and did not commit is not
        // what this one writes in its place.
        let committed = replay.commits.last().map_or(flushed, |&(_, after)| after);
        let mut attempts =
            Attempts::from_ranges(checkpoint.attempts, flushed).ok_or(Error::Record)?;
        attempts.begin(committed, Attempt::random()?, &geometry);
        let instance = (key, journal.instance());
        let tap = Tap::default();
        let mut tree =
            Self::tree(geometry, &spec, instance, store, (copies, attempts), &tap, faults)?;
        let mut evictions = flushed;
        for &(before, after) in &replay.commits {
            if before != evictions {
                return Err(Error::Record);
            }
            let leaves: Vec<u32> =
                (before..after).map(|g| eviction_leaf(g, geometry.levels())).collect();
            tree.replay(&union_of_paths(&leaves, geometry.levels()));
            evictions = after;
        }
        let mut entered = vec![Entered { evictions: flushed, blocks: checkpoint.stash }];
        entered.append(&mut replay.entered);
        let stride = crate::bucket::block_bytes(geometry.payload_bytes());
        if entered.iter().any(|record| !record.blocks.len().is_multiple_of(stride)) {
            return Err(Error::Record);
        }
        let recovered =
            recover(&mut tree, (evictions, flushed), entered, &mut seeded()?, progress)?;
        let words = geometry.valid_words();
        let valid =
            Vtree::build(geometry.levels(), words, &key.derive("valid"), |level, index, own| {
                let at = crate::layout::number(level, index) as usize * words;
                own.copy_from_slice(&recovered.valid[at..at + words]);
            })?;
        let mut raw = RawOram::new(tree, valid, evictions, spec.window_bytes_max);
        // What was in memory goes in again, the way that everything does.
        raw.write(recovered.upper.len() / stride, &mut |at, block| {
            block.copy_from_slice(&recovered.upper[at * stride..][..stride]);
        })?;
        let mut controller = Self {
            folder: folder.to_owned(),
            spec_hash,
            default_row: checkpoint.default_row,
            aggregate,
            key: key.derive("memories"),
            raw,
            position: PositionMap::build(&recovered.leaves, geometry.leaves() as u32, key)?,
            last_reads: None,
            journal,
            counter,
            counted,
            random: seeded()?,
            round: replay.round.max(replay.checkpoint_round),
            begun: replay.begun.max(checkpoint.begun),
            budget,
            settled: replay.settled(),
            tap,
            spec,
            open: None,
            ended: false,
        };
        if let Some(intent) = replay.intent.take() {
            controller.end_interrupted(&intent)?;
        }
        controller.checkpoint()?;
        if let Err(error) = controller.reserve_round(controller.spec.slots) {
            tracing::warn!(%error, "opened, but there is no space for a round");
        }
        Ok(controller)
    }

    /// Ends a round that was cut short after it may have read: the same paths again, and the rows to
    /// the leaves that they were to get. A row that was in a cached bucket is on no path now; it has
    /// got a fresh leaf already.
    ///
    /// Rows that are owed noise go back with that which their users may have been served, and are
    /// owed it no more: were it drawn again for the next user, two draws would average it away.
    fn end_interrupted(&mut self, intent: &Intent) -> Result<(), Error> {
        let payload_bytes = self.payload_bytes();
        let count = intent.entries.len();
        let mut payloads = Zeroizing::new(vec![0; count * payload_bytes]);
        let mut moved = Zeroizing::new(Vec::with_capacity(count));
        self.fetch(&intent.entries, &mut |at, payload, found| {
            payloads[at * payload_bytes..][..payload_bytes].copy_from_slice(payload);
            let entry = intent.entries[at];
            moved.push(Entry { id: found.select_u32(entry.id, DUMMY), ..entry });
            Ok(())
        })?;
        // Public: the spec.
        if self.aggregate.owes_noise() {
            self.take_elsewhere(&intent.entries, &moved, &mut payloads)?;
            moved.clear();
            moved.extend_from_slice(&intent.entries);
            self.settle(&mut payloads, &mut intent.noise())?;
        }
        for entry in moved.iter() {
            self.position.exchange(entry.id, entry.fresh)?;
        }
        self.raw.write(moved.len(), &mut |at, block| {
            set_head(block, moved[at].id, moved[at].fresh);
            block[HEAD_BYTES..].copy_from_slice(&payloads[at * payload_bytes..][..payload_bytes]);
        })?;
        Ok(())
    }

    /// Takes out the rows of `entries` that are not among the `found`, from where recovery put them,
    /// into the gaps that they left in `payloads`. Their leaves were drawn when this controller was
    /// opened and decided no address since; for each of the others a dummy reads a random path.
    fn take_elsewhere(
        &mut self,
        entries: &[Entry],
        found: &[Entry],
        payloads: &mut [u8],
    ) -> Result<(), Error> {
        let payload_bytes = self.payload_bytes();
        let mut rest = Zeroizing::new(Vec::with_capacity(entries.len()));
        for (entry, found) in entries.iter().zip(found) {
            let is_found = Mask::equal(u64::from(entry.id), u64::from(found.id));
            let id = is_found.select_u32(DUMMY, entry.id);
            let leaf = self.position.exchange(id, entry.fresh)?;
            rest.push(Entry { id, leaf, fresh: entry.fresh });
        }
        self.take_rows(&rest, &mut Steps::default(), &mut |at, payload| {
            // What is not there is zero, here or there.
            let own = &mut payloads[at * payload_bytes..][..payload_bytes];
            own.iter_mut().zip(payload).for_each(|(to, from)| *to |= from);
            Ok(())
        })
    }

    /// Writes the cached levels and starts a new journal, if the journal is long. When that is due
    /// follows from sizes.
    pub(super) fn checkpoint_if_due(&mut self) -> Result<(), Error> {
        let cached_bytes = ((1u64 << self.raw.tree().boundary()) - 1) * 4096;
        if self.journal.bytes() > JOURNAL_BYTES.max(16 * cached_bytes) {
            self.checkpoint()
        } else {
            Ok(())
        }
    }

    /// Writes the cached levels and starts a new journal.
    pub(super) fn checkpoint(&mut self) -> Result<(), Error> {
        self.ended = true;
        let evictions = self.raw.evictions();
        let tree = self.raw.tree_mut();
        tree.flush(evictions)?;
        tree.sync()?;
        tree.commit();
        let checkpoint = Checkpoint {
            spec: self.spec_hash,
            default_row: self.default_row.clone(),
            evictions,
            begun: self.begun,
            attempts: tree.attempts().ranges().to_vec(),
            copies: tree.copies().words().to_vec(),
            stash: self.raw.stash().to_vec(),
        };
        let payload = Zeroizing::new(checkpoint.to_bytes());
        let settled = settled::all_to_bytes(&self.settled);
        let entries = [
            JournalEntry { kind: CHECKPOINT, round: self.round, payload: &payload },
            JournalEntry { kind: SETTLED, round: self.round, payload: &settled },
        ];
        // The counter at the old journal's end: a new one is known by the head that it goes on from.
        self.advance(self.round)?;
        self.journal.start_anew(&entries)?;
        self.advance(self.round)?;
        self.ended = false;
        Ok(())
    }

    /// Bytes that the next checkpoint takes at most: also the one that opening the folder again writes.
    pub(super) fn checkpoint_bytes(&self) -> u64 {
        let tree = self.raw.tree();
        let (attempts, copies) = (tree.attempts().ranges().len(), tree.copies().words().len());
        let own = records::checkpoint_bytes(self.spec.dim, attempts, copies)
            + self.raw.stash().len()
            + MORE_ATTEMPTS_BYTES;
        let records = [own, settled::ALL_BYTES_MAX].map(Journal::record_bytes);
        Journal::header_bytes() + records.iter().sum::<u64>()
    }

    /// Ends it in order, so that opening it is quick. Dropping it does as well, but for the time that
    /// opening takes.
    ///
    /// # Errors
    ///
    /// A round that is open; the disk.
    pub fn close(mut self) -> Result<(), Error> {
        self.check_idle("close")?;
        self.checkpoint()
    }
}

/// Where a new controller is to be.
#[derive(Clone, Copy)]
struct NewPlace<'a> {
    folder: &'a Path,
    key: &'a Key,
    counter: &'a dyn CounterPlace,
}

/// What the journal tells.
#[derive(Default)]
struct Replay {
    checkpoint: Option<Checkpoint>,
    checkpoint_round: u64,
    round: u64,
    begun: u64,
    intent: Option<Intent>,
    waiting: Vec<u8>,
    entered: Vec<Entered>,
    commits: Vec<(u64, u64)>,
    /// How rounds have ended.
    settled: Vec<Settled>,
    /// The number of the round that has begun and not ended; 0 for none.
    cut_short: u64,
}

impl Replay {
    /// How rounds have ended, with that which a crash has.
    fn settled(&mut self) -> Vec<Settled> {
        self.end_cut_short();
        std::mem::take(&mut self.settled)
    }

    fn end_cut_short(&mut self) {
        let round = std::mem::take(&mut self.cut_short);
        if round != 0 {
            settled::push(&mut self.settled, Settled { round, ended: Ended::Failed });
        }
    }

    fn take(&mut self, record: &Record) -> Result<(), Error> {
        match record.kind {
            CHECKPOINT => {
                self.checkpoint = Some(Checkpoint::from_bytes(&record.payload)?);
                self.checkpoint_round = record.round;
            }
            INTENT => {
                self.intent = Some(Intent::from_bytes(&record.payload)?);
                self.waiting.clear();
            }
            ROWS => self.waiting.extend_from_slice(&record.payload),
            COMMIT => {
                let (before, after, settled) = records::commit_from_bytes(&record.payload)?;
                if let Some(settled) = settled {
                    self.cut_short = 0;
                    settled::push(&mut self.settled, settled);
                }
                self.commits.push((before, after));
                let blocks = std::mem::take(&mut self.waiting);
                self.entered.push(Entered { evictions: before, blocks });
                self.intent = None;
                self.round = record.round;
            }
            BEGUN => {
                self.end_cut_short();
                (self.begun, self.cut_short) = records::begun_from_bytes(&record.payload)?;
            }
            SETTLED => self.settled = records::settled_from_bytes(&record.payload)?,
            _ => return Err(Error::Record),
        }
        Ok(())
    }
}

/// What a folder's controller was created as: the text, and what it says.
fn read_spec(folder: &Path) -> Result<(Vec<u8>, ControllerSpec), Error> {
    let path = folder.join(SPEC_FILE);
    let text = match fs::read(&path) {
        Err(source) if source.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::Incomplete { path: folder.to_owned() });
        }
        text => text.map_err(file(&path))?,
    };
    let spec = serde_json::from_slice(&text).map_err(|_| Error::SpecChanged { path })?;
    Ok((text, spec))
}

fn seeded() -> Result<ChaCha20Rng, Error> {
    let mut seed = Zeroizing::new([0; 32]);
    hushtable_prg::fill_random(&mut seed[..])?;
    Ok(ChaCha20Rng::from_seed(*seed))
}

fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path: PathBuf = path.to_owned();
    move |source| Error::File { path, source }
}
