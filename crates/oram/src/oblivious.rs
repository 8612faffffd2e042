//! Branch-free building blocks: masks, conditional moves, a sorting network, compaction and its
//! reverse.
//!
//! Which addresses are touched, and in what order, depends on lengths and strides alone, never on a
//! key, a flag, a destination or a row. A decision on a secret is a [`Mask`]; there is no branch, no
//! index and no division by a secret. `tests/ctgrind.rs` holds the optimised code to it.
//!
//! Arrays are columns: `keys[i]` goes with the `stride` bytes of `payload` from `i * stride`. A
//! stride of 0 is an array of keys alone, and the fast case: pack what fits into the key.
//!
//! Above 2^16 elements (a length is public) the networks run on two or more threads of rayon's
//! pool; the same comparators are made in the same places, whoever makes them.

mod bytes;
mod column;
mod compact;
mod distribute;
mod mask;
mod pick;
mod route;
mod sort;

pub use bytes::{copy_if, or_into_if, swap_if};
pub use compact::{compact, compact_pairs};
pub use distribute::{NOWHERE, distribute, distribute_pairs};
pub use mask::Mask;
pub use pick::pick;
pub use route::Router;
pub use sort::{sort, sort_pairs};
