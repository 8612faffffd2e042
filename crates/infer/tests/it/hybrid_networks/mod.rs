//! Networks for hybrid inference: read, lowered, quantised, computed in the open.

mod builtin;
mod costs;
mod graphs;
mod lowering;
mod plans;
mod ranges;
mod refusals;
