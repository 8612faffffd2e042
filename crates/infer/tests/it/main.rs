//! Encrypted recommendation, end to end.

#[path = "../../../pir/tests/it/classifier/mod.rs"]
mod classifier;

mod bundles;
mod circuits;
mod costs;
mod encrypted;
mod encrypted_session;
mod hybrid;
mod hybrid_lies;
mod hybrid_networks;
mod hybrid_session;
mod hybrid_views;
mod keys_read;
mod linear_vectors;
mod models;
mod parts;
mod plans;
mod refusals;
mod restored;
mod shares_lookups;
mod shares_session;
