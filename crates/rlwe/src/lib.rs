//! Encryption from the ring learning-with-errors problem.
//!
//! [`ParameterSpec`] is a set as written down, [`Parameters`] one whose security was checked;
//! [`SecretKey`] encrypts to [`Ciphertext`]s ([`bfv`] for plain messages), an [`Evaluator`] computes
//! on them with public [`SwitchKey`]s and [`Selector`]s (RGSW), and [`noise`] says how far from
//! failing the result is. [`scheme`] is what a retrieval protocol needs of all this, with a stand-in
//! that encrypts nothing.

#![forbid(unsafe_code)]

pub mod bfv;
mod ciphertext;
mod error;
mod evaluator;
pub mod noise;
pub mod pack;
mod params;
pub mod response;
pub mod scheme;
mod switch;

pub use ciphertext::{Ciphertext, SecretKey};
pub use error::Error;
pub use evaluator::{Evaluator, Selector, Spare, Substitution};
pub use params::{ParameterSpec, Parameters, modulus_log2_max};
pub use switch::SwitchKey;

// What a caller must name beside these.
pub use hushtable_ring as ring;
