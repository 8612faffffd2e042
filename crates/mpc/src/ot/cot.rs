//! Any number of transfers from one setup.

use std::sync::atomic::{AtomicBool, Ordering};

use zeroize::{Zeroize, Zeroizing};

use super::consistency::{ANSWER_BYTES, BLIND, Hashes, Hashing, group_of, pack};
use super::{Error, check_length, spread};
use crate::kernel::transpose::{DEPTH, LEAVES, ROW, ROWS, Row, Streams, TILE, TREES, transpose};
use crate::{Block, LANES, Platform};

/// First bytes of what is kept: party and version.
const RECEIVER: u8 = 0x41;
const SENDER: u8 = 0x51;
/// Bytes of all leaves.
const LEAVES_BYTES: usize = TREES * LEAVES * 16;

/// Bytes of what is sent for so many labels, a multiple of 16: corrections of these and of those that hide them, and what
/// shows that they agree. Nothing for none.
pub fn correction_bytes(labels: usize) -> usize {
    match labels {
        0 => 0,
        _ => raw_bytes(labels + BLIND) + ANSWER_BYTES,
    }
}

/// Bytes of the corrections alone.
fn raw_bytes(labels: usize) -> usize {
    labels / 8 * TREES
}

/// Who has choice bits, and gets the label of each pair that its bit chooses.
pub struct CotReceiver {
    nonces: Nonces,
    transcript: [u8; 32],
    leaves: Zeroizing<Vec<u128>>,
}

impl CotReceiver {
    pub(super) fn new(
        session: &[u8; 32],
        transcript: &[u8; 32],
        leaves: Zeroizing<Vec<u128>>,
    ) -> Self {
        Self { nonces: Nonces::new(session), transcript: *transcript, leaves }
    }

    /// Chooses, and gives the corrections to send with what shows that they agree ([`correction_bytes`]): `choices` has
    /// the bits of 16 labels each, the lowest bit the first's. **A batch number is used for one set of choices only.**
    ///
    /// # Panics
    /// Unless `labels` are 16 for each of `choices`.
    pub fn extend(
        &self,
        platform: Platform,
        batch: u64,
        choices: &[u16],
        labels: &mut [Block],
    ) -> Vec<u8> {
        assert_eq!(choices.len() * LANES, labels.len(), "a choice for each label");
        let Some((mut message, hashes)) = self.choose(platform, batch, choices, labels) else {
            return Vec::new();
        };
        message.extend(hashes.answer());
        message
    }

    /// The corrections, and what the answer is made of; nothing where there are no labels.
    pub(super) fn choose(
        &self,
        platform: Platform,
        batch: u64,
        choices: &[u16],
        labels: &mut [Block],
    ) -> Option<(Vec<u8>, Hashes)> {
        if labels.is_empty() {
            return None;
        }
        let mut corrections = Vec::with_capacity(correction_bytes(labels.len()));
        corrections.resize(raw_bytes(labels.len() + BLIND), 0);
        let mut hashing = Hashing::new(platform, &self.transcript, batch, labels.len());
        let mut places = corrections.chunks_mut(raw_bytes(TILE));
        let mut left = choices;
        self.expand(platform, batch, labels, BLIND, |rows, sums| {
            let Some(place) = places.next() else { return };
            let mut chosen = Zeroizing::new([0; TILE / LANES]);
            let groups = place.len() / raw_bytes(LANES);
            let now;
            (now, left) = left.split_at(left.len().min(groups));
            chosen[..now.len()].copy_from_slice(now);
            // What hides the others is chosen by the first tree's own bits.
            for (group, choice) in (now.len()..groups).zip(&mut chosen[now.len()..]) {
                *choice = group_of(&sums[0], group);
            }
            let mut bits = Zeroizing::new([0; ROW]);
            pack(&chosen[..groups], &mut bits);
            for (place, sum) in place.chunks_exact_mut(2 * groups).zip(sums) {
                correction(sum, &bits, place);
            }
            hashing.tile(rows, &bits, place);
        });
        Some((corrections, hashing.finish()))
    }

    /// The labels of a batch again.
    ///
    /// # Panics
    /// Unless `labels` are a multiple of 16.
    pub fn labels(&self, platform: Platform, batch: u64, labels: &mut [Block]) {
        self.expand(platform, batch, labels, 0, |_, _| {});
    }

    /// Makes labels, and gives `correct` their columns and the sums of each tree's leaves, tile by tile, with those of so
    /// many labels more.
    fn expand(
        &self,
        platform: Platform,
        batch: u64,
        labels: &mut [Block],
        more: usize,
        mut correct: impl FnMut(&[Row; ROWS], &[Row; TREES]),
    ) {
        let streams = Streams::new(platform, &self.leaves);
        let mut sums = Zeroizing::new([[0; ROW]; TREES]);
        tiles(platform, labels, more, |tile, rows| {
            let (trees, _) = rows.as_chunks_mut::<DEPTH>();
            for (tree, (rows, sum)) in trees.iter_mut().zip(sums.iter_mut()).enumerate() {
                streams.fold(tree, self.nonces.counter(tree, batch, tile), rows, sum);
            }
            correct(rows, &sums);
        });
    }

    /// The hashes of a batch whose corrections are these.
    #[cfg(test)]
    pub(super) fn hashes(&self, batch: u64, choices: &[u16], corrections: &[u8]) -> Hashes {
        let mut labels = vec![0; LANES * choices.len()];
        let mut hashing = Hashing::new(Platform::detect(), &self.transcript, batch, labels.len());
        let (mut places, mut left) = (corrections.chunks(raw_bytes(TILE)), choices);
        self.expand(Platform::detect(), batch, &mut labels, BLIND, |rows, sums| {
            let Some(place) = places.next() else { return };
            let groups = place.len() / raw_bytes(LANES);
            let now;
            (now, left) = left.split_at(left.len().min(groups));
            let own = (now.len()..groups).map(|group| group_of(&sums[0], group));
            let mut bits = [0; ROW];
            pack(&now.iter().copied().chain(own).collect::<Vec<_>>(), &mut bits);
            hashing.tile(rows, &bits, place);
        });
        hashing.finish()
    }

    /// The choices of what hides so many labels.
    #[cfg(test)]
    pub(super) fn blind_choices(&self, batch: u64, labels: usize) -> [u16; BLIND / LANES] {
        let mut all = vec![0; labels + BLIND];
        let mut own = Vec::new();
        self.expand(Platform::PORTABLE, batch, &mut all, 0, |_, sums| {
            own.extend((0..TILE / LANES).map(|group| group_of(&sums[0], group)));
        });
        std::array::from_fn(|group| own[labels / LANES + group])
    }

    /// What both parties call this setup, and nobody chose.
    pub fn session(&self) -> &[u8; 32] {
        &self.nonces.session
    }

    /// Bytes of what is kept.
    pub const BYTES: usize = 1 + 2 * 32 + LEAVES_BYTES;

    /// What to keep, to make labels again later.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(Self::BYTES));
        bytes.push(RECEIVER);
        bytes.extend(self.nonces.session);
        bytes.extend(self.transcript);
        self.leaves.iter().for_each(|leaf| bytes.extend(leaf.to_le_bytes()));
        bytes
    }

    /// From what was kept.
    ///
    /// # Errors
    /// [`Error`] for bytes of another length or kind.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let rest = rest(RECEIVER, bytes, Self::BYTES - 1)?;
        let (session, rest) = rest.split_at(32);
        let (transcript, leaves) = rest.split_at(32);
        Ok(Self::new(&array(session), &array(transcript), blocks(leaves)))
    }
}

/// Who has Δ, and gets both labels of each pair.
pub struct CotSender {
    pub(super) nonces: Nonces,
    transcript: [u8; 32],
    /// Whether a batch was refused: then Δ is used no more.
    is_over: AtomicBool,
    delta: Zeroizing<Block>,
    /// Number y of each tree is leaf y ⊕ (its bits of Δ) of the receiver's; number 0 is not known.
    pub(super) leaves: Zeroizing<Vec<u128>>,
}

impl CotSender {
    pub(super) fn new(
        session: &[u8; 32],
        transcript: &[u8; 32],
        delta: Block,
        leaves: Zeroizing<Vec<u128>>,
    ) -> Self {
        Self {
            nonces: Nonces::new(session),
            transcript: *transcript,
            is_over: AtomicBool::new(false),
            delta: Zeroizing::new(delta),
            leaves,
        }
    }

    /// Takes what the receiver sent for a batch, and gives the zero label of each pair; the other is that ⊕ Δ.
    ///
    /// # Errors
    /// [`Error::Length`]; [`Error::Inconsistent`] for corrections that do not agree, and then for whatever comes: a
    /// receiver that lies has one guess at some bits of Δ, and not another. There are no labels then.
    ///
    /// # Panics
    /// Unless `zeros` are a multiple of 16.
    pub fn extend(
        &self,
        platform: Platform,
        batch: u64,
        message: &[u8],
        zeros: &mut [Block],
    ) -> Result<(), Error> {
        check_length("a batch", message, correction_bytes(zeros.len()))?;
        if self.is_over.load(Ordering::SeqCst) {
            return Err(Error::Inconsistent);
        }
        let Some((corrections, answer)) = message.split_last_chunk::<ANSWER_BYTES>() else {
            return Ok(());
        };
        let mut hashing = Hashing::new(platform, &self.transcript, batch, zeros.len());
        let mut places = corrections.chunks(raw_bytes(TILE));
        let streams = Streams::new(platform, &self.leaves);
        let mut sum = Zeroizing::new([0; ROW]);
        tiles(platform, zeros, BLIND, |tile, rows| {
            let place = places.next().unwrap_or_default();
            let corrections = place.chunks_exact(place.len() / TREES);
            let (trees, _) = rows.as_chunks_mut::<DEPTH>();
            for (tree, (rows, correction)) in trees.iter_mut().zip(corrections).enumerate() {
                streams.fold(tree, self.nonces.counter(tree, batch, tile), rows, &mut sum);
                let mask = |bit: usize| spread(*self.delta, DEPTH * tree + bit);
                correct(rows, &row(correction), &std::array::from_fn(mask));
            }
            hashing.tile(rows, &[0; ROW], place);
        });
        if !hashing.finish().accepts(*self.delta, answer) {
            self.is_over.store(true, Ordering::SeqCst);
            zeros.zeroize();
            return Err(Error::Inconsistent);
        }
        Ok(())
    }

    /// What both parties call this setup, and nobody chose.
    pub fn session(&self) -> &[u8; 32] {
        &self.nonces.session
    }

    /// Δ.
    pub fn delta(&self) -> Block {
        *self.delta
    }

    /// What to keep, to make labels again later.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(1 + 2 * 32 + 16 + LEAVES_BYTES));
        bytes.push(SENDER);
        bytes.extend(self.nonces.session);
        bytes.extend(self.transcript);
        bytes.extend(self.delta.to_le_bytes());
        self.leaves.iter().for_each(|leaf| bytes.extend(leaf.to_le_bytes()));
        bytes
    }

    /// From what was kept.
    ///
    /// # Errors
    /// [`Error`] for bytes of another length or kind.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let rest = rest(SENDER, bytes, 2 * 32 + 16 + LEAVES_BYTES)?;
        let (session, rest) = rest.split_at(32);
        let (transcript, rest) = rest.split_at(32);
        let (delta, leaves) = rest.split_at(16);
        let delta = u128::from_le_bytes(array(delta));
        Ok(Self::new(&array(session), &array(transcript), delta, blocks(leaves)))
    }
}

/// What the counters of each tree's streams are masked with.
pub(super) struct Nonces {
    session: [u8; 32],
    trees: [u128; TREES],
}

impl Nonces {
    fn new(session: &[u8; 32]) -> Self {
        let mut bytes = [0; 16 * TREES];
        let mut hasher = blake3::Hasher::new_derive_key("hushtable transfer nonces v1");
        hasher.update(session).finalize_xof().fill(&mut bytes);
        let (nonces, _) = bytes.as_chunks::<16>();
        Self {
            session: *session,
            trees: std::array::from_fn(|tree| u128::from_le_bytes(nonces[tree])),
        }
    }

    /// The nonce of a tree, and the first block's number: no two blocks of a tree have one number.
    pub(super) fn counter(&self, tree: usize, batch: u64, tile: usize) -> (u128, u128) {
        (self.trees[tree], u128::from(batch) << 64 | (tile * ROW) as u128)
    }
}

/// Lets `fill` make the rows of each tile, those of so many labels more among them, and turns them to labels.
fn tiles(
    platform: Platform,
    labels: &mut [Block],
    more: usize,
    mut fill: impl FnMut(usize, &mut [Row; ROWS]),
) {
    assert_eq!(labels.len() % LANES, 0, "whole groups of labels");
    let count = (labels.len() + more).div_ceil(TILE);
    let mut rows = Zeroizing::new([[0; ROW]; ROWS]);
    let mut places = labels.chunks_mut(TILE);
    for tile in 0..count {
        fill(tile, &mut rows);
        let Some(labels) = places.next() else { continue };
        match <&mut [Block; TILE]>::try_from(&mut *labels) {
            Ok(labels) => transpose(platform, &rows, labels),
            Err(_) => {
                let mut whole = Zeroizing::new([0; TILE]);
                transpose(platform, &rows, &mut whole);
                labels.copy_from_slice(&whole[..labels.len()]);
            }
        }
    }
}

/// Writes sum ⊕ bits, as far as there is room.
fn correction(sum: &Row, bits: &Row, out: &mut [u8]) {
    let (wholes, rest) = out.as_chunks_mut::<16>();
    let count = wholes.len();
    let blocks = sum.iter().zip(bits).map(|(sum, bits)| (sum ^ bits).to_le_bytes());
    for (out, block) in wholes.iter_mut().zip(blocks) {
        *out = block;
    }
    if !rest.is_empty() {
        let block = (sum[count] ^ bits[count]).to_le_bytes();
        rest.copy_from_slice(&block[..rest.len()]);
    }
}

/// Adds the correction to each row whose mask is set.
fn correct(rows: &mut [Row; DEPTH], correction: &Row, masks: &[u128; DEPTH]) {
    for (row, mask) in rows.iter_mut().zip(masks) {
        for (block, correction) in row.iter_mut().zip(correction) {
            *block ^= correction & mask;
        }
    }
}

/// A row of bits, zeros after the last.
fn row(bytes: &[u8]) -> Row {
    let mut whole = [0; TILE / 8];
    whole[..bytes.len()].copy_from_slice(bytes);
    let (blocks, _) = whole.as_chunks::<16>();
    std::array::from_fn(|i| u128::from_le_bytes(blocks[i]))
}

/// What comes after the first byte of kept bytes.
fn rest(kind: u8, bytes: &[u8], rest_bytes: usize) -> Result<&[u8], Error> {
    check_length("the kept state", bytes, 1 + rest_bytes)?;
    match bytes[0] == kind {
        true => Ok(&bytes[1..]),
        false => Err(Error::Kind { expected: kind, found: bytes[0] }),
    }
}

fn blocks(bytes: &[u8]) -> Zeroizing<Vec<u128>> {
    let (blocks, _) = bytes.as_chunks();
    Zeroizing::new(blocks.iter().map(|block| u128::from_le_bytes(*block)).collect())
}

/// Callers have checked the length.
fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}
