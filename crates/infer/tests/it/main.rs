//! Encrypted recommendation, end to end.

mod circuits;
mod encrypted;
mod models;
mod refusals;
