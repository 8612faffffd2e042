//! Comparison keys: two servers learn shares of \[x < r\] for an x that both know and an r that neither knows.
//!
//! Whoever deals the keys chose r. A key is a distributed point function at r (Boyle, Gilboa and Ishai, CCS 2016):
//! at every node of its tree the two servers' control bits differ if, and only if, r is below that node. On the way
//! from the root to x, r is greater than x just if it is below the right sibling of a node where the way went left,
//! or in x's own leaf behind it. So the XOR of those siblings' control bits, and of the leaf's bits behind x, is a
//! share of \[x < r\]: exactly one of all these terms is shared as 1 if x < r, and none if not. One path is walked, and
//! nothing is added to the keys of a point function (this way of comparing: Storrier, Vadapalli, Lyons and Henry,
//! "Grotto", CCS 2023). The tree ends early, at leaves of 128 bits.
//!
//! **What a server sees.** Its root and the correction words are, as in every such tree, indistinguishable from
//! random to whoever does not have the other root: they say nothing of r. x is public by assumption: who uses the
//! keys masks what it compares. A key is for **one** x: the shares at two places tell r apart from others once they
//! are opened.
//!
//! The correction words are the same for both servers, and roots may come from a seed each. Of many keys everything
//! lies level by level, so that a level of all of them is expanded in one call.

mod deal;
mod evaluate;
pub mod joint;
pub mod reference;

pub use deal::deal;
pub use evaluate::evaluate;
pub use hushtable_prg::{Prg, PrgKind};

/// Which of the two servers: their root control bits differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "there are two sides")]
pub enum Half {
    /// The one whose root control bit is 0.
    Left,
    /// The one whose root control bit is 1.
    Right,
}

/// Keys of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Comparisons {
    count: usize,
    bits: u32,
}

impl Comparisons {
    /// `count` keys over numbers of `bits` bits.
    ///
    /// # Panics
    /// Above 63 bits.
    pub fn new(count: usize, bits: u32) -> Self {
        assert!(bits <= BITS_MAX, "numbers of at most {BITS_MAX} bits, not {bits}");
        Self { count, bits }
    }

    /// How many there are.
    pub fn count(self) -> usize {
        self.count
    }

    /// Bits of the numbers that are compared.
    pub fn bits(self) -> u32 {
        self.bits
    }

    /// Levels of a tree above its leaves.
    pub fn levels(self) -> u32 {
        self.bits.saturating_sub(LEAF_BITS)
    }

    /// Bytes of the correction words of all keys, which both servers get: for each level 16 bytes a key (the left
    /// child's control bit in the low bit) and a bit a key (the right child's), then the leaves.
    pub fn words_bytes(self) -> usize {
        self.levels() as usize * self.level_bytes() + self.count * self.leaf_bytes()
    }

    fn level_bytes(self) -> usize {
        16 * self.count + self.count.div_ceil(8)
    }

    fn leaf_bytes(self) -> usize {
        (1_usize << self.bits.min(LEAF_BITS)).div_ceil(8)
    }

    /// The positions of a leaf that there are.
    fn leaf_mask(self) -> u128 {
        u128::MAX >> (128 - (1 << self.bits.min(LEAF_BITS)))
    }

    /// A number's position in its leaf.
    fn position(self, number: u64) -> u32 {
        (number & ((1 << self.bits.min(LEAF_BITS)) - 1)) as u32
    }

    /// The way that a number takes at `level`: 1 to the right.
    fn turn(self, number: u64, level: u32) -> u8 {
        (number >> (self.bits - 1 - level) & 1) as u8
    }
}

/// Correction words that are of other keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "comparison keys have {found} bytes of correction words, not {expected}: they are cut, or of another network"
)]
#[non_exhaustive]
pub struct WordsError {
    /// Bytes that there must be.
    pub expected: usize,
    /// Bytes that there were.
    pub found: usize,
}

/// log2 of the bits of a leaf: a level takes 130 bits of a key, a leaf of 256 bits would take 128 more.
const LEAF_BITS: u32 = 7;
const BITS_MAX: u32 = 63;
