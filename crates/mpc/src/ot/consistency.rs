//! That a receiver chose by the same bits in every tree (Roy, "SoftSpokenOT", CRYPTO 2022, against malicious
//! receivers: a linear universal hash of the receiver's bits and of its labels, which the sender compares with that of its
//! own labels).
//!
//! **What is compared.** Take a batch's labels as a matrix of a row a label and a column a bit. With u the column of the
//! receiver's bits, V its labels and W the sender's, column c of W is that of V, plus u where bit c of Δ is set. Three
//! sums Σ f · x over GF(2^64), of a column's words x of 64 bits and factors f that nobody chose, keep that: R is that map
//! to 192 bits. The receiver sends R·u and a hash of R·V; the sender takes R·u off its own R·W where Δ is set, and compares
//! the hash. So that R·u says nothing of u, [`BLIND`] labels more are made, by bits that are the first tree's own and so
//! uniform to the sender, and added to the sums; they are used for nothing else.
//!
//! **In one pass.** A tile's factors are drawn once its corrections are fixed, and those of all tiles before it. At the end,
//! when the corrections of what hides the sums are fixed too, the three sums are summed once more by factors of their own,
//! and then hidden: else who lies would choose those last corrections by the sums.
//!
//! **Whose factors.** They follow from a hash of the setup, of the batch's number and of its corrections so far (Fiat and
//! Shamir): no message and no turn more, and a step that is repeated gives the same bytes again. A receiver can then try
//! corrections until the factors suit it, without the sender. What it would have to find is that R gives 0 for a column
//! that is not 0: 2^-192 for each, and fewer than 2^24 columns are of use to it (the differences of what its 32 trees give
//! under two of the 16 paths that a tree may have at the sender). So a try succeeds with 2^-168, and 2^128 hashes with
//! 2^-40: the soundness is computational, in the random oracle model.
//!
//! **What a receiver that lies gets.** Lies in a tree change the sender's labels by what Δ's four bits there are, and the
//! answer is accepted for one guess of them: 2^-4 a tree, and then the receiver knows those bits, as in the paper
//! (2^-3 of the first tree, where the lowest bit of Δ is fixed). The sums of a setup are not checked by themselves, so a
//! receiver may instead give a tree leaves that agree for some of the 16 paths alone, and is accepted for those: the bits
//! that it learns are worth just what the risk was, 2^-b for b bits. So who gets all labels of a precompute accepted has Δ
//! to guess still, or was lucky 128 bits' worth. Once a batch was refused the sender takes no other under its Δ
//! ([`CotSender`](super::CotSender)), so that nobody tries twice. It says nothing of *which* bits were chosen.

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

use crate::kernel::sums::{self, Factors, SUMS, Sums, WORDS};
use crate::kernel::transpose::{ROW, ROWS, Row, TILE};
use crate::{Block, LANES, Platform};

/// Labels of a batch that hide the sums of the others.
pub(super) const BLIND: usize = 64 * SUMS;
/// Bytes of what shows that a batch's corrections agree, which follows them.
pub const ANSWER_BYTES: usize = 8 * SUMS + 32;

/// Columns of labels, and that of the choices.
const COLUMNS: usize = ROWS + 1;

/// An element of GF(2^64) for each sum.
pub(super) type Hashed = [u64; SUMS];

/// A batch that is being hashed, tile by tile.
pub(super) struct Hashing {
    platform: Platform,
    corrections: blake3::Hasher,
    /// Groups of labels that are still to come, before those that hide the sums.
    groups: usize,
    sums: Zeroizing<[Sums; COLUMNS]>,
    /// Groups of those that hide the sums, so far.
    hidden: usize,
    blind: Zeroizing<[[u16; BLIND / LANES]; COLUMNS]>,
    /// Room for some columns that are cut.
    rows: Zeroizing<[Row; COLUMNS]>,
}

impl Hashing {
    /// Of a setup and a batch of so many labels.
    pub(super) fn new(
        platform: Platform,
        transcript: &[u8; 32],
        batch: u64,
        labels: usize,
    ) -> Self {
        let mut key = blake3::Hasher::new_derive_key("hushtable transfer challenge v1");
        key.update(transcript).update(&batch.to_le_bytes()).update(&(labels as u64).to_le_bytes());
        // As a key, so that tiles are whole chunks of the hash, which are hashed beside each other.
        let corrections = blake3::Hasher::new_keyed(key.finalize().as_bytes());
        Self {
            platform,
            corrections,
            groups: labels / LANES,
            sums: Zeroizing::new([[0; SUMS]; COLUMNS]),
            hidden: 0,
            blind: Zeroizing::new([[0; BLIND / LANES]; COLUMNS]),
            rows: Zeroizing::new([[0; ROW]; COLUMNS]),
        }
    }

    /// Takes a tile: its labels' columns, the choices (zeros at the sender), and the corrections, of whole groups.
    pub(super) fn tile(&mut self, columns: &[Row; ROWS], choices: &Row, corrections: &[u8]) {
        self.corrections.update(corrections);
        let now = self.groups.min(TILE / LANES);
        self.groups -= now;
        if now == TILE / LANES {
            let factors = factors(&self.corrections, TILES);
            let (sums, own) = self.sums.split_at_mut(ROWS);
            sums::add(self.platform, columns, &factors, sums);
            sums::add(self.platform, std::slice::from_ref(choices), &factors, own);
            return;
        }
        let columns = columns.iter().chain([choices]);
        if now > 0 {
            for (row, column) in self.rows.iter_mut().zip(columns.clone()) {
                *row = *column;
                cut(row, now);
            }
            let factors = factors(&self.corrections, TILES);
            sums::add(self.platform, &*self.rows, &factors, &mut *self.sums);
        }
        let first = self.hidden;
        let more = (TILE / LANES - now).min(BLIND / LANES - first);
        for (blind, column) in self.blind.iter_mut().zip(columns) {
            for (place, group) in blind[first..first + more].iter_mut().zip(now..) {
                *place = group_of(column, group);
            }
        }
        self.hidden += more;
    }

    /// The hashes of the batch.
    pub(super) fn finish(mut self) -> Hashes {
        let factors = factors(&self.corrections, END);
        for (row, sums) in self.rows.iter_mut().zip(self.sums.iter()) {
            *row = [0; ROW];
            let [x, y, z] = sums.map(|sum| u128::from(sums::reduce(sum)));
            (row[0], row[1]) = (x | y << 64, z);
        }
        *self.sums = [[0; SUMS]; COLUMNS];
        sums::add(self.platform, &*self.rows, &factors, &mut *self.sums);
        let hashed = |column: usize| -> Hashed {
            let (blind, _) = self.blind[column].as_chunks::<4>();
            let word = |four: &[u16; 4]| {
                four.iter().rev().fold(0, |word, group| word << 16 | u64::from(*group))
            };
            std::array::from_fn(|sum| sums::reduce(self.sums[column][sum]) ^ word(&blind[sum]))
        };
        let (choices, columns) = (hashed(ROWS), std::array::from_fn(hashed));
        let mut key: [u8; 32] = self.corrections.finalize().into();
        // Likewise.
        hushtable_prg::valgrind::mark_public(&mut key);
        Hashes { key, choices, columns: Zeroizing::new(columns) }
    }
}

/// Where the factors of a tile are in what the corrections hash to, and those of the end. The key is before them.
const TILES: u64 = 64;
const END: u64 = TILES + FACTORS_BYTES as u64;
const FACTORS_BYTES: usize = 8 * SUMS * WORDS;

/// Factors that follow from the corrections so far.
fn factors(corrections: &blake3::Hasher, position: u64) -> Factors {
    let mut bytes = [0; FACTORS_BYTES];
    let mut reader = corrections.finalize_xof();
    reader.set_position(position);
    reader.fill(&mut bytes);
    // Made of what is sent: kernels use them as addresses.
    hushtable_prg::valgrind::mark_public(&mut bytes);
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|sum| {
        std::array::from_fn(|word| u64::from_le_bytes(words[WORDS * sum + word]))
    })
}

/// The hashes of a batch.
pub(super) struct Hashes {
    /// Of all corrections.
    key: [u8; 32],
    /// Of the choices; of no use at the sender.
    pub(super) choices: Hashed,
    /// Of each column of the labels.
    pub(super) columns: Zeroizing<[Hashed; ROWS]>,
}

impl Hashes {
    /// What the receiver sends.
    pub(super) fn answer(&self) -> [u8; ANSWER_BYTES] {
        let mut answer = [0; ANSWER_BYTES];
        let (choices, hash) = answer.split_at_mut(8 * SUMS);
        for (bytes, word) in choices.chunks_exact_mut(8).zip(&self.choices) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        hash.copy_from_slice(&self.hash());
        answer
    }

    /// Whether the receiver's answer is that of `delta`.
    pub(super) fn accepts(mut self, delta: Block, answer: &[u8; ANSWER_BYTES]) -> bool {
        let (choices, hash) = answer.split_at(8 * SUMS);
        let (choices, _) = choices.as_chunks();
        for (bit, column) in self.columns.iter_mut().enumerate() {
            let mask = super::spread(delta, bit) as u64;
            for (word, choices) in column.iter_mut().zip(choices) {
                *word ^= u64::from_le_bytes(*choices) & mask;
            }
        }
        let mut is_same = [self.hash().ct_eq(hash).unwrap_u8()];
        // Whether a session goes on shows.
        hushtable_prg::valgrind::mark_public(&mut is_same);
        is_same == [1]
    }

    /// A hash of the columns' hashes.
    fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("hushtable transfer answer v1");
        hasher.update(&self.key);
        let mut bytes = Zeroizing::new([0; 8 * SUMS * ROWS]);
        let words = self.columns.as_flattened();
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        hasher.update(&*bytes);
        let hash = hasher.finalize().into();
        hasher.zeroize();
        hash
    }
}

/// A row of choices, zeros after the last.
pub(super) fn pack(choices: &[u16], row: &mut Row) {
    *row = [0; ROW];
    for (block, choices) in row.iter_mut().zip(choices.chunks(8)) {
        for (i, choice) in choices.iter().enumerate() {
            *block |= u128::from(*choice) << (16 * i);
        }
    }
}

/// A group's bits.
pub(super) fn group_of(row: &Row, group: usize) -> u16 {
    (row[group / 8] >> (16 * (group % 8))) as u16
}

/// Zeros after so many groups.
fn cut(row: &mut Row, groups: usize) {
    if let Some((block, rest)) = row[groups / 8..].split_first_mut() {
        *block &= (1 << (16 * (groups % 8))) - 1;
        rest.fill(0);
    }
}
