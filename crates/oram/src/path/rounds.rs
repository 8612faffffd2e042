//! Whole rounds over Path ORAM+: the baseline with everything of a round but the tree as ours has it.
//!
//! The union, the number of rows that ε-FDP lets a round read, the oblivious position map, the buffer
//! in which users' gradients are added up, the update and the sealing are the same code that a
//! [`Controller`](crate::Controller) runs. So what is left of the ratio between the two is of the tree:
//! paths that are written whenever they are read. A row costs two accesses, one to take it out and one
//! to put it back, and the file is synced after each half. What Path ORAM has no place for is left out: a
//! journal and copies by which a round that a crash cut short would be undone, and freshness of pages.

use std::time::Instant;

use hushtable_prg::valgrind::declassify;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use zeroize::Zeroizing;

use super::{PathError, PathOram, PathShape};
use crate::aggregate::{Aggregate, AggregateSpec, Batch};
use crate::bucket::DUMMY;
use crate::buffer::BufferOram;
use crate::disk::{Counters, Store};
use crate::fdp::{FdpSpec, Mechanism};
use crate::position::PositionMap;
use crate::round::Error;
use crate::seal::Key;
use crate::shape::uniform;
use crate::union::{Loss, Union};

/// Rounds over a table in a Path ORAM.
pub struct PathRounds {
    memory: PathOram,
    position: PositionMap,
    aggregate: Box<dyn Aggregate>,
    key: Key,
    dim: usize,
    random: ChaCha20Rng,
    rounds: u32,
}

/// What a round was, and the microseconds that its steps took.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathRound {
    /// Rows that were read.
    pub k: u64,
    /// Distinct rows that were asked for.
    pub k_union: u64,
    /// The union, and which of it is read.
    pub union_us: u64,
    /// The position map, both times.
    pub position_us: u64,
    /// Taking rows out of the tree, and the sync.
    pub take_us: u64,
    /// The buffer: rows in, rows to users, gradients added, rows out.
    pub buffer_us: u64,
    /// The update.
    pub update_us: u64,
    /// Putting rows back, and the sync.
    pub put_us: u64,
}

impl PathRounds {
    /// A tree of `rows` rows of `dim` numbers in `store`, which `fill` writes.
    ///
    /// # Errors
    ///
    /// As [`PathOram::create`], too little memory.
    pub fn create(
        (rows, dim): (u32, usize),
        key: &Key,
        store: Box<dyn Store>,
        fill: &mut dyn FnMut(u32, &mut [u8]),
    ) -> Result<Self, PathError> {
        let shape = PathShape::new(u64::from(rows), 4 * dim)?;
        let mut seed = [0; 32];
        hushtable_prg::fill_random(&mut seed)?;
        let mut random = ChaCha20Rng::from_seed(seed);
        let leaves: Vec<u32> = (0..rows).map(|_| uniform(shape.leaves(), &mut random)).collect();
        let memory = PathOram::create(shape, key, store, &leaves, fill)?;
        let position = PositionMap::build(&leaves, shape.leaves(), key).map_err(Error::from)?;
        let aggregate =
            AggregateSpec::FedAvg { learning_rate: 1.0 }.build().map_err(Error::from)?;
        Ok(Self {
            memory,
            position,
            aggregate,
            key: key.derive("path rounds"),
            dim,
            random,
            rounds: 0,
        })
    }

    /// The tree's shape.
    pub fn shape(&self) -> &PathShape {
        self.memory.shape()
    }

    /// What the disk has done.
    pub fn counters(&self) -> Counters {
        self.memory.counters()
    }

    /// One round: `ids` asks for a row a slot ([`DUMMY`] for none), `served` is given each slot's row
    /// and `gradient` is what every slot sends back, with weight 1.
    ///
    /// # Errors
    ///
    /// The disk, a spec or ids that cannot be.
    pub fn round(
        &mut self,
        ids: &[u32],
        fdp: &FdpSpec,
        gradient: &[f32],
        served: &mut dyn FnMut(usize, &[u8]),
    ) -> Result<PathRound, PathError> {
        let mut round = PathRound::default();
        let clock = Instant::now();
        let union = Union::new(ids).map_err(Error::from)?;
        let mechanism = Mechanism::new(fdp, ids.len() as u64).map_err(Error::from)?;
        let mut k = mechanism.sample(union.count(), &mut self.random);
        declassify(&mut k);
        (round.k, round.k_union) = (k, union.count());
        let kept =
            union.keep(k as usize, Loss::default(), &mut self.random).map_err(Error::from)?;
        round.union_us = micros(clock);

        let row_bytes = 4 * self.dim;
        let clock = Instant::now();
        let mut buffer =
            BufferOram::new(k as usize, row_bytes, self.dim, &self.key).map_err(Error::from)?;
        round.buffer_us = micros(clock);
        let mut row = Zeroizing::new(vec![0; row_bytes]);
        let fresh = self.exchange(&kept.ids, &mut round)?;
        let clock = Instant::now();
        let mut inserting_us = 0;
        for (rank, (&id, &(leaf, fresh))) in kept.ids.iter().zip(fresh.iter()).enumerate() {
            row.fill(0);
            self.memory.access(id, leaf, fresh, &mut |payload| row.copy_from_slice(payload))?;
            let clock = Instant::now();
            buffer.insert(rank as u32, &row).map_err(Error::from)?;
            inserting_us += micros(clock);
        }
        self.memory.sync()?;
        round.take_us = micros(clock) - inserting_us;
        round.buffer_us += inserting_us;

        let clock = Instant::now();
        for (slot, &rank) in kept.positions.iter().enumerate() {
            buffer.row(rank, &mut row).map_err(Error::from)?;
            served(slot, &row);
        }
        for &rank in kept.positions.iter() {
            buffer.add(rank, gradient, 1.0).map_err(Error::from)?;
        }
        let mut rows = Zeroizing::new(Vec::with_capacity(k as usize * self.dim));
        let mut sums = Zeroizing::new(Vec::with_capacity(k as usize * self.dim));
        let mut weights = Zeroizing::new(Vec::with_capacity(k as usize));
        let drained = buffer.drain(|row| {
            let words = row.row.as_chunks::<4>().0;
            rows.extend(words.iter().map(|&word| f32::from_le_bytes(word)));
            sums.extend_from_slice(row.gradient);
            weights.push(row.weight);
        });
        drained.map_err(Error::from)?;
        round.buffer_us += micros(clock);

        let clock = Instant::now();
        self.rounds += 1;
        let mut batch = Batch {
            dim: self.dim,
            round: self.rounds,
            rows: &mut rows,
            state: &mut [],
            sums: &sums,
            weights: &weights,
            noise: &mut self.random,
        };
        self.aggregate.post(&mut batch).map_err(Error::from)?;
        round.update_us = micros(clock);

        let fresh = self.exchange(&kept.ids, &mut round)?;
        let clock = Instant::now();
        for ((&id, &(leaf, fresh)), row) in
            kept.ids.iter().zip(fresh.iter()).zip(rows.chunks_exact(self.dim))
        {
            self.memory.access(id, leaf, fresh, &mut |payload| {
                for (bytes, number) in payload.chunks_exact_mut(4).zip(row) {
                    bytes.copy_from_slice(&number.to_le_bytes());
                }
            })?;
        }
        self.memory.sync()?;
        round.put_us = micros(clock);
        Ok(round)
    }

    /// Moves the rows to new leaves: the old and the new one of each.
    fn exchange(
        &mut self,
        ids: &[u32],
        round: &mut PathRound,
    ) -> Result<Zeroizing<Vec<(u32, u32)>>, PathError> {
        let clock = Instant::now();
        let leaves = self.memory.shape().leaves();
        let mut moved = Zeroizing::new(Vec::with_capacity(ids.len()));
        for &id in ids {
            let fresh = uniform(leaves, &mut self.random);
            let mut leaf = self.position.exchange(id, fresh).map_err(Error::from)?;
            // Reading its path tells it.
            declassify(&mut leaf);
            moved.push((leaf, fresh));
        }
        round.position_us += micros(clock);
        Ok(moved)
    }
}

/// Whether an id is that of no row.
pub(super) fn is_dummy(id: u32) -> crate::oblivious::Mask {
    crate::oblivious::Mask::equal(u64::from(id), u64::from(DUMMY))
}

fn micros(clock: Instant) -> u64 {
    u64::try_from(clock.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use rand::RngExt;

    use super::*;
    use crate::disk::MemoryStore;

    #[test]
    fn rounds_are_those_of_a_plain_table() {
        let (rows, dim) = (600_u32, 16);
        let shape = PathShape::new(u64::from(rows), 4 * dim).unwrap();
        let store = Box::new(MemoryStore::new(shape.pages() as usize));
        let key = Key::from_bytes([2; 32]);
        let fill = &mut |row: u32, to: &mut [u8]| {
            to.chunks_exact_mut(4).for_each(|bytes| {
                bytes.copy_from_slice(&(row as f32).to_le_bytes());
            });
        };
        let mut memory = PathRounds::create((rows, dim), &key, store, fill).unwrap();
        let mut plain: Vec<f32> = (0..rows).map(|row| row as f32).collect();
        let mut random = ChaCha20Rng::seed_from_u64(3);
        let gradient = vec![0.5; dim];
        // As many reads as requests, and no row is lost.
        let fdp = FdpSpec { epsilon: 0.0, ..FdpSpec::default() };
        for _ in 0..20 {
            let ids: Vec<u32> = (0..50).map(|_| random.random_range(0..rows / 10)).collect();
            let before = memory.counters().written_bytes;
            let round = memory
                .round(&ids, &fdp, &gradient, &mut |slot, row| {
                    let expected = plain[ids[slot] as usize].to_le_bytes();
                    assert!(row.chunks_exact(4).all(|bytes| bytes == expected));
                })
                .unwrap();
            let mut asked = ids.clone();
            asked.sort_unstable();
            asked.dedup();
            assert_eq!((round.k, round.k_union), (50, asked.len() as u64));
            asked.iter().for_each(|&row| plain[row as usize] -= 0.5);
            // Two paths a row that is read, whether a dummy or not.
            let written = memory.counters().written_bytes - before;
            assert_eq!(written, 50 * shape.written_bytes_per_request());
        }
    }
}
