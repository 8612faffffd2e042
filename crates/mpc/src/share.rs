//! Additive shares.
