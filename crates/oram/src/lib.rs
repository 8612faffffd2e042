//! Oblivious memories for federated training of embedding tables: what a round reads and writes says
//! nothing of which rows its users asked for, but for the number of rows, which differential privacy
//! bounds (FEDORA, ASPLOS 2025).
#![deny(unsafe_code)]

pub mod aggregate;
pub mod attempt;
pub mod bucket;
pub mod buffer;
pub mod disk;
pub mod evict;
pub mod fdp;
pub mod geometry;
pub mod instance;
pub mod journal;
pub mod layout;
pub mod memory;
pub mod oblivious;
pub mod path;
pub mod position;
pub mod raw;
pub mod recover;
pub mod round;
pub mod rounds;
pub mod seal;
pub mod tree;
pub mod union;
pub mod vtree;
pub mod wire;
