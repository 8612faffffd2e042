//! Networks for hybrid inference: read, lowered, quantised, computed in the open.

mod builtin;
