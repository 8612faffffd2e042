//! Encryption from the ring learning-with-errors problem.
//!
//! The core is what every scheme shares: a [`Lattice`] whose security was checked over everything
//! that is published, a [`SecretKey`] that encrypts to [`Ciphertext`]s, and their bytes ([`pack`]).
//! Above it stand [`bfv`], for exact numbers (what `pir::onion` computes with), [`linear`], for sums of
//! products modulo 2^k, and [`ckks`], for vectors of real numbers.

#![forbid(unsafe_code)]

pub mod bfv;
mod ciphertext;
pub mod ckks;
#[cfg(test)]
mod encryption_time;
mod error;
mod largest;
mod lattice;
pub mod linear;
pub mod pack;

pub use ciphertext::{Ciphertext, SecretKey};
pub use error::Error;
pub use largest::largest;
pub use lattice::{Lattice, LatticeSpec, SecretKind, modulus_log2_max};

// What a caller must name beside these.
pub use hushtable_ring as ring;
