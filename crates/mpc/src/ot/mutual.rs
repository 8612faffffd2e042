//! Two parties each of which is sender and receiver: transfers both ways from one setup.
//!
//! Both send at once, three messages each: an opening, points, corrections. From then on [`Mutual`] counts the batches of
//! either way and the tweaks of all pads, so that neither is ever used twice: it is never kept, and a new session makes a
//! new one.

use zeroize::{Zeroize, Zeroizing};

use super::{
    CotReceiver, CotSender, Error, ReceiverSetup, SenderSetup, check_length, correction_bytes,
};
use crate::{Block, EntropyError, LANES, Platform, fill_random};

/// One party's end of a setup of transfers both ways.
#[allow(missing_debug_implementations, reason = "it holds secrets")]
pub struct MutualSetup {
    /// Of this party as sender: its seed and Δ.
    seed: Zeroizing<[u8; 32]>,
    delta: Zeroizing<Block>,
    stage: Stage,
}

enum Stage {
    Opened(ReceiverSetup),
    Answered(ReceiverSetup, SenderSetup),
    Corrected(Box<CotReceiver>, SenderSetup),
}

/// What a setup does next.
#[allow(clippy::exhaustive_enums, reason = "whoever drives it does both")]
#[allow(missing_debug_implementations, reason = "it holds secrets")]
pub enum SetupStep {
    /// Sends this and awaits the other party's message.
    Send(Box<MutualSetup>, Vec<u8>),
    /// It is over.
    Done(Box<Mutual>),
}

impl MutualSetup {
    /// Begins, and gives the first message.
    ///
    /// # Errors
    /// [`EntropyError`].
    pub fn new() -> Result<(Box<Self>, Vec<u8>), EntropyError> {
        let (mut own, mut seed) = (Zeroizing::new([0; 32]), Zeroizing::new([0; 32]));
        let mut delta = Zeroizing::new([0; 16]);
        fill_random(&mut *own)?;
        fill_random(&mut *seed)?;
        fill_random(&mut *delta)?;
        let delta = Zeroizing::new(u128::from_le_bytes(*delta));
        let (receiver, opening) = ReceiverSetup::new(&own);
        Ok((Box::new(Self { seed, delta, stage: Stage::Opened(receiver) }), opening))
    }

    /// Takes the other party's message.
    ///
    /// # Errors
    /// [`Error`] for one that cannot be used: the setup is over.
    pub fn step(self: Box<Self>, message: &[u8]) -> Result<SetupStep, Error> {
        let Self { seed, delta, stage } = *self;
        let (stage, reply) = match stage {
            Stage::Opened(receiver) => {
                let (sender, points) = SenderSetup::new(&seed, *delta, message)?;
                (Stage::Answered(receiver, sender), points)
            }
            Stage::Answered(receiver, sender) => {
                let (receiver, corrections) = receiver.finish(message)?;
                (Stage::Corrected(Box::new(receiver), sender), corrections)
            }
            Stage::Corrected(receiver, sender) => {
                let sender = sender.finish(message)?;
                return Ok(SetupStep::Done(Box::new(Mutual::new(sender, *receiver))));
            }
        };
        Ok(SetupStep::Send(Box::new(Self { seed, delta, stage }), reply))
    }
}

/// One party's end of transfers both ways.
#[allow(missing_debug_implementations, reason = "it holds secrets")]
pub struct Mutual {
    platform: Platform,
    pub(super) sender: CotSender,
    receiver: CotReceiver,
    /// Batches of the other party's choices, and of this one's.
    batches: [u64; 2],
    /// Tweaks of the pads of what this party offers, and of what the other does.
    pub(super) tweaks: [u128; 2],
}

impl Mutual {
    fn new(sender: CotSender, receiver: CotReceiver) -> Self {
        let platform = Platform::detect();
        Self { platform, sender, receiver, batches: [0; 2], tweaks: [0; 2] }
    }

    /// What both parties call this setup, and nobody chose: of the way where this party sends, then of the other.
    pub fn sessions(&self) -> [&[u8; 32]; 2] {
        [self.sender.session(), self.receiver.session()]
    }

    /// Chooses by bits, one a byte, of which the lowest counts: gives their labels and the message to send. Each call
    /// is a batch of its own.
    pub fn choose(&mut self, bits: &[u8]) -> (Zeroizing<Vec<Block>>, Vec<u8>) {
        let mut labels = Zeroizing::new(vec![0; bits.len().next_multiple_of(LANES)]);
        let packed = bits.chunks(LANES).map(|bits| {
            let bits = bits.iter().enumerate();
            bits.fold(0, |all, (place, bit)| all | u16::from(bit & 1) << place)
        });
        let packed = Zeroizing::new(packed.collect::<Vec<u16>>());
        let batch = next(&mut self.batches[1]);
        let message = self.receiver.extend(self.platform, batch, &packed, &mut labels);
        labels[bits.len()..].zeroize();
        labels.truncate(bits.len());
        (labels, message)
    }

    /// Takes the other party's message of so many choices: gives the labels of their zeros.
    ///
    /// # Errors
    /// [`Error::Length`]; [`Error::Inconsistent`] for choices that do not agree with each other: the other party lies, to
    /// learn what hides this one's numbers. Nothing is to be offered for them, and this end takes no others.
    pub fn chosen(&mut self, count: usize, message: &[u8]) -> Result<Zeroizing<Vec<Block>>, Error> {
        check_length("choices", message, choice_bytes(count))?;
        let mut zeros = Zeroizing::new(vec![0; count.next_multiple_of(LANES)]);
        let batch = next(&mut self.batches[0]);
        self.sender.extend(self.platform, batch, message, &mut zeros)?;
        zeros[count..].zeroize();
        zeros.truncate(count);
        Ok(zeros)
    }
}

/// Bytes of a message of so many choices.
pub fn choice_bytes(count: usize) -> usize {
    correction_bytes(count.next_multiple_of(LANES))
}

/// A number, and one more the next time.
fn next(count: &mut u64) -> u64 {
    let own = *count;
    // 2^64 batches are never made.
    *count += 1;
    own
}
