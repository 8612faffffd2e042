//! The offline phase: two halves that make a precompute, step by step.
//!
//! The client asks and the server answers; every step's bytes follow from both sides' seeds and what came
//! before, so that a step whose reply was lost is simply made again. Several steps may be under way at
//! once.

mod client;
mod server;

pub use client::{Next, OfflineClient, Parallel};
pub use server::OfflineServer;
