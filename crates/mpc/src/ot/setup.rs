//! The trees' transfers, once for each setup.

use zeroize::Zeroizing;

use super::base::{BaseReceiver, BaseSender, TRANSFERS};
use super::cot::{CotReceiver, CotSender};
use super::{CORRECTIONS_BYTES, Error, check_length, spread, tree};
use crate::Block;
use crate::kernel::transpose::{DEPTH, LEAVES, TREES};

/// The first half of a setup, of who will have the choice bits.
pub struct ReceiverSetup {
    seed: Zeroizing<[u8; 32]>,
    base: BaseSender,
}

impl ReceiverSetup {
    /// Begins, with 32 uniform bytes that are used for nothing else, and gives the opening to send
    /// ([`OPENING_BYTES`](super::OPENING_BYTES)).
    pub fn new(seed: &[u8; 32]) -> (Self, Vec<u8>) {
        let base = BaseSender::new(seed);
        let opening = base.opening().to_vec();
        (Self { seed: Zeroizing::new(*seed), base }, opening)
    }

    /// Takes the sender's points ([`POINTS_BYTES`](super::POINTS_BYTES)), and gives the corrections to
    /// send ([`CORRECTIONS_BYTES`]). A setup answers one set of points only.
    ///
    /// # Errors
    /// [`Error`] for points of a wrong length, or bytes that are none.
    pub fn finish(self, points: &[u8]) -> Result<(CotReceiver, Vec<u8>), Error> {
        let (keys, session) = self.base.finish(points)?;
        let mut leaves = Zeroizing::new(Vec::with_capacity(TREES * LEAVES));
        let mut corrections = Vec::with_capacity(CORRECTIONS_BYTES);
        let mut roots = Zeroizing::new([0; 16 * TREES]);
        let mut hasher = blake3::Hasher::new_derive_key("hushtable transfer roots v1");
        hasher.update(&*self.seed).update(&session).finalize_xof().fill(&mut *roots);
        zeroize::Zeroize::zeroize(&mut hasher);
        let (roots, _) = roots.as_chunks::<16>();
        for (number, (root, keys)) in roots.iter().zip(keys.chunks_exact(DEPTH)).enumerate() {
            let (own, sums) = tree::grow(&session, number, u128::from_le_bytes(*root));
            leaves.extend_from_slice(&*own);
            for (sums, keys) in sums.iter().zip(keys) {
                // Key 0 of a transfer is that of the left nodes.
                for (sum, key) in sums.iter().zip(keys) {
                    corrections.extend((sum ^ key).to_le_bytes());
                }
            }
        }
        let transcript = transcript(&session, &corrections);
        Ok((CotReceiver::new(&session, &transcript, leaves), corrections))
    }
}

/// A hash of all that was sent, by which batches are checked: unlike the session, the receiver ends it.
fn transcript(session: &[u8; 32], corrections: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("hushtable transfer transcript v1");
    hasher.update(session).update(corrections).finalize().into()
}

/// The first half of a setup, of who has Δ.
pub struct SenderSetup {
    delta: Zeroizing<Block>,
    base: BaseReceiver,
}

impl SenderSetup {
    /// Takes the receiver's opening, with 32 uniform bytes that are used for nothing else and a Δ of
    /// which only its colour bit may be fixed, and gives the points to send.
    ///
    /// # Errors
    /// [`Error`] for an opening of a wrong length, or bytes that are no point.
    pub fn new(seed: &[u8; 32], delta: Block, opening: &[u8]) -> Result<(Self, Vec<u8>), Error> {
        // Where the path does not go.
        let (base, points) = BaseReceiver::new(seed, !delta, opening)?;
        Ok((Self { delta: Zeroizing::new(delta), base }, points))
    }

    /// Takes the receiver's corrections.
    ///
    /// # Errors
    /// [`Error`] for corrections of a wrong length.
    pub fn finish(self, corrections: &[u8]) -> Result<CotSender, Error> {
        check_length("the corrections", corrections, CORRECTIONS_BYTES)?;
        let session = self.base.session;
        let mut sums = Zeroizing::new([0; TRANSFERS]);
        let (pairs, _) = corrections.as_chunks::<32>();
        for (bit, (pair, key)) in pairs.iter().zip(self.base.keys.iter()).enumerate() {
            let (halves, _) = pair.as_chunks::<16>();
            let [left, right] = [u128::from_le_bytes(halves[0]), u128::from_le_bytes(halves[1])];
            sums[bit] = left ^ (left ^ right) & spread(!*self.delta, bit) ^ key;
        }
        let mut leaves = Zeroizing::new(Vec::with_capacity(TREES * LEAVES));
        let (levels, _) = sums.as_chunks::<DEPTH>();
        for (number, sums) in levels.iter().enumerate() {
            let path = (*self.delta >> (DEPTH * number)) as u8 & (LEAVES - 1) as u8;
            leaves.extend_from_slice(&*tree::puncture(&session, number, path, sums));
        }
        Ok(CotSender::new(&session, &transcript(&session, corrections), *self.delta, leaves))
    }
}
