//! A table with some rows changed, over an engine that holds it without the changes.
//!
//! An answer is linear in the rows, so that the answer of the next version is the one of the version
//! before and the shares of the changed rows times what changed in them. Nothing of the engine is
//! copied or written: both versions answer from it while both are held, and the next one is there
//! in time proportional to the change.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use zeroize::Zeroize;

use hushtable_prg::{Platform, Prg};
use hushtable_table::{Table, Version};

use crate::dpf::{Group, Key, Walk, le_word};
use crate::{Backend, Below, Error, TableShape, Threads};

/// Leaves that are expanded together, as a power of two.
const SUBTREE_HEIGHT: u32 = 6;
/// One row of so many may have changed: of 2^20 rows of 64 bytes (one thread of a Zen 1), a pass of 1, 8 or 64 keys takes
/// 1.06, 1.09, 1.22 times as long then, with one in 16 1.25, 1.65, 2.57 times.
const CHANGED_PART: u64 = 256;

/// A [`Backend`] of a table's next version, over the one of the version before.
pub struct Patched {
    base: Arc<dyn Backend>,
    base_version: Version,
    ids: Vec<u64>,
    /// What changed, for each of [`Group::ALL`]: added to the old row, it gives the new one.
    changes: [Vec<u8>; 3],
    platform: Platform,
    threads: Threads,
}

impl Patched {
    /// The next version of the table that `base` holds: `table`, whose patch is one of that very version.
    /// Checks the changed rows against `table`'s version, as those of `base` were when it was loaded.
    ///
    /// # Errors
    /// [`Error::Table`] for a table without a patch, and [`Error::Damaged`] for one that is not what its version says.
    pub fn new(
        base: Arc<dyn Backend>,
        table: &Table,
        platform: Platform,
        threads: Threads,
    ) -> Result<Self, Error> {
        let no_patch = || Error::Table { reason: "the table has no patch".into() };
        let patch = table.patch().ok_or_else(no_patch)?;
        let old = table.check_patch().map_err(Error::of_table)?;
        let shape = TableShape::new(table.rows(), table.row_bytes())?;
        if base.shape() != shape {
            let (expected, found) = (base.shape().table_bytes(), shape.table_bytes());
            return Err(Error::TableBytes { expected, found });
        }
        let new: Vec<u8> = patch.iter().flat_map(|(_, row)| row).copied().collect();
        let changes = Group::ALL.map(|group| changes_of(group, &old, &new, shape.row_bytes()));
        let (base_version, ids) = (patch.base(), patch.ids().to_vec());
        Ok(Self { base, base_version, ids, changes, platform, threads })
    }

    /// As [`new`](Self::new), over a `base` that has the rows of a range alone
    /// ([`CpuEngine::from_range`](crate::CpuEngine::from_range)). The patch is taken as what the bundle says that it is:
    /// to check it against the next version takes rows of other ranges, so whoever has all checks it before.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn over_range(
        base: Arc<dyn Backend>,
        table: &Table,
        rows: Range<u64>,
        platform: Platform,
        threads: Threads,
    ) -> Result<Self, Error> {
        let no_patch = || Error::Table { reason: "the table has no patch".into() };
        let patch = table.patch().ok_or_else(no_patch)?;
        let row_bytes = table.row_bytes();
        let (mut ids, mut old, mut new) = (Vec::new(), Vec::new(), Vec::new());
        for (id, row) in patch.iter().filter(|(id, _)| rows.contains(id)) {
            ids.push(id);
            new.extend_from_slice(row);
            let start = old.len();
            old.resize(start + row_bytes, 0);
            table.copy_row_below_patch(id, &mut old[start..]).map_err(Error::of_table)?;
        }
        let changes = Group::ALL.map(|group| changes_of(group, &old, &new, row_bytes));
        Ok(Self { base, base_version: patch.base(), ids, changes, platform, threads })
    }

    /// Whether a table of `rows` rows with `changed` of them changed is better answered over the engine below
    /// than loaded whole: each pass pays for the changes again.
    pub fn is_worth(rows: u64, changed: u64) -> bool {
        changed <= (rows / CHANGED_PART).max(1)
    }

    /// Bytes in memory of so many changed rows.
    pub fn bytes(changed: u64, row_bytes: usize) -> u64 {
        changed.saturating_mul((Group::ALL.len() * row_bytes + size_of::<u64>()) as u64)
    }

    /// Turns the answers of the table without the changes into those of the table with them.
    ///
    /// # Errors
    /// As [`Backend::answer`].
    pub fn add_all_changes(&self, keys: &[&Key], answers: &mut [u8]) -> Result<(), Error> {
        let shape = self.shape();
        let (expected, found) = (keys.len() * shape.row_bytes(), answers.len());
        if expected != found {
            return Err(Error::AnswerBytes { expected, found });
        }
        if let Some(key) = keys.iter().find(|key| key.params().domain.rows() != shape.rows()) {
            return Err(Error::Domain {
                expected: shape.rows(),
                found: key.params().domain.rows(),
            });
        }
        self.threads.run(|| {
            let answers = answers.par_chunks_exact_mut(shape.row_bytes());
            keys.par_iter().zip(answers).for_each(|(key, answer)| self.add_changes(key, answer));
        });
        Ok(())
    }

    /// Adds the shares of the changed rows times what changed.
    fn add_changes(&self, key: &Key, answer: &mut [u8]) {
        let params = key.params();
        let group = params.domain.group();
        let place = Group::ALL.iter().position(|&other| other == group).unwrap_or_default();
        let mut walk = Walk::new(key, Prg::new(params.prg, self.platform), SUBTREE_HEIGHT);
        let count = walk.leaves_per_subtree();
        let (mut seeds, mut scratch) = (vec![0; count], vec![0; count]);
        let (mut nodes, mut words) = (Vec::with_capacity(count), vec![0; 4 * count]);
        let rows_per_leaf = group.rows_per_leaf();
        let rows_per_subtree = count as u64 * rows_per_leaf;
        let mut changes = self.changes[place].chunks_exact(answer.len());
        // Ids ascend; which they are is known to everybody, and no secret.
        for ids in self.ids.chunk_by(|a, b| a / rows_per_subtree == b / rows_per_subtree) {
            walk.seeds(ids[0] / rows_per_subtree, &mut seeds, &mut scratch);
            nodes.clear();
            for leaf in ids.chunk_by(|a, b| a / rows_per_leaf == b / rows_per_leaf) {
                nodes.push(seeds[(leaf[0] / rows_per_leaf) as usize % count]);
            }
            walk.convert(&nodes, &mut words[..4 * nodes.len()]);
            let leaves = ids.chunk_by(|a, b| a / rows_per_leaf == b / rows_per_leaf);
            for (leaf, words) in leaves.zip(words.chunks_exact(4)) {
                for (&id, change) in leaf.iter().zip(&mut changes) {
                    add_product(group, words, (id % rows_per_leaf) as usize, change, answer);
                }
            }
        }
        seeds.zeroize();
        scratch.zeroize();
        nodes.zeroize();
        words.zeroize();
    }
}

/// What changed in rows, so that `group` adds it to the old ones.
fn changes_of(group: Group, old: &[u8], new: &[u8], row_bytes: usize) -> Vec<u8> {
    let mut changes = new.to_vec();
    for (change, old) in changes.chunks_exact_mut(row_bytes).zip(old.chunks_exact(row_bytes)) {
        match group {
            Group::Bits => change.iter_mut().zip(old).for_each(|(new, old)| *new ^= old),
            Group::Z8 => {
                change.iter_mut().zip(old).for_each(|(new, old)| *new = new.wrapping_sub(*old));
            }
            Group::Z32 => {
                for (new, old) in change.chunks_mut(4).zip(old.chunks(4)) {
                    let word = le_word(new).wrapping_sub(le_word(old)).to_le_bytes();
                    new.copy_from_slice(&word[..new.len()]);
                }
            }
        }
    }
    changes
}

/// Adds the share of row `row` of a leaf, of `words`, times `change`; branch-free on the share.
fn add_product(group: Group, words: &[u128], row: usize, change: &[u8], answer: &mut [u8]) {
    let bit = |at: usize| words[at / 128] >> (at % 128);
    match group {
        Group::Bits => {
            let mask = ((bit(row) & 1) as u8).wrapping_neg();
            answer.iter_mut().zip(change).for_each(|(sum, byte)| *sum ^= byte & mask);
        }
        Group::Z8 => {
            let share = bit(8 * row) as u8;
            let add =
                |(sum, byte): (&mut u8, &u8)| *sum = sum.wrapping_add(byte.wrapping_mul(share));
            answer.iter_mut().zip(change).for_each(add);
        }
        Group::Z32 => {
            let share = bit(32 * row) as u32;
            for (sum, word) in answer.chunks_mut(4).zip(change.chunks(4)) {
                let added = le_word(sum).wrapping_add(le_word(word).wrapping_mul(share));
                sum.copy_from_slice(&added.to_le_bytes()[..sum.len()]);
            }
        }
    }
}

impl Backend for Patched {
    fn shape(&self) -> TableShape {
        self.base.shape()
    }

    fn answer(&self, keys: &[Key], answers: &mut [u8]) -> Result<(), Error> {
        let keys: Vec<&Key> = keys.iter().collect();
        self.answer_each(&keys, answers)
    }

    fn answer_each(&self, keys: &[&Key], answers: &mut [u8]) -> Result<(), Error> {
        self.base.answer_each(keys, answers)?;
        self.add_all_changes(keys, answers)
    }

    fn batch_keys_best(&self) -> usize {
        self.base.batch_keys_best()
    }

    fn groups(&self) -> &[Group] {
        self.base.groups()
    }

    fn below(&self) -> Option<Below> {
        let (version, backend) = (self.base_version, Arc::clone(&self.base));
        let changed_bytes = Self::bytes(self.ids.len() as u64, self.shape().row_bytes());
        Some(Below { version, backend, changed_bytes })
    }

    fn description(&self) -> String {
        format!("{}, {} row(s) changed over it", self.base.description(), self.ids.len())
    }
}
