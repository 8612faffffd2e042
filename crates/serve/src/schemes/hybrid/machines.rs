//! What this scheme drives: the machines of the protocol, and what they keep.

pub use hushtable_infer::hybrid::linear::Error as LinearError;
pub use hushtable_infer::hybrid::records::{Memory, RecordError};
pub use hushtable_infer::hybrid::store::{Head, Listed, Store, StoreError, StoreSpec, Writing};
pub use hushtable_infer::hybrid::{
    Error, HybridModel, OfflineServer, OnlineServer, Outline, Party, Plan, Records, Terms,
};
