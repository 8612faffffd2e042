//! The schemes: each has its service, its client, and what they announce and refuse.

pub(crate) mod onion;
pub(crate) mod pair;
pub(crate) mod refusal;
pub(crate) mod train;
