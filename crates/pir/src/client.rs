//! Whole clients without sockets: matching servers, versions, layouts, key uploads, retries.
//!
//! Every operation of a client (opening it, a lookup, a bag) is a [`Machine`]; what drives machines, and what they
//! have in common with other schemes' is in [`hushtable_client`]. Keys and secrets alone come from the
//! operating system's generator.
//!
//! Servers are not believed: [`PairTerms`] and the announcements' checks refuse what does not fit before
//! anything secret leaves (`docs/security/clients.md`).

mod announced;
mod bags;
mod call;
mod catalog;
mod defect;
mod failure;
mod inference;
mod model;
mod model_opening;
mod onion;
mod onion_info;
mod pair;
mod stats;
mod table;
mod table_info;
mod terms;

pub use announced::{
    BAGS_PER_REQUEST_MAX, KEY_OVERHEAD_BYTES, KEYS_PER_REQUEST_MAX, QUERIES_PER_REQUEST_MAX,
    REQUEST_BYTES, version,
};
pub use call::{Answers, Call, Reply, Retrieval};
pub use catalog::{AnnouncedCatalog, AnnouncedModel, ModelInfo};
pub use defect::ReplyDefect;
pub use failure::Failure;
pub use hushtable_client::{Bell, CallFault, Machine, Place};
pub use model::{FeatureRows, ModelClient, ModelFacts, ModelRows, ModelSpec};
pub use onion::{OnionClient, OnionSpec};
pub use onion_info::{AnnouncedOnion, ONION_REQUEST_BYTES, OnionInfo, QUERY_OVERHEAD_BYTES};
pub use pair::{PairClient, PairSpec};
pub use stats::{BagPart, BagRows, BagsRows, LookupStats, RowFormat, Rows};
pub use table_info::{AnnouncedTable, LayoutInfo, TableInfo};
pub use terms::{PairTerms, common_group};

/// Why an operation ended without what was asked for; `E` is the error of whoever makes the calls.
pub type Error<E> = hushtable_client::Error<Failure, E>;

/// What one of these clients does in a round.
type Round<T> = hushtable_client::Round<Call, T>;
