//! What this machine computes with.

use hushtable_prg::{Platform, PrgKind};
use pyo3::prelude::*;

/// Instruction tiers, by name.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct PlatformFacts {
    /// The one that is used.
    chosen: &'static str,
    available: Vec<&'static str>,
    /// What `HUSHTABLE_ISA` says.
    cap: Option<String>,
    /// Whether that is a tier.
    cap_is_known: bool,
}

/// The instruction tiers of this machine.
#[pyfunction]
pub(crate) fn platforms() -> PlatformFacts {
    let (cap, cap_is_known) = match Platform::isa_cap() {
        Ok(cap) => (cap.map(|tier| format!("{tier:?}").to_lowercase()), true),
        Err(text) => (Some(text), false),
    };
    let available = Platform::available().into_iter().map(Platform::name).collect();
    PlatformFacts { chosen: Platform::detect().name(), available, cap, cap_is_known }
}

/// Names of all generators.
#[pyfunction]
pub(crate) fn prg_names() -> Vec<&'static str> {
    PrgKind::ALL.map(PrgKind::name).to_vec()
}
