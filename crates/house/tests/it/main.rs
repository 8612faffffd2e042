//! The rules of this repository, held.

mod circles;
mod house;
