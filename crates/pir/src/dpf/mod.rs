//! Distributed point functions: two short keys whose expansions are shares of a unit vector.
//!
//! The tree is Boyle, Gilboa and Ishai's ("Function Secret Sharing: Improvements and Extensions",
//! CCS 2016, Fig. 1) with early termination: its leaves are blocks of 512 bits, which hold 512 XOR
//! shares of bits, 64 additive shares in Z_2^8 or 16 in Z_2^32 ([`Group`]). A key for 2^20 rows and
//! bits is 266 bytes.
//!
//! [`Client`] makes the two requests of a lookup and combines the two replies; [`Server`] checks
//! keys and hands them to a [`Backend`](crate::Backend). [`mod@reference`] is the same function written
//! to be read.

mod client;
mod generate;
mod group;
mod key;
pub mod reference;
mod server;
mod walk;

pub(crate) use client::add_replies;
pub use client::{Client, Pending, Reply, Request};
pub use generate::KeyPair;
pub(crate) use group::le_word;
pub use group::{Domain, Group, Side};
pub(crate) use key::Words;
pub use key::{Key, KeyParams};
pub use server::Server;
pub(crate) use walk::Walk;
pub use walk::expand_leaves;
