//! Two parties compute together and neither sees the other's numbers.
//!
//! [`garble`] has half-gates garbled circuits over many instances in lockstep, [`ot`] oblivious
//! transfer, [`share`] additive shares, [`compare`] keys to compare shared numbers with. Halves are functions and machines over bytes: nothing here
//! has sockets. Parties are honest but curious: they follow the protocol, and are to learn nothing
//! from what they see. Of those that do not, [`ot`] finds who chooses inconsistently; nothing else is looked for.

#![deny(unsafe_code)]

#[cfg(feature = "bench")]
pub mod bench;
pub mod compare;
pub mod garble;
#[allow(unsafe_code, reason = "SIMD")]
mod kernel;
pub mod ot;
pub mod share;

pub use hushtable_prg::{EntropyError, Platform, Secret, fill_random};

/// A label, or any other 128 bits; bytes correspond in little-endian order. The lowest bit of a label
/// is its colour.
pub type Block = u128;

/// Instances of a circuit that are garbled side by side: a chunk's count is rounded up to this.
pub const LANES: usize = 16;

/// Who garbles the circuits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "there are two parties")]
pub enum Party {
    /// Who has the input.
    Client,
    /// Who has the model.
    Server,
}
