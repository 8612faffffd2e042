//! Transfers, garbling and comparisons, end to end and against their vectors.

#[path = "../../../pir/tests/it/classifier/mod.rs"]
mod classifier;

mod compare;
mod garble;
mod garble_circuits;
mod garble_distinguisher;
mod garble_vectors;
mod joint;
mod ot;
