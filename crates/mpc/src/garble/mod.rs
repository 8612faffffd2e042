//! Garbled circuits.
