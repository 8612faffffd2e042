//! Which copy of each row is the newest that can be read: [`recover`](crate::recover)'s sorts, over a
//! tree of which parts may be missing.
//!
//! A row has stale copies beside the one that counts: in the bucket that it was taken from, until that is
//! written again. So a bucket that cannot be read may hide that a row was there, and an older copy then
//! wins. Nothing on disk tells of a given row whether it did; but such a row was in the missing bucket,
//! which has Z slots, and its copy is older than that bucket. Both bounds are in the [`Survey`].

use std::collections::HashMap;

use hushtable_prg::valgrind::{declassify, mark_public};

use super::super::super::Error;
use super::old::{Found, OldTree, Source};
use crate::bucket::{DUMMY, block_bytes, id};
use crate::oblivious::{Mask, compact_pairs, sort, sort_pairs};
use crate::recover::{Entered, RecoverError};

/// What a folder holds.
pub(super) struct Survey {
    /// The buckets that open, in the file's order.
    pub sources: Vec<Source>,
    /// Blocks that were written to the journal since the cached levels were, and the stash before.
    pub entered: Vec<u8>,
    /// Of each slot of the sources, then of each block that entered: whether it is the newest of its row.
    pub newest: Vec<Mask>,
    /// Rows that no copy was found of, ascending.
    pub lost: Vec<u64>,
    /// Rows whose newest copy is from another version of a bucket than the journal says, ascending.
    pub uncertain: Vec<u64>,
    /// How many of the other rows may have an earlier value.
    pub older_max: u64,
    /// Buckets that did not open as what they should be, and how many of them not as anything.
    pub damaged_buckets: u64,
    pub unreadable_buckets: u64,
}

/// Looks at all of it.
pub(super) fn survey(
    tree: &OldTree,
    entered: Vec<Entered>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Survey, Error> {
    let geometry = tree.geometry;
    let stride = block_bytes(geometry.payload_bytes());
    // Ages as ranks, which leave room for the id in one word to sort by. They are known once all buckets
    // were looked at; until then a slot remembers its bucket.
    let mut sources = Vec::new();
    let mut ids = Vec::new();
    let (mut damaged, mut unreadable, mut missing_age) = (0, 0, 0);
    tree.probe(
        &mut |found| match found {
            Found::Open(source, blocks) => {
                if !source.is_expected {
                    damaged += 1;
                    missing_age = missing_age.max(source.age);
                }
                sources.push(source);
                ids.extend(blocks.chunks_exact(stride).map(id));
            }
            Found::Unreadable { age } => {
                damaged += 1;
                unreadable += 1;
                missing_age = missing_age.max(age);
            }
        },
        progress,
    );
    for source in sources.iter().filter(|source| !source.is_expected) {
        let (level, index) = geometry.shape().place(source.number);
        let seen = if source.number < tree.cached { tree.flushed } else { tree.evictions };
        let expected = geometry.shape().last_pass(seen, level, index).map_or(0, |(_, at)| at + 1);
        missing_age = missing_age.max(expected);
    }

    // Of one age a record of the journal is newer than what evictions have written before it.
    let mut ages: Vec<(u64, usize)> = sources.iter().map(|source| (source.age, 0)).collect();
    ages.extend(entered.iter().enumerate().map(|(at, record)| (record.evictions, at + 1)));
    ages.sort_unstable();
    ages.dedup();
    let ranks: HashMap<(u64, usize), u32> = ages.iter().copied().zip(0..).collect();
    // The bits below the rank say whether the copy is one to be told of, in either way.
    let key = |id: u32, rank: u32, is_expected: bool, is_older: bool| {
        let rank = u64::from((u32::MAX >> 2) - rank);
        u64::from(id) << 32 | rank << 2 | u64::from(!is_expected) << 1 | u64::from(is_older)
    };
    let slots = geometry.slots();
    let mut keys = Vec::with_capacity(ids.len());
    for (source, ids) in sources.iter().zip(ids.chunks_exact(slots)) {
        let (rank, is_older) = (ranks[&(source.age, 0)], source.age < missing_age);
        keys.extend(ids.iter().map(|&id| key(id, rank, source.is_expected, is_older)));
    }
    let mut blocks = Vec::new();
    for (at, record) in entered.into_iter().enumerate() {
        let (rank, is_older) = (ranks[&(record.evictions, at + 1)], record.evictions < missing_age);
        keys.extend(record.blocks.chunks_exact(stride).map(|b| key(id(b), rank, true, is_older)));
        blocks.extend(record.blocks);
    }

    let count = keys.len() as u64;
    let mut values: Vec<u64> = (0..count).collect();
    sort_pairs(&mut keys, &mut values);
    let mut winners = Vec::with_capacity(keys.len());
    let mut last = u64::from(DUMMY);
    for key in &keys {
        let id = key >> 32;
        let is_row = Mask::less(id, geometry.rows());
        winners.push(Mask::equal(id, last).not().and(is_row));
        last = id;
    }
    let mut won: Vec<u64> =
        values.iter().zip(&winners).map(|(value, winner)| value << 1 | winner.bit()).collect();
    let mut found = compact_pairs(&mut winners, &mut keys, &mut values);
    // How many rows are there is reported.
    declassify(&mut found);
    keys.truncate(found as usize);
    let (mut lost, mut uncertain, mut older_max) = (Vec::new(), Vec::new(), 0);
    if found != geometry.rows() || damaged > 0 {
        // So is which rows are not, or not for sure; of an intact state nothing is looked at.
        mark_public(&mut keys);
        let mut next = 0;
        for key in keys {
            lost.extend(next..key >> 32);
            next = (key >> 32) + 1;
            match key & 0b10 {
                0 => older_max += key & 1,
                _ => uncertain.push(key >> 32),
            }
        }
        lost.extend(next..geometry.rows());
        let room = (damaged * slots as u64).saturating_sub(lost.len() as u64);
        older_max = older_max.min(room);
        if damaged == 0 {
            // Everything that should be there opened, so rows are missing because all of it is of another
            // state, or because the journal was cut.
            older_max = 0;
        }
    }
    if found == 0 {
        return Err(RecoverError::Missing { found, rows: geometry.rows() }.into());
    }
    sort(&mut won, &mut [], 0);
    let newest = won.iter().map(|&won| Mask::from_bit(won)).collect();
    Ok(Survey {
        sources,
        entered: blocks,
        newest,
        lost,
        uncertain,
        older_max,
        damaged_buckets: damaged,
        unreadable_buckets: unreadable,
    })
}
