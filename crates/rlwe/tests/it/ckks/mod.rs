//! CKKS, from outside.

mod bootstrap;
mod circuits;
mod clear;
mod complex;
mod crew;
mod distinguisher;
mod encoding;
mod encrypted;
mod fixtures;
mod masks;
mod noise;
mod overflow;
mod periods;
mod polynomials;
mod splits;
mod vectors;
mod wire;
