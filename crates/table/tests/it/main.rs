//! Bundles and models on disk: written, read, patched, killed and damaged.

mod bundle;
mod checkpoints;
mod crash;
mod layout;
mod model;
mod patch;
mod prepared;
mod reading;
mod rows;
mod sources;
