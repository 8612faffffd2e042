//! Thin PyO3 bindings over the hushtable crates: arguments in, arrays and errors out.
//!
//! The names here are private to the Python package `hushtable`, which documents and types what
//! users call. Every call that may block runs without the interpreter lock.

#![forbid(unsafe_code)]

mod errors;
mod table;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::table::{NativeTable, build_table, verify_table};
}
