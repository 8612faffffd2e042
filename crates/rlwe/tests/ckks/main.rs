//! CKKS, from outside.

mod clear;
mod encoding;
mod fixtures;
mod wire;
