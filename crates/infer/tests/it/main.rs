//! Encrypted recommendation, end to end.

#[path = "../../../pir/tests/classifier/mod.rs"]
mod classifier;

mod circuits;
mod encrypted;
mod hybrid;
mod hybrid_views;
mod models;
mod refusals;
