//! What is held about a module beside its source.

use crate::ModuleSpec;

/// A module that engines ask for, and what is held about it.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Listed {
    /// The module.
    pub spec: ModuleSpec,
    /// Kernels of it that must keep what they work on in registers: a spill of one fails the tests.
    pub spill_free: &'static [&'static str],
}
