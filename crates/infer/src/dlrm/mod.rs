//! Recommendation models (DLRM) under CKKS (Garimella et al., "HE-LRM").
//!
//! A model is read ([`spec`], [`weights`]), made a [`chain`] of linear maps and gates, laid out
//! in slots and planned ([`planner`], [`mod@plan`]), compiled for an evaluator ([`compile`]) and computed on
//! ciphertexts. [`Client`] and [`Engine`] turn bytes into bytes; nothing here has sockets.

#[cfg(feature = "bench")]
pub mod bench;
mod bounds;
pub mod chain;
mod client;
pub mod compile;
pub mod cost;
mod describe;
pub mod digits;
mod engine;
mod error;
mod features;
mod floor;
mod found;
pub mod gate;
mod goal;
mod keys;
pub mod layout;
mod numbers;
mod parts;
mod placement;
pub mod plan;
pub mod planner;
pub mod reference;
mod restore;
pub mod session;
pub mod simulate;
pub mod spec;
mod splits;
mod terms;
mod turn;
pub mod weights;

pub use client::{Client, KEY_CHUNK_BYTES, SHARED_STEP, shareable};
pub use engine::{Engine, FLOOD_BITS, MAP_BYTES_MAX};
pub use error::Error;
pub use features::FEATURE_MAX;
pub use floor::Floor;
pub use hushtable_rlwe::ckks::Masks;
pub use keys::{Keys, KeysReader};
pub use plan::Plan;
pub use planner::{Goal, plan};
pub use spec::{Dlrm, DlrmSpec};
pub(crate) use terms::check_terms_bytes;
pub use terms::{KEY_BYTES_MAX, TERMS_BYTES_MAX, Terms, TermsTooLong};
pub use weights::Weights;
