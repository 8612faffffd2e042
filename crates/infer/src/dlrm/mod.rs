//! Recommendation models (DLRM) under CKKS (Garimella et al., "HE-LRM").

pub mod chain;
pub mod digits;
mod error;
pub mod layout;
pub mod reference;
pub mod spec;
pub mod weights;

pub use error::Error;
