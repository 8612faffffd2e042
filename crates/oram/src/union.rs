//! Which rows a round needs: the set of its users' requests, without a trace of what they asked for.
//!
//! A round has K request slots, each with a row's id or [`DUMMY`]. FEDORA (section 4.2, figure 4)
//! takes the set by scanning a list for every slot, in chunks of 16K since that is quadratic; a row
//! wanted in two chunks is then read twice, and each chunk adds noise of its own. Here one oblivious
//! sort brings equal ids together, so that K of a million is one piece; [`scan`] is the paper's way,
//! kept to compare with.
//!
//! All ids, ranks, positions and counts are secret, the set's size with them; the number of slots,
//! and the k that the round's mechanism has drawn, are public.

mod keep;
mod recent;
pub mod scan;

use crate::oblivious::{Mask, sort};
pub use keep::{Kept, LOST, Loss, UnknownLoss};
pub use recent::{Found, LastReads};
use zeroize::Zeroizing;

/// The id of a slot that asks for nothing.
pub const DUMMY: u32 = u32::MAX;

/// Most request slots that a round may have.
pub const SLOTS_COUNT_MAX: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 21;

/// Why no set is taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnionError {
    /// No slots at all.
    #[error("a round has no request slots: give it at least one, a dummy if nobody asks")]
    NoSlots,
    /// More slots than fit a sort key.
    #[error(
        "a round has {slots_count} request slots, more than {SLOTS_COUNT_MAX}: \
         split it into several rounds"
    )]
    TooManySlots {
        /// How many there are.
        slots_count: usize,
    },
    /// A number of rows to keep that is none of 1 to the number of slots.
    #[error(
        "{kept_count} rows are to be kept of {slots_count} requests: choose 1 to {slots_count}"
    )]
    KeptCount {
        /// How many rows are to be kept.
        kept_count: usize,
        /// How many request slots there are.
        slots_count: usize,
    },
}

/// The set of the rows that a round's slots ask for.
pub struct Union {
    /// Id in the upper half, slot in the lower, ascending: equal ids are neighbours, dummies last.
    sorted: Zeroizing<Vec<u64>>,
    count: u64,
}

impl Union {
    /// The set of `ids`, one a slot, [`DUMMY`] for a slot that asks for nothing.
    ///
    /// That ids name rows of the table is not checked here: to refuse one would reveal it.
    ///
    /// # Errors
    ///
    /// If there are no slots, or more than [`SLOTS_COUNT_MAX`].
    pub fn new(ids: &[u32]) -> Result<Self, UnionError> {
        if ids.is_empty() {
            return Err(UnionError::NoSlots);
        }
        if ids.len() > SLOTS_COUNT_MAX {
            return Err(UnionError::TooManySlots { slots_count: ids.len() });
        }
        let pack = |(slot, id): (usize, &u32)| u64::from(*id) << 32 | slot as u64;
        let mut sorted = Zeroizing::new(ids.iter().enumerate().map(pack).collect::<Vec<_>>());
        sort(&mut sorted, &mut [], 0);
        let mut union = Self { sorted, count: 0 };
        union.count = union.runs().map(|run| run.first.bit()).sum();
        Ok(union)
    }

    /// How many rows the set has, k_union in the paper. **Secret.**
    pub fn count(&self) -> u64 {
        self.count
    }

    /// How many request slots there are; public.
    pub fn slots_count(&self) -> usize {
        self.sorted.len()
    }

    /// All of the set: as many entries as there are slots, a slot's position being its row's rank.
    pub fn all(&self) -> Kept {
        let kept = Zeroizing::new(self.runs().map(|run| run.first).collect());
        self.assign(kept, self.slots_count())
    }

    /// For each sorted request, whether it asks for a row and is the first that asks for it.
    fn runs(&self) -> impl DoubleEndedIterator<Item = Run> + ExactSizeIterator + '_ {
        (0..self.sorted.len()).map(|i| {
            let id = self.sorted[i] >> 32;
            // Nothing has the id of what stands before the first.
            let before = if i == 0 { u64::MAX } else { self.sorted[i - 1] >> 32 };
            let real = Mask::equal(id, u64::from(DUMMY)).not();
            Run { real, first: real.and(Mask::equal(id, before).not()) }
        })
    }
}

/// What one of the sorted requests is.
struct Run {
    /// It asks for a row.
    real: Mask,
    /// It is the first of those that ask for its row.
    first: Mask,
}

#[cfg(test)]
mod tests;
