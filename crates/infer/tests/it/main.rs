//! Encrypted recommendation, end to end.

mod circuits;
mod encrypted;
mod hybrid;
mod models;
mod refusals;
