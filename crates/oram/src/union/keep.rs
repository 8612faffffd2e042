//! Which rows of the set a round reads, if it reads fewer than there are.

use super::{DUMMY, Union, UnionError};
use crate::oblivious::{Mask, compact, sort};
use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use zeroize::Zeroizing;

/// The position of a slot that asks for nothing, or whose row is not kept.
pub const LOST: u32 = u32::MAX;

/// How the rows that are lost are chosen, when a round reads fewer than its users ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Loss {
    /// Any rows, all with the same chance: by secret random priorities.
    #[default]
    Random,
    /// Those that the fewest slots ask for; between equals, at random. It loses the fewest requests.
    /// What users get then depends on how many others want the same, which a user may notice.
    LeastRequested,
    /// Those with the highest ids. It is what FEDORA's artifact does, for comparison: **it leaks
    /// structure**. Rows with high ids (new items, in most tables) are trained less, so the table
    /// that is published shows which rounds were cut.
    HighestIds,
    /// Those that were read in the most recent rounds: rows that no round has read yet are kept first,
    /// then those read longest ago ([`LastReads`](super::LastReads), which costs memory and time). A
    /// controller that is opened again begins anew. What users get then depends on what earlier rounds
    /// asked for.
    RecentlyRead,
}

impl Loss {
    /// All strategies.
    pub const ALL: [Self; 4] =
        [Self::Random, Self::LeastRequested, Self::HighestIds, Self::RecentlyRead];

    /// The strategy's name, as options and files spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::LeastRequested => "least-requested",
            Self::HighestIds => "highest-ids",
            Self::RecentlyRead => "recently-read",
        }
    }
}

/// A name that is no strategy's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no way to lose rows is called {name:?}: choose random, least-requested, highest-ids or \
     recently-read"
)]
pub struct UnknownLoss {
    /// What was given.
    pub name: String,
}

impl FromStr for Loss {
    type Err = UnknownLoss;

    fn from_str(name: &str) -> Result<Self, UnknownLoss> {
        let loss = Self::ALL.into_iter().find(|loss| loss.name() == name);
        loss.ok_or_else(|| UnknownLoss { name: name.to_owned() })
    }
}

/// The rows that a round reads, and where each slot finds its own. All of it is secret but lengths.
pub struct Kept {
    /// Ids of rows, ascending, then [`DUMMY`] to the end.
    pub ids: Zeroizing<Vec<u32>>,
    /// For each of `ids`, how many slots ask for it; 0 for a dummy.
    pub request_counts: Zeroizing<Vec<u32>>,
    /// For each slot the position of its row in `ids`, or [`LOST`].
    pub positions: Zeroizing<Vec<u32>>,
    /// How many of `ids` are rows.
    pub rows_count: u64,
}

impl Union {
    /// Keeps `kept_count` rows, or all if there are fewer; `loss` says which are lost.
    ///
    /// `kept_count` is public, the k that the round's mechanism drew; the result has as many entries,
    /// and whether they are rows or dummies is secret. `random` is asked for one number a slot,
    /// whatever `loss` is. A priority has 42 random bits (21 under [`Loss::LeastRequested`]). Where
    /// the last row that is kept and the first that is lost have the same bits, the lower id is kept.
    /// [`Loss::RecentlyRead`] is done by [`LastReads`](super::LastReads), and here as at random: a
    /// union knows nothing of other rounds.
    ///
    /// # Errors
    ///
    /// If `kept_count` is 0 or more than the number of slots.
    pub fn keep(
        &self,
        kept_count: usize,
        loss: Loss,
        random: &mut (impl CryptoRng + ?Sized),
    ) -> Result<Kept, UnionError> {
        let rank = |_: usize, count: u64, chance: u64| match loss {
            Loss::Random | Loss::RecentlyRead => chance >> 22 << 21,
            Loss::LeastRequested => ((1 << 21) - count) << 42 | chance >> 43 << 21,
            Loss::HighestIds => 0,
        };
        Ok(self.keep_by(kept_count, random, rank)?.0)
    }

    /// [`keep`](Self::keep) by a rank: of a sorted request's number, of how many ask for its row, and of
    /// a random number; its low 21 bits are 0. Also says of each sorted request whether it is the first
    /// of a row that is kept.
    pub(super) fn keep_by(
        &self,
        kept_count: usize,
        random: &mut (impl CryptoRng + ?Sized),
        rank: impl Fn(usize, u64, u64) -> u64,
    ) -> Result<(Kept, Zeroizing<Vec<Mask>>), UnionError> {
        let slots_count = self.slots_count();
        if kept_count == 0 || kept_count > slots_count {
            return Err(UnionError::KeptCount { kept_count, slots_count });
        }
        // At a row's first request the row's own, and rows with low ones are kept first; all ones at
        // every other request.
        let mut priorities = Zeroizing::new(vec![u64::MAX; slots_count]);
        let counts = self.request_counts();
        for (i, ((run, count), priority)) in
            self.runs().zip(counts.iter()).zip(priorities.iter_mut()).enumerate()
        {
            let rank = rank(i, *count, random.next_u64());
            *priority = run.first.select_u64(rank | i as u64, u64::MAX);
        }
        let mut ranked = priorities.clone();
        sort(&mut ranked, &mut [], 0);
        // Priorities are distinct: exactly `kept_count` of them are this one or less. Where there are
        // fewer rows, this is the priority of a slot without a row, which is the largest number.
        let last = ranked[kept_count - 1];
        let chosen = self.runs().zip(priorities.iter());
        let kept: Zeroizing<Vec<Mask>> = Zeroizing::new(
            chosen
                .map(|(run, priority)| run.first.and(Mask::less(last, *priority).not()))
                .collect(),
        );
        Ok((self.assign(kept.clone(), kept_count), kept))
    }

    /// For each sorted request its row's id if it is the first that asks for it, else [`DUMMY`].
    pub(super) fn firsts(&self) -> Zeroizing<Vec<u32>> {
        let id = |(at, run): (usize, super::Run)| {
            run.first.select_u32((self.sorted[at] >> 32) as u32, DUMMY)
        };
        collect(self.runs().enumerate().map(id))
    }

    /// A count for each request: at a row's first request the number of requests for that row; 0 at
    /// every other request.
    fn request_counts(&self) -> Zeroizing<Vec<u64>> {
        let mut counts = Zeroizing::new(vec![0; self.slots_count()]);
        // Where the run to the right begins, or the dummies do.
        let mut next = self.slots_count() as u64;
        for (i, (run, count)) in self.runs().zip(counts.iter_mut()).enumerate().rev() {
            next = run.real.select_u64(next, i as u64);
            *count = run.first.bits() & (next - i as u64);
            next = run.first.select_u64(i as u64, next);
        }
        counts
    }

    /// Numbers the kept rows, and tells each slot its row's number.
    ///
    /// `kept` is set at the first request of each row that is kept, and at no other request; no more
    /// than `kept_count` are.
    pub(super) fn assign(&self, mut kept: Zeroizing<Vec<Mask>>, kept_count: usize) -> Kept {
        let slots_count = self.slots_count();
        let counts = self.request_counts();
        let mut rows_count = 0;
        let mut position = u64::from(LOST);
        let mut by_slot = Zeroizing::new(Vec::with_capacity(slots_count));
        let mut rows = Zeroizing::new(Vec::with_capacity(slots_count));
        for (i, (run, kept)) in self.runs().zip(kept.iter()).enumerate() {
            let own = kept.select_u64(rows_count, u64::from(LOST));
            position = run.first.select_u64(own, position);
            rows_count += kept.bit();
            let found = run.real.select_u64(position, u64::from(LOST));
            by_slot.push(self.sorted[i] << 32 | found);
            rows.push(self.sorted[i] >> 32 << 32 | counts[i]);
        }
        sort(&mut by_slot, &mut [], 0);
        compact(&mut kept, &mut rows, &mut [], 0);
        let entries = || rows.iter().zip(kept.iter()).take(kept_count);
        Kept {
            ids: collect(entries().map(|(row, is)| is.select_u32((row >> 32) as u32, DUMMY))),
            request_counts: collect(entries().map(|(row, is)| is.select_u32(*row as u32, 0))),
            positions: collect(by_slot.iter().map(|slot| *slot as u32)),
            rows_count,
        }
    }
}

fn collect(values: impl Iterator<Item = u32>) -> Zeroizing<Vec<u32>> {
    Zeroizing::new(values.collect())
}
