//! Hybrid private inference: the model is the server's secret, the input the client's (Garimella et al.,
//! "Characterizing and Optimizing End-to-End Systems for Private Inference", ASPLOS 2023).
//!
//! Every tensor is additively shared modulo 2^k. Linear layers are prepared offline under homomorphic
//! encryption of the client's masks and done online on shares; activations are garbled circuits, by
//! either party. A network of floats ([`network`]) is quantised to a [`program`], of which clients know
//! all but the weights.

pub mod architectures;
pub mod check;
pub mod linear;
pub mod network;
pub mod program;
pub mod records;
pub mod reference;
pub mod store;
mod windows;

pub use program::Program;
pub use records::Records;
