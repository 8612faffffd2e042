//! The schemes: each has its service, its client, and what they announce and refuse, and is whole
//! without the others. What several of them share is beside their folders.

pub(crate) mod all;
#[cfg(any(feature = "onion", feature = "pair"))]
pub(crate) mod bundles;
#[cfg(feature = "ckks")]
pub(crate) mod ckks;
pub(crate) mod described;
#[cfg(any(feature = "hybrid", feature = "shares"))]
mod dropped;
#[cfg(feature = "hybrid")]
pub(crate) mod hybrid;
#[cfg(any(feature = "onion", feature = "pair"))]
pub(crate) mod lookup;
pub(crate) mod offered;
#[cfg(feature = "onion")]
pub(crate) mod onion;
#[cfg(feature = "pair")]
pub(crate) mod pair;
#[cfg(any(feature = "ckks", feature = "shares"))]
mod plans;
#[cfg(any(feature = "onion", feature = "pair"))]
mod retrieval;
#[cfg(feature = "shares")]
pub(crate) mod shares;
#[cfg(any(feature = "pair", feature = "shares"))]
pub(crate) mod side_name;
#[cfg(feature = "train")]
pub(crate) mod train;
#[cfg(any(feature = "onion", feature = "pair"))]
pub(crate) mod versions;
