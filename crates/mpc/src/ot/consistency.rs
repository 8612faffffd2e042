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
//! **Whose factors.** They follow from a hash of the setup, of the batch's number and of all its corrections (Fiat and
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

use blake3::OutputReader;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::kernel::sums::{self, Factors, SUMS, Sums};
use crate::kernel::transpose::{ROW, ROWS, Row, TILE, transpose};
use crate::{Block, Platform};

/// Labels of a batch that hide the sums of the others.
pub(super) const BLIND: usize = 64 * SUMS;
/// Bytes of what shows that a batch's corrections agree, which follows them.
pub const ANSWER_BYTES: usize = 8 * SUMS + 32;

/// An element of GF(2^64) for each sum.
pub(super) type Hashed = [u64; SUMS];

/// What both parties hash a batch by.
pub(super) struct Challenge {
    key: [u8; 32],
    factors: OutputReader,
}

impl Challenge {
    /// Of a setup, a batch's number and its corrections.
    pub(super) fn new(transcript: &[u8; 32], batch: u64, corrections: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("hushtable transfer challenge v1");
        hasher.update(transcript).update(&batch.to_le_bytes()).update(corrections);
        let (mut key, mut factors) = ([0; 32], hasher.finalize_xof());
        factors.fill(&mut key);
        // It was made of what is sent.
        hushtable_prg::valgrind::mark_public(&mut key);
        Self { key, factors }
    }

    /// The factors of the next tile.
    pub(super) fn next(&mut self) -> Factors {
        let mut factors = [[0; _]; SUMS];
        for words in factors.as_flattened_mut().chunks_mut(64 / 8) {
            let mut bytes = [0; 64];
            self.factors.fill(&mut bytes);
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        }
        // Likewise: kernels use them as addresses.
        hushtable_prg::valgrind::mark_public(factors.as_flattened_mut());
        factors
    }
}

/// The hashes of a batch.
pub(super) struct Hashes {
    /// Of the choices; zeros at the sender.
    pub(super) choices: Hashed,
    /// Of each column of the labels.
    pub(super) columns: Zeroizing<[Hashed; ROWS]>,
}

impl Hashes {
    /// Of labels and of the choices that they were made by, where those are known; `blind` and `blind_choices` hide them.
    pub(super) fn new(
        platform: Platform,
        challenge: &mut Challenge,
        labels: &[Block],
        choices: &[u16],
        blind: &[Block; BLIND],
        blind_choices: &[u16; BLIND / 16],
    ) -> Self {
        let mut sums: Zeroizing<[Sums; ROWS + 1]> = Zeroizing::new([[0; SUMS]; ROWS + 1]);
        let mut rows = Zeroizing::new([[0; ROW]; ROWS + 1]);
        for (tile, labels) in labels.chunks(TILE).enumerate() {
            turn(platform, labels, &mut rows);
            let start = choices.len().min(tile * TILE / 16);
            pack(&choices[start..choices.len().min(start + TILE / 16)], &mut rows[ROWS]);
            sums::add(platform, &*rows, &challenge.next(), &mut *sums);
        }
        turn(platform, blind, &mut rows);
        pack(blind_choices, &mut rows[ROWS]);
        let hashed = |column: usize| {
            let words: [u64; SUMS] =
                std::array::from_fn(|word| (rows[column][word / 2] >> (64 * (word % 2))) as u64);
            std::array::from_fn(|sum| sums::reduce(sums[column][sum]) ^ words[sum])
        };
        Self { choices: hashed(ROWS), columns: Zeroizing::new(std::array::from_fn(hashed)) }
    }

    /// What the receiver sends.
    pub(super) fn answer(&self, challenge: &Challenge) -> [u8; ANSWER_BYTES] {
        let mut answer = [0; ANSWER_BYTES];
        let (choices, hash) = answer.split_at_mut(8 * SUMS);
        for (bytes, word) in choices.chunks_exact_mut(8).zip(&self.choices) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        hash.copy_from_slice(&self.hash(challenge));
        answer
    }

    /// Whether the receiver's answer is that of `delta`.
    pub(super) fn accepts(
        mut self,
        challenge: &Challenge,
        delta: Block,
        answer: &[u8; ANSWER_BYTES],
    ) -> bool {
        let (choices, hash) = answer.split_at(8 * SUMS);
        let (choices, _) = choices.as_chunks();
        for (bit, column) in self.columns.iter_mut().enumerate() {
            let mask = super::spread(delta, bit) as u64;
            for (word, choices) in column.iter_mut().zip(choices) {
                *word ^= u64::from_le_bytes(*choices) & mask;
            }
        }
        let mut is_same = [self.hash(challenge).ct_eq(hash).unwrap_u8()];
        // Whether a session goes on shows.
        hushtable_prg::valgrind::mark_public(&mut is_same);
        is_same == [1]
    }

    /// A hash of the columns' hashes.
    fn hash(&self, challenge: &Challenge) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key("hushtable transfer answer v1");
        hasher.update(&challenge.key);
        let mut bytes = Zeroizing::new([0; 8 * SUMS * ROWS]);
        let words = self.columns.as_flattened();
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        hasher.update(&*bytes);
        let hash = hasher.finalize().into();
        zeroize::Zeroize::zeroize(&mut hasher);
        hash
    }
}

/// The columns of at most a tile's labels as rows, zeros after the last: the reverse of [`transpose`], by which each square
/// of 128 labels turns to one of 128 columns.
fn turn(platform: Platform, labels: &[Block], rows: &mut [Row; ROWS + 1]) {
    let (rows, _) = rows.split_first_chunk_mut().expect("a row more");
    let mut turned = Zeroizing::new([0; TILE]);
    for (block, labels) in labels.chunks(ROWS).enumerate() {
        for (label, row) in labels.iter().chain(std::iter::repeat(&0)).zip(&mut *rows) {
            row[block] = *label;
        }
    }
    let blocks = labels.len().div_ceil(ROWS);
    rows.iter_mut().for_each(|row| row[blocks..].fill(0));
    transpose(platform, rows, &mut turned);
    for (block, turned) in turned.chunks_exact(ROWS).enumerate() {
        for (column, row) in turned.iter().zip(&mut *rows) {
            row[block] = *column;
        }
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
