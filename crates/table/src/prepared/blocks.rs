//! Which blocks of a file are done.

use super::file::Hash;

/// Which blocks are done, and the hash of each.
pub(super) struct Blocks {
    hashes: Vec<Hash>,
    /// A bit a block.
    done: Vec<u64>,
    done_count: u32,
    /// Those of them that the journal does not know of yet, in the order they came.
    pending: Vec<u32>,
}

/// The state of a block that the journal lists as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// It is done now.
    New,
    /// It was done, with the same hash.
    Again,
    /// It was done, with this other hash.
    Otherwise(Hash),
    /// There is no such block.
    Nowhere,
}

impl Blocks {
    /// None of `count` blocks done.
    pub(super) fn new(count: u32) -> Self {
        let count = count as usize;
        let done = vec![0; count.div_ceil(64)];
        // Zeroed pages cost nothing until they are written.
        Self { hashes: vec![[0; 32]; count], done, done_count: 0, pending: Vec::new() }
    }

    /// Takes a block as done; the journal is still to hear of it if it is new.
    pub(super) fn record(&mut self, block: u32, hash: Hash) -> Recorded {
        let recorded = self.restore(block, hash);
        if recorded == Recorded::New {
            self.pending.push(block);
        }
        recorded
    }

    /// Takes a block as done, as the journal says.
    pub(super) fn restore(&mut self, block: u32, hash: Hash) -> Recorded {
        let Some(known) = self.hashes.get_mut(block as usize) else { return Recorded::Nowhere };
        let (word, bit) = (&mut self.done[block as usize / 64], 1 << (block % 64));
        if *word & bit != 0 {
            return if *known == hash { Recorded::Again } else { Recorded::Otherwise(*known) };
        }
        *word |= bit;
        *known = hash;
        self.done_count += 1;
        Recorded::New
    }

    pub(super) fn is_done(&self, block: u32) -> bool {
        self.done.get(block as usize / 64).is_some_and(|word| word >> (block % 64) & 1 != 0)
    }

    pub(super) fn done_count(&self) -> u32 {
        self.done_count
    }

    pub(super) fn is_whole(&self) -> bool {
        self.done_count as usize == self.hashes.len()
    }

    /// The hash of every block, zero for those that are not done.
    pub(super) fn hashes(&self) -> &[Hash] {
        &self.hashes
    }

    /// The blocks that are done, and their hashes.
    pub(super) fn done(&self) -> impl Iterator<Item = (u32, Hash)> + '_ {
        let hashes = (0..).zip(&self.hashes);
        hashes.filter(|&(block, _)| self.is_done(block)).map(|(block, hash)| (block, *hash))
    }

    /// The blocks that the journal does not know of; from now on it is taken to.
    pub(super) fn take_pending(&mut self) -> Vec<(u32, Hash)> {
        let pending = std::mem::take(&mut self.pending);
        pending.into_iter().map(|block| (block, self.hashes[block as usize])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_done_once_and_journalled_once() {
        let mut blocks = Blocks::new(130);
        assert_eq!(blocks.record(129, [1; 32]), Recorded::New);
        assert_eq!(blocks.record(129, [1; 32]), Recorded::Again);
        assert_eq!(blocks.record(129, [2; 32]), Recorded::Otherwise([1; 32]));
        assert_eq!(blocks.record(130, [1; 32]), Recorded::Nowhere);
        assert_eq!(blocks.restore(64, [3; 32]), Recorded::New);
        assert_eq!(blocks.take_pending(), [(129, [1; 32])]);
        assert_eq!(blocks.take_pending(), []);
        let done: Vec<_> = (0..200).filter(|&block| blocks.is_done(block)).collect();
        assert_eq!(done, [64, 129]);
        assert_eq!((blocks.done_count(), blocks.is_whole()), (2, false));
        for block in 0..130 {
            blocks.restore(block, [0; 32]);
        }
        assert!(blocks.is_whole());
        assert_eq!(blocks.hashes()[64], [3; 32]);
    }
}
