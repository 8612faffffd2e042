//! Both schemes over the ring, end to end.

#[path = "../../../pir/tests/it/classifier/mod.rs"]
mod classifier;

mod bfv;
mod ckks;
mod fixtures;
mod pack;
mod params;
mod prediction;
mod scheme;
mod select;
mod switch;
