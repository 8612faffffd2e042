//! Private inference: a model computed on features that the server never sees.
//!
//! [`dlrm`] compiles a recommendation model to a circuit on encrypted features and runs it, [`shares`] computes
//! one on shares that two servers hold; [`trace`]
//! records a circuit's operations, and [`project`] says what they would take elsewhere. Behind the feature `bench`
//! are what measures them, and `coded`, the lookup that came before, to compare with.

#![forbid(unsafe_code)]

// Tests of a part take models from where those of the whole do, which know this crate by its name.
#[cfg(test)]
extern crate self as hushtable_infer;

#[cfg(feature = "bench")]
pub mod coded;
pub mod dlrm;
pub mod hybrid;
pub mod project;
pub mod records;
pub mod shares;
pub mod store;
pub mod trace;

// What a caller must name beside these.
pub use hushtable_rlwe::ckks;
pub use hushtable_rlwe::ring::{NoiseSource, Platform};
