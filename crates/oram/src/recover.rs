//! What is in memory, made again from what is on disk.
//!
//! Position map, valid bits, cached levels and stash are in memory only. On disk are the buckets as
//! they were committed last, and the journal: the stash at the last checkpoint, and all rows that were
//! written since. Of one row there may be many copies: where it was taken from, a bucket keeps it until
//! it is written again. The newest one is the row, and how new a copy is, is public: a bucket is as new
//! as the last eviction that passed it, a journal's record as the round that wrote it.
//!
//! So every slot of the tree and every row of the journal is sorted by (id, newest first), the first
//! of each id wins, and the winners are sorted back. Winners in buckets are the valid bits, winners in
//! the journal are what was in memory. Both sorts are networks, and everything that is read is
//! all of it, so recovery says nothing of which copies won.

use std::collections::HashMap;

use rand::Rng;

use crate::bucket::{DUMMY, block_bytes, id, leaf, set_head};
use crate::oblivious::{Mask, compact, compact_pairs, sort, sort_pairs};
use crate::tree::{Tree, TreeError, upper_capacity};

/// Why the state cannot be made again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The buckets.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Rows are missing.
    #[error(
        "{found} of the table's {rows} rows are in the tree and the journal: a file is missing or from another \
         state. `hushtable train recover FOLDER` says which rows can be kept"
    )]
    Missing {
        /// Rows found.
        found: u64,
        /// Rows that there should be.
        rows: u64,
    },
    /// More rows than fit in memory won: impossible in a state that this program wrote.
    #[error(
        "the journal holds more rows than the cached levels and the stash can: it is from another state. \
         `hushtable train recover FOLDER` says which rows can be kept"
    )]
    Overfull,
}

/// Blocks that entered the stash when there had been `evictions` evictions.
pub struct Entered {
    /// Evictions before the first of them was evicted.
    pub evictions: u64,
    /// Their bytes, as in memory; of a later record for the same count, the newer.
    pub blocks: Vec<u8>,
}

/// What was in memory.
pub struct Recovered {
    /// The leaf of each row.
    pub leaves: Vec<u32>,
    /// Valid bits of all buckets, [`valid_words`](crate::geometry::Geometry::valid_words) a bucket, in
    /// level order. Cached buckets have zeros.
    pub valid: Vec<u64>,
    /// Blocks that were in cached levels or the stash, padded with dummies to a public number.
    pub upper: Vec<u8>,
}

/// Makes it again. `evictions` is the committed root counter, `flushed` what it was when the cached
/// levels were last written; `entered` the journal's rows, oldest first.
///
/// # Errors
///
/// The disk, a bucket that is not what was written, rows that are missing.
pub fn recover(
    tree: &mut Tree,
    (evictions, flushed): (u64, u64),
    entered: Vec<Entered>,
    random: &mut impl Rng,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Recovered, RecoverError> {
    let geometry = *tree.geometry();
    let stride = block_bytes(geometry.payload_bytes());
    let boundary = tree.boundary();
    let (shape, cached) = (geometry.shape(), tree.cached_buckets());

    // Ages, as ranks: they are public, and a rank leaves room for the id in one word to sort by.
    let seen = |number: u64| if number < cached { flushed } else { evictions };
    let bucket_age = |number: u64| {
        // How new what it holds is: one more than the number of the last eviction that passed it.
        let (level, index) = shape.place(number);
        (shape.last_pass(seen(number), level, index).map_or(0, |(_, last)| last + 1), 0)
    };
    let mut ages: Vec<(u64, usize)> = (0..geometry.buckets()).map(bucket_age).collect();
    ages.extend(entered.iter().enumerate().map(|(at, record)| (record.evictions, at + 1)));
    ages.sort_unstable();
    ages.dedup();
    let ranks: HashMap<(u64, usize), u32> = ages.iter().copied().zip(0..).collect();
    let key = |id: u32, rank: u32| u64::from(id) << 32 | u64::from(u32::MAX - rank);

    let mut keys = Vec::new();
    let mut values = Vec::new();
    // Which buckets the slots on disk belong to, Z each, in the file's order.
    let mut scanned = Vec::new();
    let (mut upper, mut upper_keys) = (Vec::new(), Vec::new());
    let all = geometry.buckets();
    tree.scan((evictions, flushed), &mut |number, blocks| {
        let rank = ranks[&bucket_age(number)];
        if number < cached {
            upper.extend_from_slice(blocks);
            upper_keys.extend(blocks.chunks_exact(stride).map(|block| key(id(block), rank)));
            return;
        }
        for block in blocks.chunks_exact(stride) {
            values.push(u64::from(leaf(block)) << 32 | keys.len() as u64);
            keys.push(key(id(block), rank));
        }
        scanned.push(number);
        if scanned.len() % 4096 == 0 {
            progress(scanned.len() as u64, all);
        }
    })?;
    for (at, record) in entered.into_iter().enumerate() {
        let rank = ranks[&(record.evictions, at + 1)];
        upper_keys.extend(record.blocks.chunks_exact(stride).map(|block| key(id(block), rank)));
        upper.extend(record.blocks);
    }
    let disk_slots = keys.len();
    // What goes through the stash again gets a fresh leaf, like all that does: of what was in an upper
    // bucket the old leaves tell that they are in its part of the tree, and entering together such
    // blocks would overfill the stash.
    for block in upper.chunks_exact_mut(stride) {
        let id = id(block);
        set_head(block, id, shape.draw(random));
    }
    for (block, key) in upper.chunks_exact(stride).zip(upper_keys) {
        values.push(u64::from(leaf(block)) << 32 | keys.len() as u64);
        keys.push(key);
    }

    sort_pairs(&mut keys, &mut values);
    let mut winners = Vec::with_capacity(keys.len());
    let mut last = u64::from(DUMMY);
    for key in &keys {
        let id = key >> 32;
        let first = Mask::equal(id, last).not();
        let real = Mask::equal(id, u64::from(DUMMY)).not();
        winners.push(first.and(real));
        last = id;
    }
    // Back in the order of the file, with whether each won.
    let mut won: Vec<u64> = values
        .iter()
        .zip(&winners)
        .map(|(value, winner)| (value & u64::from(u32::MAX)) << 1 | winner.bit())
        .collect();
    let mut found = compact_pairs(&mut winners, &mut keys, &mut values);
    // That all rows are there is what an intact state says; it is told.
    hushtable_prg::valgrind::declassify(&mut found);
    if found != geometry.rows() {
        return Err(RecoverError::Missing { found, rows: geometry.rows() });
    }
    keys.drain(geometry.rows() as usize..);
    let mut in_order = Mask::YES;
    for (row, key) in keys.iter().enumerate() {
        in_order = in_order.and(Mask::equal(key >> 32, row as u64));
    }
    let mut in_order = in_order.bit();
    hushtable_prg::valgrind::declassify(&mut in_order);
    if in_order == 0 {
        return Err(RecoverError::Missing { found: 0, rows: geometry.rows() });
    }
    let leaves =
        values[..geometry.rows() as usize].iter().map(|value| (value >> 32) as u32).collect();
    drop((keys, values, winners));

    sort(&mut won, &mut [], 0);
    let (slots, words) = (geometry.slots(), geometry.valid_words());
    let mut valid = vec![0; all as usize * words];
    for (bucket, &number) in scanned.iter().enumerate() {
        let own = &mut valid[number as usize * words..][..words];
        for (slot, bit) in won[bucket * slots..][..slots].iter().enumerate() {
            own[slot / 64] |= (bit & 1) << (slot % 64);
        }
    }
    let mut flags: Vec<Mask> = won[disk_slots..].iter().map(|&won| Mask::from_bit(won)).collect();
    let mut order = vec![0; flags.len()];
    compact(&mut flags, &mut order, &mut upper, stride);
    // To a length that the shape alone gives; what is behind the winners becomes dummies.
    let capacity = upper_capacity(&geometry, boundary);
    let mut excess = Mask::NO;
    for flag in flags.iter().skip(capacity) {
        excess = excess.or(*flag);
    }
    let mut excess = excess.bit();
    hushtable_prg::valgrind::declassify(&mut excess);
    if excess != 0 {
        return Err(RecoverError::Overfull);
    }
    for (flag, block) in flags.iter().zip(upper.chunks_exact_mut(stride)) {
        let id = id(block) | flag.not().bits() as u32;
        block[..4].copy_from_slice(&id.to_le_bytes());
    }
    let have = upper.len() / stride;
    upper.resize(capacity * stride, 0);
    for block in upper.chunks_exact_mut(stride).skip(have) {
        set_head(block, DUMMY, 0);
    }
    Ok(Recovered { leaves, valid, upper })
}
