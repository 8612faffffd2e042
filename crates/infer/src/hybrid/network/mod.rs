//! Networks of floats: read, folded into stages, quantised.
//!
//! A [`Network`] is a graph of operators as importers write it ([`graph`]). It is lowered to stages of
//! floats ([`lower`]), run on samples for its ranges (`ranges`), and quantised ([`quantise`]) to what
//! the protocol computes: a [`Program`](super::Program) that both parties know, and the server's
//! [`Weights`](super::program::Weights). [`compile()`] does all of it.

mod compile;
mod error;
mod float;
pub mod graph;
mod lower;
mod matrix;
mod parts;
mod quantise;
mod ranges;
mod value;

pub use self::compile::{CompileSpec, Compiled, compile};
pub use self::error::Error;
pub use self::graph::{METADATA_KEY, Network, Node, Op, Post};
pub use self::lower::{Lowered, lower};
pub(super) use self::matrix::convolve;
pub use self::quantise::quantise;
pub use self::ranges::{Range, Ranges};
pub use self::value::{FloatActivation, FloatStage, FloatTerm};
pub use super::reference::{decode, encode, reference};
