//! The shape of a RAW-ORAM tree, solved from the rows' size and a stated overflow probability.
//!
//! A tree has `levels` levels; a bucket holds Z blocks; after every A blocks that enter the stash one
//! path is evicted, in reverse-lexicographic order (Ring ORAM, USENIX Security 2015; FEDORA 4.4).
//!
//! # The bound on the stash
//!
//! Ring ORAM bounds the stash by a union over the rooted subtrees T of the tree: the stash holds more
//! than R blocks only if some T of n nodes has X(T) > nZ + R blocks in the ORAM of infinite buckets.
//! X(T) is a sum of independent indicators, so with E X(T) ≤ n·A/2 and at most 4^n subtrees of n nodes,
//!
//! > Pr[stash > R] ≤ (A/2Z)^R · e^-q / (1 - e^-q),  q = Z ln(2Z/A) + A/2 - Z - ln 4 > 0.
//!
//! The published proof gets E X(T) ≤ n·A/2 from N ≤ A·2^(L-2) rows, half of what FEDORA's three
//! tables hold (76 rows a leaf against A/2 = 46 at 64 bytes), so it does not cover them. It holds
//! for twice as many: **N ≤ A·2^(L-1), that is A rows a leaf, is enough**.
//!
//! Let A/2 - d_j (d_j ≥ 0) be the mean load of a node at inner level j: A/2 is the most that a level's
//! node can hold between two of its evictions. What is not in inner nodes is in leaves, so with b
//! rows a leaf a leaf's mean load is b - A/2 + Σ_j d_j 2^j / 2^(L-1) + A/2^L. A rooted subtree with i_j
//! nodes at level j and l leaves has i_j / 2^j ≥ l / 2^(L-1): a fraction of a level never grows
//! downwards. So the terms in d_j add up to no more than zero, and E X(T) ≤ Σ i_j·A/2 + l·(b - A/2 +
//! A/2^L) ≤ n·A/2 for b ≤ A·(1 - 2^-L). The bound covers a tree that was filled by the ORAM's own
//! writes, which is how [`raw`](crate::raw) builds one, and every later mix of reads and writes:
//! each eviction is preceded by at most A blocks, and taking blocks out only lowers loads.

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

/// Ring ORAM's condition; the union bound converges where it is positive.
fn margin(slots: usize, period: usize) -> f64 {
    let (z, a) = (slots as f64, period as f64 / 2.0);
    z * (z / a).ln() + a - z - 4f64.ln()
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
            let period = (1..2 * slots).rev().find(|&a| margin(slots, a) > 0.0).unwrap_or(1);
            let leaves = leaves_for(rows, period);
            if bytes_for(leaves) > leaf_bytes {
                leaf_bytes = bytes_for(leaves);
                continue;
            }
            let q = margin(slots, period);
            let tail = ((-q).exp() / -(-q).exp_m1()).log2();
            let per_block = (2.0 * slots as f64 / period as f64).log2();
            let stash_bound =
                ((f64::from(overflow_bits) + tail) / per_block).ceil().max(1.0) as usize;
            let levels = leaves.trailing_zeros() + 1;
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

/// The smallest power of two, at least two, with no more than A·(1 - 2^-L) rows a leaf.
fn leaves_for(rows: u64, period: usize) -> u64 {
    let mut leaves = 2u64;
    // rows ≤ A·(leaves - 1/2), in integers.
    while 2 * rows > period as u64 * (2 * leaves - 1) {
        leaves *= 2;
    }
    leaves
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
    let phase =
        if level == 0 { 0 } else { u64::from((index as u32).reverse_bits() >> (32 - level)) };
    if evictions > phase { (evictions - phase - 1) / (1 << level) + 1 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_disk(rows: u64, payload_bytes: usize) -> Geometry {
        Geometry::new(&GeometrySpec::on_disk(rows, payload_bytes)).unwrap()
    }

    #[test]
    fn the_papers_tables_have_the_papers_trees() {
        for (rows, bytes, slots, period, levels, written) in [
            (10_000_000, 64, 58, 92, 18, 801.4),
            (50_000_000, 128, 30, 43, 22, 2095.6),
            (250_000_000, 256, 15, 18, 25, 5688.9),
            (1_000_000, 64, 58, 92, 15, 667.8),
        ] {
            let tree = on_disk(rows, bytes);
            assert_eq!((tree.slots(), tree.period(), tree.levels()), (slots, period, levels));
            assert!((tree.written_bytes_per_row() - written).abs() < 0.1);
            assert!(tree.rows() <= tree.period() as u64 * tree.leaves());
        }
        // The artifact's stash of 4A = 368 is near what 2^-80 takes; 2^-128 takes more.
        assert_eq!(on_disk(10_000_000, 64).stash_bound(), 252);
        let spec = GeometrySpec { overflow_bits: 128, ..GeometrySpec::on_disk(10_000_000, 64) };
        assert_eq!(Geometry::new(&spec).unwrap().stash_bound(), 395);
    }

    #[test]
    fn the_period_is_the_largest_that_the_bound_allows() {
        for bytes in [16, 48, 64, 100, 128, 256, 512] {
            let tree = on_disk(1 << 20, bytes);
            assert!(margin(tree.slots(), tree.period()) > 0.0);
            assert!(margin(tree.slots(), tree.period() + 1) <= 0.0);
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
        for eviction in 0..100 {
            for level in 0..levels {
                for index in 0..1u64 << level {
                    assert_eq!(
                        passes(eviction, level, index),
                        counts[level as usize][index as usize]
                    );
                }
                let index = eviction_leaf(eviction, levels) >> (levels - 1 - level);
                counts[level as usize][index as usize] += 1;
            }
        }
    }
}
