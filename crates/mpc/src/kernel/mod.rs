//! What runs on every instance: the only module with `unsafe` code.

pub(crate) mod gates;
pub(crate) mod sums;
pub(crate) mod transpose;
