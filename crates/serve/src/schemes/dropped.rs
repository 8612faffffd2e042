//! Says which precomputes of a folder were dropped, and why.

use std::collections::BTreeMap;

use hushtable_infer::store::{Dropped, Store};

/// Says it in the log; gives how many were refused because they may have been used before.
pub(crate) fn tell(store: &Store) -> u64 {
    let mut refused = BTreeMap::<String, u64>::new();
    for Dropped { name, why } in store.dropped() {
        if why.is_refusal() {
            // A folder that was put back has thousands of them.
            *refused.entry(why.to_string()).or_default() += 1;
        } else {
            tracing::warn!(name, %why, "a precompute was damaged, and is dropped");
        }
    }
    let ledger = store.ledger().display();
    for (why, count) in &refused {
        tracing::warn!(
            count,
            why,
            %ledger,
            "precomputes may have been used before: they are dropped, and others are made"
        );
    }
    refused.values().sum()
}
