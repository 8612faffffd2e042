//! Seeds to pseudorandom bytes, on every instruction set.

mod aes;
mod bits;
#[cfg(test)]
mod check;
mod entropy;
mod kind;
mod lanes;
mod platform;
mod prg;
mod secret;

pub use entropy::{EntropyError, fill_random};
pub use kind::{PrgKind, UnknownPrg};
pub use platform::{Platform, Tier};
pub use prg::Prg;
pub use secret::Secret;
