//! Private retrieval of table rows.
//!
//! A client asks two servers that do not collude, *left* and *right*, for rows of a table that both
//! hold; neither learns which rows. [`dpf`] is the scheme (distributed point functions, Boyle,
//! Gilboa and Ishai, CCS 2016; Lam et al., "GPU-based Private Information Retrieval for On-Device
//! Machine Learning Inference", §II-III), [`Backend`] what answers keys, [`CpuEngine`] the backend
//! for processors. [`client`] has whole clients, as machines that somebody drives. Nothing here does
//! I/O: both halves turn bytes into bytes.

#![deny(unsafe_code)]
// Where there are no vector kernels, nothing chooses among them.
#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code, unreachable_patterns, unused_imports, unused_mut)
)]

mod backend;
pub mod batch;
pub mod client;
mod divisor;
pub mod dpf;
mod engine;
mod error;
mod kernel;
pub mod model;
pub mod onion;
mod pass;
mod patched;
mod shape;
mod threads;
#[cfg(test)]
mod timing;

pub use backend::{Backend, Below};
pub use engine::{CpuEngine, EngineSpec};
pub use error::Error;
pub use kernel::floor;
pub use patched::Patched;
pub use shape::TableShape;
pub use threads::Threads;

// What a caller must name to make an engine, a client or a key.
pub use hushtable_prg::{Platform, Prg, PrgKind};
pub use hushtable_table::{DType, Table, layout};
