//! Hybrid private inference: the model is the server's secret, the input the client's (Garimella et al.,
//! "Characterizing and Optimizing End-to-End Systems for Private Inference", ASPLOS 2023).
//!
//! Every tensor is additively shared modulo 2^k. Linear layers are prepared offline under homomorphic
//! encryption of the client's masks and done online on shares; activations are garbled circuits, by
//! either party. A network of floats ([`network`]) is quantised to a [`program`], of which clients know
//! all but the weights.

pub mod architectures;
#[cfg(feature = "bench")]
pub mod bench;
pub mod check;
mod clock;
mod costs;
mod error;
pub mod linear;
mod model;
pub mod network;
mod offline;
mod online;
mod outline;
pub mod plan;
pub mod program;
mod reference;
mod seeds;
pub mod session;
mod terms;
mod together;
mod windows;

pub use crate::records::{self, Records};
pub use crate::store;
pub use clock::{Clock, Work};
pub use costs::{Bytes, Costs, Floors, Operations, Speeds, Split};
pub use error::Error;
pub use hushtable_mpc::Party;
pub use model::HybridModel;
pub use offline::{Next, OfflineClient, OfflineServer, Parallel};
pub use online::{OnlineClient, OnlineServer};
pub use outline::{Chunk, Outline, Step};
pub use plan::Plan;
pub use program::Program;
#[doc(hidden)]
pub use seeds::Seed;
pub use terms::{TERMS_BYTES_MAX, Terms};
pub use together::{Outcome, Precompute};
