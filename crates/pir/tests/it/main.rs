//! Private retrieval end to end: both schemes, their vectors, their clients and a distinguisher.

mod batch;
mod classifier;
mod client_network;
mod distinguisher;
mod model;
mod onion;
mod onion_distinguisher;
mod onion_noise;
mod onion_operations;
mod onion_prepare;
mod onion_shard_map;
mod onion_vectors;
mod parameter_vectors;
mod patched;
mod retrieval;
mod shards;
mod vectors;
