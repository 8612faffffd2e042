//! The journal's records: what they are and how their bytes lie.

use hushtable_prg::valgrind::{declassify, mark_public};
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use zeroize::{Zeroize, Zeroizing};

use super::Error;
use super::settled::{self, Settled};
use crate::attempt::{ATTEMPT_BYTES, Attempt};

/// The state at a moment when the cached levels were written to disk.
pub const CHECKPOINT: u32 = 1;
/// A round is about to read: which rows, from which leaves, to which new ones, and where the noise
/// that they are owed comes from.
pub const INTENT: u32 = 2;
/// Some of the rows that a round writes.
pub const ROWS: u32 = 3;
/// The round of the rows before is in force.
pub const COMMIT: u32 = 4;
/// A round is about to draw how many rows it reads: how many rounds ever were, and its number.
pub const BEGUN: u32 = 5;
/// Beside a checkpoint: how the last rounds have ended.
pub const SETTLED: u32 = 6;

/// The most bytes of rows in a record.
pub const ROWS_BYTES_MAX: usize = 64 << 20;

pub struct Checkpoint {
    /// BLAKE3 of the spec.
    pub spec: [u8; 32],
    /// What is served for a lost row.
    pub default_row: Vec<f32>,
    pub evictions: u64,
    /// Rounds that were ever begun.
    pub begun: u64,
    /// Which attempt wrote the buckets, by first eviction.
    pub attempts: Vec<(u64, Attempt)>,
    pub copies: Vec<u64>,
    pub stash: Vec<u8>,
}

/// Bytes of a checkpoint but for its stash, of rows of `dim` numbers.
pub const fn checkpoint_bytes(dim: usize, attempts: usize, copies: usize) -> usize {
    32 + 8 + 4 * dim + 3 * 8 + attempts * (8 + ATTEMPT_BYTES) + 8 + 8 * copies
}

impl Checkpoint {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.spec.to_vec();
        bytes.extend((self.default_row.len() as u64).to_le_bytes());
        bytes.extend(self.default_row.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend(self.evictions.to_le_bytes());
        bytes.extend(self.begun.to_le_bytes());
        bytes.extend((self.attempts.len() as u64).to_le_bytes());
        for (first, attempt) in &self.attempts {
            bytes.extend(first.to_le_bytes());
            bytes.extend(attempt.bytes());
        }
        bytes.extend((self.copies.len() as u64).to_le_bytes());
        bytes.extend(self.copies.iter().flat_map(|word| word.to_le_bytes()));
        bytes.extend(&self.stash);
        bytes
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let mut from = Reader(bytes);
        let mut spec: [u8; 32] = from.take(32)?.try_into().map_err(|_| Error::Record)?;
        // The spec's file is beside it, for all to see.
        mark_public(&mut spec);
        let dim = usize::try_from(from.u64()?).map_err(|_| Error::Record)?;
        let numbers = from.take(dim.checked_mul(4).ok_or(Error::Record)?)?.chunks_exact(4);
        let default_row =
            numbers.map(|b| f32::from_le_bytes(b.try_into().expect("4 bytes"))).collect();
        let evictions = from.u64()?;
        let begun = from.u64()?;
        let mut attempts = Vec::new();
        for _ in 0..from.u64()? {
            let first = from.u64()?;
            let name = from.take(ATTEMPT_BYTES)?.try_into().map_err(|_| Error::Record)?;
            let mut name: [u8; ATTEMPT_BYTES] = name;
            // Drawn at random, of nothing; when attempts began is known to who saw them begin.
            mark_public(&mut name);
            attempts.push((first, Attempt::from_bytes(name)));
        }
        let count = usize::try_from(from.u64()?).map_err(|_| Error::Record)?;
        let words = from.take(count.checked_mul(8).ok_or(Error::Record)?)?;
        let copies =
            words.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        let mut copies: Vec<u64> = copies.collect();
        // Who saw the writes knows which copy of each bucket is the newer.
        mark_public(&mut copies);
        Ok(Self { spec, default_row, evictions, begun, attempts, copies, stash: from.0.to_vec() })
    }
}

/// A row that a round takes out.
#[derive(Clone, Copy, Default, Zeroize)]
pub struct Entry {
    /// The row or a dummy: secret.
    pub id: u32,
    /// The leaf whose path is read: public once it is.
    pub leaf: u32,
    /// Where it goes next: secret.
    pub fresh: u32,
}

/// What a round takes out.
pub struct Intent {
    pub entries: Zeroizing<Vec<Entry>>,
    /// Seeds the noise that the rows are owed. A round that is cut short after its users were served
    /// ends with the noise that they have seen, so the seed is on record with the rows.
    seed: Zeroizing<[u8; 32]>,
}

impl Intent {
    /// An intent to take out these entries, with a fresh seed.
    pub fn new(entries: Zeroizing<Vec<Entry>>) -> Result<Self, Error> {
        let mut seed = Zeroizing::new([0; 32]);
        hushtable_prg::fill_random(&mut seed[..])?;
        Ok(Self { entries, seed })
    }

    /// Where the rows' noise comes from, in their order: the same each time.
    pub fn noise(&self) -> ChaCha20Rng {
        ChaCha20Rng::from_seed(*self.seed)
    }

    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let words = self.entries.iter().flat_map(|e| [e.id, e.leaf, e.fresh]);
        let words = words.flat_map(u32::to_le_bytes);
        Zeroizing::new(self.seed.iter().copied().chain(words).collect())
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let (seed, bytes) = bytes.split_first_chunk().ok_or(Error::Record)?;
        if !bytes.len().is_multiple_of(12) {
            return Err(Error::Record);
        }
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("4 bytes"));
        let entry =
            |b: &[u8]| Entry { id: word(&b[..4]), leaf: word(&b[4..8]), fresh: word(&b[8..]) };
        let entries = Zeroizing::new(bytes.chunks_exact(12).map(entry).collect());
        Ok(Self { entries, seed: Zeroizing::new(*seed) })
    }
}

/// Bytes of an intent to take out so many rows.
pub const fn intent_bytes(rows: usize) -> usize {
    32 + 12 * rows
}

/// Bytes of a round's beginning.
pub const BEGUN_BYTES: usize = 16;

/// How many rounds were begun, and the number of this one.
pub fn begun_to_bytes(begun: u64, number: u64) -> [u8; BEGUN_BYTES] {
    let mut bytes = [0; BEGUN_BYTES];
    bytes[..8].copy_from_slice(&begun.to_le_bytes());
    bytes[8..].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// As [`begun_to_bytes`] has it; an earlier version had no numbers.
pub fn begun_from_bytes(bytes: &[u8]) -> Result<(u64, u64), Error> {
    let mut from = Reader(bytes);
    let begun = from.u64()?;
    let number = if from.is_empty() { 0 } else { from.u64()? };
    if from.is_empty() { Ok((begun, number)) } else { Err(Error::Record) }
}

/// The evictions before and after a round.
pub fn commit_to_bytes(before: u64, after: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&before.to_le_bytes());
    bytes[8..].copy_from_slice(&after.to_le_bytes());
    bytes
}

/// As [`commit_to_bytes`] has it, and how the round has ended, where it has a name.
pub fn commit_from_bytes(bytes: &[u8]) -> Result<(u64, u64, Option<Settled>), Error> {
    let mut from = Reader(bytes);
    let (before, after) = (from.u64()?, from.u64()?);
    let settled = settled::read(&mut from)?;
    let is_sound = before <= after && from.is_empty();
    if is_sound { Ok((before, after, settled)) } else { Err(Error::Record) }
}

/// How the last rounds have ended.
pub fn settled_from_bytes(bytes: &[u8]) -> Result<Vec<Settled>, Error> {
    let mut from = Reader(bytes);
    let mut all = Vec::new();
    while let Some(settled) = settled::read(&mut from)? {
        all.push(settled);
    }
    Ok(all)
}

pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Error> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Error::Record)?;
        self.0 = rest;
        Ok(taken)
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// A count: of numbers in a row, of words, of evictions. All are public.
    pub(super) fn u64(&mut self) -> Result<u64, Error> {
        let mut count = u64::from_le_bytes(self.take(8)?.try_into().expect("8 bytes"));
        declassify(&mut count);
        Ok(count)
    }
}
