//! Every generator against its contract and its vectors.

mod contract;
mod vectors;
