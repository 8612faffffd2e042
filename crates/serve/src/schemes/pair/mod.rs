//! Lookups from two servers that do not collude: their half and their clients', by `lookup.proto`.

mod answerer;
mod bags;
pub(crate) mod client;
mod device;
pub(crate) mod engine;
mod info;
pub(crate) mod load;
mod peer;
mod server;
mod service;
mod spec;
mod terms;

pub use client::{Bag, ClientSpec, Lookup, LookupClient, LookupStats};
pub use device::DeviceSpec;
pub use info::{LayoutInfo, TableInfo};
pub use server::Server;
pub use spec::ServerSpec;
pub use terms::PairTerms;
