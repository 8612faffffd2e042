//! Many rows at once: one request of fixed size for every bin of a layout.
//!
//! A [`Layout`](hushtable_table::layout::Layout) says which bins there are and how many keys each
//! gets; [`Geometry`] is what of it servers and wire need. [`Client`] turns a plan's offsets into
//! two requests and two replies into rows; [`Server`] checks requests and hands them to a
//! [`BatchBackend`], of which [`BatchEngine`] is the one for processors.
//!
//! A bin of one leaf (at most 512 rows) is asked with XOR shares as Chor, Goldreich, Kushilevitz
//! and Sudan have them (FOCS 1995): right gets a vector of one bit a row, left the seed of the
//! vector that differs from it in the wanted row. All of left's seeds follow from one, so its
//! request is 36 bytes. A larger bin is asked with a distributed point function
//! ([`dpf`](crate::dpf)), whose root seeds follow from one seed a server as well.

mod client;
mod engine;
mod geometry;
pub mod reference;
mod request;
mod rows;
mod server;

pub use client::{Client, Pending, Request};
pub use engine::BatchEngine;
pub use geometry::{Costs, Geometry, PartGeometry};
pub use request::BatchKeys;
pub use rows::PartRows;
pub use server::{BatchBackend, Server};
