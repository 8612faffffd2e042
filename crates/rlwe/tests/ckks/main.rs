//! CKKS, from outside.

mod clear;
mod encoding;
mod fixtures;
mod polynomials;
mod wire;
