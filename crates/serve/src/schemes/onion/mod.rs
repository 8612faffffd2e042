//! Lookups from one server: its half and its clients', by `onion.proto`.

mod answerer;
mod client;
mod engine;
mod info;
pub mod keys;
pub(crate) mod load;
mod peer;
mod server;
mod service;
mod spec;

pub use client::{OnionClient, OnionClientSpec};
pub use info::OnionInfo;
pub use server::OnionServer;
pub use spec::OnionServerSpec;

/// Bytes of keys in one message of an upload.
const CHUNK_BYTES_MAX: usize = 1 << 20;
