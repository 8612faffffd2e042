//! Correlated oblivious transfer: the sender has pairs of labels (q, q ⊕ Δ) with one Δ, and the receiver
//! the label of each pair that its bit chooses, q ⊕ bΔ. The sender learns nothing of the bits, the
//! receiver nothing of Δ.
//!
//! SoftSpoken (Roy, CRYPTO 2022, figure 7 with the repetition code), with 32 trees of 16 leaves: four AES blocks and four
//! bytes for each label, and 824 bytes a batch that show that the receiver chose by the same bits in every tree
//! (`consistency`, which says what a receiver that lies can still learn). The trees' 128 transfers are over Ristretto
//! (`base`).
//!
//! ```text
//! receiver (has the bits)                    sender (has Δ)
//! ReceiverSetup::new   ── opening, 32 B ──▶  SenderSetup::new
//! ReceiverSetup::finish ◀── points, 4 KiB ──
//!                      ── corrections, 4 KiB ▶ SenderSetup::finish
//! CotReceiver::extend  ── 4 B a label, 824 B ▶ CotSender::extend
//! ```
//!
//! All of it follows from the seeds and bytes given: a step that is repeated gives the same bytes again.
//!
//! What makes it secure. Each leaf is a key of AES-128 in counter mode; of each tree the sender has all
//! leaves but the one at its four bits of Δ. The receiver sends, for each tree, its bits ⊕ the sum of all
//! leaves' streams, one of which the sender lacks: a one-time pad. The receiver sees only points, which are
//! uniform whatever Δ is, and so would do no better than a guess at Δ; what it learns by whether its corrections are taken
//! is a guess too, of which there is one, for a sender that has refused a batch takes no other. Counters are masked by a nonce of
//! each tree that is drawn anew with each setup, so that keys are not searched for in many setups at once.
//! **A batch number must be used for one set of bits only**: two sets under one number give away where
//! they differ.

mod base;
mod consistency;
mod cot;
mod mutual;
mod product;
mod setup;
mod tree;

#[cfg(test)]
mod lies;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod views;

pub use consistency::ANSWER_BYTES;
pub use cot::{CotReceiver, CotSender, correction_bytes};
pub use mutual::{Mutual, MutualSetup, SetupStep, choice_bytes};
pub use product::{Group, SharedBits};
pub use setup::{ReceiverSetup, SenderSetup};

/// Bytes of what [`ReceiverSetup::new`] sends.
pub const OPENING_BYTES: usize = base::POINT_BYTES;
/// Bytes of what [`SenderSetup::new`] sends.
pub const POINTS_BYTES: usize = base::TRANSFERS * base::POINT_BYTES;
/// Bytes of what [`ReceiverSetup::finish`] sends.
pub const CORRECTIONS_BYTES: usize = base::TRANSFERS * 2 * 16;

/// Bytes of an oblivious transfer that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another count of bytes than there must be.
    #[error(
        "{what} of an oblivious transfer must be {expected} bytes, not {found}: \
         the other side speaks another version, or the message was cut"
    )]
    Length {
        /// Of what.
        what: &'static str,
        /// Bytes that there must be.
        expected: usize,
        /// Bytes that there were.
        found: usize,
    },
    /// Not a point of the group, or one that would show the keys.
    #[error(
        "point {index} of {what} of an oblivious transfer is not a usable Ristretto point: \
         the other side is broken or hostile"
    )]
    Point {
        /// Of what.
        what: &'static str,
        /// Which point.
        index: usize,
    },
    /// Choices that are not the same in every tree: who chose lied, or what it sent was changed.
    #[error(
        "the choices of an oblivious transfer do not agree with each other: the other side is broken, or hostile and \
         after this side's secret; nothing was sent for them, and this setup takes no more of them"
    )]
    Inconsistent,
    /// Kept bytes that are of something else.
    #[error(
        "kept bytes of an oblivious transfer begin with {found:#04x}, not {expected:#04x}: \
         they are of another party or version; make a new setup"
    )]
    Kind {
        /// First byte that there must be.
        expected: u8,
        /// First byte that there was.
        found: u8,
    },
}

/// That there are `expected` bytes.
fn check_length(what: &'static str, bytes: &[u8], expected: usize) -> Result<(), Error> {
    match bytes.len() == expected {
        true => Ok(()),
        false => Err(Error::Length { what, expected, found: bytes.len() }),
    }
}

/// All ones where bit `bit` of `x` is 1, else 0. The optimiser is kept from making a branch of it.
fn spread(x: u128, bit: usize) -> u128 {
    u128::from(std::hint::black_box((x >> bit) as u8 & 1)).wrapping_neg()
}
