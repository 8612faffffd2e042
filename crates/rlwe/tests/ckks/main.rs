//! CKKS, from outside.

#[path = "../../../pir/tests/classifier/mod.rs"]
mod classifier;

mod circuits;
mod clear;
mod distinguisher;
mod encoding;
mod fixtures;
mod noise;
mod polynomials;
mod vectors;
mod wire;
