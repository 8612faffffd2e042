//! What is computed between two links, on any evaluator.

use hushtable_rlwe::ckks::Evaluate;

use super::chain::{Gate, SILU_DEGREE};
use super::error::Error;
