//! The shape of a RAW-ORAM tree, solved from the rows' size and a stated overflow probability.
//!
//! A tree has `levels` levels; a bucket holds Z blocks; after every A blocks that enter the stash one
//! path is evicted, in reverse-lexicographic order (Ring ORAM, USENIX Security 2015; FEDORA 4.4).
//!
//! # The bound on the stash
//!
//! The stash holds more than R blocks after an eviction only if some rooted subtree T of n nodes has
//! X(T) > nZ + R, where X(T) counts what T's buckets got at *their own last eviction* if buckets were
//! infinite (Ring ORAM 4.3, with one difference: a block that was taken out since still counts, as
//! its slot stays empty until the bucket is evicted again). An inner bucket gets A/2 blocks on
//! average, a leaf the b = N / leaves blocks that belong to it, whatever was asked for. X(T) is a sum
//! of independent indicators, so a bucket of mean w gives a factor m = exp(w(e^t - 1) - tZ), and over all
//! rooted subtrees
//!
//! > Pr\[stash > R\] ≤ e^(-tR) · F_0,  F_j = m_j (1 + F_(j+1))²,  F below the leaves = 0, for every t > 0.
//!
//! [`stash_bound`] takes the best t. The published condition (A/2 blocks a leaf at most, and 4^n subtrees
//! of n nodes) is a special case. **FEDORA's three tables do not meet it**: they hold 76, 24 and 15 rows a
//! leaf where A/2 is 46, 21.5 and 9. A tree of 10 million rows of 64 bytes with A = 92 and 18 levels
//! does overfill its stash: not by uniform requests, of which many hit rows that are still in upper
//! buckets, but by rounds that go through all rows in turn (the example `stash_bound` shows both). This
//! bound holds for every sequence of requests, and so for a tree as it is built, by writes alone, and
//! for one of any age.

use thiserror::Error;

/// Bytes of a bucket: a page of the disk.
pub const BUCKET_BYTES: usize = 4096;
/// Bytes of a bucket that hold no block: 16 of a random nonce, 16 of the tag.
pub const SEAL_BYTES: usize = 32;
/// The most levels of a tree: a leaf's number is a u32, and a file of 2^28 buckets holds a terabyte.
pub const LEVELS_MAX: u32 = 28;

/// What a tree is asked to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GeometrySpec {
    /// Rows, 1 to 2^31.
    pub rows: u64,
    /// Bytes of a block's payload: the row and its optimiser's state.
    pub payload_bytes: usize,
    /// -log2 of the probability that the stash is over its bound after an eviction.
    pub overflow_bits: u32,
    /// Bytes of a bucket, [`BUCKET_BYTES`] on disk.
    pub bucket_bytes: usize,
}

impl GeometrySpec {
    /// A tree on disk, its stash over its bound after an eviction with probability 2^-80.
    pub fn on_disk(rows: u64, payload_bytes: usize) -> Self {
        Self { rows, payload_bytes, overflow_bits: 80, bucket_bytes: BUCKET_BYTES }
    }
}

/// Why there is no tree for what was asked.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum GeometryError {
    /// No rows, or too many.
    #[error("a table of {rows} rows: an oblivious memory holds 1 to {rows_max}")]
    Rows {
        /// What was asked.
        rows: u64,
        /// The most.
        rows_max: u64,
    },
    /// A bucket does not hold the blocks that evictions need.
    #[error(
        "a block of {payload_bytes} bytes: {slots} fit in a bucket of {bucket_bytes} bytes, and at least 4 must; \
         use a smaller row or optimiser state"
    )]
    Payload {
        /// Bytes of a block's payload.
        payload_bytes: usize,
        /// How many fit.
        slots: usize,
        /// Bytes of a bucket.
        bucket_bytes: usize,
    },
}

/// The shape of a tree; always one that its stash bound holds for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    rows: u64,
    payload_bytes: usize,
    bucket_bytes: usize,
    id_bytes: usize,
    leaf_bytes: usize,
    slots: usize,
    period: usize,
    levels: u32,
    stash_bound: usize,
}

/// How many values of t are tried.
const STEPS: u32 = 60;

/// How many blocks stay in the stash after an eviction at most, but for a probability of
/// 2^-`overflow_bits`: of a tree of `levels` levels with `blocks` blocks, `slots` a bucket, evicted every
/// `period` blocks. None if there is no such bound. See [the module](self).
pub fn stash_bound(
    levels: u32,
    (slots, period): (usize, usize),
    blocks: u64,
    overflow_bits: u32,
) -> Option<usize> {
    let z = slots as f64;
    let inner = period as f64 / 2.0;
    let leaf = blocks as f64 / (1u64 << (levels - 1)) as f64;
    let wanted = f64::from(overflow_bits) * 2f64.ln();
    let steps = 1..=STEPS;
    // Beyond the t at which an inner bucket's factor is least, both terms only grow.
    let most = (z / inner).ln().max(0.0) * 1.5;
    let bound = |t: f64| {
        let factor = |mean: f64| (mean * t.exp_m1() - t * z).exp();
        let inner_factor = factor(inner);
        let sum = (1..levels).fold(factor(leaf), |below, _| inner_factor * (1.0 + below).powi(2));
        (wanted + sum.ln()) / t
    };
    let best = steps
        .map(|step| bound(most * f64::from(step) / f64::from(STEPS)))
        .fold(f64::INFINITY, f64::min);
    best.is_finite().then(|| best.ceil().max(1.0) as usize)
}

fn bytes_for(count: u64) -> usize {
    // One more value than `count`: all ones is the dummy's.
    (64 - count.leading_zeros() as usize).div_ceil(8)
}

impl Geometry {
    /// The most rows of a table.
    pub const ROWS_MAX: u64 = 1 << 31;

    /// The largest period A, and with it the smallest tree and the fewest writes, that the bound allows.
    pub fn new(spec: &GeometrySpec) -> Result<Self, GeometryError> {
        let GeometrySpec { rows, payload_bytes, overflow_bits, bucket_bytes } = *spec;
        if rows == 0 || rows > Self::ROWS_MAX {
            return Err(GeometryError::Rows { rows, rows_max: Self::ROWS_MAX });
        }
        let id_bytes = bytes_for(rows);
        // A leaf's width depends on the number of leaves, which depends on A and so on Z: from below.
        let mut leaf_bytes = 1;
        loop {
            let block_bytes = payload_bytes + id_bytes + leaf_bytes;
            let slots = bucket_bytes.saturating_sub(SEAL_BYTES) / block_bytes;
            if slots < 4 || payload_bytes == 0 {
                return Err(GeometryError::Payload { payload_bytes, slots, bucket_bytes });
            }
            let Some((levels, period, stash_bound)) = solve(rows, slots, overflow_bits) else {
                return Err(GeometryError::Payload { payload_bytes, slots, bucket_bytes });
            };
            if bytes_for(1 << (levels - 1)) > leaf_bytes {
                leaf_bytes = bytes_for(1 << (levels - 1));
                continue;
            }
            return Ok(Self {
                rows,
                payload_bytes,
                bucket_bytes,
                id_bytes,
                leaf_bytes,
                slots,
                period,
                levels,
                stash_bound,
            });
        }
    }

    /// Rows of the table.
    pub fn rows(&self) -> u64 {
        self.rows
    }
    /// Bytes of a block's payload.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }
    /// Bytes of a bucket, sealed.
    pub fn bucket_bytes(&self) -> usize {
        self.bucket_bytes
    }
    /// Bytes of a block's id in a bucket.
    pub fn id_bytes(&self) -> usize {
        self.id_bytes
    }
    /// Bytes of a block's leaf in a bucket.
    pub fn leaf_bytes(&self) -> usize {
        self.leaf_bytes
    }
    /// Z: blocks of a bucket.
    pub fn slots(&self) -> usize {
        self.slots
    }
    /// A: blocks that enter the stash between two evictions.
    pub fn period(&self) -> usize {
        self.period
    }
    /// L: levels of the tree, the root's and the leaves' included.
    pub fn levels(&self) -> u32 {
        self.levels
    }
    /// Leaves of the tree, a power of two.
    pub fn leaves(&self) -> u64 {
        1 << (self.levels - 1)
    }
    /// Buckets of the tree.
    pub fn buckets(&self) -> u64 {
        2 * self.leaves() - 1
    }
    /// R: the most blocks that stay in the stash after an eviction, but for the stated probability.
    pub fn stash_bound(&self) -> usize {
        self.stash_bound
    }
    /// Blocks that the stash has room for: the bound, and what enters before an eviction.
    pub fn stash_capacity(&self) -> usize {
        self.stash_bound + self.period
    }
    /// 64-bit words of a bucket's valid bits.
    pub fn valid_words(&self) -> usize {
        self.slots.div_ceil(64)
    }
    /// Bytes written a row without coalescing or cached levels: L · 4096 / A (FEDORA 4.4).
    pub fn written_bytes_per_row(&self) -> f64 {
        f64::from(self.levels) * self.bucket_bytes as f64 / self.period as f64
    }
}

/// Levels, A, and the stash's bound: what writes the fewest bytes a row, L/A, with a stash that is
/// scanned no longer than a path of some six buckets. Of two within a twentieth, the smaller tree.
fn solve(rows: u64, slots: usize, overflow_bits: u32) -> Option<(u32, usize, usize)> {
    // No tree with fewer slots than rows.
    let fewest = (2..=LEVELS_MAX).find(|&levels| ((1u64 << levels) - 1) * slots as u64 > rows)?;
    let best_of = |levels: u32| {
        let found = (1..2 * slots).rev().find_map(|period| {
            let bound = stash_bound(levels, (slots, period), rows, overflow_bits)?;
            (bound <= stash_most(slots, overflow_bits)).then_some((period, bound))
        });
        found.map(|(period, bound)| (levels, period, bound))
    };
    let cost = |&(levels, period, _): &(u32, usize, usize)| f64::from(levels) / period as f64;
    let mut best: Option<(u32, usize, usize)> = None;
    for found in (fewest..=(fewest + 3).min(LEVELS_MAX)).filter_map(best_of) {
        if best.as_ref().is_none_or(|best| cost(&found) < 0.95 * cost(best)) {
            best = Some(found);
        }
    }
    best
}

/// The longest stash that is worth its scans, for the bound that is asked for.
fn stash_most(slots: usize, overflow_bits: u32) -> usize {
    (6 * slots).max(64) * overflow_bits.max(80) as usize / 80
}

/// The leaf that eviction number `eviction` clears: the reverse-lexicographic order, in which any 2^j
/// consecutive evictions pass each node of level j once.
pub fn eviction_leaf(eviction: u64, levels: u32) -> u32 {
    let bits = levels - 1;
    if bits == 0 { 0 } else { (eviction as u32 & ((1 << bits) - 1)).reverse_bits() >> (32 - bits) }
}

/// How many of the first `evictions` evictions passed the node `index` of `level`: the counter that
/// its bucket is sealed under, which the one root counter gives for every bucket (FEDORA 5.2).
pub fn passes(evictions: u64, level: u32, index: u64) -> u64 {
    // The eviction numbers that pass the node are those that end in its index's bits, reversed.
    let phase = first_pass(level, index);
    if evictions > phase { (evictions - phase - 1) / (1 << level) + 1 } else { 0 }
}

/// How many of the first `evictions` evictions passed the node `index` of `level`, and the number of the
/// last that did; none if none has.
pub fn last_pass(evictions: u64, level: u32, index: u64) -> Option<(u64, u64)> {
    let count = passes(evictions, level, index);
    (count > 0).then(|| (count, first_pass(level, index) + ((count - 1) << level)))
}

/// The number of the first eviction that passes a node.
fn first_pass(level: u32, index: u64) -> u64 {
    if level == 0 { 0 } else { u64::from((index as u32).reverse_bits() >> (32 - level)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_disk(rows: u64, payload_bytes: usize) -> Geometry {
        Geometry::new(&GeometrySpec::on_disk(rows, payload_bytes)).unwrap()
    }

    #[test]
    fn the_papers_tables_have_trees_that_the_bound_covers() {
        for (rows, bytes, slots, period, levels, written) in [
            (10_000_000, 64, 58, 93, 19, 836.8),
            (50_000_000, 128, 30, 43, 22, 2095.6),
            (250_000_000, 256, 15, 18, 26, 5916.4),
            (1_000_000, 64, 58, 86, 15, 714.4),
        ] {
            let tree = on_disk(rows, bytes);
            assert_eq!((tree.slots(), tree.period(), tree.levels()), (slots, period, levels));
            assert!((tree.written_bytes_per_row() - written).abs() < 0.1);
            let shape = (slots, period);
            assert_eq!(stash_bound(levels, shape, rows, 80), Some(tree.stash_bound()));
            assert!(stash_bound(levels, shape, rows, 128) > Some(tree.stash_bound()));
        }
        // The paper's own: none for the small and the large table, as it stands.
        let most = 100_000;
        assert!(stash_bound(18, (58, 92), 10_000_000, 80).is_none_or(|bound| bound > most));
        assert!(stash_bound(25, (15, 18), 250_000_000, 80).is_none_or(|bound| bound > most));
        assert!(stash_bound(22, (30, 43), 50_000_000, 80).is_some());
    }

    #[test]
    fn within_the_published_condition_the_published_bound_is_no_better() {
        // Pr[stash > R] ≤ (a/Z)^R e^-q / (1 - e^-q) where a leaf has no more than a = A/2 blocks.
        for (slots, period, levels) in
            [(58_usize, 92_usize, 18), (30, 43, 15), (8, 8, 12), (15, 18, 20)]
        {
            let (z, a) = (slots as f64, period as f64 / 2.0);
            let q = z * (z / a).ln() + a - z - 4f64.ln();
            let published = (80.0 - ((-q).exp_m1().abs() / (-q).exp()).log2()) / (z / a).log2();
            let blocks = (a * f64::from(1 << (levels - 1))) as u64;
            let bound = stash_bound(levels, (slots, period), blocks, 80).unwrap();
            assert!(bound as f64 <= published.ceil(), "{bound} {published}");
        }
    }

    #[test]
    fn what_has_no_tree_is_refused() {
        assert!(matches!(
            Geometry::new(&GeometrySpec::on_disk(0, 64)),
            Err(GeometryError::Rows { .. })
        ));
        assert!(matches!(
            Geometry::new(&GeometrySpec::on_disk(10, 2000)),
            Err(GeometryError::Payload { slots: 2, .. })
        ));
        assert!(Geometry::new(&GeometrySpec::on_disk(10, 0)).is_err());
        assert!(Geometry::new(&GeometrySpec::on_disk(u64::MAX, 64)).is_err());
    }

    #[test]
    fn a_nodes_counter_counts_its_evictions() {
        let levels = 5;
        let mut counts = vec![vec![0; 16]; 5];
        let mut last = vec![vec![None; 16]; 5];
        for eviction in 0..100 {
            for level in 0..levels {
                for index in 0..1u64 << level {
                    assert_eq!(
                        passes(eviction, level, index),
                        counts[level as usize][index as usize]
                    );
                    assert_eq!(
                        last_pass(eviction, level, index).map(|(_, last)| last),
                        last[level as usize][index as usize]
                    );
                }
                let index = eviction_leaf(eviction, levels) >> (levels - 1 - level);
                counts[level as usize][index as usize] += 1;
                last[level as usize][index as usize] = Some(eviction);
            }
        }
    }
}
