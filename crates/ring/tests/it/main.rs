//! The ring against its specification and its vectors.

mod ring;
mod vectors;
