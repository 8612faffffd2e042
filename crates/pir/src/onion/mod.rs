//! Private retrieval from one server, by homomorphic encryption.
//!
//! OnionPIR's scheme (Mughees, Chen and Ren, CCS 2021) as Kim et al. ("IVE", sections II to V)
//! optimise it: a query is one ciphertext, which the server *expands* into an encrypted unit vector
//! over D0 matrix rows and one encrypted bit for each of d further dimensions of length two. *RowSel*
//! multiplies the table with the vector, *ColTor* plays the columns against each other. The table
//! stays in the form in which it is multiplied ([`prepare`]), so that a query costs one pass over it,
//! and queries of many clients share the pass.
//!
//! What differs from the paper in the default parameters: expansion is done modulo Q = q0 · q1, and
//! its results are switched to q0 alone, which takes the expansion's noise along. One prime of 50
//! bits then carries 16 bits of table, 3.25 bytes a byte, and evaluation keys need two digits. And
//! plaintexts are stored under a public [`Mask`], so that no table has more noise than a random one.
//!
//! Client and server halves turn bytes into bytes; nothing here has sockets.

mod check;
mod client;
mod engine;
mod error;
mod geometry;
mod keys;
mod mask;
pub mod operations;
mod params;
mod partial;
mod payload;
mod pool;
mod prepare;
mod query;
mod sampling;
mod server;
mod shard;
mod shard_map;
pub mod traffic;
pub mod tree;

pub use client::{Client, Pending};
pub use engine::{Engine, OnionSpec, Stages};
pub use error::Error;
pub use geometry::Geometry;
pub use keys::{EvaluationKeys, KeyId};
pub use mask::Mask;
pub use params::ParameterSet;
pub use partial::Partial;
pub use prepare::{
    CopyRows, Cut, Preparation, Progress, Summary, prepare, prepare_range, prepare_ranges,
};
pub use query::Query;
pub use sampling::{Samples, sample_noise};
pub use server::{Asked, OnionBackend, Server};
pub use shard::{Expansions, Shard};
pub use shard_map::{check_map, plan_shards, shard_pieces, verify_shard};
pub use tree::Schedule;
