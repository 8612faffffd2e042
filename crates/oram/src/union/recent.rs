//! When rows were read last: for rounds that keep those first which were never read, or longest ago
//! (FEDORA 4.2, "previously unseen").

use zeroize::Zeroizing;

use super::{Union, UnionError, keep::Kept};
use crate::memory::MemoryError;
use crate::oblivious::Mask;
use crate::position::PositionMap;
use crate::seal::Key;
use rand::CryptoRng;

/// Values of the map are below this, as leaves are.
const ROUNDS_MAX: u32 = 1 << 31;

/// The round in which each row was read last, since this was made. **Secret**, all of it.
///
/// It is a map as the positions are one: as many bytes of memory, and two exchanges for each request
/// slot of a round, whatever they ask for. It is not on the disk: made again, no row has been read.
pub struct LastReads {
    map: PositionMap,
    round: u32,
}

/// What [`LastReads::of`] found, for the slots of a union in its own order.
pub struct Found {
    /// At a row's first request its id, [`DUMMY`](super::DUMMY) at every other request.
    ids: Zeroizing<Vec<u32>>,
    /// The round in which it was read last; 0 for never.
    rounds: Zeroizing<Vec<u32>>,
}

impl LastReads {
    /// Of as many rows, none of which was read.
    ///
    /// # Errors
    /// As of [`PositionMap::build`].
    pub fn new(rows: usize, key: &Key) -> Result<Self, MemoryError> {
        let key = key.derive("hushtable oram last reads");
        let never = Zeroizing::new(vec![0; rows]);
        Ok(Self { map: PositionMap::build(&never, ROUNDS_MAX, &key)?, round: 0 })
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> usize {
        self.map.memory_bytes()
    }

    /// Begins a round: when each row of the union was read last.
    ///
    /// # Errors
    /// Of the map. Make another one then.
    pub fn of(&mut self, union: &Union) -> Result<Found, MemoryError> {
        // Rounds of one process; it takes 2^31 of them to stand still.
        self.round = (self.round + 1).min(ROUNDS_MAX - 1);
        let ids = union.firsts();
        let mut rounds = Zeroizing::new(Vec::with_capacity(ids.len()));
        for &id in ids.iter() {
            rounds.push(self.map.exchange(id, 0)?);
        }
        Ok(Found { ids, rounds })
    }

    /// Keeps `kept_count` rows of the union, those first that were read longest ago or never; between
    /// equals, and from 65,535 rounds on, at random. What [`of`](Self::of) found is used up.
    ///
    /// # Errors
    /// A number of rows that the union refuses, before anything is done.
    pub fn keep(
        &self,
        union: &Union,
        found: &Found,
        kept_count: usize,
        random: &mut (impl CryptoRng + ?Sized),
    ) -> Result<(Kept, Zeroizing<Vec<Mask>>), UnionError> {
        let rank = |at: usize| {
            let age = u64::from(self.round.wrapping_sub(found.rounds[at]));
            AGE_MAX.wrapping_sub(Mask::less(age, AGE_MAX).select_u64(age, AGE_MAX))
        };
        union.keep_by(kept_count, random, |at, _, chance| {
            // 16 bits of age, 27 of chance, 21 of the slot.
            rank(at) << 48 | chance >> 37 << 21
        })
    }

    /// Ends the round: the rows that were kept were read in it, the others as found.
    ///
    /// # Errors
    /// Of the map. Make another one then.
    pub fn mark(&mut self, found: &Found, kept: &[Mask]) -> Result<(), MemoryError> {
        for ((&id, &before), kept) in found.ids.iter().zip(found.rounds.iter()).zip(kept) {
            self.map.exchange(id, kept.select_u32(self.round, before))?;
        }
        Ok(())
    }
}

/// Rounds that are told apart.
const AGE_MAX: u64 = (1 << 16) - 1;

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use rand::{Rng as _, SeedableRng as _};
    use rand_chacha::ChaCha20Rng;

    use super::super::{DUMMY, Union, UnionError};
    use super::LastReads;
    use crate::seal::Key;

    fn key() -> Key {
        Key::from_bytes([7; 32])
    }

    /// Against a plain map of what each row was last read in.
    #[test]
    fn rows_read_longest_ago_are_kept_first() {
        let mut random = ChaCha20Rng::seed_from_u64(11);
        let mut reads = LastReads::new(40, &key()).unwrap();
        let mut plain = BTreeMap::<u32, u32>::new();
        let mut cut = 0;
        for round in 1..200 {
            let slots = 2 + random.next_u32() as usize % 20;
            let slot = |at| if at == 0 { 3 } else { random.next_u32() % 48 };
            // Ids from 40 on stand for padding.
            let ids: Vec<u32> =
                (0..slots).map(slot).map(|id| if id < 40 { id } else { DUMMY }).collect();
            let asked: BTreeSet<u32> = ids.iter().copied().filter(|&id| id != DUMMY).collect();
            let kept_count = 1 + random.next_u32() as usize % slots;
            let union = Union::new(&ids).unwrap();
            let found = reads.of(&union).unwrap();
            let (kept, masks) = reads.keep(&union, &found, kept_count, &mut random).unwrap();
            reads.mark(&found, &masks).unwrap();
            let rows: BTreeSet<u32> = kept.ids.iter().copied().filter(|&id| id != DUMMY).collect();
            assert_eq!(rows.len(), kept_count.min(asked.len()));
            let last = |id: &u32| plain.get(id).copied().unwrap_or(0);
            let newest_kept = rows.iter().map(last).max().unwrap_or(0);
            let oldest_lost = asked.difference(&rows).map(last).min();
            assert!(oldest_lost.is_none_or(|lost| lost >= newest_kept), "round {round}");
            cut += usize::from(oldest_lost.is_some());
            plain.extend(rows.into_iter().map(|id| (id, round)));
        }
        assert!(cut > 50, "{cut} rounds lost rows");
    }

    #[test]
    fn rows_never_read_are_kept_with_the_same_chance() {
        let mut kept_counts = BTreeMap::new();
        let mut random = ChaCha20Rng::seed_from_u64(3);
        const ROUNDS: u32 = 1_000;
        for _ in 0..ROUNDS {
            let mut reads = LastReads::new(12, &key()).unwrap();
            let union = Union::new(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]).unwrap();
            let found = reads.of(&union).unwrap();
            for id in reads.keep(&union, &found, 3, &mut random).unwrap().0.ids.iter() {
                *kept_counts.entry(*id).or_insert(0u32) += 1;
            }
        }
        let deviation = (f64::from(ROUNDS) * 0.25 * 0.75).sqrt();
        assert_eq!(kept_counts.len(), 12);
        for (id, count) in kept_counts {
            let off = (f64::from(count) - f64::from(ROUNDS) / 4.0).abs();
            assert!(off < 5.0 * deviation, "row {id} was kept {count} times");
        }
    }

    #[test]
    fn a_count_out_of_range_is_refused() {
        let mut random = ChaCha20Rng::seed_from_u64(3);
        let mut reads = LastReads::new(12, &key()).unwrap();
        let union = Union::new(&[1, 2]).unwrap();
        let found = reads.of(&union).unwrap();
        let error = reads.keep(&union, &found, 3, &mut random).err();
        assert_eq!(error, Some(UnionError::KeptCount { kept_count: 3, slots_count: 2 }));
    }
}
