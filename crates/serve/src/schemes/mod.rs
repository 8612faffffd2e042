//! The schemes: each has its service, its client, and what they announce and refuse, and is whole
//! without the others. What several of them share is beside their folders.

#[cfg(any(feature = "onion", feature = "pair"))]
pub(crate) mod bundles;
#[cfg(feature = "hybrid")]
pub(crate) mod hybrid;
#[cfg(feature = "infer")]
pub(crate) mod infer;
#[cfg(any(feature = "onion", feature = "pair"))]
pub(crate) mod lookup;
pub(crate) mod offered;
#[cfg(feature = "onion")]
pub(crate) mod onion;
#[cfg(feature = "pair")]
pub(crate) mod pair;
#[cfg(feature = "infer")]
mod plans;
pub(crate) mod refusal;
#[cfg(any(feature = "onion", feature = "pair"))]
mod retrieval;
#[cfg(feature = "infer")]
pub(crate) mod shares;
#[cfg(any(feature = "infer", feature = "pair"))]
pub(crate) mod side_name;
#[cfg(feature = "train")]
pub(crate) mod train;
#[cfg(any(feature = "onion", feature = "pair"))]
pub(crate) mod versions;
