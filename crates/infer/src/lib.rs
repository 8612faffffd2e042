//! Private inference: a model computed on features that the server never sees.

#![forbid(unsafe_code)]

pub mod dlrm;

// What a caller must name beside these.
pub use hushtable_rlwe::ckks;
pub use hushtable_rlwe::ring::{NoiseSource, Platform};
